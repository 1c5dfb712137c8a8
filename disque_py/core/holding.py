"""The part of a node that holds copies: REPLJOB, HOLDERS and ENQUEUE, as they arrive.

A node that is offered a copy takes it and confirms it (GOTJOB), or refuses it with a reason (REFUSED). It takes a job
that it knows only once. It confirms such a job as known, answers with the ack if the job is acknowledged, and never
delivers a late copy of a finished one (spec A6). A copy is in no queue until its timer fires (requeue.py), or until a
creator that keeps no copy says so (ENQUEUE).

The part of the creator is replication.py. A copy can also arrive by hand-over (taking.py), or with the other jobs of a
fan-out (shared_copies.py).
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import (
    GOTJOB,
    REFUSED,
    REFUSED_BUSY,
    REFUSED_DISK,
    REFUSED_KEY,
    REFUSED_LEAVING,
    REFUSED_MEMORY,
    REFUSED_PAUSED,
    SETACK,
)
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import changing, events, lifecycle, windows
from disque_py.core.broker import Broker
from disque_py.core.job import ACKED, ACTIVE, CHANGED, JOB_BYTES, Cancellation, Job
from disque_py.core.job_snapshot import SPAN_BITS, job_of
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.keys import KEY_AT, KEY_END
from disque_py.core.memory import make_room
from disque_py.core.queue import PAUSED_IN
from disque_py.core.replication import KNOWN, MOVING, NEW_KEY, NO_ANSWER, STATUS_AT, TIMED, TIMER_AT, is_external

# The ack of a late copy is collected after this time, unless the node that sent the copy collects it before.
COLLECT_MS: Final = 1_000


def on_repljob(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take the copies that a node offers, and confirm them. Confirm known jobs, too. Refuse the rest with a reason."""
    only = broker.sets.only(sender)
    shards = broker.shards
    done, done_before = broker.tombstones.generations()
    not_held = broker.acks.not_held
    has_not_held = bool(not_held)
    high_memory = broker.memory.limits[1]
    is_choosy = broker.is_leaving or broker.pauses.paused_count > 0 or broker.journal.disk_level > 0
    taken: list[bytes] = []
    for item in items:
        job = job_of(broker, item[0])
        job_id = job.id
        shard = shards[(job_id[12] & 63) << 6 | job_id[13] & 63]
        wants_answer = item[1] != NO_ANSWER
        if job_id in shard or job_id in done or job_id in done_before or (has_not_held and job_id in not_held):
            _on_known(broker, sender, job, shard.get(job_id), item[0], wants_answer)
            continue
        if job.attributes is not None and item[1] == NEW_KEY:
            job.attributes.is_open = True
            named = broker.producers.keys.named(job_id[KEY_AT:KEY_END])
            if named and named != job_id and named not in windows.replaced_ids(job):
                broker.send(only, REFUSED, (job_id, REFUSED_KEY))
                continue
        if is_choosy or broker.used_memory > high_memory:
            reason = refusal(broker, job)
            if reason:
                if wants_answer:
                    broker.send(only, REFUSED, (job_id, reason))
                continue
        shard[job_id] = job
        wait_ms = job.terms.delay_ms + job.terms.retry_ms
        if item[1] == TIMED and job.terms.retry_ms:
            wait_ms = _timer_of(item[TIMER_AT])
            if job.attempt and len(item) > STATUS_AT and item[STATUS_AT] == event_format.PENDING:
                events.learn(broker, job, event_format.PENDING)  # The attempts alone look like those of a running job.
        take_in(broker, job, wait_ms)
        if wants_answer:
            taken.append(job_id)
    broker.send_all(only, GOTJOB, taken)


def take_in(broker: Broker, job: Job, wait_ms: int) -> None:
    """Account for a new copy that the index has already. Its timer fires after `wait_ms`."""
    broker.job_count += 1
    broker.used_memory += JOB_BYTES + len(job.body) + job.terms.name_bytes
    if job.attributes is not None:
        lifecycle.attributes_in(broker, job, job.attributes)
    if broker.memory.is_spilling:
        broker.spill.fresh.append(job)
    job.was_queued = True
    job.era = broker.era
    horizon_ms = broker.schedule.horizon_ms
    if job.terms.retry_ms:
        job.requeue_at_ms = requeue_at_ms = broker.now_ms + wait_ms + broker.jitter()
        if job.attributes is not None:
            _wait_as_copy(broker, job)
        if requeue_at_ms <= horizon_ms:
            lifecycle.arm(broker, job)
    if job.expire_at_ms <= horizon_ms:
        lifecycle.arm(broker, job)
    if broker.is_journaling and not job.dirt:
        job.dirt = CHANGED
        broker.dirty.append(job)


def _timer_of(span_ms: Any) -> int:
    """Return the milliseconds until a repaired copy's timer fires, as its holder sent them. ValueError if malformed."""
    if type(span_ms) is not int or span_ms >> SPAN_BITS:
        raise ValueError("a timer that is not a number")
    return span_ms


def _wait_as_copy(broker: Broker, job: Job) -> None:
    """Set the timer of a new copy if it is errored or delayed by a NACK."""
    part = job.part
    if part is None:
        return
    if part.is_errored:
        job.requeue_at_ms = 0
        broker.keep_for_errored(job)
    elif part.is_delayed:
        job.requeue_at_ms = part.due_ms + 2 * lifecycle.WILLQUEUE_LEAD_MS + broker.jitter()
        lifecycle.arm(broker, job)


