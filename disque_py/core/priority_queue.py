"""PriorityQueue: jobs in the order of delivery, which is (priority, creation time, id).

A job without a PRIORITY has its creation time in milliseconds as priority. Nearly all such jobs arrive in order. They
form the *run*: a list that is consumed from one end, full chunks, and a list that grows at the other end.

Some jobs arrive out of order: they were requeued, handed over, or come from a node with a slower clock. These jobs and
all jobs with a PRIORITY go into sorted *parts* of bounded length. Two bisections find the place, and at most one part
is moved. The next job is the smaller of the heads of run and parts.

In the run, push and pop are O(1). In the parts, a push costs O(log n) comparisons. A pop needs no search, because the
first entries of the first part are served next. No operation rebuilds the whole structure.

A part is a list of jobs, and an array of their priorities. So an entry takes sixteen bytes. With millions of jobs in a
random order, nearly everything that is read or moved comes from main memory. So a search reads numbers, and looks at
jobs only if their priorities are equal. In a long queue, a job with a priority of its own is only put before the last
entry of its part. Such a part is *loose*: its last entry is its greatest, the others are in any order. A loose part is
sorted when its order is needed: before its jobs are next, and when jobs are listed. It is also sorted when it is split,
but only by priority. That reads no job, and its halves are sorted faster later.

A processor waits for one job in main memory as long as for ten, if it knows their places in advance. So in a long queue
the jobs that are next are read in groups, shortly before they are served one by one (`read_ahead`).

An entry counts only while its job is QUEUED. queue.py keeps the counts, and reuses a dead entry when its job returns.
It also inlines the path of push and pop that nearly every job takes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge
from itertools import islice, repeat
from typing import Any, Final

from disque_py.core.job import CTIMES_PER_MS, QUEUED, Job

# Jobs of a full chunk (queue.py fills the tail), and jobs that one step of `dismantle` frees.
CHUNK: Final = 4096
# The most entries of a part. A longer part is split. Moving this many references costs less than one comparison.
PART_MAX: Final = 2048
# With fewer parts than this, all of them are in the processor's caches, so they are kept sorted.
LOOSE_MIN: Final = 16
# The jobs that are read ahead together, with their bodies and ids. They fit into the smallest of the caches.
AHEAD: Final = 64
# Integers up to this are exact as floats.
FLOAT_EXACT: Final = 1 << 53

Key = tuple[int, int, bytes]

# Replaces a job that was taken from the first part. No code reads it.
_TAKEN: Final[Job] = None  # type: ignore[assignment]  # Never read.


class PriorityQueue:
    """Jobs in the order of delivery.

    head        the next jobs of the run, reversed: its last element is the first job of the run
    chunks, tail   the rest of the run
    last_ctime  the creation time of the run's last job
    parts       all other jobs, sorted; the first of them is parts[0][at]
    ranks       the priorities of each part's jobs
    last_ranks  the priority of each part's last job
    loose       for each part, whether it is loose; the first part never is
    ahead       up to which index the first part's jobs were read ahead
    """

    __slots__ = ("ahead", "at", "chunks", "head", "last_ctime", "last_ranks", "loose", "parts", "ranks", "tail")

    def __init__(self) -> None:
        self.head: list[Job] = []
        self.chunks: deque[list[Job]] = deque()
        self.tail: list[Job] = []
        self.last_ctime = 0
        self.parts: list[list[Job]] = []
        self.ranks: list[array[int]] = []
        self.last_ranks: array[int] = array("q")
        self.loose: list[bool] = []
        self.at = 0
        self.ahead = 0

    def push_aside(self, job: Job) -> None:
        """Insert a job that is out of the order of the run."""
        rank = job.priority
        parts = self.parts
        last_ranks = self.last_ranks
        if not parts or rank > last_ranks[-1] or (rank == last_ranks[-1] and is_before(parts[-1][-1], job)):
            if not parts or len(parts[-1]) >= PART_MAX:
                parts.append([job])
                self.ranks.append(array("q", (rank,)))
                last_ranks.append(rank)
                self.loose.append(False)
            else:
                parts[-1].append(job)
                self.ranks[-1].append(rank)
                last_ranks[-1] = rank
            return
        number = part_of(self.parts, last_ranks, rank, job)
        part = parts[number]
        ranks = self.ranks[number]
        if number > 0 and len(parts) >= LOOSE_MIN:
            part.insert(-1, job)
            ranks.insert(-1, rank)
            self.loose[number] = True
            if len(part) > PART_MAX:
                self._split_loose(number)
            return
        if self.loose[number]:  # There were more parts before.
            self._sort(number)
            part = parts[number]
            ranks = self.ranks[number]
        place = place_of(part, ranks, rank, job, self.at if number == 0 else 0)
        if number == 0 and 0 < place == self.at:
            place -= 1
            self.at = place
            part[place] = job
            ranks[place] = rank
            return
        part.insert(place, job)
        ranks.insert(place, rank)
        if len(part) > PART_MAX:
            self._split(number)

    def _sort(self, number: int) -> None:
        """Sort a loose part."""
        part = self.parts[number]
        values = self.ranks[number].tolist()
        order = sorted(range(len(part)), key=_comparable(values).__getitem__)
        copied = part[:]  # Reads all jobs, which the next line does in a random order.
        jobs = [copied[at] for at in order]
        ordered = [values[at] for at in order]
        first = 0
        for at in range(1, len(ordered) + 1):
            if at == len(ordered) or ordered[at] != ordered[first]:
                if at > first + 1:
                    jobs[first:at] = sorted(jobs[first:at], key=_age)
                first = at
        self.parts[number] = jobs
        self.ranks[number] = array("q", ordered)
        self.loose[number] = False

    def _split(self, number: int) -> None:
        """Split a sorted part into halves."""
        part, ranks = self.parts[number], self.ranks[number]
        if number == 0:
            del part[: self.at]
            del ranks[: self.at]
            self.at = self.ahead = 0
        half = len(part) // 2
        if half:
            self.parts.insert(number + 1, part[half:])
            self.ranks.insert(number + 1, ranks[half:])
            self.last_ranks.insert(number, ranks[half - 1])
            self.loose.insert(number, False)
            del part[half:]
            del ranks[half:]

    def _split_loose(self, number: int) -> None:
        """Split a loose part into two loose parts: the jobs up to a priority, and the others."""
        low = self.parts[number]
        keys = _comparable(self.ranks[number].tolist())
        # Sort and pop move references to jobs. They don't read the jobs.
        low.sort(key=partial(next, iter(keys)))
        keys.sort()
        low_ranks = array("q", list(map(int, keys)))
        half = len(low) // 2
        cut = bisect_right(low_ranks, low_ranks[half])
        if cut == len(low):
            cut = bisect_left(low_ranks, low_ranks[half])
            if not cut:
                self._sort(number)  # All jobs have the same priority.
                self._split(number)
                return
        self.ranks[number] = low_ranks
        high = list(map(low.pop, repeat(-1, len(low) - cut)))
        high.reverse()
        high_ranks = low_ranks[cut:]
        del low_ranks[cut:]
        _put_greatest_last(low, low_ranks)
        _put_greatest_last(high, high_ranks)
        self.parts.insert(number + 1, high)
        self.ranks.insert(number + 1, high_ranks)
        self.last_ranks.insert(number, low_ranks[-1])
        self.loose.insert(number, True)

    def _drop(self, number: int) -> None:
        del self.parts[number]
        del self.ranks[number]
        del self.last_ranks[number]
        del self.loose[number]
        if number == 0 and self.parts and self.loose[0]:
            self._sort(0)

    def smallest(self) -> Job:
        """Remove and return the first job of run and parts.

        At least one of them must have an entry. If the run has one, `head` must not be empty.
        """
        head = self.head
        if not self.parts or (head and self._is_run_first(head[-1])):
            return head.pop()
        part = self.parts[0]
        at = self.at
        job = part[at]
        if at + 1 < len(part):
            part[at] = _TAKEN
            self.at = at + 1
            if at >= self.ahead and len(self.parts) >= LOOSE_MIN:
                self.ahead = at + AHEAD
                read_ahead(part[at + 1 : at + 1 + AHEAD])
        else:
            self._drop(0)
            self.at = self.ahead = 0
        return job

    def _is_run_first(self, job: Job) -> bool:
        """Return whether this job, the first of the run, is before all parts. There must be a part."""
        rank, first = job.priority, self.ranks[0][self.at]
        return rank < first or (rank == first and is_before(job, self.parts[0][self.at]))

    def remove(self, job: Job) -> bool:
        """Remove a job's entry, wherever it is. Return whether there was one."""
        if _removed(self.head, job, is_reversed=True) or _removed(self.tail, job):
            return True
        for chunk in self.chunks:
            if chunk and chunk[-1].ctime >= job.ctime and _removed(chunk, job):
                return True
        rank = job.priority
        number = part_of(self.parts, self.last_ranks, rank, job)
        while number < len(self.parts):
            part = self.parts[number]
            place = self._index(number, rank, job)
            if place >= 0:
                self._delete(number, place)
                return True
            if part[-1].id != job.id:
                return False
            number += 1  # Earlier copies of the job left dead entries with the same key, up to the end of this part.
        return False

    def _index(self, number: int, rank: int, job: Job) -> int:
        """Return the index of a job in a part, or -1."""
        part, ranks = self.parts[number], self.ranks[number]
        if self.loose[number]:
            place = -1
            try:
                while place < 0 or part[place] is not job:
                    place = ranks.index(rank, place + 1)
            except ValueError:
                return -1
            return place
        place = place_of(part, ranks, rank, job, self.at if number == 0 else 0)
        while place < len(part) and ranks[place] == rank and part[place].id == job.id:
            if part[place] is job:
                return place
            place += 1
        return -1

    def _delete(self, number: int, place: int) -> None:
        part, ranks = self.parts[number], self.ranks[number]
        del part[place]
        if len(part) == (self.at if number == 0 else 0):
            if number == 0:
                self.at = self.ahead = 0
            self._drop(number)
            return
        del ranks[place]
        if place == len(part) and self.loose[number]:
            self._sort(number)
            ranks = self.ranks[number]
        self.last_ranks[number] = ranks[-1]

    def next_chunk(self) -> list[Job]:
        """Make the oldest chunk of the run, reversed, the new head. Return it; it is empty if the run is."""
        chunks = self.chunks
        head: list[Job] = []
        while chunks and not head:
            head = chunks.popleft()
        if not head:
            head = self.tail
            self.tail = []
        if not head:
            self.last_ctime = 0  # The run is empty and may start again with any key.
        head.reverse()
        self.head = head
        return head

    def first_key(self) -> Key | None:
        """Return the key of the first entry, living or dead; None if there is none."""
        first = self.first()
        return None if first is None else key_of(first)

    def first(self) -> Job | None:
        """Return the job of the first entry, living or dead; None if there is none."""
        head = self.head or self.next_chunk()
        if not self.parts:
            return head[-1] if head else None
        return head[-1] if head and self._is_run_first(head[-1]) else self.parts[0][self.at]

    def sweep(self, keeps: Callable[[Job], bool]) -> Iterator[None]:
        """Drop the entries for which `keeps` is false, a part per step. Pushes and pops may happen between steps.

        Such a push or pop may move entries that the sweep has not reached. The sweep then misses them, and the next
        sweep drops them.
        """
        number = 0
        while number < len(self.parts):
            if self.loose[number]:
                self._sort(number)
            at = self.at if number == 0 else 0
            part: list[Job] = []
            ranks = array("q")
            for job, rank in islice(zip(self.parts[number], self.ranks[number], strict=True), at, None):
                if keeps(job):
                    part.append(job)
                    ranks.append(rank)
            if number == 0:
                self.at = self.ahead = 0
            if part:
                self.parts[number] = part
                self.ranks[number] = ranks
                self.last_ranks[number] = ranks[-1]
                number += 1
            else:
                self._drop(number)
            yield
        self.head = [job for job in self.head if keeps(job)]
        yield
        number = 0
        while number < len(self.chunks):
            self.chunks[number] = [job for job in self.chunks[number] if keeps(job)]
            number += 1
            yield
        self.tail = [job for job in self.tail if keeps(job)]
        yield

    def dismantle(self) -> Iterator[None]:
        """Free the memory of a dropped priority queue, a part per step."""
        self.ranks, self.last_ranks, self.loose = [], array("q"), []
        for part in (self.head, self.tail):
            while part:
                del part[-CHUNK:]
                yield
        while self.parts or self.chunks:
            if self.parts:
                self.parts.pop()
            if self.chunks:
                self.chunks.pop()
            yield

    def key_at(self, position: int) -> tuple[int, int] | None:
        """Return the smaller (priority, creation time) at index `position` of run and parts; None if both are shorter.

        A job that sorts after this is certainly not among the first `position` jobs.
        """
        found: list[tuple[int, int]] = []
        left = position + self.at
        for number, aside in enumerate(self.parts):
            if left < len(aside):
                if self.loose[number]:
                    self._sort(number)
                found.append(key_of(self.parts[number][left])[:2])
                break
            left -= len(aside)
        left = position
        for part, is_reversed in ((self.head, True), *((chunk, False) for chunk in self.chunks), (self.tail, False)):
            if left < len(part):
                found.append(key_of(part[-1 - left if is_reversed else left])[:2])
                break
            left -= len(part)
        return min(found, default=None)

    def jobs(self) -> Iterator[Job]:
        """Yield living jobs, from first to last. The cost grows with the number of jobs taken."""
        return _living(merge(self._run(), self._aside(), key=key_of) if self.parts else self._run())

    def backwards(self) -> Iterator[Job]:
        """Yield living jobs, from last to first."""
        return _living(merge(self._run_backwards(), self._aside_backwards(), reverse=True, key=key_of))

    def first_lists(self, count: int) -> list[list[Job]]:
        """Return two ordered lists of up to `count` living jobs. Together they contain the first `count` jobs."""
        return [list(islice(_living(jobs), count)) for jobs in (self._run(), self._aside())]

    def last_lists(self, count: int) -> list[list[Job]]:
        """Return two lists of up to `count` living jobs, from last to first. Together they contain the last `count`."""
        return [list(islice(_living(jobs), count)) for jobs in (self._run_backwards(), self._aside_backwards())]

    def _run(self) -> Iterator[Job]:
        yield from reversed(self.head)
        for chunk in self.chunks:
            yield from chunk
        yield from self.tail

    def _run_backwards(self) -> Iterator[Job]:
        yield from reversed(self.tail)
        for chunk in reversed(self.chunks):
            yield from reversed(chunk)
        yield from self.head

    def _aside(self) -> Iterator[Job]:
        at = self.at
        number = 0
        while number < len(self.parts):
            if self.loose[number]:
                self._sort(number)
            yield from islice(self.parts[number], at, None)
            at = 0
            number += 1

    def _aside_backwards(self) -> Iterator[Job]:
        for number in range(len(self.parts) - 1, -1, -1):
            if self.loose[number]:
                self._sort(number)
            part = self.parts[number]
            yield from islice(reversed(part), len(part) - (self.at if number == 0 else 0))


