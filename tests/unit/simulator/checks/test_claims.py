"""simulator/checks/claims.py: one running job per value, fences that grow, exact attempts."""

from __future__ import annotations

import pytest

from claimed_worlds import add, begin_get, deliveries, exclusive, get
from disque_py.core.exclusive_state import Running
from disque_py.simulator.checks.claims import (
    EXACT_ATTEMPTS,
    FENCES_GROW,
    OLDER_IS_FENCED,
    ONE_BELIEVER,
    ONE_RUNNING,
    ClaimBook,
)
from disque_py.simulator.oracle import RuleBrokenError
from simulated import joined


def book():
    found = ClaimBook()
    found.added(b"one", ("ann",), 0)
    found.added(b"two", ("ann",), 0)
    found.added(b"few", ("bob",), 2)
    return found


def deliver(found, job_id, fence, attempt=1, lease_ms=1_000, sent_ms=0, now_ms=10, node="a"):
    found.delivered(job_id, fence, attempt, lease_ms, sent_ms, now_ms, node, 1)


def test_two_running_jobs_of_a_value_break_the_rule():
    """Spec EX3."""
    found = book()
    deliver(found, b"one", 5)
    with pytest.raises(RuleBrokenError, match=ONE_RUNNING):
        deliver(found, b"two", 6, sent_ms=20, now_ms=30)


@pytest.mark.parametrize("how", ["end", "lapse"])
def test_a_value_is_free_after_the_end_of_the_delivery_or_its_lease(how):
    found = book()
    deliver(found, b"one", 5)
    if how == "end":
        found.ending(b"one", 5)
        deliver(found, b"two", 6, sent_ms=20, now_ms=30)
    deliver(found, b"one", 7, sent_ms=1_100, now_ms=1_200)
    assert found.deliveries == (3 if how == "end" else 2)


def test_a_command_without_fence_may_end_a_later_delivery():
    """Spec EX6. Until it is answered, no worker can be sure of the job."""
    found = book()
    deliver(found, b"one", 5)
    found.loosen(b"one")
    deliver(found, b"one", 6, attempt=2, sent_ms=20, now_ms=30)
    found.loosed(b"one", 40)
    deliver(found, b"two", 7, sent_ms=35, now_ms=50)
    with pytest.raises(RuleBrokenError, match=ONE_RUNNING):
        deliver(found, b"one", 8, attempt=3, sent_ms=60, now_ms=70)


def test_an_extended_lease_keeps_the_value():
    """Spec EX5."""
    found = book()
    deliver(found, b"one", 5)
    found.extended(b"one", 5, 1_000, 900, 910, is_named=False)
    found.extended(b"one", 5, 1_000, 1_300, 2_000, is_named=True)
    with pytest.raises(RuleBrokenError, match=ONE_RUNNING):
        deliver(found, b"two", 6, sent_ms=2_100, now_ms=2_200)


def test_a_worker_without_fence_may_have_extended_a_later_delivery():
    """Spec EX6. The worker's own lease was over by then, so the reply proves nothing about it."""
    found = book()
    deliver(found, b"one", 5)
    deliver(found, b"one", 6, attempt=2, sent_ms=1_000, now_ms=1_010)
    found.extended(b"one", 5, 1_000, 1_020, 1_030, is_named=False)
    found.ending(b"one", 6)
    deliver(found, b"two", 7, sent_ms=1_100, now_ms=1_200)
    assert found.deliveries == 3


def test_a_fence_that_does_not_grow_breaks_the_rule():
    """Spec EX6."""
    found = book()
    deliver(found, b"one", 5)
    found.ending(b"one", 5)
    with pytest.raises(RuleBrokenError, match=FENCES_GROW):
        deliver(found, b"two", 5, sent_ms=20, now_ms=30)


@pytest.mark.parametrize("attempts", [(1, 1), (1, 3)])
def test_attempts_are_exact(attempts):
    """Spec EX7."""
    found = book()
    deliver(found, b"few", 5, attempts[0])
    found.ending(b"few", 5)
    with pytest.raises(RuleBrokenError, match=EXACT_ATTEMPTS):
        deliver(found, b"few", 6, attempts[1], sent_ms=20, now_ms=30)


def test_an_ack_under_an_older_fence_may_not_count_where_a_later_one_is_known():
    """Spec EX6."""
    machine = joined("ab").machines["a"]
    found = book()
    deliver(found, b"one", 5)
    found.ending(b"one", 5)
    found.acked(b"one", 5, 20, machine, 1)
    deliver(found, b"one", 6, sent_ms=20, now_ms=30)
    found.acked(b"one", 5, 25, machine, 1)
    found.acked(b"one", 6, 40, machine, 1)
    with pytest.raises(RuleBrokenError, match=OLDER_IS_FENCED):
        found.acked(b"one", 5, 40, machine, 1)


def cut_off():
    """Return a world, a book, and a job that `a` and then `b` delivered while `a` was cut off; and its older fence."""
    world, found = exclusive(), ClaimBook()
    job_id = add(world, "a", "ann", retry=2)
    found.added(job_id, ("ann",), 0)
    (first,) = get(world, "a")
    deliver(found, job_id, first.fence)
    world.cut("a", "b")
    world.cut("a", "c")
    talker = begin_get(world, "b")
    world.until(lambda: bool(talker.replies))
    (second,) = deliveries(talker.replies[0])
    found.delivered(job_id, second.fence, 2, 2_000, world.now_ms, world.now_ms, "b", 1)
    return world, found, job_id, first.fence


