"""Locks for programs: `Lock` for threads, `AsyncLock` for asyncio. Spec CL8, CL9.

    with client.lock("nightly", lease=30, attempts=3, timeout=60) as lock:
        report(fence=lock.fence)
        lock.done(3600)

A lock object takes its lock, extends the lease in the background, and gives the lock back. The locks of a client share
a second one (LockClients), so a busy pool does not delay an extension. If its node fails, it uses another one. If an
extension is refused, or the lease ends by this machine's clock, the lock is *lost*: `lost` is set, and `on_lost` is
called. The object can't stop the work. So the work should check `lost`, or pass the fence to the storage that it writes
to.

The rules of leases are in lock_lease.py; this module adds the clock, the thread and the task. Both kinds of locks share
one conversation with the nodes (`_LockState.acquire_steps`). It is a generator of requests, and each kind of lock sends
them in its own way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast

from disque_py.client import lock_commands as commands
from disque_py.client.errors import DisqueError, FencedError, LockHeldError, LockLostError
from disque_py.client.lock_lease import LockLease, LockTerms, OwnerName
from disque_py.client.protocol import Reply
from disque_py.client.request import Request
from disque_py.client.results import LockGrant, lock_grant
from disque_py.client.spans import Span, float_seconds

T = TypeVar("T")
C = TypeVar("C")
# Yields requests, gets the replies or the errors, and returns the lease.
Taking = Generator[Request[Any], Any, LockLease]

_log = logging.getLogger(__name__)

NOT_HELD: Final = "the lock was not acquired, or was given back"
IN_USE: Final = "this lock object is in use; each thread or task needs its own object"
# The seconds for which a cancelled request for a lock looks whether it was granted.
LOOK_S: Final = 1.0
# A program that waits for the lock asks a node for this long, and then asks again. If the program dies, the node stops
# waiting for the lock in its name after this time.
WAIT_S: Final = 5.0
# The message that ends the thread which extends a lease.
STOP: Final = None


def now() -> float:
    """Return the seconds of a clock that goes on while the machine sleeps, if the system has one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _new_owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


class _Flag(Protocol):
    """An event, of threads or of asyncio."""

    def set(self) -> None:
        """Wake all that wait."""


class _LockState:
    """The part that both kinds of locks share: the owner's name, the current lease, and the requests to the nodes."""

    def __init__(self, terms: LockTerms, owner: str | bytes | None) -> None:
        self.terms = terms
        self.owner = OwnerName(owner, _new_owner)
        self.lease: LockLease | None = None
        self.last: LockLease | None = None
        self.late: LockGrant | None = None
        self.pid = 0

    def begin(self, lease: LockLease) -> None:
        self.lease = self.last = lease
        self.pid = os.getpid()

    def current(self) -> LockLease:
        """Return the lease of this process. Raises RuntimeError without one."""
        if self.lease is None or self.pid != os.getpid():
            raise RuntimeError(NOT_HELD)
        return self.lease

    def latest(self) -> LockLease:
        """Return the current lease, or the last one. Raises RuntimeError without one."""
        if self.last is None:
            raise RuntimeError(NOT_HELD)
        return self.last

    def is_held(self) -> bool:
        lease = self.lease
        return lease is not None and self.pid == os.getpid() and lease.is_running(now())

    def name(self) -> str | bytes:
        return self.owner.in_process(os.getpid())

    def acquire_steps(self) -> Taking:
        """Ask for the lock until its lease runs. Raises LockHeldError, LockLostError."""
        terms, owner = self.terms, self.name()
        deadline = None if terms.wait_s is None else now() + terms.wait_s
        while True:
            asked_at = now()
            wait_s = WAIT_S if deadline is None else min(WAIT_S, deadline - asked_at)
            self.late = None
            grant = yield replace(terms.acquire(owner, wait_s), late=self._note_late)
            if grant is None:
                if deadline is not None and now() >= deadline:
                    raise self.held_error()
                continue
            lease = LockLease(grant, terms.lease_s, asked_at)
            if now() < lease.next_at:
                return lease
            # The request waited, so most of the lease may be over by the clock of this machine.
            asked_at = now()
            try:
                yield terms.extend(owner, grant)
            except FencedError:
                continue
            lease.extended(asked_at)
            if lease.is_running(now()):
                return lease
            raise self.lost_error()

    def _note_late(self, reply: Reply) -> None:
        """Note the answer to a request for the lock that was cancelled."""
        self.late = lock_grant(reply) if isinstance(reply, list) else None

    def extend_request(self, lease: LockLease) -> Request[int]:
        """Return the request for another lease."""
        return self.terms.extend(self.name(), lease.grant)

    def release_request(self, lease: LockLease, done: Span | None = None) -> Request[bool]:
        """Return the request that gives the lock back; `done`: for how long the end of the work is remembered."""
        done_s = None if done is None else float_seconds("seconds", done)
        return self.terms.release(self.name(), lease.grant, done_s)

    def note_lost(self, lease: LockLease, error: Exception | None, lost: _Flag) -> None:
        """Note that the lock is lost, set `lost`, and log it."""
        lease.is_lost = True
        cause = "" if error is None else str(error)  # A request that took too long has no text.
        _log.warning("%s", f"{self.lost_error()} ({cause})" if cause else self.lost_error())
        if self.last is lease:  # This object was not used again meanwhile.
            lost.set()

    def lost_error(self) -> LockLostError:
        name = self.terms.name
        shown = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
        return LockLostError(f"the lock {shown!r} is lost: its lease ended, or another owner has it")

    def held_error(self) -> LockHeldError:
        name = self.terms.name
        shown = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
        return LockHeldError(f"another owner has the lock {shown!r}")


