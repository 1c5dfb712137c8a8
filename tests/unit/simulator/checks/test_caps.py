"""simulator/checks/caps.py: leases are counted over all nodes. More: tests/unit/simulator/clients/test_cappers.py."""

from __future__ import annotations

import pytest

from disque_py.simulator.checks.caps import BOUND, CapBook
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.world.world import World
from simulated import ask, joined


def test_leases_of_all_nodes_count_together():
    """Spec CP1."""
    world = joined("ab")
    assert ask(world, "a", "QUEUE", "SET", "q", "max-running", 5) == b"OK"
    world.run(1_500)
    for name in "ab":
        ask(world, name, "ADDJOB", "q", "b", 0, "REPLICATE", 1)
        assert ask(world, name, "GETJOB", "FROM", "q")
    book = CapBook(world, Oracle())
    book.look()
    assert book.most == 2


def one_slot(book: CapBook, world: World) -> bytes:
    """A queue with one slot, which a delivery takes; return the job."""
    assert ask(world, "a", "QUEUE", "SET", "q", "max-running", 1) == b"OK"
    world.run(3_100)
    job = ask(world, "a", "ADDJOB", "q", "one", 0, "RETRYMS", 500)
    assert ask(world, "a", "GETJOB", "FROM", "q")
    book.look()
    return job


def test_a_lease_that_ended_and_was_extended_may_exceed_the_cap():
    """Spec CP1."""
    world = joined("a")
    book = CapBook(world, Oracle())
    job = one_slot(book, world)
    world.run(700)
    book.look()
    ask(world, "a", "ADDJOB", "q", "two", 0, "PRIORITY", -1)
    assert ask(world, "a", "GETJOB", "FROM", "q")[0][2] == b"two"
    book.look()
    assert ask(world, "a", "WORKING", job) == 1
    book.look()
    assert book.most == 1


def test_a_lease_that_was_extended_in_time_counts():
    """Spec CP1: the cap is set lower than it is, as if a node gave out too many slots."""
    world = joined("a")
    book = CapBook(world, Oracle())
    job = one_slot(book, world)
    world.run(300)
    assert ask(world, "a", "WORKING", job)
    book.look()
    ask(world, "a", "QUEUE", "SET", "q", "max-running", 2)
    ask(world, "a", "ADDJOB", "q", "two", 0)
    assert ask(world, "a", "GETJOB", "FROM", "q")
    ask(world, "a", "QUEUE", "SET", "q", "max-running", 1)
    with pytest.raises(RuleBrokenError, match=BOUND):
        book.look()
