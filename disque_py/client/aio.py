"""AsyncDisque: the client for asyncio programs.

Every command is a coroutine, and any number of tasks may share one client. retry.py decides which commands are repeated
after a failure. cluster.py and aio_pool.py choose the node. This module combines them: it has one loop for single
commands, one for waiting GETJOBs, and one for many commands together.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakSet

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.aio_connection import AsyncConnection, Batch
from disque_py.client.aio_pool import AsyncPool
from disque_py.client.bulk import Bulk
from disque_py.client.errors import (
    AuthError,
    ConnectionLostError,
    DisqueConnectionError,
    DisqueError,
    NotConnectedError,
)
from disque_py.client.events import COUNT, TAIL_BLOCK_MS, Event
from disque_py.client.faces import AsyncCommands
from disque_py.client.feed import FeedWatch
from disque_py.client.job_stream import JobStream
from disque_py.client.lock import AsyncLock, AsyncRunner, LockClients, SharedAsyncRunner
from disque_py.client.lock_lease import LEASE_S, lock_terms
from disque_py.client.options import ClientSettings, make_options, settings_of, settings_of_url
from disque_py.client.pipeline import AsyncPipeline, envelope, read_all
from disque_py.client.protocol import Reply
from disque_py.client.put_back import PutBack, Step
from disque_py.client.request import Lane, Request
from disque_py.client.results import Job, jobs
from disque_py.client.retry import Patience, is_full, is_refused_for_now, may_repeat
from disque_py.client.scans import Scan
from disque_py.client.spans import Milliseconds, Span, milliseconds
from disque_py.client.templates import Adding
from disque_py.client.tracing import Tracing, async_observed
from disque_py.client.waiting import EARLY_S

T = TypeVar("T")

# A GETJOB that waits longer is repeated in slices of this length. Silence past a slice means a dead node. With a single
# endless wait, the client could not tell a dead node from an empty queue.
SLICE_MS: Final = 30_000

# Writes of a pipeline that may be in flight. The node always has work, and memory use stays flat.
WINDOW: Final = 4

# The seconds for which an abandoned GETJOB may still be answered.
HANG_UP_S: Final = 1.0
# The same while the client is being closed, for a node that is near. A silent node must not delay the end of a program.
CLOSE_S: Final = 0.1


class Sending:
    """One round of a pipeline: the writes without an answer, and the answers to earlier writes."""

    __slots__ = ("connection", "is_over", "replies", "window")

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.window: deque[Batch] = deque()
        self.replies: list[Reply] = []
        self.is_over = False


class AsyncDisque(AsyncCommands):
    """A client of a cluster.

    Connections are made when they are needed. `async with` and `connect()` make the first one immediately.

    tracing   a tracing library that sees every command (tracing.py); None, the default: none

        async with AsyncDisque("10.0.0.1:7711", "10.0.0.2:7711", password="secret") as client:
            await client.add_job("mail", b"Dear Ada, ...", retry=60)
            async for job in client.jobs("mail", count=10, idle_ms=500):
                print(job.body)
                await client.ack(job)
    """

    tracing: Tracing | None = None

    def __init__(self, *nodes: str | Address, **settings: Unpack[ClientSettings]) -> None:
        """`AsyncDisque("10.0.0.1:7711", "10.0.0.2:7711", password=…)`.

        nodes             nodes to begin with: `host:port`, `host`, `[v6]:port` or `unix:/path`; by default
                          127.0.0.1:7711
        username          for AUTH, only where the server knows users, and never without a password; none by default
        password          for AUTH; none by default
        decode            how `Job.value` decodes a body: an encoding, or a function of bytes; by default it returns
                          bytes
        timeout           seconds without an answer after which a node counts as dead, 5 by default. The time that a
                          command itself waits is added
        connect_timeout   seconds for connecting, AUTH and HELLO together, 3 by default
        patience          seconds for which a command looks for a working node, 10 by default; 0: one attempt
        pool_size         connections to one node for ADDJOBs, 8 by default
        discover          True, the default: use also the nodes that HELLO names. False: use the given ones only
        follow            True, the default: move consumers to the node from which most of their jobs come
        retry_unsafe      True: after a lost connection, send a command again even if it may then be executed twice
                          (ADDJOB, NACK, ENQUEUE). False by default: such a command raises ConnectionLostError
        name              name of every connection, which CLIENT LIST shows; none by default
        datacenter        name of this program's data centre, none by default; nodes in it come before others
        zone              name of this program's zone, none by default; nodes in it come first
        tls               an `ssl.SSLContext`, or True to trust the system's authorities; by default connections are
                          plain

        Raises ValueError for an invalid address or number, TypeError for an unknown setting.
        """
        self.options = make_options(nodes, settings)
        self._rng = random.Random()
        self._pool: AsyncPool | None = None
        self._feed = FeedWatch()
        self._housekeeping: set[asyncio.Task[None]] = set()
        self._put_backs: set[asyncio.Task[None]] = set()
        self._put_back_rules = PutBack()
        self._streams: WeakSet[JobStream] = WeakSet()
        self._lock_clients: LockClients[AsyncRunner] = LockClients()

    @classmethod
    def from_url(cls, url: str, **settings: Unpack[ClientSettings]) -> Self:
        """Return a client of the cluster at `disque://[[user]:password@]host:port,…/?option=value`.

        url        disque:// or redis://, disques:// or rediss:// for TLS, unix:// for a socket
        settings   as for the client itself; they take precedence over those of the URL

        Raises ValueError for an invalid URL or an unknown option in it, TypeError for an unknown setting.

            client = AsyncDisque.from_url("disques://:secret@10.0.0.1,10.0.0.2:7712/?timeout=2", decode="utf-8")
        """
        nodes, found = settings_of_url(url)
        return cls(*nodes, **(found | settings))

    @property
    def pool(self) -> AsyncPool:
        """The connections. The pool is made in the loop that uses it first. Raises RuntimeError in another loop."""
        pool = self._pool
        if pool is None:
            pool = self._pool = AsyncPool(self.options, self._rng)
        elif pool.loop is not asyncio.get_running_loop() and not pool.is_closed:
            # The loop of the connections can't wake a task of this one.
            raise RuntimeError("this client belongs to another event loop: make and close a client in each loop")
        return pool

    @property
    def node(self) -> Address | None:
        """The node that commands go to now."""
        return self._pool.cluster.home if self._pool is not None else None

    @property
    def consumer_node(self) -> Address | None:
        """The node that this client's consumers use now."""
        return self._pool.cluster.consumer_home if self._pool is not None else None

    async def connect(self) -> Self:
        """Connect to a node → this client. Raises NotConnectedError, AuthError."""
        await self.pool.connection(commands.ping(), self._patience())
        return self

    async def close(self) -> None:
        """Close all connections. Before that, jobs that were fetched but not handed out are put back.

        A node that does not answer delays this by a tenth of a second, or by four times the time that connecting took.
        Putting jobs back takes two seconds at most.
        """
        for stream in list(self._streams):
            stream.give_back()
        if self._housekeeping:
            await asyncio.wait(self._housekeeping, timeout=max(CLOSE_S, 4 * self.pool.greeting_s))
        if self._put_backs:
            await asyncio.wait(self._put_backs, timeout=2 * HANG_UP_S)
        for client in self._lock_clients.end():
            await client.close()
        self.pool.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # One command.

    def run(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        """Execute one command, on another node if need be. Raises the errors of that command (errors.py)."""
        # This is not a coroutine function, because that would cost every command one more coroutine.
        return self._execute(request) if self.tracing is None else self._traced(request, self.tracing)

    async def _traced(self, request: Request[T], tracing: Tracing) -> T:
        request, observation = tracing.one(request)
        return await async_observed(observation, self._execute(request))

    async def _execute(self, request: Request[T]) -> T:
        if request.wait_word is not None:
            return await self._fetch(request)
        pool = self.pool
        patience: Patience | None = None
        while True:
            connection = pool.ready(request)
            if connection is None:
                patience = patience or self._patience(request)
                connection = await pool.connection(request, patience)
            try:
                if request.lane is Lane.ADDS:  # Most commands of most programs. This saves a coroutine.
                    limit_s = request.limit_s(self.options.timeout)
                    reply = (await connection.submit(request.payload(), 1, limit_s).future)[0]
                else:
                    reply = await self._ask(
                        request, connection, request.payload(), request.limit_s(self.options.timeout)
                    )
            except DisqueConnectionError as error:
                pool.note_broken(connection, error)
                patience = patience or self._patience(request)
                if not self._may_repeat(error, request, patience):
                    raise
            else:
                if request.lane is Lane.OWN:
                    pool.give_back(connection)
                if not self._is_refused_for_now(reply, request, connection):
                    return request.value(reply, connection.address, self.options.decode)
                pool.note_refusal(connection, reply)
                patience = patience or self._patience(request)
                if patience.is_over(self._now()):
                    raise reply
            await asyncio.sleep(patience.pause_s())

    async def _fetch(self, request: Request[T]) -> T:
        """Execute a command that may wait: in slices, on its own connection. A cancelled GETJOB loses no job."""
        pool = self.pool
        patience = self._patience(request)
        until = self._now() + (request.wait_ms or 0) / 1000 if request.wait_ms else None
        while True:
            connection = pool.take_idle(request) or await pool.connection(request, patience)
            left_ms = SLICE_MS if until is None else max(1, math.ceil((until - self._now()) * 1000))
            wait_ms = min(left_ms, SLICE_MS)
            slice_end = 0.0 if request.goes_on is None else self._now() + wait_ms / 1000 - EARLY_S
            if request.along is not None:
                request.along(connection)
            try:
                payload = request.payload_waiting(wait_ms)
                reply = await self._ask(request, connection, payload, wait_ms / 1000 + self.options.timeout)
            except DisqueConnectionError as error:
                pool.note_broken(connection, error)
                if not self._may_repeat(error, request, patience):
                    raise
                await asyncio.sleep(patience.pause_s())
                continue
            pool.give_back(connection)
            if self._is_refused_for_now(reply, request, connection):
                pool.note_refusal(connection, reply)
                if patience.is_over(self._now()):
                    raise reply
                await asyncio.sleep(patience.pause_s())
                continue
            patience.renew()
            if reply is None or request.goes_on is not None:
                now = self._now()
                if (until is None or now < until) and request.waits_on(reply, now, slice_end):
                    continue
            value = request.value(reply, connection.address, self.options.decode)
            if reply and request.takes_jobs and self.options.follow:
                self._watch_feed([value] if isinstance(value, Job) else value, connection)
            return value

    async def _ask(
        self, request: Request[Any], connection: AsyncConnection, payload: bytes, limit_s: float | None
    ) -> Reply:
        if request.takes_jobs:
            return await self._reply_of(connection.submit(payload, 1, limit_s), connection, request)
        if request.late is not None:
            return await self._reply_or_late(connection.submit(payload, 1, limit_s), connection, request.late)
        try:
            return await connection.ask(payload, limit_s)
        except asyncio.CancelledError:
            if request.lane is Lane.OWN:
                self.pool.drop(connection)
            raise

    def _is_refused_for_now(self, reply: Reply, request: Request[Any], connection: AsyncConnection) -> bool:
        if request.is_pinned or not isinstance(reply, Exception):
            return False
        if is_full(reply):
            return request.may_move and self.pool.cluster.note_full(connection.address, self._now())
        return is_refused_for_now(reply, awaits_nodes=request.awaits_nodes, awaits_voters=request.awaits_voters)

    async def _reply_of(self, batch: Batch, connection: AsyncConnection, request: Request[Any]) -> Reply:
        try:
            return (await asyncio.shield(batch.future))[0]  # Shielded: _abandon waits for it.
        except asyncio.CancelledError:
            self._do(self._abandon(batch, connection, request), self._housekeeping)
            raise

    async def _reply_or_late(self, batch: Batch, connection: AsyncConnection, late: Callable[[Reply], None]) -> Reply:
        """Return the answer on a connection of the command's own. A cancelled caller hears whether one still came."""
        try:
            return (await asyncio.shield(batch.future))[0]
        except asyncio.CancelledError:
            try:
                await self.pool.hang_up(connection, HANG_UP_S)
            finally:  # A second cancellation must leave no connection open.
                self.pool.drop(connection)
            if batch.replies:
                late(batch.replies[0])
            raise

    async def _abandon(self, batch: Batch, connection: AsyncConnection, request: Request[Any]) -> None:
        """Put back the jobs that still arrive for a GETJOB whose caller was cancelled."""
        if request.lane is Lane.OWN and batch.replies:
            self.pool.give_back(connection)
        else:
            await self._last_words((batch,), connection, request.lane)
        if request.puts_back:
            self._put_back(batch.replies, connection.address)

    async def _last_words(self, batches: Collection[Batch], connection: AsyncConnection, lane: Lane) -> None:
        """Read the replies that are still in flight to a cancelled caller.

        A connection of another lane stays open, because other callers share it.
        """
        if lane is Lane.OWN:
            await self.pool.hang_up(connection, HANG_UP_S)
        elif batches:
            await asyncio.wait([batch.future for batch in batches])

    def _put_back(self, replies: Iterable[Reply], node: Address) -> None:
        """Put back the jobs in replies to GETJOBs that no caller has read."""
        found = [job for reply in replies if isinstance(reply, list) for job in jobs(reply)]
        for job in found:
            job.node = node
        if found:
            self._give_back(found)

    async def put_back(self, jobs: Iterable[Job]) -> None:
        """Put back jobs that were fetched and will not be handled.

        jobs   jobs that were fetched

        The jobs are queued again without a delay, whatever their back-off is, and with a reason. Each of them loses one
        attempt. Nodes that support only plain NACKs get those. Raises the errors of every command.
        """
        steps = [step for steps in self._put_back_rules.steps(jobs).values() for step in steps]
        outcomes = await asyncio.gather(*map(self._take_step, steps), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _take_step(self, step: Step) -> None:
        try:
            await self.run(step[0])
        except DisqueError as error:
            plain = self._put_back_rules.plain_after(step, error)
            if plain is None:
                raise
            await self.run(plain[0])

    async def _put_back_all(self, found: Collection[Job]) -> None:
        with suppress(DisqueError):
            await self.put_back(found)

    def _watch_feed(self, found: object, connection: AsyncConnection) -> None:
        if not isinstance(found, list):
            return
        cluster, now = self.pool.cluster, self._now()
        prefix = self._feed.count_jobs([job.id for job in found], cluster.prefix_of(connection.address), now)
        address = cluster.node_with_prefix(prefix, now) if prefix else None
        if address is not None:
            self._feed.moved(now)
            self.pool.move_consumers(address)

    def _do(self, chore: Coroutine[Any, Any, None], chores: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(chore)
        chores.add(task)
        task.add_done_callback(chores.discard)

    def _patience(self, request: Request[Any] | None = None) -> Patience:
        limit_s = self.options.patience if request is None or request.patience_s is None else request.patience_s
        return Patience(limit_s, self._rng)

    def _may_repeat(self, error: DisqueConnectionError, request: Request[Any], patience: Patience) -> bool:
        if request.is_pinned or patience.is_over(self._now()):
            return False
        return may_repeat(error, request.repeat, retry_unsafe=self.options.retry_unsafe)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def lock(
        self,
        name: str | bytes,
        *,
        lease: Span = LEASE_S,
        attempts: int | None = None,
        timeout: Span | None = None,
        owner: str | bytes | None = None,
        on_lost: Callable[[AsyncLock], object] | None = None,
    ) -> AsyncLock:
        """Return a lock of this name, for use in a `with` block. At most one owner in the cluster has it at a time.

        name       name of the lock
        lease      seconds after which the lock ends if this program stops; 30 by default. It is extended in the
                   background while the lock is held
        attempts   how often the lock may be acquired, by all owners together, until the work is done; None, the
                   default: any number of times
        timeout    seconds to wait while another owner has the lock, 0: don't wait; None, the default: wait for ever
        owner      name of the owner; by default one that no other lock object has. Two objects with the same owner
                   share the lock
        on_lost    called with the lock when it is lost, in the event loop; None by default

        Each thread or task needs its own object. Raises ValueError or TypeError for an invalid number. Acquiring the
        lock raises LockHeldError, LockDoneError, LockSpentError, NoQuorumError and the errors of every command. Leaving
        the block raises LockLostError if the lock was lost.

            async with client.lock("nightly", lease=30, timeout=60) as lock:
                await write_report(fence=lock.fence)
        """
        terms = lock_terms(name, lease, attempts, timeout)
        options = terms.options(self.options)

        def connect() -> SharedAsyncRunner:
            key = options.connect_timeout
            make = lambda: AsyncDisque(*options.seeds, **settings_of(options))  # noqa: E731
            return SharedAsyncRunner(self._lock_clients, key, make, self._is_open_here)

        return AsyncLock(terms, owner, on_lost, connect)

    def _is_open_here(self) -> bool:
        """Return whether this client is connected, and belongs to the running loop."""
        pool = self._pool
        return pool is not None and not pool.is_closed and pool.loop is asyncio.get_running_loop()

    # Many jobs.

    def iterate(self, request: Request[list[Job]]) -> JobStream:
        """Return an iterator over jobs, which repeats this GETJOB (`jobs`)."""
        stream = JobStream(request, self.run, self._give_back)
        self._streams.add(stream)
        return stream

    def _give_back(self, leftover: Collection[Job]) -> None:
        """Put back jobs that were fetched but not handed out, in a new task."""
        self._do(self._put_back_all(leftover), self._put_backs)

    async def run_adding(self, adding: Adding) -> list[str]:
        """Execute the ADDJOBs of `add_jobs`. Raises BatchError."""
        if self.tracing is None:
            return await self._add_all(adding)
        return await async_observed(self.tracing.adding(adding), self._add_all(adding))

    async def _add_all(self, adding: Adding) -> list[str]:
        template = adding.template
        replies: list[Reply] = []
        for bulk in adding.bulks(retry_unsafe=self.options.retry_unsafe):
            await self._run_bulk(bulk, template.request, is_first=not replies)
            replies += bulk.replies
            if not bulk.is_done:  # The patience of the whole call is over, so the rest is not tried.
                replies += adding.unsent(bulk)
                break
        return template.ids(replies)

    async def scanned_node(self) -> Address:
        """Return the node that a scan lists: the one that commands go to. Raises NotConnectedError."""
        return (await self.pool.connection(commands.ping(), self._patience())).address

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

        log       the log's id; by default the node's current log, from now on
        seq       the number of the first event, 0 by default; ignored without a log
        node      the node whose log it is; by default the one that commands go to
        count     the most events that one command reads, 10000 by default
        reader    a name under which INFO shows how many events this reader is behind; none by default
        idle_ms   milliseconds without an event after which the iterator ends; 0, the default: never

        Raises EventsTrimmedError, NoEventLogError; DisqueConnectionError if the node is lost.

            async for event in client.events_tail(idle_ms=1000):
                print(event.event, event.job_id, event.to_state)
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

    def pipeline(self) -> AsyncPipeline:
        """Return a pipeline, which collects commands and sends them together (pipeline.py).

        Each method of the pipeline returns a `Result`. The end of the block executes the commands, and raises
        BatchError if one of them failed.

            async with client.pipeline() as pipe:
                added = pipe.add_job("mail", b"...")
                length = pipe.qlen("mail")
            print(added.value, length.value)
        """
        return AsyncPipeline(self._run_many)

    async def _run_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        if self.tracing is None:
            return await self._execute_many(requests)
        requests, observation = self.tracing.many(requests)
        return await async_observed(observation, self._execute_many(requests))

    async def _execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        cover = envelope(requests)
        bulk = Bulk(
            [request.payload() for request in requests],
            [request.repeat for request in requests],
            retry_unsafe=self.options.retry_unsafe,
            getjobs=[place for place, request in enumerate(requests) if request.puts_back],
            awaiting_nodes={place for place, request in enumerate(requests) if request.awaits_nodes},
            movable={place for place, request in enumerate(requests) if request.may_move},
        )
        node = await self._run_bulk(bulk, cover)
        return read_all(requests, bulk.replies, node, self.options.decode)

    async def _run_bulk(self, bulk: Bulk, cover: Request[Any], *, is_first: bool = True) -> Address | None:
        """Send until each command is answered or must not be repeated. Return the node that was asked last.

        A refused login is raised if nothing was sent before (`is_first`). Otherwise it is the answer to what is left.
        """
        pool = self.pool
        patience = self._patience()
        limit_s = cover.limit_s(self.options.timeout)
        sending: Sending | None = None
        try:
            while True:
                try:
                    connection = pool.ready(cover) or await pool.connection(cover, patience)
                except AuthError as error:
                    if is_first and sending is None:
                        raise
                    bulk.refuse(error)
                    return None
                except NotConnectedError as error:
                    bulk.end_round((), 0, error)
                    return None
                sending = Sending(connection)
                failure = await self._send(bulk, sending, limit_s)
                if failure is not None:
                    pool.note_broken(connection, failure)
                elif cover.lane is Lane.OWN:
                    pool.give_back(connection)
                if bulk.met_full and pool.cluster.note_full(connection.address, self._now()):
                    bulk.repeat_full()
                if bulk.made_progress:
                    patience.renew()
                if bulk.refusal is not None:
                    pool.note_refusal(connection, bulk.refusal)
                if bulk.is_done or patience.is_over(self._now()):
                    return connection.address
                await asyncio.sleep(patience.pause_s())
        except asyncio.CancelledError:
            if sending is not None and (bulk.getjobs or cover.lane is Lane.OWN):
                self._do(self._abandon_bulk(bulk, sending, cover.lane), self._housekeeping)
            raise

    async def _send(self, bulk: Bulk, sending: Sending, limit_s: float | None) -> DisqueConnectionError | None:
        """Send one round over one connection, a few writes ahead of the answers."""
        connection, window, replies = sending.connection, sending.window, sending.replies
        sent_count = 0
        failure: DisqueConnectionError | None = None
        try:
            for payload, count in bulk.chunks():
                window.append(connection.submit(payload, count, limit_s))
                await connection.drain()
                if len(window) >= WINDOW:
                    replies += await asyncio.shield(window[0].future)  # Shielded: see _reply_of.
                    sent_count += window.popleft().count
            while window:
                replies += await asyncio.shield(window[0].future)
                sent_count += window.popleft().count
        except DisqueConnectionError as error:
            failure = error
            for batch in window:
                replies += batch.replies
                sent_count += batch.count if batch.is_sent else 0
        bulk.end_round(replies, sent_count, failure)
        sending.is_over = True
        return failure

    async def _abandon_bulk(self, bulk: Bulk, sending: Sending, lane: Lane) -> None:
        """Put back the jobs that the GETJOBs of a cancelled pipeline got, or still get."""
        connection = sending.connection
        if not sending.is_over:
            await self._last_words(sending.window, connection, lane)
            for batch in sending.window:
                sending.replies += batch.replies
            gone = ConnectionLostError(f"{connection.address}: abandoned", sent=True)
            bulk.end_round(sending.replies, len(sending.replies), gone)
        self._put_back([bulk.replies[place] for place in bulk.getjobs], connection.address)
