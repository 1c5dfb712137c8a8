"""core/fencing.py: commands that name the claim of a delivery."""

from __future__ import annotations

import pytest

from claimed_worlds import add, exclusive, get
from disque_py.core import fencing


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
