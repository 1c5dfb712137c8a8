"""simulator/clients/batchers.py: batches in all weathers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.simulator.checks.batches import BatchBook
from disque_py.simulator.clients.batchers import Batcher
from disque_py.simulator.clients.workload import Consumer
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation, simulate
from simulated import small_plan

KINDS = ("producer", "batcher", "batcher", "consumer", "consumer")


def test_a_batcher_has_answers_that_are_judged():
    """Spec BT3, BT7."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    world = simulation.world
    world.join(30_000)
    book = BatchBook(world, simulation.oracle, simulation.losses)
    for number, kind in enumerate((Batcher, Batcher, Consumer)):
        actor = kind(world, simulation.oracle, simulation.plan, ClientPlan(number, "some"))
        if isinstance(actor, Batcher):
            actor.book = book
        actor.begin()
    world.run(6_000)
    assert book.shown > 1


@pytest.mark.parametrize("weather", ["fair", "kills", "halves", "pauses", "restarts"])
def test_batches_keep_their_rules_in_all_weathers(weather):
    """Spec BT3, BT7."""
    clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
    result = simulate(replace(small_plan(5, weather=weather, duration_ms=5_000), clients=clients))
    assert result.failure is None
