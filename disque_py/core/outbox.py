"""Outbox: the work of a turn that must be done outside of the core.

The core never calls the journal, the bus or a socket. It leaves the work here, and the driver empties the outbox:
journal first, then bus, then replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster_bus.outgoing import Outgoing
from disque_py.core.client import Client
from disque_py.core.record_packing import JobRun
from persistence.records import GONE

if TYPE_CHECKING:
    from disque_py.core.job import Job
    from disque_py.core.tokens import Token


class Outbox:
    """Records for the journal, messages for nodes, and clients with replies.

    gone      the records of jobs with a base in the journal that were forgotten in this turn
    pauses    queues whose pause changed
    moved     jobs whose base must be written again, although the journal has one
    tokens    tokens with deliveries that must be recorded (tokens.py)
    keys      ids of finished jobs whose keys must be recorded (keys.py)
    results   ids of jobs with results that must be recorded (results.py)
    messages, send   messages for other nodes, and the function that adds one
    clients   clients with replies, or with more requests to run
    served    clients whose request was run directly when it came; some may be in `clients`, too
    is_void   whether all jobs and queues were reset, so that the journal starts again before this turn's other records
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
        self.gone = JobRun(GONE)
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
