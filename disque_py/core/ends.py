"""Ends: ids and statuses of jobs that ended recently, and ids of jobs for whose end clients wait.

A job's record is dropped when all nodes know its end. A WAITJOB that comes a little later must still get the right
answer. So each node remembers the ids and statuses of ended jobs for twice the node time-out. The table has two
generations and is bounded, like the table of tombstones. A tombstone says only that a job is done, not how it ended.

An end may be in *doubt*. Then the job is completed, but another node may have a result that this node never heard of or
has dropped. Nodes report such an end as doubtful. It ends a wait only if no linked node knows more (job_waits.py).

`watched` has the ids for which clients here or other nodes wait. lifecycle.py notes a watched id whenever its status
here may have changed. At the end of the turn job_waits.py informs the waiting clients and nodes. A job for which no
client waits costs one look-up. Spec RW5.
"""

from __future__ import annotations

from typing import Final

GENERATION_MAX: Final = 131_072


class Ends:
    """The ends of jobs, and the ids for which clients wait.

    recent    id -> status of a job that ended here; the younger generation, to which other code adds directly
    doubts    ids of ended jobs whose end is in doubt
    watched   ids for which a client or a node waits (job_waits.py)
    noted     watched ids whose job changed in this turn
    """

    __slots__ = ("_before", "_doubts_before", "_since_ms", "doubts", "keep_ms", "noted", "recent", "watched")

    def __init__(self, keep_ms: int) -> None:
        self.keep_ms = keep_ms
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
        """Return whether a completed job may have a result that this node does not know."""
        return job_id in self.doubts or job_id in self._doubts_before

    def note(self, job_id: bytes) -> None:
        """Note that the status of a job may have changed here."""
        if job_id in self.watched:
            self.noted[job_id] = None

    def note_all(self) -> None:
        """Note all watched ids."""
        self.noted.update(self.watched)

    def expire(self, now_ms: int) -> None:
        """Forget ends that are old enough, or too many. Called often."""
        if now_ms - self._since_ms >= self.keep_ms or len(self.recent) >= GENERATION_MAX:
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
