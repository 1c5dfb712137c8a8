"""core/claiming.py: the claimant."""

from __future__ import annotations

import pytest

from cluster_bus.messages import CLAIM, CLAIM_IS, RELEASED
from disque_py.core import claiming
from disque_py.core.claiming import NO_MAJORITY, SCATTERED, WantedClaim
from disque_py.core.grants import GRANTED, HELD, is_grant_item
from disque_py.core.voter_list import LEASE_MAX_MS
from disque_py.node import dispatch
from voting_worlds import voters


def claim(world, name, wanted, **options):
    """A claim at a node; its result."""
    results = []
    machine = world.machines[name]
    machine.open()
    claiming.claim(machine.broker, wanted, results.append, **options)
    machine.close()
    world.until(lambda: bool(results))
    return results[0]


def renew(world, name, wanted, fence):
    results = []
    machine = world.machines[name]
    machine.open()
    claiming.renew(machine.broker, wanted, fence, results.append)
    machine.close()
    world.until(lambda: bool(results))
    return results[0]


def release(world, name, wanted, fence, **options):
    results = []
    machine = world.machines[name]
    machine.open()
    claiming.release(machine.broker, wanted, fence, results.append, **options)
    machine.close()
    world.until(lambda: bool(results))
    return results[0].outcome


def wanted(holder=b"one", lease_ms=10_000, **options):
    return WantedClaim(b"key", holder, lease_ms, **options)


def test_the_holders_lease_begins_before_the_claim_was_sent_and_is_shorter():
    """Spec CL8."""
    world = voters("abc")
    began_ms = world.machines["a"].now_ms()
    found = claim(world, "a", wanted())
    assert found.outcome == GRANTED
    assert began_ms <= found.until_ms - 9_900 <= began_ms + 1
    for name in "abc":
        assert world[name].claims.memory.grants.running(b"key", found.until_ms + 90) is not None


def test_a_majority_is_enough():
    world = voters("abc")
    world.crash("c")
    world.run(100)
    assert claim(world, "a", wanted()).outcome == GRANTED


def test_a_renewal_that_failed_releases_nothing():
    """Spec CL2: also at voters that it did not reach."""
    world = voters("abc")
    fence = claim(world, "a", wanted()).fence
    world.drop = lambda sender, receiver, kind, item: kind == CLAIM
    assert renew(world, "a", wanted(), fence).outcome == claiming.NO_MAJORITY
    world.drop = None
    world.run(100)
    for name in "abc":
        assert world[name].claims.memory.grants.running(b"key", world.machines[name].now_ms()) is not None


@pytest.mark.parametrize("replaces", [False, True])
def test_a_minority_gets_nothing_and_leaves_nothing(replaces):
    """Spec CL2."""
    world = voters("abc")
    world.pause("b")
    world.pause("c")
    assert claim(world, "a", wanted(), replaces=replaces).outcome == claiming.NO_MAJORITY
    world.resume("b")
    world.resume("c")
    world.run(1_000)
    assert [world[name].claims.memory.grants.running(b"key", world[name].now_ms) for name in "abc"] == [None] * 3


