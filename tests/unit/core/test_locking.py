"""core/locking.py: locks of owners outside the cluster."""

from __future__ import annotations

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
    item = (b"Ll", b"me", 5, 60_000, 5, 1, 0, 60_000, 0, True)
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


def test_the_grant_of_most_voters_is_shown():
    held = (b"Ll", b"me", 5, 100, 5, 1, 0, 0, 0, True)
    stray = (b"Ll", b"you", 9, 100, 9, 1, 0, 0, 0, True)
    assert locking.best_of([held, stray, held]) == held
    assert locking.best_of([]) is None
