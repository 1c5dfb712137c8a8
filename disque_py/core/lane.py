"""Lane: jobs in the order in which they are served, (priority, creation time, id).

A job without a PRIORITY of its own has its creation time in milliseconds for one, and nearly all such jobs arrive in
order: they lie in a *run*, a list that is consumed from one end, full chunks, a list that grows at the other. What
arrives out of order (requeued, handed over, from a node with a slower clock), and every job with a PRIORITY, goes to
a heap; the head is the smaller of both. Push and pop are O(1) for the run and O(log n) for the heap, and nothing ever
rebuilds all of it.

An entry counts only while its job is QUEUED; who keeps the counts, and what brings a dead entry back to life, is
queue.py's business. So is the part of push and pop that nearly every job takes, which is written out there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush, merge, nlargest
from itertools import chain, count, repeat
from typing import Final

from disque_py.core.job import CTIMES_PER_MS, QUEUED, Job

CHUNK: Final = 4096
# Entries of a heap moved per step of a sweep: about a millisecond.
HEAP_STEP: Final = 1_000

# Breaks ties in a heap before two jobs would be compared: an id may come back while its dead entry lies there.
_serials = count()

Key = tuple[int, int, bytes]
Entry = tuple[int, int, bytes, int, Job]


class Lane:
    """One order of jobs.

    head        what is served next, reversed: its last element is the first of the run
    chunks, tail   the run behind it
    last_ctime  of the run's last job
    heap, old_heap   all the others; `old_heap` is what a sweep has not moved yet, a heap as well
    has_heap    there is something in one of these
    """

    __slots__ = ("chunks", "has_heap", "head", "heap", "last_ctime", "old_heap", "tail")

    def __init__(self) -> None:
        self.head: list[Job] = []
        self.chunks: deque[list[Job]] = deque()
        self.tail: list[Job] = []
        self.last_ctime = 0
        self.heap: list[Entry] = []
        self.old_heap: list[Entry] = []
        self.has_heap = False

    def push_aside(self, job: Job) -> None:
        """Into the heap: the job does not come in the order of the run."""
        self.has_heap = True
        heappush(self.heap, (job.priority, job.ctime, job.id, next(_serials), job))

    def smallest(self) -> Job:
        """Take the first of run and heaps, at least one of which is not empty; `head` is filled if it can be."""
        heap = self.heap
        old = self.old_heap
        if old and (not heap or old[0] < heap[0]):
            heap = old
        if self.head:
            first = self.head[-1]
            if not heap or key_of(first) < heap[0][:3]:
                return self.head.pop()
        job = heappop(heap)[4]
        if not heap:
            self.has_heap = bool(self.heap or self.old_heap)
        return job

    def next_chunk(self) -> list[Job]:
        """The oldest part of the run, reversed, as the new head; empty when only the heap is left."""
        chunks = self.chunks
        head: list[Job] = []
        while chunks and not head:
            head = chunks.popleft()
        if not head:
            head = self.tail
            self.tail = []
        if not head:
            self.last_ctime = 0  # The run starts anew, with whatever key comes first.
        head.reverse()
        self.head = head
        return head

    def first_key(self) -> Key | None:
        """Of the entry that would be taken next, living or dead; None if there is none."""
        head = self.head or self.next_chunk()
        keys = [heap[0][:3] for heap in (self.heap, self.old_heap) if heap]
        if head:
            keys.append(key_of(head[-1]))
        return min(keys, default=None)

    def sweep(self, keeps: Callable[[Job], bool]) -> Iterator[None]:
        """Drop entries that are not kept, a part per step; pushes and pops may happen between steps."""
        old = self.heap
        self.heap = []
        self.old_heap = old
        while old:
            # The last element of a heap can be taken without disturbing the rest.
            kept = [entry for entry in old[-HEAP_STEP:] if keeps(entry[4])]
            del old[-HEAP_STEP:]
            for entry in kept:
                heappush(self.heap, entry)
            self.has_heap = bool(self.heap or old)
            yield
        self.head = [job for job in self.head if keeps(job)]
        yield
        at = 0
        while at < len(self.chunks):
            # Pops may take chunks from the left meanwhile; what is skipped by that waits for the next sweep.
            self.chunks[at] = [job for job in self.chunks[at] if keeps(job)]
            at += 1
            yield
        self.tail = [job for job in self.tail if keeps(job)]
        yield

    def dismantle(self) -> Iterator[None]:
        """Give back the memory of a lane that is no more, a part per step."""
        for part in (self.heap, self.old_heap, self.head, self.tail):
            while part:
                del part[-CHUNK:]
                yield
        while self.chunks:
            self.chunks.pop()
            yield

    def key_at(self, position: int) -> tuple[int, int] | None:
        """(priority, creation time) of about the `position`-th entry; None if there are not so many.

        Of a heap it is a guess: what stands at an index is usually about so far from the first.
        """
        found: list[tuple[int, int]] = [
            heap[position][:2] for heap in (self.heap, self.old_heap) if len(heap) > position
        ]
        left = position
        for part, is_reversed in chain(((self.head, True),), zip(self.chunks, repeat(False)), ((self.tail, False),)):
            if left < len(part):
                found.append(key_of(part[-1 - left if is_reversed else left])[:2])
                break
            left -= len(part)
        return min(found, default=None)

    def jobs(self) -> Iterator[Job]:
        """Living jobs, first to last."""
        if self.has_heap:
            return (entry[4] for entry in self.in_order())
        return (job for job in self._run() if job.state == QUEUED)

    def in_order(self) -> Iterator[Entry]:
        """Living entries, first to last, at a cost that grows with how many are taken."""
        run = (_entry(job) for job in self._run())
        ordered = merge(run, _heap_in_order(self.heap), _heap_in_order(self.old_heap), key=entry_key)
        return (entry for entry in ordered if entry[4].state == QUEUED)

    def backwards(self, count_max: int) -> Iterator[Entry]:
        """Living entries, last to first; of a heap's not more than `count_max`."""
        run = (_entry(job) for job in self._run_backwards())
        living = [entry for entry in (*self.heap, *self.old_heap) if entry[4].state == QUEUED]
        ordered = merge(run, nlargest(count_max, living, key=entry_key), reverse=True, key=entry_key)
        return (entry for entry in ordered if entry[4].state == QUEUED)

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


def key_of(job: Job) -> Key:
    """What jobs of a queue are ordered by."""
    return (job.ctime // CTIMES_PER_MS if job.traits is None else job.priority, job.ctime, job.id)


def entry_key(entry: Entry) -> tuple[int, int, bytes, int]:
    """What entries are merged by: all but the job."""
    return entry[:4]


def _entry(job: Job) -> Entry:
    return (*key_of(job), -1, job)


def _heap_in_order(heap: list[Entry]) -> Iterator[Entry]:
    """A heap's entries in order, at a cost that grows with how many are taken, not with the heap."""
    front = [(entry_key(heap[0]), 0)] if heap else []
    while front:
        _, at = heappop(front)
        yield heap[at]
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heappush(front, (entry_key(heap[child]), child))
