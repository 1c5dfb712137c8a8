"""Tombstones: ids of finished jobs, kept for a while.

A node that deletes an acked record remembers the job's id for twice the node time-out. If a copy of the job arrives
late, the node answers with the ack, and does not deliver the job (spec A6). If a collection has ended, the id comes
with its set: all these nodes have confirmed. So a node that still collects among them learns of the end (spec A14).

There are two generations of ids, and new ids join the younger one. When that is old or full, it becomes the older one,
and the previous older one is forgotten as a whole. So a look-up is two probes, and no id needs a timer. The size of a
generation is limited, so under load a generation may be short.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import Node

GENERATION_MAX: Final = 131_072


class Tombstones:
    """Ids that are remembered for at least `keep_ms`, unless GENERATION_MAX newer ones come."""

    __slots__ = ("_before", "_now", "_since_ms", "keep_ms")

    def __init__(self, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self._now: dict[bytes, frozenset[Node] | None] = {}
        self._before: dict[bytes, frozenset[Node] | None] = {}
        self._since_ms = 0

    def add(self, job_id: bytes, now_ms: int, ended: frozenset[Node] | None = None) -> None:
        """Remember this id.

        ended   the set of its collection, if that has ended
        """
        if len(self._now) >= GENERATION_MAX:
            self._turn_over(now_ms)
        if ended is not None or job_id not in self._now:
            self._now[job_id] = ended

    def ended(self, job_id: bytes) -> frozenset[Node] | None:
        """Return the set of the job's last collection that has ended; None if none is known."""
        return self._now.get(job_id) or self._before.get(job_id)

    def __contains__(self, job_id: bytes) -> bool:
        return job_id in self._now or job_id in self._before

    def generations(self) -> tuple[dict[bytes, frozenset[Node] | None], dict[bytes, frozenset[Node] | None]]:
        """Return both generations, for many look-ups within one message. The caller must not change or keep them."""
        return self._now, self._before

    def __len__(self) -> int:
        return len(self._now) + len(self._before)

    def expire(self, now_ms: int) -> None:
        """Forget the older generation if the younger one is `keep_ms` old. Called about ten times a second."""
        if now_ms - self._since_ms >= self.keep_ms:
            self._turn_over(now_ms)

    def clear(self) -> None:
        """Forget all ids."""
        self._now = {}
        self._before = {}

    def _turn_over(self, now_ms: int) -> None:
        self._before = self._now
        self._now = {}
        self._since_ms = now_ms
