"""index_repeats.py: events that a task drops, because the index has them."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.index_compaction import compact
from disque_py.spark.index_writing import IndexTask
from index_events import TS, batch, event, index


def write(path, *batches):
    return IndexTask(Store(str(path))).write_all(batches)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_other_events_under_the_numbers_of_a_log_are_not_dropped(tmp_path, is_compacted):
    """The log was cut after event 2 and has gone on, and the query that reads it again has lost its checkpoint."""
    index(tmp_path, batch(event(1, "a"), event(2, "b")))
    index(tmp_path, batch(event(3, "c"), event(4, "d")), batch(event(3, "x"), event(4, "y"), node="n2"))
    if is_compacted:
        assert compact(Store(str(tmp_path)), "history", DeltaTable(str(tmp_path / "history"))) == 3
    assert write(tmp_path, batch(event(1, "a"), event(2, "b"))).dropped == 2
    told = rf"event 3 of node n1, log l1, is added of job e, version 1 at {TS + 3}, but .* has added of job c, .*"
    with pytest.raises(TableError, match=told + r'startingOffsets=\{"n1": \{"log": "l1.1", "next": 1\}\} and -2 for'):
        write(tmp_path, batch(event(1, "a"), event(2, "b"), event(3, "e")))


@pytest.mark.parametrize("fields", [{"version": 2}, {"event": "acked"}, {"ts": TS}])
def test_another_event_of_the_same_job_is_not_dropped_either(tmp_path, fields):
    """A job that is back may make the same transition again, at another time."""
    index(tmp_path, batch(event(1, "a")))
    with pytest.raises(TableError, match="event 1 of node n1"):
        write(tmp_path, batch(event(1, "a", **fields)))


def test_the_events_of_a_node_itself_are_compared_by_their_time(tmp_path):
    index(tmp_path, batch(event(1, None, None, event="started")))
    assert write(tmp_path, batch(event(1, None, None, event="started"))).dropped == 1
    with pytest.raises(TableError, match=f"is started of the node at {TS + 5}, but"):
        write(tmp_path, batch(event(1, None, None, event="started", ts=TS + 5)))


def test_a_row_that_retention_removed_is_not_compared(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b")))
    DeltaTable(str(tmp_path / "history")).delete("seq = 1")
    assert write(tmp_path, batch(event(1, "c"))).dropped == 1


def test_the_zone_of_the_session_is_no_difference(tmp_path):
    rows = batch(event(1, "a"))
    index(tmp_path, rows)
    at = rows.schema.get_field_index("ts")
    labelled = rows.column("ts").cast(pa.timestamp("us", tz="Asia/Tokyo"))
    assert write(tmp_path, rows.set_column(at, "ts", labelled)).dropped == 1
