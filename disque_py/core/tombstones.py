"""Tombstones: ids of jobs known as done, for a while.

A node that deletes an acked record remembers its id for twice the node time-out. A copy that arrives late is then
answered with the ack instead of being delivered (spec A6). New ids join the younger of two generations. When that
is old or full, the older one is forgotten as a whole. So a look-up is two probes, and no id has a timer. The table is
bounded: under load a generation is short.
"""

from __future__ import annotations

from typing import Final

GENERATION_MAX: Final = 131_072


class Tombstones:
    """Remembers an id for at least `keep_ms`, unless GENERATION_MAX newer ones push it out."""

    __slots__ = ("_before", "_now", "_since_ms", "keep_ms")

    def __init__(self, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self._now: set[bytes] = set()
        self._before: set[bytes] = set()
        self._since_ms = 0

    def add(self, job_id: bytes, now_ms: int) -> None:
        """Remember this id."""
        if len(self._now) >= GENERATION_MAX:
            self._turn_over(now_ms)
        self._now.add(job_id)

    def __contains__(self, job_id: bytes) -> bool:
        return job_id in self._now or job_id in self._before

    def generations(self) -> tuple[set[bytes], set[bytes]]:
        """Return both sets, for many look-ups within one message. Do not change or keep them."""
        return self._now, self._before

    def __len__(self) -> int:
        return len(self._now) + len(self._before)

    def expire(self, now_ms: int) -> None:
        """Forget ids that are old enough; called about once a second."""
        if now_ms - self._since_ms >= self.keep_ms:
            self._turn_over(now_ms)

    def clear(self) -> None:
        """Forget all."""
        self._now = set()
        self._before = set()

    def _turn_over(self, now_ms: int) -> None:
        self._before = self._now
        self._now = set()
        self._since_ms = now_ms
