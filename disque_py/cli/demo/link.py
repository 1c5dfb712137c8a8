"""One pipelined connection of the client library, as the demonstration uses it: a batch of commands, as many replies.

Several batches may be in flight; replies belong to them in order. When the connection breaks, every batch in flight
ends with LinkLostError, which carries the replies that did arrive. Commands with a reply have run; the others may or
may not have run. A client of the library would find another node by itself; here every worker stays with its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from disque_py.client import Address, ClientOptions, DisqueConnectionError, ReplyError, protocol
from disque_py.client.aio_connection import AsyncConnection, Batch, dial

OPTIONS: Final = ClientOptions(connect_timeout=1.0)


class LinkLostError(Exception):
    """The connection broke with a batch in flight; `replies` came before."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(f"connection lost after {len(replies)} replies")
        self.replies = replies


class Link:
    """A connection to one node. Error replies are ReplyError values among the others."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, port: int) -> Link:
        """Connect to a node on this machine. OSError when it isn't there, LinkLostError when it refuses."""
        try:
            return cls(await dial(Address("127.0.0.1", port), OPTIONS, None))
        except ReplyError as error:
            raise LinkLostError([]) from error

    def call(self, request: bytes, count: int) -> Coroutine[Any, Any, list[Any]]:
        """Send `count` encoded commands at once. Return a coroutine of their replies. LinkLostError."""
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
    """One command as RESP."""
    return protocol.encode(words)


async def ask(port: int, *words: bytes) -> Any:
    """One command on a connection of its own. OSError, LinkLostError."""
    link = await Link.open(port)
    with contextlib.closing(link):
        return (await link.call(encode(*words), 1))[0]
