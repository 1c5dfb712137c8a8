"""Ends: jobs that are over, by id and status, for a while; and jobs whose end is waited for.

A job's record goes when all nodes know its end. A WAITJOB that comes a little later must still be told the truth. So
each node remembers the ids of ended jobs with their status for twice the node time-out. The table has two generations
and is bounded, as that of tombstones is. A tombstone also says that a job is done. It does not say how.

An end may be known in *doubt*: the job is completed, and another node may have a result that this one never heard, or
has dropped. Such an end is told as one in doubt, and ends a wait only when no linked node knows better (job_waits.py).

`watched` has the ids that clients here, or other nodes, wait for. lifecycle.py notes a watched id whenever its status
here may have become another. At the end of the turn job_waits.py tells those that wait. A job that is not waited for
costs one look-up. Spec RW5.
"""

from __future__ import annotations

from typing import Final

GENERATION_MAX: Final = 131_072


class Ends:
    """The ends of jobs, and ids that are waited for.

    recent    id -> status of a job that ended here, the younger generation; code adds to it directly
    doubts    ids among them whose end is known in doubt
    watched   ids that a client or a node waits for (job_waits.py)
    noted     those whose job changed in this turn
    """

    __slots__ = ("_before", "_doubts_before", "_keep_ms", "_since_ms", "doubts", "noted", "recent", "watched")

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._since_ms = 0
        self._before: dict[bytes, int] = {}
        self._doubts_before: dict[bytes, None] = {}
        self.recent: dict[bytes, int] = {}
        self.doubts: dict[bytes, None] = {}
        self.watched: dict[bytes, None] = {}
        self.noted: dict[bytes, None] = {}

    def get(self, job_id: bytes) -> int:
        """Return the status with which a job ended here; 0 if that is not known."""
        return self.recent.get(job_id) or self._before.get(job_id, 0)

    def is_doubted(self, job_id: bytes) -> bool:
        """Return whether a job that completed may have a result that this node does not know."""
        return job_id in self.doubts or job_id in self._doubts_before

    def note(self, job_id: bytes) -> None:
        """Note that the status of a job may have changed here."""
        if job_id in self.watched:
            self.noted[job_id] = None

    def note_all(self) -> None:
        """Note all ids that are waited for."""
        self.noted.update(self.watched)

    def expire(self, now_ms: int) -> None:
        """Forget ends that are old enough, or too many; called often."""
        if now_ms - self._since_ms >= self._keep_ms or len(self.recent) >= GENERATION_MAX:
            self._before = self.recent
            self.recent = {}
            self._doubts_before = self.doubts
            self.doubts = {}
            self._since_ms = now_ms

    def clear(self) -> None:
        """Forget the ends of all jobs, because all jobs are gone (reset.py)."""
        self._before = {}
        self.recent = {}
        self._doubts_before = {}
        self.doubts = {}
        self.note_all()