class _Facts:
    """The properties of a lock."""

    def __init__(self, terms: LockTerms, owner: str | bytes | None) -> None:
        self._state = _LockState(terms, owner)

    @property
    def name(self) -> str | bytes:
        """The name of the lock."""
        return self._state.terms.name

    @property
    def owner(self) -> str | bytes:
        """The name of this object as an owner: as given, or made from host, process and a random number.

        After a release without an answer it is another one.
        """
        return self._state.name()

    @property
    def fence(self) -> int:
        """A number above the fence of each earlier owner. Raises RuntimeError if the lock was never acquired."""
        return self._state.latest().grant.fence

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. Raises RuntimeError if the lock was never acquired."""
        return self._state.latest().grant.attempt

    @property
    def attempts_left(self) -> int | None:
        """The attempts after this one; None without a limit. Raises RuntimeError if the lock was never acquired."""
        return self._state.latest().grant.attempts_left

    @property
    def is_last_attempt(self) -> bool:
        """Whether no attempt is left after this one. Raises RuntimeError if the lock was never acquired."""
        return self.attempts_left == 0

    @property
    def is_held(self) -> bool:
        """Whether the lock is held at this moment, by this machine's clock."""
        return self._state.is_held()

    @property
    def left_s(self) -> float:
        """The seconds that the lease still lasts without another extension; 0.0 if the lock is not held."""
        lease = self._state.lease
        return max(0.0, lease.until - now()) if lease is not None and self._state.is_held() else 0.0

    def check(self) -> None:
        """Return if the lock is held at this moment. Raises LockLostError."""
        if not self._state.is_held():
            raise self._state.lost_error()


class Runner(Protocol):
    """The client that serves a lock."""

    def run(self, request: Request[T]) -> T:
        """Execute one command."""

    def close(self) -> None:
        """Close its connections."""


class AsyncRunner(Protocol):
    """The client that serves a lock, for asyncio."""

    async def run(self, request: Request[T]) -> T:
        """Execute one command."""

    async def close(self) -> None:
        """Close its connections."""


