"""Disque: the client for programs with threads, or with none.

The blocking twin of aio.py: the same commands, the same rules for repeating and for choosing
nodes, one connection per running command. One client may be shared by any number of threads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.bulk import Bulk
from disque_py.client.commands import ADD_TIMEOUT_MS, Body, JobState
from disque_py.client.errors import DisqueConnectionError, NotConnectedError
from disque_py.client.events import COUNT, TAIL_BLOCK_MS, Event
from disque_py.client.faces import BlockingCommands
from disque_py.client.feed import FeedWatch
from disque_py.client.options import make_options, settings_of_url
from disque_py.client.pipeline import Pipeline, envelope, read_all
from disque_py.client.pool import Pool
from disque_py.client.protocol import Reply
from disque_py.client.request import Request
from disque_py.client.results import Job, JobInfo
from disque_py.client.retry import Patience, may_repeat, means_elsewhere
from disque_py.client.socket_connection import SocketConnection
from disque_py.client.templates import AddTemplate, slabs, unsent

T = TypeVar("T")

# See aio.SLICE_MS.
SLICE_MS: Final = 30_000


class Disque(BlockingCommands):
    """A client of a cluster. Settings: options.ClientOptions.

    Connections are made when they are needed; `with` or `connect()` makes the first at once.
    """

    def __init__(self, *nodes: str | Address, **settings: Any) -> None:
        """`Disque("10.0.0.1:7711", "10.0.0.2:7711", password=…)`. Raises ValueError for what it can't read."""
        self.options = make_options(nodes, settings)
        self._rng = random.Random()
        self._pool = Pool(self.options, self._rng)
        self._feed = FeedWatch()

    @classmethod
    def from_url(cls, url: str, **settings: Any) -> Self:
        """A client of `disque://[[user]:password@]host:port,…/?option=value`; `settings` win over the URL's."""
        nodes, found = settings_of_url(url)
        return cls(*nodes, **{**found, **settings})

    @property
    def node(self) -> Address | None:
        """The node that commands go to now."""
        return self._pool.cluster.home

    @property
    def consumer_node(self) -> Address | None:
        """The node that this client's consumers sit at now."""
        return self._pool.cluster.consumer_home

    def connect(self) -> Self:
        """Reach a node. Raises NotConnectedError, AuthError."""
        self.scanned_node()
        return self

    def close(self) -> None:
        """Close all connections; threads that wait on one get ConnectionLostError."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # One command.

    def run(self, request: Request[T]) -> T:
        """Execute one command, on another node if need be. Raises what can go wrong with it (errors.py)."""
        pool = self._pool
        patience = Patience(self.options.patience, self._rng)
        until = time.monotonic() + request.wait_ms / 1000 if request.wait_word is not None and request.wait_ms else None
        while True:
            connection = pool.take(request, patience)
            payload, limit_s = self._words(request, until)
            try:
                reply = connection.ask(payload, limit_s)
            except DisqueConnectionError as error:
                pool.broke(connection, error)
                if request.is_pinned or patience.is_over(time.monotonic()):
                    raise
                if not may_repeat(error, request.repeat, retry_unsafe=self.options.retry_unsafe):
                    raise
            except BaseException as error:
                pool.broke(connection, error)
                raise
            else:
                pool.give_back(connection)
                if not means_elsewhere(reply) or request.is_pinned:
                    patience.renew()
                    if reply is None and request.wait_word is not None and (until is None or time.monotonic() < until):
                        continue
                    return self._value(request, reply, connection)
                pool.left(connection.address)
                if patience.is_over(time.monotonic()):
                    raise reply
            time.sleep(patience.pause_s())

    def _words(self, request: Request[Any], until: float | None) -> tuple[bytes, float | None]:
        """The command as it is sent now, and the silence that means a dead node: waiting goes in slices."""
        if request.wait_word is None:
            return request.payload(), request.limit_s(self.options.timeout)
        left_ms = SLICE_MS if until is None else max(1, round((until - time.monotonic()) * 1000))
        wait_ms = min(left_ms, SLICE_MS)
        return request.payload_waiting(wait_ms), wait_ms / 1000 + self.options.timeout

    def _value(self, request: Request[T], reply: Reply, connection: SocketConnection) -> T:
        value = request.value(reply, connection.address, self.options.decode)
        if request.wait_word is not None and self.options.follow and isinstance(value, list):
            now = time.monotonic()
            cluster = self._pool.cluster
            with self._pool.lock:
                prefix = self._feed.saw([job.id for job in value], cluster.prefix_of(connection.address), now)
                address = cluster.node_with_prefix(prefix, now) if prefix else None
                if address is not None:
                    self._feed.moved(now)
                    cluster.move_consumers(address)
        return value

    # Jobs.

    def get_jobs(
        self,
        *queues: str | bytes,
        count: int = 1,
        timeout_ms: int = 0,
        nohang: bool = False,
        withcounters: bool = False,
        withmeta: bool = False,
        withlease: bool = False,
        lease: int | None = None,
        token: str | bytes | None = None,
        node: Address | None = None,
    ) -> list[Job]:
        """GETJOB → up to `count` jobs; an empty list when none came in `timeout_ms` (0: for ever), or with `nohang`.

        `lease`, `token` and `node`: see `commands.get_jobs`. A call that had to wait gets one job.
        """
        return self.run(
            commands.get_jobs(
                *queues,
                count=count,
                timeout_ms=timeout_ms,
                nohang=nohang,
                withcounters=withcounters,
                withmeta=withmeta,
                withlease=withlease,
                lease=lease,
                token=token,
                node=node,
            )
        )

    def get_job(
        self, *queues: str | bytes, timeout_ms: int = 0, nohang: bool = False, withcounters: bool = False
    ) -> Job | None:
        """GETJOB → one job, or None when none came in `timeout_ms` (0: for ever), or with `nohang`."""
        found = self.get_jobs(*queues, timeout_ms=timeout_ms, nohang=nohang, withcounters=withcounters)
        return found[0] if found else None

    def jobs(self, *queues: str | bytes, count: int = 1, idle_ms: int = 0, withcounters: bool = False) -> Iterator[Job]:
        """Jobs for ever, or until none came for `idle_ms`; acknowledge each. Up to `count` are fetched at once."""
        while found := self.get_jobs(*queues, count=count, timeout_ms=idle_ms, withcounters=withcounters):
            yield from found

    def add_jobs(
        self,
        queue: str | bytes,
        bodies: Iterable[Body],
        *,
        timeout_ms: int = ADD_TIMEOUT_MS,
        replicate: int | None = None,
        delay: int | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
        async_: bool = False,
        retry_unsafe: bool | None = None,
    ) -> list[str]:
        """Many ADDJOBs in one pipeline → their ids, in the order of the bodies. Options as in `add_job`.

        Raises BatchError when some failed; its `results` has an id or an error for each.
        """
        template = AddTemplate(
            queue,
            timeout_ms=timeout_ms,
            options=commands.add_options(
                replicate=replicate, delay=delay, retry=retry, ttl=ttl, maxlen=maxlen, async_=async_
            ),
            retry_unsafe=retry_unsafe,
        )
        replies: list[Reply] = []
        rest = slabs(bodies)
        for slab in rest:
            bulk = template.bulk(slab, retry_unsafe=self.options.retry_unsafe)
            self._run_bulk(bulk, template.request)
            replies += bulk.replies
            if not bulk.is_done:  # The patience is over, once for all of them.
                replies += unsent(rest, bulk)
        return template.ids(replies)

    def pipeline(self) -> Pipeline:
        """Commands collected and sent together (pipeline.py)."""
        return Pipeline(self._run_many)

    def _run_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        bulk = Bulk(
            [request.payload() for request in requests],
            [request.repeat for request in requests],
            retry_unsafe=self.options.retry_unsafe,
        )
        node = self._run_bulk(bulk, envelope(requests))
        return read_all(requests, bulk.replies, node, self.options.decode)

    def _run_bulk(self, bulk: Bulk, cover: Request[Any]) -> Address | None:
        """Send until everything is answered or may not be repeated → the node that was asked last."""
        pool = self._pool
        patience = Patience(self.options.patience, self._rng)
        limit_s = cover.limit_s(self.options.timeout)
        while True:
            try:
                connection = pool.take(cover, patience)
            except NotConnectedError as error:
                bulk.heard((), 0, error)
                return None
            replies: list[Reply] = []
            trouble: DisqueConnectionError | None = None
            try:
                connection.exchange(bulk.chunks(), limit_s, replies)
                pool.give_back(connection)
            except DisqueConnectionError as error:
                trouble = error
                pool.broke(connection, error)
            except BaseException as error:
                pool.broke(connection, error)
                raise
            bulk.heard(replies, connection.sent_count, trouble)
            if bulk.made_progress:
                patience.renew()
            if bulk.wants_elsewhere:
                pool.left(connection.address)
            if bulk.is_done or patience.is_over(time.monotonic()):
                return connection.address
            time.sleep(patience.pause_s())

    # Iterators: a scan belongs to one node, whose cursors mean nothing elsewhere (aio_scan.py).

    def scanned_node(self) -> Address:
        """The node whose queues and jobs a scan lists: the one that commands go to."""
        patience = Patience(self.options.patience, self._rng)
        connection = self._pool.take(commands.ping(), patience)
        self._pool.give_back(connection)
        return connection.address

    def _scan(self, page: Callable[[int], Request[tuple[int, list[T]]]]) -> Iterator[T]:
        node = self.scanned_node()
        cursor = 0
        while True:
            request = page(cursor)
            request.node = node
            request.is_pinned = True
            cursor, items = self.run(request)
            yield from items
            if cursor == 0:
                return

    def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
    ) -> Iterator[str]:
        """Names of the queues of one node; a name may come twice. Raises DisqueConnectionError if the node is lost."""
        return self._scan(
            lambda cursor: commands.qscan_page(cursor, count=count, minlen=minlen, maxlen=maxlen, importrate=importrate)
        )

    def jscan(
        self, *, count: int | None = None, queue: str | bytes | None = None, states: Iterable[JobState] = ()
    ) -> Iterator[str]:
        """Ids of the jobs of one node, by queue and states; an id may come twice."""
        wanted = tuple(states)
        return self._scan(lambda cursor: commands.jscan_page(cursor, count=count, queue=queue, states=wanted))

    def jscan_info(
        self, *, count: int | None = None, queue: str | bytes | None = None, states: Iterable[JobState] = ()
    ) -> Iterator[JobInfo]:
        """The jobs of one node as SHOW shows them; a job may come twice."""
        wanted = tuple(states)
        return self._scan(lambda cursor: commands.jscan_info_page(cursor, count=count, queue=queue, states=wanted))

    def events_tail(
        self,
        log: str = "",
        seq: int = 0,
        *,
        node: Address | None = None,
        count: int = COUNT,
        reader: str = "",
        idle_ms: int = 0,
    ) -> Iterator[Event]:
        """Events of one node as they become readable: from event `seq` of `log` on, or from now on.

        Ends when none came for `idle_ms` (0: never). Raises EventsTrimmedError, NoEventLogError;
        DisqueConnectionError if the node is lost.
        """
        node = node or self.scanned_node()
        if not log:
            info = self.events_info(node=node)
            log, seq = info.log, info.next
        while True:
            part = self.events_read(log, seq, count=count, block_ms=idle_ms or TAIL_BLOCK_MS, reader=reader, node=node)
            yield from part.events()
            if idle_ms and part.next == seq:
                return
            seq = part.next
