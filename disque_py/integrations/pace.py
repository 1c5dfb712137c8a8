"""The number of jobs that a worker fetches at once: as many as it finishes in a short time.

A GETJOB for each ten jobs costs a worker of quick tasks more than the tasks. A worker of slow tasks that fetches a
hundred holds jobs back while other workers are free. So a worker begins with ten, and then asks for as many jobs as it
finished in PACE_S. Jobs that it finished count, and not jobs that it took, because a worker takes its first hundred
slow tasks in no time. Pure: the caller passes the time.
"""

from __future__ import annotations

from typing import Final

# A fetched job waits about so many seconds at most, as long as tasks go on to take as long as those before.
PACE_S: Final = 0.02
COUNT_MIN: Final = 10
COUNT_MAX: Final = 100


class Pace:
    """The jobs that a worker has finished, and the number that it fetches next.

    count_max   the largest number of jobs at once
    """

    __slots__ = ("_count", "_finished", "_since", "count_max")

    def __init__(self, count_max: int = COUNT_MAX) -> None:
        self.count_max = count_max
        self._count = COUNT_MIN
        self._finished = 0
        self._since = 0.0

    def finish(self) -> None:
        """Note that a job is done."""
        self._finished += 1

    def count(self, now: float) -> int:
        """Return the number of jobs to fetch at the moment `now`, in seconds."""
        elapsed = now - self._since
        if elapsed >= PACE_S:
            self._count = max(COUNT_MIN, round(self._finished * PACE_S / elapsed))
            self._finished = 0
            self._since = now
        return min(self._count, self.count_max)
