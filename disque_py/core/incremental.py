"""Long commands, of which each turn does a part.

A command whose work grows with its arguments or its results is written as a generator. It yields after about half a
millisecond of work, and returns its reply. If the command ends in its first part, the client is answered immediately.
Otherwise the client waits, as for a GETJOB, and other clients are served between the parts (spec B4). While a client in
`broker.waits.stalled` waits for bodies from disk or for other nodes, its command does no part (stalling.py).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_PARTS, WROTE, Client
from disque_py.core.errors import CommandError
from disque_py.resp.replies import error

# Long commands handle this many jobs per part, which takes about half a millisecond.
PART: Final = 250

# The parts of a command. It returns its reply, or None if another mechanism answers (a GETJOB that ends up waiting).
Steps = Generator[None, None, bytes | None]


def begin(broker: Broker, client: Client, steps: Steps) -> bytes | None:
    """Do the first part. Return the reply if the command is done, else None. Later turns do the rest."""
    try:
        next(steps)
    except StopIteration as end:
        reply: bytes | None = end.value
        return reply
    client.waiting = WAITS_FOR_PARTS
    broker.waits.incremental[client] = steps
    return None


def step(broker: Broker) -> None:
    """Do one more part of each long command that is under way."""
    for client, steps in list(broker.waits.incremental.items()):
        if broker.waits.stalled and client in broker.waits.stalled:
            continue
        if broker.waits.incremental.get(client) is not steps:
            continue  # A part of another command has ended it.
        try:
            next(steps)
        except StopIteration as end:
            _answer(broker, client, end.value)
        except CommandError as refused:
            _answer(broker, client, error(refused.text))


def refuse(broker: Broker, client: Client, text: str) -> None:
    """End a long command under way with an error."""
    steps = broker.waits.incremental.get(client)
    if steps is not None:
        steps.close()
        broker.waits.stalled.pop(client, None)
        _answer(broker, client, error(text))


def refuse_running(broker: Broker, text: str) -> None:
    """End the long commands that are not stalled, because the jobs that they work on will be gone. Spec J7."""
    for client in list(broker.waits.incremental):
        if client not in broker.waits.stalled:
            refuse(broker, client, text)


def _answer(broker: Broker, client: Client, reply: bytes | None) -> None:
    del broker.waits.incremental[client]
    client.blocked = None
    if client.waiting == WAITS_FOR_PARTS:
        client.waiting = RUNNING
    if client.on_outcome is not None and client.waiting == RUNNING:
        client.on_outcome(reply)
    if reply is not None and not client.is_silenced:
        client.reply(reply)
    client.wrote = WROTE  # The command may have begun before the disk failed.
    broker.outbox.clients[client] = None
