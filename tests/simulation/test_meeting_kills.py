"""A meeting of nodes with a kill at every point of it: all nodes find each other again, without another MEET.

A fuse kills a process before its nth outside effect: a message, a reply, or a write of its nodes file.
"""

from __future__ import annotations

import pytest

from disque_py.simulator.world.world import World
from simulated import ask, asker, words

NAMES = "abc"
# Two clusters that meet: neither is a single node, or only the one that gets the command is.
PAIRS = "abcd"
PAIR = "acd"
FUSE = 1_000
DOWN_MS = 40
# A MEET gets its reply within six such effects, before the first connection is made.
DELAY_MS = (6, 12)
CONVERGED_MS = 20_000


def start(seed: int, fuses: dict[str, int], names: str) -> tuple[World, list[tuple[str, object]]]:
    """Begin a meeting: a is told to meet all other nodes, or c of the other pair."""
    world = World(names, seed, delay_ms=DELAY_MS, is_prompt=False)
    met = NAMES[1:]
    if names != NAMES:
        world.meet("c", "d")
        met = "c"
    if names == PAIRS:
        world.meet("a", "b")
    world.run(300)
    for name, fuse in fuses.items():
        world.machines[name].fuse = fuse
    asked = []
    for name in met:
        connection = asker(world, "a")
        connection.send([words("CLUSTER", "MEET", name, 7711)])
        asked.append((name, connection))
    return world, asked


def points_of(seed: int, name: str, names: str = NAMES) -> int:
    """Return the number of outside effects of this node until all have met and their files are on disk."""
    world, _ = start(seed, {name: FUSE}, names)
    world.until(world.is_meshed)
    world.run(200)
    return FUSE - world.machines[name].fuse


def play(seed: int, fuses: dict[str, int], names: str = NAMES) -> None:
    """Play the meeting with kills and restarts. A MEET without a reply is sent again."""
    world, asked = start(seed, fuses, names)
    dead: set[str] = set()
    for _ in range(400):
        world.run(1)
        dead |= {name for name in fuses if not world.machines[name].is_up}
        if dead == set(fuses):
            break
    world.run(DOWN_MS)
    for name in dead:
        world.restart(name)
    for machine in world.machines.values():
        machine.fuse = 0
    world.run(10)
    for name, connection in asked:
        if connection.replies != [b"OK"]:
            ask(world, "a", "CLUSTER", "MEET", name, 7711)
    world.until(lambda: is_whole(world), CONVERGED_MS)


def is_whole(world: World) -> bool:
    """Return whether each node knows every other node, and its table has no other entry."""
    return world.is_meshed() and all(
        len(machine.membership.table.nodes) == machine.membership.table.size == len(world.machines)
        for machine in world.running()
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kill_at_any_point_of_a_meeting_undoes_nothing(seed, name):
    points = points_of(seed, name)
    assert points > 3
    for fuse in range(1, points + 1):
        play(seed, {name: fuse})


@pytest.mark.parametrize(("names", "name"), [(names, name) for names in (PAIR, PAIRS) for name in names])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_at_any_point_of_a_meeting_of_two_clusters_undoes_nothing(seed, names, name):
    for fuse in range(1, points_of(seed, name, names) + 1):
        play(seed, {name: fuse}, names)


def test_two_kills_at_any_points_of_a_meeting_of_two_clusters_undo_nothing():
    for first in range(1, points_of(1, "a", PAIRS) + 1):
        for second in range(1, points_of(1, "c", PAIRS) + 1):
            play(1, {"a": first, "c": second}, PAIRS)


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("b", "c")])
def test_two_kills_at_any_points_of_a_meeting_undo_nothing(one, other):
    for first in range(1, points_of(1, one) + 1):
        for second in range(1, points_of(1, other) + 1):
            play(1, {one: first, other: second})


def test_a_node_that_lost_its_table_in_a_power_cut_comes_back_by_itself():
    """Its file has only its id, but the other nodes still have it in their tables, and dial it."""
    world = World(NAMES, is_prompt=False)
    alone = world.machines["b"].membership.dump()
    world.join()
    world.crash("b")
    world.machines["b"].nodes_file = alone
    world.restart("b")
    world.until(lambda: is_whole(world), CONVERGED_MS)


@pytest.mark.parametrize("how", ["reset", "forgotten"])
def test_a_node_that_an_operator_emptied_does_not_come_back_by_itself(how):
    """The other nodes have it in their tables. A kill makes no difference."""
    world = World(NAMES, is_prompt=False)
    world.join()
    if how == "reset":
        assert ask(world, "b", "CLUSTER", "RESET") == b"OK"
    else:
        for name in "ac":
            assert ask(world, "b", "CLUSTER", "FORGET", world.machines[name].membership.table.me.name) == b"OK"
    world.crash("b")
    world.restart("b")
    world.run(80_000)
    assert len(world.machines["b"].membership.table.nodes) == 1


LONG_MS = 90_000


@pytest.mark.parametrize("away", ["down", "cut off", "there"])
def test_a_forgotten_node_does_not_come_back_by_nodes_that_were_not_told(away):
    """Spec N5. They come back later and have it in their tables. A kill makes no difference."""
    world = World(NAMES, is_prompt=False)
    world.join()
    gone = world.machines["b"].membership.table.me
    if away == "down":
        world.crash("c")
    elif away == "cut off":
        world.network.cut("a", "b")
        world.network.cut("a", "c")
    assert ask(world, "a", "CLUSTER", "FORGET", gone.name) == b"OK"
    world.run(10_000)
    world.crash("a")
    world.restart("a")
    if away == "down":
        world.restart("c")
    world.network.heal()
    world.run(LONG_MS)
    assert world.machines["a"].membership.table.find(gone.id) is None
    assert world.machines["c"].membership.table.find(gone.id).is_linked


def test_a_forgotten_node_does_not_come_back_by_a_meet_of_its_own():
    """Spec N5. It lost its table in a power cut, and hears of all nodes from one that was not told."""
    world = World(NAMES, is_prompt=False)
    alone = world.machines["b"].membership.dump()
    world.join()
    gone = world.machines["b"].membership.table.me
    world.crash("b")
    assert ask(world, "a", "CLUSTER", "FORGET", gone.name) == b"OK"
    world.machines["b"].nodes_file = alone
    world.restart("b")
    world.run(LONG_MS)
    assert world.machines["a"].membership.table.find(gone.id) is None
    assert world.machines["c"].membership.table.find(gone.id).is_linked


@pytest.mark.parametrize(("at", "of"), [("a", "b"), ("b", "a"), ("c", "b"), ("b", "c")])
def test_one_meet_brings_a_forgotten_node_back_to_all_nodes(at, of):
    """Spec N10. This includes nodes that are down meanwhile."""
    world = World(PAIRS, is_prompt=False)
    world.join()
    gone = world.machines["b"].membership.table.me
    for name in "acd":
        assert ask(world, name, "CLUSTER", "FORGET", gone.name) == b"OK"
    world.run(LONG_MS)
    world.crash("d")
    assert ask(world, at, "CLUSTER", "MEET", of, 7711) == b"OK"
    world.run(1_000)
    world.restart("d")
    world.until(lambda: is_whole(world), CONVERGED_MS)
