"""A change of settings as a command: of a queue, a schedule or the bindings of a topic.

The command is answered when the change is on this node's disk and linked nodes had a second to confirm it
(core/settings_sync.py). Each family of commands has error texts of its own.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from disque_py.core import deferred_reply, settings_sync
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.queue_settings import COUNTER_MAX
from disque_py.resp.replies import OK


class Texts(NamedTuple):
    """The errors of one family.

    full         there are as many settings as a node remembers
    no_version   the present version is the highest there is
    subject      the settings, in the error of a disk
    """

    full: str
    no_version: str
    subject: str


def change(
    broker: Broker, client: Client, key: bytes, values: list[tuple[bytes, bytes]], texts: Texts, reply: bytes = OK
) -> bytes | None:
    """Give the settings under `key` these values in a new version, and answer with `reply`. CommandError."""
    if not settings_sync.has_room(broker, key, values):
        raise CommandError(texts.full)
    if broker.queue_settings.next_counter(key) > COUNTER_MAX:
        raise CommandError(texts.no_version)
    start = partial(settings_sync.change, broker, key, values)
    return deferred_reply.begin(broker, client, start, partial(_saved, texts, reply))


def _saved(texts: Texts, reply: bytes, failure: OSError | None) -> bytes:
    if failure is not None:
        raise CommandError(f"ERR error saving the {texts.subject}: {failure.strerror or failure}")
    return reply
