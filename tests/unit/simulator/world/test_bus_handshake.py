"""The handshake: nodes link only with nodes that know the same secret."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.simulator.world.bus_handshake import prove
from disque_py.simulator.world.world import StuckError, World


def machines(*secrets):
    world = World("ab")
    for machine, secret in zip(world.machines.values(), secrets, strict=True):
        machine.broker.settings.cluster_secret = secret
    return world, *world.machines.values()


@pytest.mark.parametrize(("ours", "theirs"), [("", ""), ("x", "x")])
def test_the_same_secret_links(ours, theirs):
    world, a, b = machines(ours, theirs)
    assert prove(a, b, Random(1))
    world.join()


@pytest.mark.parametrize(("ours", "theirs"), [("x", ""), ("", "x"), ("x", "y")])
def test_another_secret_or_none_does_not(ours, theirs):
    """Neither end believes the other, and no link comes about."""
    world, a, b = machines(ours, theirs)
    assert not prove(a, b, Random(1))
    with pytest.raises(StuckError):
        world.join(3_000)
