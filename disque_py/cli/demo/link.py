"""One pipelined connection: a batch of commands out, as many replies back.

Several batches may be in flight; replies belong to them in order. When the connection breaks, every batch in flight
ends with LinkLostError, which carries the replies that did arrive. Commands with a reply have run; the others may or
may not have run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Final, cast

import hiredis

CONNECT_SECONDS: Final = 1.0


class LinkLostError(Exception):
    """The connection broke with a batch in flight; `replies` came before."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(f"connection lost after {len(replies)} replies")
        self.replies = replies


class Link(asyncio.Protocol):
    """A connection to one node. Error replies are hiredis.ReplyError values among the others."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        # Batches in flight, oldest first: replies wanted, replies so far, the future that waits.
        self._batches: deque[tuple[int, list[Any], asyncio.Future[list[Any]]]] = deque()

    @classmethod
    async def open(cls, port: int) -> Link:
        """Connect to a node on this machine. OSError or TimeoutError when it isn't there."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, link = await loop.create_connection(cls, "127.0.0.1", port)
        return link

    def call(self, request: bytes, count: int) -> asyncio.Future[list[Any]]:
        """Send `count` encoded commands; the result is their replies. LinkLostError."""
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            answer.set_exception(LinkLostError([]))
            return answer
        self._batches.append((count, [], answer))
        self._transport.write(request)
        return answer

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is up."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: hand replies to the batches they answer."""
        self._reader.feed(data)
        while self._batches:
            count, replies, answer = self._batches[0]
            while len(replies) < count:
                reply = self._reader.gets()
                if reply is False:  # Not complete yet; no reply of a node is a RESP3 boolean.
                    return
                replies.append(reply)
            self._batches.popleft()
            if not answer.done():
                answer.set_result(replies)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: fail the batches in flight."""
        self._transport = None
        while self._batches:
            _, replies, answer = self._batches.popleft()
            if not answer.done():
                answer.set_exception(LinkLostError(replies))


def encode(*words: bytes) -> bytes:
    """One command as RESP."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # Its stub asks for a tuple of one.
    return packed


async def ask(port: int, *words: bytes) -> Any:
    """One command on a connection of its own. OSError, TimeoutError, LinkLostError."""
    link = await Link.open(port)
    with contextlib.closing(link):
        return (await link.call(encode(*words), 1))[0]