class LockClients(Generic[C]):
    """The clients that serve the locks of one client. Locks with the same time limit for connecting share one.

    After a fork the child makes its own ones, and so does each event loop. While the program's client is connected, a
    client of locks stays open for the next lock, until `end`. Otherwise the last lock closes it, because a program that
    uses only locks need not close its client.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._uses: dict[Hashable, tuple[C, int]] = {}
        self._is_ended = False

    def take(self, key: Hashable, make: Callable[[], C]) -> C:
        """Return the client of this key for one more lock, which calls `leave`."""
        if self._pid != os.getpid():  # Another thread may have had the guard at the moment of the fork.
            self._pid, self._guard, self._uses = os.getpid(), threading.Lock(), {}
        with self._guard:
            client, count = self._uses.get(key) or (make(), 0)
            self._uses[key] = client, count + 1
            return client

    def leave(self, key: Hashable, client: C, *, keep: bool) -> bool:
        """Note that a lock does not use its client any more. Return whether the caller has to close it.

        keep   whether the program's client is connected
        """
        with self._guard:
            known, count = self._uses.get(key, (None, 0))
            if known is not client:  # The client is that of a parent process.
                return True
            is_over = count == 1 and (self._is_ended or not keep)
            if is_over:
                del self._uses[key]
            else:
                self._uses[key] = client, count - 1
            return is_over

    def end(self) -> list[C]:
        """Return the clients that no lock uses. The caller has to close them."""
        if self._pid != os.getpid():
            return []
        with self._guard:
            self._is_ended = True
            idle = [key for key, (_, count) in self._uses.items() if not count]
            return [self._uses.pop(key)[0] for key in idle]


class SharedRunner:
    """The use of a shared client by one lock. `is_kept` returns whether the program's client is connected."""

    def __init__(
        self, clients: LockClients[Runner], key: Hashable, make: Callable[[], Runner], is_kept: Callable[[], bool]
    ) -> None:
        self._clients, self._key, self._is_kept = clients, key, is_kept
        self._client = clients.take(key, make)

    def run(self, request: Request[T]) -> T:
        """Execute one command."""
        return self._client.run(request)

    def close(self) -> None:
        """End the use."""
        if self._clients.leave(self._key, self._client, keep=self._is_kept()):
            self._client.close()


class SharedAsyncRunner:
    """The use of a shared client by one lock, for asyncio. `is_kept` as for threads."""

    def __init__(
        self,
        clients: LockClients[AsyncRunner],
        key: Hashable,
        make: Callable[[], AsyncRunner],
        is_kept: Callable[[], bool],
    ) -> None:
        self._clients, self._is_kept = clients, is_kept
        self._key = (key, asyncio.get_running_loop())
        self._client = clients.take(self._key, make)

    async def run(self, request: Request[T]) -> T:
        """Execute one command."""
        return await self._client.run(request)

    async def close(self) -> None:
        """End the use."""
        if self._clients.leave(self._key, self._client, keep=self._is_kept()):
            await self._client.close()


