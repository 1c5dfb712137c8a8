"""Merging the newest events into `current`: only the files that hold the batch's jobs are rewritten.

A job's creation time never changes, and most jobs of a batch were created at about the same time. So each file of
`current` holds a span of creation times. Delta's statistics give the span. A batch looks at the files whose spans
contain its jobs. Of these, it rewrites only the files that have one of its jobs or get a new one. One transaction
removes the old files and adds the new ones. So the cost of a batch depends on the files that it rewrites, not on the
size of the table. At every moment, readers see a plain Delta table with one row per job.

A file that gets no new job is *patched*: its rows keep their positions, and the rows of the batch's jobs take new
values in the columns that change. Files that get new jobs are *merged*: they are read together with the batch's rows,
and reduced to the newest row per job (index_newest.py). Then they are written again, in spans of a bounded number of
rows.

Changes of old jobs that would touch many files wait in a table of their own (index_changes.py). Every batch looks at
them again, together with its own rows.

A file with an unknown span has rows without a creation time; every batch looks at it. A batch that has such rows
itself looks at all files. Every batch with new jobs also merges small files, so that their number stays small.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import RemoveAction

from disque_py.spark.delta_store import NewFile, Store, read_column, write_file
from disque_py.spark.index_changes import COMMIT_TRIES, ChangesTable, choose, without_since
from disque_py.spark.index_newest import newest
from disque_py.spark.index_reading import IndexFile, read_rows
from disque_py.spark.index_schema import CURRENT, FINAL, KEYS, SINCE, arrow_schema
from disque_py.spark.index_sorting import sort_by_job, take_rows

CREATED: Final = "ctime"
# The largest number of rows in a file. If it were larger, batches would rewrite more unchanged rows; if it were
# smaller, they would open more files.
FILE_ROWS: Final = 50_000
# Every batch with new jobs also merges the files that have fewer rows than this.
SMALL_ROWS: Final = 7_000
# Arrow releases the interpreter lock, so threads work on several spans at once. Each needs memory for its rows.
WORKERS: Final = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class SpanFile:
    """A file of `current`, with the first and last creation time in it; None: unknown."""

    path: str
    size: int
    rows: int
    first: int | None
    last: int | None

    @property
    def is_known(self) -> bool:
        """Return whether the file's span is known."""
        return self.first is not None and self.last is not None

    def remove_action(self) -> RemoveAction:
        """Return the action that removes the file from the table."""
        return RemoveAction(self.path, True, time.time_ns() // 1_000_000, self.size, {})


def span_files(table: DeltaTable) -> list[SpanFile]:
    """Return the table's current files, sorted by span."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", f"min.{CREATED}", f"max.{CREATED}", f"null_count.{CREATED}")
    columns = [actions[name].to_pylist() if name in actions.column_names else [None] * len(actions) for name in names]
    files = []
    for path, size, rows, first, last, nulls in zip(*columns, strict=True):
        is_known = nulls == 0 and rows is not None
        files.append(SpanFile(path, size, rows or 0, first if is_known else None, last if is_known else None))
    return sorted(files, key=lambda file: (file.is_known, file.first or 0, file.path))


def dirty(files: Iterable[SpanFile], created: np.ndarray | None) -> tuple[list[SpanFile], list[SpanFile]]:
    """Divide files into those that may hold jobs with these creation times (sorted; None: any time), and the others."""
    yes: list[SpanFile] = []
    no: list[SpanFile] = []
    for file in files:
        if created is None or not file.is_known or file.rows < SMALL_ROWS:
            yes.append(file)
        else:
            found = np.searchsorted(created, file.first) < np.searchsorted(created, file.last, side="right")
            (yes if found else no).append(file)
    return yes, no


def bounds_of(created: np.ndarray, starts: Sequence[int]) -> np.ndarray:
    """Return where sorted creation times are cut into files: before each of `starts`, and where a file gets full."""
    edges = np.searchsorted(created, np.array(sorted(starts), np.int64))
    bounds: list[int] = []
    for first, after in zip([0, *edges], [*edges, len(created)], strict=True):
        count = int(after - first)
        if not count:
            continue
        if first:
            bounds.append(int(created[first]))
        parts = -(-count // FILE_ROWS)
        bounds += [int(created[first + count * part // parts]) for part in range(1, parts)]
    return np.unique(np.array(bounds, np.int64))


class CurrentMerge:
    """A merge into the table `current` of the index under `store`.

    merge_every_s   how many seconds the change of an old job may wait; 0: it never waits
    """

    def __init__(self, store: Store, table: DeltaTable, merge_every_s: int = 0) -> None:
        self._store = store
        self._table = table
        self._schema = arrow_schema(table)
        self._merge_every_ms = merge_every_s * 1000

    def merge(self, staged: Sequence[pa.Table]) -> int:
        """Merge the rows that several tasks reduced with `index_newest.newest`. Return the number of their jobs.

        With no rows it merges the changes that have waited long enough.
        """
        own = [self._typed(table) for table in staged]
        count = len(own[0]) if len(own) == 1 else _job_count(own)
        changes = ChangesTable(self._store)
        held = changes.read()
        rows = pa.concat_tables([self._schema.empty_table(), *own], promote_options="default")
        waiting = None
        if held is not None or self._merge_every_ms:
            rows, waiting = self._divided(rows, held)
        if len(rows):
            self._merge_now(rows)
        # Changes leave their table only after the merge into `current`, so a reader never misses them.
        if held is not None or waiting is not None:
            columns = pa.schema([field for field in self._schema if field.name not in (FINAL, *KEYS)])
            changes.replace(rows[:0] if waiting is None else waiting, columns)
        return count

    def _divided(self, rows: pa.Table, held: pa.Table | None) -> tuple[pa.Table, pa.Table | None]:
        """Divide the batch's rows and the waiting ones into rows to merge and rows that wait (with SINCE)."""
        now_ms = time.time_ns() // 1_000_000
        since = np.full(len(rows), now_ms)
        if held is not None:
            since = np.concatenate([since, held[SINCE].to_numpy()])
            rows = pa.concat_tables([rows, self._typed(without_since(held))], promote_options="default")
        created = _created(rows)
        files = span_files(self._table)
        if created is None or not all(file.is_known for file in files):
            return rows, None
        chosen = choose(files, created, since, now_ms, self._merge_every_ms, SMALL_ROWS)
        if not chosen.waits.any():
            return rows, None
        waits = pa.array(chosen.waits)
        late = rows.filter(waits).append_column(SINCE, pa.array(chosen.since_ms[chosen.waits], pa.int64()))
        return rows.filter(pc.invert(waits)), newest(sort_by_job(late))

    def _merge_now(self, rows: pa.Table) -> None:
        created = _created(rows)
        sought = None if created is None else np.sort(created)
        old, kept = dirty(span_files(self._table), sought)
        patches: list[tuple[SpanFile, pa.Table]] = []
        rest = rows
        # A row without a creation time may belong to a job of any file.
        if created is not None and all(file.is_known for file in old):
            patches, old, free, rest = self._planned(old, rows.combine_chunks(), created)
            kept = [*kept, *free, *(file for file, _ in patches)]
        self._rewrite(old, kept, [rest] if len(rest) else [], patches)

    def _planned(
        self, files: list[SpanFile], rows: pa.Table, created: np.ndarray
    ) -> tuple[list[tuple[SpanFile, pa.Table]], list[SpanFile], list[SpanFile], pa.Table]:
        """Return files to patch with their rows, files to merge, files to leave alone, and the rows to merge."""
        jobs = rows["job_id"].combine_chunks()
        owner = np.full(len(rows), -1)
        with ThreadPoolExecutor(WORKERS) as pool:
            for number, ids in enumerate(pool.map(self._ids, files)):
                at = np.flatnonzero((owner < 0) & _inside(created, files[number]))
                sought = jobs.take(pa.array(at))
                found = pc.is_in(sought, value_set=ids.filter(pc.is_in(ids, value_set=sought)))
                owner[at[found.to_numpy(zero_copy_only=False)]] = number
        free = created[owner < 0]
        patches: list[tuple[SpanFile, pa.Table]] = []
        merged: list[SpanFile] = []
        left: list[SpanFile] = []
        is_rest = owner < 0
        for number, file in enumerate(files):
            own = owner == number
            if len(free) and (file.rows < SMALL_ROWS or _inside(free, file).any()):
                merged.append(file)
                is_rest |= own
            elif own.any():
                patches.append((file, rows.filter(pa.array(own))))
            else:
                left.append(file)
        return patches, merged, left, rows.filter(pa.array(is_rest))

    def _ids(self, file: SpanFile) -> pa.Array:
        ids = read_column(self._store.under(CURRENT), file.path, "job_id")
        return ids if ids.type == pa.string() else ids.cast(pa.string())

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Cast rows to the table's types, because Spark labels UTC times with its session's time zone."""
        fields = [
            self._schema.field(field.name) if field.name in self._schema.names else field for field in rows.schema
        ]
        return rows.cast(pa.schema([field.with_nullable(True) for field in fields]))

    def compact(self) -> int:
        """Merge small files, and return the number of files that are gone."""
        files = span_files(self._table)
        small = [file for file in files if file.rows < FILE_ROWS // 4]
        if len(small) < 2:
            return 0
        self._rewrite(small, [file for file in files if file not in small], [], [])
        return len(small)

    def _rewrite(
        self,
        old: list[SpanFile],
        kept: list[SpanFile],
        staged: list[pa.Table],
        patches: list[tuple[SpanFile, pa.Table]],
    ) -> None:
        """Replace old files and new rows by new files, and files to patch by patched ones, in one transaction."""
        with ThreadPoolExecutor(WORKERS) as pool:
            written = list(pool.map(self._patch, patches))
            if old or staged:
                rows = pa.concat_tables([*pool.map(self._read, old), *staged], promote_options="default")
                spans = _spans(rows, [file.first for file in kept if file.first is not None])
                written += pool.map(self._reduce, spans)
        old = [*old, *(file for file, _ in patches)]
        # If this fails, the new files stay: the error may have come after the commit. Upkeep removes files that are
        # in no table.
        self._table.create_write_transaction(
            [*(file.remove_action() for file in old), *(file.add_action() for file in written)],
            mode="append",
            schema=self._table.schema(),
            commit_properties=CommitProperties(max_commit_retries=COMMIT_TRIES),
        )

    def _read(self, file: SpanFile) -> pa.Table:
        batches = read_rows(self._store, CURRENT, IndexFile(file.path, None), self._schema)
        return pa.Table.from_batches(batches, schema=self._schema)

    def _patch(self, patch: tuple[SpanFile, pa.Table]) -> NewFile:
        file, rows = patch
        return write_file(self._store.under(CURRENT), patched(self._read(file), rows))

    def _reduce(self, rows: pa.Table) -> NewFile:
        return write_file(self._store.under(CURRENT), newest(sort_by_job(rows)))


def patched(table: pa.Table, rows: pa.Table) -> pa.Table:
    """Return a file's rows (one per job), updated with `rows`: newer rows of some of the file's jobs, and no others."""
    is_changed = pc.is_in(table["job_id"], value_set=rows["job_id"].combine_chunks()).combine_chunks()
    before = table.filter(is_changed)
    after = newest(sort_by_job(pa.concat_tables([before, rows], promote_options="default")))
    after = after.take(pc.index_in(before["job_id"], value_set=after["job_id"].combine_chunks()))
    columns = []
    for name in table.column_names:
        column, value = table[name], after[name]
        if value.equals(before[name]):
            columns.append(column)
        elif pa.types.is_nested(column.type):
            # Arrow can't replace maps, lists and structs in place.
            order = np.arange(len(table))
            order[is_changed.to_numpy(zero_copy_only=False)] = np.arange(len(table), len(table) + len(after))
            columns.append(pa.chunked_array([*column.chunks, *value.chunks], column.type).take(pa.array(order)))
        else:
            columns.append(pc.replace_with_mask(column, is_changed, value.combine_chunks()))
    return pa.table(columns, schema=table.schema)


def _job_count(tables: Sequence[pa.Table]) -> int:
    """Return the number of different jobs of these rows."""
    jobs = pa.chunked_array([chunk for table in tables for chunk in table["job_id"].chunks], pa.string())
    return int(pc.count_distinct(jobs).as_py())


def _inside(created: np.ndarray, file: SpanFile) -> np.ndarray:
    """Return which of these creation times are in the known span of a file."""
    return np.asarray((created >= file.first) & (created <= file.last))


def _created(rows: pa.Table) -> np.ndarray | None:
    """Return the creation times, or None when a row has none."""
    if CREATED not in rows.column_names or rows[CREATED].null_count:
        return None
    return rows[CREATED].to_numpy()


def _spans(rows: pa.Table, starts: Sequence[int]) -> list[pa.Table]:
    """Return the rows of each new file. All rows of a job are in one file."""
    # Make one contiguous copy; the steps below take rows from it.
    rows = rows.combine_chunks()
    created = _created(rows)
    if created is None:
        # Two rows of a job may disagree on its creation time. So reduce to one row per job first, and separate the
        # rows without a creation time.
        rows = newest(sort_by_job(rows))
        unknown = rows.filter(rows[CREATED].is_null()) if CREATED in rows.column_names else rows
        known = rows.filter(rows[CREATED].is_valid()) if CREATED in rows.column_names else rows.slice(0, 0)
        return [*(_spans(known, starts) if len(known) else ()), *([unknown] if len(unknown) else ())]
    bounds = bounds_of(np.sort(created), starts)
    if not len(bounds):
        return [rows]
    place = np.searchsorted(bounds, created, side="right")
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(len(bounds) + 2))
    return [take_rows(rows, order[first:after]) for first, after in pairwise(edges) if after > first]
