"""Which nodes a streaming pipeline can't read from: looked at beside the query, for a gauge and the exit status.

The query's own planner is in a process of Spark's, and says what it sees on stderr alone. It also says nothing
while no batch is made. So the command asks the nodes itself: before Spark starts, every ten seconds, at the end.
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

    planner   asks them; nothing else may use it
    period_s  between two looks
    missed    nodes that could not be read from at any look, with the last reason
    """

    def __init__(self, planner: EventPlanner, period_s: float = PERIOD_S) -> None:
        self.missed: dict[str, str] = {}
        self._planner = planner
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> int:
        """Ask all nodes → how many can't be read from. Raises ClusterError when none can, or one refuses us."""
        try:
            away = self._planner.reach()
        finally:
            self._planner.close()  # Whether a node takes new connections is the question.
        self.missed |= away
        return len(away)

    def start(self, tell: Callable[[int], None]) -> None:
        """Look again and again; `tell` gets each count."""
        self._thread = threading.Thread(target=self._run, args=(tell,), name="disque nodes", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look for the last time."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(ClusterError, DisqueError):  # The query has ended by itself then, with a better sentence.
            self.look()

    def _run(self, tell: Callable[[int], None]) -> None:
        while not self._ended.wait(self._period_s):
            with suppress(ClusterError, DisqueError):
                tell(self.look())

    def sentence(self) -> str:
        """What the index lacks, empty for nothing."""
        if not self.missed:
            return ""
        nodes = "; ".join(f"node {node}: {reason}" for node, reason in sorted(self.missed.items()))
        return (
            f"{len(self.missed)} nodes could not be read from, so events of theirs may be missing until the next run "
            f"({nodes})"
        )
