"""One pipelined connection of the client library: it sends a batch of commands, and gets as many replies.

Several batches may be in flight; replies belong to them in order. When the connection breaks, every batch in flight
ends with LinkLostError, which has the replies that arrived. Commands with a reply have run; the others may or may not
have run. The clients of the library find another node by themselves, but here every worker stays with one node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from disque_py.client import Address, ClientOptions, DisqueConnectionError, ReplyError, protocol
from disque_py.client.aio_connection import AsyncConnection, Batch, dial

OPTIONS: Final = ClientOptions(connect_timeout=1.0)


class LinkLostError(Exception):
    """The connection broke while a batch was in flight; `replies` arrived before."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(f"connection lost after {len(replies)} replies")
        self.replies = replies


class Link:
    """A connection to one node. Error replies are ReplyError values among the others."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, port: int) -> Link:
        """Connect to a node on this machine. Raises OSError if it does not run, LinkLostError if it refuses."""
        try:
            return cls(await dial(Address("127.0.0.1", port), OPTIONS, None))
        except ReplyError as error:
            raise LinkLostError([]) from error

    def call(self, request: bytes, count: int) -> Coroutine[Any, Any, list[Any]]:
        """Send `count` encoded commands together. Return a coroutine of their replies. Raises LinkLostError."""
        try:
            return _replies_of(self._connection.submit(request, count, None))
        except DisqueConnectionError as error:
            raise LinkLostError([]) from error

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()


async def _replies_of(batch: Batch) -> list[Any]:
    try:
        return await batch.future
    except DisqueConnectionError as error:
        raise LinkLostError(batch.replies) from error


def encode(*words: bytes) -> bytes:
    """Return one command as RESP."""
    return protocol.encode(words)


async def ask(port: int, *words: bytes) -> Any:
    """Execute one command on a new connection. Raises OSError, LinkLostError."""
    link = await Link.open(port)
    with contextlib.closing(link):
        return (await link.call(encode(*words), 1))[0]
