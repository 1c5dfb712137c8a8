"""Reading `current` together with the changes that wait for their merge into it (index_changes.py).

The driver lists the parts: files of `current`, and the changes of their jobs. An executor reads a part and takes the
newest row of each job. A change belongs to the file whose span of creation times has its job. Files with overlapping
spans, or with an unknown one, share a part if one of them has changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from disque_py.spark.delta_store import Store
from disque_py.spark.index_changes import ChangesTable, without_since
from disque_py.spark.index_merge import CREATED, SpanFile, span_files
from disque_py.spark.index_newest import newest
from disque_py.spark.index_reading import IndexFile, read_rows
from disque_py.spark.index_schema import CURRENT, arrow_schema, open_existing
from disque_py.spark.index_sorting import sort_by_job


@dataclass(frozen=True, slots=True)
class CurrentPart:
    """Paths of files of `current`, and changes of their jobs; None: there are none."""

    paths: tuple[str, ...]
    changes: pa.Table | None


def current_parts(store: Store) -> list[CurrentPart]:
    """Return the parts of `current` as it is now. Raises TableError."""
    # A change is merged into `current` before it leaves the table of changes. So that table is read first.
    changes = ChangesTable(store).read()
    files = span_files(open_existing(store, CURRENT))
    if changes is None:
        return [CurrentPart((file.path,), None) for file in files]
    changes = without_since(changes)
    parts = []
    created = changes[CREATED].to_numpy()
    is_free = np.ones(len(changes), bool)
    for group in _groups(files):
        first, last = group[0].first, max(file.last or 0 for file in group)
        is_own = (created >= first) & (created <= last) if group[0].is_known else is_free.copy()
        is_free &= ~is_own
        if is_own.any():
            parts.append(CurrentPart(tuple(file.path for file in group), changes.filter(pa.array(is_own))))
        else:
            parts += (CurrentPart((file.path,), None) for file in group)
    return [*parts, CurrentPart((), changes.filter(pa.array(is_free)))] if is_free.any() else parts


def read_part(store: Store, part: CurrentPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, with the columns `schema`."""
    if part.changes is None:
        for path in part.paths:
            yield from read_rows(store, CURRENT, IndexFile(path, None), schema)
        return
    whole = arrow_schema(open_existing(store, CURRENT))
    batches = [batch for path in part.paths for batch in read_rows(store, CURRENT, IndexFile(path, None), whole)]
    rows = pa.concat_tables([pa.Table.from_batches(batches, schema=whole), part.changes], promote_options="default")
    yield from newest(sort_by_job(rows)).select(schema.names).cast(schema).to_batches()


def _groups(files: list[SpanFile]) -> list[list[SpanFile]]:
    """Return the files in groups whose spans don't overlap; a file of unknown span overlaps all."""
    if not all(file.is_known for file in files):
        return [files]
    groups: list[list[SpanFile]] = []
    last = 0
    for file in files:
        first, end = file.first or 0, file.last or 0
        if groups and first <= last:
            groups[-1].append(file)
        else:
            groups.append([file])
        last = max(last, end)
    return groups
