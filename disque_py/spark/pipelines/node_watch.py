"""A watch over the nodes of a streaming pipeline, for a gauge and the exit status.

The query's own planner runs in one of Spark's processes. It reports nodes that can't be read from on stderr only, and
only when a batch is made. So the command asks the nodes itself: before Spark starts, every ten seconds, and at the
end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from disque_py.client import DisqueError
from disque_py.spark.events_planning import EventPlanner
from disque_py.spark.nodes import ClusterError

PERIOD_S: Final = 10.0


class NodeWatch:
    """The nodes of a pipeline's source.

    planner   the planner that asks the nodes; only the watch may use it
    period_s  seconds between two checks
    missed    nodes that could not be read from at some check, with the last reason
    """

    def __init__(self, planner: EventPlanner, period_s: float = PERIOD_S) -> None:
        self.missed: dict[str, str] = {}
        self._planner = planner
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> int:
        """Ask all nodes, and return how many can't be read from.

        Raises ClusterError when no node can be read from, or when one refuses the password.
        """
        try:
            away = self._planner.reach()
        finally:
            self._planner.close()  # The next check must open new connections, to test whether nodes take them.
        self.missed |= away
        return len(away)

    def start(self, tell: Callable[[int], None]) -> None:
        """Check the nodes every period. `tell` gets each count."""
        self._thread = threading.Thread(target=self._run, args=(tell,), name="disque nodes", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Check the nodes for the last time."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(ClusterError, DisqueError):  # The query itself has ended with a better error.
            self.look()

    def _run(self, tell: Callable[[int], None]) -> None:
        while not self._ended.wait(self._period_s):
            with suppress(ClusterError, DisqueError):
                tell(self.look())

    def sentence(self) -> str:
        """Return a sentence that names the missed nodes; empty if there are none."""
        if not self.missed:
            return ""
        nodes = "; ".join(f"node {node}: {reason}" for node, reason in sorted(self.missed.items()))
        return (
            f"{len(self.missed)} nodes could not be read from, so some of their events may be missing until the next "
            f"run ({nodes})"
        )
