"""Queue: the jobs of one name that are ready on this node, and who waits for them.

Order is (ctime, id). Nearly all jobs arrive in order, so they lie in a *run*: a list that is
consumed from one end, full chunks, a list that grows at the other. What arrives out of order
(requeued, handed over, from a node with a slower clock) goes to a heap; the head is the smaller of both.
Push and pop are O(1) for the run and O(log n) for the heap, and nothing ever rebuilds all of it.

A job that leaves by another door than `pop` (acknowledged, expired, dequeued) leaves its entry behind:
an entry counts only while its job is QUEUED. `is_listed` says that an entry exists, so a job that
comes back uses the old one, and `sweep` drops dead entries a chunk at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush, merge, nlargest
from itertools import count
from typing import TYPE_CHECKING, Final

from disque_py.core.job import QUEUED, Job

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client

PAUSED_IN: Final = 1
PAUSED_OUT: Final = 2
PAUSE_NAMES: Final = ("none", "in", "out", "all")

CHUNK: Final = 4096
# Dead entries are worth a sweep when they outnumber the living by this.
DEAD_ENTRIES_MIN: Final = 1024
# Entries of a heap moved per step of a sweep: about a millisecond.
HEAP_STEP: Final = 1_000

# Breaks ties in a heap before two jobs would be compared: an id may come back while its dead entry lies there.
_serials = count()

QUEUE_BYTES: Final = 1200  # The object, its containers and its name's entries, as measured.


Entry = tuple[int, bytes, int, Job]


class Queue:
    """One queue.

    name, head_bytes    its name; the start of a GETJOB entry, encoded once
    length              jobs that are ready
    dead                entries that no longer count
    waiting             clients blocked in GETJOB, in order of arrival
    paused              PAUSED_IN, PAUSED_OUT
    created_ms, active_ms   monotonic; active = last enqueue or fetch
    jobs_in, jobs_out   counters of QSTAT
    sources             nodes that handed us jobs -> when last (QSTAT import-from)
    interested          node -> clients waiting there, as it told us
    ahead, is_stalled   how many of the next jobs have their bodies in memory; whether the very next is waited for
                        (spilling.py)
    """

    __slots__ = (
        "_chunks",
        "_head",
        "_heap",
        "_last_ctime",
        "_old_heap",
        "_tail",
        "active_ms",
        "adhoc_at_ms",
        "adhoc_attempts",
        "ahead",
        "broadcast_at_ms",
        "created_ms",
        "dead",
        "head_bytes",
        "hint_repeats",
        "hint_sent_to",
        "hint_until_ms",
        "hints",
        "import_count",
        "import_previous",
        "import_previous_ms",
        "import_start_ms",
        "interest_timer",
        "interested",
        "is_dropped",
        "is_stalled",
        "jobs_in",
        "jobs_out",
        "length",
        "name",
        "paused",
        "polled_ms",
        "serial",
        "sources",
        "waited_ms",
        "waiting",
    )

    def __init__(self, name: bytes, now_ms: int) -> None:
        self.name = name
        self.head_bytes = b"$%d\r\n%b\r\n$40\r\n" % (len(name), name)
        self.length = 0
        self.dead = 0
        self.waiting: dict[Client, None] = {}
        self.paused = 0
        self.serial = 0
        self.is_dropped = False
        self.ahead = 0
        self.is_stalled = False
        self.created_ms = now_ms
        self.active_ms = now_ms
        self.jobs_in = 0
        self.jobs_out = 0
        # The run: _head is reversed (its last element is the oldest job), then _chunks, then _tail.
        self._head: list[Job] = []
        self._chunks: deque[list[Job]] = deque()
        self._tail: list[Job] = []
        self._heap: list[Entry] = []
        self._old_heap: list[Entry] = []  # What a sweep has not moved yet; a heap as well.
        self._last_ctime = 0
        # Federation (pulls.py, interest.py).
        self.sources: dict[Node, int] = {}
        self.interested: dict[Node, int] = {}
        self.hints: dict[Node, int] = {}
        self.hint_sent_to: Node | None = None
        self.hint_until_ms = 0
        self.hint_repeats = 0
        self.interest_timer = False
        self.waited_ms = 0
        self.polled_ms = 0
        self.import_count = 0
        self.import_previous = 0
        self.import_start_ms = 0
        self.import_previous_ms = 0
        self.broadcast_at_ms = 0
        self.adhoc_at_ms = 0
        self.adhoc_attempts = 0

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} {self.length}>"

    def push(self, job: Job) -> None:
        """Add a job whose state has just become QUEUED."""
        self.length += 1
        if job.is_listed:
            self.dead -= 1
            return  # Its old entry counts again; the key never changes.
        job.is_listed = True
        ctime = job.ctime
        if ctime > self._last_ctime:
            self._last_ctime = ctime
            tail = self._tail
            tail.append(job)
            if len(tail) == CHUNK:
                self._chunks.append(tail)
                self._tail = []
        else:
            heappush(self._heap, (ctime, job.id, next(_serials), job))

    def pop(self) -> Job | None:
        """Take the oldest ready job; its state is the caller's to change. None when empty."""
        head = self._head
        while True:
            if not head:
                head = self._next_chunk()
                if not head and not self._heap and not self._old_heap:
                    return None
            if self._heap or self._old_heap:
                job = self._smallest()
            else:
                job = head.pop()
            job.is_listed = False
            if job.state == QUEUED:
                self.length -= 1
                return job
            self.dead -= 1

    def _smallest(self) -> Job:
        """Take the smallest of run and heaps, at least one of which is not empty."""
        heap = self._heap
        if self._old_heap and (not heap or self._old_heap[0] < heap[0]):
            heap = self._old_heap
        if self._head:
            first = self._head[-1]
            if not heap or (first.ctime, first.id) < heap[0][:2]:
                return self._head.pop()
        return heappop(heap)[3]

    def _next_chunk(self) -> list[Job]:
        """The oldest part of the run, reversed, as the new head; empty when only the heap is left."""
        chunks = self._chunks
        head: list[Job] = []
        while chunks and not head:
            head = chunks.popleft()
        if not head:
            head = self._tail
            self._tail = []
        if not head:
            self._last_ctime = 0  # The run starts anew, with whatever key comes first.
        head.reverse()
        self._head = head
        return head

    def removed(self) -> None:
        """A QUEUED job left without `pop`; its entry stays until it is popped or swept."""
        self.length -= 1
        self.dead += 1

    @property
    def listed(self) -> int:
        """All entries, living and dead."""
        return self.length + self.dead

    @property
    def needs_sweep(self) -> bool:
        """Whether dead entries outnumber the living enough to be worth dropping."""
        return self.dead > self.length + DEAD_ENTRIES_MIN

    def sweep(self) -> Iterator[None]:
        """Drop dead entries, a part per step; pushes and pops may happen between steps."""
        old = self._heap
        self._heap = []
        self._old_heap = old
        while old:
            # The last element of a heap can be taken without disturbing the rest.
            kept = [entry for entry in old[-HEAP_STEP:] if self._keeps(entry[3])]
            del old[-HEAP_STEP:]
            for entry in kept:
                heappush(self._heap, entry)
            yield
        self._head = [job for job in self._head if self._keeps(job)]
        yield
        at = 0
        while at < len(self._chunks):
            # Pops may take chunks from the left meanwhile; what is skipped by that waits for the next sweep.
            self._chunks[at] = [job for job in self._chunks[at] if self._keeps(job)]
            at += 1
            yield
        self._tail = [job for job in self._tail if self._keeps(job)]
        yield

    def dismantle(self) -> Iterator[None]:
        """Give back the memory of a queue that is no more, a part per step."""
        for part in (self._heap, self._old_heap, self._head, self._tail):
            while part:
                del part[-CHUNK:]
                yield
        while self._chunks:
            self._chunks.pop()
            yield

    def _keeps(self, job: Job) -> bool:
        if job.state == QUEUED:
            return True
        job.is_listed = False
        self.dead -= 1
        return False

    def oldest(self) -> Iterator[Job]:
        """Ready jobs, oldest first."""
        run = self._in_run()
        if not self._heap and not self._old_heap:
            return (job for job in run if job.state == QUEUED)
        keyed = ((job.ctime, job.id, -1, job) for job in run)
        ordered = merge(keyed, _in_order(self._heap), _in_order(self._old_heap), key=_key)
        return (job for _, _, _, job in ordered if job.state == QUEUED)

    def ctime_at(self, position: int) -> int:
        """Creation time of about the `position`-th entry of the run, which must be that long, from the head on."""
        left = position
        for part, is_reversed in ((self._head, True), *((chunk, False) for chunk in self._chunks), (self._tail, False)):
            if left < len(part):
                return part[-1 - left if is_reversed else left].ctime
            left -= len(part)
        return self._last_ctime

    def newest(self, count_max: int) -> Iterator[Job]:
        """Up to `count_max` ready jobs, newest first."""
        run = self._in_run_backwards()
        if not self._heap and not self._old_heap:
            return (job for job in run if job.state == QUEUED)
        keyed = ((job.ctime, job.id, -1, job) for job in run)
        heaped = [entry for entry in (*self._heap, *self._old_heap) if entry[3].state == QUEUED]
        ordered = merge(keyed, nlargest(count_max, heaped, key=_key), reverse=True, key=_key)
        return (job for _, _, _, job in ordered if job.state == QUEUED)

    def _in_run(self) -> Iterator[Job]:
        yield from reversed(self._head)
        for chunk in self._chunks:
            yield from chunk
        yield from self._tail

    def _in_run_backwards(self) -> Iterator[Job]:
        yield from reversed(self._tail)
        for chunk in reversed(self._chunks):
            yield from reversed(chunk)
        yield from self._head


def _key(entry: Entry) -> tuple[int, bytes, int]:
    return entry[:3]


def _in_order(heap: list[Entry]) -> Iterator[Entry]:
    """A heap's entries in order, at a cost that grows with how many are taken, not with the heap."""
    front = [(_key(heap[0]), 0)] if heap else []
    while front:
        _, at = heappop(front)
        yield heap[at]
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heappush(front, (_key(heap[child]), child))
