"""A job's life on this node: register, enqueue, fetch, deliver, acknowledge, forget.

Alone in writing `job.state`. Each function does one step completely: index, queue, timer, memory and counters
agree when it returns. None of them talks to other nodes; the conversations do, and call these.

requeue_at_ms means, by state: ACTIVE: when the job is to be queued (0: never); QUEUED: when to tell the other
holders that it still waits here; WAIT_REPL: when to ask one more node; ACKED: when to ask again who knows of
the ack.
"""

from __future__ import annotations

from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.events import (
    ADDED,
    DELIVERED,
    EXPIRED_EVENT,
    PENDING,
    RUNNING,
    added,
    event_of,
    note,
)
from disque_py.core.image import ATTEMPT_MAX
from disque_py.core.job import ACKED, ACTIVE, GONE, JOB_BYTES, NAME_BYTES_FREE, QUEUED, WAIT_REPL, Collection, Job
from disque_py.core.queue import DEAD_ENTRIES_MIN, Queue
from disque_py.core.spilled import Spilled, released
from disque_py.core.traits import Traits

# WILLQUEUE goes out this long before a job is requeued, so that who has it can object (spec N8).
WILLQUEUE_LEAD_MS: Final = 500
# A job that waits in our queue is announced before the timers of the other holders come near; the margin covers the
# batching of announcements (one a second), the lead of their WILLQUEUE and a slow network.
ANNOUNCE_MARGIN_MS: Final = 2_500
# A job with a shorter RETRY is not announced: the batch would come too late, and WILLQUEUE does the same.
ANNOUNCE_RETRY_MS_MIN: Final = 2 * ANNOUNCE_MARGIN_MS
# About what a base takes in the journal, besides queue and body.
BASE_BYTES: Final = 130
# Expired jobs taken off a queue's head in one go; the timers see to the rest.
EXPIRED_PER_FETCH: Final = 1_000
# A queue's next jobs are read back from disk when fewer than this are known to be in memory.
AHEAD_MIN: Final = 128


def register(broker: Broker, job: Job) -> None:
    """Enter a job that is not known here; it is ACTIVE, and its timer is the caller's to set."""
    assert job.state == ACTIVE
    job_id = job.id
    shard = broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63]
    assert job_id not in shard
    shard[job_id] = job
    broker.job_count += 1
    broker.used_memory += JOB_BYTES + len(job.body)
    if len(job.queue) > NAME_BYTES_FREE:
        broker.used_memory += len(job.queue)
    if job.traits is not None:
        traits_in(broker, job, job.traits)
    if broker.is_spilling:
        broker.spill.fresh.append(job)


def register_queued(broker: Broker, job: Job, queue: Queue | None) -> None:
    """Enter a new job of which we hold the only copy, and queue it: register and enqueue in one.

    The way of nearly every ADDJOB of REPLICATE 1, hence written out.
    """
    assert job.state == ACTIVE
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    broker.used_memory += JOB_BYTES + len(job.body)
    if len(job.queue) > NAME_BYTES_FREE:
        broker.used_memory += len(job.queue)
    if job.traits is not None:
        traits_in(broker, job, job.traits)
    if broker.is_spilling:
        broker.spill.fresh.append(job)
    if queue is None:
        queue = broker.queue(job.queue)
    job.state = QUEUED
    job.was_queued = True
    queue.push(job)
    queue.jobs_in += 1
    queue.active_ms = broker.now_ms
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.hint_due[queue] = None
    if job.expire_at_ms <= broker.schedule.horizon_ms:
        broker.schedule.set(job, job.expire_at_ms)
    if broker.is_journaling:
        broker.touched[job] = False
    events = broker.events
    if events is not None:
        if job.traits is not None or broker.settings.events_body:
            added(broker, job, ADDED)
        else:
            # The same, written out.
            events.added(job, len(job.body))
            job.status = PENDING
            job.since_ms = broker.wall_ms


