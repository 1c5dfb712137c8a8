"""Outbox: all a turn wants done outside. The driver empties it: journal, then bus, then replies.

Nothing in the core calls the journal, the bus or a socket; it leaves word here.
"""

from __future__ import annotations

from typing import Any

from cluster_bus.outgoing import Outgoing
from disque_py.core.client import Client


class Outbox:
    """records for the journal (a kind and its fields), messages for nodes, clients with replies."""

    __slots__ = ("clients", "messages", "records", "send")

    def __init__(self, messages: Outgoing) -> None:
        self.records: list[tuple[int, Any]] = []
        self.messages = messages
        self.send = messages.send
        self.clients: dict[Client, None] = {}
