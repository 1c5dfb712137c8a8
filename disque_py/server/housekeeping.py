"""Housekeeping: the periodic work of a serving node, apart from the broker's own timers.

Once a second it checks the connections and logs refusals (reporter.py). Once a minute it collects garbage if that is
cheap. It tells the service manager that the node is alive, as often as the manager wants. The loop calls all of it;
there are no tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.server.collector import COLLECT_INTERVAL_MS, collect_when_cheap
from disque_py.server.log import flush
from disque_py.server.reporter import Reporter

if TYPE_CHECKING:
    from disque_py.server.connection import ClientConnection
    from disque_py.server.systemd import Notifier
    from disque_py.server.turn_loop import TurnLoop

LOOK_AFTER_SECONDS: Final = 1.0
# Checking this many connections takes about a millisecond. Then the loop does other work before the next ones.
LOOK_AFTER_SLICE: Final = 1_000
COLLECT_SECONDS: Final = COLLECT_INTERVAL_MS / 1000


class Housekeeping:
    """The periodic work of one server. It ends with the loop."""

    def __init__(self, turns: TurnLoop, notifier: Notifier) -> None:
        self._turns = turns
        self._notifier = notifier
        self._reporter = Reporter(turns.driver.broker)

    def start(self) -> None:
        """Start all periodic work."""
        self._turns.loop.call_later(LOOK_AFTER_SECONDS, self._look_after)
        self._turns.loop.call_later(COLLECT_SECONDS, self._collect)
        self._say_alive()

    def _look_after(self) -> None:
        """Check for idle clients, and for clients that don't take their replies."""
        self._look_after_slice(list(self._turns.connections.values()))
        self._reporter.look()
        flush()
        self._turns.loop.call_later(LOOK_AFTER_SECONDS, self._look_after)

    def _look_after_slice(self, connections: list[ClientConnection]) -> None:
        driver = self._turns.driver
        now_ms = driver.clock.now_ms()
        idle_ms = driver.broker.settings.timeout * 1000
        for connection in connections[-LOOK_AFTER_SLICE:]:
            connection.look_after(now_ms, idle_ms)
        del connections[-LOOK_AFTER_SLICE:]
        if connections:
            self._turns.loop.call_soon(self._look_after_slice, connections)

    def _collect(self) -> None:
        collect_when_cheap(self._turns.driver.broker.job_count)
        self._turns.loop.call_later(COLLECT_SECONDS, self._collect)

    def _say_alive(self) -> None:
        """Tell the service manager that the loop runs."""
        interval_s = self._notifier.watchdog_interval_s
        if interval_s:
            self._notifier.alive()
            self._turns.loop.call_later(interval_s, self._say_alive)
