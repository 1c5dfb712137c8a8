"""A whole simulation for the tests of checks."""

from __future__ import annotations

import pytest

from disque_py.simulator.simulation import Simulation
from simulated import small_plan


@pytest.fixture
def simulation():
    """A simulation without clients and faults, whose nodes have joined."""
    simulation = Simulation(small_plan(4, weather="fair", duration_ms=1, clients=()))
    simulation.world.join(30_000)
    return simulation
