"""Compaction: few large files out of many small ones. `history` is compacted by day, `current` by span.

upkeep.py calls it after every `compactEvery` batches. A span is a range of creation times (index_merge.py). A batch
adds a file per task to `history`. Compaction merges the small files of a day into large ones. These are sorted by
job like every file, so a query for one job still reads only a few rows of each. They are compressed more, because
they stay. The commits declare that they change no data, so a reader that follows the table reads nothing twice.
"""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import RemoveAction

from disque_py.spark.delta_store import PACKED_CODEC, NewFile, Store, write_file
from disque_py.spark.index_changes import COMMIT_TRIES
from disque_py.spark.index_merge import CurrentMerge
from disque_py.spark.index_reading import IndexFile, read_rows
from disque_py.spark.index_schema import CURRENT, DAY, HISTORY, arrow_schema

# A file of `history` has about this many rows. They are sorted in memory, at 200 bytes each.
FILE_ROWS: Final = 1_000_000
SORT_KEYS: Final = ("job_id", "version", "node", "seq")


def compact(store: Store, name: str, table: DeltaTable) -> int:
    """Do one round for one of the two tables, and return the number of files that are gone."""
    return CurrentMerge(store, table).compact() if name == CURRENT else compact_history(store, table)


def compact_history(store: Store, table: DeltaTable) -> int:
    """Merge the small files of each day, and return the number of files that are gone."""
    gone = 0
    for day, files in sorted(_small_files(table).items()):
        group: list[tuple[str, int, int]] = []
        for file in [*files, None]:
            if file is None or sum(rows for _, _, rows in group) + file[2] > FILE_ROWS:
                if len(group) > 1:
                    _merge(store, table, day, group)
                    gone += len(group)
                group = []
            if file is not None:
                group.append(file)
    return gone


def _small_files(table: DeltaTable) -> dict[str, list[tuple[str, int, int]]]:
    """Return day → (path, bytes, rows) of the files that are less than half full, oldest first."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", f"partition.{DAY}")
    days: dict[str, list[tuple[str, int, int]]] = {}
    if not len(actions):
        return days
    order = actions.take(pc.sort_indices(actions, sort_keys=[("modification_time", "ascending")]))
    for path, size, rows, day in zip(*(order[name].to_pylist() for name in names), strict=True):
        if rows is not None and rows < FILE_ROWS // 2:
            days.setdefault(str(day), []).append((path, size, rows))
    return days


def _merge(store: Store, table: DeltaTable, day: str, group: list[tuple[str, int, int]]) -> None:
    """Replace a group of a day's files by one file, in one transaction."""
    schema = arrow_schema(table)
    schema = schema.remove(schema.get_field_index(DAY))
    batches = [batch for path, _, _ in group for batch in read_rows(store, HISTORY, IndexFile(path, day), schema)]
    rows = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in SORT_KEYS]))
    written: NewFile = write_file(store.under(HISTORY), rows, {DAY: day}, codec=PACKED_CODEC)
    now_ms = time.time_ns() // 1_000_000
    # If this fails, the new file stays: the error may have come after the commit (index_merge.py).
    table.create_write_transaction(
        [
            *(RemoveAction(path, False, now_ms, size, {DAY: day}) for path, size, _ in group),
            written.add_action(changes_data=False),
        ],
        mode="append",
        schema=table.schema(),
        partition_by=[DAY],
        commit_properties=CommitProperties(max_commit_retries=COMMIT_TRIES),
    )