def register_waiting(broker: Broker, job: Job) -> None:
    """Enter a job whose producer waits for copies; `register`, written out."""
    assert job.state == ACTIVE
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    broker.used_memory += JOB_BYTES + len(job.body)
    if len(job.queue) > NAME_BYTES_FREE:
        broker.used_memory += len(job.queue)
    if job.traits is not None:
        traits_in(broker, job, job.traits)
    job.state = WAIT_REPL
    broker.waiting_repl[job] = None


def register_acked(broker: Broker, job: Job) -> None:
    """Enter a record that is nothing but an ack."""
    register(broker, job)
    job.state = ACKED
    job.work = Collection()
    broker.acked_count += 1
    touch(broker, job)


def traits_in(broker: Broker, job: Job, traits: Traits) -> None:
    """A job with traits is entered."""
    broker.used_memory += traits.size
    if traits.is_keyed:
        broker.keys.enter(job)
        broker.key_events[job.id] = None


def traits_out(broker: Broker, job: Job, traits: Traits) -> None:
    """A job with traits is forgotten."""
    broker.used_memory -= traits.size
    if job.place >= broker.first_place:
        broker.live_bytes[job.place] -= traits.packed_bytes
    if traits.is_keyed:
        broker.keys.finish(job)
        broker.key_events[job.id] = None


def never_was(broker: Broker, job: Job) -> None:
    """The job about to be forgotten came to nothing: its key is free."""
    traits = job.traits
    if traits is not None and traits.is_keyed:
        traits.is_keyed = False
        broker.keys.leave(job.id)
        broker.key_events[job.id] = None


def achieve(broker: Broker, job: Job) -> None:
    """Enough nodes hold a WAIT_REPL job: it is ACTIVE from now on."""
    assert job.state == WAIT_REPL
    del broker.waiting_repl[job]
    job.work = None
    job.state = ACTIVE
    job.requeue_at_ms = 0
    if job.traits is not None and job.traits.is_keyed:
        broker.key_events[job.id] = None
    if broker.is_spilling:
        broker.spill.fresh.append(job)


def enqueue(broker: Broker, job: Job) -> Queue:
    """Put an ACTIVE job into its queue. Whether it may be queued (pause, at-most-once) is the caller's question."""
    assert job.state == ACTIVE
    name = job.queue
    queue = broker.queues.get(name)
    if queue is None:
        queue = broker.queue(name)
    job.state = QUEUED
    job.work = None
    job.is_leased_here = False
    job.was_announced = False
    job.was_queued = True
    queue.push(job)
    queue.jobs_in += 1
    queue.active_ms = broker.now_ms
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.hint_due[queue] = None
    arm_queued(broker, job)
    if broker.is_journaling:
        broker.touched.setdefault(job, False)
    return queue


def arm_queued(broker: Broker, job: Job) -> None:
    """Set the timer of a QUEUED job: its announcement if others hold copies, else only the end of its life."""
    if job.retry_ms >= ANNOUNCE_RETRY_MS_MIN and job.holders is not broker.sets.mine:
        job.requeue_at_ms = at_ms = broker.now_ms + announce_span_ms(job)
        horizon_ms = broker.schedule.horizon_ms
        if at_ms <= horizon_ms or job.awake_at_ms or job.expire_at_ms <= horizon_ms:
            arm(broker, job)
    else:
        job.requeue_at_ms = 0
        if job.awake_at_ms or job.expire_at_ms <= broker.schedule.horizon_ms:
            broker.schedule.set(job, job.expire_at_ms)


def announce_span_ms(job: Job) -> int:
    """How long a job may wait in our queue before the other holders hear of it (again)."""
    retry_ms = job.retry_ms
    margin_ms = retry_ms // 10
    if margin_ms < ANNOUNCE_MARGIN_MS:
        margin_ms = ANNOUNCE_MARGIN_MS
    # Spread over half of the margin by the job's own random part: a burst of jobs is not announced in one burst.
    return retry_ms - margin_ms - (job.id[20] & 63) * margin_ms // 128


