"""core/fencing.py: commands that name the claim of a delivery."""

from __future__ import annotations

import pytest

from claimed_worlds import add, exclusive, get
from disque_py.core import claim_stamps, fencing
from disque_py.core.grants import FENCE_MAX


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
