"""Moving: tasks and changes do exactly as much as they say, in good weather (spec MV1 to MV6)."""

from __future__ import annotations

import pytest

from cluster_bus.messages import CHANGED
from disque_py.simulator.checks.moving import play
from disque_py.simulator.oracle import RuleBrokenError


def test_all_nodes_give_the_same_exact_figures(simulation):
    """Spec MV1, MV2, MV3, MV4, MV5, MV6."""
    play(simulation)
    assert simulation.oracle.promises


def test_a_change_that_no_holder_hears_of_is_noticed(simulation):
    """Spec MV2."""
    simulation.world.traffic.filter = lambda sender, receiver, kind, item: kind == CHANGED
    with pytest.raises(RuleBrokenError):
        play(simulation)
