"""Census: the jobs of a queue by the status that users see, as far as they count on this node.

A job has copies on several nodes, but counts on one node only (spec Z2). A pending job counts where it is queued, and a
running job where it was delivered. An invisible job counts on the node that made it invisible: its creator while a
DELAY lasts, or the node that got the DEQUEUE or the NACK. While the creator can't be reached, a delayed job counts on
its reachable holder with the lowest id. So does a job that is errored or whose back-off lasts, because every holder
hears of that. A node keeps no completed or canceled jobs, so it counts none.

A queue knows its pending jobs. For the other statuses a walk visits all jobs, one part per step. A counter per queue
would cost a look-up of the queue for each copy, delivery and ack, and queues are dropped while their jobs run. A walk
costs time only for the client that asks. One walk counts the jobs of all queues. On a node with many jobs its result is
used for KEPT_MS, so a tool that asks for a thousand queues costs one walk per second. With QSTAT … RECENT, the same is
true on a node with few jobs. Spec Z3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Final

from disque_py.core import claim_stamps
from disque_py.core.broker import JITTER_MS, SHARDS, Broker
from disque_py.core.ids import creator_of
from disque_py.core.job import ACTIVE, CTIMES_PER_MS, QUEUED, WAIT_REPL, Handover, Job
from disque_py.event_format import INVISIBLE, UNKNOWN

if TYPE_CHECKING:
    from disque_py.core.filters import Filter

# Jobs looked at per part, which takes about half a millisecond.
LOOKED_PER_PART: Final = 2_000
# With more jobs than this, a node uses a census for the span below. With fewer, each client gets its own census.
KEPT_JOBS: Final = 20_000
KEPT_MS: Final = 1_000

Predicate = Callable[[Broker, Job], bool]


class Figures:
    """The numbers of one queue's jobs that count here.

    ready_ms      when its oldest pending job became ready (Unix); 0: it has no pending job
    without_key   number of pending jobs of an exclusive queue that lack the name
    """

    __slots__ = ("errored", "invisible", "ready_ms", "running", "without_key")

    def __init__(self) -> None:
        self.errored = 0
        self.invisible = 0
        self.running = 0
        self.ready_ms = 0
        self.without_key = 0


class Census:
    """One walk over all jobs.

    figures    queue -> its figures
    taken_ms   when the last part was done
    walk       the walk; None when it is over
    """

    __slots__ = ("figures", "taken_ms", "walk")

    def __init__(self, broker: Broker) -> None:
        self.figures: dict[bytes, Figures] = {}
        self.taken_ms = broker.now_ms
        self.walk: Iterator[None] | None = _counted(broker, self)


def taken(broker: Broker, name: bytes, is_recent_enough: bool = False) -> Generator[None, None, Figures]:
    """Return the figures of a queue, from a new walk over all jobs or from a recent one.

    is_recent_enough   whether figures that are up to KEPT_MS old are acceptable even on a node with few jobs
    """
    if broker.job_count <= KEPT_JOBS and not is_recent_enough:
        census = Census(broker)
    else:
        kept = broker.upkeep.census
        # A walk whose clients hung up may be half done. Its figures are as old as its last part.
        if kept is None or broker.now_ms - kept.taken_ms >= KEPT_MS:
            kept = broker.upkeep.census = Census(broker)
        census = kept
    while census.walk is not None:
        next(census.walk, None)
        census.taken_ms = broker.now_ms
        if census.walk is not None:
            yield
    return census.figures.get(name) or Figures()


def _counted(broker: Broker, census: Census) -> Iterator[None]:
    figures = census.figures
    looked = 0
    number = broker.next_shard(0)
    while number < SHARDS:
        shard = broker.shards[number]  # Looked up in each round, because FLUSHALL replaces the shards.
        for job in shard.values():
            if job.state == QUEUED:
                of_queue = _of(figures, job.terms.queue)
                ready_ms = ready_since_ms(job)
                if not of_queue.ready_ms or ready_ms < of_queue.ready_ms:
                    of_queue.ready_ms = ready_ms
                if claim_stamps.lacks_name(broker, job):
                    of_queue.without_key += 1
            elif is_running(broker, job):
                _of(figures, job.terms.queue).running += 1
            elif is_invisible(broker, job):
                _of(figures, job.terms.queue).invisible += 1
            elif is_errored(broker, job):
                _of(figures, job.terms.queue).errored += 1
        looked += len(shard)
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield
        number = broker.next_shard(number + 1)
    census.walk = None


def _of(figures: dict[bytes, Figures], name: bytes) -> Figures:
    found = figures.get(name)
    if found is None:
        found = figures[name] = Figures()
    return found


def walk(
    broker: Broker, name: bytes, counts: Predicate, where: Filter | None, look: Callable[[Job], None]
) -> Iterator[None]:
    """Call `look` with each job of a queue that has a status and carries all pairs, one part per step."""
    looked = 0
    number = broker.next_shard(0)
    while number < SHARDS:
        shard = broker.shards[number]
        for job in shard.values():
            if job.terms.queue == name and counts(broker, job) and (where is None or where.takes(job)):
                look(job)
        looked += len(shard)
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield
        number = broker.next_shard(number + 1)


def ready_since_ms(job: Job) -> int:
    """Return when a pending job became ready (Unix). After a restart this is unknown, so the creation time counts."""
    return job.since_ms or job.ctime // CTIMES_PER_MS + job.terms.delay_ms


def is_pending(broker: Broker, job: Job) -> bool:
    """Return whether the job is queued on this node."""
    return job.state == QUEUED


def is_running(broker: Broker, job: Job) -> bool:
    """Return whether a consumer of this node has the job.

    An at-most-once job runs until its ack, or the end of its TTL.
    """
    if job.state != ACTIVE:
        return False
    if job.terms.retry_ms:
        return job.is_leased_here and not job.is_errored and job.requeue_at_ms > broker.now_ms
    return job.is_delivered and job.attempt > 0


def is_invisible(broker: Broker, job: Job) -> bool:
    """Return whether the job is invisible and counts on this node."""
    work = job.work
    if job.state == WAIT_REPL:
        return True
    if job.state != ACTIVE or is_running(broker, job):
        return False
    part = job.part
    if part is not None and (part.is_errored or part.is_delayed):
        return not part.is_errored and _is_lowest_holder(broker, job)
    if isinstance(work, Handover):
        return work.client is not None  # Its producer waits until another node has the job.
    if not job.was_queued:
        return job.requeue_at_ms > broker.now_ms and _counts_delay_here(broker, job)
    if job.status == INVISIBLE:
        return True
    return is_delayed_elsewhere(broker, job) and _counts_delay_here(broker, job)


def is_delayed_elsewhere(broker: Broker, job: Job) -> bool:
    """Return whether this is a copy of a job whose DELAY lasts.

    The timer of such a copy is DELAY plus RETRY plus jitter.
    """
    if not job.terms.delay_ms or not job.terms.retry_ms or job.attempt or job.status != UNKNOWN:
        return False
    return job.requeue_at_ms - job.terms.retry_ms - JITTER_MS > broker.now_ms


def _counts_delay_here(broker: Broker, job: Job) -> bool:
    """Return whether a delayed job counts on this node, of all nodes that have a copy of it."""
    if broker.me.name[:8] == job.id[2:10]:
        return True
    if creator_of(broker.cluster.linked, job.id) is not None:
        # `was_queued` is False only if the creator kept no copy and told this node to queue the job.
        return not job.was_queued
    return _is_lowest_holder(broker, job)


def is_errored(broker: Broker, job: Job) -> bool:
    """Return whether the job has no attempts left, and counts on this node."""
    return job.state == ACTIVE and job.is_errored and _is_lowest_holder(broker, job)


def _is_lowest_holder(broker: Broker, job: Job) -> bool:
    """Return whether no reachable holder has a lower id than this node."""
    my_id = broker.me.id
    return not any(node.is_linked and node.id < my_id for node in job.holders)
