"""Shell: the driver's turns on an asyncio loop.

A turn opens with the first input and is closed by a callback that the loop runs after all input that is ready
now: so everything the sockets had to say in this pass shares one turn. One timer is kept for the next thing
that is due.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from disque_py.server.log import tell

if TYPE_CHECKING:
    from disque_py.node.turn import Driver
    from disque_py.server.connection import ClientConnection

# With more to do than a turn takes, the loop still gets to its sockets in between.
SOON_S: Final = 0.0005
# A timer that fires so late is worth a line, of verbose or of warning.
LATE_MS: Final = 100
STALL_MS: Final = 1_000


class TurnLoop:
    """What connections and links of one server share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.driver: Driver
        self.connections: dict[int, ClientConnection] = {}
        self.next_client_id = 1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._due_ms = 0
        self.is_stopping = False

    def on_turn(self) -> None:
        """A turn has begun: finish it when the loop has taken what is ready."""
        self.loop.call_soon(self._finish)

    def _finish(self) -> None:
        self.driver.finish()
        self._arm()

    def _arm(self) -> None:
        driver = self.driver
        next_ms = driver.next_ms()
        timer = self._timer
        if timer is not None:
            if next_ms >= self._timer_ms:
                return  # It fires early enough, and sets itself anew.
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
        """The node served nobody meanwhile, whatever kept it: its clock goes on while the machine sleeps, too."""
        if late_ms >= STALL_MS:
            tell("stall", ms=late_ms)
        elif late_ms >= LATE_MS:
            tell("late", ms=late_ms)

    def start(self) -> None:
        """Begin to keep time."""
        self.driver.tick()

    def stop(self) -> None:
        """No more ticks."""
        self.is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def now_s() -> float:
    """Monotonic seconds for the shell's own time-outs."""
    return time.monotonic()
