"""A job's life on this node: register, enqueue, fetch, deliver, acknowledge, forget.

Only this module writes `job.state`. The one exception is restoring.py, while it reads a journal. Each function does one
step completely: index, queue, timer, memory and counters agree when it returns. No function here talks to other nodes.
The modules that do so call these functions.

The meaning of `requeue_at_ms` depends on the state:
  ACTIVE     when the job is queued again (0: never)
  QUEUED     when the other holders are told that the job still waits here
  WAIT_REPL  when one more node is asked to take a copy
  ACKED      when the other holders are asked again whether they know the ack
"""

from __future__ import annotations

from functools import partial
from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.caps import aside_key
from disque_py.core.claim_stamps import open_for
from disque_py.core.events import added, event_of, note
from disque_py.core.filters import Filter
from disque_py.core.job import (
    ACKED,
    ACTIVE,
    CHANGED,
    GONE,
    JOB_BYTES,
    QUEUED,
    WAIT_REPL,
    Cancellation,
    Collection,
    Job,
)
from disque_py.core.job_attributes import BATCH, JobAttributes, topic_bytes
from disque_py.core.parking import Parking
from disque_py.core.queue import DEAD_ENTRIES_MIN, PAUSED_OUT, Queue
from disque_py.core.spilled import Spilled, released
from disque_py.event_format import (
    ADDED,
    CANCELED,
    COMPLETED,
    DELIVERED,
    ERRORED,
    EXPIRED,
    EXPIRED_EVENT,
    PENDING,
    RUNNING,
)
from persistence.layouts import BASE_BYTES

# WILLQUEUE is sent this long before a job is requeued, so that a node that has it queued or delivered can object
# (spec N8).
WILLQUEUE_LEAD_MS: Final = 500
# A job that waits in our queue is announced this long before the timers of the other holders fire. The margin covers
# the batching of announcements (one a second), the lead of their WILLQUEUE and a slow network.
ANNOUNCE_MARGIN_MS: Final = 2_500
# A job with a shorter RETRY is not announced: the batch would come too late, and WILLQUEUE has the same effect.
ANNOUNCE_RETRY_MS_MIN: Final = 2 * ANNOUNCE_MARGIN_MS
# One call removes at most this many expired jobs from a queue's head. Further expired jobs are removed by their timers.
EXPIRED_PER_FETCH: Final = 1_000
# A queue's next jobs are read back from disk when fewer than this many are known to be in memory.
AHEAD_MIN: Final = 128


def register(broker: Broker, job: Job) -> None:
    """Register a job that is not known here. It is ACTIVE, and the caller sets its timer."""
    assert job.state == ACTIVE
    job_id = job.id
    shard = broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63]
    assert job_id not in shard
    shard[job_id] = job
    broker.job_count += 1
    job.era = broker.era
    broker.used_memory += JOB_BYTES + len(job.body) + job.terms.name_bytes
    if job.attributes is not None:
        attributes_in(broker, job, job.attributes)
    if broker.ends.watched:
        broker.ends.note(job_id)
    if broker.memory.is_spilling:
        broker.spill.fresh.append(job)


def register_queued(broker: Broker, job: Job, queue: Queue | None) -> None:
    """Register and queue a new job of which this node holds the only copy.

    This repeats the code of `register` and `enqueue`, because nearly every ADDJOB with REPLICATE 1 calls it.
    """
    assert job.state == ACTIVE
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    job.era = broker.era
    broker.used_memory += JOB_BYTES + len(job.body) + job.terms.name_bytes
    if job.attributes is not None:
        attributes_in(broker, job, job.attributes)
        if job.attributes.extras is not None:
            queue = queue or broker.queue(job.terms.queue)
            open_for(broker, queue, job)
            broker.batches.note_added(job)
    if broker.memory.is_spilling:
        broker.spill.fresh.append(job)
    if queue is None:
        queue = broker.queue(job.terms.queue)
    job.state = QUEUED
    job.was_queued = True
    queue.push(job)
    queue.jobs_in += 1
    queue.active_ms = broker.now_ms
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.consumers.hint_due[queue] = None
    if queue.patterns is not None:
        broker.patterns.pushed(queue)
    if job.expire_at_ms <= broker.schedule.horizon_ms:
        broker.schedule.set(job, job.expire_at_ms)
    if broker.is_journaling and not job.dirt:
        job.dirt = CHANGED
        broker.dirty.append(job)
    events = broker.events
    if events is not None:
        if job.attributes is not None or broker.settings.events_body:
            added(broker, job, ADDED)
        else:
            # `events.added` inlined.
            events.added(job, len(job.body))
    job.status = PENDING
    job.since_ms = broker.wall_ms


