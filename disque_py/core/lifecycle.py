"""A job's life on this node: register, enqueue, fetch, deliver, acknowledge, forget.

Only this module writes `job.state`, and restoring.py does while a journal is read. Each function does one step
completely: index, queue, timer, memory and counters agree when it returns. No function here talks to other nodes. The
modules that do so call these functions.

The meaning of `requeue_at_ms` depends on the state:
  ACTIVE     when the job is to be queued (0: never)
  QUEUED     when to tell the other holders that it still waits here
  WAIT_REPL  when to ask one more node
  ACKED      when to ask the other holders again whether they know the ack
"""

from __future__ import annotations

from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.caps import aside_key
from disque_py.core.claim_stamps import open_for
from disque_py.core.events import added, event_of, note
from disque_py.core.filters import Filter
from disque_py.core.job import (
    ACKED,
    ACTIVE,
    GONE,
    JOB_BYTES,
    NAME_BYTES_FREE,
    QUEUED,
    WAIT_REPL,
    Cancellation,
    Collection,
    Job,
)
from disque_py.core.job_attributes import BATCH, JobAttributes, topic_bytes
from disque_py.core.parking import Parking
from disque_py.core.queue import DEAD_ENTRIES_MIN, Queue
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

# WILLQUEUE goes out this long before a job is requeued, so that a node that has it can object (spec N8).
WILLQUEUE_LEAD_MS: Final = 500
# A job that waits in our queue is announced before the timers of the other holders come near. The margin covers the
# batching of announcements (one a second), the lead of their WILLQUEUE and a slow network.
ANNOUNCE_MARGIN_MS: Final = 2_500
# A job with a shorter RETRY is not announced: the batch would come too late, and WILLQUEUE has the same effect.
ANNOUNCE_RETRY_MS_MIN: Final = 2 * ANNOUNCE_MARGIN_MS
# Expired jobs removed from a queue's head in one call; their timers remove the rest.
EXPIRED_PER_FETCH: Final = 1_000
# A queue's next jobs are read back from disk when fewer than this are known to be in memory.
AHEAD_MIN: Final = 128


def register(broker: Broker, job: Job) -> None:
    """Enter a job that is not known here. It is ACTIVE, and the caller sets its timer."""
    assert job.state == ACTIVE
    job_id = job.id
    shard = broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63]
    assert job_id not in shard
    shard[job_id] = job
    broker.job_count += 1
    job.era = broker.era
    broker.used_memory += JOB_BYTES + len(job.body)
    if len(job.terms.queue) > NAME_BYTES_FREE:
        broker.used_memory += len(job.terms.queue)
    if job.attributes is not None:
        attributes_in(broker, job, job.attributes)
    if broker.ends.watched:
        broker.ends.note(job_id)
    if broker.memory.is_spilling:
        broker.spill.fresh.append(job)


def register_queued(broker: Broker, job: Job, queue: Queue | None) -> None:
    """Enter a new job of which we hold the only copy, and queue it: register and enqueue in one.

    It repeats their code, because nearly every ADDJOB of REPLICATE 1 comes here.
    """
    assert job.state == ACTIVE
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    job.era = broker.era
    broker.used_memory += JOB_BYTES + len(job.body)
    if len(job.terms.queue) > NAME_BYTES_FREE:
        broker.used_memory += len(job.terms.queue)
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
    if broker.is_journaling:
        broker.dirty[job] = False
    events = broker.events
    if events is not None:
        if job.attributes is not None or broker.settings.events_body:
            added(broker, job, ADDED)
        else:
            # The same as `added`, written out.
            events.added(job, len(job.body))
    job.status = PENDING
    job.since_ms = broker.wall_ms


def register_waiting(broker: Broker, job: Job) -> None:
    """Enter a job whose producer waits for copies. It repeats the code of `register`."""
    assert job.state == ACTIVE
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    job.era = broker.era
    broker.used_memory += JOB_BYTES + len(job.body)
    if len(job.terms.queue) > NAME_BYTES_FREE:
        broker.used_memory += len(job.terms.queue)
    if job.attributes is not None:
        attributes_in(broker, job, job.attributes)
    job.state = WAIT_REPL
    broker.copies.waiting_repl[job] = None


def register_acked(broker: Broker, job: Job) -> None:
    """Enter a record that is only an ack. It does not say whether there is a result."""
    register(broker, job)
    job.state = ACKED
    job.work = work = Collection()
    work.is_doubted = True
    broker.memory.acked_count += 1
    mark_dirty(broker, job)


