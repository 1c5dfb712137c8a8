"""Queue: the jobs of one name that are ready on this node, and who waits for them.

Order is (priority, creation time, id), kept by lanes (lane.py): one for jobs that are retried, one for those that are
delivered at most once, so that who may not take these (GETJOB with LEASE or TOKEN) passes them by at no cost; for
everybody else the queue is one, whose next job is the smaller of both heads. A lane's run is handled here, as nearly
every job takes it.

A job that leaves by another door than `pop` (acknowledged, expired, dequeued) leaves its entry behind:
an entry counts only while its job is QUEUED. `is_listed` says that an entry exists, so a job that
comes back uses the old one, and `sweep` drops dead entries a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from disque_py.core.job import QUEUED, Job
from disque_py.core.lane import CHUNK, Entry, Lane, entry_key

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client

PAUSED_IN: Final = 1
PAUSED_OUT: Final = 2
PAUSE_NAMES: Final = ("none", "in", "out", "all")

# Dead entries are worth a sweep when they outnumber the living by this.
DEAD_ENTRIES_MIN: Final = 1024
QUEUE_BYTES: Final = 1320  # The object, its containers and its name's entries, as measured.
LINE_BYTES: Final = 100  # A client in the line of one queue: an entry of `waiting`, as measured.

# Most queues have no job of RETRY 0; this stands for their second lane and is never pushed to.
NO_LANE: Final = Lane()


class Queue:
    """One queue.

    name, head_bytes    its name; the start of a GETJOB entry, encoded once
    retried, once       the lanes of jobs with RETRY and of those without
    length              jobs that are ready; `once_length` of them are delivered at most once
    dead                entries that no longer count
    waiting             clients blocked in GETJOB, in order of arrival; `picky` of them pass at-most-once jobs by
    paused              PAUSED_IN, PAUSED_OUT
    created_ms, active_ms   monotonic; active = last enqueue or fetch
    jobs_in, jobs_out   counters of QSTAT
    sources             nodes that handed us jobs -> when last (QSTAT import-from)
    interested          node -> clients waiting there, as it told us
    waited_ms, picky_ms   when a client last stopped waiting: one that takes all jobs, a picky one
    polled_ms           when one last asked in vain and did not wait
    ahead, is_stalled   how many of the next jobs have their bodies in memory; whether the very next is waited for
                        (spilling.py)
    """

    __slots__ = (
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
        "once",
        "once_length",
        "paused",
        "picky",
        "picky_ms",
        "polled_ms",
        "retried",
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
        self.picky = 0
        self.paused = 0
        self.serial = 0
        self.is_dropped = False
        self.ahead = 0
        self.is_stalled = False
        self.created_ms = now_ms
        self.active_ms = now_ms
        self.jobs_in = 0
        self.jobs_out = 0
        self.retried = Lane()
        self.once = NO_LANE
        self.once_length = 0
        # Federation (pulls.py, interest.py).
        self.sources: dict[Node, int] = {}
        self.interested: dict[Node, int] = {}
        self.hints: dict[Node, int] = {}
        self.hint_sent_to: Node | None = None
        self.hint_until_ms = 0
        self.hint_repeats = 0
        self.interest_timer = False
        self.waited_ms = 0
        self.picky_ms = 0
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
        if job.retry_ms:
            lane = self.retried
        else:
            lane = self.once
            if lane is NO_LANE:
                lane = self.once = Lane()
            self.once_length += 1
        if job.is_listed:
            self.dead -= 1
            return  # Its old entry counts again; the key never changes.
        job.is_listed = True
        traits = job.traits
        if traits is None or traits.priority is None:
            ctime = job.ctime
            if ctime > lane.last_ctime:
                lane.last_ctime = ctime
                tail = lane.tail
                tail.append(job)
                if len(tail) == CHUNK:
                    lane.chunks.append(tail)
                    lane.tail = []
                return
        lane.push_aside(job)

    def pop(self) -> Job | None:
        """Take the first ready job; its state is the caller's to change. None when empty."""
        while True:
            lane = self.retried
            once = self.once
            if once is not NO_LANE:
                has_others = lane.head or lane.parts or lane.tail or lane.chunks
                lane = self._first_lane() if has_others else once
            head = lane.head
            if not head:
                head = lane.next_chunk()
                if not head and not lane.parts:
                    return None
            job = lane.smallest() if lane.parts else head.pop()
            job.is_listed = False
            if job.state == QUEUED:
                self.length -= 1
                if lane is once:
                    self.once_length -= 1
                return job
            self.dead -= 1

    def pop_retried(self) -> Job | None:
        """Take the first ready job with RETRY, whatever is before it."""
        lane = self.retried
        while lane.head or lane.next_chunk() or lane.parts:
            job = lane.smallest()
            job.is_listed = False
            if job.state == QUEUED:
                self.length -= 1
                return job
            self.dead -= 1
        return None

    def _first_lane(self) -> Lane:
        """The lane whose first entry comes before the other's; there is one in `retried`."""
        first, other = self.once.first_key(), self.retried.first_key()
        return self.once if first is not None and (other is None or first < other) else self.retried

    @property
    def retried_length(self) -> int:
        """Ready jobs that may be delivered again: all that GETJOB with LEASE or TOKEN takes."""
        return self.length - self.once_length

    def removed(self, job: Job) -> None:
        """A QUEUED job left without `pop`; its entry stays until it is popped or swept."""
        self.length -= 1
        self.dead += 1
        if not job.retry_ms:
            self.once_length -= 1

    @property
    def wanted_ms(self) -> int:
        """When a client last asked for jobs of it, or else when it was made."""
        return max(self.created_ms, self.polled_ms, self.waited_ms, self.picky_ms)

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
        yield from self.retried.sweep(self._keeps)
        yield from self.once.sweep(self._keeps)

    def dismantle(self) -> Iterator[None]:
        """Give back the memory of a queue that is no more, a part per step."""
        yield from self.retried.dismantle()
        yield from self.once.dismantle()

    def _keeps(self, job: Job) -> bool:
        if job.state == QUEUED:
            return True
        job.is_listed = False
        self.dead -= 1
        return False

    def oldest(self) -> Iterator[Job]:
        """Ready jobs, in the order in which they are served."""
        if not self.once_length:
            return self.retried.jobs()
        return map(_job_of, merge(self.retried.in_order(), self.once.in_order(), key=entry_key))

    def newest(self, count_max: int) -> Iterator[Job]:
        """Up to `count_max` ready jobs, last to first."""
        ordered = self.retried.backwards()
        if self.once_length:
            ordered = merge(ordered, self.once.backwards(), reverse=True, key=entry_key)
        return map(_job_of, islice(ordered, count_max))

    def key_at(self, position: int) -> tuple[int, int] | None:
        """(priority, creation time) of about the `position`-th job to be served; None if there are not so many."""
        found = [lane.key_at(position) for lane in (self.retried, self.once)]
        return min([key for key in found if key is not None], default=None)


def _job_of(entry: Entry) -> Job:
    return entry[4]
