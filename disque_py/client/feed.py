"""Noticing that another node feeds us (spec X4).

Job ids say which node made a job (`D-<8 hex>-`). When nearly all jobs that a consumer gets come
from one other node, every one of them crosses the cluster first; the consumer had better sit there.

Never flapping is the rule: a move needs a large majority over a whole window, nothing moves for
a while after a move, and that while doubles when moves come in a row, so producers that
alternate between nodes stop attracting us. Pure; knows ids and time only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Two hundred jobs say something about a stream; at one per second that is minutes, and then a move would gain little.
WINDOW_JOBS: Final = 200
MAJORITY: Final = 0.8

REST_S_MIN: Final = 15.0
REST_S_MAX: Final = 1_800.0
# After this many rests without a wish to move the producers have settled.
CALM_RESTS: Final = 4

PREFIX: Final = slice(2, 10)


class FeedWatch:
    """Counts the makers of the jobs a client receives, and says when to move.

    One window at a time: counts begin anew when it is full, so that old traffic doesn't vote.
    """

    __slots__ = ("_counts", "_moved_at", "_rest_s", "_total")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0
        self._rest_s = 0.0
        self._moved_at = 0.0

    def saw(self, ids: Iterable[str], here: str, now: float) -> str:
        """Jobs came while the consumer sits at the node `here` (8 hex digits).

        Returns the prefix of the node to move to, or an empty string. The caller says by `moved` that it tries;
        if it knows no node of that name, it is asked again after the next window.
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
        if maker == here or share < MAJORITY or now - self._moved_at < self._rest_s:
            return ""
        return maker

    def moved(self, now: float) -> None:
        """The consumer moves: the next move has to wait, longer if this one came soon after the last."""
        calm = self._rest_s == 0.0 or now - self._moved_at > CALM_RESTS * self._rest_s
        self._rest_s = REST_S_MIN if calm else min(REST_S_MAX, 2 * self._rest_s)
        self._moved_at = now
        self._counts = {}
        self._total = 0
