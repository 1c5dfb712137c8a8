"""Faults of links and clocks."""

from __future__ import annotations

import pytest

from simulated import ask, strike, weathered


@pytest.mark.parametrize(
    ("kind", "cut"), [("halves", 6), ("bridge", 4), ("alone", 12), ("ring", 4), ("one-way", 1), ("pair", 2)]
)
def test_cuts_have_the_shapes_that_their_names_say(kind, cut):
    """The test counts the cut directions among four nodes."""
    weather = weathered()
    strike(weather, kind, picks=(4, 8, 12, 0))
    cuts = weather.world.cuts
    assert len(cuts.loud) + len(cuts.silent) in (cut, cut + 2)
    weather.world.run(300)
    assert not cuts.loud
    assert not cuts.silent


def test_a_wall_clock_jumps_alone():
    """The monotonic clock of the node does not jump."""
    weather = weathered("ab")
    machine = weather.world.machines["a"]
    before = machine.now_ms()
    strike(weather, "jump", picks=(0, 0, 0, 0))
    assert machine.wall_offset_ms == -3_600_000
    assert machine.now_ms() == before


def test_delays_and_losses_end():
    """Afterwards the network is as in the plan."""
    weather = weathered("ab")
    traffic = weather.world.traffic
    strike(weather, "loss")
    strike(weather, "delay")
    assert traffic.loss > 0
    assert traffic.delay_ms[1] >= 50
    weather.world.run(300)
    assert traffic.loss == 0
    assert traffic.delay_ms == weather.targets.plan.delay_ms


def test_a_node_hears_no_list_of_voters_for_a_while():
    """It gets all other messages. The list comes with the next message about it."""
    weather = weathered("ab")
    world = weather.world
    strike(weather, "stale", picks=(1, 0, 0, 0))
    (first,) = (machine.membership.table.me.id.hex() for machine in (world.machines["a"],))
    ask(world, "a", "CLUSTER", "VOTERS", "INIT", first)
    assert world.machines["b"].broker.claims.memory.list is None
    world.run(300)
    assert world.traffic.filter is None
    ask(world, "a", "CLUSTER", "VOTERS", "LEASEMAX", 5)
    world.run(100)
    assert world.machines["b"].broker.claims.memory.list is not None
