"""index_writing.py: a task's events become files, without events that the table has."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark import index_writing
from disque_py.spark.delta_store import Store, TableError, read_file
from disque_py.spark.index_schema import IndexSchemaError
from disque_py.spark.index_writing import IndexTask, Seen
from index_events import TS, batch, event, index


def write(path, *batches):
    return IndexTask(Store(str(path))).write_all(batches)


def test_a_task_without_rows_writes_nothing(tmp_path):
    written = write(tmp_path)
    assert (written.rows, written.history, written.staged, written.seen) == (0, [], [], {})


def test_events_are_sorted_by_job_and_divided_by_day(tmp_path):
    written = write(tmp_path, batch(event(1, "b"), event(2, "a"), event(3, "a", ts=TS + 86_400_000)))
    assert [file.partition for file in written.history] == [{"day": "2023-11-14"}, {"day": "2023-11-15"}]
    first = read_file(Store(str(tmp_path / "history")), written.history[0].path)
    assert first["job_id"].to_pylist() == ["a", "b"]
    assert written.seen == {("n1", "l1"): Seen(1, 3, 3)}


def test_repetitions_inside_a_task_are_dropped(tmp_path):
    written = write(tmp_path, batch(event(1, "a"), event(2, "b")), batch(event(2, "b"), event(4, "c")))
    assert (written.rows, written.dropped) == (3, 1)


@pytest.mark.parametrize("name", ["node", "log", "seq", "version"])
def test_rows_without_a_position_or_a_version_are_refused_by_name(tmp_path, name):
    """Without a position they can't be written exactly once, and without a version they have no order."""
    rows = batch(event(1, "a"), event(2, "b"), event(3, None) | {"version": None})
    nulls = pa.array([None, *rows.column(name)[1:].to_pylist()], rows.schema.field(name).type)
    with pytest.raises(IndexSchemaError, match=f"a row has no {name} .job_id a.; "):
        write(tmp_path, rows.set_column(rows.schema.get_field_index(name), name, nulls))


def test_events_that_the_table_has_are_dropped_and_still_counted_as_seen(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b")))
    written = write(tmp_path, batch(event(1, "a"), event(2, "b"), event(3, "c")))
    assert (written.rows, written.dropped, written.seen) == (1, 2, {("n1", "l1"): Seen(1, 3, 3, mark=2)})


def test_a_log_that_was_cut_is_refused_under_its_old_name(tmp_path):
    """A query whose checkpoint was lost reads it under that name. Events after the cut have numbers from before it."""
    for log in ("l1", "l1.1", "l1.2"):
        index(tmp_path, batch(*(event(seq, "a", seq) for seq in (1, 2, 3)), log=log))
    for log in ("l1", "l1.1"):
        with pytest.raises(TableError, match=r'startingOffsets=\{"n1": \{"log": "l1.2", "next": 4\}\} and -2 for'):
            write(tmp_path, batch(event(1, "a", 9), log=log))
    assert write(tmp_path, batch(event(4, "a", 9), log="l1.2")).rows == 1


def test_a_large_task_writes_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(index_writing, "FLUSH_ROWS", 2)
    written = write(tmp_path, *(batch(event(seq, "a", seq)) for seq in range(1, 6)))
    assert [file.rows for file in written.history] == [2, 2, 1]
    assert written.seen == {("n1", "l1"): Seen(1, 5, 5)}


def test_a_task_with_long_bodies_writes_several_files(tmp_path, monkeypatch):
    """An Arrow array of text has 2 GiB at most."""
    monkeypatch.setattr(index_writing, "FLUSH_BYTES", 10_000)
    written = write(tmp_path, *(batch(event(seq, "a", seq, body="x" * 6_000)) for seq in range(1, 6)))
    assert [file.rows for file in written.history] == [2, 2, 1]
