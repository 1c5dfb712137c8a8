"""core/locking.py: locks of owners outside the cluster."""

from __future__ import annotations

import pytest

from disque_py.core import locking
from voting_worlds import acquire, begin_acquire, voters


def test_an_owner_may_ask_any_node_again():
    """Spec CL9: the reply was lost."""
    world = voters("abc")
    first = acquire(world, "a")
    assert acquire(world, "b") == acquire(world, "c") == first


def test_an_owner_whose_lock_ran_out_gets_a_new_fence_and_attempt():
    """Spec CL9."""
    world = voters("abc")
    fence, attempt, _ = acquire(world, "a", ms=500)
    world.run(600)
    again = acquire(world, "b", ms=500)
    assert again[0] > fence
    assert again[1] == attempt + 1


def test_a_grant_without_a_majority_is_replaced_by_its_owner():
    """Spec CL2: a try that failed, and whose release was lost, does not keep the owner out."""
    world = voters("abc")
    item = (b"Ll", b"me", 5, 60_000, 5, 1, 0, 60_000, 0, True, False)
    world["a"].claims.memory.grants.put(item, world["a"].now_ms)
    assert acquire(world, "b")[0] > 5
    assert acquire(world, "a", "you") is None


def test_a_waiting_owner_gets_the_lock_when_it_is_released():
    world = voters("abc")
    fence = acquire(world, "a", ms=60_000)[0]
    talker = begin_acquire(world, "b", "you", TIMEOUT=20_000)
    world.run(1_000)
    assert talker.replies == []
    assert world.ask("c", "LOCK", "RELEASE", "l", "me", fence) == 1
    world.run(300)
    assert talker.replies[0][1:] == [2, -1]


def test_a_client_that_hung_up_keeps_no_lock():
    """The attempt is given back, too."""
    world = voters("abc")
    talker = begin_acquire(world, "b", "you")
    talker.hang_up()
    world.run(200)
    assert acquire(world, "a") is not None
    assert acquire(world, "c")[1] == 1


def test_the_grant_of_a_majority_is_shown():
    held = (b"Ll", b"me", 5, 100, 5, 1, 0, 0, 0, True, False)
    stray = (b"Ll", b"you", 9, 100, 9, 1, 0, 0, 0, True, False)
    assert locking.held_by_majority([stray, held, held], 2) == held
    assert locking.held_by_majority([stray, held], 2) is None


def test_a_request_that_gave_up_leaves_the_lock_to_the_request_that_renewed_it():
    """Spec CL2: the owner was answered by another node meanwhile."""
    world = voters("abc")
    talker = begin_acquire(world, "a", "me")
    world.pause("a")
    world.run(50)
    fence = acquire(world, "b")[0]
    talker.hang_up()
    world.resume("a")
    world.run(2_000)
    assert acquire(world, "c", "you") is None
    assert world.ask("b", "LOCK", "EXTEND", "l", "me", fence, 10_000) == 10_000


def test_an_owner_is_not_kept_out_by_a_stray_grant_of_another():
    world = voters("abc")
    fence = acquire(world, "a", ms=60_000)[0]
    stray = (b"Ll", b"you", fence + 9, 60_000, fence + 9, 1, 0, 0, 0, True, False)
    world["c"].claims.memory.grants.put(stray, world["c"].now_ms)
    assert acquire(world, "b")[0] == fence


@pytest.mark.parametrize("name", ["a", "c"])
def test_an_acquire_in_vain_does_not_prolong_a_stale_grant_of_its_owner(name):
    """Spec CL2, CL9: one released the lock while c was cut off, and two has it at a and b."""
    world = voters("abc")
    first = acquire(world, "a", "one", ms=10_000)[0]
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(100)
    assert world.ask("a", "LOCK", "RELEASE", "l", "one", first) == 1
    second = acquire(world, "a", "two", ms=600_000)[0]
    world.heal()
    world.until(world.is_meshed, 30_000)
    assert acquire(world, name, "one", ms=3_000_000) is None
    world.run(15_000)  # The grant that one had at c is over.
    assert world.ask("a", "LOCK", "RELEASE", "l", "two", second) == 1
    world.crash("b")
    world.run(2_000)
    assert acquire(world, "a", "three", ms=1_000) is not None


def test_an_owner_renews_its_lock_although_a_voter_is_slow():
    """Spec CL9: the voter that answers has a grant of another owner, which the majority does not have."""
    world = voters("abc")
    first = acquire(world, "a", "one", ms=60_000)
    stray = (b"Ll", b"stray", first[0] - 1, 60_000, first[0] - 1, 1, 0, 0, 0, True, False)
    world["c"].claims.memory.grants.put(stray, world["c"].now_ms)
    world.pause("b")
    talker = begin_acquire(world, "a", "one", ms=60_000)
    world.run(500)
    world.resume("b")
    world.run(1_000)
    assert talker.replies == [first]


def stray(fence, owner=b"me", attempt=1):
    return (b"Ll", owner, fence, 60_000, fence, attempt, attempt - 1, 60_000, 0, True, False)


def lost(*grants):
    """Return a world in which some voters have grants of earlier requests, and c is down."""
    world = voters("abc")
    for name, item in grants:
        world[name].claims.memory.grants.put(item, world[name].now_ms)
    world.crash("c")
    world.run(100)
    return world


@pytest.mark.parametrize(
    "grants", [[("a", stray(5))], [("b", stray(5))], [("a", stray(5)), ("b", stray(6, attempt=2))]]
)
def test_a_voter_that_is_down_does_not_keep_an_owner_from_its_own_name(grants):
    """Spec CL9: the voters that answer are a majority, and none of them has a grant of another owner."""
    world = lost(*grants)
    fence, attempt, _ = acquire(world, "a")
    assert fence > 6
    assert attempt == len(grants) + 1
    assert acquire(world, "b") == [fence, attempt, -1]
    assert acquire(world, "b", "you") is None


def test_a_grant_of_another_owner_keeps_a_scattered_one_from_being_replaced():
    """Spec CL9: the voter that is down may have either of them."""
    world = lost(("a", stray(5)), ("b", stray(6, b"you")))
    assert str(acquire(world, "a")) == "NOQUORUM no majority of the voters answered"
    world.restart("c")
    world.run(3_000)
    assert acquire(world, "c", "you") is not None
    assert acquire(world, "a") is None


def test_the_last_attempt_is_not_spent_while_it_may_run():
    """Spec CL9: c may have the same grant, which then has a majority."""
    world = lost(("a", stray(5)))
    assert str(acquire(world, "b", ATTEMPTS=1)) == "NOQUORUM no majority of the voters answered"
