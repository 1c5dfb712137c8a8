"""simulator/clients/waiters.py: waits for the ends of jobs in all weathers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.simulator.checks.waits import WaitBook
from disque_py.simulator.clients.waiters import Waiter
from disque_py.simulator.clients.workload import Consumer
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation, simulate
from simulated import small_plan

KINDS = ("producer", "waiter", "waiter", "consumer", "consumer")


def test_a_waiter_has_answers_that_are_judged():
    """Spec RW5, RW9."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    world = simulation.world
    world.join(30_000)
    book = WaitBook(world, simulation.oracle, 2_000)
    for number, kind in enumerate((Waiter, Waiter, Consumer)):
        actor = kind(world, simulation.oracle, simulation.plan, ClientPlan(number, "some"))
        if isinstance(actor, Waiter):
            actor.book = book
        actor.begin()
    world.run(8_000)
    assert book.judged > 5


@pytest.mark.parametrize("weather", ["fair", "kills", "halves", "pauses", "restarts"])
def test_waits_keep_their_rules_in_all_weathers(weather):
    """Spec RW5, RW9."""
    clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
    result = simulate(replace(small_plan(5, weather=weather, duration_ms=5_000), clients=clients))
    assert result.failure is None