def register_waiting(broker: Broker, job: Job) -> None:
    """Register a job whose producer waits for copies. This repeats the code of `register`, for speed."""
    assert job.state == ACTIVE
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    job.era = broker.era
    broker.used_memory += JOB_BYTES + len(job.body) + job.terms.name_bytes
    if job.attributes is not None:
        attributes_in(broker, job, job.attributes)
    job.state = WAIT_REPL
    broker.copies.waiting_repl[job] = None


def register_acked(broker: Broker, job: Job) -> None:
    """Register a record that is only an ack. It does not say whether the job had a result."""
    register(broker, job)
    job.state = ACKED
    job.work = work = Collection()
    work.is_doubted = True
    broker.memory.acked_count += 1
    mark_dirty(broker, job)


def attributes_in(broker: Broker, job: Job, attributes: JobAttributes) -> None:
    """Account for the attributes of a job that is registered."""
    broker.used_memory += attributes.size
    if attributes.extras is not None:
        batch = attributes.extra(BATCH)
        if batch is not None:
            broker.batches.job_in(batch)
    if attributes.is_keyed:
        broker.producers.keys.enter(job)
        broker.producers.key_events[job.id] = None


def attributes_out(broker: Broker, job: Job, attributes: JobAttributes) -> None:
    """Account for the attributes of a job that is forgotten."""
    if broker.behind:
        broker.behind.pop(job, None)
    broker.used_memory -= attributes.size
    if attributes.extras is not None:
        batch = attributes.extra(BATCH)
        if batch is not None:
            broker.batches.job_out(batch)
    if job.place >= broker.journal.first_place:
        broker.journal.live_bytes[job.place] -= attributes.packed_bytes
    if attributes.is_keyed:
        broker.producers.keys.finish(job)
        broker.producers.key_events[job.id] = None


def creation_aborted(broker: Broker, job: Job) -> None:
    """Free the key of a job whose creation failed, and tell the keepers of its batch. The caller forgets the job."""
    attributes = job.attributes
    if attributes is not None and attributes.extras is not None:
        broker.batches.note_aborted(job)
    if attributes is not None and attributes.is_keyed:
        attributes.is_keyed = False
        broker.producers.keys.leave(job.id)
        broker.producers.key_events[job.id] = None


def make_active(broker: Broker, job: Job) -> None:
    """Make a WAIT_REPL job ACTIVE, because enough nodes hold it."""
    assert job.state == WAIT_REPL
    del broker.copies.waiting_repl[job]
    job.work = None
    job.state = ACTIVE
    job.requeue_at_ms = 0
    if job.attributes is not None and job.attributes.is_keyed:
        broker.producers.key_events[job.id] = None
    if broker.memory.is_spilling:
        broker.spill.fresh.append(job)


def enqueue(broker: Broker, job: Job) -> Queue:
    """Put an ACTIVE job into its queue. The caller has checked that the job may be queued (pause, at-most-once)."""
    assert job.state == ACTIVE
    if broker.caps.running:
        broker.caps.ended(job)
    name = job.terms.queue
    queue = broker.queues.get(name)
    if queue is None:
        queue = broker.queue(name)
    job.state = QUEUED
    job.work = None
    job.is_leased_here = False
    job.was_announced = False
    job.was_queued = True
    if job.attributes is not None and job.attributes.extras is not None:
        open_for(broker, queue, job)
    queue.push(job)
    queue.jobs_in += 1
    queue.active_ms = broker.now_ms
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.consumers.hint_due[queue] = None
    if queue.patterns is not None:
        broker.patterns.pushed(queue)
    arm_queued(broker, job)
    if broker.is_journaling and not job.dirt:
        job.dirt = CHANGED
        broker.dirty.append(job)
    return queue


