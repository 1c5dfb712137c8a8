"""Changes of single jobs that an operator asks for: promote, reschedule, move, redrive.

Each of these is one change of the job's changeable part (changing.py), and one event. The caller has determined the
node that must act: asking.py for commands that name jobs, tasks.py for commands that name a queue. A job that a worker
has or that is being handed over does not change. Each function returns whether it changed the job.

If the input of the job's queue is paused, a job that would become pending is invisible until the pause ends. A job
keeps its id, its KEY and its place in the order. Spec MV1, MV2, MV3, MV4.
"""

from __future__ import annotations

from typing import Any, Final

from disque_py import event_format
from disque_py.core import census, changing, events, lifecycle, pausing, requeue
from disque_py.core.broker import Broker
from disque_py.core.job import ACTIVE, COUNTER_MAX, QUEUED, Job

# The delay of a RESCHEDULE without DELAY.
NO_DELAY: Final = -1


def is_delayed(broker: Broker, job: Job) -> bool:
    """Return whether this node knows the job as invisible because of its DELAY, a NACK's delay or a RESCHEDULE."""
    if job.state != ACTIVE or job.work is not None or job in broker.pauses.deferred:
        return False
    part = job.part
    if part is not None and (part.is_errored or part.is_delayed):
        return not part.is_errored and not part.is_held and part.due_ms > broker.now_ms
    if not job.was_queued:
        return job.requeue_at_ms > broker.now_ms and not job.is_leased_here and not job.is_delivered
    return census.is_delayed_elsewhere(broker, job)


def _first_delay_left_ms(broker: Broker, job: Job) -> int:
    """Return how long the DELAY of a job with a KEY still lasts; 0 if it does not, or if the part has another delay.

    After a change, each holder goes by the part, and no longer by the DELAY of the ADDJOB. So the part gets what is
    left of it. Otherwise REPLACE would find a job that does not wait (spec TP6).
    """
    attributes, part = job.attributes, job.part
    if attributes is None or not attributes.is_keyed or not job.terms.delay_ms:
        return 0
    if not is_delayed(broker, job) or (part is not None and part.is_delayed):
        return 0
    until_ms = job.requeue_at_ms - (job.terms.retry_ms if job.was_queued else 0)
    return max(1, until_ms - broker.now_ms)


def promote(broker: Broker, job_id: bytes) -> int:
    """End the delay of a job. Return 1 if it was delayed, else 0. Spec MV1."""
    job = broker.find(job_id)
    if job is None or not is_delayed(broker, job):
        return 0
    _end_delay(broker, job, event_format.PROMOTED, event_format.PROMOTED_INVISIBLE)
    return 1


def _end_delay(broker: Broker, job: Job, code: int, paused_code: int) -> None:
    part = changing.begin(broker, job)
    part.is_delayed = False
    is_paused = pausing.is_paused_in(broker, job)
    events.note(broker, job, paused_code if is_paused else code, left=event_format.INVISIBLE)
    changing.change(broker, job)
    _show(broker, job, is_paused=is_paused)


def _show(broker: Broker, job: Job, *, is_paused: bool) -> None:
    """Queue an ACTIVE job that was changed, or make it wait for the end of the pause."""
    if is_paused:
        pausing.defer(broker, job)
        lifecycle.mark_dirty(broker, job)
        return
    broker.pauses.deferred.pop(job, None)
    requeue.release(broker, job)


def reschedule(broker: Broker, job_id: bytes, delay_ms: int, priority: int | None) -> int:
    """Change the delay or the priority of a pending or invisible job. Return 1 if it was changed, else 0. Spec MV2.

    delay_ms   milliseconds from now; NO_DELAY leaves the delay as it is
    priority   None leaves it as it is
    """
    job = broker.find(job_id)
    if job is None or not is_changeable(broker, job):
        return 0
    part = job.part
    if part is not None and (part.is_errored or part.is_spent(job.attempt)):
        return 0
    is_here = job.state == QUEUED
    left = event_format.INVISIBLE if is_delayed(broker, job) else events.status_of(job)
    if left == event_format.RUNNING:
        return 0
    if is_here and (delay_ms > 0 or priority is not None):
        lifecycle.dequeue(broker, job)
    delay_left_ms = _first_delay_left_ms(broker, job)
    part = changing.begin(broker, job)
    attributes = job.attributes
    assert attributes is not None
    if priority is not None:
        lifecycle.set_priority(broker, job, attributes, priority)
    if delay_ms > 0:
        events.note(broker, job, event_format.RESCHEDULED_INVISIBLE, left=left)
        broker.pauses.deferred.pop(job, None)
        changing.delay(broker, job, part, delay_ms)
        changing.change(broker, job)
    elif delay_ms == 0 and left == event_format.INVISIBLE:
        _end_delay(broker, job, event_format.RESCHEDULED, event_format.RESCHEDULED_INVISIBLE)
    else:
        is_invisible = left == event_format.INVISIBLE
        code = event_format.RESCHEDULED_INVISIBLE if is_invisible else event_format.RESCHEDULED
        _note_same(broker, job, code, left=left)
        if delay_left_ms:
            changing.delay(broker, job, part, delay_left_ms)
        changing.change(broker, job)
        if is_here and job.state == ACTIVE:
            lifecycle.put_back(broker, job)
    return 1


