"""Producers and workers, some of each on every node.

Both stay with their node while it runs, and return when it is back. Work that a broken connection leaves open goes to
another node. Adds without an answer are sent again, so a flight may be in the cluster twice; the tally counts that.
Acks without an answer are repeated, which is harmless. This is enough to survive the loss of a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from disque_py.cli.demo.link import Link, LinkLostError, encode
from disque_py.cli.demo.tally import has_default_copies
from disque_py.client import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.cli.demo.flights import Flights
    from disque_py.cli.demo.tally import Tally

PRODUCERS_PER_NODE: Final = 2
WORKERS_PER_NODE: Final = 3
ADD_BATCH: Final = 100
GET_BATCH: Final = 100
# Producers pause when this many flights are in flight, so that the measured latencies are those of the cluster, and not
# those of a backlog.
ON_THE_WAY_MAX: Final = 6_000
ADD_TIMEOUT_MS: Final = b"5000"
# A flight that waited on the killed node is queued again by the node with the other copy after
# this many seconds.
RETRY_SECONDS: Final = b"10"
TWO_COPIES: Final = (b"REPLICATE", b"2")
GET_TIMEOUT_MS: Final = b"500"
RECONNECT_SECONDS: Final = 0.2
REFUSED_PAUSE_SECONDS: Final = 0.05


class Load:
    """The state that producers and workers share."""

    def __init__(self, flights: Flights, tally: Tally, clock: Callable[[], float] = time.monotonic) -> None:
        self.flights = flights
        self.tally = tally
        self.clock = clock
        self.queues = sorted(set(flights.queues))
        self.is_over = False
        self._next_row = 0
        self._again: deque[int] = deque()
        self._may_add = asyncio.Event()
        self._may_add.set()
        self.acks_owed: deque[bytes] = deque()

    # -- rows ---------------------------------------------------------------------------------

    @property
    def on_the_way(self) -> int:
        """Flights that were sent and have not been delivered."""
        return max(0, self._next_row - self.tally.delivered)

    async def take_rows(self) -> list[int]:
        """Return the next rows to add, in a batch. Waits while too many are on their way."""
        while not self.is_over:
            if self._again:
                # These don't wait, because they already count as in flight.
                return [self._again.popleft() for _ in range(min(ADD_BATCH, len(self._again)))]
            if self._next_row < len(self.flights) and self.on_the_way < ON_THE_WAY_MAX:
                first = self._next_row
                self._next_row = min(first + ADD_BATCH, len(self.flights))
                return list(range(first, self._next_row))
            self._may_add.clear()
            await self._may_add.wait()
        return []

    def add_again(self, rows: list[int]) -> None:
        """Put back rows that were refused or got no answer."""
        self.tally.adds_repeated += len(rows)
        self._again.extend(rows)
        self._may_add.set()

    def finish(self) -> None:
        """Let producers and workers end after their current batch."""
        self.is_over = True
        self._may_add.set()

    # -- producers ------------------------------------------------------------------------------

    async def produce(self, node: int, port: int) -> None:
        """Add flights through one node until all are in."""
        while not self.is_over:
            link = await self._open(port)
            if link is None:
                continue
            with contextlib.closing(link):
                while rows := await self.take_rows():
                    if not await self._add(link, node, rows):
                        break

    async def _add(self, link: Link, node: int, rows: list[int]) -> bool:
        """Send one batch of ADDJOB. Return whether the connection still works."""
        queues, bodies = self.flights.queues, self.flights.bodies
        now = self.clock()
        for row in rows:
            self.tally.sending(row, now)
        request = b"".join(
            encode(
                b"ADDJOB", queues[row], bodies[row], ADD_TIMEOUT_MS, b"RETRY", RETRY_SECONDS,
                *(() if has_default_copies(row) else TWO_COPIES),
            )
            for row in rows
        )  # fmt: skip
        is_up = True
        try:
            replies = await link.call(request, len(rows))
        except LinkLostError as lost:
            replies = lost.replies
            is_up = False
        refused = rows[len(replies) :]
        now = self.clock()
        for row, reply in zip(rows, replies, strict=False):
            if isinstance(reply, ReplyError):
                refused.append(row)
            else:
                self.tally.was_added(row, node, now)
        if refused:
            self.add_again(refused)
            await asyncio.sleep(REFUSED_PAUSE_SECONDS)
        return is_up

    # -- workers ---------------------------------------------------------------------------------

    async def work(self, node: int, port: int, turn: int) -> None:
        """Fetch flights from one node and acknowledge them, until the load is over."""
        # Each worker begins with another queue, so that no carrier always comes first.
        queues = self.queues[turn % len(self.queues) :] + self.queues[: turn % len(self.queues)]
        get = encode(b"GETJOB", b"TIMEOUT", GET_TIMEOUT_MS, b"COUNT", b"%d" % GET_BATCH, b"FROM", *queues)
        while not self.is_over:
            link = await self._open(port)
            if link is None:
                continue
            with contextlib.closing(link):
                await self._work_on(link, node, get)

    async def _work_on(self, link: Link, node: int, get: bytes) -> None:
        """Acknowledge the last batch and ask for the next in one packet, until the link breaks."""
        done: list[bytes] = []
        while done or not self.is_over:
            while self.acks_owed:
                done.append(self.acks_owed.popleft())
            wants_more = not self.is_over
            requests = [encode(b"ACKJOB", *done)] if done else []
            if wants_more:
                requests.append(get)
            try:
                replies = await link.call(b"".join(requests), len(requests))
            except LinkLostError:
                self.acks_owed.extend(done)
                return
            if done:
                self._count_acks(replies[0], done)
            done = await self._receive(replies[-1], node) if wants_more else []

    def _count_acks(self, reply: Any, ids: list[bytes]) -> None:
        """Count an answered ACKJOB. Refused acks are sent again."""
        if isinstance(reply, ReplyError):
            self.acks_owed.extend(ids)
        else:
            self.tally.acknowledged += len(ids)

    async def _receive(self, jobs: Any, node: int) -> list[bytes]:
        """Count the jobs of one GETJOB reply. Return their ids."""
        if isinstance(jobs, ReplyError):
            await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            return []
        now = self.clock()
        was_delivered = self.tally.was_delivered
        ids = []
        for queue, job_id, body in jobs or ():
            was_delivered(queue, body, node, now)
            ids.append(job_id)
        if ids:
            self._may_add.set()
        return ids

    async def _open(self, port: int) -> Link | None:
        try:
            return await Link.open(port)
        except (OSError, TimeoutError):
            await asyncio.sleep(RECONNECT_SECONDS)
            return None