def arm_queued(broker: Broker, job: Job) -> None:
    """Set a QUEUED job's timer: to its announcement if other nodes hold copies, else to the end of its TTL."""
    if job.terms.retry_ms >= ANNOUNCE_RETRY_MS_MIN and job.holders is not broker.sets.mine:
        job.requeue_at_ms = at_ms = broker.now_ms + announce_span_ms(job)
        horizon_ms = broker.schedule.horizon_ms
        if at_ms <= horizon_ms or job.awake_at_ms or job.expire_at_ms <= horizon_ms:
            arm(broker, job)
    else:
        job.requeue_at_ms = 0
        if job.awake_at_ms or job.expire_at_ms <= broker.schedule.horizon_ms:
            broker.schedule.set(job, job.expire_at_ms)


def announce_span_ms(job: Job) -> int:
    """Return how long a job waits in our queue before the next announcement to the other holders."""
    retry_ms = job.terms.retry_ms
    margin_ms = retry_ms // 10
    if margin_ms < ANNOUNCE_MARGIN_MS:
        margin_ms = ANNOUNCE_MARGIN_MS
    # The random part of the id spreads announcements over half of the margin, so that a burst of jobs does not become
    # a burst of announcements.
    return retry_ms - margin_ms - (job.id[20] & 63) * margin_ms // 128


def fetch(broker: Broker, queue: Queue, *, is_picky: bool = False, is_capped: bool = True) -> Job | None:
    """Take the first job out of a queue. It becomes ACTIVE and keeps its timer. Forget expired jobs before it.

    Return None if the queue has none, or if the body is not in memory (the queue is stalled then). Also return None
    after EXPIRED_PER_FETCH expired jobs, because a longer call would keep other clients waiting.

    is_picky   skip at-most-once jobs. All consumers skip them while the disk fails, because such a job can't be
               delivered then: spec O7, P5
    is_capped  set jobs aside for which there is no slot (caps.py); False for a hand-over
    """
    if broker.journal.disk_level:
        is_picky = True
    limits = broker.caps.limits
    limit = limits.get(queue.name) if limits and is_capped else None
    left = EXPIRED_PER_FETCH
    while (job := queue.pop_retried() if is_picky else queue.pop()) is not None:
        assert job.state == QUEUED
        job.state = ACTIVE
        if job.expire_at_ms > broker.now_ms:
            if limit is None:
                return _if_in_memory(broker, queue, job) if broker.memory.spilled_count else job
            if broker.memory.spilled_count and _if_in_memory(broker, queue, job) is None:
                return None
            if _has_slot(broker, queue, job):
                return job
            if not limit.is_by_value:
                return None  # All jobs of the queue wait for the same slots.
        else:
            _forget_expired(broker, job)
        left -= 1
        if not left:
            broker.look_again(queue)
            return None
    return None


def fetch_retried(broker: Broker, queue: Queue) -> Job | None:
    """Take the first at-least-once job, for consumers that skip at-most-once jobs."""
    return fetch(broker, queue, is_picky=True)


def fetch_matching(
    broker: Broker, queue: Queue, wanted: Filter, *, is_picky: bool, is_capped: bool = True
) -> Job | None:
    """Take the first job that has all pairs of `wanted` out of a queue, as `fetch` does.

    The queue must have an index for the filter; otherwise this returns None.
    """
    is_picky = is_picky or bool(broker.journal.disk_level)
    left = EXPIRED_PER_FETCH
    while queue.filters is not None and (group := queue.filters.group(wanted)) is not None:
        job = group.first(is_picky=is_picky)
        if job is not None and queue.parking is not None and not queue.parking.has_room(job):
            job = queue.parking.search(group, broker.now_ms, is_picky=is_picky)
            if job is None and queue.parking.is_cut(group):
                _search_soon(broker, queue, queue.parking)
        if job is None:
            return None
        if type(job.body) is Spilled and job.expire_at_ms > broker.now_ms:
            # The job stays where it is. Putting it back would mark its clients as due again, in an endless loop.
            if not queue.is_stalled:
                queue.is_stalled = True
                broker.spill.heads[queue] = job
            return None
        assert job.state == QUEUED
        job.state = ACTIVE
        _taken(broker, queue, job)
        if job.expire_at_ms > broker.now_ms:
            limits = broker.caps.limits
            if not limits or not is_capped or queue.name not in limits or _has_slot(broker, queue, job):
                return job
        else:
            _forget_expired(broker, job)
        left -= 1
        if not left:
            if queue.parking is not None:
                queue.parking.cut(group)
            broker.look_again(queue)
            return None
    return None


