"""Deferred replies: replies to commands that write a file in a thread while the client waits.

A disk may be slow. So a thread writes the file, and only the client that gave the command waits (spec B4). A handler
gives the work to `broker.host`. When the work is done, the process calls back within a turn, and the client gets its
reply. The core does not poll. Later commands of the client wait, as they do for a long command (incremental.py). If the
client hangs up, the file is written nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable

from disque_py.core import delivery
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_FILE, Client
from disque_py.core.errors import CommandError
from disque_py.resp.replies import error

# The result of the work: None, or the reason why it failed.
Failure = OSError | None
Outcome = Callable[[Failure], bytes | None]
# The process calls this at the end of the work.
Done = Callable[[Failure], None]


class DeferredReply:
    """One deferred reply. `outcome` makes the reply from the result of the work, or raises CommandError."""

    __slots__ = ("_broker", "_client", "_outcome", "_reply", "is_over", "is_waited_for")

    def __init__(self, broker: Broker, client: Client, outcome: Outcome) -> None:
        self._broker = broker
        self._client = client
        self._outcome = outcome
        self._reply: bytes | None = None
        self.is_over = False
        self.is_waited_for = False

    def done(self, failure: Failure) -> None:
        """Note the end of the work, and the reason if it failed. The process calls this within a turn."""
        self.is_over = True
        try:
            self._reply = self._outcome(failure)
        except CommandError as refused:
            self._reply = error(refused.text)
        client = self._client
        if not self.is_waited_for or self._broker.clients.get(client.id) is not client:
            return
        client.waiting = RUNNING
        client.blocked = None
        if client.on_outcome is not None:
            client.on_outcome(self._reply)
        if self._reply is not None:
            delivery.send(self._broker, client, self._reply)
        self._broker.outbox.clients[client] = None

    def wait(self) -> bytes | None:
        """Return the reply if the work is done already. Else let the client wait, and return None."""
        if self.is_over:
            return self._reply
        self.is_waited_for = True
        self._client.waiting = WAITS_FOR_FILE
        return None


def begin(
    broker: Broker, client: Client, start: Callable[[Callable[[Failure], None]], None], outcome: Outcome
) -> bytes | None:
    """Start the work by `start`, a method of ports.Host. Return the reply if the work is done already, else None."""
    deferred = DeferredReply(broker, client, outcome)
    start(deferred.done)
    return deferred.wait()
