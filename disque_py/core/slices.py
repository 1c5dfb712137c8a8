"""Long commands, done a part per turn.

A command whose work grows with its arguments or with what it finds is written as a generator: it yields when it
has done about half a millisecond of work and returns its reply. What is short ends in the first part and is
answered at once; else the client waits, as for a GETJOB, while the turns of others go on in between
(spec B4). One that is in `broker.stalled` waits for bodies from disk: nothing is to be done for it
until they are there (spilling.py).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_SLICES, WROTE, Client
from disque_py.core.errors import CommandError
from disque_py.resp import error

# Longer commands are done in parts of so many jobs, about half a millisecond each.
PART: Final = 250

# The parts of a command; its reply, or None if another mechanism answers (a GETJOB that ends up waiting).
Slices = Generator[None, None, bytes | None]


def begin(broker: Broker, client: Client, slices: Slices) -> bytes | None:
    """Do the first part; the reply if that was all, else None and the rest follows in later turns."""
    try:
        next(slices)
    except StopIteration as end:
        reply: bytes | None = end.value
        return reply
    client.waiting = WAITS_FOR_SLICES
    broker.slices[client] = slices
    return None


def step(broker: Broker) -> None:
    """One more part for each client that has a long command under way."""
    for client, slices in list(broker.slices.items()):
        if broker.stalled and client in broker.stalled:
            continue
        try:
            next(slices)
        except StopIteration as end:
            _answer(broker, client, end.value)
        except CommandError as refused:
            _answer(broker, client, error(refused.text))


def _answer(broker: Broker, client: Client, reply: bytes | None) -> None:
    del broker.slices[client]
    if client.waiting == WAITS_FOR_SLICES:
        client.waiting = RUNNING
    if reply is not None and not client.is_silenced:
        client.reply(reply)
    client.wrote = WROTE  # It may have begun before the disk was in trouble.
    broker.outbox.clients[client] = None