def is_searching(queue: Queue, wanted: Filter) -> bool:
    """Whether a queue may have a job for this filter behind very many jobs that may not be delivered now."""
    if queue.parking is None or queue.filters is None or not queue.length or queue.paused & PAUSED_OUT:
        return False
    group = queue.filters.group(wanted)
    return group is not None and group.length > 0 and queue.parking.is_cut(group)


def _search_soon(broker: Broker, queue: Queue, parking: Parking) -> None:
    if not parking.is_planned:
        parking.is_planned = True
        broker.schedule.call_at(broker.now_ms + 1, partial(_search_on, broker, queue, parking))


def _search_on(broker: Broker, queue: Queue, parking: Parking) -> None:
    """Go on with the searches that were cut, for clients that wait here and for those of other nodes."""
    parking.is_planned = False
    filters = queue.filters
    if filters is None or queue.is_dropped or queue.parking is not parking:
        return
    if parking.is_full:
        parking.is_full = False
        broker.wake(queue)
    for group, search in list(parking.searches.items()):
        if not search.is_cut:
            continue
        if group.waiting:
            filters.due[group] = None
            broker.ready[queue] = None
        elif group.demand is not None and group.demand.interested:
            if parking.search(group, broker.now_ms, is_picky=False) is not None:
                broker.consumers.filter_hints[group] = queue
            elif search.is_cut:
                _search_soon(broker, queue, parking)
        else:
            del parking.searches[group]  # Its clients are gone. The next one begins again.


def _has_slot(broker: Broker, queue: Queue, job: Job) -> bool:
    """Return whether a fetched job of a queue with caps may be delivered. If not, set it aside. Spec CP3."""
    caps = broker.caps
    if caps.admit(job, broker.now_ms, caps.wanted(queue, broker.now_ms)):
        return True
    if queue.parking is None:
        queue.parking = Parking(queue, _no_value, _no_room)
    pair = caps.pair_of(job)
    caps.aside.setdefault(queue.name, {})[pair] = None
    set_aside(queue, job, aside_key(pair))
    return False


def _no_value(job: Job) -> bytes | None:
    return None


def _no_room(value: bytes) -> int:
    return 0


def set_aside(queue: Queue, job: Job, key: bytes) -> None:
    """Set a fetched job aside under this key (parking.py). It is pending and keeps its timer."""
    assert job.state == ACTIVE
    assert queue.parking is not None
    job.state = QUEUED
    if job.is_listed:
        queue.unlist(job)
    if queue.filters is not None and job.attributes is not None:
        queue.filters.added(job)
    queue.parking.set_aside(job, key)


def _forget_expired(broker: Broker, job: Job) -> None:
    """Forget a job that was taken out of its queue and has expired."""
    broker.stats.jobs_expired += 1
    note(broker, job, EXPIRED_EVENT)
    forget(broker, job)


def _if_in_memory(broker: Broker, queue: Queue, job: Job) -> Job | None:
    """Return the fetched job, or None if its body is on disk: the job becomes the head again and the queue stalls."""
    assert job.state == ACTIVE
    if type(job.body) is Spilled:
        job.state = QUEUED
        if not queue.is_stalled:
            # Set before the push, which would otherwise mark clients with a filter as due, in an endless loop.
            queue.is_stalled = True
            broker.spill.heads[queue] = job
        queue.push(job)
        return None
    queue.ahead -= 1
    if queue.ahead < AHEAD_MIN < queue.length:
        broker.spill.heads.setdefault(queue)
    return job


def put_back(broker: Broker, job: Job) -> None:
    """Undo a `fetch`: put the job back into its queue."""
    assert job.state == ACTIVE
    job.state = QUEUED
    queue = broker.queue(job.terms.queue)
    queue.push(job)
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.consumers.hint_due[queue] = None
    if queue.patterns is not None:
        broker.patterns.pushed(queue)