class Lock(_Facts):
    """A lock for programs with threads; `Disque.lock` makes it. Use it as a context, by one thread at a time.

    lost   an event that is set when the lock is lost; each acquisition has a new one
    """

    def __init__(
        self,
        terms: LockTerms,
        owner: str | bytes | None,
        on_lost: Callable[[Lock], object] | None,
        connect: Callable[[], Runner],
    ) -> None:
        super().__init__(terms, owner)
        self.lost = threading.Event()
        self._on_lost = on_lost
        self._connect = connect
        self._client: Runner | None = None
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._in_use = threading.Lock()
        self._pid = os.getpid()

    def acquire(self) -> Self:
        """Take the lock, and extend its lease until it is given back.

        Raises LockHeldError if another owner has it until the `timeout` is over, LockDoneError, LockSpentError,
        NoQuorumError, DisqueConnectionError; RuntimeError if this object has it already.
        """
        if self._pid != os.getpid():  # A forked child: the lock is its parent's.
            self._pid = os.getpid()
            self._in_use = threading.Lock()
            self._state.lease = None
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError(IN_USE)
        # An interrupt, too, must leave no connection open, and the lock free to be acquired again.
        with ExitStack() as undo:
            undo.callback(self._in_use.release)
            client = self._connect()
            undo.callback(client.close)
            lease = self._take(client)
            undo.pop_all()
        self._client = client
        self.lost = threading.Event()
        self._state.begin(lease)
        self._watch(client, lease)
        return self

    def _take(self, client: Runner) -> LockLease:
        steps = self._state.acquire_steps()
        try:
            request = next(steps)
            while True:
                try:
                    reply = client.run(request)
                except DisqueError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            return cast("LockLease", stop.value)

    def _watch(self, client: Runner, lease: LockLease) -> None:
        self._inbox = SimpleQueue()
        keep = threading.Thread(
            target=self._keep, args=(client, lease, self._inbox), name=f"disque lock {self.name!r}", daemon=True
        )
        keep.start()

    def _keep(self, client: Runner, lease: LockLease, inbox: SimpleQueue[Any]) -> None:
        """Extend the lease until it is over, or until STOP. A request never delays the end of the lease."""
        request = self._state.extend_request(lease)
        is_asking = False
        while True:
            wake_at = lease.until if is_asking else lease.wake_at
            answer: tuple[float, Exception | None] | None = None
            with contextlib.suppress(Empty):
                answer = inbox.get(timeout=max(0.0, wake_at - now()))
                if answer is STOP:
                    return
            moment = now()
            if not lease.is_running(moment):
                self._lose(lease)
                return
            if answer is not None:
                is_asking = False
                asked_at, error = answer
                if isinstance(error, FencedError):
                    self._lose(lease, error)
                    return
                if error is None:
                    lease.extended(asked_at)
                else:
                    lease.failed(moment)
            if not is_asking and moment >= lease.next_at:
                is_asking = True
                threading.Thread(target=_extend, args=(client, request, inbox), daemon=True).start()

    def _lose(self, lease: LockLease, error: Exception | None = None) -> None:
        if lease.is_lost:
            return
        self._state.note_lost(lease, error, self.lost)
        if self._on_lost is not None:
            self._on_lost(self)

    def release(self) -> bool:
        """Give the lock back → whether it was held. Another owner may acquire it immediately.

        Raises NoQuorumError or DisqueConnectionError if no majority of the voters confirmed it; then the lock ends with
        its lease. Raises RuntimeError if the lock was not acquired.
        """
        lease = self._state.current()
        client = self._client
        assert client is not None
        self._inbox.put(STOP)
        try:
            return client.run(self._state.release_request(lease))
        except BaseException:
            self._state.owner.forget()  # The release may still arrive, and would end the next lock of the same owner.
            raise
        finally:
            self._end(client)

    def done(self, seconds: Span) -> None:
        """Give the lock back, and let the cluster remember that the work is done. Until it forgets, no owner gets the
        lock.

        seconds   seconds for which the end is remembered, at most the voters' `claim-lease-max`

        Raises LockLostError if another owner has had the lock since, and RuntimeError if the lock was not acquired.
        After NoQuorumError or DisqueConnectionError the lock is still held, because no majority of the voters confirmed
        its end.
        """
        lease = self._state.current()
        client = self._client
        assert client is not None
        request = self._state.release_request(lease, seconds)
        self._inbox.put(STOP)  # An extension behind the release would be refused.
        try:
            is_done = client.run(request)
        except BaseException:  # An interrupt, too: the lock is still ours, so it is extended again.
            self._watch(client, lease)
            raise
        self._end(client)
        if not is_done:
            self._lose(lease)
            raise self._state.lost_error()

    def _end(self, client: Runner) -> None:
        client.close()
        self._state.lease = None
        self._client = None
        self._in_use.release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state.lease is None or self._state.pid != os.getpid():
            return
        was_held = self.is_held
        try:
            self.release()
        except DisqueError as problem:
            _log.warning("a lock was not given back, and ends with its lease: %s", problem)
        if not was_held and kind is None:
            raise self._state.lost_error()


def _extend(client: Runner, request: Request[int], inbox: SimpleQueue[Any]) -> None:
    asked_at = now()
    try:
        client.run(request)
    except DisqueError as error:
        inbox.put((asked_at, error))
    else:
        inbox.put((asked_at, None))


