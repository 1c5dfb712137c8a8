"""Queue: the jobs of one name that are ready on this node, and the clients that wait for them.

Jobs are ordered by (priority, creation time, id). A queue keeps them in two priority queues (priority_queue.py):
`retried` for at-least-once jobs, `once` for at-most-once jobs. Consumers that skip at-most-once jobs (GETJOB with LEASE
or TOKEN) pop from `retried` alone, at no extra cost. All other consumers see one queue: the next job is the smaller of
the two heads. `push` and `pop` inline the common paths of PriorityQueue, because nearly every job takes them.

A job may leave without `pop`, because it is acknowledged, expires or is dequeued. Its entry then stays and is *dead*,
because an entry counts only while its job is QUEUED. `is_listed` says that an entry exists, so a job that returns uses
its old entry. `sweep` drops dead entries, a chunk at a time.

In an exclusive queue or a queue with caps, a job may have to wait until others with the same value are done. Such a job
is set aside (parking.py): it is pending and has no entry here. `length` counts the jobs that are offered, `pending`
counts those that are aside, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from disque_py.core.job import QUEUED, Job
from disque_py.core.priority_queue import CHUNK, Key, PriorityQueue, key_of

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client
    from disque_py.core.filters import Filters
    from disque_py.core.parking import Parking
    from disque_py.core.patterns import PatternGroup
    from disque_py.core.rivals import Rivals, Standing

PAUSED_IN: Final = 1
PAUSED_OUT: Final = 2
PAUSE_NAMES: Final = ("none", "in", "out", "all")

# Dead entries are swept when there are more than this many beyond the number of living ones.
DEAD_ENTRIES_MIN: Final = 1024
QUEUE_BYTES: Final = 1320  # The object, its containers and the dict entries of its name, as measured.
LINE_BYTES: Final = 100  # An entry of `waiting`, that is, one client that waits in one queue, as measured.

# Most queues have no at-most-once job. They share this empty priority queue as `once`; no job is ever pushed to it.
NO_JOBS: Final = PriorityQueue()


class Queue:
    """The ready jobs of one name, and what the node knows about the demand for them.

    name, head_bytes    the name; the start of a GETJOB entry, encoded once
    serial              the queue's place in `broker.queue_order`
    retried, once       the priority queues of at-least-once and of at-most-once jobs
    length              ready jobs; `once_length` of them are delivered at most once
    dead                entries whose job is not QUEUED any more
    waiting             clients blocked in GETJOB, in order of arrival; `picky` of them skip at-most-once jobs
    paused              PAUSED_IN, PAUSED_OUT or both
    created_ms, active_ms   when the queue was made, and when a job was last enqueued or fetched (monotonic)
    jobs_in, jobs_out   counters of QSTAT
    sources             nodes that handed us jobs -> when they last did (QSTAT import-from)
    asked               node -> our standing pull there; None: there was none yet
    interested          node -> clients that wait there, as that node told us; -1: none waits, but clients fetch there
    served_ms           about when a client last got a job
    busy_ms             about when a client last got a job shortly after another job was served
    rivals              better jobs elsewhere, and our best one as others were told; None: no message yet (ordering.py)
    waited_ms, picky_ms   when a client that takes all jobs last stopped waiting, and when a picky client did
    parking             jobs by value, if the number of jobs per value is limited; None: no limit applies (parking.py)
    filters             indexes of jobs by metadata, and clients that wait with WHERE; None: none (filters.py)
    patterns            groups of clients whose patterns match the name; None: none (patterns.py)
    polled_ms           when a client last asked, got no job and did not wait
    pulled_ms, pulled_distance   when a node's hint was last answered, and how far that node is (zones.py)
    ahead               how many of the next jobs have their bodies in memory (spilling.py)
    is_stalled          whether the head's body is being read back from disk (spilling.py)
    """

    __slots__ = (
        "active_ms",
        "adhoc_at_ms",
        "adhoc_attempts",
        "ahead",
        "asked",
        "broadcast_at_ms",
        "busy_ms",
        "created_ms",
        "dead",
        "filters",
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
        "once",
        "once_length",
        "parking",
        "patterns",
        "paused",
        "picky",
        "picky_ms",
        "polled_ms",
        "pulled_distance",
        "pulled_ms",
        "retried",
        "rivals",
        "serial",
        "served_ms",
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
        self.picky = 0
        self.paused = 0
        self.serial = 0
        self.is_dropped = False
        self.filters: Filters | None = None
        self.parking: Parking | None = None
        self.patterns: list[PatternGroup] | None = None
        self.ahead = 0
        self.is_stalled = False
        self.created_ms = now_ms
        self.active_ms = now_ms
        self.jobs_in = 0
        self.jobs_out = 0
        self.retried = PriorityQueue()
        self.once = NO_JOBS
        self.once_length = 0
        # Federation (pulls.py, interest.py).
        self.sources: dict[Node, int] = {}
        self.asked: dict[Node, Standing] | None = None
        self.interested: dict[Node, int] = {}
        self.hints: dict[Node, int] = {}
        self.hint_sent_to: Node | None = None
        self.hint_until_ms = 0
        self.hint_repeats = 0
        self.interest_timer = False
        self.waited_ms = 0
        self.picky_ms = 0
        self.polled_ms = 0
        self.pulled_distance = 0
        self.pulled_ms = 0
        self.served_ms = 0
        self.busy_ms = 0
        self.rivals: Rivals | None = None
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
        if self.filters is not None and job.attributes is not None:
            self.filters.added(job)
        if self.parking is not None:
            if job.is_listed:
                self.unlist(job)  # The job may be set aside, and has no entry here then.
            if self.parking.added(job):
                return
        self.length += 1
        if job.terms.retry_ms:
            jobs = self.retried
        else:
            jobs = self.once
            if jobs is NO_JOBS:
                jobs = self.once = PriorityQueue()
            self.once_length += 1
        if job.is_listed:
            self.dead -= 1
            return  # Its old entry counts again. The entry's key is still right, because it never changes.
        job.is_listed = True
        attributes = job.attributes
        if attributes is None or attributes.priority is None:
            ctime = job.ctime
            if ctime > jobs.last_ctime:
                jobs.last_ctime = ctime
                tail = jobs.tail
                tail.append(job)
                if len(tail) == CHUNK:
                    jobs.chunks.append(tail)
                    jobs.tail = []
                return
        jobs.push_aside(job)

    def show(self, job: Job) -> None:
        """Offer a pending job that was set aside."""
        self.length += 1
        jobs = self.retried
        if not job.terms.retry_ms:
            if self.once is NO_JOBS:
                self.once = PriorityQueue()
            jobs = self.once
            self.once_length += 1
        job.is_listed = True
        jobs.push_aside(job)

    def withdraw(self, job: Job) -> None:
        """Stop offering a pending job, because it is set aside."""
        jobs = self.retried
        if not job.terms.retry_ms:
            jobs = self.once
            self.once_length -= 1
        self.length -= 1
        is_found = jobs.remove(job)
        assert is_found
        job.is_listed = False

    def pop(self) -> Job | None:
        """Remove and return the first ready job, or None if there is none. The caller changes its state."""
        while True:
            jobs = self.retried
            once = self.once
            if once is not NO_JOBS:
                has_others = jobs.head or jobs.parts or jobs.tail or jobs.chunks
                jobs = self._first_queue() if has_others else once
            head = jobs.head
            if not head:
                head = jobs.next_chunk()
                if not head and not jobs.parts:
                    return None
            job = jobs.smallest() if jobs.parts else head.pop()
            job.is_listed = False
            if job.state == QUEUED:
                self.length -= 1
                if jobs is once:
                    self.once_length -= 1
                if self.filters is not None and job.attributes is not None:
                    self.filters.left(job)
                if self.parking is not None:
                    self.parking.taken(job)
                return job
            self.dead -= 1

    def pop_retried(self) -> Job | None:
        """Remove and return the first at-least-once job, for consumers that skip at-most-once jobs."""
        jobs = self.retried
        while jobs.head or jobs.next_chunk() or jobs.parts:
            job = jobs.smallest()
            job.is_listed = False
            if job.state == QUEUED:
                self.length -= 1
                if self.filters is not None and job.attributes is not None:
                    self.filters.left(job)
                if self.parking is not None:
                    self.parking.taken(job)
                return job
            self.dead -= 1
        return None

    def first(self, *, is_picky: bool) -> Job | None:
        """Return the next job to be served, without taking it. With `is_picky`, skip at-most-once jobs."""
        retried = self._living(self.retried)
        if is_picky or not self.once_length:
            return retried
        once = self._living(self.once)
        return once if retried is None or (once is not None and key_of(once) < key_of(retried)) else retried

    def _living(self, jobs: PriorityQueue) -> Job | None:
        """Return the first QUEUED job of a priority queue. Drop the dead entries before it."""
        job = jobs.first()
        while job is not None and job.state != QUEUED:
            jobs.smallest()
            job.is_listed = False
            self.dead -= 1
            job = jobs.first()
        return job

    def _first_queue(self) -> PriorityQueue:
        """Return the priority queue with the smaller first entry. `retried` must not be empty."""
        first, other = self.once.first_key(), self.retried.first_key()
        return self.once if first is not None and (other is None or first < other) else self.retried

    @property
    def retried_length(self) -> int:
        """The number of ready at-least-once jobs. GETJOB with LEASE or TOKEN takes no others."""
        return self.length - self.once_length

    def removed(self, job: Job) -> None:
        """Note that a QUEUED job left without `pop`. Its entry stays until it is popped or swept."""
        if self.parking is not None and self.parking.removed(job):
            if self.filters is not None and job.attributes is not None:
                self.filters.left(job)
            return
        self.length -= 1
        self.dead += 1
        if not job.terms.retry_ms:
            self.once_length -= 1
        if self.filters is not None and job.attributes is not None:
            self.filters.left(job)

    def unlist(self, job: Job) -> None:
        """Remove the dead entry of a job that goes to another queue."""
        if (self.retried if job.terms.retry_ms else self.once).remove(job):
            job.is_listed = False
            self.dead -= 1

    @property
    def pending(self) -> int:
        """The number of pending jobs: those that are offered and those that are set aside."""
        return self.length if self.parking is None else self.length + self.parking.length

    @property
    def has_clients(self) -> bool:
        """Whether clients of this node wait here, with or without a filter."""
        return bool(self.waiting) or (self.filters is not None and self.filters.waiting > 0)

    @property
    def wanted_ms(self) -> int:
        """When a client last asked for jobs of this queue, or else when the queue was made."""
        return max(self.created_ms, self.polled_ms, self.waited_ms, self.picky_ms)

    @property
    def listed(self) -> int:
        """The number of all entries, living and dead."""
        return self.length + self.dead

    @property
    def needs_sweep(self) -> bool:
        """Whether there are enough dead entries to be worth a sweep."""
        return self.dead > self.length + DEAD_ENTRIES_MIN

    def sweep(self) -> Iterator[None]:
        """Drop dead entries, a part per step. Pushes and pops may happen between steps."""
        yield from self.retried.sweep(self._keeps)
        yield from self.once.sweep(self._keeps)

    def dismantle(self) -> Iterator[None]:
        """Free the memory of a dropped queue, a part per step."""
        yield from self.retried.dismantle()
        yield from self.once.dismantle()

    def _keeps(self, job: Job) -> bool:
        if job.state == QUEUED:
            return True
        job.is_listed = False
        self.dead -= 1
        return False

    def oldest(self) -> Iterator[Job]:
        """Yield pending jobs in the order of delivery. Jobs that are set aside are included at their place."""
        jobs = self.retried.jobs()
        if self.once_length:
            jobs = merge(jobs, self.once.jobs(), key=key_of)
        if self.parking is None or not self.parking.length:
            return jobs
        return merge(jobs, map(_aside_of, self.parking.aside.in_order()), key=key_of)

    def newest(self, count_max: int) -> Iterator[Job]:
        """Yield up to `count_max` pending jobs, from last to first."""
        jobs = self.retried.backwards()
        if self.once_length:
            jobs = merge(jobs, self.once.backwards(), reverse=True, key=key_of)
        if self.parking is not None and self.parking.length:
            jobs = merge(jobs, map(_aside_of, self.parking.aside.backwards()), reverse=True, key=key_of)
        return islice(jobs, count_max)

    def first_lists(self, count: int) -> list[list[Job]]:
        """Return ordered lists of pending jobs. Together they contain the first `count` jobs of the queue.

        The caller can merge the lists in parts, while the queue changes.
        """
        lists = self.retried.first_lists(count)
        if self.once_length:
            lists += self.once.first_lists(count)
        if self.parking is not None:
            lists.append([job for _, job in islice(self.parking.aside.in_order(), count)])
        return lists

    def last_lists(self, count: int) -> list[list[Job]]:
        """Return lists of pending jobs, from last to first. Together they contain the queue's last `count` jobs."""
        lists = self.retried.last_lists(count)
        if self.once_length:
            lists += self.once.last_lists(count)
        if self.parking is not None:
            lists.append([job for _, job in islice(self.parking.aside.backwards(), count)])
        return lists

    def key_at(self, position: int) -> tuple[int, int] | None:
        """Return about the (priority, creation time) of the job at `position` in the queue; None if there is none."""
        found = [jobs.key_at(position) for jobs in (self.retried, self.once)]
        return min([key for key in found if key is not None], default=None)


def _aside_of(item: tuple[Key, Job]) -> Job:
    return item[1]
