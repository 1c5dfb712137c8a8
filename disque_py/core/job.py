"""Job: one message, as this node knows it.

A node may hold a copy without having it queued. A job is normally queued on one node. The others only hold it, and
their timers queue it again when its consumer or its node is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.core.spilled import Body

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.changeable import Changeable
    from disque_py.core.client import Client
    from disque_py.core.job_attributes import JobAttributes
    from disque_py.core.keying import Create

# Where a job stands on this node. Only lifecycle.py changes it. Plain numbers, because the hot path compares them.
WAIT_REPL: Final = 0  # A client waits until enough nodes hold a copy.
ACTIVE: Final = 1  # Held here, in no queue of this node.
QUEUED: Final = 2  # In a queue of this node, ready for a consumer.
ACKED: Final = 3  # Done; kept only until every holder knows it.
GONE: Final = 4  # Forgotten; a queue's run may still name the object.

STATE_NAMES: Final = ("wait-repl", "active", "queued", "acked", "gone")

# Memory of a job besides its body: object, id, entries in index, queue and schedule, as measured by
# `make bench` (docs/performance.md). maxmemory is applied to the sum of these.
JOB_BYTES: Final = 560
# JOB_BYTES includes a queue name of up to this length. All bytes of a longer name count, and count in each job: the
# jobs
# do not share the name when their queue does not exist.
NAME_BYTES_FREE: Final = 64

# A creation time is milliseconds times this, plus a sequence that keeps jobs of one millisecond apart.
CTIMES_PER_MS: Final = 1_000_000

JobNodes = frozenset["Node"]


class Replication:
    """Work on a WAIT_REPL job: the producer that waits for it, and the nodes that have confirmed a copy.

    confirmed    few nodes, so a tuple costs less than a set
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
    """Work on an ACKED job: the nodes that have confirmed the ack (few: a tuple), and how often we asked.

    passed   nodes that said that they hold no copy, while the set did not name them; it may name them later
    """

    __slots__ = ("attempts", "confirmed", "passed")

    def __init__(self) -> None:
        self.confirmed: tuple[Node, ...] = ()
        self.passed: tuple[Node, ...] = ()
        self.attempts = 0

    def confirm(self, node: Node) -> None:
        """Note that the node knows the ack."""
        if node not in self.confirmed:
            self.confirmed = (*self.confirmed, node)


class Cancellation(Collection):
    """Work on an ACKED job that was canceled. Completed beats canceled where both happened.

    kept_until_ms   end of the lease that ran here, until which the record stays; 0: none ran
    is_over         the collection is over, and the record stays only for the sake of that lease
    """

    __slots__ = ("is_over", "kept_until_ms")

    def __init__(self, kept_until_ms: int = 0) -> None:
        super().__init__()
        self.kept_until_ms = kept_until_ms
        self.is_over = False


class Handover:
    """Work on a job that is being handed over: the taker, and the number of the hand-over (handover.py).

    due_ms           when the taker queues the job (DELAY of a new job); 0: at once
    client, slot     the ADDJOB of an at-most-once job that waits for the answer, if there is one
    deadline_ms      until when that ADDJOB waits; 0: for ever
    tried            nodes that refused the job before
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
    deadline_ms    until when it waits; 0: for ever
    create         makes the job when no node knows the key
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
    """One job, as this node knows it.

    id               its 40 bytes
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
    status, since_ms the state its users see, and when it entered that (wall clock); 0: not heard (events.py, census.py)
    place            segment of the journal that holds its base; 0: none does (journaling.py)
    era              the broker's era when it came here; lower: other nodes may have got copies since (acks.py)
    attributes       priority, metadata, changes and the like; None for the many jobs without any
    work             Replication, Collection or Handover in progress; Wanted before the job is entered
    """

    __slots__ = (
        "attempt",
        "attributes",
        "awake_at_ms",
        "body",
        "ctime",
        "delay_ms",
        "deliveries",
        "era",
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
        self.era = 0
        self.version = 1
        self.status = 0
        self.since_ms = 0
        self.attributes: JobAttributes | None = None
        self.work: Replication | Collection | Handover | Wanted | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id[11:19].decode('ascii', 'replace')} {STATE_NAMES[self.state]} of {self.queue!r}>"

    def again(self, job_id: bytes) -> Job:
        """Return a copy under another id, as a job that came in a moment ago, without work or state."""
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
        attributes = self.attributes
        if attributes is not None:
            job.attributes = attributes.again()
        return job

    @property
    def priority(self) -> int:
        """The priority asked for, or the creation's Unix milliseconds. Lower ones are served first (spec F1)."""
        attributes = self.attributes
        if attributes is None or attributes.priority is None:
            return self.ctime // CTIMES_PER_MS
        return attributes.priority

    @property
    def meta(self) -> tuple[bytes, ...]:
        """The pairs given with ADDJOB, and those of its dead-letter history: name, value, name, value …"""
        attributes = self.attributes
        if attributes is None:
            return ()
        return attributes.meta if attributes.part is None else attributes.meta + attributes.part.pairs()

    @property
    def part(self) -> Changeable | None:
        """The changeable part; None if it has none of its own."""
        return None if self.attributes is None else self.attributes.part

    @property
    def is_errored(self) -> bool:
        """Whether no attempts are left."""
        part = self.part
        return part is not None and part.is_errored

    def is_half_over(self, now_ms: int, wall_ms: int) -> bool:
        """Whether half of its TTL is over, so its delivery can't be postponed any more (spec L7).

        The life of a job that was changed may have begun anew.
        """
        part = self.part
        if part is not None and part.number:
            return self.expire_at_ms - now_ms < part.ttl_ms // 2
        return wall_ms - self.ctime // CTIMES_PER_MS > self.expire_at_ms - now_ms

    @property
    def is_dummy(self) -> bool:
        """Whether this is an ack for a job that this node never held, with no holder learned yet."""
        return self.state == ACKED and not self.holders and not self.queue


def memory_of(job: Job) -> int:
    """Return the bytes that the job counts for in `used_memory`."""
    size = JOB_BYTES + len(job.body)
    if len(job.queue) > NAME_BYTES_FREE:
        size += len(job.queue)
    return size if job.attributes is None else size + job.attributes.size