def test_a_holder_that_relies_on_an_older_grant_keeps_it():
    """Spec CL2, CL9: an owner of a lock may not know that its first request was granted."""
    world = voters("abc")
    claim(world, "a", wanted())
    world.pause("b")
    world.pause("c")
    assert claim(world, "a", wanted(), replaces=True, relies=True).outcome == claiming.NO_MAJORITY
    world.resume("b")
    world.resume("c")
    world.run(1_000)
    assert None not in [world[name].claims.memory.grants.running(b"key", world[name].now_ms) for name in "abc"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("delay_ms", [1, 80])
def test_one_of_many_claimants_wins(delay_ms, seed):
    """Spec CL1, CL2: random pauses end the contest, also if the voters are far from each other."""
    world = voters("abc", delay_ms=delay_ms, seed=seed)
    world.run(1_000)
    results = []
    for name in "abc":
        machine = world.machines[name]
        machine.open()
        claiming.claim(machine.broker, wanted(name.encode()), results.append)
        machine.close()
    world.run(1_100)
    outcomes = [found.outcome for found in results]
    assert outcomes.count(GRANTED) == 1
    assert len(outcomes) == 3


def test_a_renewal_keeps_the_fence():
    """Spec CL1."""
    world = voters("abc")
    fence = claim(world, "a", wanted(lease_ms=1_000)).fence
    for name in "bcabc":
        world.run(600)
        found = renew(world, name, wanted(lease_ms=1_000), fence)
        assert (found.outcome, found.fence) == (GRANTED, fence)


def test_a_renewal_without_a_majority_releases_nothing():
    """Spec CL2."""
    world = voters("abc")
    fence = claim(world, "a", wanted()).fence
    world.cut("a", "b")
    world.cut("a", "c")
    assert renew(world, "a", wanted(), fence).outcome == claiming.NO_MAJORITY
    assert world["a"].claims.memory.grants.running(b"key", world["a"].now_ms) is not None
    assert claim(world, "b", wanted(b"two")).outcome == HELD


def test_a_renewal_that_one_voter_refuses_and_others_never_answer_fails():
    """Spec CL2."""
    world = voters("abc")
    first = claim(world, "a", wanted(lease_ms=300))
    world.run(500)
    assert claim(world, "b", wanted(b"two", 5_000)).outcome == GRANTED
    world.pause("b")
    world.pause("c")
    assert renew(world, "a", wanted(), first.fence).outcome == claiming.NO_MAJORITY


def test_a_renewal_after_the_lease_is_over():
    world = voters("abc")
    fence = claim(world, "a", wanted(lease_ms=1_000)).fence
    world.run(1_100)
    assert renew(world, "a", wanted(), fence).outcome == claiming.OVER


def test_fences_grow_across_clocks_that_run_behind():
    """Spec CL10."""
    world = voters("abc")
    first = claim(world, "a", wanted()).fence
    release(world, "a", wanted(), first)
    world.machines["b"].wall_offset_ms = -1_000_000
    second = claim(world, "b", wanted(b"two"))
    assert second.outcome == GRANTED
    assert second.fence > first


def test_a_release_is_answered_by_a_majority():
    """Spec CL2."""
    world = voters("abc")
    fence = claim(world, "a", wanted()).fence
    assert release(world, "b", wanted(b"two"), fence) == HELD
    assert release(world, "b", wanted(), fence) == GRANTED
    assert release(world, "b", wanted(), fence) == HELD
    assert claim(world, "c", wanted(b"two")).outcome == GRANTED


def test_attempts_have_a_limit():
    """Spec CL9."""
    world = voters("abc")
    counted = wanted(lease_ms=100, keep_ms=60_000, limit=2)
    outcomes = []
    for name in "abc":
        found = claim(world, name, counted)
        outcomes.append((found.outcome, found.attempt))
        world.run(200)
    assert outcomes == [(GRANTED, 1), (GRANTED, 2), (claiming.ALL_SPENT, 0)]


def test_spans_above_the_longest_are_cut():
    """Spec CL1: voters take them for malformed. An older version could have set such a `claim-lease-max`."""
    world = voters("abc")
    for name in "abc":
        world[name].claims.memory.list.lease_max_ms = LEASE_MAX_MS
    found = claim(world, "a", wanted(lease_ms=LEASE_MAX_MS, keep_ms=LEASE_MAX_MS))
    assert (found.outcome, found.attempt) == (GRANTED, 1)
    assert renew(world, "b", wanted(lease_ms=LEASE_MAX_MS), found.fence).outcome == GRANTED
    assert release(world, "c", wanted(), found.fence, done_ms=LEASE_MAX_MS) == GRANTED
    memory = world["a"].claims.memory.grants
    assert is_grant_item(memory.item(b"key", world["a"].now_ms))


def last_attempt_renewed_beside_c():
    """One has the only attempt. It renewed it while c was cut off, so that its grant has ended at c."""
    world = voters("abc")
    counted = wanted(lease_ms=1_000, keep_ms=600_000, limit=1)
    fence = claim(world, "a", counted).fence
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(100)
    assert renew(world, "a", wanted(lease_ms=60_000), fence).outcome == GRANTED
    world.run(1_500)
    return world, counted._replace(holder=b"two")


def test_the_last_attempt_is_not_spent_while_its_grant_runs():
    """Spec CL9, EX7: c knows only that it was counted."""
    world, other = last_attempt_renewed_beside_c()
    assert claim(world, "c", other).outcome == claiming.NO_MAJORITY
    world.heal()
    world.until(world.is_meshed, 30_000)
    found = claim(world, "c", other)
    assert (found.outcome, found.holder) == (HELD, b"one")
    world.run(61_000)
    assert claim(world, "c", other).outcome == claiming.ALL_SPENT


def test_a_try_after_a_refusal_asks_for_no_attempt_beyond_the_limit():
    """Spec CL9, EX7: voters don't know the limit. Here a grant of a minority ends between two tries."""
    world = voters("abc")
    counted = wanted(lease_ms=500, keep_ms=600_000, limit=1)
    for name in "abc":
        grants = world[name].claims.memory.grants
        is_running = name == "a"
        grants.put((b"key", name.encode(), 5, 300, 5, 1, 0, 600_000, 0, is_running, False), world[name].now_ms)
    world.pause("c")
    assert claim(world, "a", counted).outcome == claiming.ALL_SPENT
    assert [world[name].claims.memory.grants.records[b"key"].attempts for name in "ab"] == [1, 1]


def test_a_grant_that_runs_is_reported_although_a_voter_has_no_room():
    """Spec CL1: the wall clock of c is at 1970, so the fence is too far ahead for it."""
    world = voters("abc")
    first = claim(world, "a", wanted(lease_ms=60_000))
    world.machines["c"].wall_offset_ms = -50 * 366 * 86_400_000
    world["c"].claims.memory.grants.forget(b"key")
    world["c"].claims.memory.grants.floor = 0
    world.crash("b")
    world.run(100)
    found = claim(world, "a", wanted(b"two"))
    assert (found.outcome, found.fence) == (HELD, first.fence)


def test_without_voters_a_claim_fails_at_once():
    from world import World

    world = World("ab")
    world.join()
    assert claim(world, "a", wanted()).outcome == claiming.NO_VOTERS


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (CLAIM_IS, (1, -1, 0, b"", 0, 0, 0)),
        (CLAIM_IS, (1, 0, 0, "", 0, 0, 0)),
        (RELEASED, (1, "yes")),
        (RELEASED, (1,)),
    ],
)
def test_a_malformed_answer_closes_the_link(kind, item):
    world = voters("ab")
    with pytest.raises(dispatch.MalformedMessageError):
        dispatch.receive(world["a"], world["a"].cluster.linked[0], [[kind, item]])


