"""Changes of old jobs that wait for their merge into `current`: the table `current_changes`.

A file of `current` can only be rewritten as a whole. A few hundred acks of jobs of all ages touch every file. If each
batch merged such acks immediately, its cost would grow with the size of the table. So a batch merges a change
immediately only in one of these cases:

* the row is not in the span of exactly one large file, for example because its job is new;
* the changes of the row's file are at least a twentieth of the file's rows: then a change rewrites at most twenty rows;
* the oldest change of the row's file has waited for `mergeEvery`;
* the row's file is the newest one with changes. If that file is small, the next newest ones count too, up to
  AT_ONCE_ROWS rows.

All other changes wait in `current_changes`: at most one row per job, in one small file. The changes of one file wait
together. Taking the newest row per job is commutative and idempotent (index_newest.py). So a reader gets the same
rows whether it reads a change here, in `current`, or in both. A reader opens this table first, because a change
leaves it only after the merge into `current`.

`choose` decides, and knows no table. `ChangesTable` is the table on disk. index_merge.py calls both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties
from deltalake.transaction import RemoveAction

from disque_py.spark.delta_store import Store, write_file
from disque_py.spark.index_reading import IndexFile, read_rows
from disque_py.spark.index_schema import CHANGES, SINCE, arrow_schema, make_changes

# An immediate merge may rewrite at most this many rows per change.
ROWS_PER_CHANGE: Final = 20
# A batch may always rewrite this many rows: one file. So acks of jobs of about the same age don't have to wait.
AT_ONCE_ROWS: Final = 50_000
COMMIT_TRIES: Final = 5

_Ints: TypeAlias = npt.NDArray[np.int64]


class Span(Protocol):
    """A file of `current`: its rows, and the first and last creation time in it. None: unknown."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    @property
    def first(self) -> int | None:
        """Return the first creation time."""

    @property
    def last(self) -> int | None:
        """Return the last creation time."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice for the rows of a batch: which of them wait, and since when (Unix ms; only for rows that wait)."""

    waits: npt.NDArray[np.bool_]
    since_ms: _Ints


def owners(files: Sequence[Span], created: _Ints, least_rows: int) -> _Ints:
    """Return for each creation time the number of the only file whose span contains it, or -1.

    The number is -1 if no file or several files contain the time, or if the file has fewer than `least_rows` rows.

    `files` are sorted by span, and all spans are known.
    """
    if not files:
        return np.full(len(created), -1)
    firsts = np.array([file.first for file in files], np.int64)
    lasts = np.array([file.last for file in files], np.int64)
    large = np.array([file.rows >= least_rows for file in files])
    count = np.searchsorted(firsts, created, "right") - np.searchsorted(np.sort(lasts), created, "left")
    at = np.maximum(np.searchsorted(firsts, created, "right") - 1, 0)
    is_own = (count == 1) & (created <= lasts[at]) & large[at]
    return np.where(is_own, at, -1)


def choose(
    files: Sequence[Span], created: _Ints, since_ms: _Ints, now_ms: int, merge_every_ms: int, least_rows: int
) -> Chosen:
    """Choose the rows that wait. `since_ms` has the time since when each row waits; for new rows that is `now_ms`."""
    owner = owners(files, created, least_rows)
    is_own = owner >= 0
    if not is_own.any():
        return Chosen(is_own, since_ms)
    changes = np.bincount(owner[is_own], minlength=len(files))
    oldest_ms = np.full(len(files), now_ms)
    np.minimum.at(oldest_ms, owner[is_own], since_ms[is_own])
    may_wait = np.zeros(len(files), bool)
    at_once = AT_ONCE_ROWS
    for number in np.flatnonzero(changes)[::-1]:
        rows = files[number].rows
        if changes[number] * ROWS_PER_CHANGE >= rows or now_ms - oldest_ms[number] >= merge_every_ms:
            continue
        if rows <= at_once:
            at_once -= rows
        else:
            # All older files wait as well, so the files merged immediately are the newest ones, without exception.
            at_once = 0
            may_wait[number] = True
    return Chosen(is_own & may_wait[owner], np.where(is_own, oldest_ms[owner], since_ms))


class ChangesTable:
    """The table `current_changes` of the index under `store`. A missing table is an empty one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        place = store.under(CHANGES)
        self._table = place.table() if place.exists() else None

    def read(self) -> pa.Table | None:
        """Return the rows that wait, with the column SINCE; None if there are none."""
        if self._table is None:
            return None
        paths = pa.table(self._table.get_add_actions(flatten=True))["path"].to_pylist()
        if not paths:
            return None
        schema = arrow_schema(self._table)
        batches = [batch for path in paths for batch in read_rows(self._store, CHANGES, IndexFile(path, None), schema)]
        return pa.Table.from_batches(batches, schema=schema)

    def oldest_ms(self) -> int | None:
        """Return since when the oldest change waits, Unix ms; None if none waits."""
        rows = self.read()
        return None if rows is None else int(pc.min(rows[SINCE]).as_py())

    def replace(self, rows: pa.Table, columns: pa.Schema) -> None:
        """Replace all rows by these, which have SINCE. `columns` are those of the events."""
        if self._table is None and not len(rows):
            return
        table = make_changes(self._store, columns) if len(rows) or self._table is None else self._table
        actions = pa.table(table.get_add_actions(flatten=True))
        now_ms = time.time_ns() // 1_000_000
        old = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
        removed = [RemoveAction(path, True, now_ms, size, {}) for path, size in old]
        added = [write_file(self._store.under(CHANGES), rows).add_action()] if len(rows) else []
        if removed or added:
            table.create_write_transaction(
                [*removed, *added],
                mode="append",
                schema=table.schema(),
                commit_properties=CommitProperties(max_commit_retries=COMMIT_TRIES),
            )
        self._table = table


def without_since(rows: pa.Table) -> pa.Table:
    """Return rows of `current_changes` without their column SINCE, which `current` doesn't have."""
    return rows.drop_columns([SINCE])
