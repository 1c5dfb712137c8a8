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

# A file of `history` has about this many rows, or this many bytes. They are sorted in memory, at some 200 bytes a row.
FILE_ROWS: Final = 1_000_000
FILE_BYTES: Final = 256 << 20
# Long bodies and metadata may take much more memory than space on disk. An Arrow array of text has 2 GiB at most.
SORTED_BYTES: Final = 1 << 30
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
            if file is None or not _fits(group, file):
                if len(group) > 1:
                    _merge(store, table, day, group)
                    gone += len(group)
                group = []
            if file is not None:
                group.append(file)
    return gone


def _fits(group: list[tuple[str, int, int]], file: tuple[str, int, int]) -> bool:
    """Return whether a group may have this file, too."""
    files = [*group, file]
    return sum(rows for _, _, rows in files) <= FILE_ROWS and sum(size for _, size, _ in files) <= FILE_BYTES


def _small_files(table: DeltaTable) -> dict[str, list[tuple[str, int, int]]]:
    """Return day → (path, bytes, rows) of the files that are less than half full, oldest first."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", f"partition.{DAY}")
    days: dict[str, list[tuple[str, int, int]]] = {}
    if not len(actions):
        return days
    order = actions.take(pc.sort_indices(actions, sort_keys=[("modification_time", "ascending")]))
    for path, size, rows, day in zip(*(order[name].to_pylist() for name in names), strict=True):
        if rows is not None and rows < FILE_ROWS // 2 and size < FILE_BYTES // 2:
            days.setdefault(str(day), []).append((path, size, rows))
    return days


def _merge(store: Store, table: DeltaTable, day: str, group: list[tuple[str, int, int]]) -> None:
    """Replace a group of a day's files by one file, or by several of SORTED_BYTES each, in one transaction."""
    schema = arrow_schema(table)
    schema = schema.remove(schema.get_field_index(DAY))
    written: list[NewFile] = []
    batches: list[pa.RecordBatch] = []

    def write() -> None:
        rows = pa.Table.from_batches(batches, schema=schema).combine_chunks()
        rows = rows.take(pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in SORT_KEYS]))
        written.append(write_file(store.under(HISTORY), rows, {DAY: day}, codec=PACKED_CODEC))
        batches.clear()

    for path, _, _ in group:
        for batch in read_rows(store, HISTORY, IndexFile(path, day), schema):
            if sum(each.nbytes for each in batches) + batch.nbytes > SORTED_BYTES and batches:
                write()
            batches.append(batch)
    write()
    now_ms = time.time_ns() // 1_000_000
    # If this fails, the new file stays: the error may have come after the commit (index_merge.py).
    table.create_write_transaction(
        [
            *(RemoveAction(path, False, now_ms, size, {DAY: day}) for path, size, _ in group),
            *(file.add_action(changes_data=False) for file in written),
        ],
        mode="append",
        schema=table.schema(),
        partition_by=[DAY],
        commit_properties=CommitProperties(max_commit_retries=COMMIT_TRIES),
    )
