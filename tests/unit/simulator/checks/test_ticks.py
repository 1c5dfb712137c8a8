"""simulator/checks/ticks.py: two jobs of one tick are found, unless something was wrong."""

from __future__ import annotations

import pytest

from disque_py.simulator.checks.ticks import TickBook
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.simulation import Simulation
from simulated import small_plan

TICK = (b"s", b"1000")


@pytest.fixture
def book():
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    return TickBook(simulation.world, simulation.oracle)


def test_two_jobs_of_a_tick_break_the_rule(book):
    """Spec SD4."""
    book.seen(TICK, b"one", is_settled=True)
    book.seen(TICK, b"one", is_settled=True)
    with pytest.raises(RuleBrokenError, match="one job per tick"):
        book.seen(TICK, b"two", is_settled=True)


def test_a_partition_may_make_two(book):
    """Spec SD9."""
    book.seen(TICK, b"one", is_settled=True)
    book.seen(TICK, b"two", is_settled=False)
    assert len(book.jobs[TICK]) == 2