def attributes_in(broker: Broker, job: Job, attributes: JobAttributes) -> None:
    """Account for the attributes of a job that is entered."""
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
    """Free the key of a job that is about to be forgotten, because its creation failed. Tell keepers of its batch."""
    attributes = job.attributes
    if attributes is not None and attributes.extras is not None:
        broker.batches.note_aborted(job)
    if attributes is not None and attributes.is_keyed:
        attributes.is_keyed = False
        broker.producers.keys.leave(job.id)
        broker.producers.key_events[job.id] = None


def achieve(broker: Broker, job: Job) -> None:
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
    """Put an ACTIVE job into its queue. The caller has checked that it may be queued (pause, at-most-once)."""
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
    if broker.is_journaling:
        broker.dirty.setdefault(job, False)
    return queue


def arm_queued(broker: Broker, job: Job) -> None:
    """Set a QUEUED job's timer: its announcement if other nodes hold copies, else only the end of its TTL."""
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
    """Return how long a job may wait in our queue before the other holders hear of it (again)."""
    retry_ms = job.terms.retry_ms
    margin_ms = retry_ms // 10
    if margin_ms < ANNOUNCE_MARGIN_MS:
        margin_ms = ANNOUNCE_MARGIN_MS
    # Spread over half of the margin by the job's own random part, so a burst of jobs is not announced in one burst.
    return retry_ms - margin_ms - (job.id[20] & 63) * margin_ms // 128


def fetch(broker: Broker, queue: Queue, *, is_picky: bool = False, is_capped: bool = True) -> Job | None:
    """Take the oldest job out of a queue: it becomes ACTIVE and keeps its timer. Expired jobs are forgotten on the way.

    Return None if there is none, or if its body is not in memory (the queue is stalled then). Also return None after
    very many expired jobs, because going on would keep other clients waiting.

    is_picky   skip at-most-once jobs. While the disk fails, they can't be delivered, so all consumers skip them: spec
               O7, P5
    is_capped  set jobs aside for which there is no slot (caps.py); not for a hand-over
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
    """Take the first job that carries all pairs out of a queue, as `fetch` does; its index must be there."""
    is_picky = is_picky or bool(broker.journal.disk_level)
    left = EXPIRED_PER_FETCH
    while queue.filters is not None and (group := queue.filters.group(wanted)) is not None:
        job = group.first(is_picky=is_picky)
        if job is not None and queue.parking is not None and not queue.parking.has_room(job):
            job = queue.parking.first_of(group.oldest(), is_picky=is_picky)
        if job is None:
            return None
        if type(job.body) is Spilled and job.expire_at_ms > broker.now_ms:
            # The job stays where it is: to put it back would mark its clients as due at once, again and again.
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
            broker.look_again(queue)
            return None
    return None


def _has_slot(broker: Broker, queue: Queue, job: Job) -> bool:
    """Return whether a fetched job of a queue with caps may be delivered. If not, it is set aside. Spec CP3."""
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
    """Let a fetched job wait aside under this key (parking.py). It is pending, and keeps its timer."""
    assert job.state == ACTIVE
    assert queue.parking is not None
    job.state = QUEUED
    if job.is_listed:
        queue.unlist(job)
    if queue.filters is not None and job.attributes is not None:
        queue.filters.added(job)
    queue.parking.set_aside(job, key)


def _forget_expired(broker: Broker, job: Job) -> None:
    """Forget a job that was taken out of its queue and is over."""
    broker.stats.jobs_expired += 1
    note(broker, job, EXPIRED_EVENT)
    forget(broker, job)


def _if_in_memory(broker: Broker, queue: Queue, job: Job) -> Job | None:
    """Return the fetched job. If its body is on disk, make it the head again, and let the queue wait for the body."""
    assert job.state == ACTIVE
    if type(job.body) is Spilled:
        job.state = QUEUED
        if not queue.is_stalled:
            queue.is_stalled = True  # Before the push: it would mark clients with a filter as due, again and again.
            broker.spill.heads[queue] = job
        queue.push(job)
        return None
    queue.ahead -= 1
    if queue.ahead < AHEAD_MIN < queue.length:
        broker.spill.heads.setdefault(queue)
    return job


def put_back(broker: Broker, job: Job) -> None:
    """Undo a `fetch`: the job is in its queue again, as before."""
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
    """Undo a `fetch`, without looking for a client again: none can get the job now."""
    assert job.state == ACTIVE
    job.state = QUEUED
    if broker.caps.admitted:
        broker.caps.give_back(job)
    is_stalled, queue.is_stalled = queue.is_stalled, True  # Clients with a filter are not marked as due.
    queue.push(job)
    queue.is_stalled = is_stalled


def take_aside(queue: Queue, job: Job) -> None:
    """Take a job that is aside, to deliver it."""
    assert job.state == QUEUED
    assert not job.is_listed
    queue.removed(job)
    job.state = ACTIVE


def dequeue(broker: Broker, job: Job) -> None:
    """Take a QUEUED job out of its queue without delivering it; the caller sets its timer."""
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
    job.attempt += 1
    job.version += 1
    events = broker.events
    if events is not None:
        if job.attributes is None:
            # events.note, written out, because every GETJOB comes here. Only a queued job is leased to a consumer.
            events.delivered(job, len(job.body))
        else:
            events.append(event_of(job, DELIVERED))
    job.status = RUNNING
    job.since_ms = broker.wall_ms
    retry_ms = job.terms.retry_ms
    if retry_ms:
        job.is_delivered = True
        job.is_leased_here = True
        job.was_announced = False
        job.requeue_at_ms = broker.now_ms + retry_ms
        arm(broker, job)
    else:
        if not job.is_delivered:
            job.is_delivered = True
            broker.memory.once_delivered_count += 1
        job.requeue_at_ms = 0
        broker.schedule.set(job, job.expire_at_ms)
    if broker.is_journaling:
        broker.dirty.setdefault(job, False)


def extend(broker: Broker, job: Job, lease_ms: int) -> None:
    """Let the job's lease last `lease_ms` from now (LEASE, EXTENDTOKEN, WORKING)."""
    assert job.state == ACTIVE
    assert job.terms.retry_ms > 0
    job.requeue_at_ms = broker.now_ms + lease_ms
    job.was_announced = False
    arm(broker, job)
    mark_dirty(broker, job)


