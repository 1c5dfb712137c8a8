"""core/fencing.py: commands that name the claim of a delivery."""

from __future__ import annotations

import pytest

from claimed_worlds import add, begin_get, deliveries, exclusive, get
from cluster_bus.messages import CLAIM_NEWEST
from disque_py.core import claim_stamps, fencing
from disque_py.core.grants import FENCE_MAX
from disque_py.core.job import ACKED
from disque_py.node import dispatch


def test_a_node_that_has_not_heard_of_the_delivery_takes_the_fence_for_the_newest():
    """Spec EX6."""
    world = exclusive()
    world.drop = lambda sender, receiver, kind, item: kind == 19
    job_id = add(world, "a", "ann")
    fence = get(world, "a")[0].fence
    assert fencing.cancel(world.machines["b"].broker, job_id, fence + 5) == 1


def test_an_older_fence_is_distinguished_from_an_unknown_job():
    """Spec EX6."""
    world = exclusive()
    job_id = add(world, "a", "ann")
    fence = get(world, "a")[0].fence
    broker = world.machines["a"].broker
    assert fencing.cancel(broker, job_id, fence - 1) == fencing.IS_FENCED
    assert fencing.cancel(broker, job_id[:-1] + b"0", fence) == 0


@pytest.mark.parametrize("words", [[b"0"], [b"-1"], [b"x"], [b"9" * 30]])
def test_a_fence_that_no_node_sends_is_refused(words):
    with pytest.raises(ValueError, match=r"fence|invalid"):
        fencing.read_fence(words)


@pytest.mark.parametrize("item", [(b"id", b"1", 0), (b"id", 0, 0), (b"id", 1, b"0")])
def test_an_acknowledgement_that_no_node_sends_is_refused(item):
    world = exclusive("a")
    with pytest.raises(ValueError, match="fence"):
        fencing.on_ackfenced(world.machines["a"].broker, world.machines["a"].broker.me, [item])


@pytest.mark.parametrize("command", ["NACK", "ACKJOB", "CANCELJOB"])
@pytest.mark.parametrize("fence", [1_700_000_000_000_000_000, FENCE_MAX])
def test_a_fence_that_no_voter_grants_does_not_fence_the_next_worker(command, fence):
    """Spec EX6, CL10: e.g. a program that counts in nanoseconds."""
    world = exclusive()
    job_id = add(world, "a", "ann", retry=5)
    get(world, "a")
    world.run(50)
    assert world.ask("b", command, job_id, "FENCE", fence) == 1
    job = world.machines["b"].broker.find(job_id)
    assert job is None or 0 < claim_stamps.fence_of(job) < fence
    if command == "NACK":
        world.run(20_000)
        (second,) = [each for name in "acb" for each in get(world, name)]
        world.run(50)
        assert world.ask("b", "WORKING", job_id, "FENCE", second.fence) == 5
        assert world.ask("b", "ACKJOB", job_id, "FENCE", second.fence) == 1


def test_a_node_whose_clock_is_far_behind_hears_of_fences_from_the_node_that_delivered():
    """Spec EX6: the fence in a command is too far ahead for its clock, but LEASED tells it, too."""
    world = exclusive()
    world.machines["b"].wall_offset_ms = -50 * 366 * 86_400_000
    job_id = add(world, "a", "ann", retry=60)
    (held,) = get(world, "a")
    world.run(50)
    assert world.ask("b", "WORKING", job_id, "FENCE", held.fence) == 60
    assert str(world.ask("b", "NACK", job_id, "FENCE", held.fence - 1)).startswith("FENCED")
    assert world.ask("b", "NACK", job_id, "FENCE", held.fence) == 1


# -- nodes that were cut off --------------------------------------------------------------------------


def cut_off(copies=3, retry=2, lease_s=60):
    """Return a world in which `a` was cut off while `b` delivered its job anew, and the two deliveries."""
    world = exclusive()
    add(world, "a", "ann", retry=retry, copies=copies)
    (first,) = get(world, "a")
    world.run(50)
    world.cut("a", "b")
    world.cut("a", "c")
    talker = begin_get(world, "b", "LEASE", lease_s)
    world.until(lambda: bool(talker.replies))
    (second,) = deliveries(talker.replies[0])
    assert second.id == first.id
    assert second.fence > first.fence
    return world, first, second


def heal(world, links=2):
    world.heal()
    world.until(lambda: len(world.machines["a"].broker.cluster.linked) == links)
    world.run(300)


def known(world, name, job_id):
    return claim_stamps.fence_of(world.machines[name].broker.find(job_id))


@pytest.mark.parametrize("command", ["ACKJOB", "WORKING", "NACK", "CANCELJOB"])
def test_a_node_that_was_cut_off_hears_of_the_later_delivery_as_soon_as_it_is_linked(command):
    """Spec EX6: its own worker has the older fence."""
    world, first, second = cut_off()
    heal(world)
    assert str(world.ask("a", command, first.id, "FENCE", first.fence)) == "FENCED A later claim is known"
    assert world.ask("a", "ACKJOB", first.id, "FENCE", second.fence) == 1


def test_it_hears_also_of_a_delivery_whose_lease_is_over():
    """Spec EX6: LEASED tells only of leases that run."""
    world, first, second = cut_off(lease_s=3)
    world.run(5_000)
    heal(world)
    assert known(world, "a", first.id) == second.fence


