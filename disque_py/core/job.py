"""Job: a job as one node knows it, and the objects of work in progress on it.

A job is normally queued on one node. Other nodes may hold a copy that is not queued. Their timers queue the job again
when its consumer or its node is gone.

`Job.work` says what the node is doing with the job: making copies (Replication), telling holders of its end
(Collection, Cancellation), giving it to another node (Handover), or asking about its key (Wanted). These classes only
hold data. The modules that their docstrings name make the decisions, and lifecycle.py changes the state of a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from disque_py.core.ids import TTL_MINUTES_MAX, ttl_minutes
from disque_py.core.spilled import Body
from disque_py.event_format import BIN8, SHORT_BYTES_MAX, SMALL_MAX

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.changeable import Changeable
    from disque_py.core.client import Client
    from disque_py.core.fanout import Fanout
    from disque_py.core.job_attributes import JobAttributes
    from disque_py.core.keying import Create

# States of a job on this node. Only lifecycle.py changes them. They are plain numbers, because the hot path compares
# them.
WAIT_REPL: Final = 0  # A client waits until enough nodes hold a copy.
ACTIVE: Final = 1  # Held here, in no queue of this node.
QUEUED: Final = 2  # In a queue of this node, ready for a consumer.
ACKED: Final = 3  # Done; kept only until every holder knows it.
GONE: Final = 4  # Forgotten; a queue's run may still have the object.

STATE_NAMES: Final = ("wait-repl", "active", "queued", "acked", "gone")

# Memory of a job without its body: object, id, entries in index, queue and schedule, as measured by
# `make bench` (docs/performance.md). `maxmemory` limits the sum over all jobs.
JOB_BYTES: Final = 560
# JOB_BYTES includes a queue name of up to this length. All bytes of a longer name count in each job, because jobs do
# not share the name while their queue does not exist.
NAME_BYTES_FREE: Final = 64

# A creation time is milliseconds times this, plus a sequence that keeps jobs of one millisecond apart.
CTIMES_PER_MS: Final = 1_000_000

# The highest values of attempts and of the best-effort counters. Their fields store signed numbers around the middle.
ATTEMPT_MAX: Final = 2**32 - 1
_ATTEMPT_MIDDLE: Final = 2**31
_NO_ATTEMPT: Final = -_ATTEMPT_MIDDLE
_LAST_ATTEMPT: Final = ATTEMPT_MAX - _ATTEMPT_MIDDLE
COUNTER_MAX: Final = 65_535
_COUNTER_MIDDLE: Final = 32_768
_NOT_COUNTED: Final = -_COUNTER_MIDDLE
# How a job changed in this turn: its state, timer or counters; its holders, too.
CHANGED: Final = 1
NEW_HOLDERS: Final = 2

# The bits of a hand-over's moment that a job keeps.
IMPORT_BITS: Final = (1 << 31) - 1
# The number of queues whose last terms are remembered.
TERMS_MAX: Final = 4_096

JobNodes = frozenset["Node"]


class Replication:
    """Work on a WAIT_REPL job: the producer that waits for it, and the nodes that have confirmed a copy.

    confirmed    the nodes that have confirmed; a tuple, because it costs less than a set for few nodes
    asked_again  nodes that had confirmed, and were asked again, because their copies may have moved (spec C5)
    is_default   whether the producer gave no number of copies
    zones        number of zones that must have a copy; 0: any
    is_quorum    whether copies in other data centres do not count (zones.py)
    is_held      whether the job has its copies and waits for the other jobs of its fan-out (fanout.py)
    leased       job -> end of its lease, if a node that has a copy delivered it; None: no such delivery is known
    together     the jobs that share this work; None: it is the work of one job
    """

    __slots__ = (
        "asked_again",
        "asked_again_ms",
        "began_ms",
        "client",
        "confirmed",
        "deadline_ms",
        "is_default",
        "is_external",
        "is_held",
        "is_quorum",
        "leased",
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
        self.asked_again: tuple[Node, ...] = ()
        self.asked_again_ms = self.began_ms = asked_ms
        self.deadline_ms = deadline_ms
        self.is_external = is_external
        self.is_default = is_default
        self.zones = 0
        self.is_quorum = False
        self.is_held = False
        self.leased: dict[Job, int] | None = None
        self.together: Together | None = None


class Together:
    """Jobs of one fan-out whose copies are made in the same way on the same nodes.

    They share one Replication, and only `marker` is in the client's table of waiting jobs. If something happens to one
    of them alone, each first gets its own Replication and slot (replication.py, `part`).

    marker   represents the client's command
    jobs     in the order of their queues
    ids      their ids in one byte string
    slots    one per job after they were separated; empty before
    """

    __slots__ = ("fan", "ids", "jobs", "marker", "slots")

    def __init__(self, fan: Fanout, marker: Job, jobs: list[Job], ids: bytes) -> None:
        self.fan = fan
        self.marker = marker
        self.jobs = jobs
        self.ids = ids
        self.slots: list[list[bytes | None]] = []


class Collection:
    """Work on an ACKED job that is being collected.

    confirmed     the nodes that have confirmed the ack; a tuple, because they are few
    attempts      how often the other holders were asked
    passed        nodes that said that they hold no copy while the set did not name them; it may name them later
    is_reported   whether this node told the keepers of the job's batch of its end (batch_state.py)
    is_doubted    whether the ack may have had a result that this node does not know (ends.py)
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
    """Work on an ACKED job that was canceled. If the job was also completed, completed wins.

    kept_until_ms   end of the lease that ran here, until which the record stays; 0: no lease ran
    is_over         whether the collection is over, so that the record stays only because of the lease
    """

    __slots__ = ("is_over", "kept_until_ms")

    def __init__(self, kept_until_ms: int = 0) -> None:
        super().__init__()
        self.kept_until_ms = kept_until_ms
        self.is_over = False