def postpone(broker: Broker, job: Job, until_ms: int) -> None:
    """Keep an ACTIVE job from being queued before `until_ms`."""
    assert job.state == ACTIVE
    job.requeue_at_ms = until_ms
    job.was_announced = False
    # The timer may stay as it is only if it comes before the WILLQUEUE, which needs its lead.
    if job.awake_at_ms == 0 or job.awake_at_ms > until_ms - willqueue_lead_ms(job):
        arm(broker, job)


def rest(broker: Broker, job: Job) -> None:
    """Let an ACTIVE job wait for nothing but the end of its life, because it is errored."""
    assert job.state == ACTIVE
    job.requeue_at_ms = 0
    job.was_announced = False
    arm(broker, job)
    broker.keep_for_errored(job)
    if broker.ends.watched:
        broker.ends.note(job.id)
    mark_dirty(broker, job)


def go_on(broker: Broker, queue: Queue) -> None:
    """Serve the clients of a stalled queue: its head is in memory, or another job is the head."""
    queue.is_stalled = False
    broker.waits.stalled.clear()
    broker.wake(queue)
    if queue.interested or queue.patterns is not None:
        broker.consumers.hint_due[queue] = None


def rename_queue(broker: Broker, job: Job, name: bytes) -> None:
    """Let a job that is in no queue belong to another queue."""
    assert job.state != QUEUED
    known = broker.queues.get(name)
    if known is not None:
        name = known.name  # One object for all its jobs.
    old = job.terms.queue
    if job.is_listed:
        queue = broker.queues.get(old)
        if queue is not None:
            queue.unlist(job)  # Its dead entry would count again when the job is queued elsewhere.
    left = broker.queues.get(old)
    if left is not None and left.is_stalled:
        go_on(broker, left)  # It may wait for this job's body, which comes back to the other queue.
    if len(old) > NAME_BYTES_FREE:
        broker.used_memory -= len(old)
    if len(name) > NAME_BYTES_FREE:
        broker.used_memory += len(name)
    if job.place >= broker.journal.first_place:
        broker.journal.live_bytes[job.place] += len(name) - len(old)
    job.terms = job.terms.of_queue(broker.terms, name)


def set_priority(broker: Broker, job: Job, attributes: JobAttributes, priority: int | None) -> None:
    """Give a job that is in no queue another priority."""
    assert job.state != QUEUED
    if job.is_listed:
        queue = broker.queues.get(job.terms.queue)
        if queue is not None:
            queue.unlist(job)  # Its dead entry would count again at its old place.
    attributes.priority = priority


