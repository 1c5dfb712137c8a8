"""Filters: indexes agree with queues, and jobs reach clients that wait with WHERE (spec W1, W2, W5, W6)."""

from __future__ import annotations

import pytest

from cluster_bus.messages import FILTER_HINT, FILTER_INTEREST
from disque_py.simulator.checks.filter_indexes import JOBS, check_indexes, check_pairs, meet
from disque_py.simulator.oracle import RuleBrokenError
from simulated import ask, joined


@pytest.fixture
def machine():
    world = joined("a")
    for colour in ("red", "green", "red"):
        ask(world, "a", "ADDJOB", "q0", "x", 0, "META", "colour", colour)
    ask(world, "a", "QLEN", "q0", "WHERE", "colour", "red")
    ask(world, "a", "GETJOB", "WHERE", "colour", "green", "FROM", "q0")
    return world.machines["a"]


def test_an_index_agrees_with_its_queue(machine):
    assert machine.broker.queues[b"q0"].filters.indexes
    check_indexes(machine)


def test_a_job_that_an_index_lost_breaks_the_rule(machine):
    """The defect: a job leaves an index and stays in the queue."""
    queue = machine.broker.queues[b"q0"]
    queue.filters.left(next(queue.oldest()))
    with pytest.raises(RuleBrokenError, match="an index agrees with its queue"):
        check_indexes(machine)


def test_a_job_without_the_pairs_breaks_the_rule():
    entry = [b"q", b"id", b"x", b"meta", [b"colour", b"red"]]
    check_pairs(entry, {b"colour": b"red"}, 4)
    with pytest.raises(RuleBrokenError, match="a filter is kept"):
        check_pairs(entry, {b"colour": b"green"}, 4)


def test_jobs_come_to_the_clients_that_wait_for_their_metadata(simulation):
    meet(simulation)
    assert sorted(promise.delivered for promise in simulation.oracle.promises) == [0] * 2 * JOBS + [1] * 4 * JOBS


@pytest.mark.parametrize("kind", [FILTER_HINT, FILTER_INTEREST])
def test_a_node_that_hears_of_no_filter_breaks_the_rule(simulation, kind):
    simulation.world.traffic.filter = lambda sender, receiver, heard, item: heard == kind
    with pytest.raises(RuleBrokenError, match="jobs come to clients that wait with a filter"):
        meet(simulation)
