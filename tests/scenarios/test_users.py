"""Users of a cluster: changes on one node are in force on all (spec US8)."""

from __future__ import annotations

from typing import Any

from world import World


def joined(**settings: Any) -> World:
    world = World("abc", acl_cluster=True, cluster_secret="s", **settings)
    world.join()
    return world


def users(world: World, node: str) -> list[bytes]:
    found: list[bytes] = world.ask(node, "ACL", "USERS")
    return found


def test_a_user_is_known_on_all_nodes_when_its_change_is_answered() -> None:
    """Spec US8."""
    world = joined()
    assert world.ask("a", "ACL", "SETUSER", "ann", "on", "nopass", "~a", "+@read") == b"OK"
    for node in "abc":
        assert users(world, node) == [b"ann", b"default"]
        assert world.ask(node, "ACL", "DRYRUN", "ann", "QLEN", "a") == b"OK"


def test_connections_of_a_removed_user_end_on_all_nodes_within_a_second() -> None:
    """Spec US8."""
    world = joined()
    world.ask("a", "ACL", "SETUSER", "ann", "on", "nopass", "allkeys", "+@all")
    talkers = [world.client(node) for node in "abc"]
    for talker in talkers:
        talker.say("AUTH", "ann", "x")
        talker.say("GETJOB", "FROM", "q")
    world.run(1_000)
    assert all(talker.is_open for talker in talkers)
    assert world.ask("b", "ACL", "DELUSER", "ann") == 1
    world.run(1_000)
    assert not any(talker.is_open for talker in talkers)


def test_a_node_that_was_away_hears_of_changes() -> None:
    """Spec US8."""
    world = joined()
    world.ask("a", "ACL", "SETUSER", "ann", "on", "nopass")
    world.members["c"].die()
    world.run(1_000)
    world.ask("a", "ACL", "DELUSER", "ann")
    world.ask("a", "ACL", "SETUSER", "bob", "on", "nopass", "+ping")
    world.machines["c"].start()
    world.run(20_000)
    assert users(world, "c") == [b"bob", b"default"]


def test_of_two_changes_at_two_sides_of_a_cut_one_wins_everywhere() -> None:
    """The user is one field, so no mixture of two sets of rules comes into being. Spec US8."""
    world = joined()
    world.ask("a", "ACL", "SETUSER", "ann", "on", "nopass")
    world.cut("a", "b")
    world.cut("a", "c")
    world.run(30_000)
    world.ask("a", "ACL", "SETUSER", "ann", "+qlen")
    world.ask("b", "ACL", "SETUSER", "ann", "off", "+qstat")
    world.heal()
    world.run(60_000)
    described = [world.ask(node, "ACL", "LIST")[0] for node in "abc"]
    assert len(set(described)) == 1
    assert described[0] in (b"user ann on nopass -@all +qlen", b"user ann off nopass -@all +qstat")
