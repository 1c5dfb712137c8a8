"""The lease of a lock, by the clock of the client that has it. Spec CL8, CL9.

The client measures a lease from before it sent the request, and makes it shorter by the drift that clocks may have. So
it ends here before any voter's grant ends. A lease is extended when a third of it is over. An extension that fails is
tried again until the lease ends.

Pure: callers pass the time in seconds and send the requests (lock.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from disque_py.client import commands
from disque_py.client.options import ClientOptions
from disque_py.client.request import Lane, Request
from disque_py.client.results import LockGrant
from disque_py.client.spans import Span, float_seconds, whole

T = TypeVar("T")

LEASE_S: Final = 30.0
# The part of a lease that the client uses, because clocks may drift apart by `claim-drift-max`, 1 % by default.
USABLE: Final = 0.99
# A lease is extended after this part of it.
EXTEND_AFTER: Final = 1 / 3
# The part of a lease for which an extension waits for one node. So there is time for three other nodes.
SILENCE: Final = 1 / 6
SILENCE_S_MIN: Final = 0.1
# A connection to a node that is far away needs this, with TLS.
CONNECT_S_MIN: Final = 1.0
# The most connections of the locks of one client. A program has a thread, or a task, for each lock that it extends.
POOL_SIZE: Final = 1 << 16
# The part of a lease for which the client pauses after a failed extension.
PAUSE: Final = 1 / 60
PAUSE_S_MAX: Final = 0.5
# Longer than any program runs.
SPAN_MS_MAX: Final = 1 << 53
MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True)
class LockTerms:
    """The terms of a lock, as its user chose them.

    name       name of the lock
    lease_s    seconds of the lease
    attempts   the highest number of attempts; None: any
    wait_s     seconds to wait for another owner; None: for ever
    """

    name: str | bytes
    lease_s: float
    attempts: int | None
    wait_s: float | None

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as nodes count it."""
        return round(MS_PER_S * self.lease_s)

    @property
    def silence_s(self) -> float:
        """The seconds after which an extension leaves a silent node."""
        return max(SILENCE * self.lease_s, SILENCE_S_MIN)

    def acquire(self, owner: str | bytes, wait_s: float) -> Request[LockGrant | None]:
        """Return the request for the lock; it waits `wait_s` seconds for another owner."""
        wait_ms = max(0, round(MS_PER_S * wait_s))
        return commands.acquire_lock(self.name, owner, self.lease_ms, attempts=self.attempts, timeout_ms=wait_ms)

    def extend(self, owner: str | bytes, grant: LockGrant) -> Request[int]:
        """Return the request for another lease: one attempt at one node.

        It has a connection to itself. On a shared one it would wait for those of other locks, and end with them.
        """
        ask = commands.extend_lock(self.name, owner, grant.fence, self.lease_ms)
        return replace(ask, lane=Lane.OWN, wait_ms=None, patience_s=0.0, silence_s=self.silence_s)

    def release(self, owner: str | bytes, grant: LockGrant, done_s: float | None = None) -> Request[bool]:
        """Return the request that ends the lock; `done_s`: for how long the end of the work is remembered."""
        if done_s is not None:
            return commands.release_lock(self.name, owner, grant.fence, done_ms=round(MS_PER_S * done_s))
        ask = commands.release_lock(self.name, owner, grant.fence)
        return replace(ask, patience_s=EXTEND_AFTER * self.lease_s, silence_s=self.silence_s)

    def options(self, options: ClientOptions) -> ClientOptions:
        """Return the options of the client that serves such locks. It gives up a node that is gone soon enough.

        No lock waits for the connection of another one.
        """
        limit_s = max(self.silence_s, CONNECT_S_MIN)
        return replace(options, connect_timeout=min(options.connect_timeout, limit_s), pool_size=POOL_SIZE)


def lock_terms(name: str | bytes, lease: Span, attempts: int | None, timeout: Span | None) -> LockTerms:
    """Return the terms of a lock. Raises ValueError for an invalid number, TypeError for anything but a number."""
    lease_s = float_seconds("lease", lease)
    wait_s = None if timeout is None else float_seconds("timeout", timeout)
    if not 1 <= MS_PER_S * lease_s < SPAN_MS_MAX:
        raise ValueError(f"lease must be at least a millisecond, and finite, not {lease}")
    if wait_s is not None and not 0 <= MS_PER_S * wait_s < SPAN_MS_MAX:
        raise ValueError(f"timeout must be at least 0 and finite, or None, not {timeout}")
    if attempts is not None and whole("attempts", attempts) < 1:
        raise ValueError(f"attempts must be at least 1, or None, not {attempts}")
    return LockTerms(name, lease_s, attempts, wait_s)


class LockLease:
    """One period in which a lock is held. Moments are in seconds of the caller's clock.

    grant     the node's answer
    until     the moment at which the lease ends
    next_at   the moment of the next extension
    is_lost   the lock was lost before it was given back
    """

    __slots__ = ("_lease_s", "grant", "is_lost", "next_at", "until")

    def __init__(self, grant: LockGrant, lease_s: float, asked_at: float) -> None:
        self.grant = grant
        self.is_lost = False
        self.until = asked_at + USABLE * lease_s
        self.next_at = asked_at + EXTEND_AFTER * lease_s
        self._lease_s = lease_s

    @property
    def wake_at(self) -> float:
        """The next moment at which something has to be done."""
        return min(self.next_at, self.until)

    def is_running(self, now: float) -> bool:
        """Return whether the lease is not over, and was not lost."""
        return now < self.until and not self.is_lost

    def extended(self, asked_at: float) -> None:
        """Note an extension that a majority confirmed, and that was sent after `asked_at`."""
        self.until = max(self.until, asked_at + USABLE * self._lease_s)
        self.next_at = asked_at + EXTEND_AFTER * self._lease_s

    def failed(self, now: float) -> None:
        """Note an extension that no node confirmed."""
        self.next_at = now + min(PAUSE_S_MAX, PAUSE * self._lease_s)


class OwnerName:
    """The name under which one lock object owns its lock: unique per object and process, or given by the user.

    given     the user's name; None: host, process and a random number
    make      returns a new name
    """

    def __init__(self, given: str | bytes | None, make: Callable[[], str]) -> None:
        self._given = given
        self._make = make
        self._made: tuple[int, str] | None = None

    @property
    def is_given(self) -> bool:
        """Whether it is the user's name, which several lock objects may have."""
        return self._given is not None

    def in_process(self, pid: int) -> str | bytes:
        """Return the name in this process. A forked child is another owner."""
        if self._given is not None:
            return self._given
        if self._made is None or self._made[0] != pid:
            self._made = (pid, self._make())
        return self._made[1]

    def forget(self) -> None:
        """Use another name from now on, unless the user gave one."""
        self._made = None
