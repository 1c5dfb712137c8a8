"""A rate limiter per source: a burst, and then a number per second.

A host that reaches the bus of a cluster without a secret may say MEET under any number of ids, and gossip about any
number of addresses. Each makes us dial. A rate limit per source host bounds that cost, and a host within its limit is
never refused. A host is forgotten when its whole burst is available again, so forgetting it changes nothing.

Pure; the caller passes the time.
"""

from __future__ import annotations

from typing import Final

# Sources remembered at a time. With more of them (IPv6 has enough addresses for it) the oldest gets its burst again.
# The limits on all sources together still apply.
SOURCES_MAX: Final = 1_000


class RateLimiter:
    """`burst` at once and `rate` a second per source."""

    def __init__(self, burst: int, rate: int) -> None:
        self.burst = burst
        self.rate = rate
        self._spent: dict[str, tuple[float, int]] = {}  # source -> (how much of the burst, at which moment)

    def spend(self, source: str, now_ms: int) -> bool:
        """Return whether `source` may do it once more, at `now_ms` (monotonic milliseconds); counted if so."""
        spent, at_ms = self._spent.get(source, (0.0, now_ms))
        spent = max(0.0, spent - (now_ms - at_ms) * self.rate / 1000)
        if spent + 1 > self.burst:
            return False
        if source not in self._spent and len(self._spent) >= SOURCES_MAX:
            self._forget_some(now_ms)
        self._spent[source] = (spent + 1, now_ms)
        return True

    def _forget_some(self, now_ms: int) -> None:
        full_ms = self.burst * 1000 // self.rate
        self._spent = {source: entry for source, entry in self._spent.items() if now_ms - entry[1] < full_ms}
        if len(self._spent) >= SOURCES_MAX:
            del self._spent[next(iter(self._spent))]
