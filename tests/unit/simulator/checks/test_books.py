"""Recounts of a node's memory, counters and indexes."""

from __future__ import annotations

import pytest

from disque_py.core import lifecycle
from disque_py.core.job import QUEUED
from disque_py.simulator.checks.books import check_books, tell
from disque_py.simulator.checks.cluster_invariants import jobs_of
from disque_py.simulator.oracle import RuleBrokenError
from simulated import asker, joined, words


def add_job(world, copies=1):
    """Add a job at a, and return its id."""
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "a body of 20 bytes..", 0, "RETRY", 5, "REPLICATE", copies)])
    world.run(20)
    return connection.replies[0]


def lone_node():
    """Return a world of one node with a job."""
    world = joined("a")
    add_job(world)
    return world


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("", "used_memory"),
        ("", "job_count"),
        ("memory", "acked_count"),
        ("memory", "once_delivered_count"),
        ("waits", "blocked_count"),
        ("pauses", "paused_count"),
    ],
)
def test_counters_are_recounted(part, what):
    """Every look recounts all of them."""
    world = lone_node()
    check_books(world.machines["a"])
    owner = getattr(world["a"], part) if part else world["a"]
    setattr(owner, what, getattr(owner, what) + 1)
    with pytest.raises(RuleBrokenError, match=what):
        check_books(world.machines["a"])


def test_a_queue_that_lost_an_entry_is_found():
    """Its length is greater than the number of its entries."""
    world = lone_node()
    world["a"].queues[b"q"].length += 1
    with pytest.raises(RuleBrokenError, match="length"):
        check_books(world.machines["a"])


def test_a_job_without_a_timer_is_found():
    """It is active, has a RETRY, and is not in the schedule."""
    world = lone_node()
    broker = world["a"]
    [job] = jobs_of(broker)
    assert job.state == QUEUED
    lifecycle.dequeue(broker, job)
    broker.schedule.cancel(job)
    with pytest.raises(RuleBrokenError, match=r"without a timer|not scheduled"):
        check_books(world.machines["a"])


def test_the_state_of_a_job_can_be_described():
    """The description is for people."""
    world = joined("ab")
    job_id = add_job(world, copies=2)
    [job] = jobs_of(world["b"])
    assert job_id[11:19].decode() in tell(world["b"], job)
    assert "holders a b" in tell(world["b"], job)
