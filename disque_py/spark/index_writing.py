"""The executors' part of the index: write a task's events as files that no table knows yet.

Events that the table already has are dropped by their number. For each node and log, `history` records the highest
number that was ever committed, as a `txn` action in the same commit as the rows. So a batch that Spark repeats adds
nothing. Nor does a whole log that is read again because the checkpoint was lost. The remaining events are sorted by
job and written twice: all of them for `history`, and the newest event of each job for the merge into `current`.

A log that was cut is read again under another name (docs/events.md). Its later events have numbers that the table
knows under the old name. So events under the old name are refused: they would be dropped. If no query has noticed the
cut yet, index_repeats.py notices it before such events are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from disque_py.spark.delta_store import NewFile, Store, TableError, write_file, write_staged
from disque_py.spark.event_log import name_after_cut
from disque_py.spark.index_newest import newest, with_final
from disque_py.spark.index_repeats import check_repeats
from disque_py.spark.index_schema import FINAL, HISTORY, STAGING, IndexSchemaError
from disque_py.spark.index_sorting import sort_by_job

# The columns that name an event.
POSITION: Final = ("node", "log", "seq")
# The day of rows without a time. It is no scalar of Arrow: to make one, Arrow imports pandas, which takes a third of a
# second of each of the many processes that Spark starts for a query.
EPOCH: Final = date(1970, 1, 1)
# A task holds this many rows in memory before it writes files, or this many bytes. An Arrow array of text has 2 GiB at
# most, and rows may have long metadata and bodies.
FLUSH_ROWS: Final = 400_000
FLUSH_BYTES: Final = 256 << 20


@dataclass(slots=True)
class Seen:
    """The events of one log in a task or a batch, including dropped ones.

    first, last, count   first and last number, and how many events there are
    mark                 the number up to which the table had the log when the task dropped events; -1: none
    """

    first: int
    last: int
    count: int
    mark: int = -1

    def join(self, other: Seen) -> Seen:
        """Return the sum of two parts of a log."""
        return Seen(
            min(self.first, other.first),
            max(self.last, other.last),
            self.count + other.count,
            min(self.mark, other.mark),
        )


@dataclass(slots=True)
class Written:
    """The report of a task to the commit.

    seen        (node, log) → the numbers that came
    history     new files of the table
    staged      files of newest events, under STAGING
    newest_ms   the time of the newest event, Unix ms
    """

    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)
    history: list[NewFile] = field(default_factory=list)
    staged: list[NewFile] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    newest_ms: int = 0


def mark_name(node: str, log: str) -> str:
    """Return the name of the `txn` action with a log's highest committed number."""
    return f"events/{node}/{log}"


