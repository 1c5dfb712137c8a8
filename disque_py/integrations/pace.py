"""The number of jobs that a worker fetches with one command: as many as it finishes in a short time.

With quick tasks, a GETJOB for every ten jobs costs the worker more than the tasks. With slow tasks, a worker that
fetches a hundred jobs holds them back while other workers are free. So a worker begins with ten, and then asks for as
many jobs as it finished in PACE_S. Finished jobs are counted, and not started ones, because a worker may start its
first hundred slow tasks immediately. Pure: the caller passes the time.
"""

from __future__ import annotations

from typing import Final

# About the most seconds that a fetched job waits, as long as the durations of tasks do not change.
PACE_S: Final = 0.02
COUNT_MIN: Final = 10
COUNT_MAX: Final = 100


class Pace:
    """The jobs that a worker has finished, and the number that it fetches next.

    count_max   the largest number of jobs to fetch with one command
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
