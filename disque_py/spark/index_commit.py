"""The driver's part of the index: commit one batch into both tables, exactly once.

The order is:

1. Widen the schema.
2. Merge the newest events into `current`. Repeating this step does no harm.
3. Commit one transaction on `history`, with all new files and the new marks.

The third step is the commit point. Spark repeats the batch after a crash. If the crash came before the commit point,
the repeated rows are added. If it came after, they are dropped. Files that a crash left behind belong to no table;
`upkeep` removes them.

Only one query may write to a path at a time. A second query is detected by the marks that it leaves.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from disque_py.spark.delta_store import NewFile, Store, TableError, delete_files, read_staged
from disque_py.spark.index_changes import COMMIT_TRIES
from disque_py.spark.index_merge import CurrentMerge
from disque_py.spark.index_schema import DAY, HISTORY, STAGING, open_tables
from disque_py.spark.index_writing import Seen, Written, mark_name


class GapError(RuntimeError):
    """Events are missing between the end of the index and the batch. The text names log and numbers."""


@dataclass(slots=True)
class Committed:
    """The figures of a batch. Spans are in milliseconds; `newest_ms` is the time of its newest event (0: none)."""

    rows: int
    dropped: int
    jobs: int
    newest_ms: int
    merge_ms: int
    commit_ms: int


class IndexCommit:
    """The committer of one query's batches.

    columns     columns of the rows, for tables that have to be made or widened
    may_gap     rows may be missing (a filter in the query, or losses that were accepted)
    merge_every_s   how many seconds the change of an old job may wait for its merge into `current`
    """

    def __init__(self, store: Store, columns: pa.Schema, *, may_gap: bool, merge_every_s: int = 0) -> None:
        self._store = store
        self._columns = columns
        self._may_gap = may_gap
        self._merge_every_s = merge_every_s

    def commit(self, parts: Iterable[Written]) -> Committed:
        """Commit the files of all tasks. Raises GapError, TableError, before anything of this batch is visible."""
        parts = list(parts)
        seen: dict[tuple[str, str], Seen] = {}
        for part in parts:
            for log, found in part.seen.items():
                seen[log] = seen[log].join(found) if log in seen else found
        history, current = open_tables(self._store, self._columns)
        marks = self._new_marks(history, seen)
        began = time.monotonic()
        jobs = self._merge(current, parts)
        merged = time.monotonic()
        files = [file for part in parts for file in part.history]
        if files or marks:
            self._add(history, files, marks)
        delete_files(self._store.under(STAGING), [file.path for part in parts for file in part.staged])
        return Committed(
            rows=sum(part.rows for part in parts),
            dropped=sum(part.dropped for part in parts),
            jobs=jobs,
            newest_ms=max((part.newest_ms for part in parts), default=0),
            merge_ms=round((merged - began) * 1000),
            commit_ms=round((time.monotonic() - merged) * 1000),
        )

    def _add(self, history: DeltaTable, files: list[NewFile], marks: dict[tuple[str, str], int]) -> None:
        """Add files and marks to `history`. Raises TableError if another query has changed the marks meanwhile."""
        try:
            history.create_write_transaction(
                [file.add_action() for file in files],
                mode="append",
                schema=history.schema(),
                partition_by=[DAY],
                commit_properties=CommitProperties(
                    max_commit_retries=COMMIT_TRIES,
                    app_transactions=[Transaction(mark_name(*log), mark) for log, mark in sorted(marks.items())],
                ),
            )
        except CommitFailedError as error:
            raise self._overtaken(error) from error

    def _overtaken(self, error: CommitFailedError) -> TableError:
        return TableError(
            f"disque-index: another query changed {self._store.path} while this batch was committed "
            f"({str(error).splitlines()[0]}); stop the other query, or wait for its end, and start this one again"
        )

    def abort(self, parts: Iterable[Written]) -> None:
        """Remove the files of a batch that failed before its commit point.

        Spark also aborts a batch if an error follows the commit point: upkeep fails, or the disk is full. Then the
        files belong to the table. If they have left it again by compaction, a query may still read them. The table's
        marks tell whether the batch was committed. If the table can't be read, the files stay, too. Upkeep removes
        them.
        """
        parts = list(parts)
        for part in parts:
            delete_files(self._store.under(STAGING), [file.path for file in part.staged])
        with suppress(TableError):
            history = self._store.under(HISTORY).table()
            if not _is_committed(history, parts):
                delete_files(self._store.under(HISTORY), [file.path for part in parts for file in part.history])

    def _new_marks(self, history: DeltaTable, seen: dict[tuple[str, str], Seen]) -> dict[tuple[str, str], int]:
        marks = {}
        for (node, log), found in seen.items():
            mark = history.transaction_version(mark_name(node, log))
            if mark is not None and mark > found.mark and mark >= found.first:
                raise TableError(
                    f"disque-index: {self._store.path} got events of node {node}, log {log} up to {mark} from another "
                    f"query while this batch was written; stop the other query, or wait for its end, and start this "
                    "one again"
                )
            if mark is not None and found.last <= mark:
                continue
            marks[node, log] = found.last
            if self._may_gap:
                continue
            if mark is not None and found.first > mark + 1:
                raise GapError(
                    f"disque-index: {self._store.path} has the events of node {node}, log {log} up to {mark}, but the "
                    f"next that came is {found.first}; read from {mark + 1} on (startingOffsets), or, if the node no "
                    "longer has these events, set gaps=allow"
                )
            if found.count < found.last - found.first + 1:
                raise GapError(
                    f"disque-index: of events {found.first} to {found.last} of node {node}, log {log}, only "
                    f"{found.count} came; if the query leaves some out on purpose, set gaps=allow"
                )
        return marks

    def _merge(self, current: DeltaTable, parts: list[Written]) -> int:
        """Merge the newest events into `current`, and return the number of jobs. Raises TableError, as `_add`."""
        staging = self._store.under(STAGING)
        try:
            staged = [read_staged(staging, file.path) for part in parts for file in part.staged]
        except FileNotFoundError as error:
            raise TableError(
                f"disque-index: {staging.path} lacks a file that an executor wrote ({error}); the option path must "
                "name storage that the driver and all executors reach"
            ) from None
        try:
            return CurrentMerge(self._store, current, self._merge_every_s).merge(staged) if staged else 0
        except CommitFailedError as error:
            raise self._overtaken(error) from error


def _is_committed(history: DeltaTable, parts: Iterable[Written]) -> bool:
    """Return whether the table has all events of these tasks, by its marks."""
    for part in parts:
        for log, found in part.seen.items():
            mark = history.transaction_version(mark_name(*log))
            if mark is None or mark < found.last:
                return False
    return True
