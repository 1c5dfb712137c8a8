"""An ADDJOB that the node itself runs, for the job of a schedule's tick or the callback of a batch.

The handler of the command runs it as if a client had sent it. So it has the same options, keys and refusals. Like the
reply to a client, its reply is released when the job's record is safe.
"""

from __future__ import annotations

from collections.abc import Callable

from disque_py.core.broker import Broker
from disque_py.core.client import WROTE, Client
from disque_py.core.errors import CommandError
from disque_py.resp.replies import error


class OwnPort:
    """The pseudo-connection of such an ADDJOB (ports.ClientPort). It passes the reply to `take`."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self.client: Client | None = None

    def wake(self) -> None:
        """Pass on the reply, which has just been released."""
        client = self.client
        if client is not None and client.out:
            reply = b"".join(client.out)
            client.out = []
            self._take(reply)

    def close(self, *, after_replies: bool) -> None:
        """Do nothing, because there is no connection."""

    def input_bytes(self) -> int:
        """Return 0."""
        return 0

    def output_bytes(self) -> int:
        """Return 0."""
        return 0


def add(broker: Broker, argv: list[bytes], take: Callable[[bytes], None]) -> Client:
    """Run an ADDJOB with these words. Return the pseudo-client that waits for the reply.

    take   is called with the reply or the refusal, after this function has returned
    """
    recurring = broker.recurring
    addjob = recurring.addjob
    assert addjob is not None
    port = OwnPort(take)
    client = port.client = Client(0, port, "", broker.now_ms)
    recurring.is_internal = True
    try:
        reply = addjob(broker, client, argv)
    except CommandError as refused:
        reply = error(refused.text)
    finally:
        recurring.is_internal = False
    if reply is not None:
        client.reply(reply)
        client.wrote = WROTE
        broker.outbox.clients[client] = None
    return client