def undo_fetch(broker: Broker, queue: Queue, job: Job) -> None:
    """Undo a `fetch` without looking for another client, because none can get the job now."""
    assert job.state == ACTIVE
    job.state = QUEUED
    if broker.caps.admitted:
        broker.caps.give_back(job)
    is_stalled, queue.is_stalled = queue.is_stalled, True  # So that the push marks no client with a filter as due.
    queue.push(job)
    queue.is_stalled = is_stalled


def take_aside(queue: Queue, job: Job) -> None:
    """Take a job that was set aside, to deliver it."""
    assert job.state == QUEUED
    assert not job.is_listed
    queue.removed(job)
    job.state = ACTIVE


def dequeue(broker: Broker, job: Job) -> None:
    """Take a QUEUED job out of its queue without delivering it. The caller sets its timer."""
    assert job.state == QUEUED
    job.state = ACTIVE
    queue = broker.queues.get(job.terms.queue)
    if queue is not None:
        _left(broker, queue, job)
    mark_dirty(broker, job)


def lease(broker: Broker, job: Job) -> None:
    """Start the lease of a job that goes to a consumer of this node (spec L1, Q9)."""
    assert job.state == ACTIVE
    assert job.work is None
    job.count_attempt()
    job.version += 1
    events = broker.events
    if events is not None:
        if job.attributes is None:
            # `events.note` inlined, because every GETJOB calls this. Only a queued job is leased to a consumer.
            events.delivered(job, len(job.body))
        else:
            # A job that another node gave to this one has no status yet, and has left its queue.
            events.append(event_of(job, DELIVERED, left=PENDING))
    job.status = RUNNING
    job.since_ms = broker.wall_ms
    retry_ms = job.terms.retry_ms
    if retry_ms:
        job.is_delivered = True
        job.is_leased_here = True
        job.was_announced = False
        job.requeue_at_ms = requeue_at_ms = broker.now_ms + retry_ms
        horizon_ms = broker.schedule.horizon_ms
        if job.awake_at_ms or job.expire_at_ms <= horizon_ms or requeue_at_ms - WILLQUEUE_LEAD_MS <= horizon_ms:
            arm(broker, job)
    else:
        if not job.is_delivered:
            job.is_delivered = True
            broker.memory.once_delivered_count += 1
        job.requeue_at_ms = 0
        broker.schedule.set(job, job.expire_at_ms)
    if broker.is_journaling and not job.dirt:
        job.dirt = CHANGED
        broker.dirty.append(job)


def extend(broker: Broker, job: Job, lease_ms: int) -> None:
    """Make the job's lease end `lease_ms` from now (LEASE, EXTENDTOKEN, WORKING)."""
    assert job.state == ACTIVE
    assert job.terms.retry_ms > 0
    job.requeue_at_ms = broker.now_ms + lease_ms
    job.was_announced = False
    arm(broker, job)
    mark_dirty(broker, job)


def postpone(broker: Broker, job: Job, until_ms: int) -> None:
    """Queue an ACTIVE job no earlier than at `until_ms`."""
    assert job.state == ACTIVE
    job.requeue_at_ms = until_ms
    job.was_announced = False
    # The timer may stay only if it fires in time for the WILLQUEUE, which is sent before `until_ms`.
    if job.awake_at_ms == 0 or job.awake_at_ms > until_ms - willqueue_lead_ms(job):
        arm(broker, job)


def end_lease(broker: Broker, job: Job) -> None:
    """Note that no lease of this node runs for the job any more, so its slot of the queue's caps is free. Spec CP1."""
    job.is_leased_here = False
    if broker.caps.running:
        broker.caps.ended(job)


def stop_requeueing(broker: Broker, job: Job) -> None:
    """Stop queueing an ACTIVE job because it is errored. Its timer now waits only for the end of its TTL."""
    assert job.state == ACTIVE
    job.requeue_at_ms = 0
    job.was_announced = False
    arm(broker, job)
    broker.keep_for_errored(job)
    if broker.ends.watched:
        broker.ends.note(job.id)
    mark_dirty(broker, job)


