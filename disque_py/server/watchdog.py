"""Watchdog: logs the program's stack when its loop is blocked for `watchdog-period`.

The loop sets a timer of the system again and again. When the timer fires, the loop was busy for longer than the period,
and the stack is logged. It serves to find slow commands in production: CONFIG SET only, off by default.
"""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Callable
from types import FrameType

from disque_py.log_lines import line


class Watchdog:
    """A watchdog for the loop that makes it. `log` takes a level and a text."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Callable[[str, str], None]) -> None:
        self._loop = loop
        self._log = log
        self._period_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, period_ms: int) -> None:
        """Log stalls that are longer than `period_ms` milliseconds; 0: don't watch."""
        self._period_s = period_ms / 1000
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if period_ms:
            signal.signal(signal.SIGALRM, self._on_alarm)
            self._feed()
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _feed(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._period_s, self._period_s)
        self._timer = self._loop.call_later(self._period_s / 2, self._feed)

    def _on_alarm(self, _: int, frame: FrameType | None) -> None:
        self._log("warning", line("watchdog", seconds=self._period_s))
        for text in "".join(traceback.format_stack(frame)).splitlines():
            self._log("warning", line("watchdog-frame", frame=text))
