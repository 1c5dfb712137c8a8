"""Rebuilding a lost table `current` from `history`: `disque-pipeline rebuild`.

Taking the newest event per job is commutative and may be repeated (index_newest.py). So the events of `history` are
reduced, some files at a time, and merged into the table like a batch of events. Rows that the table already has stay.
A property of the table says that a rebuild has begun. Until it has ended, index queries refuse to start. After an
interrupted run, run it again.

If `historyRetention` has removed events from `history`, a job's row comes from the remaining events. Jobs that
`currentRetention` has removed come back until the next upkeep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store
from disque_py.spark.index_merge import CurrentMerge, span_files
from disque_py.spark.index_newest import newest, with_final
from disque_py.spark.index_reading import IndexFile, read_rows
from disque_py.spark.index_schema import CURRENT, DAY, HISTORY, arrow_schema, make_current, open_existing
from disque_py.spark.index_sorting import sort_by_job
from disque_py.spark.index_tables import REBUILDING

# This many events are held in memory before they are merged, at about 200 bytes each.
ROWS: Final = 1_000_000


def rebuild(store: Store) -> tuple[int, int]:
    """Merge all of `history` into `current`. Return the events read and the jobs in the table. Raises TableError."""
    history = open_existing(store, HISTORY)
    columns = arrow_schema(history)
    columns = columns.remove(columns.get_field_index(DAY))
    make_current(store, columns, is_rebuilding=True)
    _note(store, is_rebuilding=True)
    count = waiting = 0
    staged: list[pa.Table] = []
    for events in _events(store, history, columns):
        count += len(events)
        jobs = events.filter(events["job_id"].is_valid())
        if len(jobs):
            staged.append(newest(sort_by_job(with_final(jobs))))
            waiting += len(staged[-1])
        if waiting >= ROWS:
            _merge(store, staged)
            staged, waiting = [], 0
    if staged:
        _merge(store, staged)
    _note(store, is_rebuilding=False)
    return count, sum(file.rows for file in span_files(store.under(CURRENT).table()))


def _note(store: Store, *, is_rebuilding: bool) -> None:
    table = store.under(CURRENT).table()
    table.alter.set_table_properties({REBUILDING: str(int(is_rebuilding))}, raise_if_not_exists=False)


def _merge(store: Store, staged: list[pa.Table]) -> None:
    CurrentMerge(store, store.under(CURRENT).table()).merge(staged)


def _events(store: Store, history: DeltaTable, columns: pa.Schema) -> Iterator[pa.Table]:
    """Yield the events in parts of files. Files are sorted by creation time, so that a merge rewrites few files."""
    actions = pa.table(history.get_add_actions(flatten=True))
    created = actions["min.ctime"] if "min.ctime" in actions.column_names else pa.nulls(len(actions), pa.int64())
    files = pa.table({"path": actions["path"], "day": actions[f"partition.{DAY}"], "created": created})
    files = files.take(pc.sort_indices(files, sort_keys=[("created", "ascending"), ("path", "ascending")]))
    for file in files.to_pylist():
        waiting: list[pa.RecordBatch] = []
        for batch in read_rows(store, HISTORY, IndexFile(file["path"], str(file["day"])), columns):
            waiting.append(batch)
            if sum(map(len, waiting)) >= ROWS:
                yield pa.Table.from_batches(waiting)
                waiting = []
        if waiting:
            yield pa.Table.from_batches(waiting)