def end_stall(broker: Broker, queue: Queue) -> None:
    """End a queue's stall and serve its clients, because its head is in memory or is another job now."""
    queue.is_stalled = False
    broker.waits.stalled.clear()
    broker.wake(queue)
    if queue.interested or queue.patterns is not None:
        broker.consumers.hint_due[queue] = None
    if queue.filters is not None:
        queue.filters.owe_hints()


def rename_queue(broker: Broker, job: Job, name: bytes) -> None:
    """Assign a job that is in no queue to another queue."""
    assert job.state != QUEUED
    known = broker.queues.get(name)
    if known is not None:
        name = known.name  # All jobs of a queue share one object.
    old = job.terms.queue
    if job.is_listed:
        queue = broker.queues.get(old)
        if queue is not None:
            queue.unlist(job)  # Its dead entry would count as living when the job is queued elsewhere.
    left = broker.queues.get(old)
    if left is not None and left.is_stalled:
        end_stall(broker, left)  # The queue may be stalled by this job, whose body now returns to the other queue.
    if job.place >= broker.journal.first_place:
        broker.journal.live_bytes[job.place] += len(name) - len(old)
    broker.used_memory -= job.terms.name_bytes
    job.terms = job.terms.of_queue(broker.terms, name)
    broker.used_memory += job.terms.name_bytes


def set_priority(broker: Broker, job: Job, attributes: JobAttributes, priority: int | None) -> None:
    """Change the priority of a job that is in no queue."""
    assert job.state != QUEUED
    if job.is_listed:
        queue = broker.queues.get(job.terms.queue)
        if queue is not None:
            queue.unlist(job)  # Its dead entry would count again, at the old place.
    attributes.priority = priority


def acknowledge(broker: Broker, job: Job, work: Collection | None = None) -> None:
    """Take an acknowledged job out of its queue, and keep its record until every holder knows the ack (acks.py).

    The job must not be in state WAIT_REPL.

    work   the Cancellation, if the job was canceled
    """
    state = job.state
    assert state in (QUEUED, ACTIVE)
    if broker.caps.running:
        broker.caps.ended(job)
    if state == QUEUED:
        queue = broker.queues.get(job.terms.queue)
        if queue is not None:
            _left(broker, queue, job)
    if job.is_delivered and job.terms.retry_ms == 0:
        broker.memory.once_delivered_count -= 1
        assert broker.memory.once_delivered_count >= 0
    # The record of an ack needs only the id and the holders. The body is freed, because one unreachable holder would
    # otherwise keep the bodies of all acknowledged jobs in memory.
    body = job.body
    size = len(body)
    broker.used_memory -= size
    if type(body) is Spilled:
        size = released(broker, body)
    if job.place >= broker.journal.first_place:
        broker.journal.live_bytes[job.place] -= size
    job.body = b""
    job.state = ACKED
    job.is_leased_here = False
    job.requeue_at_ms = 0
    job.work = Collection() if work is None else work
    broker.memory.acked_count += 1
    if work is None:
        broker.stats.jobs_acked += 1
    if broker.pauses.deferred:
        broker.pauses.deferred.pop(job, None)
    if broker.tokens.by_job:
        broker.tokens.drop(job)
    if broker.ends.watched:
        broker.ends.note(job.id)
    if broker.is_journaling and not job.dirt:
        job.dirt = CHANGED
        broker.dirty.append(job)


