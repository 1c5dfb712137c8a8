"""index_current.py: parts of `current`, each with the changes of its jobs. test_index_changes.py reads them."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark import index_changes, index_merge
from disque_py.spark.delta_store import Store
from disque_py.spark.index_current import CurrentPart, current_parts, read_part
from disque_py.spark.index_reading import schema_of
from disque_py.spark.index_schema import CURRENT
from index_events import batch, event, index


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An index with three files, and two changes that wait, both of jobs in the first file."""
    for name, rows in (("FILE_ROWS", 10), ("SMALL_ROWS", 3)):
        monkeypatch.setattr(index_merge, name, rows)
    monkeypatch.setattr(index_changes, "AT_ONCE_ROWS", 0)
    index(tmp_path, batch(*(event(1 + at, f"D-{at:03d}", ctime=at) for at in range(30))))
    changes = (event(31 + at, f"D-{at:03d}", 2, ctime=at, to_state="running") for at in (3, 4))
    monkeypatch.setattr(index_changes, "ROWS_PER_CHANGE", 1)
    index(tmp_path, batch(*changes), may_gap=True, merge_every_s=3_600)
    return Store(str(tmp_path))


def test_a_change_is_in_the_part_of_its_jobs_file(store):
    parts = current_parts(store)
    assert [(len(part.paths), part.changes and len(part.changes)) for part in parts] == [(1, 2), (1, None), (1, None)]


def test_a_part_gives_the_columns_that_are_asked_for(store):
    part = current_parts(store)[0]
    schema = schema_of(store, CURRENT)
    wanted = pa.schema([schema.field("to_state"), schema.field("version")])
    rows = [row for rows in read_part(store, part, wanted) for row in rows.to_pylist()]
    before, after = {"to_state": "pending", "version": 1}, {"to_state": "running", "version": 2}
    assert rows == [before] * 3 + [after] * 2 + [before] * 5


def test_changes_of_jobs_in_no_file_are_a_part_of_their_own(store):
    table = store.under(CURRENT).table()
    table.delete("ctime < 10")
    last = current_parts(store)[-1]
    assert (last.paths, len(last.changes)) == ((), 2)
    rows = [row["job_id"] for rows in read_part(store, last, schema_of(store, CURRENT)) for row in rows.to_pylist()]
    assert rows == ["D-003", "D-004"]


def test_without_changes_each_file_is_a_part(tmp_path):
    index(tmp_path, batch(event(1, "D-1")))
    (part,) = current_parts(Store(str(tmp_path)))
    assert isinstance(part, CurrentPart)
    assert part.changes is None
