"""Disque: the blocking client, for programs with threads or without.

It has the same commands as aio.py, and the same rules for repeating commands and choosing nodes. Any number of threads
may share one client. Each running command has its own connection.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakSet

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.bulk import Bulk
from disque_py.client.errors import AuthError, DisqueConnectionError, DisqueError, NotConnectedError
from disque_py.client.events import COUNT, TAIL_BLOCK_MS, Event
from disque_py.client.faces import BlockingCommands, Jobs
from disque_py.client.feed import FeedWatch
from disque_py.client.lock import Lock, LockClients, Runner, SharedRunner
from disque_py.client.lock_lease import LEASE_S, lock_terms
from disque_py.client.options import ClientSettings, make_options, settings_of, settings_of_url
from disque_py.client.pipeline import Pipeline, envelope, read_all
from disque_py.client.pool import Pool
from disque_py.client.protocol import Reply
from disque_py.client.put_back import PutBack, Step
from disque_py.client.request import Request
from disque_py.client.results import Job
from disque_py.client.retry import Patience, is_full, is_refused_for_now, may_repeat
from disque_py.client.scans import Scan
from disque_py.client.socket_connection import SocketConnection
from disque_py.client.spans import Milliseconds, Span, milliseconds
from disque_py.client.templates import Adding
from disque_py.client.tracing import Tracing, observed
from disque_py.client.waiting import EARLY_S

T = TypeVar("T")

# See aio.SLICE_MS.
SLICE_MS: Final = 30_000


class Disque(BlockingCommands):
    """A client of a cluster.

    Connections are made when they are needed. `with` and `connect()` make the first one immediately.

    tracing   a tracing library that sees every command (tracing.py); None, the default: none

        with Disque("10.0.0.1:7711", "10.0.0.2:7711", password="secret") as client:
            client.add_job("mail", b"Dear Ada, ...", retry=60)
            for job in client.get_jobs("mail", count=10, timeout_ms=1000):
                print(job.body)
                client.ack(job)
    """

    tracing: Tracing | None = None

    def __init__(self, *nodes: str | Address, **settings: Unpack[ClientSettings]) -> None:
        """`Disque("10.0.0.1:7711", "10.0.0.2:7711", password=…)`.

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
        pool_size         number of connections in use at a time, not counting GETJOBs that wait; 8 by default
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
        self._pool = Pool(self.options, self._rng)
        self._feed = FeedWatch()
        self._streams: WeakSet[Jobs] = WeakSet()
        self._put_back_rules = PutBack()
        self._lock_clients: LockClients[Runner] = LockClients()

    @classmethod
    def from_url(cls, url: str, **settings: Unpack[ClientSettings]) -> Self:
        """Return a client of the cluster at `disque://[[user]:password@]host:port,…/?option=value`.

        url        disque:// or redis://, disques:// or rediss:// for TLS, unix:// for a socket
        settings   as for the client itself; they take precedence over those of the URL

        Raises ValueError for an invalid URL or an unknown option in it, TypeError for an unknown setting.

            client = Disque.from_url("disques://:secret@10.0.0.1,10.0.0.2:7712/?timeout=2", decode="utf-8")
        """
        nodes, found = settings_of_url(url)
        return cls(*nodes, **(found | settings))

    @property
    def node(self) -> Address | None:
        """The node that commands go to now."""
        return self._pool.cluster.home

    @property
    def consumer_node(self) -> Address | None:
        """The node that this client's consumers use now."""
        return self._pool.cluster.consumer_home

    def connect(self) -> Self:
        """Connect to a node → this client. Raises NotConnectedError, AuthError."""
        self.scanned_node()
        return self

    def close(self) -> None:
        """Close all connections. Threads that wait on one get ConnectionLostError.

        Before that, iterators over jobs put back the jobs that they have fetched but not handed out. In a forked child
        they leave the parent's jobs alone.
        """
        for stream in list(self._streams):
            with suppress(ValueError):  # Another thread runs it, and gets ClientClosedError soon.
                stream.close()
        for client in self._lock_clients.end():
            client.close()
        self._pool.close()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # One command.

    def run(self, request: Request[T]) -> T:
        """Execute one command, on another node if need be. Raises the errors of that command (errors.py)."""
        if self.tracing is None:
            return self._run(request)
        request, observation = self.tracing.one(request)
        return observed(observation, lambda: self._run(request))

    def _patience(self, request: Request[Any]) -> Patience:
        return Patience(self.options.patience if request.patience_s is None else request.patience_s, self._rng)

    def _run(self, request: Request[T]) -> T:
        # Nearly all commands need no patience and find an idle connection, so this way has few calls.
        pool = self._pool
        patience: Patience | None = None
        slice_end = 0.0
        until = time.monotonic() + request.wait_ms / 1000 if request.wait_word is not None and request.wait_ms else None
        while True:
            connection = pool.take_idle(request)
            if connection is None:
                patience = patience or self._patience(request)
                connection = pool.take(request, patience)
            try:  # It covers nearly every use of the connection, because an interrupt must give it back.
                if request.wait_word is None:
                    payload, limit_s = request.payload(), request.limit_s(self.options.timeout)
                else:
                    payload, limit_s, slice_end = self._slice(request, until)
                reply = connection.ask(payload, limit_s)
                pool.give_back(connection)
            except DisqueConnectionError as error:
                connection.is_abandoned = True
                pool.note_broken(connection, error)
                patience = patience or self._patience(request)
                if request.is_pinned or patience.is_over(time.monotonic()):
                    raise
                if not may_repeat(error, request.repeat, retry_unsafe=self.options.retry_unsafe):
                    raise
            except BaseException as error:  # An interrupt leaves a half-read reply behind.
                connection.is_abandoned = True
                pool.note_broken(connection, error)
                raise
            else:
                if not isinstance(reply, Exception) or not self._is_refused_for_now(reply, request, connection):
                    patience = None
                    if request.wait_word is not None and (reply is None or request.goes_on is not None):
                        now = time.monotonic()
                        if (until is None or now < until) and request.waits_on(reply, now, slice_end):
                            continue
                    value = request.value(reply, connection.address, self.options.decode)
                    if request.wait_word is not None and request.takes_jobs and self.options.follow:
                        self._watch_feed([value] if isinstance(value, Job) else value, connection)
                    return value
                pool.note_refusal(connection.address, reply)
                patience = patience or self._patience(request)
                if patience.is_over(time.monotonic()):
                    raise reply
            time.sleep(patience.pause_s())

    def _is_refused_for_now(self, reply: Reply, request: Request[Any], connection: SocketConnection) -> bool:
        if request.is_pinned:
            return False
        if is_full(reply):
            return request.may_move and self._pool.note_full(connection.address)
        return is_refused_for_now(reply, awaits_nodes=request.awaits_nodes, awaits_voters=request.awaits_voters)

    def _slice(self, request: Request[Any], until: float | None) -> tuple[bytes, float, float]:
        """Return the bytes of a waiting command's next slice, and two times.

        The first is the number of seconds of silence that mean a dead node. An answer after the second, a moment, is
        taken for the end of the slice.
        """
        now = time.monotonic()
        left_ms = SLICE_MS if until is None else max(1, math.ceil((until - now) * 1000))
        wait_ms = min(left_ms, SLICE_MS)
        wait_s = wait_ms / 1000
        return request.payload_waiting(wait_ms), wait_s + self.options.timeout, now + wait_s - EARLY_S

    def _watch_feed(self, found: object, connection: SocketConnection) -> None:
        """Let the client's consumers follow the jobs of a GETJOB to the node that makes them."""
        if isinstance(found, list):
            now = time.monotonic()
            cluster = self._pool.cluster
            with self._pool.lock:
                prefix = self._feed.count_jobs([job.id for job in found], cluster.prefix_of(connection.address), now)
                address = cluster.node_with_prefix(prefix, now) if prefix else None
                if address is not None:
                    self._feed.moved(now)
                    cluster.move_consumers(address)

    def lock(
        self,
        name: str | bytes,
        *,
        lease: Span = LEASE_S,
        attempts: int | None = None,
        timeout: Span | None = None,
        owner: str | bytes | None = None,
        on_lost: Callable[[Lock], object] | None = None,
    ) -> Lock:
        """Return a lock of this name, for use in a `with` block. At most one owner in the cluster has it at a time.

        name       name of the lock
        lease      seconds after which the lock ends if this program stops; 30 by default. It is extended in the
                   background while the lock is held
        attempts   how often the lock may be acquired, by all owners together, until the work is done; None, the
                   default: any number of times
        timeout    seconds to wait while another owner has the lock, 0: don't wait; None, the default: wait for ever
        owner      name of the owner; by default one that no other lock object has. Two objects with the same owner
                   share the lock
        on_lost    called with the lock when it is lost, in another thread; None by default

        Each thread or task needs its own object. Raises ValueError or TypeError for an invalid number. Acquiring the
        lock raises LockHeldError, LockDoneError, LockSpentError, NoQuorumError and the errors of every command. Leaving
        the block raises LockLostError if the lock was lost.

            with client.lock("nightly", lease=30, timeout=60) as lock:
                write_report(fence=lock.fence)
        """
        terms = lock_terms(name, lease, attempts, timeout)
        options = terms.options(self.options)

        def connect() -> SharedRunner:
            key = options.connect_timeout
            make = lambda: Disque(*options.seeds, **settings_of(options))  # noqa: E731
            return SharedRunner(self._lock_clients, key, make, lambda: self.node is not None)

        return Lock(terms, owner, on_lost, connect)

    # Many jobs.

    def iterate(self, request: Request[list[Job]]) -> Jobs:
        """Return an iterator over jobs, which repeats this GETJOB (`jobs`)."""
        stream = self._iterate(request)
        self._streams.add(stream)
        return stream

    def _iterate(self, request: Request[list[Job]]) -> Jobs:
        while batch := self.run(request):
            found = deque(batch)
            pid = os.getpid()
            try:
                while found and pid == os.getpid():  # In a forked child these jobs are still the parent's.
                    yield found.popleft()
            finally:
                # The loop was left, perhaps because the node is gone. So there is one attempt; RETRY does the rest.
                if found and pid == os.getpid():
                    with suppress(DisqueError):
                        self._put_back(found, 0.0)

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Put back jobs that were fetched and will not be handled.

        jobs   jobs that were fetched

        The jobs are queued again without a delay, whatever their back-off is, and with a reason. Each of them loses one
        attempt. Nodes that support only plain NACKs get those. Raises the errors of every command.
        """
        self._put_back(jobs, self.options.patience)

    def _put_back(self, jobs: Iterable[Job], limit_s: float) -> None:
        trouble: DisqueError | None = None
        for steps in self._put_back_rules.steps(jobs).values():
            try:
                for step in steps:
                    self._take_step(step, limit_s)
            except DisqueError as error:
                trouble = error  # The other nodes get theirs.
        if trouble is not None:
            raise trouble

    def _take_step(self, step: Step, limit_s: float) -> None:
        step[0].patience_s = limit_s
        try:
            self._run(step[0])
        except DisqueError as error:
            plain = self._put_back_rules.plain_after(step, error)
            if plain is None:
                raise
            plain[0].patience_s = limit_s
            self._run(plain[0])

    def run_adding(self, adding: Adding) -> list[str]:
        """Execute the ADDJOBs of `add_jobs`. Raises BatchError."""
        if self.tracing is None:
            return self._add_all(adding)
        return observed(self.tracing.adding(adding), lambda: self._add_all(adding))

    def _add_all(self, adding: Adding) -> list[str]:
        template = adding.template
        replies: list[Reply] = []
        for bulk in adding.bulks(retry_unsafe=self.options.retry_unsafe):
            self._run_bulk(bulk, template.request, is_first=not replies)
            replies += bulk.replies
            if not bulk.is_done:  # The patience of the whole call is over, so the rest is not tried.
                replies += adding.unsent(bulk)
                break
        return template.ids(replies)

    def pipeline(self) -> Pipeline:
        """Return a pipeline, which collects commands and sends them together (pipeline.py).

        Each method of the pipeline returns a `Result`. The end of the block executes the commands, and raises
        BatchError if one of them failed.

            with client.pipeline() as pipe:
                added = pipe.add_job("mail", b"...")
                length = pipe.qlen("mail")
            print(added.value, length.value)
        """
        return Pipeline(self._run_many)

    def _run_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        if self.tracing is None:
            return self._execute_many(requests)
        requests, observation = self.tracing.many(requests)
        return observed(observation, lambda: self._execute_many(requests))

    def _execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        bulk = Bulk(
            [request.payload() for request in requests],
            [request.repeat for request in requests],
            retry_unsafe=self.options.retry_unsafe,
            awaiting_nodes={place for place, request in enumerate(requests) if request.awaits_nodes},
            movable={place for place, request in enumerate(requests) if request.may_move},
        )
        node = self._run_bulk(bulk, envelope(requests))
        return read_all(requests, bulk.replies, node, self.options.decode)

    def _run_bulk(self, bulk: Bulk, cover: Request[Any], *, is_first: bool = True) -> Address | None:
        """Send until each command is answered or must not be repeated. Return the node that was asked last.

        A refused login is raised if nothing was sent before (`is_first`). Otherwise it is the answer to what is left.
        """
        pool = self._pool
        patience = Patience(self.options.patience, self._rng)
        limit_s = cover.limit_s(self.options.timeout)
        while True:
            try:
                connection = pool.take(cover, patience)
            except AuthError as error:
                if is_first:
                    raise
                bulk.refuse(error)
                return None
            except NotConnectedError as error:
                bulk.end_round((), 0, error)
                return None
            is_first = False
            replies: list[Reply] = []
            failure: DisqueConnectionError | None = None
            try:
                connection.exchange(bulk.chunks(), limit_s, replies)
                pool.give_back(connection)
            except DisqueConnectionError as error:
                failure = error
                connection.is_abandoned = True
                pool.note_broken(connection, error)
            except BaseException as error:  # An interrupt leaves half-read replies behind.
                connection.is_abandoned = True
                pool.note_broken(connection, error)
                raise
            bulk.end_round(replies, connection.sent_count, failure)
            if bulk.met_full and pool.note_full(connection.address):
                bulk.repeat_full()
            if bulk.made_progress:
                patience.renew()
            if bulk.refusal is not None:
                pool.note_refusal(connection.address, bulk.refusal)
            if bulk.is_done or patience.is_over(time.monotonic()):
                return connection.address
            time.sleep(patience.pause_s())

    # Iterators: a scan belongs to one node, whose cursors mean nothing elsewhere (scans.py).

    def scanned_node(self) -> Address:
        """Return the node that a scan lists: the one that commands go to. Raises NotConnectedError."""
        patience = Patience(self.options.patience, self._rng)
        connection = self._pool.take(commands.ping(), patience)
        self._pool.give_back(connection)
        return connection.address

    def scan(self, page: Scan[T]) -> Iterator[T]:
        """Iterate over all pages of a scan. Raises DisqueConnectionError if its node is lost."""
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

    def events_tail(
        self,
        log: str = "",
        seq: int = 0,
        *,
        node: Address | None = None,
        count: int = COUNT,
        reader: str = "",
        idle_ms: Milliseconds = 0,
    ) -> Iterator[Event]:
        """Iterate over one node's events as they become readable.

        log       the log's id; by default the node's current log, from now on
        seq       the number of the first event, 0 by default; ignored without a log
        node      the node whose log it is; by default the one that commands go to
        count     the most events that one command reads, 10000 by default
        reader    a name under which INFO shows how many events this reader is behind; none by default
        idle_ms   milliseconds without an event after which the iterator ends; 0, the default: never

        Raises EventsTrimmedError, NoEventLogError; DisqueConnectionError if the node is lost.

            for event in client.events_tail(idle_ms=1000):
                print(event.event, event.job_id, event.to_state)
        """
        idle = milliseconds("idle_ms", idle_ms)
        node = node or self.scanned_node()
        if not log:
            info = self.events_info(node=node)
            log, seq = info.log, info.next
        while True:
            part = self.events_read(log, seq, count=count, block_ms=idle or TAIL_BLOCK_MS, reader=reader, node=node)
            yield from part.events()
            if idle and part.next == seq:
                return
            seq = part.next
