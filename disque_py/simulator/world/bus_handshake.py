"""The bus handshake: two nodes with a `cluster-secret` prove to each other that they know it, before other messages.

The code is the bus's own (cluster_bus/handshake.py): HELLO and PROOF in both directions. Here the whole handshake
happens in one step, because a connection that breaks in the middle of it has the same effect as no connection. Nodes
without a secret need no proof.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from cluster_bus.codec import HANDSHAKE_VERSION, Decoder, FrameError
from cluster_bus.handshake import ACCEPTOR, DIALER, NONCE_BYTES, Handshake

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine


def secret_of(machine: Machine) -> bytes:
    """Return the secret of a machine's process; empty: none."""
    return str(machine.broker.settings.cluster_secret).encode()


def prove(dialer: Machine, target: Machine, rng: Random) -> bool:
    """Return whether each end accepts the other's proof."""
    secrets = secret_of(dialer), secret_of(target)
    if not any(secrets):
        return True
    ends = (
        Handshake(DIALER, dialer.membership.hello(), rng.randbytes(NONCE_BYTES), secrets[0]),
        Handshake(ACCEPTOR, target.membership.hello(), rng.randbytes(NONCE_BYTES), secrets[1]),
    )
    try:
        said = [end.first_frame() for end in ends]
        said = [end.receive(_runs(frame)) for end, frame in zip(ends, reversed(said), strict=True)]
        for end, frame in zip(ends, reversed(said), strict=True):
            end.receive(_runs(frame))
    except FrameError:
        return False
    return all(end.is_done for end in ends)


def _runs(frame: bytes) -> list[list[object]]:
    """Return the content of a frame of the handshake."""
    [runs] = Decoder(versions=(HANDSHAKE_VERSION, HANDSHAKE_VERSION)).feed(frame)
    return runs
