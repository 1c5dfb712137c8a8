"""Errands: what the process does for a client beside the loop, while the client waits.

A disk may take long, so a thread writes the file, and nobody is held up but who asked (spec B4). A
handler gives the errand to `broker.host`; the process calls back inside a turn of its own when it is done, and then
the client is answered. Nothing looks in between whether it is over. What the client sent behind the command waits, as
behind a long one (slices.py). A client that hangs up ends nothing: the file is written all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from disque_py.core import delivery
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_ERRAND, Client
from disque_py.core.errors import CommandError
from disque_py.resp import error

# What the process says when it is done: None, or why it failed.
Failure = OSError | None
Outcome = Callable[[Failure], bytes | None]
# What the process calls then.
Done = Callable[[Failure], None]


class Errand:
    """One of them. `outcome` makes the reply out of what the process says, or raises CommandError."""

    __slots__ = ("_broker", "_client", "_outcome", "_reply", "is_over", "is_waited_for")

    def __init__(self, broker: Broker, client: Client, outcome: Outcome) -> None:
        self._broker = broker
        self._client = client
        self._outcome = outcome
        self._reply: bytes | None = None
        self.is_over = False
        self.is_waited_for = False

    def done(self, failure: Failure) -> None:
        """The process has done it, or failed; within a turn."""
        self.is_over = True
        try:
            self._reply = self._outcome(failure)
        except CommandError as refused:
            self._reply = error(refused.text)
        client = self._client
        if not self.is_waited_for or self._broker.clients.get(client.id) is not client:
            return
        client.waiting = RUNNING
        if self._reply is not None:
            delivery.send(self._broker, client, self._reply)
        self._broker.outbox.clients[client] = None

    def wait(self) -> bytes | None:
        """The reply if it is over already, else the client waits."""
        if self.is_over:
            return self._reply
        self.is_waited_for = True
        self._client.waiting = WAITS_FOR_ERRAND
        return None


def begin(
    broker: Broker, client: Client, start: Callable[[Callable[[Failure], None]], None], outcome: Outcome
) -> bytes | None:
    """Have the process do it: `start` is a method of ports.Host. The reply if that took no time, else None."""
    errand = Errand(broker, client, outcome)
    start(errand.done)
    return errand.wait()