class AsyncLock(_Facts):
    """A lock for asyncio programs; `AsyncDisque.lock` makes it. Use it as a context, by one task at a time.

    The lease is extended by a task. Code that blocks the event loop for longer than the lease loses the lock.

    lost   an event that is set when the lock is lost; each acquisition has a new one
    """

    def __init__(
        self,
        terms: LockTerms,
        owner: str | bytes | None,
        on_lost: Callable[[AsyncLock], object] | None,
        connect: Callable[[], AsyncRunner],
    ) -> None:
        super().__init__(terms, owner)
        self.lost = asyncio.Event()
        self._on_lost = on_lost
        self._connect = connect
        self._client: AsyncRunner | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_in_use = False

    async def acquire(self) -> Self:
        """Take the lock, and extend its lease until it is given back.

        Raises LockHeldError if another owner has it until the `timeout` is over, LockDoneError, LockSpentError,
        NoQuorumError, DisqueConnectionError; RuntimeError if this object has it already.
        """
        if self._is_in_use:
            raise RuntimeError(IN_USE)
        self._is_in_use = True
        # A cancellation, too, must leave no connection open, and the lock free to be acquired again.
        async with AsyncExitStack() as undo:
            undo.callback(self._free)
            client = self._connect()
            undo.push_async_callback(client.close)
            try:
                lease = await self._take(client)
            except asyncio.CancelledError:
                await self._release_unseen(client)
                raise
            undo.pop_all()
        self._client = client
        self.lost = asyncio.Event()
        self._state.begin(lease)
        self._watch(client, lease)
        return self

    async def _take(self, client: AsyncRunner) -> LockLease:
        steps = self._state.acquire_steps()
        try:
            request = next(steps)
            while True:
                try:
                    reply = await client.run(request)
                except DisqueError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            return cast("LockLease", stop.value)

    async def _release_unseen(self, client: AsyncRunner) -> None:
        """Give back a lock that was granted at the moment of the cancellation. If that fails, it ends with its lease.

        Another lock object may have the lock under a name that the program gave. So such a lock is left alone.
        """
        name, owner = self._state.terms.name, self._state.name()
        if self._state.owner.is_given:
            return
        with suppress(DisqueError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                grant = self._state.late
                # The request may have been cut off, or granted by another node than the one that answered last.
                info = None if grant is not None else await client.run(commands.show_lock(name))
                fence = grant.fence if grant is not None else info.fence if info and info.owner == owner else None
                if fence is not None:
                    self._state.owner.forget()  # As in `release`: the time may be over before the answer.
                    await client.run(commands.release_lock(name, owner, fence))

    def _watch(self, client: AsyncRunner, lease: LockLease) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self._keep(client, lease))

    async def _keep(self, client: AsyncRunner, lease: LockLease) -> None:
        """Extend the lease until it is over, or until it is cancelled. A request never delays the lease's end."""
        request = self._state.extend_request(lease)
        while True:
            await asyncio.sleep(max(0.0, lease.wake_at - now()))
            asked_at = now()
            if asked_at < lease.wake_at:
                continue
            error: Exception | None = None
            try:
                async with asyncio.timeout(max(0.0, lease.until - asked_at)):
                    await client.run(request)
            except (DisqueError, TimeoutError) as caught:
                error = caught
            moment = now()
            if isinstance(error, FencedError) or not lease.is_running(moment):
                self._lose(lease, error)
                return
            if error is None:
                lease.extended(asked_at)
            else:
                lease.failed(moment)

    def _lose(self, lease: LockLease, error: Exception | None = None) -> None:
        if lease.is_lost:
            return
        self._state.note_lost(lease, error, self.lost)
        if self._on_lost is not None:
            self._on_lost(self)

    def _stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    async def release(self) -> bool:
        """Give the lock back → whether it was held. Another owner may acquire it immediately.

        Raises NoQuorumError or DisqueConnectionError if no majority of the voters confirmed it; then the lock ends with
        its lease. Raises RuntimeError if the lock was not acquired.
        """
        lease = self._state.current()
        client = self._client
        assert client is not None
        self._stop()
        try:
            return await client.run(self._state.release_request(lease))
        except BaseException:
            self._state.owner.forget()  # The release may still arrive, and would end the next lock of the same owner.
            raise
        finally:
            await self._end(client)

    async def done(self, seconds: Span) -> None:
        """Give the lock back, and let the cluster remember that the work is done. Until it forgets, no owner gets the
        lock.

        seconds   seconds for which the end is remembered, at most the voters' `claim-lease-max`

        Raises LockLostError if another owner has had the lock since, and RuntimeError if the lock was not acquired.
        After NoQuorumError or DisqueConnectionError the lock is still held, because no majority of the voters confirmed
        its end.
        """
        lease = self._state.current()
        client = self._client
        assert client is not None
        request = self._state.release_request(lease, seconds)
        self._stop()  # An extension behind the release would be refused.
        try:
            is_done = await client.run(request)
        except BaseException:  # A cancellation, too: the lock is still ours, so it is extended again.
            self._watch(client, lease)
            raise
        await self._end(client)
        if not is_done:
            self._lose(lease)
            raise self._state.lost_error()

    async def _end(self, client: AsyncRunner) -> None:
        self._state.lease = None
        self._client = None
        self._free()
        await client.close()

    def _free(self) -> None:
        self._is_in_use = False

    async def __aenter__(self) -> Self:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state.lease is None:
            return
        was_held = self.is_held
        try:
            await self.release()
        except DisqueError as problem:
            _log.warning("a lock was not given back, and ends with its lease: %s", problem)
        if not was_held and kind is None:
            raise self._state.lost_error()
