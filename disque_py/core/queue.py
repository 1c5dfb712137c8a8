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
from heapq import heapify, heappop, heappush, merge
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
# A heap is filtered as a whole, which must not take longer than a few milliseconds.
HEAP_SWEEP_MAX: Final = 50_000

QUEUE_BYTES: Final = 1200  # The object, its containers and its name's entries, as measured.


class Queue:
    """One queue.

    name, head_bytes    its name; the start of a GETJOB entry, encoded once
    length              jobs that are ready
    waiting             clients blocked in GETJOB, in order of arrival
    paused              PAUSED_IN, PAUSED_OUT
    created_ms, active_ms   monotonic; active = last enqueue or fetch
    jobs_in, jobs_out   counters of QSTAT
    deferred            jobs that are due when the input pause ends (NACK on a paused queue)
    sources             nodes that handed us jobs -> when last (QSTAT import-from)
    interested          node -> clients waiting there, as it told us
    """

    __slots__ = (
        "_chunks",
        "_head",
        "_heap",
        "_last_ctime",
        "_tail",
        "active_ms",
        "adhoc_at_ms",
        "adhoc_attempts",
        "broadcast_at_ms",
        "created_ms",
        "deferred",
        "head_bytes",
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
        "jobs_in",
        "jobs_out",
        "length",
        "listed",
        "name",
        "paused",
        "serial",
        "sources",
        "waited_ms",
        "waiting",
    )

    def __init__(self, name: bytes, now_ms: int) -> None:
        self.name = name
        self.head_bytes = b"$%d\r\n%b\r\n$40\r\n" % (len(name), name)
        self.length = 0
        self.listed = 0
        self.waiting: dict[Client, None] = {}
        self.paused = 0
        self.serial = 0
        self.is_dropped = False
        self.created_ms = now_ms
        self.active_ms = now_ms
        self.jobs_in = 0
        self.jobs_out = 0
        self.deferred: dict[Job, None] = {}
        # The run: _head is reversed (its last element is the oldest job), then _chunks, then _tail.
        self._head: list[Job] = []
        self._chunks: deque[list[Job]] = deque()
        self._tail: list[Job] = []
        self._heap: list[tuple[int, bytes, Job]] = []
        self._last_ctime = 0
        # Federation (federation.py, interest.py).
        self.sources: dict[Node, int] = {}
        self.interested: dict[Node, int] = {}
        self.hints: dict[Node, int] = {}
        self.hint_sent_to: Node | None = None
        self.hint_until_ms = 0
        self.interest_timer = False
        self.waited_ms = 0
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
            return  # Its old entry counts again; the key never changes.
        job.is_listed = True
        self.listed += 1
        ctime = job.ctime
        if ctime > self._last_ctime:
            self._last_ctime = ctime
            tail = self._tail
            tail.append(job)
            if len(tail) == CHUNK:
                self._chunks.append(tail)
                self._tail = []
        else:
            heappush(self._heap, (ctime, job.id, job))

    def pop(self) -> Job | None:
        """Take the oldest ready job; its state is the caller's to change. None when empty."""
        head = self._head
        heap = self._heap
        while True:
            if not head:
                head = self._next_chunk()
                if not head and not heap:
                    return None
            if heap and (not head or heap[0][0] < head[-1].ctime or heap[0][:2] < (head[-1].ctime, head[-1].id)):
                job = heappop(heap)[2]
            else:
                job = head.pop()
            job.is_listed = False
            self.listed -= 1
            if job.state == QUEUED:
                self.length -= 1
                return job

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

    @property
    def needs_sweep(self) -> bool:
        """Whether dead entries outnumber the living enough to be worth dropping."""
        return self.listed > 2 * self.length + DEAD_ENTRIES_MIN

    def sweep(self) -> Iterator[None]:
        """Drop dead entries, one chunk per step; pushes and pops may happen between steps."""
        if len(self._heap) <= HEAP_SWEEP_MAX:
            self._heap = [entry for entry in self._heap if self._keeps(entry[2])]
            heapify(self._heap)
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

    def _keeps(self, job: Job) -> bool:
        if job.state == QUEUED:
            return True
        job.is_listed = False
        self.listed -= 1
        return False

    def oldest(self) -> Iterator[Job]:
        """Ready jobs, oldest first."""
        run = self._in_run()
        if not self._heap:
            return (job for job in run if job.state == QUEUED)
        keyed = ((job.ctime, job.id, job) for job in run)
        return (job for _, _, job in merge(keyed, sorted(self._heap)) if job.state == QUEUED)

    def newest(self) -> Iterator[Job]:
        """Ready jobs, newest first."""
        run = self._in_run_backwards()
        if not self._heap:
            return (job for job in run if job.state == QUEUED)
        keyed = ((job.ctime, job.id, job) for job in run)
        ordered = merge(keyed, sorted(self._heap, reverse=True), reverse=True)
        return (job for _, _, job in ordered if job.state == QUEUED)

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
