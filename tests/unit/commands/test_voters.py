"""commands/voters.py: CLUSTER VOTERS."""

from __future__ import annotations

from disque_py.core.voter_list import VoterList
from voting_worlds import id_of, shown, voters
from world import World


def test_a_cluster_without_voters_says_so():
    world = World("ab")
    world.join()
    found = shown(world, "a")
    assert (found[b"epoch"], found[b"state"], found[b"voters"]) == (0, b"none", [])


def test_the_list_is_shown_with_its_state():
    """Spec CL4."""
    world = voters("abcd", "abc")
    found = shown(world, "d")
    assert found == {
        b"epoch": 1,
        b"claim-lease-max": 3600,
        b"voters": [id_of(name) for name in "abc"],
        b"state": b"ready",
        b"mute": [],
        b"reachable": 3,
        b"recovered": [],
    }
    world.crash("c")
    world.run(100)
    assert shown(world, "d")[b"reachable"] == 2


def test_two_first_lists_are_a_conflict_until_a_reset():
    """Spec CL4."""
    world = voters("abc")
    world["b"].claims.memory.list = VoterList(1, 60_000, {b"b" * 20: b"x" * 16}, is_first=True)
    world.cut("a", "b")
    world.heal()
    world.until(world.is_meshed, 30_000)
    world.run(1_000)
    assert shown(world, "a")[b"state"] == b"conflict"
    assert str(world.ask("a", "LOCK", "ACQUIRE", "l", "o", 100)) == "NOQUORUM the voters are changing"
    assert world.ask("a", "CLUSTER", "VOTERS", "RESET", "FORCE", *[id_of(name) for name in "abc"]) == b"OK"
    assert shown(world, "b")[b"state"] == b"ready"


def test_a_leaving_voter_shows_that_it_is_a_voter():
    world = voters("abc")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    assert b"cluster_leaving_blocked_by:this node is a voter" in world.ask("a", "CLUSTER", "INFO")
    assert world.ask("b", "CLUSTER", "VOTERS", "REMOVE", id_of("a")) == b"OK"
    assert b"is a voter" not in world.ask("a", "CLUSTER", "INFO")


def test_the_list_is_not_changed_while_a_known_node_would_not_vote():
    """Spec Y1. The older node does not know the messages between voters."""
    world = World("ab")
    world.join()
    (node,) = world["a"].cluster.linked
    node.spoken = 1
    world["a"].cluster.refresh()
    text = f"ERR not while node {node.name.decode()} runs an older version"
    for words in (("INIT", id_of("b")), ("ADD", id_of("b")), ("LEASEMAX", 5), ("RESET", "FORCE", id_of("a"))):
        assert str(world.ask("a", "CLUSTER", "VOTERS", *words)) == text
    assert shown(world, "a")[b"state"] == b"none"
