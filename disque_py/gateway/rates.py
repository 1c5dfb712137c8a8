"""Rate limits: a token bucket per principal and per address.

A bucket holds at most the requests of one second. It fills steadily, so a caller that stays below the rate is never
refused. A full bucket has no information, so full buckets are dropped when there are many. Failed logins have separate
buckets: five per address and minute. For limits of addresses, an IPv6 network of 64 bits is one address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final

BUCKETS_MAX: Final = 10_000
# An address may fail to log in so many times in this time.
LOGIN_FAILURES: Final = 5
LOGIN_SECONDS: Final = 60.0
# A check of a password waits this many seconds for others of its address. They take long if no node answers.
CHECK_WAIT_S: Final = 10.0
# The bits of an IPv6 address that name a subscriber's network.
NETWORK_BITS: Final = 64


@lru_cache(BUCKETS_MAX)
def group_of(address: str) -> str:
    """Return the name under which an address is limited: itself, or its network if it is IPv6."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), NETWORK_BITS), strict=False))


class Rates:
    """Buckets by name.

    rate    requests per second that fill a bucket; 0: there is no limit
    burst   requests that a full bucket holds; 0: those of one second
    """

    def __init__(self, rate: float, burst: float = 0) -> None:
        self._rate = rate
        self._burst = burst or max(1.0, rate)
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, now: float, count: float = 1) -> bool:
        """Take `count` requests from a bucket. Return False, and take nothing, if it has fewer."""
        if not self._rate:
            return True
        level = self.level(name, now)
        if level < min(count, self._burst):
            return False
        self._put(name, level - count, now)
        return True

    def level(self, name: str, now: float) -> float:
        """Return the number of requests in a bucket now."""
        level, since = self._buckets.get(name, (self._burst, now))
        return min(self._burst, level + (now - since) * self._rate)

    def _put(self, name: str, level: float, now: float) -> None:
        if len(self._buckets) >= BUCKETS_MAX and name not in self._buckets:
            full = [each for each in self._buckets if self.level(each, now) >= self._burst]
            for each in full or list(self._buckets)[: BUCKETS_MAX // 2]:
                del self._buckets[each]
        self._buckets[name] = (level, now)


class LoginFailures:
    """Failed logins by address. After five within a minute, the address has to wait."""

    def __init__(self) -> None:
        self._rates = Rates(LOGIN_FAILURES / LOGIN_SECONDS, LOGIN_FAILURES)
        self._checks: dict[str, _Checks] = {}

    @asynccontextmanager
    async def check(self, address: str) -> AsyncIterator[bool]:
        """Check a password in this context. It is False if the address has failed too often, or waited for too long.

        Checks that run count as failures until they end, and further ones wait. So an address can't pass the limit by
        guesses at the same time, and callers with correct passwords are not refused.
        """
        until, address = time.monotonic() + CHECK_WAIT_S, group_of(address)
        checks = self._checks.setdefault(address, _Checks())
        checks.callers += 1
        try:
            while not self.is_blocked(address, time.monotonic()):
                if self._rates.level(address, time.monotonic()) < checks.running + 1:
                    if not await checks.wait(until - time.monotonic()):
                        break
                    continue
                checks.running += 1
                checks.wake_one()  # There may be room for more.
                try:
                    yield True
                finally:
                    checks.running -= 1
                return
            yield False
        finally:
            checks.wake_one()
            checks.callers -= 1
            if not checks.callers:
                del self._checks[address]

    def is_blocked(self, address: str, now: float) -> bool:
        """Return whether the address has failed too often."""
        return self._rates.level(group_of(address), now) < 1

    def failed(self, address: str, now: float) -> None:
        """Count a failed login."""
        self._rates.take(group_of(address), now)


class _Checks:
    """The checks of one address: the number of those that run, and those that wait."""

    def __init__(self) -> None:
        self.callers = 0
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, seconds: float) -> bool:
        """Wait until another check has begun or ended. Return False if the time is over."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            done, _ = await asyncio.wait((future,), timeout=max(0.0, seconds))
        finally:
            future.cancel()  # A caller that is cancelled takes no wake-up of another one.
        return bool(done)

    def wake_one(self) -> None:
        """Let the next one that waits look again. If it can't begin, another check runs, which wakes it at its end."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