class Handover:
    """Work on a job that is being handed over: the taker, and the number of the hand-over (handover.py).

    due_ms           when the taker queues the job (DELAY of a new job); 0: immediately
    client, slot     the ADDJOB of an at-most-once job that waits for the answer, if there is one
    deadline_ms      until when that ADDJOB waits; 0: without a limit
    tried            nodes that were tried before this one, and this one
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
    """Work on a job that is not registered yet, while nodes are asked whether its key is used (keying.py).

    client, slot   the ADDJOB that waits
    deadline_ms    until when it waits; 0: without a limit
    create         makes the job when no node knows the key
    is_over        whether the ADDJOB was answered or its client is gone
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
    """The values that most jobs of a queue have in common. Many jobs share one such object, which never changes.

    queue            name of the queue; empty, without holders: the job is a dummy ack (see `Job.is_dummy`)
    retry_ms, delay_ms   RETRY and DELAY; a RETRY of 0 means at most once
    replicate        number of copies that the job should have
    topic            the topic that the job was published to; None: it was added to its queue
    name_bytes       what each job's memory counts for the name: its length if that is above NAME_BYTES_FREE, else 0
    is_short         whether the name has at most SHORT_BYTES_MAX bytes
    packed_queue     the name in msgpack, for events and records, if it is short
    """

    __slots__ = ("delay_ms", "is_short", "name_bytes", "packed_queue", "queue", "replicate", "retry_ms", "topic")

    def __init__(self, queue: bytes, retry_ms: int, delay_ms: int, replicate: int, topic: bytes | None = None) -> None:
        self.queue = queue
        self.retry_ms = retry_ms
        self.delay_ms = delay_ms
        self.replicate = replicate
        self.topic = topic
        self.name_bytes = len(queue) if len(queue) > NAME_BYTES_FREE else 0
        self.is_short = len(queue) <= SHORT_BYTES_MAX
        self.packed_queue = b"%c%c%b" % (BIN8, len(queue), queue) if self.is_short else b""

    def of_queue(self, known: dict[bytes, JobTerms], name: bytes) -> JobTerms:
        """Return the same terms in another queue."""
        return terms_of(known, name, self.retry_ms, self.delay_ms, self.replicate, self.topic)


NO_TERMS: Final = JobTerms(b"", 0, 0, 0)  # For acks of jobs that this node never held.


