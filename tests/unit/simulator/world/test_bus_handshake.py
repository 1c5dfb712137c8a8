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
def test_nodes_with_different_secrets_do_not_link(ours, theirs):
    """Neither end accepts the other's proof, and there is no link."""
    world, a, b = machines(ours, theirs)
    assert not prove(a, b, Random(1))
    with pytest.raises(StuckError):
        world.join(3_000)