def test_any_holder_tells_of_the_later_delivery():
    """Spec EX6: the node that delivered the job is gone."""
    world, first, second = cut_off()
    world.crash("b")
    heal(world, links=1)
    assert known(world, "a", first.id) == second.fence


def test_a_node_that_was_started_again_tells_the_claims_of_its_journal():
    """Spec EX6."""
    world = exclusive()
    world.add("d", journal="always")
    world.meet("a", "d")
    world.run(3_000)
    job_id = add(world, "d", "ann", copies=4, retry=4)
    world.run(50)
    for other in "bcd":
        world.cut("a", other)
    (held,) = get(world, "d")
    world.run(6_000)
    for name in "bcd":
        world.crash(name)
    assert known(world, "a", job_id) == 0
    world.restart("d")
    world.run(3_000)
    heal(world, links=1)
    assert known(world, "a", job_id) == held.fence


def test_a_claim_that_is_told_while_the_journal_is_read_counts_afterwards():
    """Spec EX6."""
    world, first, second = cut_off()
    broker, stamp = world.machines["a"].broker, claim_stamps.stamp_of(world.machines["b"].broker.find(first.id))
    broker.is_loading = True
    fencing.on_claim_newest(broker, broker.me, [(first.id, stamp.fence, stamp.own_fence, stamp.holder)])
    assert known(world, "a", first.id) == first.fence
    dispatch.loaded(broker)
    assert known(world, "a", first.id) == second.fence


def test_it_counts_from_the_first_command_that_a_loaded_node_handles():
    """Spec EX6. The job is done, but a node that reads its journal ignores SETACK."""
    world, first, second = cut_off()
    assert world.ask("b", "ACKJOB", first.id, "FENCE", second.fence) == 1
    broker = world.machines["a"].broker
    broker.is_loading = True
    heal(world)
    dispatch.loaded(broker)
    assert broker.find(first.id).state != ACKED
    assert str(world.ask("a", "ACKJOB", first.id, "FENCE", first.fence)) == "FENCED A later claim is known"


def test_a_holder_passes_a_claim_on_that_it_has_missed():
    """Spec EX6: it may have made copies that the sender does not know of."""
    world, first, second = cut_off()
    world.drop = lambda sender, receiver, kind, item: kind == CLAIM_NEWEST and sender == "b" and receiver == "c"
    broker = world.machines["c"].broker
    job = broker.find(first.id)
    claim_stamps.set_stamp(broker, job, claim_stamps.stamp_of(job)._replace(fence=1))
    heal(world)
    assert known(world, "a", first.id) == known(world, "c", first.id) == second.fence


@pytest.mark.plain  # Compiled code has the limits as constants.
def test_a_node_remembers_a_bounded_number_of_claimed_jobs(monkeypatch):
    """Jobs that are over are forgotten before others."""
    monkeypatch.setattr(claim_stamps, "NEWEST_MAX", 3)
    world = exclusive()
    ids = [add(world, "a", f"u{number}", copies=1, retry=60) for number in range(5)]
    for job_id in ids[:4]:
        get(world, "a")
        if job_id == ids[1]:
            assert world.ask("a", "ACKJOB", job_id) == 1
            world.run(50)
    newest = world.machines["a"].broker.exclusive.newest
    assert sorted(newest) == sorted([ids[0], ids[2], ids[3]])
    get(world, "a")
    assert len(newest) == 3
    assert ids[4] in newest


@pytest.mark.plain  # Compiled code has the limits as constants.
def test_claims_that_are_told_while_the_journal_is_read_are_bounded(monkeypatch):
    monkeypatch.setattr(fencing, "EARLY_MAX", 2)
    world = exclusive("a")
    broker, job_id = world.machines["a"].broker, add(world, "a", "ann", copies=1)
    broker.is_loading = True
    fencing.on_claim_newest(broker, broker.me, [(job_id, 1, 0, b"h")] * 3)
    assert len(broker.exclusive.early) == 2


@pytest.mark.plain  # Compiled code has the limits as constants.
def test_a_node_is_told_a_bounded_number_of_claims_per_step(monkeypatch):
    """Spec EX6. The node that is gone meanwhile is told no more."""
    monkeypatch.setattr(fencing, "TOLD_PER_STEP", 2)
    world = exclusive("ab")
    ids = [add(world, "a", f"u{number}", copies=2, retry=60) for number in range(5)]
    for _ in ids:
        get(world, "a")
    broker = world.machines["a"].broker
    (node,) = broker.cluster.linked
    fencing.on_link_up(broker, node)
    assert len(broker.exclusive.untold[node]) == 3
    fencing.step(broker)
    assert len(broker.exclusive.untold[node]) == 1
    fencing.step(broker)
    assert not broker.exclusive.untold


@pytest.mark.parametrize("item", [(b"id", 1, 0, b""), (b"x" * 40, 1, 0, b""), (b"D" * 40, -1, 0, b"")])
def test_a_claim_that_no_node_tells_is_refused(item):
    world = exclusive("a")
    with pytest.raises(ValueError, match="claim"):
        fencing.on_claim_newest(world.machines["a"].broker, world.machines["a"].broker.me, [item])