def _note_same(broker: Broker, job: Job, code: int, rare: dict[str, Any] | None = None, *, left: int) -> None:
    """Note a change. If the job stays in its state, it has been in it since the same moment, which QSTAT shows."""
    since_ms = job.since_ms
    events.note(broker, job, code, rare, left=left)
    if job.status == left:
        job.since_ms = since_ms


def is_changeable(broker: Broker, job: Job) -> bool:
    """Return whether the job may be changed: as far as this node knows, it is not running, handed over or finished."""
    if job.state == QUEUED:
        return True
    if job.state != ACTIVE or job.work is not None:
        return False
    if job.terms.retry_ms:
        return not (job.is_leased_here and job.requeue_at_ms > broker.now_ms)
    return not job.is_delivered


def move(broker: Broker, job: Job, name: bytes) -> bool:
    """Move a job to another queue. It stays invisible or errored if it was. Spec MV3."""
    if not is_changeable(broker, job) or job.terms.queue == name:
        return False
    if not job.terms.retry_ms and name in broker.queue_settings.exclusive:
        return False  # An at-most-once job can't be delivered under a claim (spec EX1).
    source = job.terms.queue
    is_pending = job.state == QUEUED
    if is_pending:
        lifecycle.dequeue(broker, job)
    delay_left_ms = _first_delay_left_ms(broker, job)
    part = changing.begin(broker, job)
    lifecycle.rename_queue(broker, job, name)
    rare = {"from_queue": _text(source)}
    if part.is_errored:
        broker.keep_for_errored(job)
        _note_same(broker, job, event_format.MOVED_ERRORED, rare, left=event_format.ERRORED)
        changing.change(broker, job)
        return True
    is_paused = pausing.is_paused_in(broker, job)
    was_deferred = job in broker.pauses.deferred
    is_shown = is_pending or was_deferred
    code = event_format.MOVED if is_shown and not is_paused else event_format.MOVED_INVISIBLE
    left = event_format.PENDING if is_pending else event_format.INVISIBLE
    _note_same(broker, job, code, rare, left=left)
    if delay_left_ms:
        changing.delay(broker, job, part, delay_left_ms)
    changing.change(broker, job)
    if is_shown:
        _show(broker, job, is_paused=is_paused)
    return True


def is_redrivable(job: Job) -> bool:
    """Return whether QREDRIVE acts on this job, because it is errored or a dead letter."""
    part = job.part
    return part is not None and (part.is_errored or part.is_dead_letter)


def redrive(broker: Broker, job: Job, to: bytes) -> bool:
    """Give an errored job or a dead letter new attempts and a new TTL, and queue it. Spec MV4.

    to   the queue that the job moves to; empty: a dead letter returns to its former queue, other jobs stay
    """
    if not is_changeable(broker, job) or not is_redrivable(job):
        return False
    part = changing.begin(broker, job)
    source = job.terms.queue
    left = event_format.ERRORED if part.is_errored else events.status_of(job)
    history = part.history
    name = to
    if not name:
        name = history[0] if part.is_dead_letter and history is not None else source
    if job.state == QUEUED:
        lifecycle.dequeue(broker, job)
    if part.is_errored and job.deliveries < COUNTER_MAX:
        job.deliveries += 1
    if name != source:
        if part.is_dead_letter and history is not None:
            part.limit = history[5]
            part.is_dead_letter = False
        lifecycle.rename_queue(broker, job, name)
    part.is_errored = False
    part.is_delayed = False
    part.start = job.attempt
    part.error = None
    changing.expire_at(broker, job, broker.now_ms + part.ttl_ms)
    is_paused = pausing.is_paused_in(broker, job)
    if name != source:
        code = event_format.MOVED_INVISIBLE if is_paused else event_format.MOVED
        events.note(broker, job, code, {"from_queue": _text(source)}, left=left)
    else:
        code = event_format.ENQUEUED_INVISIBLE if is_paused else event_format.ENQUEUED
        events.note(broker, job, code, left=left)
    lifecycle.arm(broker, job)
    changing.change(broker, job)
    _show(broker, job, is_paused=is_paused)
    return True


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
