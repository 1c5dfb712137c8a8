"""simulator/clients/cappers.py and checks/caps.py: caps in all weathers, and a deliberate defect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core.caps import Caps
from disque_py.simulator.clients.cappers import Capper
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation, simulate
from simulated import small_plan

KINDS = ("capper", "producer", "producer", "consumer", "consumer", "patient consumer")
CLIENTS = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))


def test_two_cappers_know_the_changes_of_each_other():
    """Spec CP2: leases of before a change may still run, and one book counts them."""
    simulation = Simulation(replace(small_plan(5), clients=(ClientPlan(0, "capper"), ClientPlan(1, "capper"))))
    first, second = simulation.actors
    assert isinstance(first, Capper)
    assert isinstance(second, Capper)
    assert first.book is second.book is simulation.caps


@pytest.mark.parametrize("weather", ["fair", "kills", "halves", "pauses"])
def test_caps_keep_their_rules_in_all_weathers(weather):
    """Spec CP1, CP5: and all work is done in the end."""
    result = simulate(replace(small_plan(5, weather=weather, duration_ms=8_000), clients=CLIENTS, queues=2))
    assert result.failure is None


@pytest.mark.plain
def test_leases_that_are_not_counted_are_found(monkeypatch):
    """A deliberate defect."""
    monkeypatch.setattr(Caps, "used", lambda self, key, now_ms: 0)
    monkeypatch.setattr("disque_py.simulator.checks.caps.CALM_MS", 1_000)
    plan = small_plan(5, weather="fair", duration_ms=10_000)
    result = simulate(replace(plan, clients=CLIENTS, queues=1, nodes=3))
    assert result.failure is not None
    assert "a cap stays inside its bound" in str(result.failure)