def _on_known(broker: Broker, sender: Node, job: Job, known: Job | None, snapshot: Any, wants_answer: bool) -> None:
    """Handle a copy of a job that has a record here or is known to be finished."""
    sets = broker.sets
    only = sets.only(sender)
    if known is None:
        # The job was finished while this copy was on its way. A late copy is never delivered (spec A6).
        hold_ack(broker, sender, job)
        return
    if is_external(known):
        # A leaving holder offers the job that we replicate externally. We keep no copy, and forget the job when its
        # producer is answered.
        broker.send(only, REFUSED, (job.id, REFUSED_BUSY))
        return
    known.holders = sets.union(known.holders, job.holders)
    if known.version != changing.UNTOLD:
        events.heard(known, job.version)
    mark_holders_dirty(broker, known)
    if known.state != ACKED and (job.attributes is not None or known.attributes is not None):
        changing.merge(broker, sender, known, job, snapshot)
    if known.state == ACKED:
        if broker.results.by_id:
            keep_ms = broker.queue_settings.of(job.terms.queue).result_retention_ms
            broker.results.hold(job.id, keep_ms, max(known.version, job.version) + 1)
        changing.send_ack(broker, sender, known)
    elif wants_answer and broker.journal.disk_level:
        # Our disk fails, so the copy may not be recorded, and the sender must not count it.
        broker.send(only, REFUSED, (job.id, REFUSED_DISK))
    elif wants_answer:
        # The answer tells a known copy from a new one, because only a new one helps a node that leaves (leaving.py).
        broker.send(only, GOTJOB, (job.id, MOVING if broker.is_leaving else KNOWN))


def hold_ack(broker: Broker, sender: Node, job: Job) -> None:
    """Register only the ack of this job, with the holders that its snapshot names, and tell the sender.

    The ack is kept until it is collected.
    """
    job.body = b""
    lifecycle.register_acked(broker, job)
    item = (job.id, broker.sets.pack(job.holders))
    if broker.ends.get(job.id) == event_format.CANCELED:
        job.work = Cancellation()
        broker.send(broker.sets.only(sender), SETACK, (*item, changing.UNTOLD, changing.OUTCOME_CANCELED))
    else:
        broker.send(broker.sets.only(sender), SETACK, item)
    job.requeue_at_ms = broker.now_ms + COLLECT_MS
    lifecycle.arm(broker, job)


def refusal(broker: Broker, job: Job) -> int:
    """Return the reason to refuse a copy of this job now, or 0 if this node takes one."""
    if broker.is_leaving:
        return REFUSED_LEAVING
    if broker.journal.disk_level:
        return REFUSED_DISK
    queue = broker.queues.get(job.terms.queue)
    if queue is not None and queue.paused & PAUSED_IN:
        return REFUSED_PAUSED
    if broker.used_memory > broker.memory.limits[1] and not make_room(broker):
        return REFUSED_MEMORY
    return 0


def on_holders(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge more holders: the creator asked more nodes, or a leaving node stays after all."""
    for job_id, nodes, *_ in items:
        job = broker.find(job_id)
        if job is not None:
            known = job.holders
            job.holders = broker.sets.union(known, broker.sets.unpack(nodes))
            mark_holders_dirty(broker, job)
            if job.holders is not known:
                _ask_again(broker, job)
        elif job_id in broker.tombstones:
            broker.send(broker.sets.only(sender), SETACK, (job_id, b""))
        else:
            broker.stats.ignored("holders of an unknown job")


def _ask_again(broker: Broker, job: Job) -> None:
    """Repeat WILLQUEUE for a job with a limit of attempts, because a new holder may not have received it. Spec Y4.

    The new holder may have taken the job by hand-over. Without the question, both nodes could deliver the job.
    """
    part = job.part
    if part is not None and part.limit and job.state == ACTIVE and job.was_announced and job.was_queued:
        lifecycle.postpone(broker, job, max(job.requeue_at_ms, broker.now_ms + lifecycle.willqueue_lead_ms(job)))


def on_enqueue(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Queue a job for the first time, because its creator keeps no copy."""
    for job_id, delay_ms, *_ in items:
        if type(delay_ms) is not int or delay_ms >> SPAN_BITS:
            raise ValueError("a delay that is not a number")
        job = broker.find(job_id)
        # A status means that another holder has queued or delivered the job, because its copies took longer than RETRY.
        if job is None or job.state != ACTIVE or job.is_delivered or job.work is not None or job.status:
            broker.stats.ignored("enqueue of a job that is not waiting here")
            continue
        queue = broker.queues.get(job.terms.queue)
        if queue is not None and queue.paused & PAUSED_IN:
            continue  # The job's retry timer tries again later, when the pause may be over.
        if delay_ms:
            job.requeue_at_ms = broker.now_ms + delay_ms
            job.was_announced = True
            job.was_queued = False
            lifecycle.arm(broker, job)
            lifecycle.mark_dirty(broker, job)
        else:
            events.note(broker, job, event_format.QUEUED)
            lifecycle.enqueue(broker, job)
