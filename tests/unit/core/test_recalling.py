"""core/recalling.py: memories of grants, copied from voter to voter."""

from __future__ import annotations

import pytest

from cluster_bus.messages import RECALLED, VOTERS
from disque_py.node import dispatch
from voting_worlds import acquire, id_of, shown, voters


def test_a_memory_of_many_keys_comes_in_pages():
    """Spec CL5."""
    world = voters("abcd", "abc")
    for name in "abcd":
        world[name].claims.page_keys = 3
    for name in "abc":
        for number in range(7):
            item = (b"L%d" % number, b"one", 5, 60_000, 5, 0, 0, 0, 0, True, False)
            world[name].claims.memory.grants.put(item, world[name].now_ms)
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    world.run(3_000)
    assert len(world["d"].claims.memory.grants.records) == 7


def test_a_voter_of_the_old_list_tells_nothing_before_it_has_stopped():
    """Spec CL5: a grant that it gives meanwhile would be missing in the copy."""
    world = voters("abcd", "abc")
    world.drop = lambda sender, receiver, kind, item: kind == VOTERS and receiver in ("b", "c")
    talker = world.client("a")
    talker.say("CLUSTER", "VOTERS", "ADD", id_of("d"))
    world.run(2_000)
    assert not world["d"].claims.memory.has_copied
    assert not world["a"].claims.memory.has_copied
    world.drop = None
    world.cut("a", "b")
    world.heal()
    world.run(8_000)
    assert shown(world, "d")[b"state"] == b"ready"


def test_a_copy_goes_on_after_the_death_of_the_voter_that_tells_it():
    world = voters("abcd", "abc")
    acquire(world, "a", "one", ms=60_000)
    talker = world.client("a")
    talker.say("CLUSTER", "VOTERS", "ADD", id_of("d"))
    world.until(lambda: world["d"].claims.recall is not None)
    world.crash("b")
    world.run(500)
    world.restart("b")
    world.run(10_000)
    assert world["d"].claims.memory.has_copied
    assert acquire(world, "d", "two") is None


def test_an_answer_that_was_not_asked_for_is_ignored():
    world = voters("ab")
    before = world["a"].claims.memory.grants.floor
    dispatch.receive(world["a"], world["a"].cluster.linked[0], [[RECALLED, (99, 0, 1 << 40, [], True)]])
    assert world["a"].claims.memory.grants.floor == before


@pytest.mark.parametrize(
    "item", [(1, 0, -1, [], True), (1, 0, 0, [[1]], True), (1, 0, 0, [], 1), (1, 0, 0, None, True)]
)
def test_a_malformed_memory_closes_the_link(item):
    world = voters("ab")
    with pytest.raises(dispatch.MalformedMessageError):
        dispatch.receive(world["a"], world["a"].cluster.linked[0], [[RECALLED, item]])


def test_a_page_that_is_asked_for_twice_is_the_same():
    """Spec CL5: its first answer was late, and no grant may be missing in the copy."""
    world = voters("abcd", "abc")
    for name in "abc":
        world[name].claims.page_keys = 2
        for number in range(9):
            item = (b"L%d" % number, b"one", 5, 60_000, 5, 0, 0, 0, 0, True, False)
            world[name].claims.memory.grants.put(item, world[name].now_ms)
    talker = world.client("a")
    talker.say("CLUSTER", "VOTERS", "ADD", id_of("d"))
    world.until(lambda: world["d"].claims.recall is not None)
    world.pause("d")
    world.run(1_500)
    world.resume("d")
    world.run(10_000)
    assert world["d"].claims.memory.has_copied
    assert len(world["d"].claims.memory.grants.records) == 9


def stale_grant(names, listed):
    """One released its lock while c was cut off. Two had it later, and a and b have forgotten it. Both fences."""
    world = voters(names, listed)
    first = acquire(world, "a", "one", ms=3_000_000)[0]
    for name in listed.replace("c", ""):
        world.cut(name, "c")
    world.run(100)
    assert world.ask("a", "LOCK", "RELEASE", "l", "one", first) == 1
    second = acquire(world, "a", "two", ms=5_000)[0]
    assert world.ask("a", "LOCK", "RELEASE", "l", "two", second, "DONE", 1_000) == 1
    world.heal()
    world.until(world.is_meshed, 30_000)
    world.run(150_000)
    assert world["a"].claims.memory.grants.floor >= second > first
    assert [b"Ll" in world[name].claims.memory.grants.records for name in "abc"] == [False, False, True]
    return world, first