def acknowledge(broker: Broker, job: Job, work: Collection | None = None) -> None:
    """Take an acknowledged job out of its queue, and keep it until every holder knows (acks.py).

    work   the Cancellation of a job that was canceled
    Not for WAIT_REPL jobs.
    """
    assert job.state == QUEUED or job.state == ACTIVE
    if broker.caps.running:
        broker.caps.ended(job)
    if job.state == QUEUED:
        queue = broker.queues.get(job.terms.queue)
        if queue is not None:
            _left(broker, queue, job)
    if job.terms.retry_ms == 0 and job.is_delivered:
        broker.memory.once_delivered_count -= 1
        assert broker.memory.once_delivered_count >= 0
    # An ack needs an id and a set: one dead holder must not keep the bodies of all acknowledged jobs in memory.
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
    mark_dirty(broker, job)


def forget(broker: Broker, job: Job) -> None:
    """Remove every trace of the job here. The caller has answered waiting producers before."""
    state = job.state
    assert state != GONE
    if broker.caps.running:
        broker.caps.ended(job)
    if state == QUEUED:
        queue = broker.queues.get(job.terms.queue)
        if queue is not None:
            _left(broker, queue, job)
    elif state == ACKED:
        broker.memory.acked_count -= 1
        assert broker.memory.acked_count >= 0
    elif state == WAIT_REPL:
        del broker.copies.waiting_repl[job]
    if job.is_delivered and job.terms.retry_ms == 0 and state != ACKED:
        broker.memory.once_delivered_count -= 1
        assert broker.memory.once_delivered_count >= 0
    job_id = job.id
    del broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id]
    broker.job_count -= 1
    body = job.body
    size = len(body)
    broker.used_memory -= JOB_BYTES + size
    if len(job.terms.queue) > NAME_BYTES_FREE:
        broker.used_memory -= len(job.terms.queue)
    assert broker.used_memory >= 0
    if job.attributes is not None:
        attributes_out(broker, job, job.attributes)
    if type(body) is Spilled:
        size = released(broker, body)
    # A queue, a hand-over or a list may name the object for a while; the body is freed now.
    job.body = b""
    if broker.repairs.named:
        broker.repairs.named.pop(job, None)
    if job.awake_at_ms:
        broker.schedule.cancel(job)
    if broker.pauses.deferred:
        broker.pauses.deferred.pop(job, None)
    if broker.tokens.by_job:
        broker.tokens.drop(job)
    _note_end(broker, job)
    job.state = GONE
    job.work = None
    if job.place >= broker.journal.first_place:
        broker.outbox.gone.append((job_id, job.place))
        if job.terms.topic is not None:
            size += topic_bytes(job.terms.topic)
        broker.journal.live_bytes[job.place] -= BASE_BYTES + len(job.terms.queue) + size
        broker.journal.live_records[job.place] -= 1
        assert broker.journal.live_records[job.place] >= 0


def _note_end(broker: Broker, job: Job) -> None:
    """Remember how a job ended that is about to be forgotten, if it did (ends.py)."""
    status = job.status
    ends = broker.ends
    if job.state == ACKED:
        status = CANCELED if isinstance(job.work, Cancellation) else COMPLETED
        if not job.holders:
            status = 0  # An ack of a job that no node held.
    elif job.expire_at_ms <= broker.now_ms and status < COMPLETED:
        status = EXPIRED
    if status >= COMPLETED and status != ERRORED:
        ends.recent[job.id] = status
        work = job.work
        if work is not None and type(work) is Collection and work.is_doubted:  # Only a completed job has a result.
            ends.doubts[job.id] = None
    if ends.watched:
        ends.note(job.id)
    if broker.results.by_id and (not status or job.id not in ends.noted):  # Those that wait are told first.
        broker.results.job_is_over(job.id)
    if broker.progress.by_job:
        broker.progress.drop(job)


def arm(broker: Broker, job: Job) -> None:
    """Set the timer to the earliest moment that matters for this job."""
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
    """Return how long before its requeueing a job is announced with WILLQUEUE; never more than half of RETRY."""
    half_ms = job.terms.retry_ms // 2
    return half_ms if half_ms < WILLQUEUE_LEAD_MS else WILLQUEUE_LEAD_MS


def mark_dirty(broker: Broker, job: Job) -> None:
    """Note a change of the job that the journal has to record (journaling.py)."""
    if broker.is_journaling:
        broker.dirty.setdefault(job, False)


def acked_again(broker: Broker, job: Job) -> None:
    """Start the collection of a restored acked record; the caller sets its timer. A Cancellation stays."""
    assert job.state == ACKED
    if not isinstance(job.work, Cancellation):
        job.work = work = Collection()
        work.is_doubted = not job.terms.queue
    broker.memory.acked_count += 1


def show_due(broker: Broker, queue: Queue) -> None:
    """Offer more jobs of values from which a job left the queue (parking.py)."""
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
