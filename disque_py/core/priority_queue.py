"""PriorityQueue: jobs in the order of delivery, which is (priority, creation time, id).

A job without a PRIORITY has its creation time in milliseconds as priority. Nearly all such jobs arrive in order. They
form the *run*: a list that is consumed from one end, full chunks, and a list that grows at the other end.

Some jobs arrive out of order: they were requeued, handed over, or come from a node with a slower clock. These jobs and
all jobs with a PRIORITY go into sorted *parts* of bounded length. Two bisections find the place, and at most one part
is moved. The next job is the smaller of the heads of run and parts.

In the run, push and pop are O(1). In the parts, a push costs O(log n) comparisons. A pop needs no search, because the
first entries of the first part are served next. No operation rebuilds the whole structure.

An entry counts only while its job is QUEUED. queue.py keeps the counts, and reuses a dead entry when its job returns.
It also inlines the path of push and pop that nearly every job takes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import count, islice
from typing import Final

from disque_py.core.job import CTIMES_PER_MS, QUEUED, Job

CHUNK: Final = 4096
# The most entries of a part. A longer part is split. Moving this many references costs less than one comparison.
PART_MAX: Final = 2048

# Breaks ties between equal keys, so that jobs are never compared. An id may return while its dead entry is still there.
_serials = count()

Key = tuple[int, int, bytes]
Entry = tuple[int, int, bytes, int, Job]

# Replaces an entry that was taken from the first part. No code reads it.
_TAKEN: Final[Entry] = (0, 0, b"", 0, None)  # type: ignore[assignment]  # Never read.


class PriorityQueue:
    """Jobs in the order of delivery.

    head        the next jobs of the run, reversed: its last element is the first job of the run
    chunks, tail   the rest of the run
    last_ctime  the creation time of the run's last job
    parts       the sorted entries of all other jobs; the first of them is parts[0][at]
    ranks       the priorities of each part's entries; bisecting an array of numbers is faster than bisecting entries
    lasts, last_ranks   the last entry of each part, and its priority
    """

    __slots__ = ("at", "chunks", "head", "last_ctime", "last_ranks", "lasts", "parts", "ranks", "tail")

    def __init__(self) -> None:
        self.head: list[Job] = []
        self.chunks: deque[list[Job]] = deque()
        self.tail: list[Job] = []
        self.last_ctime = 0
        self.parts: list[list[Entry]] = []
        self.ranks: list[array[int]] = []
        self.lasts: list[Entry] = []
        self.last_ranks: list[int] = []
        self.at = 0

    def push_aside(self, job: Job) -> None:
        """Insert a job that is out of the order of the run."""
        rank = job.priority
        entry = (rank, job.ctime, job.id, next(_serials), job)
        parts = self.parts
        lasts = self.lasts
        if not parts or entry > lasts[-1]:
            if not parts or len(parts[-1]) >= PART_MAX:
                parts.append([entry])
                self.ranks.append(array("q", (rank,)))
                lasts.append(entry)
                self.last_ranks.append(rank)
            else:
                parts[-1].append(entry)
                self.ranks[-1].append(rank)
                lasts[-1] = entry
                self.last_ranks[-1] = rank
            return
        last_ranks = self.last_ranks
        number = bisect_left(last_ranks, rank)
        if last_ranks[number] == rank:
            number = bisect_left(lasts, entry, number, bisect_right(last_ranks, rank, number))
        part = parts[number]
        ranks = self.ranks[number]
        at = self.at if number == 0 else 0
        place = bisect_left(ranks, rank, at)
        if place < len(ranks) and ranks[place] == rank:
            place = bisect_left(part, entry, place, bisect_right(ranks, rank, place))
        if 0 < place == at:
            self.at = at - 1
            part[at - 1] = entry
            ranks[at - 1] = rank
            return
        part.insert(place, entry)
        ranks.insert(place, rank)
        if len(part) > PART_MAX:
            self._split(number, part)

    def _split(self, number: int, part: list[Entry]) -> None:
        ranks = self.ranks[number]
        if number == 0:
            del part[: self.at]
            del ranks[: self.at]
            self.at = 0
        half = len(part) // 2
        if half:
            self._put(number + 1, part[half:])
            self._set(number, part[:half])

    def _put(self, number: int, part: list[Entry]) -> None:
        self.parts.insert(number, part)
        self.ranks.insert(number, array("q"))
        self.lasts.insert(number, part[-1])
        self.last_ranks.insert(number, 0)
        self._set(number, part)

    def _set(self, number: int, part: list[Entry]) -> None:
        self.parts[number] = part
        self.ranks[number] = array("q", [entry[0] for entry in part])
        self.lasts[number] = part[-1]
        self.last_ranks[number] = part[-1][0]

    def _drop(self, number: int) -> None:
        del self.parts[number]
        del self.ranks[number]
        del self.lasts[number]
        del self.last_ranks[number]

    def smallest(self) -> Job:
        """Remove and return the first job of run and parts.

        At least one of them must have an entry. If the run has one, `head` must not be empty.
        """
        head = self.head
        if not self.parts:
            return head.pop()
        part = self.parts[0]
        at = self.at
        entry = part[at]
        if head and key_of(head[-1]) < entry[:3]:
            return head.pop()
        at += 1
        if at < len(part):
            part[at - 1] = _TAKEN
            self.at = at
        else:
            self._drop(0)
            self.at = 0
        return entry[4]

    def remove(self, job: Job) -> bool:
        """Remove a job's entry, wherever it is. Return whether there was one."""
        if _removed(self.head, job, is_reversed=True) or _removed(self.tail, job):
            return True
        for chunk in self.chunks:
            if chunk and chunk[-1].ctime >= job.ctime and _removed(chunk, job):
                return True
        key = key_of(job)
        number = bisect_left(self.lasts, key)  # A key sorts before the longer entries that begin with it.
        if number == len(self.lasts):
            return False
        part = self.parts[number]
        place = bisect_left(part, key, self.at if number == 0 else 0)
        while place == len(part) or part[place][4] is not job:
            # An earlier copy of the job may have left a dead entry with the same key.
            if place == len(part):
                number, place = number + 1, -1
                if number == len(self.parts):
                    return False
                part = self.parts[number]
            elif part[place][:3] != key:
                return False
            place += 1
        del part[place]
        if len(part) == (self.at if number == 0 else 0):
            self._drop(number)
            if number == 0:
                self.at = 0
        else:
            del self.ranks[number][place]
            self.lasts[number] = part[-1]
            self.last_ranks[number] = part[-1][0]
        return True

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
        head = self.head or self.next_chunk()
        keys = [self.parts[0][self.at][:3]] if self.parts else []
        if head:
            keys.append(key_of(head[-1]))
        return min(keys, default=None)

    def first(self) -> Job | None:
        """Return the job of the first entry, living or dead; None if there is none."""
        head = self.head or self.next_chunk()
        if not self.parts:
            return head[-1] if head else None
        entry = self.parts[0][self.at]
        return head[-1] if head and key_of(head[-1]) < entry[:3] else entry[4]

    def sweep(self, keeps: Callable[[Job], bool]) -> Iterator[None]:
        """Drop the entries for which `keeps` is false, a part per step. Pushes and pops may happen between steps.

        Such a push or pop may move entries that the sweep has not reached. The sweep then misses them, and the next
        sweep drops them.
        """
        number = 0
        while number < len(self.parts):
            at = self.at if number == 0 else 0
            part = [entry for entry in islice(self.parts[number], at, None) if keeps(entry[4])]
            if number == 0:
                self.at = 0
            if part:
                self._set(number, part)
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
        self.ranks, self.lasts, self.last_ranks = [], [], []
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
        for sorted_part in self.parts:
            if left < len(sorted_part):
                found.append(sorted_part[left][:2])
                break
            left -= len(sorted_part)
        left = position
        for part, is_reversed in ((self.head, True), *((chunk, False) for chunk in self.chunks), (self.tail, False)):
            if left < len(part):
                found.append(key_of(part[-1 - left if is_reversed else left])[:2])
                break
            left -= len(part)
        return min(found, default=None)

    def jobs(self) -> Iterator[Job]:
        """Yield living jobs, from first to last."""
        if self.parts:
            for entry in self.in_order():
                yield entry[4]
        else:
            for job in self._run():
                if job.state == QUEUED:
                    yield job

    def first_lists(self, count: int) -> list[list[Job]]:
        """Return two ordered lists of up to `count` living jobs. Together they contain the first `count` jobs."""
        return [list(islice(_living(self._run()), count)), list(islice(_living_aside(self._aside()), count))]

    def last_lists(self, count: int) -> list[list[Job]]:
        """Return two lists of up to `count` living jobs, from last to first. Together they contain the last `count`."""
        run = list(islice(_living(self._run_backwards()), count))
        return [run, list(islice(_living_aside(self._aside_backwards()), count))]

    def in_order(self) -> Iterator[Entry]:
        """Yield living entries, from first to last. The cost grows with the number of entries taken."""
        for entry in merge(map(_entry, self._run()), self._aside(), key=entry_key):
            if entry[4].state == QUEUED:
                yield entry

    def backwards(self) -> Iterator[Entry]:
        """Yield living entries, from last to first."""
        run = map(_entry, self._run_backwards())
        for entry in merge(run, self._aside_backwards(), reverse=True, key=entry_key):
            if entry[4].state == QUEUED:
                yield entry

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

    def _aside(self) -> Iterator[Entry]:
        at = self.at
        for part in self.parts:
            yield from islice(part, at, None)
            at = 0

    def _aside_backwards(self) -> Iterator[Entry]:
        for number in range(len(self.parts) - 1, -1, -1):
            part = self.parts[number]
            yield from islice(reversed(part), len(part) - (self.at if number == 0 else 0))


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


def _living_aside(entries: Iterator[Entry]) -> Iterator[Job]:
    for entry in entries:
        if entry[4].state == QUEUED:
            yield entry[4]


def key_of(job: Job) -> Key:
    """Return the key by which a queue orders its jobs."""
    return (job.ctime // CTIMES_PER_MS if job.attributes is None else job.priority, job.ctime, job.id)


def entry_key(entry: Entry) -> tuple[int, int, bytes, int]:
    """Return the key by which entries are merged: all fields except the job."""
    return entry[:4]


def _entry(job: Job) -> Entry:
    return (*key_of(job), -1, job)
