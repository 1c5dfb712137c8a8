"""Outbox: the work that a turn wants done outside. The driver empties it: journal, then bus, then replies.

The core never calls the journal, the bus or a socket; it leaves its work here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster_bus.outgoing import Outgoing
from disque_py.core.client import Client

if TYPE_CHECKING:
    from disque_py.core.job import Job
    from disque_py.core.tokens import Token


class Outbox:
    """Records for the journal, messages for nodes, clients with replies.

    gone      (id, place) of jobs with a base in the journal that were forgotten this turn
    pauses    queues whose pause changed
    moved     jobs whose base is to be written anew, although the journal has one
    tokens    tokens with deliveries that must be recorded (tokens.py)
    keys      keys of jobs that are over (keys.py)
    results   ids of jobs with results that must be recorded (results.py)
    clients   clients with replies, or with more to run
    served    clients whose request was run at once, as it came; some may be among `clients`, too
    is_void   all jobs and queues were reset: the journal begins anew before the other records of this turn
    """

    __slots__ = (
        "clients",
        "gone",
        "is_void",
        "keys",
        "messages",
        "moved",
        "pauses",
        "results",
        "send",
        "served",
        "tokens",
    )

    def __init__(self, messages: Outgoing) -> None:
        self.gone: list[tuple[bytes, int]] = []
        self.pauses: dict[bytes, None] = {}
        self.moved: dict[Job, None] = {}
        self.tokens: dict[Token, None] = {}
        self.keys: dict[bytes, None] = {}
        self.results: dict[bytes, None] = {}
        self.is_void = False
        self.messages = messages
        self.send = messages.send
        self.clients: dict[Client, None] = {}
        self.served: list[Client] = []
