"""Job: one message, as this node knows it.

A node may hold a copy without having it queued; queued on one node, a job is normally only held
by the others, whose timers queue it again when its consumer or its node is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.core.spilled import Body

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.client import Client
    from disque_py.core.keying import Create
    from disque_py.core.traits import Traits

# Where a job stands on this node; every change is made in lifecycle.py. Plain numbers: the hot path compares them.
WAIT_REPL: Final = 0  # A client waits until enough nodes hold a copy.
ACTIVE: Final = 1  # Held here, in no queue of this node.
QUEUED: Final = 2  # In a queue of this node, ready for a consumer.
ACKED: Final = 3  # Done; kept only until every holder knows it.
GONE: Final = 4  # Forgotten; an object that a queue's run may still name.

STATE_NAMES: Final = ("wait-repl", "active", "queued", "acked", "gone")

# What a job costs besides its body: object, id, entries in index, queue and schedule, as measured by
# `make bench` (docs/performance.md). maxmemory is applied to the sum of these.
JOB_BYTES: Final = 560
# The name of its queue is part of that if it is no longer than this; of a longer one all bytes count, in each job: jobs
# whose queue is not there have a name each.
NAME_BYTES_FREE: Final = 64

# A creation time is milliseconds times this, plus a sequence that keeps jobs of one millisecond apart.
CTIMES_PER_MS: Final = 1_000_000

JobNodes = frozenset["Node"]


class Replication:
    """Work on a WAIT_REPL job: who waits for it and who has confirmed a copy (few: a tuple costs less than a set).

    is_default   the producer asked for no number of copies
    """

    __slots__ = ("asked_again_ms", "client", "confirmed", "deadline_ms", "is_default", "is_external", "slot")

    def __init__(
        self,
        client: Client,
        slot: list[bytes | None],
        confirmed: tuple[Node, ...],
        asked_ms: int,
        deadline_ms: int,
        is_external: bool,
        is_default: bool,
    ) -> None:
        self.client = client
        self.slot = slot
        self.confirmed = confirmed
        self.asked_again_ms = asked_ms
        self.deadline_ms = deadline_ms
        self.is_external = is_external
        self.is_default = is_default


class Collection:
    """Work on an ACKED job: who has confirmed that it knows the ack (few: a tuple), and how often we asked."""

    __slots__ = ("attempts", "confirmed")

    def __init__(self) -> None:
        self.confirmed: tuple[Node, ...] = ()
        self.attempts = 0

    def confirm(self, node: Node) -> None:
        """The node knows the ack."""
        if node not in self.confirmed:
            self.confirmed = (*self.confirmed, node)


class Handover:
    """Work on a job that is being handed over: to whom, under which number (handover.py).

    due_ms           the taker queues the job only then (DELAY of a new job); 0: at once
    client, slot     the ADDJOB of an at-most-once job that waits for the answer, if there is one
    deadline_ms      until when it waits; 0: for ever
    tried            nodes that refused it before
    """

    __slots__ = ("client", "deadline_ms", "due_ms", "node", "number", "slot", "tried")

    def __init__(self, node: Node, number: int, due_ms: int = 0) -> None:
        self.node = node
        self.number = number
        self.due_ms = due_ms
        self.client: Client | None = None
        self.slot: list[bytes | None] = []
        self.deadline_ms = 0
        self.tried: tuple[Node, ...] = ()


class Wanted:
    """Work on a job that is not entered yet: nodes are asked whether its key is used (keying.py).

    client, slot   the ADDJOB that waits
    deadline_ms    until when; 0: for ever
    create         makes the job when nobody knows the key
    is_over        it was answered, or its client is gone
    """

    __slots__ = ("client", "create", "deadline_ms", "is_over", "slot")

    def __init__(self, client: Client, slot: list[bytes | None], deadline_ms: int, create: Create) -> None:
        self.client = client
        self.slot = slot
        self.deadline_ms = deadline_ms
        self.create = create
        self.is_over = False


class Job:
    """One job.

    id               40 bytes
    queue            name of its queue; b"" with no holders is a dummy ack (see `is_dummy`)
    body             bytes; a Spilled while they are on disk (spilling.py)
    state            constants above
    replicate        copies the producer asked for
    delay_ms, retry_ms   spans as asked for; retry 0 means at most once
    ctime            creation, wall clock ms x 1,000,000 + sequence, never changed on the way
    expire_at_ms     when its TTL is over (monotonic clock of this node)
    requeue_at_ms    when it is to be queued (again); 0: never
    awake_at_ms      when the schedule looks at it; 0: not scheduled (schedule.py, the horizon)
    holders          nodes that may have a copy, us included if we have; never smaller than the truth
    nacks, deliveries   the two best-effort counters
    attempt          deliveries known to us; merged by maximum
    is_listed        an entry for it lies in its queue's run or heap
    is_delivered     this node handed it to a consumer (or gave it away) at least once
    was_queued       its next enqueue is a re-queue and is announced
    is_leased_here   delivered by us and the lease is running: we answer for it
    was_announced    the WILLQUEUE for the coming requeue has been sent
    imported_at_ms   when another node handed it to us; 0: it did not
    version          how often it was changed, by any node; merged by maximum (events.py)
    status, since_ms the state its users see, and when it entered that (wall clock), while events are written
    place            segment of the journal that holds its base; 0: none does (journaling.py)
    traits           priority, metadata and the like; None for the many that have none
    work             Replication, Collection or Handover in progress; Wanted before it is a job at all
    """

    __slots__ = (
        "attempt",
        "awake_at_ms",
        "body",
        "ctime",
        "delay_ms",
        "deliveries",
        "expire_at_ms",
        "holders",
        "id",
        "imported_at_ms",
        "is_delivered",
        "is_leased_here",
        "is_listed",
        "nacks",
        "place",
        "queue",
        "replicate",
        "requeue_at_ms",
        "retry_ms",
        "since_ms",
        "state",
        "status",
        "traits",
        "version",
        "was_announced",
        "was_queued",
        "work",
    )

    def __init__(
        self,
        job_id: bytes,
        queue: bytes,
        body: bytes,
        ctime: int,
        expire_at_ms: int,
        retry_ms: int,
        delay_ms: int,
        replicate: int,
        holders: JobNodes,
    ) -> None:
        self.id = job_id
        self.queue = queue
        self.body: Body = body
        self.state = ACTIVE
        self.replicate = replicate
        self.delay_ms = delay_ms
        self.retry_ms = retry_ms
        self.ctime = ctime
        self.expire_at_ms = expire_at_ms
        self.requeue_at_ms = 0
        self.awake_at_ms = 0
        self.holders = holders
        self.nacks = 0
        self.deliveries = 0
        self.attempt = 0
        self.is_listed = False
        self.is_delivered = False
        self.was_queued = False
        self.is_leased_here = False
        self.was_announced = False
        self.imported_at_ms = 0
        self.place = 0
        self.version = 1
        self.status = 0
        self.since_ms = 0
        self.traits: Traits | None = None
        self.work: Replication | Collection | Handover | Wanted | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id[11:19].decode('ascii', 'replace')} {STATE_NAMES[self.state]} of {self.queue!r}>"

    def again(self, job_id: bytes) -> Job:
        """The same under another id, as if it came in a moment ago, of no work and no state."""
        job = Job(
            job_id,
            self.queue,
            b"",
            self.ctime,
            self.expire_at_ms,
            self.retry_ms,
            self.delay_ms,
            self.replicate,
            self.holders,
        )
        job.body = self.body
        traits = self.traits
        if traits is not None:
            job.traits = traits.again()
        return job

    @property
    def priority(self) -> int:
        """A lower one is served first: as asked for, or the creation's Unix milliseconds (spec F1)."""
        traits = self.traits
        if traits is None or traits.priority is None:
            return self.ctime // CTIMES_PER_MS
        return traits.priority

    @property
    def meta(self) -> tuple[bytes, ...]:
        """Name, value, name, value … as given with ADDJOB."""
        return () if self.traits is None else self.traits.meta

    def is_half_over(self, now_ms: int, wall_ms: int) -> bool:
        """Half of its TTL is over: its delivery can't be postponed any more (spec L7)."""
        return wall_ms - self.ctime // CTIMES_PER_MS > self.expire_at_ms - now_ms

    @property
    def is_dummy(self) -> bool:
        """An ack for a job this node never held, with no holder learned yet."""
        return self.state == ACKED and not self.holders and not self.queue


def memory_of(job: Job) -> int:
    """What the job counts for in `used_memory`."""
    size = JOB_BYTES + len(job.body)
    if len(job.queue) > NAME_BYTES_FREE:
        size += len(job.queue)
    return size if job.traits is None else size + job.traits.size
