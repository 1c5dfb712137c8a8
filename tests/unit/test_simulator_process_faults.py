"""Faults of processes, machines and disks."""

from __future__ import annotations

import pytest

from simulated import ask, strike, weathered


def test_killing_takes_the_node_that_the_numbers_say():
    """Of those that are up."""
    weather = weathered()
    strike(weather, "kill", picks=(6, 0, 0, 0))
    assert [machine.name for machine in weather.up()] == ["a", "b", "d"]
    weather.world.run(300)
    assert len(weather.up()) == 4


def test_an_upgrade_changes_the_version_a_node_speaks():
    """In an orderly restart."""
    weather = weathered("ab")
    strike(weather, "upgrade", picks=(0, 0, 0, 0))
    weather.world.run(300)
    assert [machine.version for machine in weather.up()] == [2, 1]


@pytest.mark.parametrize("trouble", range(5))
def test_a_disk_in_trouble_costs_no_promise(trouble):
    """Slow, stuck, full, or failing: what is answered is there after the next crash."""
    weather = weathered("a")
    world = weather.world
    strike(weather, "disk", span_ms=3_000, picks=(0, trouble, 0, 0))
    replies = [ask(world, "a", "ADDJOB", "q0", "x", 0, within_ms=8_000) for _ in range(3)]
    world.run(4_000)
    weather.end()
    world.crash("a")
    world.restart("a")
    world.run(1_000)
    for reply in replies:
        assert isinstance(reply, Exception) or world["a"].find(reply)
