"""Iterators over queues, jobs and events, for asyncio.

A scan belongs to one node: its cursors mean nothing elsewhere, so it never fails over; a lost node
ends it with an error. Everything that is there during the whole scan comes at least once. So does a log of events.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.commands import JobState
from disque_py.client.events import COUNT, TAIL_BLOCK_MS, Event
from disque_py.client.faces import AsyncCommands
from disque_py.client.request import Request
from disque_py.client.results import JobInfo

T = TypeVar("T")


class AsyncScans(AsyncCommands):
    """QSCAN, JSCAN and EVENTS READ as iterators."""

    @abstractmethod
    async def scanned_node(self) -> Address:
        """The node to scan. Raises NotConnectedError."""

    async def _scan(self, page: Callable[[int], Request[tuple[int, list[T]]]]) -> AsyncIterator[T]:
        node = await self.scanned_node()
        cursor = 0
        while True:
            request = page(cursor)
            request.node = node
            request.is_pinned = True
            cursor, items = await self.run(request)
            for item in items:
                yield item
            if cursor == 0:
                return

    def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
    ) -> AsyncIterator[str]:
        """Names of the queues of one node; a name may come twice. Raises DisqueConnectionError if the node is lost."""
        return self._scan(
            lambda cursor: commands.qscan_page(cursor, count=count, minlen=minlen, maxlen=maxlen, importrate=importrate)
        )

    def jscan(
        self, *, count: int | None = None, queue: str | bytes | None = None, states: Iterable[JobState] = ()
    ) -> AsyncIterator[str]:
        """Ids of the jobs of one node, by queue and states; an id may come twice."""
        wanted = tuple(states)
        return self._scan(lambda cursor: commands.jscan_page(cursor, count=count, queue=queue, states=wanted))

    def jscan_info(
        self, *, count: int | None = None, queue: str | bytes | None = None, states: Iterable[JobState] = ()
    ) -> AsyncIterator[JobInfo]:
        """The jobs of one node as SHOW shows them; a job may come twice."""
        wanted = tuple(states)
        return self._scan(lambda cursor: commands.jscan_info_page(cursor, count=count, queue=queue, states=wanted))

    async def events_tail(
        self,
        log: str = "",
        seq: int = 0,
        *,
        node: Address | None = None,
        count: int = COUNT,
        reader: str = "",
        idle_ms: int = 0,
    ) -> AsyncIterator[Event]:
        """Events of one node as they become readable: from event `seq` of `log` on, or from now on.

        Ends when none came for `idle_ms` (0: never). Raises EventsTrimmedError, NoEventLogError;
        DisqueConnectionError if the node is lost.
        """
        node = node or await self.scanned_node()
        if not log:
            info = await self.events_info(node=node)
            log, seq = info.log, info.next
        while True:
            part = await self.events_read(
                log, seq, count=count, block_ms=idle_ms or TAIL_BLOCK_MS, reader=reader, node=node
            )
            for event in part.events():
                yield event
            if idle_ms and part.next == seq:
                return
            seq = part.next
