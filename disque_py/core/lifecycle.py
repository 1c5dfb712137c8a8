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
from disque_py.core.image import ATTEMPT_MAX, image_of
from disque_py.core.job import ACKED, ACTIVE, GONE, JOB_BYTES, QUEUED, WAIT_REPL, Collection, Job
from disque_py.core.queue import Queue
from persistence.records import ACK, JOB
from persistence.records import GONE as GONE_RECORD

# WILLQUEUE goes out this long before a job is requeued, so that who has it can object (disque/cluster.md, section 2).
WILLQUEUE_LEAD_MS: Final = 500
# A job that waits in our queue is announced before the timers of the other holders come near; the margin covers the
# batching of announcements (one a second), the lead of their WILLQUEUE and a slow network.
ANNOUNCE_MARGIN_MS: Final = 2_500
# A job with a shorter RETRY is not announced: the batch would come too late, and WILLQUEUE does the same.
ANNOUNCE_RETRY_MS_MIN: Final = 2 * ANNOUNCE_MARGIN_MS
# Expired jobs taken off a queue's head in one go; the timers see to the rest.
EXPIRED_PER_FETCH: Final = 1_000


def register(broker: Broker, job: Job) -> None:
    """Enter a job that is not known here; it is ACTIVE, and its timer is the caller's to set."""
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    broker.used_memory += JOB_BYTES + len(job.body)


def register_queued(broker: Broker, job: Job, queue: Queue | None) -> None:
    """Enter a new job of which we hold the only copy, and queue it: register and enqueue in one.

    The way of nearly every ADDJOB of REPLICATE 1, hence written out.
    """
    job_id = job.id
    broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id] = job
    broker.job_count += 1
    broker.used_memory += JOB_BYTES + len(job.body)
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


def register_waiting(broker: Broker, job: Job) -> None:
    """Enter a job whose producer waits for copies."""
    register(broker, job)
    job.state = WAIT_REPL
    broker.waiting_repl[job] = None


def register_acked(broker: Broker, job: Job) -> None:
    """Enter a record that is nothing but an ack."""
    register(broker, job)
    job.state = ACKED
    job.work = Collection()
    broker.acked_count += 1
    record_ack(broker, job)


def achieve(broker: Broker, job: Job) -> None:
    """Enough nodes hold a WAIT_REPL job: it is ACTIVE from now on."""
    del broker.waiting_repl[job]
    job.work = None
    job.state = ACTIVE
    job.requeue_at_ms = 0


def enqueue(broker: Broker, job: Job) -> Queue:
    """Put an ACTIVE job into its queue. Whether it may be queued (pause, at-most-once) is the caller's question."""
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
    return queue


def arm_queued(broker: Broker, job: Job) -> None:
    """Set the timer of a QUEUED job: its announcement if others hold copies, else only the end of its life."""
    if job.retry_ms >= ANNOUNCE_RETRY_MS_MIN and job.holders is not broker.sets.mine:
        job.requeue_at_ms = at_ms = broker.now_ms + announce_span_ms(job)
        if job.awake_at_ms or at_ms <= broker.schedule.horizon_ms or job.expire_at_ms <= broker.schedule.horizon_ms:
            arm(broker, job)
    else:
        job.requeue_at_ms = 0
        if job.awake_at_ms or job.expire_at_ms <= broker.schedule.horizon_ms:
            broker.schedule.set(job, job.expire_at_ms)


