"""simulator/clients/claimers.py: producers and workers of queues whose jobs need a claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.simulator.checks.claims import ClaimBook
from disque_py.simulator.clients.claimers import ClaimProducer, ClaimWorker
from disque_py.simulator.clients.lockers import VoterKeeper
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation, simulate
from simulated import small_plan

KINDS = ("voter keeper", "claim producer", "claim worker", "claim worker")


def test_workers_take_jobs_under_claims_while_the_voters_change():
    """Spec EX3, EX7."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    simulation.world.join(30_000)
    book = ClaimBook()
    for number, kind in enumerate((VoterKeeper, ClaimProducer, ClaimWorker, ClaimWorker)):
        actor = kind(simulation.world, simulation.oracle, simulation.plan, ClientPlan(number, "some"))
        if isinstance(actor, ClaimProducer | ClaimWorker):
            actor.claims = book
        actor.begin()
    simulation.world.run(15_000)
    assert book.deliveries > 10
    assert book.keys
    assert book.limits


@pytest.mark.parametrize("weather", ["fair", "halves", "pauses"])
def test_claims_keep_their_rules_in_all_weathers(weather):
    """Spec EX3, EX6."""
    clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
    plan = replace(small_plan(5, weather=weather, duration_ms=5_000), clients=clients)
    result = simulate(plan)
    assert result.failure is None
