"""core/recalling.py: memories of grants, copied from voter to voter."""

from __future__ import annotations

import pytest

from cluster_bus.messages import RECALLED
from disque_py.core.claims import PAGE_KEYS
from disque_py.node import dispatch
from voting_worlds import acquire, id_of, shown, voters


def test_a_memory_of_many_keys_comes_in_pages():
    """Spec CL5."""
    world = voters("abcd", "abc")
    for name in "abc":
        for number in range(2 * PAGE_KEYS + 1):
            item = (b"L%d" % number, b"one", 5, 60_000, 5, 0, 0, 0, 0, True, False)
            world[name].claims.memory.grants.put(item, world[name].now_ms)
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    world.run(3_000)
    assert len(world["d"].claims.memory.grants.records) == 2 * PAGE_KEYS + 1


def test_a_voter_of_the_old_list_tells_nothing_before_it_has_stopped():
    """Spec CL5: a grant that it gives meanwhile would be missing in the copy."""
    world = voters("abcd", "abc")
    world.drop = lambda sender, receiver, kind, item: kind == 100 and receiver in ("b", "c")
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
