"""disque_py/cli/demo_spark/agreement.py: compares every event, every job and every flight."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.cli.demo_spark.agreement import NodeLog, compare
from disque_py.spark.query.tables import open_index
from index_events import batch, event, index

LOG = NodeLog("a", "n1", "l1", 4)
ROWS = {b"j1": 0, b"j2": 1}


@pytest.fixture
def db(tmp_path):
    """A database with two jobs, both completed."""
    done = {"event": "acked", "from_state": "running", "to_state": "completed"}
    index(tmp_path, batch(event(1, "j1"), event(2, "j2"), event(3, "j1", 2, **done), event(4, "j2", 2, **done)))
    with open_index(str(tmp_path)) as opened:
        yield opened


def test_equal_figures_on_both_sides_agree(db):
    found = compare(db, [LOG], {b"j1", b"j2"}, ROWS, 2)
    assert (found.events, found.completed, found.flights, found.faults) == ([("a", 4, 4)], 2, 2, [])


@pytest.mark.parametrize(
    ("log", "finished", "rows", "fault"),
    [
        (NodeLog("a", "n1", "l1", 5), {b"j1", b"j2"}, ROWS, "node a wrote 5 events, the index has 4 of them (4 diff"),
        (NodeLog("a", "n1", "l2", 1), {b"j1", b"j2"}, ROWS, "node a wrote 1 events, the index has 0 of them"),
        (LOG, {b"j1", b"j2", b"j3"}, ROWS, "1 jobs were finished, but not in the index, such as j3"),
        (LOG, {b"j1"}, ROWS, "1 jobs are completed in the index alone, such as j2"),
        (LOG, {b"j1", b"j2"}, {b"j1": 0, b"j2": 0}, "1 flights have no completed job in the index"),
    ],
)
def test_each_difference_is_a_sentence(db, log, finished, rows, fault):
    found = compare(db, [log], finished, rows, 2)
    assert len(found.faults) == 1
    assert found.faults[0].startswith(fault)


def test_a_job_that_is_not_completed_is_named(tmp_path):
    index(tmp_path, batch(event(1, "j1")))
    with open_index(str(tmp_path)) as db:
        found = compare(db, [NodeLog("a", "n1", "l1", 1)], set(), {b"j1": 0}, 1)
    assert found.faults[0] == "1 jobs are not completed in the index, such as j1 is pending"
