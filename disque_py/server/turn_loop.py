"""Turn loop: the driver's turns on an asyncio loop.

A turn opens with the first input. A callback closes it, which the loop runs after all input that is ready now. So all
input of one pass of the loop shares a turn. One timer is kept, for the next work that is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disque_py.server.log import tell

if TYPE_CHECKING:
    from disque_py.node.turn import Driver
    from disque_py.server.connection import ClientConnection
    from disque_py.server.file_writer import FileWriter

# The pause after a turn that has more to do: the loop serves its sockets in between.
SOON_S: Final = 0.0005
# A timer that fires this late is logged, as verbose or as a warning.
LATE_MS: Final = 100
STALL_MS: Final = 1_000


class TurnLoop:
    """The turns that connections and links of one server share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file_writer: FileWriter) -> None:
        self.loop = loop
        self._file_writer = file_writer
        self.driver: Driver
        self.connections: dict[int, ClientConnection] = {}
        self.next_client_id = 1
        self.refused_count = 0  # Connections of TLS that were refused a moment ago, and are not closed yet.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._due_ms = 0
        self.is_stopping = False
        # Looked up once, because each turn needs both.
        self._call_soon: Callable[[Callable[[], None]], Any] = loop.call_soon
        self._finish_turn: Callable[[], None] = self._finish

    def on_turn(self) -> None:
        """Begin a turn: finish it when the loop has taken all input that is ready."""
        self._call_soon(self._finish_turn)

    def _finish(self) -> None:
        self.driver.finish()
        self._arm()
        self._file_writer.wait()  # The end of a write opens a turn of its own, with a new reading of the clock.

    def _arm(self) -> None:
        driver = self.driver
        next_ms = driver.next_ms()
        timer = self._timer
        if timer is not None:
            if next_ms >= self._timer_ms:
                return  # The timer fires early enough, and sets itself again.
            timer.cancel()
        self._timer_ms = next_ms
        self._due_ms = max(next_ms, driver.broker.now_ms)
        delay_s = max(SOON_S if driver.has_more else 0.001, (next_ms - driver.broker.now_ms) / 1000)
        self._timer = self.loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self.is_stopping:
            self._say_late(self.driver.clock.now_ms() - self._due_ms)
            self.driver.tick()

    def _say_late(self, late_ms: int) -> None:
        """Log a late timer: the node served no client meanwhile. The time of a suspended machine counts, too."""
        if late_ms >= STALL_MS:
            tell("stall", ms=late_ms)
        elif late_ms >= LATE_MS:
            tell("late", ms=late_ms)

    def start(self) -> None:
        """Start the timer."""
        self.driver.tick()

    def stop(self) -> None:
        """Stop the timer. Messages that waited for it leave."""
        self.is_stopping = True
        self.driver.stop_gathering()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def now_s() -> float:
    """Return monotonic seconds for the server's own time-outs."""
    return time.monotonic()
