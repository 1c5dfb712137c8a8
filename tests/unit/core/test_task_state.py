"""core/task_state.py: what the leader of a task says about it."""

from __future__ import annotations

from brokers import add_node, make_broker
from disque_py.core.task_state import PENDING, PURGE, REDRIVE, Helper, Task, Work


def make_task():
    """A task with two shares."""
    task = Task(b"id", 1, Work(PURGE, b"q", None, PENDING, b""), None)
    helpers = [Helper(0), Helper(0)]
    return task, helpers


def test_a_task_adds_up_its_shares():
    """Jobs that were changed, and jobs that were left out."""
    task, (one, other) = make_task()
    broker = make_broker()
    task.helpers = {broker.me: one, add_node(broker, 2): other}
    one.changed, other.changed, other.failed = 3, 4, 1
    assert (task.changed, task.failed) == (7, 1)


def test_a_node_that_was_not_there_or_went_away_is_lost():
    """Those that were missing come first."""
    task, (one, _) = make_task()
    broker = make_broker()
    there, away = add_node(broker, 2), add_node(broker, 3)
    task.helpers = {there: one}
    task.missing = [away]
    assert task.lost() == [away]
    one.is_lost = True
    assert task.lost() == [away, there]


def test_a_redrive_takes_the_oldest_jobs_of_all_nodes_first():
    assert Work(REDRIVE, b"q", None, PENDING, b"").is_ordered
    assert not Work(PURGE, b"q", None, PENDING, b"").is_ordered
