"""Placers: replies that promise zones or a quorum are compared with the existing copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.placers import Placer
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation
from simulated import small_plan


def test_a_placer_is_answered_in_good_weather():
    plan = small_plan(3, weather="fair", duration_ms=1, clients=())
    simulation = Simulation(replace(plan, nodes=3, places=(("", "a"), ("", "b"), ("", "c"))))
    simulation.world.join(30_000)
    placer = Placer(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "placer"))
    placer.begin()
    simulation.world.run(10_000)
    placer.end()
    assert simulation.oracle.added > 10


def test_an_odd_reply_breaks_the_rule():
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    placer = Placer(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "placer"))
    with pytest.raises(RuleBrokenError, match="operators are answered"):
        placer._rebalanced([b"jobs", -1, b"failed", 0], words("QREBALANCE", "q"))
