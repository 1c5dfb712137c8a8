"""SortedJobs: pending jobs in the order of delivery, from which any job can be removed.

A queue's own order (priority_queue.py) keeps a dead entry when a job leaves without `pop`. An index must not do that,
because QLEN shows its length, and most of its jobs leave through the queue instead of through the index. So the entries
are in sorted parts of bounded length, and two bisections find any entry. To add or remove a job costs O(log n)
comparisons and moves at most one part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from disque_py.core.job import Job
from disque_py.core.priority_queue import Key, key_of

PART_MAX: Final = 512


class SortedJobs:
    """Jobs sorted by (priority, creation time, id).

    keys, jobs   parts of at most PART_MAX entries; keys[n][i] is the key of jobs[n][i]
    lasts        the last key of each part
    length       the number of jobs
    """

    __slots__ = ("jobs", "keys", "lasts", "length")

    def __init__(self) -> None:
        self.keys: list[list[Key]] = []
        self.jobs: list[list[Job]] = []
        self.lasts: list[Key] = []
        self.length = 0

    def add(self, job: Job) -> bool:
        """Add a job. Return False if it was there already."""
        key = key_of(job)
        lasts = self.lasts
        if not lasts or key > lasts[-1]:
            if not lasts or len(self.keys[-1]) >= PART_MAX:
                self.keys.append([key])
                self.jobs.append([job])
                lasts.append(key)
            else:
                self.keys[-1].append(key)
                self.jobs[-1].append(job)
                lasts[-1] = key
            self.length += 1
            return True
        number = bisect_left(lasts, key)
        keys = self.keys[number]
        at = bisect_left(keys, key)
        if keys[at] == key:
            return False
        keys.insert(at, key)
        self.jobs[number].insert(at, job)
        self.length += 1
        if len(keys) > PART_MAX:
            self._split(number)
        return True

    def remove(self, job: Job) -> bool:
        """Remove a job. Its key must not have changed since it was added. Return whether it was there."""
        key = key_of(job)
        number = bisect_left(self.lasts, key)
        if number == len(self.lasts):
            return False
        keys = self.keys[number]
        at = bisect_left(keys, key)
        if keys[at] != key:
            return False
        del keys[at]
        del self.jobs[number][at]
        self.length -= 1
        if not keys:
            del self.keys[number]
            del self.jobs[number]
            del self.lasts[number]
        elif at == len(keys):
            self.lasts[number] = keys[-1]
        return True

    def first(self) -> Job | None:
        """Return the first job; None if there is none."""
        return self.jobs[0][0] if self.jobs else None

    def last(self) -> Job | None:
        """Return the last job; None if there is none."""
        return self.jobs[-1][-1] if self.jobs else None

    def first_key(self) -> Key | None:
        """Return the key of the first job; None if there is none."""
        return self.keys[0][0] if self.keys else None

    def in_order(self) -> Iterator[tuple[Key, Job]]:
        """Yield keys and jobs, from first to last."""
        for keys, jobs in zip(self.keys, self.jobs, strict=True):
            yield from zip(keys, jobs, strict=True)

    def backwards(self) -> Iterator[tuple[Key, Job]]:
        """Yield keys and jobs, from last to first."""
        for keys, jobs in zip(reversed(self.keys), reversed(self.jobs), strict=True):
            yield from zip(reversed(keys), reversed(jobs), strict=True)

    def dismantle(self) -> Iterator[None]:
        """Free the memory of jobs that are not needed any more, a part per step."""
        self.lasts = []
        while self.keys:
            self.keys.pop()
            self.jobs.pop()
            yield

    def _split(self, number: int) -> None:
        keys, jobs = self.keys[number], self.jobs[number]
        half = len(keys) // 2
        self.keys.insert(number + 1, keys[half:])
        self.jobs.insert(number + 1, jobs[half:])
        del keys[half:]
        del jobs[half:]
        self.lasts.insert(number, keys[-1])