def read_ahead(jobs: list[Job]) -> None:
    """Read the fields of jobs that their delivery reads. No read depends on another job, so they overlap."""
    _states = 0
    for job in jobs:
        _states += job.state
    _bodies = [job.body for job in jobs]
    _ids = [job.id for job in jobs]


def _comparable(values: list[int]) -> list[Any]:
    """Return integers as floats, which are compared fastest, unless some would not be exact."""
    return list(map(float, values)) if max(values) <= FLOAT_EXACT and min(values) >= -FLOAT_EXACT else values


def _put_greatest_last(part: list[Job], ranks: array[int]) -> None:
    """Move the greatest entry of a part that is sorted by priority to its end."""
    greatest = last = len(part) - 1
    for at in range(last - 1, -1, -1):
        if ranks[at] != ranks[last]:
            break
        if is_before(part[greatest], part[at]):
            greatest = at
    part[greatest], part[last] = part[last], part[greatest]


def is_before(one: Job, other: Job) -> bool:
    """Return whether `one` comes before `other`, if both have the same priority."""
    return one.ctime < other.ctime or (one.ctime == other.ctime and one.id < other.id)


def part_of(parts: list[list[Job]], last_ranks: array[int], rank: int, job: Job) -> int:
    """Return the number of the first part whose last job is not before this one; the number of parts if there is none.

    last_ranks   the priority of each part's last job
    rank         the priority of `job`
    """
    number = bisect_left(last_ranks, rank)
    if number < len(last_ranks) and last_ranks[number] == rank:
        end = bisect_right(last_ranks, rank, number)
        while number < end:
            middle = (number + end) >> 1
            if is_before(parts[middle][-1], job):
                number = middle + 1
            else:
                end = middle
    return number