def renewals(world, name, fence):
    """Extend the lock of one at a node: the reply; and in which memories the grant can be renewed."""
    reply = world.ask(name, "LOCK", "EXTEND", "l", "one", fence, 60_000)
    records = {each: world[each].claims.memory.grants.records.get(b"Ll") for each in world.machines}
    return reply, [each for each, record in records.items() if record is not None and record.highest == fence]


def test_a_grant_below_the_floor_of_a_voter_that_forgot_the_key_is_not_renewed_after_a_copy():
    """Spec CL5, CL10: fences only grow. The new voter learns the grant from one voter, and the floor from another."""
    world, first = stale_grant("abcd", "abc")
    world.crash("b")
    world.run(1_000)
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    world.run(2_000)
    reply, renewable = renewals(world, "a", first)
    assert str(reply).startswith(("FENCED", "NOQUORUM"))
    assert renewable == []


def test_the_last_voter_that_remembers_a_stale_grant_does_not_renew_it_alone():
    """Spec CL5, CL10."""
    world, first = stale_grant("abc", "abc")
    for name in "ab":
        assert world.ask("c", "CLUSTER", "VOTERS", "REMOVE", id_of(name)) == b"OK"
        world.run(500)
    reply, renewable = renewals(world, "c", first)
    assert str(reply).startswith(("FENCED", "NOQUORUM"))
    assert renewable == []


def test_a_voter_that_was_removed_brings_no_old_fence_back():
    """Spec CL5, CL10: its memory is older than those of the voters that stayed."""
    world = voters("abcd", "abc")
    first = acquire(world, "a", "one", ms=3_000_000)[0]
    assert world.ask("a", "CLUSTER", "VOTERS", "REMOVE", id_of("c")) == b"OK"
    world.run(500)
    assert world.ask("a", "LOCK", "RELEASE", "l", "one", first) == 1
    second = acquire(world, "a", "two", ms=5_000)[0]
    assert world.ask("a", "LOCK", "RELEASE", "l", "two", second, "DONE", 1_000) == 1
    world.run(150_000)
    for name in "cd":
        assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of(name)) == b"OK"
        world.run(500)
    reply, renewable = renewals(world, "a", first)
    assert str(reply).startswith(("FENCED", "NOQUORUM"))
    assert renewable == []


def test_a_grant_that_all_voters_remember_is_renewed_after_a_copy():
    """Spec CL5: floors above its fence come from other keys."""
    world = voters("abcd", "abc")
    fence = acquire(world, "a", "one", ms=3_000_000)[0]
    later = acquire(world, "a", "one", "other")[0]
    assert world.ask("a", "LOCK", "RELEASE", "other", "one", later, "DONE", 1_000) == 1
    world.run(150_000)
    for _ in range(2):
        assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", 3_600) == b"OK"
        world.run(500)
        assert world["a"].claims.memory.grants.floor >= later > fence
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    world.run(500)
    assert renewals(world, "d", fence) == (60_000, list("abcd"))


def test_keys_that_were_told_are_forgotten_after_a_minute():
    world = voters("abcd", "abc")
    acquire(world, "a", "one", ms=3_000_000)
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    assert any(world[name].claims.told for name in "abc")
    world.run(62_000)
    assert not any(world[name].claims.told for name in "abcd")


def test_a_reader_whose_keys_were_forgotten_begins_again():
    """Spec CL5: it was paused for longer than a minute."""
    world = voters("abcd", "abc")
    for name in "abc":
        world[name].claims.page_keys = 2
        for number in range(9):
            item = (b"L%d" % number, b"one", 5, 600_000, 5, 0, 0, 0, 0, True, False)
            world[name].claims.memory.grants.put(item, world[name].now_ms)
    talker = world.client("a")
    talker.say("CLUSTER", "VOTERS", "ADD", id_of("d"))
    world.until(lambda: world["d"].claims.recall is not None and max(world["d"].claims.recall.pages.values()) > 1)
    for name in "abc":
        world[name].claims.told.clear()
    world.run(10_000)
    assert world["d"].claims.memory.has_copied
    assert len(world["d"].claims.memory.grants.records) == 9
