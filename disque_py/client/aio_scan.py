"""Iterators over queues, jobs (scans.py) and events, for asyncio. Each belongs to one node."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import TypeVar

from disque_py.client.address import Address
from disque_py.client.events import COUNT, TAIL_BLOCK_MS, Event
from disque_py.client.faces import AsyncCommands
from disque_py.client.scans import Scan
from disque_py.client.spans import Milliseconds, milliseconds

T = TypeVar("T")


class AsyncScans(AsyncCommands):
    """QSCAN, JSCAN and EVENTS READ as iterators."""

    @abstractmethod
    async def scanned_node(self) -> Address:
        """The node to scan. Raises NotConnectedError."""

    async def scan(self, page: Scan[T]) -> AsyncIterator[T]:
        """Iterate over all pages of a scan. Raises DisqueConnectionError if its node is lost."""
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

    async def events_tail(
        self,
        log: str = "",
        seq: int = 0,
        *,
        node: Address | None = None,
        count: int = COUNT,
        reader: str = "",
        idle_ms: Milliseconds = 0,
    ) -> AsyncIterator[Event]:
        """Iterate over one node's events as they become readable.

        log       the log's id; by default the node's present log, from now on
        seq       the number of the first event, 0 by default; it counts only with a log
        node      the node whose log it is; by default the one that commands go to
        count     number of events that are read at once at most, 10000 by default
        reader    a name under which INFO shows how far behind this reader is; none by default
        idle_ms   milliseconds without an event after which the iterator ends; 0, the default: never

        Raises EventsTrimmedError, NoEventLogError; DisqueConnectionError if the node is lost.
        """
        idle = milliseconds("idle_ms", idle_ms)
        node = node or await self.scanned_node()
        if not log:
            info = await self.events_info(node=node)
            log, seq = info.log, info.next
        while True:
            part = await self.events_read(
                log, seq, count=count, block_ms=idle or TAIL_BLOCK_MS, reader=reader, node=node
            )
            for event in part.events():
                yield event
            if idle and part.next == seq:
                return
            seq = part.next
