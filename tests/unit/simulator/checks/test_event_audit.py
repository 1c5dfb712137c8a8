"""Audit: the logs of all nodes together have the full history of every job."""

from __future__ import annotations

import pytest

from disque_py.event_format import ACKED, ADDED, COMPLETED, DELIVERED, EXPIRED_EVENT, PENDING, REQUEUED
from disque_py.simulator.checks.event_audit import audit, check, histories, is_complete, last_state
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.world.world import World
from simulated import ask


@pytest.fixture
def world():
    world = World("ab", events=True)
    world.join()
    return world


@pytest.fixture
def oracle():
    return Oracle()


@pytest.fixture
def promise(world, oracle):
    """Return the promise of a job that was added on a, and fetched and acknowledged on b."""
    promise = oracle.add(b"q", 20, 300_000, 86_400_000, 1, world.now_ms)
    job_id = ask(world, "a", "ADDJOB", "q", promise.body(), 0)
    oracle.answered(promise, job_id, world.now_ms)
    [[queue, job_id, body]] = ask(world, "b", "GETJOB", "FROM", "q")
    oracle.deliver(queue, job_id, body, world.now_ms)
    oracle.is_settled = True
    ask(world, "b", "ACKJOB", job_id)
    oracle.acknowledged(promise, world.now_ms)
    return promise


def test_a_history_is_put_together_from_all_nodes(world, oracle, promise):
    """The job was added on one node, and delivered and acknowledged on the other."""
    audit(world, oracle)
    assert sorted(event[0] for event in histories(world)[promise.id]) == [ADDED, DELIVERED, ACKED]
    assert all(is_complete(machine) for machine in world.machines.values())


def test_an_event_that_is_missing_breaks_a_rule(world, oracle, promise):
    """The missing event is a delivery, the end, or the beginning."""
    written = world.machines["b"].event_logs.current
    for at in reversed(range(len(written.events))):
        if written.events[at][0] in (DELIVERED, ACKED):
            event, written.events[at] = written.events[at], (32, {"reason": ""})
            written.told = 0
            with pytest.raises(RuleBrokenError, match=r"every transition|what became|as they were"):
                audit(world, oracle)
            written.events[at] = event
    history = histories(world)[promise.id]
    check(promise, history)
    with pytest.raises(RuleBrokenError, match="added once"):
        check(promise, history * 2)


def test_an_incomplete_log_is_not_judged(world, oracle, promise):
    """A log was switched off: missing events are no failure."""
    for machine in world.machines.values():
        machine.event_logs.was_off = True
    promise.delivered += 5
    audit(world, oracle)


def test_the_order_is_finality_then_version():
    """Completed stays completed, even if the other side of a partition made higher versions."""
    history = [(ADDED, 1, b"a", 1), (ACKED, 3, b"a", 2), (REQUEUED, 7, b"b", 1), (EXPIRED_EVENT, 9, b"c", 4)]
    assert last_state(history) == COMPLETED
    assert last_state([history[0], history[2]]) == PENDING