@pytest.mark.parametrize(("cut", "outcome"), [("bc", NO_MAJORITY), ("b", HELD)])
def test_another_grant_is_the_reason_only_if_a_majority_answers(cut, outcome):
    """Spec CL2: a voter in a minority may have a grant that the others have ended."""
    world = voters("abc")
    item = (b"key", b"other", 5, 60_000, 5, 0, 0, 0, 0, True, False)
    world["a"].claims.memory.grants.put(item, world["a"].now_ms)
    for name in cut:
        world.crash(name)
    world.run(100)
    assert claim(world, "a", wanted()).outcome == outcome


def test_a_try_that_began_too_late_does_not_hide_the_reason_of_the_one_before():
    """Spec CL2: the voters are slow, and the second has another holder's grant without a majority."""
    world = voters("abc", delay_ms=130)
    world.crash("c")
    world.run(500)
    item = (b"key", b"other", 5, 60_000, 5, 0, 0, 0, 0, True, False)
    world["b"].claims.memory.grants.put(item, world["b"].now_ms)
    outcomes = [claim(world, "a", wanted(b"%d" % number)).outcome for number in range(6)]
    assert outcomes == [HELD] * 6


def test_a_grant_at_too_few_voters_is_scattered_unless_another_holder_is_in_the_way():
    """Spec CL9."""
    for other, outcome in ((b"one", SCATTERED), (b"two", NO_MAJORITY)):
        world = voters("abc")
        for name, holder, fence in (("a", b"one", 5), ("b", other, 6)):
            item = (b"key", holder, fence, 60_000, fence, 0, 0, 0, 0, True, False)
            world[name].claims.memory.grants.put(item, world[name].now_ms)
        world.crash("c")
        world.run(100)
        assert renew(world, "a", wanted(), 5).outcome == outcome