def test_a_holder_that_is_cut_off_may_count_an_ack_under_an_older_fence():
    """Spec EX6."""
    world, found, job_id, fence = cut_off()
    world.run(100)
    assert not found.is_late(job_id, fence, world.machines["a"], world.now_ms)
    found.acked(job_id, fence, world.now_ms, world.machines["a"], 1)


def test_it_may_not_after_it_has_read_what_the_deliverer_sent_on_a_new_link():
    """Spec EX6."""
    world, found, job_id, fence = cut_off()
    world.heal()
    world.until(world.is_meshed, 30_000)
    world.run(100)
    assert found.is_late(job_id, fence, world.machines["a"], world.now_ms)
    with pytest.raises(RuleBrokenError, match=OLDER_IS_FENCED):
        found.acked(job_id, fence, world.now_ms, world.machines["a"], 1)


@pytest.mark.parametrize("how", ["restart", "flush"])
def test_a_deliverer_that_has_lost_the_job_can_not_tell(how):
    world, found, job_id, fence = cut_off()
    if how == "flush":
        world.ask("b", "DEBUG", "FLUSHALL")
    else:
        world.crash("b")
        world.restart("b")
    world.heal()
    world.until(world.is_meshed, 30_000)
    world.run(100)
    found.acked(job_id, fence, world.now_ms, world.machines["a"], 1)


def test_jobs_without_a_stamp_do_not_count():
    found = book()
    deliver(found, b"other", 0)
    assert found.deliveries == 0


def nodes(world):
    """The nodes that are up."""
    return list(world.machines.values())


def believing(lease_ms=10_000):
    """Let a worker of node a get a job of a value, and a worker of node b another one."""
    world = exclusive()
    found = ClaimBook()
    ids = [add(world, "a", "ann", retry=lease_ms // 1_000) for _ in range(2)]
    for job_id in ids:
        found.added(job_id, ("ann",), 0)
    (first,) = get(world, "a")
    deliver(found, first.id, first.fence)
    found.look_at_nodes(first.id, first.fence, world.machines["a"], nodes(world))
    other = ids[first.id == ids[0]]
    deliver(found, other, first.fence + 1, sent_ms=20_000, now_ms=20_010)
    return world, found, other, first.fence + 1


def test_a_node_that_believes_in_its_claim_while_another_one_delivers_breaks_the_rule():
    """Spec CL8: the clock of that node counts, not the belief of its worker."""
    world, found, job_id, fence = believing()
    with pytest.raises(RuleBrokenError, match=ONE_BELIEVER):
        found.look_at_nodes(job_id, fence, world.machines["b"], nodes(world))


def test_a_claim_that_lapsed_at_its_node_keeps_no_value():
    """Spec CL8, EX5."""
    world, found, job_id, fence = believing(lease_ms=1_000)
    world.run(2_000)
    found.look_at_nodes(job_id, fence, world.machines["b"], nodes(world))


def late_reply(*, is_over):
    """The first claim's worker gets its reply when another node has a later claim of the value."""
    world, found, job_id, fence = believing(lease_ms=1_000)
    a, b = (world.machines[name] for name in "ab")
    ((first, belief),) = ((number, each) for number, each in found.beliefs["ann"].items() if number != fence)
    known = a.broker.exclusive.running[belief.job_id]
    if is_over:
        world.run(2_000)
    until_ms = b.now_ms() + 500
    b.broker.exclusive.running[job_id] = Running(b"q", known.value_key, known.job_key, b"w", fence, fence, until_ms, 1)
    found.look_at_nodes(belief.job_id, first, a, nodes(world))


def test_a_reply_that_waited_until_its_claim_was_over_proves_no_belief():
    """Spec CL8, EX6: its disk was slow, and the fence makes the worker's writes harmless (seed 4589)."""
    late_reply(is_over=True)


def test_a_claim_that_runs_while_another_node_has_a_later_one_breaks_the_rule():
    """Spec CL8."""
    with pytest.raises(RuleBrokenError, match=ONE_BELIEVER):
        late_reply(is_over=False)


def test_a_node_that_has_been_restarted_believes_nothing():
    world, found, job_id, fence = believing()
    world.crash("a")
    world.restart("a")
    found.look_at_nodes(job_id, fence, world.machines["b"], nodes(world))


def test_a_node_whose_claim_another_one_renewed_keeps_the_value_but_believes_nothing():
    """Spec EX4, CL8: it hears of the new lease, and adds the time in which it would ask the other node."""
    world = exclusive()
    found = ClaimBook()
    job_id = add(world, "a", "ann", retry=1)
    world.run(100)
    found.added(job_id, ("ann",), 0)
    (first,) = get(world, "a")
    deliver(found, job_id, first.fence)
    world.run(100)
    assert world.ask("b", "WORKING", job_id, "FENCE", first.fence) == 1
    world.run(1_100)
    a, b = (world.machines[name].broker.exclusive.running.get(job_id) for name in "ab")
    assert a is not None
    assert a.is_elsewhere
    assert b is None
    deliver(found, job_id, first.fence + 1, sent_ms=20_000, now_ms=20_010)
    found.look_at_nodes(job_id, first.fence + 1, world.machines["c"], nodes(world))
