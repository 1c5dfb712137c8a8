"""Consumers: connections that fetch jobs and acknowledge them until all of a known number are done.

Each consumer asks for up to BATCH jobs, acknowledges them, and asks again in the same write. So a consumer costs a node
two commands per batch, like a good client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

import hiredis

from load import HOST, LoadError, packed

BATCH = 50
PATIENCE_MS = 500  # A consumer that got no jobs asks again after this time.


class Tally:
    """The work of all consumers: acknowledged jobs, each once, and all deliveries. `done` is set at the end."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.delivered = 0
        self.seen: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.finished_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_jobs(self, ids: list[bytes]) -> None:
        """Note delivered jobs."""
        self.delivered += len(ids)
        self.seen.update(ids)

    def on_ack(self, ids: list[bytes]) -> None:
        """Note jobs whose ack the node has answered."""
        self.acknowledged.update(ids)
        if len(self.acknowledged) >= self.wanted and not self.done.done():
            self.finished_at = time.perf_counter()
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        """Note an error that ends the work."""
        if not self.done.done():
            self.done.set_exception(LoadError(why))


class Consumer(asyncio.Protocol):
    """One connection."""

    def __init__(self, queue: str, tally: Tally) -> None:
        self._ask = packed("GETJOB", "TIMEOUT", PATIENCE_MS, "COUNT", BATCH, "FROM", queue)
        self._tally = tally
        self._reader = hiredis.Reader()
        self._unanswered: list[list[bytes]] = []  # Acks without a reply.
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._ask)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._take(reply)

    def _take(self, reply: Any) -> None:
        if self._transport is None:
            return
        if isinstance(reply, hiredis.ReplyError):
            self._tally.fail(str(reply))
        elif isinstance(reply, int):
            self._tally.on_ack(self._unanswered.pop(0))
        elif reply:
            ids = [job_id for _, job_id, _ in reply]
            self._tally.on_jobs(ids)
            self._unanswered.append(ids)
            self._transport.write(packed("ACKJOB", *ids) + self._ask)
        else:
            self._transport.write(self._ask)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._tally.fail("the node hung up")

    def close(self) -> None:
        """Close the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


async def consumers(ports: Sequence[int], count: int, queue: str, tally: Tally) -> list[Consumer]:
    """Start `count` consumers, spread over the ports."""
    loop = asyncio.get_running_loop()
    made: list[Consumer] = []
    try:
        for number in range(count):
            _, consumer = await loop.create_connection(lambda: Consumer(queue, tally), HOST, ports[number % len(ports)])
            made.append(consumer)
    except BaseException:
        for consumer in made:
            consumer.close()
        raise
    return made
