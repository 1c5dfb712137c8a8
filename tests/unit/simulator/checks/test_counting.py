"""Counting: every node counts each job once (spec Z2)."""

from __future__ import annotations

import pytest

from cluster_bus.messages import QUESTION
from disque_py.simulator.checks.counting import play
from disque_py.simulator.oracle import RuleBrokenError


def test_all_nodes_give_the_same_exact_figures(simulation):
    """Spec Z2."""
    play(simulation)
    assert simulation.oracle.promises
    assert all(promise.acked_ms for promise in simulation.oracle.promises)


def test_a_node_that_is_left_out_is_noticed(simulation):
    """Its jobs are missing in the sum."""
    simulation.world.traffic.filter = lambda sender, receiver, kind, item: kind == QUESTION
    with pytest.raises(RuleBrokenError, match="each job counts once"):
        play(simulation)
