"""Detection of the node that feeds this client's consumers (spec X4).

A job id names the node that made the job (`D-<8 hex>-`). If nearly all jobs of a consumer come from one other node,
each of them crosses the cluster first. Then the consumer should use that node.

A consumer must not flap. So a move needs a large majority over a whole window. After a move there is a pause without
moves, which doubles if the next move follows soon. So producers that alternate between nodes no longer attract
consumers. Pure; this module knows ids and time only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Two hundred jobs describe a stream well. At one job per second that takes minutes, but then a move would gain little.
WINDOW_JOBS: Final = 200
MAJORITY: Final = 0.8

PAUSE_S_MIN: Final = 15.0
PAUSE_S_MAX: Final = 1_800.0
# After a time of this many pauses without a move, the next pause is short again: the producers have settled.
SETTLED_PAUSES: Final = 4

PREFIX: Final = slice(2, 10)


class FeedWatch:
    """A counter of the makers of received jobs, which decides when to move.

    It has one window at a time. The counts start again from zero when the window is full, so that old traffic does not
    count.
    """

    __slots__ = ("_counts", "_moved_at", "_pause_s", "_total")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0
        self._pause_s = 0.0
        self._moved_at = 0.0

    def count_jobs(self, ids: Iterable[str], here: str, now: float) -> str:
        """Count jobs that came while the consumer uses the node `here` (8 hex digits).

        Return the prefix of the node to move to, or an empty string. The caller calls `moved` if it tries to move. If
        it knows no such node, the answer may come again after the next window.
        """
        counts = self._counts
        for job_id in ids:
            prefix = job_id[PREFIX]
            counts[prefix] = counts.get(prefix, 0) + 1
            self._total += 1
        if self._total < WINDOW_JOBS:
            return ""
        maker = max(counts, key=lambda prefix: counts[prefix])
        share = counts[maker] / self._total
        self._counts = {}
        self._total = 0
        if maker == here or share < MAJORITY or now - self._moved_at < self._pause_s:
            return ""
        return maker

    def moved(self, now: float) -> None:
        """Note that the consumer moves. The next move has to wait, longer if this one came soon after the last."""
        calm = self._pause_s == 0.0 or now - self._moved_at > SETTLED_PAUSES * self._pause_s
        self._pause_s = PAUSE_S_MIN if calm else min(PAUSE_S_MAX, 2 * self._pause_s)
        self._moved_at = now
        self._counts = {}
        self._total = 0