def fetch(broker: Broker, queue: Queue) -> Job | None:
    """Take the oldest job out of a queue: it is ACTIVE with its old timer. Expired ones are forgotten on the way.

    None if there is none, if its body is not in memory (the queue is stalled then), or if so many expired ones come
    first that looking on would keep others waiting.
    """
    if broker.disk_level:
        return fetch_retried(broker, queue)
    left = EXPIRED_PER_FETCH
    while (job := queue.pop()) is not None:
        job.state = ACTIVE
        if job.expire_at_ms > broker.now_ms:
            return _if_in_memory(broker, queue, job) if broker.spilled_count else job
        broker.stats.jobs_expired += 1
        note(broker, job, EXPIRED_EVENT)
        forget(broker, job)
        left -= 1
        if not left:
            broker.look_again(queue)
            return None
    return None


def fetch_retried(broker: Broker, queue: Queue) -> Job | None:
    """The first job with RETRY: for who passes the others by, and while these can't leave as the disk is in trouble.

    Spec O7, P5.
    """
    left = EXPIRED_PER_FETCH
    while (job := queue.pop_retried()) is not None:
        job.state = ACTIVE
        if job.expire_at_ms > broker.now_ms:
            return _if_in_memory(broker, queue, job) if broker.spilled_count else job
        broker.stats.jobs_expired += 1
        note(broker, job, EXPIRED_EVENT)
        forget(broker, job)
        left -= 1
        if not left:
            broker.look_again(queue)
            return None
    return None


def _if_in_memory(broker: Broker, queue: Queue, job: Job) -> Job | None:
    """The fetched job, unless its body is on disk: then it is the head again, and the queue waits for it."""
    if type(job.body) is Spilled:
        job.state = QUEUED
        queue.push(job)
        if not queue.is_stalled:
            queue.is_stalled = True
            broker.spill.heads[queue] = job
        return None
    queue.ahead -= 1
    if queue.ahead < AHEAD_MIN < queue.length:
        broker.spill.heads.setdefault(queue)
    return job


def put_back(broker: Broker, job: Job) -> None:
    """Undo a `fetch`: the job is in its queue again as if nothing had happened."""
    assert job.state == ACTIVE
    job.state = QUEUED
    queue = broker.queue(job.queue)
    queue.push(job)
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.hint_due[queue] = None


def dequeue(broker: Broker, job: Job) -> None:
    """Take a QUEUED job out of its queue without delivering it; its timer is the caller's to set."""
    assert job.state == QUEUED
    job.state = ACTIVE
    queue = broker.queues.get(job.queue)
    if queue is not None:
        _left(broker, queue, job)
    touch(broker, job)


def lease(broker: Broker, job: Job) -> None:
    """The job goes to a consumer of this node: its lease starts now (spec L1, Q9)."""
    assert job.state == ACTIVE
    assert job.work is None
    if job.attempt < ATTEMPT_MAX:
        job.attempt += 1
    job.version += 1
    events = broker.events
    if events is not None:
        if job.traits is None:
            # events.note, written out: every GETJOB comes by here. Nothing but a queued job is leased to a consumer.
            events.delivered(job, len(job.body))
        else:
            events.append(event_of(job, DELIVERED))
        job.status = RUNNING
        job.since_ms = broker.wall_ms
    retry_ms = job.retry_ms
    if retry_ms:
        job.is_delivered = True
        job.is_leased_here = True
        job.was_announced = False
        job.requeue_at_ms = broker.now_ms + retry_ms
        arm(broker, job)
    else:
        if not job.is_delivered:
            job.is_delivered = True
            broker.once_delivered_count += 1
        job.requeue_at_ms = 0
        broker.schedule.set(job, job.expire_at_ms)
    if broker.is_journaling:
        broker.touched.setdefault(job, False)


def extend(broker: Broker, job: Job, lease_ms: int) -> None:
    """A leased job's lease lasts so long from now (LEASE, EXTENDTOKEN, WORKING)."""
    assert job.state == ACTIVE
    assert job.retry_ms > 0
    job.requeue_at_ms = broker.now_ms + lease_ms
    job.was_announced = False
    arm(broker, job)
    touch(broker, job)


