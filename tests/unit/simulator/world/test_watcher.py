"""Watcher: the world tells it what happens, and it may be replaced."""

from __future__ import annotations

from disque_py.simulator.world.watcher import Watcher
from simulated import joined


class Deaths(Watcher):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_death(self, machine, *, power):
        self.names.append(machine.name)


def test_a_watcher_that_comes_later_is_told_from_then_on():
    world = joined("abc")
    world.crash("a")
    deaths = world.watcher = Deaths()
    world.crash("b")
    assert deaths.names == ["b"]
