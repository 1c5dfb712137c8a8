"""The system's clock, for the driver.

Timers, leases and deadlines must go on while a machine is suspended, and must not notice steps of the wall clock
(spec T1, Q37). CLOCK_BOOTTIME offers both. Where it is missing (macOS), the monotonic clock comes nearest.
"""

from __future__ import annotations

import time
from typing import Final

NS_PER_MS: Final = 1_000_000
# A reading is rounded down, so it may be this much behind the true time.
CLOCK_COARSE_MS: Final = 1

_MONOTONIC_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_clock_ns: Final = time.clock_gettime_ns
_time_ns: Final = time.time_ns
# The stopwatch without a method around it, for the broker: it is called for every command.
stopwatch_ns: Final = time.perf_counter_ns


class SystemClock:
    """ports.Clock of a server."""

    __slots__ = ()

    def stopwatch_ns(self) -> int:
        """Return nanoseconds, for measuring how long something took."""
        return stopwatch_ns()

    def now_ms(self) -> int:
        """Return monotonic milliseconds since a moment before the program began, suspended time included."""
        return _clock_ns(_MONOTONIC_CLOCK) // NS_PER_MS

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds. It may jump."""
        return _time_ns() // NS_PER_MS