class IndexTask:
    """The writer of one task's rows, in parts of FLUSH_ROWS or FLUSH_BYTES."""

    def __init__(self, store: Store) -> None:
        self.written = Written()
        self._store = store
        self._table = store.under(HISTORY).table() if store.under(HISTORY).exists() else None
        self._marks: dict[tuple[str, str], int] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write all rows of the task. There may be none.

        Raises IndexSchemaError for a row without a position, and TableError for a log under the name that it had
        before it was cut, also if no query has noticed the cut yet.
        """
        for batch in batches:
            self._waiting.append(batch)
            self._waiting_rows += len(batch)
            self._waiting_bytes += batch.nbytes
            if self._waiting_rows >= FLUSH_ROWS or self._waiting_bytes >= FLUSH_BYTES:
                self._flush()
        if self._waiting_rows:
            self._flush()
        return self.written

    def _flush(self) -> None:
        events = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        _check(events)
        count = len(events)
        events = self._unseen(events)
        self.written.rows += len(events)
        newest_ts = pc.max(events["ts"]).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).as_py()
        self.written.newest_ms = max(self.written.newest_ms, newest_ts or 0)
        self.written.dropped += count - len(events)
        if not len(events):
            return
        events = sort_by_job(with_final(events))
        # A node's own events (it was started, it was flushed) belong to no job.
        of_jobs = events.filter(events["job_id"].is_valid()) if events["job_id"].null_count else events
        if len(of_jobs):
            self.written.staged.append(write_staged(self._store.under(STAGING), newest(of_jobs)))
        rows = events.drop_columns([FINAL])
        days = rows["ts"].cast(pa.timestamp("us")).cast(pa.date32()).fill_null(EPOCH)
        found = sorted(pc.unique(days).to_pylist())
        for day in found:
            part = rows if len(found) == 1 else rows.filter(pc.equal(days, day))
            self.written.history.append(write_file(self._store.under(HISTORY), part, {"day": day.isoformat()}))

    def _unseen(self, events: pa.Table) -> pa.Table:
        """Return the events that are not committed yet, each once."""
        numbers = [("seq", "min"), ("seq", "max"), ("seq", "count_distinct"), ("seq", "count")]
        logs = events.group_by(["node", "log"]).aggregate(numbers)
        keep = None
        repeats = False
        for row in logs.to_pylist():
            log = (row["node"], row["log"])
            mark = self._mark(*log)
            seen = Seen(row["seq_min"], row["seq_max"], row["seq_count_distinct"], mark)
            self.written.seen[log] = self.written.seen[log].join(seen) if log in self.written.seen else seen
            repeats = repeats or row["seq_count"] > seen.count
            if mark >= seen.first:
                is_old = pc.and_(
                    pc.and_(pc.equal(events["node"], log[0]), pc.equal(events["log"], log[1])),
                    pc.less_equal(events["seq"], mark),
                )
                if self._table is not None:
                    check_repeats(self._store, self._table, *log, events.filter(is_old))
                keep = pc.invert(is_old) if keep is None else pc.and_(keep, pc.invert(is_old))
        if keep is not None:
            events = events.filter(keep)
        return _distinct(events) if repeats else events

    def _mark(self, node: str, log: str) -> int:
        """Return the highest number of this log that the table has; -1 for none. Raises TableError for an old name."""
        mark = self._marks.get((node, log))
        if mark is None:
            self._check_name(node, log)
            mark = self._marks[node, log] = self._committed(node, log)
        return mark

    def _check_name(self, node: str, log: str) -> None:
        newest, mark = (log, -1) if self._table is None else newest_mark(self._table, node, log)
        if newest != log:
            raise TableError(
                f"disque-index: log {log} of node {node} was cut, and {self._store.path} has its events from then on "
                f"as log {newest}, up to {mark}; the query uses the old name, because its checkpoint was lost or is "
                f'older: remove the checkpoint, and start with startingOffsets={{"{node}": {{"log": "{newest}", '
                f'"next": {mark + 1}}}}} and -2 for every other node'
            )

    def _committed(self, node: str, log: str) -> int:
        return -1 if self._table is None else committed(self._table, node, log)


def committed(history: DeltaTable, node: str, log: str) -> int:
    """Return the highest number of a log that the table has; -1 for none."""
    found = history.transaction_version(mark_name(node, log))
    return -1 if found is None else found


def newest_mark(history: DeltaTable, node: str, log: str) -> tuple[str, int]:
    """Return the name that the table has for this log since it was cut last, and the highest number under that name."""
    newest, mark = log, committed(history, node, log)
    while (after := committed(history, node, name_after_cut(newest))) >= 0:
        newest, mark = name_after_cut(newest), after
    return newest, mark


def _check(events: pa.Table) -> None:
    """Check that every row has its position, and every event of a job its version. Raises IndexSchemaError."""
    for name in (*POSITION, "version"):
        lacks = events[name].is_null()
        if name == "version":
            lacks = pc.and_(lacks, events["job_id"].is_valid())
        if events[name].null_count and pc.any(lacks).as_py():
            job_id = events["job_id"].filter(lacks)[0].as_py()
            raise IndexSchemaError(
                f"disque-index: a row has no {name} (job_id {job_id}); pass on node, log, seq and version as "
                "disque-events gives them, or leave such rows out and set gaps=allow"
            )


def _distinct(events: pa.Table) -> pa.Table:
    """Return each (node, log, seq) once."""
    numbered = events.append_column("_row", pa.array(range(len(events)), pa.int64()))
    return events.take(numbered.group_by(["node", "log", "seq"]).aggregate([("_row", "min")])["_row_min"])
