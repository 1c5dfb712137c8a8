"""Job: one message, as this node knows it.

A node may hold a copy without having it queued. A job is normally queued on one node. The others only hold it, and
their timers queue it again when its consumer or its node is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i16, i32, mypyc_attr, u8

from disque_py.core.spilled import Body

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.changeable import Changeable
    from disque_py.core.client import Client
    from disque_py.core.fanout import Fanout
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

# The highest values of attempts and of the best-effort counters. They are stored as signed numbers around the middle.
ATTEMPT_MAX: Final = 2**32 - 1
_ATTEMPT_MIDDLE: Final = 2**31
COUNTER_MAX: Final = 65_535
_COUNTER_MIDDLE: Final = 32_768

# How much of the moment of a hand-over a job keeps, and of how many queues the last terms are known.
IMPORT_BITS: Final = (1 << 31) - 1
TERMS_MAX: Final = 4_096

JobNodes = frozenset["Node"]


class Replication:
    """Work on a WAIT_REPL job: the producer that waits for it, and the nodes that have confirmed a copy.

    confirmed    few nodes, so a tuple costs less than a set
    is_default   the producer asked for no number of copies
    zones        zones that must have a copy, too; 0: any
    is_quorum    copies of other data centres do not count (zones.py)
    is_held      it has its copies, and waits for those of others (fanout.py)
    together     the jobs that share this work; None: it is the work of one job
    """

    __slots__ = (
        "asked_again_ms",
        "client",
        "confirmed",
        "deadline_ms",
        "is_default",
        "is_external",
        "is_held",
        "is_quorum",
        "slot",
        "together",
        "zones",
    )

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
        self.zones = 0
        self.is_quorum = False
        self.is_held = False
        self.together: Together | None = None


class Together:
    """Jobs of one fan-out, as long as all that happens to one of their copies happens to those of all.

    They share one Replication then, and only `marker` waits in the client's table. If something
    concerns one of them alone, each first gets a Replication and a slot of its own (replication.py, `part`).

    marker   stands for the client's command
    jobs     in the order of their queues
    ids      their ids in one byte string
    slots    one per job, once they are apart; empty before
    """

    __slots__ = ("fan", "ids", "jobs", "marker", "slots")

    def __init__(self, fan: Fanout, marker: Job, jobs: list[Job], ids: bytes) -> None:
        self.fan = fan
        self.marker = marker
        self.jobs = jobs
        self.ids = ids
        self.slots: list[list[bytes | None]] = []


class Collection:
    """Work on an ACKED job: the nodes that have confirmed the ack (few: a tuple), and how often we asked.

    passed   nodes that said that they hold no copy, while the set did not name them; it may name them later
    is_reported   this node told the keepers of the job's batch of its end (batch_state.py)
    is_doubted    the ack may have had a result that this node does not know (ends.py)
    """

    __slots__ = ("attempts", "confirmed", "is_doubted", "is_reported", "passed")

    def __init__(self) -> None:
        self.confirmed: tuple[Node, ...] = ()
        self.passed: tuple[Node, ...] = ()
        self.attempts = 0
        self.is_reported = False
        self.is_doubted = False

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


@mypyc_attr(acyclic=True)
class JobTerms:
    """The part of jobs that the usual jobs of a queue have in common. Many jobs share one; it never changes.

    queue            name of the queue; b"" with no holders is a dummy ack (see `Job.is_dummy`)
    retry_ms, delay_ms   spans as asked for; retry 0 means at most once
    replicate        copies the producer asked for
    topic            the topic that it was published to; None: added to its queue
    """

    __slots__ = ("delay_ms", "queue", "replicate", "retry_ms", "topic")

    def __init__(self, queue: bytes, retry_ms: int, delay_ms: int, replicate: int, topic: bytes | None = None) -> None:
        self.queue = queue
        self.retry_ms = retry_ms
        self.delay_ms = delay_ms
        self.replicate = replicate
        self.topic = topic

    def of_queue(self, known: dict[bytes, JobTerms], name: bytes) -> JobTerms:
        """Return the same terms in another queue."""
        return terms_of(known, name, self.retry_ms, self.delay_ms, self.replicate, self.topic)


NO_TERMS: Final = JobTerms(b"", 0, 0, 0)  # Of acks for jobs that this node never held.


def terms_of(
    known: dict[bytes, JobTerms],
    queue: bytes,
    retry_ms: int,
    delay_ms: int,
    replicate: int,
    topic: bytes | None = None,
) -> JobTerms:
    """Return terms with these values: the last ones of the queue if they are the same, so jobs in a row share them.

    known   the last terms of each queue; forgotten when there are too many
    """
    terms = known.get(queue)
    if (
        terms is None
        or terms.retry_ms != retry_ms
        or terms.delay_ms != delay_ms
        or terms.replicate != replicate
        or terms.topic != topic
    ):
        if terms is not None:
            queue = terms.queue  # One object for all its jobs.
        elif len(known) >= TERMS_MAX:
            known.clear()
        terms = known[queue] = JobTerms(queue, retry_ms, delay_ms, replicate, topic)
    return terms


@mypyc_attr(acyclic=True)  # Work refers to clients and nodes, which hold no job that has work: no cycles, no GC header.
class Job:
    """One job, as this node knows it. A million may lie in memory, so each field is as narrow as its values.

    id               its 40 bytes
    terms            queue, RETRY, DELAY, REPLICATE and topic, shared with other jobs
    body             bytes; a Spilled while they are on disk (spilling.py)
    state            constants above
    ctime            creation, wall clock ms x 1,000,000 + sequence, never changed on the way
    expire_at_ms     when its TTL is over (monotonic clock of this node)
    requeue_at_ms    when it is to be queued (again); 0: never
    awake_at_ms      when the schedule looks at it; 0: not scheduled (schedule.py, the horizon)
    holders          nodes that may have a copy, us included if we have; never smaller than the truth
    nacks, deliveries   the two best-effort counters, up to COUNTER_MAX
    attempt          deliveries known to us; merged by maximum
    is_listed        an entry for it lies in its queue's run or heap
    is_delivered     this node handed it to a consumer (or gave it away) at least once
    was_queued       its next enqueue is a re-queue and is announced
    is_leased_here   delivered by us and the lease is running: we answer for it
    was_announced    the WILLQUEUE for the coming requeue has been sent
    imported_at      when another node handed it to us, the low IMPORT_BITS of the millisecond; 0: it did not
    version          how often it was changed, by any node; merged by maximum (events.py)
    status, since_ms the state its users see, and when it entered that (wall clock); 0: not heard (events.py, census.py)
    place            segment of the journal that holds its base; 0: none does (journaling.py)
    era              the broker's era when it came here; lower: other nodes may have got copies since (acks.py)
    attributes       priority, metadata, changes and the like; None for the many jobs without any
    work             Replication, Collection or Handover in progress; Wanted before the job is entered
    """

    __slots__ = (
        "_attempt",
        "_deliveries",
        "_nacks",
        "attributes",
        "awake_at_ms",
        "body",
        "ctime",
        "era",
        "expire_at_ms",
        "holders",
        "id",
        "imported_at",
        "is_delivered",
        "is_leased_here",
        "is_listed",
        "place",
        "requeue_at_ms",
        "since_ms",
        "state",
        "status",
        "terms",
        "version",
        "was_announced",
        "was_queued",
        "work",
    )

    def __init__(
        self,
        job_id: bytes,
        terms: JobTerms,
        body: bytes,
        ctime: int,
        expire_at_ms: int,
        holders: JobNodes,
    ) -> None:
        # Wide fields come first: compiled, the object has no gaps between them. A number that is compared with a narrow
        # field becomes as narrow, and must fit.
        self.id = job_id
        self.terms = terms
        self.body: Body = body
        self.holders = holders
        self.attributes: JobAttributes | None = None
        self.work: Replication | Collection | Handover | Wanted | None = None
        self.ctime = ctime
        self.expire_at_ms = expire_at_ms
        self.requeue_at_ms = 0
        self.awake_at_ms = 0
        self.since_ms = 0
        self._attempt: i32 = -_ATTEMPT_MIDDLE
        self.place: i32 = 0
        self.era: i32 = 0
        self.version: i32 = 1
        self.imported_at: i32 = 0
        self._nacks: i16 = -_COUNTER_MIDDLE
        self._deliveries: i16 = -_COUNTER_MIDDLE
        self.state: u8 = ACTIVE
        self.status: u8 = 0
        self.is_listed = False
        self.is_delivered = False
        self.was_queued = False
        self.is_leased_here = False
        self.was_announced = False

    def __repr__(self) -> str:
        return f"<Job {self.id[11:19].decode('ascii', 'replace')} {STATE_NAMES[self.state]} of {self.queue!r}>"

    def again(self, job_id: bytes) -> Job:
        """Return a copy under another id, as a job that came in a moment ago, without work or state."""
        job = Job(job_id, self.terms, b"", self.ctime, self.expire_at_ms, self.holders)
        job.body = self.body
        attributes = self.attributes
        if attributes is not None:
            job.attributes = attributes.again()
        return job

    @property
    def queue(self) -> bytes:
        """The name of its queue."""
        return self.terms.queue

    @property
    def retry_ms(self) -> int:
        """RETRY as asked for; 0: at most once."""
        return self.terms.retry_ms

    @property
    def delay_ms(self) -> int:
        """DELAY as asked for."""
        return self.terms.delay_ms

    @property
    def replicate(self) -> int:
        """Copies the producer asked for."""
        return self.terms.replicate

    @property
    def attempt(self) -> int:
        """The number of deliveries known to us."""
        return int(self._attempt) + _ATTEMPT_MIDDLE

    @attempt.setter
    def attempt(self, count: int) -> None:
        self._attempt = (count if count < ATTEMPT_MAX else ATTEMPT_MAX) - _ATTEMPT_MIDDLE

    @property
    def nacks(self) -> int:
        """How often consumers gave it back, as far as we know."""
        return int(self._nacks) + _COUNTER_MIDDLE

    @nacks.setter
    def nacks(self, count: int) -> None:
        self._nacks = (count if count < COUNTER_MAX else COUNTER_MAX) - _COUNTER_MIDDLE

    @property
    def deliveries(self) -> int:
        """How often it was delivered again, as far as we know."""
        return int(self._deliveries) + _COUNTER_MIDDLE

    @deliveries.setter
    def deliveries(self, count: int) -> None:
        self._deliveries = (count if count < COUNTER_MAX else COUNTER_MAX) - _COUNTER_MIDDLE

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
        return self.state == ACKED and not self.holders and not self.terms.queue


def memory_of(job: Job) -> int:
    """Return the bytes that the job counts for in `used_memory`."""
    size = JOB_BYTES + len(job.body)
    if len(job.terms.queue) > NAME_BYTES_FREE:
        size += len(job.terms.queue)
    return size if job.attributes is None else size + job.attributes.size