def postpone(broker: Broker, job: Job, until_ms: int) -> None:
    """An ACTIVE job is not to be queued before `until_ms`."""
    assert job.state == ACTIVE
    job.requeue_at_ms = until_ms
    job.was_announced = False
    if job.awake_at_ms == 0 or job.awake_at_ms > until_ms:
        arm(broker, job)


def acknowledge(broker: Broker, job: Job) -> None:
    """The job is done: out of its queue, kept until every holder knows (acks.py). Not for WAIT_REPL jobs."""
    assert job.state == QUEUED or job.state == ACTIVE
    if job.state == QUEUED:
        queue = broker.queues.get(job.queue)
        if queue is not None:
            _left(broker, queue, job)
    if job.retry_ms == 0 and job.is_delivered:
        broker.once_delivered_count -= 1
    # An ack is an id and a set: one dead holder must not keep the bodies of all that is done.
    body = job.body
    size = len(body)
    broker.used_memory -= size
    if type(body) is Spilled:
        size = released(broker, body)
    if job.place >= broker.first_place:
        broker.live_bytes[job.place] -= size
    job.body = b""
    job.state = ACKED
    job.is_leased_here = False
    job.requeue_at_ms = 0
    job.work = Collection()
    broker.acked_count += 1
    broker.stats.jobs_acked += 1
    if broker.deferred:
        broker.deferred.pop(job, None)
    if broker.tokened:
        broker.tokens.drop(job)
    touch(broker, job)


def forget(broker: Broker, job: Job) -> None:
    """Nothing of the job is left here. Waiting producers are answered by the caller before."""
    state = job.state
    assert state != GONE
    if state == QUEUED:
        queue = broker.queues.get(job.queue)
        if queue is not None:
            _left(broker, queue, job)
    elif state == ACKED:
        broker.acked_count -= 1
    elif state == WAIT_REPL:
        del broker.waiting_repl[job]
    if job.is_delivered and job.retry_ms == 0 and state != ACKED:
        broker.once_delivered_count -= 1
    job_id = job.id
    del broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id]
    broker.job_count -= 1
    body = job.body
    size = len(body)
    broker.used_memory -= JOB_BYTES + size
    if len(job.queue) > NAME_BYTES_FREE:
        broker.used_memory -= len(job.queue)
    assert broker.used_memory >= 0
    if job.traits is not None:
        traits_out(broker, job, job.traits)
    if type(body) is Spilled:
        size = released(broker, body)
    # A queue, a hand-over or a list may name the object for a while; the body need not wait for that.
    job.body = b""
    if job.awake_at_ms:
        broker.schedule.cancel(job)
    if broker.deferred:
        broker.deferred.pop(job, None)
    if broker.tokened:
        broker.tokens.drop(job)
    job.state = GONE
    job.work = None
    if job.place >= broker.first_place:
        broker.outbox.gone.append((job_id, job.place))
        broker.live_bytes[job.place] -= BASE_BYTES + len(job.queue) + size
        broker.live_records[job.place] -= 1


def arm(broker: Broker, job: Job) -> None:
    """Set the timer to whatever comes first for this job."""
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
    """How long before its requeueing a job is announced with WILLQUEUE; never more than half of RETRY."""
    half_ms = job.retry_ms // 2
    return half_ms if half_ms < WILLQUEUE_LEAD_MS else WILLQUEUE_LEAD_MS


def touch(broker: Broker, job: Job) -> None:
    """Something about the job changed that the journal should know (journaling.py)."""
    if broker.is_journaling:
        broker.touched.setdefault(job, False)


def acked_again(broker: Broker, job: Job) -> None:
    """An acked record was restored; its timer is the caller's to set."""
    job.state = ACKED
    job.work = Collection()
    broker.acked_count += 1


def _left(broker: Broker, queue: Queue, job: Job) -> None:
    queue.removed(job)
    assert queue.length >= queue.once_length >= 0
    if queue.dead > DEAD_ENTRIES_MIN and queue.needs_sweep and queue not in broker.sweeps:
        broker.sweeps[queue] = queue.sweep()
