"""Iterators over queues, jobs and events, for asyncio.

A scan belongs to one node. Its cursors mean nothing on another node, so it never fails over: a lost node ends it with
an error. Each queue or job that exists during the whole scan comes at least once. A log of events belongs to one node
too.
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
from disque_py.client.spans import Milliseconds, milliseconds

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
        """Iterate over the names of one node's queues; a name may come twice.

        count        number of queues that the node looks at in one step; by default the node chooses
        minlen       only queues with as many jobs; by default all
        maxlen       only queues with no more jobs; by default all
        importrate   only queues that import as many jobs a second; by default all

        Raises DisqueConnectionError if the node is lost.
        """
        return self._scan(
            lambda cursor: commands.qscan_page(cursor, count=count, minlen=minlen, maxlen=maxlen, importrate=importrate)
        )

    def jscan(
        self, *, count: int | None = None, queue: str | bytes | None = None, states: Iterable[JobState] = ()
    ) -> AsyncIterator[str]:
        """Iterate over the ids of one node's jobs; an id may come twice.

        count    number of jobs that the node looks at in one step; by default the node chooses
        queue    only jobs of this queue; by default of all
        states   only jobs in one of these states; none by default, which means all

        Raises DisqueConnectionError if the node is lost.
        """
        wanted = tuple(states)
        return self._scan(lambda cursor: commands.jscan_page(cursor, count=count, queue=queue, states=wanted))

    def jscan_info(
        self, *, count: int | None = None, queue: str | bytes | None = None, states: Iterable[JobState] = ()
    ) -> AsyncIterator[JobInfo]:
        """Iterate over one node's jobs as SHOW shows them; a job may come twice.

        count    number of jobs that the node looks at in one step; by default the node chooses
        queue    only jobs of this queue; by default of all
        states   only jobs in one of these states; none by default, which means all

        Raises DisqueConnectionError if the node is lost.
        """
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
