"""ErroredIds: the errored jobs of each queue, so that a queue with such jobs is not dropped.

An errored job is in no queue, and its queue may be idle for days. An operator must still find the job, but QSTAT, QSCAN
and the displays based on them show only queues that exist. So lifecycle.py and other modules add the id of each job
that becomes errored here, or arrives here as an errored job. timers.py asks `has` before it drops a queue.

Nothing is done when a job stops being errored. Ids are checked later, and removed if their job is no longer errored in
this queue. Each `add` checks two ids, so stale ids do not outnumber the others for long. Spec F5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# Ids that one `add` checks. These are more than it adds, so that stale ids disappear in time.
LOOKED_PER_ADD: Final = 2
# Ids that one `has` checks, which takes a tenth of a millisecond. With more stale ids, the queue stays until a later
# check.
LOOKED_PER_QUESTION: Final = 250

# Returns whether the job of an id is errored in the queue of a name.
IsErrored = Callable[[bytes, bytes], bool]


class ErroredIds:
    """Ids of errored jobs by queue; some may be stale.

    by_queue   queue -> its ids, the least recently checked first
    """

    __slots__ = ("_is_errored", "by_queue")

    def __init__(self, is_errored: IsErrored) -> None:
        self._is_errored = is_errored
        self.by_queue: dict[bytes, OrderedDict[bytes, None]] = {}

    def add(self, queue: bytes, job_id: bytes) -> None:
        """Add the id of a job that is errored in a queue."""
        ids = self.by_queue.get(queue)
        if ids is None:
            ids = self.by_queue[queue] = OrderedDict()
        ids[job_id] = None
        for _ in range(LOOKED_PER_ADD):
            self._look(queue, ids)

    def has(self, queue: bytes) -> bool:
        """Return whether a job is errored in the queue. Also return True if too many ids are stale to decide now."""
        ids = self.by_queue.get(queue)
        if ids is None:
            return False
        for _ in range(LOOKED_PER_QUESTION):
            if self._look(queue, ids):
                return True
            if not ids:
                del self.by_queue[queue]
                return False
        return True

    def _look(self, queue: bytes, ids: OrderedDict[bytes, None]) -> bool:
        """Check one id, and remove it if it is stale. Return whether its job is errored in the queue."""
        job_id = next(iter(ids), None)
        if job_id is None:
            return False
        if self._is_errored(queue, job_id):
            ids.move_to_end(job_id)
            return True
        del ids[job_id]
        return False
