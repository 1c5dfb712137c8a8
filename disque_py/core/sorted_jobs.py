"""SortedJobs: pending jobs in the order of delivery, from which any job can be removed.

A queue's own order (priority_queue.py) keeps a dead entry when a job leaves without `pop`. An index must not do that,
because QLEN shows its length, and most of its jobs leave through the queue instead of through the index. So the entries
are in sorted parts of bounded length, and two bisections find any entry. To add or remove a job costs O(log n)
comparisons and moves at most one part.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from disque_py.core.job import Job
from disque_py.core.priority_queue import Key, is_before, key_of, part_of, place_of

PART_MAX: Final = 512


class SortedJobs:
    """Jobs sorted by (priority, creation time, id).

    jobs, ranks   parts of at most PART_MAX jobs, and the priorities of each part's jobs
    last_ranks    the priority of each part's last job
    length        the number of jobs
    """

    __slots__ = ("jobs", "last_ranks", "length", "ranks")

    def __init__(self) -> None:
        self.jobs: list[list[Job]] = []
        self.ranks: list[array[int]] = []
        self.last_ranks: array[int] = array("q")
        self.length = 0

    def add(self, job: Job) -> bool:
        """Add a job. Return False if it was there already."""
        rank = job.priority
        parts = self.jobs
        last_ranks = self.last_ranks
        if not parts or rank > last_ranks[-1] or (rank == last_ranks[-1] and is_before(parts[-1][-1], job)):
            if not parts or len(parts[-1]) >= PART_MAX:
                parts.append([job])
                self.ranks.append(array("q", (rank,)))
                last_ranks.append(rank)
            else:
                parts[-1].append(job)
                self.ranks[-1].append(rank)
                last_ranks[-1] = rank
            self.length += 1
            return True
        number = part_of(parts, last_ranks, rank, job)
        part, ranks = parts[number], self.ranks[number]
        at = place_of(part, ranks, rank, job)
        if ranks[at] == rank and part[at].id == job.id:
            return False
        part.insert(at, job)
        ranks.insert(at, rank)
        self.length += 1
        if len(part) > PART_MAX:
            self._split(number)
        return True

    def remove(self, job: Job) -> bool:
        """Remove a job. Its key must not have changed since it was added. Return whether it was there."""
        rank = job.priority
        number = part_of(self.jobs, self.last_ranks, rank, job)
        if number == len(self.jobs):
            return False
        part, ranks = self.jobs[number], self.ranks[number]
        at = place_of(part, ranks, rank, job)
        if ranks[at] != rank or part[at].id != job.id:
            return False
        del part[at]
        del ranks[at]
        self.length -= 1
        if not part:
            del self.jobs[number]
            del self.ranks[number]
            del self.last_ranks[number]
        elif at == len(part):
            self.last_ranks[number] = ranks[-1]
        return True

    def first(self) -> Job | None:
        """Return the first job; None if there is none."""
        return self.jobs[0][0] if self.jobs else None

    def last(self) -> Job | None:
        """Return the last job; None if there is none."""
        return self.jobs[-1][-1] if self.jobs else None

    def first_key(self) -> Key | None:
        """Return the key of the first job; None if there is none."""
        return key_of(self.jobs[0][0]) if self.jobs else None

    def in_order(self) -> Iterator[tuple[Key, Job]]:
        """Yield keys and jobs, from first to last."""
        for part in self.jobs:
            for job in part:
                yield key_of(job), job

    def from_key(self, key: Key) -> Iterator[tuple[Key, Job]]:
        """Yield keys and jobs in order, from the first job whose key is not before this one."""
        parts = self.jobs
        first, end = 0, len(parts)
        while first < end:
            middle = (first + end) // 2
            if key_of(parts[middle][-1]) < key:
                first = middle + 1
            else:
                end = middle
        for number in range(first, len(parts)):
            for job in parts[number]:
                each = key_of(job)
                if number > first or each >= key:
                    yield each, job

    def backwards(self) -> Iterator[tuple[Key, Job]]:
        """Yield keys and jobs, from last to first."""
        for part in reversed(self.jobs):
            for job in reversed(part):
                yield key_of(job), job

    def dismantle(self) -> Iterator[None]:
        """Free the memory of jobs that are not needed any more, a part per step."""
        self.last_ranks = array("q")
        while self.jobs:
            self.jobs.pop()
            self.ranks.pop()
            yield

    def _split(self, number: int) -> None:
        part, ranks = self.jobs[number], self.ranks[number]
        half = len(part) // 2
        self.jobs.insert(number + 1, part[half:])
        self.ranks.insert(number + 1, ranks[half:])
        self.last_ranks.insert(number, ranks[half - 1])
        del part[half:]
        del ranks[half:]