def terms_of(
    known: dict[bytes, JobTerms],
    queue: bytes,
    retry_ms: int,
    delay_ms: int,
    replicate: int,
    topic: bytes | None = None,
) -> JobTerms:
    """Return terms with these values. If the last terms of the queue are equal, return them, so that jobs share them.

    known   the last terms of each queue; it is cleared when it has too many entries
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
            queue = terms.queue  # All jobs of the queue share one object for the name.
        elif len(known) >= TERMS_MAX:
            known.clear()
        terms = known[queue] = JobTerms(queue, retry_ms, delay_ms, replicate, topic)
    return terms


# A compiled job needs no header for the garbage collector. Work refers to clients, and a client to the jobs it waits
# for: such a cycle always ends, because a job that has its copies, changes its state or is gone has no work. The
# simulator, which throws whole brokers away, takes the work from their jobs (machine.py, `free_memory`).
@mypyc_attr(acyclic=True)
class Job:
    """One job, as this node knows it. Memory may have a million jobs, so each field is as narrow as its values allow.

    id               its 40 bytes
    terms            queue, RETRY, DELAY, REPLICATE and topic, shared with other jobs
    body             bytes; a Spilled while they are on disk (spilling.py)
    state            constants above
    ctime            time of creation: wall clock ms x 1,000,000 + sequence; the same on every node
    expire_at_ms     when its TTL is over (monotonic clock of this node)
    requeue_at_ms    when it is to be queued, first or again; 0: never
    awake_at_ms      when the schedule looks at it; 0: not scheduled (schedule.py, the horizon)
    holders          nodes that may have a copy, including this node if it has one; never smaller than the truth
    nacks, deliveries   the two best-effort counters, up to COUNTER_MAX
    attempt          number of deliveries known to this node; merged by maximum
    is_listed        whether its queue's run or heap has an entry for it
    is_delivered     whether this node delivered it to a consumer or handed it over at least once
    was_queued       whether its next enqueue is a requeue, which is announced
    is_leased_here   whether this node delivered it and the lease runs, so that this node is responsible for it
    was_announced    whether the WILLQUEUE for the coming requeue has been sent
    dirt             CHANGED or NEW_HOLDERS if the job changed in this turn and is in `Broker.dirty`; else 0
    imported_at      when another node handed it to us, the low IMPORT_BITS of the millisecond; 0: no node did
    version          how often any node has changed it; merged by maximum (events.py)
    status, since_ms the status that users see, and since when (wall clock); 0: not known (events.py, census.py)
    place            the journal's segment with its base; 0: there is none (journaling.py)
    era              the broker's era when it arrived; in a later era, other nodes may have got copies since (acks.py)
    attributes       priority, metadata, changes and the like; None for the many jobs without any
    work             Replication, Collection or Handover in progress; Wanted before the job is registered
    """

    __slots__ = (
        "_attempt",
        "_deliveries",
        "_nacks",
        "attributes",
        "awake_at_ms",
        "body",
        "ctime",
        "dirt",
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
        # Wide fields come first, so that the compiled object has no gaps between fields. In compiled code, a number
        # that is compared with a narrow field is narrowed, so it must fit.
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
        self._attempt: i32 = _NO_ATTEMPT
        self.place: i32 = 0
        self.era: i32 = 0
        self.version: i32 = 1
        self.imported_at: i32 = 0
        self._nacks: i16 = _NOT_COUNTED
        self._deliveries: i16 = _NOT_COUNTED
        self.state: u8 = ACTIVE
        self.status: u8 = 0
        self.dirt: u8 = 0
        self.is_listed = False
        self.is_delivered = False
        self.was_queued = False
        self.is_leased_here = False
        self.was_announced = False

    def __repr__(self) -> str:
        return f"<Job {self.id[11:19].decode('ascii', 'replace')} {STATE_NAMES[self.state]} of {self.queue!r}>"

    def again(self, job_id: bytes) -> Job:
        """Return a copy under another id, without work or state, like a job that has just arrived."""
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
        """RETRY, in milliseconds; 0: at most once."""
        return self.terms.retry_ms

    @property
    def delay_ms(self) -> int:
        """DELAY, in milliseconds."""
        return self.terms.delay_ms

    @property
    def replicate(self) -> int:
        """The number of copies that the job should have."""
        return self.terms.replicate

    @property
    def attempt(self) -> int:
        """The number of deliveries known to us."""
        return int(self._attempt) + _ATTEMPT_MIDDLE

    @attempt.setter
    def attempt(self, count: int) -> None:
        self._attempt = (count if count < ATTEMPT_MAX else ATTEMPT_MAX) - _ATTEMPT_MIDDLE

    @property
    def counters(self) -> tuple[int, int, int]:
        """`nacks`, `deliveries` and `attempt`."""
        return (
            int(self._nacks) + _COUNTER_MIDDLE,
            int(self._deliveries) + _COUNTER_MIDDLE,
            int(self._attempt) + _ATTEMPT_MIDDLE,
        )

    def small_counters(self) -> i64:
        """Return `attempt`, `nacks` and `deliveries` as three bytes of a number, each as msgpack packs it.

        Return −1 if one of them needs more than a byte.
        """
        attempt: i64 = i64(self._attempt) + _ATTEMPT_MIDDLE
        nacks: i64 = i64(self._nacks) + _COUNTER_MIDDLE
        deliveries: i64 = i64(self._deliveries) + _COUNTER_MIDDLE
        if attempt | nacks | deliveries > SMALL_MAX:
            return -1
        return attempt << 16 | nacks << 8 | deliveries

    def count_attempt(self) -> None:
        """Count one more delivery."""
        if self._attempt < _LAST_ATTEMPT:
            self._attempt += 1

    @property
    def nacks(self) -> int:
        """How often consumers gave it back, as far as this node knows."""
        return int(self._nacks) + _COUNTER_MIDDLE

    @nacks.setter
    def nacks(self, count: int) -> None:
        self._nacks = (count if count < COUNTER_MAX else COUNTER_MAX) - _COUNTER_MIDDLE

    @property
    def deliveries(self) -> int:
        """How often it was delivered again, as far as this node knows."""
        return int(self._deliveries) + _COUNTER_MIDDLE

    @deliveries.setter
    def deliveries(self, count: int) -> None:
        self._deliveries = (count if count < COUNTER_MAX else COUNTER_MAX) - _COUNTER_MIDDLE

    @property
    def priority(self) -> int:
        """PRIORITY, or the Unix milliseconds of the creation. Jobs with lower values are served first (spec F1)."""
        attributes = self.attributes
        if attributes is None or attributes.priority is None:
            return self.ctime // CTIMES_PER_MS
        return attributes.priority

    @property
    def meta(self) -> tuple[bytes, ...]:
        """The pairs given with ADDJOB, and the pairs of its dead-letter history: name, value, name, value …"""
        attributes = self.attributes
        if attributes is None:
            return ()
        return attributes.meta if attributes.part is None else attributes.meta + attributes.part.pairs()

    @property
    def part(self) -> Changeable | None:
        """The changeable part; None if the job has no such object (changeable.py)."""
        return None if self.attributes is None else self.attributes.part

    @property
    def is_errored(self) -> bool:
        """Whether no attempts are left."""
        part = self.part
        return part is not None and part.is_errored

    def is_half_over(self, now_ms: int, wall_ms: int) -> bool:
        """Return whether half of its TTL is over, so that its next delivery can't be postponed any more (spec L7).

        For a job with a changeable part, the TTL may have begun again later than at its creation.
        """
        part = self.part
        if part is not None and part.number:
            return self.expire_at_ms - now_ms < part.ttl_ms // 2
        left_ms = self.expire_at_ms - now_ms
        age_ms = wall_ms - self.ctime // CTIMES_PER_MS
        minutes = ttl_minutes(self.id)  # The id tells the TTL, give or take a minute, whatever the clocks say.
        if minutes < TTL_MINUTES_MAX - 1:
            age_ms = min(age_ms, (minutes + 2) * 60_000 - left_ms)
        return max(age_ms, (minutes - 1) * 60_000 - left_ms) > left_ms

    @property
    def is_dummy(self) -> bool:
        """Whether this is an ack for a job that this node never held, and of which it knows no holder yet."""
        return self.state == ACKED and not self.holders and not self.terms.queue


def memory_of(job: Job) -> int:
    """Return the bytes that the job counts for in `used_memory`."""
    size = JOB_BYTES + len(job.body) + job.terms.name_bytes
    return size if job.attributes is None else size + job.attributes.size
