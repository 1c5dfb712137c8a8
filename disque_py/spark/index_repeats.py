"""Events that the index has already: whether they are the same ones.

A log that was cut goes on with numbers of events that the index has (docs/events.md). A query that has lost its
checkpoint can't notice that. Its events would be dropped by their numbers, as if the index had them. So the last of the
events that a task drops is compared with the row that the index has for its number. From the cut on, the events differ,
so that one is enough: if it is the same event, the ones before it are the same, too.

This costs nothing while no event is dropped. A row that retention removed, or that the query leaves out, is not
compared.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.event_log import name_after_cut
from disque_py.spark.index_reading import IndexFile, read_rows
from disque_py.spark.index_schema import DAY, HISTORY, arrow_schema

# The columns that are compared: those that name a transition, and its time, because a job may make the same one again.
SAME: Final = ("job_id", "version", "event", "ts")


def check_repeats(store: Store, table: Any, node: str, log: str, dropped: pa.Table) -> None:
    """Raise TableError if the last of these events of a log is another one than that of its number in `history`."""
    seq = pc.max(dropped["seq"]).as_py()
    came = _plain(dropped.filter(pc.equal(dropped["seq"], seq)))
    had = _row_of(store, table, node, log, seq)
    if had is not None and had != came:
        raise TableError(
            f"disque-index: event {seq} of node {node}, log {log}, is {_name(came)}, but {store.path} has {_name(had)} "
            "under this number: the log was cut, because the node runs on an older copy of its directory, and the "
            "checkpoint is lost or older than the index; to read the log again from its first event, remove the "
            f'checkpoint, and start with startingOffsets={{"{node}": {{"log": "{name_after_cut(log)}", "next": 1}}}} '
            "and -2 for every other node"
        )


def _row_of(store: Store, table: Any, node: str, log: str, seq: int) -> dict[str, Any] | None:
    """Return the row of an event; None if the table does not have it."""
    whole = arrow_schema(table)
    schema = pa.schema([whole.field(name) for name in ("node", "log", "seq", *SAME)])
    for file in _files_with(table, node, seq):
        with suppress(FileNotFoundError):  # It has left the table meanwhile.
            for batch in read_rows(store, HISTORY, file, schema):
                is_it = pc.and_(pc.equal(batch.column("seq"), seq), pc.equal(batch.column("node"), node))
                found = batch.filter(pc.and_(is_it, pc.equal(batch.column("log"), log)))
                if len(found):
                    return _plain(pa.Table.from_batches([found]))
    return None


def _plain(rows: pa.Table) -> dict[str, Any]:
    """Return the compared columns of the first row. Spark labels times, which are UTC, with the zone of its session."""
    row = rows.slice(0, 1).select(SAME)
    ts = row["ts"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    plain: dict[str, Any] = row.set_column(SAME.index("ts"), "ts", ts).to_pylist()[0]
    return plain


def _files_with(table: Any, node: str, seq: int) -> list[IndexFile]:
    """Return the files that may have an event, by their smallest and largest values."""
    actions = pa.table(table.get_add_actions(flatten=True))
    keep = pa.array([True] * len(actions), pa.bool_())
    for name, value in (("seq", seq), ("node", node)):
        for bound, rules_out in (("min", pc.greater), ("max", pc.less)):
            if f"{bound}.{name}" in actions.column_names:
                is_out = pc.fill_null(rules_out(actions[f"{bound}.{name}"], value), False)
                keep = pc.and_not(keep, is_out)
    files = actions.filter(keep)
    days = files[f"partition.{DAY}"].to_pylist() if len(files) else []
    return [IndexFile(path, str(day)) for path, day in zip(files["path"].to_pylist(), days, strict=True)]


def _name(row: dict[str, Any]) -> str:
    of = "the node" if row["job_id"] is None else f"job {row['job_id']}, version {row['version']}"
    return f"{row['event']} of {of} at {row['ts']}"
