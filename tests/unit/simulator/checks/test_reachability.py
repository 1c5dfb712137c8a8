"""Reachability: jobs come to clients that wait for them."""

from __future__ import annotations

import pytest

from cluster_bus.messages import HINT
from disque_py.simulator.checks.reachability import CLIENTS, travel
from disque_py.simulator.oracle import RuleBrokenError


def test_jobs_come_to_the_node_that_can_take_them(simulation):
    """All jobs come, although some were offered to another node that could not answer."""
    travel(simulation)
    assert [promise.delivered for promise in simulation.oracle.promises] == [1] * CLIENTS
    assert not any(machine.is_stopped for machine in simulation.world.running())
    assert all(promise.acked_ms for promise in simulation.oracle.promises)


def test_jobs_that_no_client_is_told_of_are_found(simulation):
    """The broadcast every 30 seconds would come too late."""
    simulation.world.traffic.filter = lambda sender, receiver, kind, item: kind == HINT
    with pytest.raises(RuleBrokenError, match="jobs come to waiting clients"):
        travel(simulation)


def test_two_nodes_are_too_few(simulation):
    """The check does nothing."""
    for machine in list(simulation.world.running())[2:]:
        machine.die()
    travel(simulation)
    assert not simulation.oracle.promises
