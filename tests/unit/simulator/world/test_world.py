"""World: events in order of time, nodes that meet, regular looks."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.simulator.world.machine import DeathError
from disque_py.simulator.world.watcher import Watcher
from disque_py.simulator.world.world import EVENTS_PER_LOOK, StuckError, World
from simulated import joined


def test_events_happen_in_the_order_of_their_moments_and_then_of_their_planning():
    """Events are tuples in a heap. The serial number decides between equal moments, so calls are never compared."""
    world, seen = World(""), []
    for span_ms, name in ((5, "c"), (1, "a"), (5, "d"), (1, "b")):
        world.later(span_ms, seen.append, name)
    world.run(4)
    assert seen == ["a", "b"]
    world.run(4)
    assert seen == ["a", "b", "c", "d"]


def test_until_gives_up_when_time_is_over():
    """A scenario that waits for an impossible state must end."""
    world = World("")
    world.later(20, lambda: None)
    with pytest.raises(StuckError):
        world.until(lambda: False, 10)


def test_a_death_in_the_midst_of_an_event_costs_that_process_only():
    """The exception may come from anywhere in the node's code. The world goes on."""
    world = joined("ab")

    def die() -> None:
        raise DeathError(world.machines["a"])

    world.later(1, die)
    world.run(50)
    assert [machine.name for machine in world.running()] == ["b"]


def test_streams_of_chance_do_not_disturb_each_other():
    """The draws of one purpose do not change those of another, and every seed has its own."""
    one, other = World("", 1), World("", 1)
    one.stream("x").random()
    assert one.stream("y").random() == other.stream("y").random() == Random("1 y").random()
    assert World("", 2).stream("y").random() != one.stream("y").random()


def test_a_checker_may_look_every_few_thousand_events():
    """The lengths of the calls of `run` don't matter."""

    class Looks(Watcher):
        count = 0

        def on_look(self) -> None:
            self.count += 1

    looks = Looks()
    world = World("", watcher=looks)
    for at in range(2 * EVENTS_PER_LOOK):
        world.later(at, int)
    for _ in range(2 * EVENTS_PER_LOOK):
        world.run(1)
    assert looks.count == 2


def test_a_busy_node_does_not_keep_another_from_its_timer():
    """In a prompt world a timer that gave way comes before those that did not."""
    world = World("a")
    machine = world.machines["a"]
    world.run(10)
    before = machine.ticks
    for at in range(1_000):
        world.later(at, world.may_tick, "other")
    world.run(1_000)
    assert machine.ticks - before >= 9


@pytest.mark.parametrize("is_prompt", [True, False])
def test_nodes_meet_and_a_mesh_is_whole(is_prompt):
    """With turns of one input and with turns of all that a millisecond brings."""
    world = World("abcd", is_prompt=is_prompt)
    assert not world.is_meshed()
    world.join()
    assert world.is_meshed()
    world.crash("d")
    world.run(100)
    assert world.is_meshed()
