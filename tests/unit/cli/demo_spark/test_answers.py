"""disque_py/cli/demo_spark/answers.py: results that are computed from the indexes."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.cli.demo_spark.answers import carriers, eventful_job, texts
from disque_py.spark.query.tables import open_index
from index_events import TS, batch, event, index


@pytest.fixture
def db(tmp_path):
    """A database with a flight that went through and a flight that was queued twice."""
    meta = {"carrier": "UA", "dest": "IAH"}
    steps = [
        event(1, "j1", meta=meta),
        event(2, "j2", meta=meta),
        event(3, "j2", 2, event="requeued", from_state="pending", since=TS, ts=TS + 50, meta=meta),
        event(4, "j1", 2, event="delivered", from_state="pending", to_state="running", since=TS, ts=TS + 70, meta=meta),
        event(
            5, "j1", 3, event="acked", from_state="running", to_state="completed", since=TS + 70, ts=TS + 90, meta=meta
        ),
        event(
            6,
            "j2",
            3,
            event="delivered",
            from_state="pending",
            to_state="running",
            since=TS + 50,
            ts=TS + 60,
            meta=meta,
        ),
        event(
            7, "j2", 4, event="acked", from_state="running", to_state="completed", since=TS + 60, ts=TS + 90, meta=meta
        ),
    ]
    index(tmp_path, batch(*steps))
    with open_index(str(tmp_path)) as opened:
        yield opened


def test_a_row_per_carrier_has_the_percentiles_of_both_states(db):
    answer = carriers(db)
    assert answer.columns == [
        "carrier",
        "flights",
        "pending p50 ms",
        "pending p95 ms",
        "running p50 ms",
        "running p95 ms",
    ]
    assert [row[:2] + row[4:] for row in answer.rows] == [("UA", 2, 25, 30)]


def test_a_job_that_came_back_is_traced_under_its_metadata(db):
    assert eventful_job(db) == "j2"
    shown = dict(texts(db, 60))
    assert list(shown)[-1] == "One flight, job j2 (carrier=UA dest=IAH)"
    assert [line.split()[2] for line in shown[list(shown)[-1]].splitlines()[2:]] == [
        "added", "requeued", "delivered", "acked"
    ]  # fmt: skip