def place_of(part: list[Job], ranks: array[int], rank: int, job: Job, start: int = 0) -> int:
    """Return the index of the first job of a sorted part that is not before this one; if there is none, its length.

    ranks   the priorities of the part's jobs
    rank    the priority of `job`
    start   the index of the part's first job
    """
    place = bisect_left(ranks, rank, start)
    if place < len(ranks) and ranks[place] == rank:
        end = bisect_right(ranks, rank, place)
        while place < end:
            middle = (place + end) >> 1
            if is_before(part[middle], job):
                place = middle + 1
            else:
                end = middle
    return place


def _removed(jobs: list[Job], job: Job, *, is_reversed: bool = False) -> bool:
    """Remove a job from a list of the run, which is sorted by creation time. Return whether it was there."""
    at = bisect_left(jobs, -job.ctime, key=_minus_ctime) if is_reversed else bisect_left(jobs, job.ctime, key=_ctime)
    if at == len(jobs) or jobs[at] is not job:
        return False
    del jobs[at]
    return True


def _ctime(job: Job) -> int:
    return job.ctime


def _minus_ctime(job: Job) -> int:
    return -job.ctime


def _living(jobs: Iterator[Job]) -> Iterator[Job]:
    for job in jobs:
        if job.state == QUEUED:
            yield job


def _age(job: Job) -> tuple[int, bytes]:
    return (job.ctime, job.id)


def key_of(job: Job) -> Key:
    """Return the key by which a queue orders its jobs."""
    return (job.ctime // CTIMES_PER_MS if job.attributes is None else job.priority, job.ctime, job.id)
