"""The schedule of an open loop: requests are due at fixed times, whatever the server does.

A generator that waits for replies sends nothing while the server stalls. So it measures one slow request where users
would have seen hundreds (coordinated omission). Here every request has an intended time. Its latency counts from that
time, even if it was sent later. Pure: the caller gives the time.
"""

from __future__ import annotations


class Schedule:
    """Evenly spaced requests: `count` of them, the first at `start`, `rate` per second."""

    def __init__(self, start: float, rate: float, count: int) -> None:
        self.start = start
        self.rate = rate
        self.count = count
        self._next = 0

    def intended(self, number: int) -> float:
        """Return the time at which a request should be sent."""
        return self.start + number / self.rate

    def due(self, now: float) -> range:
        """Return the requests whose time has come since the last call, late ones included."""
        first = self._next
        while self._next < self.count and self.intended(self._next) <= now:
            self._next += 1
        return range(first, self._next)

    def wait(self, now: float) -> float | None:
        """Return the seconds until the next request, at least 0; None if all have been due."""
        return max(0.0, self.intended(self._next) - now) if self._next < self.count else None