def forget(broker: Broker, job: Job) -> None:
    """Remove every trace of the job from this node. The caller has already answered waiting producers."""
    state = job.state
    assert state != GONE
    job_id = job.id
    status = job.status  # How the job ended, if it did: see ends.py.
    if broker.caps.running:
        broker.caps.ended(job)
    if state == ACKED:
        broker.memory.acked_count -= 1
        assert broker.memory.acked_count >= 0
        work = job.work
        if not job.holders:
            status = 0  # An ack of a job that no node held.
        elif type(work) is Cancellation:
            status = CANCELED
        else:
            status = COMPLETED
            if type(work) is Collection and work.is_doubted:  # Only a completed job has a result.
                broker.ends.doubts[job_id] = None
    else:
        if state == QUEUED:
            queue = broker.queues.get(job.terms.queue)
            if queue is not None:
                _left(broker, queue, job)
        elif state == WAIT_REPL:
            del broker.copies.waiting_repl[job]
        if job.is_delivered and job.terms.retry_ms == 0:
            broker.memory.once_delivered_count -= 1
            assert broker.memory.once_delivered_count >= 0
        if status < COMPLETED and job.expire_at_ms <= broker.now_ms:
            status = EXPIRED
    del broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id]
    broker.job_count -= 1
    body = job.body
    size = len(body)
    broker.used_memory -= JOB_BYTES + size + job.terms.name_bytes
    assert broker.used_memory >= 0
    if job.attributes is not None:
        attributes_out(broker, job, job.attributes)
    if type(body) is Spilled:
        size = released(broker, body)
    # A queue, a hand-over or a list may keep the object for a while, so the body is freed here.
    job.body = b""
    if broker.repairs.named:
        broker.repairs.named.pop(job, None)
    if job.awake_at_ms:
        broker.schedule.cancel(job)
    if broker.pauses.deferred:
        broker.pauses.deferred.pop(job, None)
    if broker.tokens.by_job:
        broker.tokens.drop(job)
    if status >= COMPLETED and status != ERRORED:
        broker.ends.recent[job_id] = status
    if broker.ends.watched:
        broker.ends.note(job_id)
    # A result for which clients wait is kept until they are told.
    if broker.results.by_id and (not status or job_id not in broker.ends.noted):
        broker.results.job_is_over(job_id)
    if broker.progress.by_job:
        broker.progress.drop(job)
    job.state = GONE
    job.work = None
    if job.place >= broker.journal.first_place:
        broker.outbox.gone.add_gone(job_id, job.place)
        if job.terms.topic is not None:
            size += topic_bytes(job.terms.topic)
        journal = broker.journal
        if job.place != journal.gone_place:
            journal.settle()
            journal.gone_place = job.place
        journal.gone_bytes += BASE_BYTES + len(job.terms.queue) + size
        journal.gone_records += 1


def arm(broker: Broker, job: Job) -> None:
    """Set the job's timer to the earliest moment at which something is due for it."""
    at_ms = job.expire_at_ms
    due_ms = job.requeue_at_ms
    if due_ms:
        if job.state == ACTIVE and not job.was_announced and job.holders is not broker.sets.mine:
            due_ms -= willqueue_lead_ms(job)
        if due_ms < at_ms:
            at_ms = due_ms
    schedule = broker.schedule
    if at_ms <= schedule.horizon_ms or job.awake_at_ms:
        schedule.set(job, at_ms)


def willqueue_lead_ms(job: Job) -> int:
    """Return how long before its requeueing WILLQUEUE is sent for a job: at most half of its RETRY."""
    half_ms = job.terms.retry_ms // 2
    return half_ms if half_ms < WILLQUEUE_LEAD_MS else WILLQUEUE_LEAD_MS


def mark_dirty(broker: Broker, job: Job) -> None:
    """Note a change of the job that the journal has to record (journaling.py)."""
    if broker.is_journaling and not job.dirt:
        job.dirt = CHANGED
        broker.dirty.append(job)


def acked_again(broker: Broker, job: Job) -> None:
    """Start the collection of a restored acked record; the caller sets its timer. A Cancellation stays."""
    assert job.state == ACKED
    if not isinstance(job.work, Cancellation):
        job.work = work = Collection()
        work.is_doubted = not job.terms.queue
    broker.memory.acked_count += 1


def show_due(broker: Broker, queue: Queue) -> None:
    """Offer jobs that were set aside, where a job that left has made room for others of its value (parking.py)."""
    if queue.parking is not None and queue.parking.show_due():
        broker.wake(queue)
        if queue.interested:
            broker.consumers.hint_due[queue] = None


def _left(broker: Broker, queue: Queue, job: Job) -> None:
    _taken(broker, queue, job)
    if queue.parking is not None:
        show_due(broker, queue)


def _taken(broker: Broker, queue: Queue, job: Job) -> None:
    queue.removed(job)
    assert queue.length >= queue.once_length >= 0
    if queue.dead > DEAD_ENTRIES_MIN and queue.needs_sweep and queue not in broker.upkeep.sweeps:
        broker.upkeep.sweeps[queue] = queue.sweep()