def announce_span_ms(job: Job) -> int:
    """How long a job may wait in our queue before the other holders hear of it (again)."""
    retry_ms = job.retry_ms
    margin_ms = max(ANNOUNCE_MARGIN_MS, retry_ms // 10)
    # Spread over half of the margin by the job's own random part: a burst of jobs is not announced in one burst.
    return retry_ms - margin_ms - (job.id[20] & 63) * margin_ms // 128


def fetch(broker: Broker, queue: Queue) -> Job | None:
    """Take the oldest job out of a queue: it is ACTIVE with its old timer. Expired ones are forgotten on the way.

    None if there is none, or if so many expired ones come first that looking on would keep others waiting.
    """
    for _ in range(EXPIRED_PER_FETCH):
        job = queue.pop()
        if job is None:
            return None
        job.state = ACTIVE
        if job.expire_at_ms > broker.now_ms:
            return job
        broker.stats.jobs_expired += 1
        forget(broker, job)
    broker.look_again(queue)
    return None


def put_back(broker: Broker, job: Job) -> None:
    """Undo a `fetch`: the job is in its queue again as if nothing had happened."""
    job.state = QUEUED
    queue = broker.queue(job.queue)
    queue.push(job)
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.hint_due[queue] = None


def dequeue(broker: Broker, job: Job) -> None:
    """Take a QUEUED job out of its queue without delivering it; its timer is the caller's to set."""
    job.state = ACTIVE
    queue = broker.queues.get(job.queue)
    if queue is not None:
        _left(broker, queue)


def lease(broker: Broker, job: Job) -> None:
    """The job goes to a consumer of this node: its lease starts now (semantics.md, section 2; quirks Q9)."""
    if job.attempt < ATTEMPT_MAX:
        job.attempt += 1
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


def postpone(broker: Broker, job: Job, until_ms: int) -> None:
    """An ACTIVE job is not to be queued before `until_ms`."""
    job.requeue_at_ms = until_ms
    job.was_announced = False
    if job.awake_at_ms == 0 or job.awake_at_ms > until_ms:
        arm(broker, job)


def acknowledge(broker: Broker, job: Job) -> None:
    """The job is done: out of its queue, kept until every holder knows (acks.py). Not for WAIT_REPL jobs."""
    if job.state == QUEUED:
        queue = broker.queues.get(job.queue)
        if queue is not None:
            _left(broker, queue)
    if job.retry_ms == 0 and job.is_delivered:
        broker.once_delivered_count -= 1
    # An ack is an id and a set: one dead holder must not keep the bodies of all that is done.
    broker.used_memory -= len(job.body)
    job.body = b""
    job.state = ACKED
    job.is_leased_here = False
    job.requeue_at_ms = 0
    job.work = Collection()
    broker.acked_count += 1
    broker.stats.jobs_acked += 1
    if broker.deferred:
        broker.deferred.pop(job, None)
    record_ack(broker, job)


def forget(broker: Broker, job: Job) -> None:
    """Nothing of the job is left here. Waiting producers are answered by the caller before."""
    state = job.state
    if state == QUEUED:
        queue = broker.queues.get(job.queue)
        if queue is not None:
            _left(broker, queue)
    elif state == ACKED:
        broker.acked_count -= 1
    elif state == WAIT_REPL:
        del broker.waiting_repl[job]
    if job.is_delivered and job.retry_ms == 0 and state != ACKED:
        broker.once_delivered_count -= 1
    job_id = job.id
    del broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id]
    broker.job_count -= 1
    broker.used_memory -= JOB_BYTES + len(job.body)
    if job.awake_at_ms:
        broker.schedule.cancel(job)
    if broker.deferred:
        broker.deferred.pop(job, None)
    job.state = GONE
    job.work = None
    if job.is_listed:
        job.body = b""  # Its queue may name the object for a while; the body need not wait for that.
    if broker.is_journaling and state != WAIT_REPL:
        broker.outbox.records.append((GONE_RECORD, job_id))


def arm(broker: Broker, job: Job) -> None:
    """Set the timer to whatever comes first for this job."""
    at_ms = job.expire_at_ms
    due_ms = job.requeue_at_ms
    if due_ms:
        if job.state == ACTIVE and not job.was_announced and job.holders is not broker.sets.mine:
            due_ms -= willqueue_lead_ms(job)
        if due_ms < at_ms:
            at_ms = due_ms
    broker.schedule.set(job, at_ms)


def willqueue_lead_ms(job: Job) -> int:
    """How long before its requeueing a job is announced with WILLQUEUE; never more than half of RETRY."""
    return min(WILLQUEUE_LEAD_MS, job.retry_ms // 2)


def record_job(broker: Broker, job: Job) -> None:
    """The job is held here: into the journal."""
    if broker.is_journaling:
        broker.outbox.records.append((JOB, image_of(broker, job)))


def record_ack(broker: Broker, job: Job) -> None:
    """The job is done as far as we know: into the journal."""
    if broker.is_journaling:
        broker.outbox.records.append((ACK, (job.id, broker.sets.pack(job.holders))))


def _left(broker: Broker, queue: Queue) -> None:
    queue.removed()
    if queue.listed > 2 * queue.length + 1024 and queue not in broker.sweeps:
        broker.sweeps[queue] = queue.sweep()
