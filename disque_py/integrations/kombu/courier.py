"""A thread that fetches jobs, extends their leases, and settles them, for one connection of kombu.

kombu and Celery call from one thread, which may be busy with a task for minutes. So the courier's thread has its own
event loop and client. It waits in GETJOB, and sends WORKING (client/heartbeat.py). So leases may be short, however long
a task runs.

* A *feed* is one channel's queues. It has at most `prefetch` jobs that are not settled, so one feed that is full does
  not stop another.
* kombu takes jobs from `inbox`. After the first one the courier writes a byte into a pipe, which wakes kombu's event
  loop or a blocked `drain_events`.
* Calls of kombu's thread wait in a queue, and the loop is woken once for all of them. Acknowledgements do not wake it
  at once: they wait until there are enough of them, or kombu has nothing else to do, and for LINGER_S at most. Most
  tasks of a worker are short, so a batch of jobs costs one ACKJOB, one GETJOB and two changes of threads.
* If a feed was full, acknowledgements make room for its next GETJOB. They leave in one write with it if it goes to the
  node that delivered their jobs. If they fail, or can't go along, they are sent as a command of their own.
* Acknowledgements and NACKs that come while others are being sent are collected, and then sent together. If a node
  refuses such a command for good, each of its jobs is sent alone, because perhaps only one of them is refused.
* Public methods may be called from any thread. Everything else runs in the loop.
* In a forked child every method does nothing, because the courier belongs to the parent. So it does not matter if the
  fork leaves the courier's lock held. The lock protects the start and the end of the thread only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from disque_py.client import AsyncDisque, BadIdError, DisqueError, Job, commands
from disque_py.client.aio_connection import AsyncConnection
from disque_py.client.dialect import is_misunderstood
from disque_py.client.heartbeat import Heartbeat
from disque_py.client.protocol import Reply
from disque_py.client.request import Request
from disque_py.integrations.kombu.urls import TransportOptions
from disque_py.integrations.patience import is_outage

try:
    import uvloop
except ImportError:  # It is not there on Windows.
    uvloop = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

# Jobs of one GETJOB at most, and of a feed without a prefetch limit.
BATCH: Final = 100
FEED_MAX: Final = 1_000
# Libraries that can replace Python's threads.
GREEN_THREADS: Final = frozenset(("gevent", "eventlet"))
# The pause after an error. The client has looked for another node before.
AGAIN_S: Final = 0.5
# The back-off of a queue is for tasks that failed. A task that no consumer got goes back without a delay.
AT_ONCE: Final = timedelta(0)
# The reason of a message that its consumer rejected. Messages that no consumer got have that of client/put_back.py.
REJECTED: Final = "rejected by its consumer"
CLOSE_S: Final = 5.0
# An acknowledgement waits so long for others. A batch of short tasks ends earlier.
LINGER_S: Final = 0.005
# Any GETJOB: those of all feeds use the same connections.
GETJOB: Final = commands.get_jobs("any")
# A binding of a program that lives is written again at this interval (bindings.py).
REFRESH_S: Final = 200.0


async def _send_groups(groups: list[list[Job]], send: Callable[[list[Job]], Awaitable[object]]) -> None:
    """Send one command for each group of jobs, and take the jobs out that the nodes have answered.

    A group that a node refuses for good is sent again as commands of one job. A single job that is refused would be
    refused again, and would hold up others, so it comes again after its lease. Raises DisqueError in an outage.
    """
    while groups:
        try:
            await send(groups[0])
        except DisqueError as error:
            if is_outage(error):
                raise
            if len(groups[0]) > 1:
                groups[:1] = [[job] for job in groups[0]]
                continue
            _note_refusal(groups[0][0], error)
        groups.pop(0)


def _note_refusal(job: Job, error: DisqueError) -> None:
    _log.warning("job %s can't be settled, and comes again after its lease: %s", job.id, error)


def _commands_of(jobs: list[Job]) -> list[list[Job]]:
    """Return the jobs of each ACKJOB: one for all, and one for each job under a claim, with its fence (spec EX5)."""
    plain = [job for job in jobs if not job.fence]
    return ([plain] if plain else []) + [[job] for job in jobs if job.fence]


class Delivery(NamedTuple):
    """A job in the inbox: the feed that fetched it, and the tag by which it is settled."""

    feed: int
    tag: str
    job: Job


class Nack(NamedTuple):
    """A job that is given back; `is_final`: no attempt is left."""

    job: Job
    delay: timedelta | None
    is_final: bool


def _drop(waiting: deque[Delivery], feed: int) -> None:
    """Take the deliveries of a feed out of a queue from which another thread may take them, too."""
    for delivery in list(waiting):
        if delivery.feed == feed:
            with suppress(ValueError, IndexError):
                waiting.remove(delivery)


@dataclass(eq=False)
class Feed:
    """The queues of one channel, and its unsettled jobs by tag."""

    number: int
    queues: list[str] = field(default_factory=list)
    prefetch: int = 0
    held: dict[str, Job] = field(default_factory=dict)
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    is_waiting: bool = False

    @property
    def room(self) -> int:
        """Number of jobs that it may fetch now."""
        return (self.prefetch or FEED_MAX) - len(self.held)

    def notice_room(self) -> None:
        """Let the fetching task go on if there is room, else let it stop before its next GETJOB."""
        if len(self.held) < (self.prefetch or FEED_MAX):
            self.has_room.set()
        else:
            self.has_room.clear()


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where it is installed, because it needs a quarter less CPU.

    With gevent or eventlet, return that of asyncio: uvloop waits in C, and would stop all green threads.
    """
    if uvloop is None or not GREEN_THREADS.isdisjoint(sys.modules):
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Courier:
    """The thread of one connection. It starts with the first call that needs it."""

    def __init__(self, options: TransportOptions) -> None:
        self.inbox: deque[Delivery] = deque()
        self.wake_fd, self._wake_end = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_end, False)
        self._options = options
        self._returned: deque[Delivery] = deque()
        self._consumed: dict[int, list[str]] = {}
        self._has_given_back = False
        # Calls of other threads, in their order. If they are due, the loop executes them within LINGER_S; if it was
        # woken, immediately.
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._is_due = False
        self._is_woken = False
        self._enough = 1
        self._pid = os.getpid()
        # Reentrant: a garbage collection may close a forgotten connection at any moment.
        self._starting = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # Used in the loop only.
        self._feeds: dict[int, Feed] = {}
        self._acks: list[Job] = []
        self._nacks: list[Nack] = []
        self._look: asyncio.TimerHandle | None = None
        self._along: set[asyncio.Future[list[Reply]]] = set()
        self._refreshing: dict[object, Callable[[AsyncDisque], Coroutine[Any, Any, object]]] = {}

    # Called by kombu's thread.

    def consume(self, feed: int, queues: list[str], prefetch: int) -> None:
        """Fetch jobs of these queues for a feed from now on; none: stop fetching."""
        if queues:
            self._consumed[feed] = list(queues)
            self._enough = max(1, (prefetch or BATCH) // 2)
        else:
            self._consumed.pop(feed, None)
        self._call(self._consume, feed, list(queues), prefetch)

    def consumes(self, queue: str) -> bool:
        """Return whether a feed fetches jobs of this queue."""
        return any(queue in queues for queues in list(self._consumed.values()))

    def hold(self, feed: int, tag: str, job: Job) -> None:
        """Keep the lease of a job that was fetched by another client, until it is settled."""
        self._call(self._hold, feed, tag, job)

    def take(self, queue: str, *, aside: bool) -> Job | None:
        """Return the oldest job of a queue from the inbox, or from those that were put `aside`; None: no job.

        The caller holds the job from now on.
        """
        waiting = self._returned if aside else self.inbox
        for delivery in list(waiting):
            if delivery.job.queue == queue:
                try:
                    waiting.remove(delivery)
                except (ValueError, IndexError):  # Another thread took it.
                    continue
                self._call(self._let_go, delivery.feed, delivery.tag)
                return delivery.job
        return None

    def put_aside(self, feed: int, tag: str, job: Job) -> None:
        """Keep a delivery for the next `take` of its queue, with its lease."""
        self._returned.append(Delivery(feed, tag, job))

    def give_back(self, is_meant: Callable[[Delivery], bool]) -> None:
        """Give back the deliveries that were put aside and for which `is_meant` returns True."""
        for delivery in filter(is_meant, list(self._returned)):
            with suppress(ValueError, IndexError):
                self._returned.remove(delivery)
                self.nack(delivery.feed, delivery.tag, AT_ONCE)

    def ack(self, feed: int, tag: str) -> None:
        """Acknowledge a delivery soon, together with others. An unknown tag is ignored."""
        if not self.is_ours:
            return
        self._calls.append((self._ack, (feed, tag)))
        if not self._is_due:
            self._is_due = True
            self._wake(self._linger)

    def turn(self) -> None:
        """Send acknowledgements now if there are enough for a good batch. Called in each turn of kombu's loop."""
        if len(self._calls) >= self._enough:
            self.send_now()

    def send_now(self) -> None:
        """Send acknowledgements now: the caller has nothing else to do."""
        if self._calls and not self._is_woken and self.is_ours:
            self._is_woken = True
            self._wake(self._work)

    def nack(self, feed: int, tag: str, delay: timedelta | None = None, *, final: bool = False) -> None:
        """Give a delivery back soon: after a delay, or never to be delivered again. An unknown tag is ignored."""
        self._has_given_back = True
        self._call(self._nack, feed, tag, delay, final)

    def nack_all(self, feed: int) -> None:
        """Give all deliveries of a feed back soon."""
        _drop(self._returned, feed)
        _drop(self.inbox, feed)
        if self._thread is not None:  # A program that only publishes has none.
            self._has_given_back = True
            self._call(self._nack_all, feed)

    def flush(self) -> None:
        """Wait until the nodes know what was given back before. It takes CLOSE_S at most."""
        loop = self._loop
        if self._has_given_back and self.is_ours and loop is not None:
            self._has_given_back = False
            done = asyncio.run_coroutine_threadsafe(self._flush(), loop)
            with suppress(FutureTimeoutError, DisqueError):
                done.result(CLOSE_S)

    def refresh(self, key: object, work: Callable[[AsyncDisque], Coroutine[Any, Any, object]] | None) -> None:
        """Do this work every REFRESH_S from now on; None: no longer."""
        if work is not None or self._thread is not None:
            self._call(self._refresh, key, work)

    def drain_wake(self) -> None:
        """Forget the bytes that woke the reader. Call it before the inbox is read."""
        with suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)

    @property
    def is_ours(self) -> bool:
        """Whether this process made the courier, and it is not closed."""
        return not self._is_closed and self._pid == os.getpid()

    def close(self) -> None:
        """Give back the jobs that kombu has not got, send acknowledgements, and end the thread.

        Each of these waits takes CLOSE_S at most. In the courier's own thread there is no wait.
        """
        if not self.is_ours:
            return
        with self._starting:
            if self._is_closed:
                return
            self._is_closed = True
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            self._close_pipe()
            return
        finish = asyncio.run_coroutine_threadsafe(self._finish(), loop)
        if thread is threading.current_thread():  # A garbage collection there found the connection forgotten.
            finish.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
            return
        with suppress(FutureTimeoutError, DisqueError):
            finish.result(CLOSE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)

    def _close_pipe(self) -> None:
        os.close(self.wake_fd)
        os.close(self._wake_end)

    def _call(self, function: Callable[..., object], *words: object) -> None:
        if self.is_ours:
            self._calls.append((function, words))
            self.send_now()

    def _wake(self, function: Callable[[], object]) -> None:
        loop = self._loop or self._start()
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:  # Another thread has closed the courier, and with it the loop.
            if not self._is_closed:
                raise

    def _start(self) -> asyncio.AbstractEventLoop | None:
        """Start the thread, unless another thread has just done so, or has closed the courier. Return its loop."""
        with self._starting:
            if self._loop is not None or self._is_closed:
                return self._loop
            started = threading.Event()
            loop = self._loop = new_loop()
            self._thread = threading.Thread(target=self._run, args=(loop, started), name="disque-courier", daemon=True)
            self._thread.start()
        started.wait()
        return loop

    # In the thread.

    def _run(self, loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        lease_s = self._options.lease.total_seconds()
        self._client = AsyncDisque(*self._options.nodes, **self._options.settings)
        self._has_settled = asyncio.Event()
        self._settling = asyncio.Lock()
        self._heartbeat = Heartbeat(self._client, lease_s / 2.5, self._on_lost, lease=self._options.lease)
        tasks = [
            loop.create_task(work)
            for work in (self._heartbeat.beat_for_ever(), self._settle_for_ever(), self._refresh_for_ever())
        ]
        loop.call_soon(started.set)
        try:
            loop.run_forever()
        finally:
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()
            self._close_pipe()  # Not before: this thread writes to it, and its number may become another file's.

    def _linger(self) -> None:
        """Execute the calls after LINGER_S."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LINGER_S, self._work)

    def _work(self) -> None:
        """Execute the calls of other threads. One that comes from now on wakes the loop again."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._is_due = self._is_woken = False
        calls = self._calls
        while calls:
            function, words = calls.popleft()
            function(*words)
        if self._nacks or (self._acks and not self._is_about_to_fetch()):
            self._has_settled.set()

    def _is_about_to_fetch(self) -> bool:
        """Return whether a GETJOB leaves in this turn of the loop, and takes the acknowledgements along."""
        is_ready = any(feed.is_waiting and feed.has_room.is_set() for feed in self._feeds.values())
        return is_ready and self._client.pool.has_idle(GETJOB)

    def _on_lost(self, job: Job, error: DisqueError) -> None:
        _log.warning("the lease of job %s of queue %s can't be extended any more: %s", job.id, job.queue, error)

    def _feed(self, number: int) -> Feed:
        return self._feeds.setdefault(number, Feed(number))

    def _consume(self, number: int, queues: list[str], prefetch: int) -> None:
        feed = self._feed(number)
        feed.prefetch = prefetch
        feed.notice_room()
        if queues == feed.queues:
            return
        feed.queues = queues
        if feed.task is not None:
            feed.task.cancel()  # A cancelled GETJOB puts back the jobs in flight.
            feed.is_waiting = False
            self._has_settled.set()  # It may have been about to take acknowledgements along.
        feed.task = asyncio.get_running_loop().create_task(self._fetch_for_ever(feed)) if queues else None
        self._forget_unused(feed)

    def _forget_unused(self, feed: Feed) -> None:
        if not feed.queues and not feed.held:
            self._feeds.pop(feed.number, None)

    async def _fetch_for_ever(self, feed: Feed) -> None:
        queues = list(feed.queues)
        requests: dict[tuple[str, int], Request[list[Job]]] = {}
        is_told = False
        while True:
            feed.is_waiting = True
            await feed.has_room.wait()
            feed.is_waiting = False
            count = min(feed.room, BATCH)
            if count < 1:
                self._has_settled.set()
                continue
            # Most GETJOBs of a feed are equal, and sending one does not change it.
            request = requests.get((queues[0], count))
            if request is None:
                request = requests[queues[0], count] = self._fetching(queues, count)
            try:
                jobs = await self._client.run(request)
            except DisqueError as error:
                if not is_told:
                    _log.warning("no jobs can be fetched: %s", error)
                is_told = True
                self._has_settled.set()
                await asyncio.sleep(AGAIN_S)
                continue
            is_told = False
            if len(queues) > 1:
                queues.append(queues.pop(0))  # The first queue is served first, so each has its turn.
            if jobs:
                self._deliver(feed, jobs)

    def _fetching(self, queues: list[str], count: int) -> Request[list[Job]]:
        lease = self._options.lease
        request = commands.get_jobs(*queues, count=count, withcounters=True, withlease=True, lease=lease)
        request.along = self._send_along
        return request

    def _send_along(self, connection: AsyncConnection) -> None:
        """Send the acknowledgements with a GETJOB."""
        jobs = self._acks
        if not jobs:
            return
        # A job under a claim needs its own ACKJOB, which names the claim.
        fits = all(job.node == connection.address and not job.fence for job in jobs)
        if not fits or self._client.tracing is not None or connection.is_closed:
            self._has_settled.set()
            return
        sent = connection.submit(commands.ack(*jobs).payload(), 1, self._client.options.timeout).future
        self._acks = []
        self._along.add(sent)
        sent.add_done_callback(partial(self._was_sent_along, jobs))

    def _was_sent_along(self, jobs: list[Job], sent: asyncio.Future[list[Reply]]) -> None:
        self._along.discard(sent)
        if sent.cancelled() or sent.exception() is not None or isinstance(sent.result()[0], Exception):
            self._acks += jobs
            self._has_settled.set()

    def _deliver(self, feed: Feed, jobs: list[Job]) -> None:
        now = asyncio.get_running_loop().time()
        for job in jobs:
            tag = f"{job.id}.{job.attempt or 0}"
            feed.held[tag] = job
            self._heartbeat.started(job, now)
            self.inbox.append(Delivery(feed.number, tag, job))
        feed.notice_room()
        if not self._is_due:  # So the acknowledgements of these jobs need not wake this thread.
            self._is_due = True
            self._linger()
        with suppress(BlockingIOError):
            os.write(self._wake_end, b"x")

    def _hold(self, number: int, tag: str, job: Job) -> None:
        feed = self._feed(number)
        feed.held[tag] = job
        self._heartbeat.started(job, asyncio.get_running_loop().time())
        feed.notice_room()

    def _let_go(self, number: int, tag: str) -> Job | None:
        feed = self._feeds.get(number)
        job = feed.held.pop(tag, None) if feed is not None else None
        if feed is not None and job is not None:
            self._heartbeat.ended(job)
            feed.notice_room()
            self._forget_unused(feed)
        return job

    def _ack(self, number: int, tag: str) -> None:
        job = self._let_go(number, tag)
        if job is not None:
            self._acks.append(job)

    def _nack(self, number: int, tag: str, delay: timedelta | None, final: bool) -> None:
        job = self._let_go(number, tag)
        if job is not None:
            self._nacks.append(Nack(job, delay, final))

    def _nack_all(self, number: int) -> None:
        feed = self._feeds.get(number)
        for tag in list(feed.held) if feed is not None else ():
            self._nack(number, tag, AT_ONCE, final=False)
        _drop(self.inbox, number)  # More of them may have come since the call.

    async def _settle_for_ever(self) -> None:
        while True:
            await self._has_settled.wait()
            self._has_settled.clear()
            try:
                await self._settle()
            except DisqueError as error:
                _log.warning("acknowledgements are delayed: %s", error)
                await asyncio.sleep(AGAIN_S)
                self._has_settled.set()

    async def _flush(self) -> None:
        self._work()
        await self._settle()

    async def _settle(self) -> None:
        """Send all acknowledgements and NACKs. Those that were not sent are kept. Raises DisqueError."""
        async with self._settling:
            acks, self._acks = _commands_of(self._acks), []
            unread = [nack.job for nack in self._nacks if nack.delay == AT_ONCE]
            puts_back = [unread] if unread else []
            nacks, self._nacks = [nack for nack in self._nacks if nack.delay != AT_ONCE], []
            try:
                await _send_groups(acks, self._client.ack_jobs)
                # A NACK names its attempt, so it may be sent again.
                await _send_groups(puts_back, self._client.put_back)
                while nacks:
                    try:
                        await self._reject(nacks[0])
                    except DisqueError as error:
                        if is_outage(error):
                            raise
                        _note_refusal(nacks[0].job, error)
                    nacks.pop(0)
            finally:
                self._acks += [job for jobs in acks for job in jobs]
                self._nacks += [Nack(job, AT_ONCE, is_final=False) for jobs in puts_back for job in jobs] + nacks

    async def _reject(self, nack: Nack) -> None:
        """Give a rejected message back.

        A node that does not know NACK's options queues the message without a delay. It can't end its attempts.
        """
        job, delay, is_final = nack
        try:
            await self._client.nack(job, delay=delay, reason=REJECTED, final=is_final, attempt=job.attempt)
        except DisqueError as error:
            if is_final or not (isinstance(error, BadIdError) or is_misunderstood(error)):
                raise
            await self._client.nack(job)

    def _refresh(self, key: object, work: Callable[[AsyncDisque], Coroutine[Any, Any, object]] | None) -> None:
        self._refreshing.pop(key, None)
        if work is not None:
            self._refreshing[key] = work

    async def _refresh_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            for work in list(self._refreshing.values()):
                try:
                    await work(self._client)
                except DisqueError as error:
                    _log.warning("a binding can't be refreshed: %s", error)

    async def _finish(self) -> None:
        self._work()
        tasks = [feed.task for feed in self._feeds.values() if feed.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._along:
            await asyncio.wait(self._along)
        while self.inbox:
            delivery = self.inbox.popleft()
            self._nack(delivery.feed, delivery.tag, AT_ONCE, final=False)
        with suppress(DisqueError):
            await self._settle()
        await self._client.close()
