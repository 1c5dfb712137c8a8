"""--latency, --latency-history and --intrinsic-latency: delays, measured on this machine.

The first two time PING on one connection, a hundred times per second. The last one needs no server: it spins and
measures how long the machine keeps the process off the processor. No server on this machine can be faster than that.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Final

from disque_py.cli.connection import Connection

SAMPLE_EVERY_S: Final = 0.01
HISTORY_EVERY_S_DEFAULT: Final = 15.0
# In a pipe --latency measures for this time, prints once and ends, because a refreshed line makes no sense there.
PIPED_S_DEFAULT: Final = 1.0
# Clears a terminal's line and moves the cursor to its start.
FRESH_LINE: Final = "\x1b[0G\x1b[2K"
# The spinning loop runs this many rounds before it checks whether the time is over.
ROUNDS_PER_LOOK: Final = 1000


class Spread:
    """Minimum, maximum and average of the samples so far, in milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.min_ms = math.inf
        self.max_ms = 0.0
        self.sum_ms = 0.0

    def add(self, sample_ms: float) -> None:
        """Count one sample."""
        self.count += 1
        self.min_ms = min(self.min_ms, sample_ms)
        self.max_ms = max(self.max_ms, sample_ms)
        self.sum_ms += sample_ms

    def text(self) -> str:
        """Return the figures for people."""
        average = self.sum_ms / self.count
        return f"min: {self.min_ms:.2f}, max: {self.max_ms:.2f}, avg: {average:.2f} ({self.count} samples)"

    def as_object(self) -> dict[str, float]:
        """Return the figures for programs that read JSON."""
        return {
            "min_ms": round(self.min_ms, 3),
            "max_ms": round(self.max_ms, 3),
            "avg_ms": round(self.sum_ms / self.count, 3),
            "samples": self.count,
        }

    def bare(self) -> str:
        """Return the figures for other programs: minimum, maximum, average, count."""
        return f"{self.min_ms:.2f} {self.max_ms:.2f} {self.sum_ms / self.count:.2f} {self.count}"


def measure(
    connection: Connection, *, with_history: bool, every_s: float | None, on_terminal: bool, as_json: bool = False
) -> None:
    """Run until interrupted; in a pipe without history, for one interval. Times are in milliseconds."""
    every_s = every_s or (HISTORY_EVERY_S_DEFAULT if with_history else PIPED_S_DEFAULT)
    spread = Spread()
    started = time.monotonic()
    while True:
        before = time.perf_counter()
        connection.call("PING")
        spread.add((time.perf_counter() - before) * 1000)
        is_over = time.monotonic() - started >= every_s
        if on_terminal:
            print(FRESH_LINE + spread.text(), end="", flush=True)
        elif is_over:
            print(json.dumps(spread.as_object()) if as_json else spread.bare(), flush=True)
            if not with_history:
                return
        if is_over and with_history:
            if on_terminal:
                print(f" -- {time.monotonic() - started:.2f} seconds range", flush=True)
            spread = Spread()
            started = time.monotonic()
        time.sleep(SAMPLE_EVERY_S)


def measure_intrinsic(seconds: float, report: Callable[[str], None]) -> None:
    """Spin for some seconds; report each new worst stall, and the average round at the end."""
    clock = time.perf_counter_ns
    started = last = clock()
    end = started + int(seconds * 1e9)
    rounds = worst_ns = 0
    while last < end:
        for _ in range(ROUNDS_PER_LOOK):
            now = clock()
            if now - last > worst_ns:
                worst_ns = now - last
                report(f"Max latency so far: {worst_ns / 1000:.0f} microseconds.")
            last = now
        rounds += ROUNDS_PER_LOOK
    average_ns = (last - started) / rounds
    report(
        f"\n{rounds} total runs "
        f"(avg latency: {average_ns / 1000:.4f} microseconds / {average_ns:.2f} nanoseconds per run)."
    )
    report(f"Worst run took {worst_ns / average_ns:.0f}x longer than the average latency.")
