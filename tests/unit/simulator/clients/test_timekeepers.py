"""simulator/clients/timekeepers.py: schedules in all weathers, and a deliberate defect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core import firing
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import simulate
from simulated import small_plan

CLIENTS = (ClientPlan(0, "timekeeper"), ClientPlan(1, "producer"), ClientPlan(2, "consumer"))


@pytest.mark.parametrize("weather", ["fair", "kills", "halves", "pauses", "clocks"])
def test_schedules_keep_their_rules_in_all_weathers(weather):
    """Spec SD4, SD5."""
    result = simulate(replace(small_plan(5, weather=weather, duration_ms=8_000), clients=CLIENTS))
    assert result.failure is None


@pytest.mark.plain
def test_ticks_without_their_key_are_found(monkeypatch):
    """This is a deliberate defect: each attempt has a different KEY, and no node waits for another."""
    key_of = firing._key_of
    count = iter(range(10**9))
    monkeypatch.setattr(firing, "TURN_MS", 0)
    monkeypatch.setattr(firing, "_key_of", lambda fired: b"%b %d" % (key_of(fired), next(count)))
    monkeypatch.setattr(firing, "rank_of", lambda broker, name: 0)
    plan = replace(small_plan(5, weather="fair", duration_ms=10_000), clients=CLIENTS, nodes=3)
    plan = replace(plan, offsets_ms=(0,) * len(plan.offsets_ms), drifts_ppm=(0,) * len(plan.drifts_ppm))
    result = simulate(plan)
    assert result.failure is not None
    assert "one job per tick" in str(result.failure)
