"""Changes of a job's changeable part (changeable.py), and the end of its attempts: CHANGED, ASKCHANGED.

A node that changes the part takes the next change number and tells all holders (CHANGED). QUEUED, WILLQUEUE and LEASED
carry the number if it is above 0. A node that hears a number lower than its own answers with its own part. A node that
hears a higher number asks for the part (ASKCHANGED). It neither queues nor delivers the job until the part has arrived.
The part with the higher (number, node id) wins as a whole. If ASKS_MAX questions get no answer, the holders that knew
the newer part are gone, and the node continues with the part that it has. Its next change gets a number above all that
it has heard of.

A job whose last attempt is spent becomes errored, or moves to the dead-letter queue. This happens at its NACK or at the
end of its lease (`give_up`). An errored job is ACTIVE and in no queue. Its only timer is the end of its life. A holder
of an errored job answers WILLQUEUE with its part, so no node queues the job. Spec Y3, Y4, Y5, Y7.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import ASKCHANGED, CHANGED, RESULT, SETACK
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import changeable, events, lifecycle, windows
from disque_py.core.broker import Broker
from disque_py.core.changeable import LEASE_EXPIRED, NUMBER_STEP_MAX, Changeable
from disque_py.core.ids import TTL_MINUTES_MAX, ttl_minutes
from disque_py.core.job import ACKED, ACTIVE, CTIMES_PER_MS, QUEUED, WAIT_REPL, Cancellation, Handover, Job
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.job_snapshot import PART, pack_part
from disque_py.core.queue import PAUSED_IN

# How often a newer part of another node is requested, and how many times.
ASK_AGAIN_MS: Final = 1_000
ASKS_MAX: Final = 5
# The third field of SETACK is the job's version. A node that never held the job writes no event and sends this instead.
UNTOLD: Final = 0
# The fourth field is the outcome. The job was canceled …
OUTCOME_CANCELED: Final = 1
# … or canceled because another job took its place, so its key is free (spec TP6) …
OUTCOME_REPLACED: Final = 2
# … or completed, and another node may have a result that the sender does not know (spec RW10).
OUTCOME_DOUBTED: Final = 3
NO_CHANGE: Final[tuple[int, bytes]] = (0, b"")
# The entry in `behind` of a job of which no newer part is known: questions left, highest number heard.
NOT_BEHIND: Final[tuple[int, int]] = (0, 0)
# Deliveries that this node counts as unknown at most. Each of them may hide a change: the end of the lease before it.
UNHEARD_MAX: Final = 1_000


# -- changing -----------------------------------------------------------------------------------------


def begin(broker: Broker, job: Job) -> Changeable:
    """Return the job's changeable part. Create it if it is missing. The caller changes it and calls `change`."""
    attributes = job.attributes
    if attributes is None:
        attributes = job.attributes = JobAttributes(None, ())
        broker.used_memory += attributes.size
        _count_record(broker, job, attributes.packed_bytes)
    part = attributes.part
    if part is None:
        part = Changeable(_ttl_ms(broker, job))
        part.error = error_of(job)
        attributes.part = part
        measure(broker, job, attributes)
    return part


def _ttl_ms(broker: Broker, job: Job) -> int:
    """Return the span of a job's TTL, which is its age plus the life left.

    The age is uncertain, because the creator's clock may differ from ours. The job's id tells the span in minutes, give
    or take one. This limits the error of a wrong clock to two minutes.
    """
    left_ms = job.expire_at_ms - broker.now_ms
    ttl_ms = broker.wall_ms - job.ctime // CTIMES_PER_MS + left_ms
    minutes = ttl_minutes(job.id)
    if minutes < TTL_MINUTES_MAX - 1:
        ttl_ms = min(ttl_ms, (minutes + 2) * 60_000)
    return max(1, left_ms, ttl_ms, (minutes - 1) * 60_000)


def change(broker: Broker, job: Job) -> None:
    """Give the job's changed part its number, and tell all holders. The caller updates queue and timers."""
    part = begin(broker, job)
    part.count(broker.behind.pop(job, NOT_BEHIND)[1])
    part.node = broker.me.id
    attributes = job.attributes
    assert attributes is not None
    measure(broker, job, attributes)
    lifecycle.mark_dirty(broker, job)
    others = broker.sets.others(job.holders)
    if others:
        broker.send(others, CHANGED, (job.id, pack_part(broker, job, part), job.version))


def measure(broker: Broker, job: Job, attributes: JobAttributes) -> None:
    """Account for a part whose texts have changed."""
    size, packed_bytes = attributes.size, attributes.packed_bytes
    attributes.measure()
    broker.used_memory += attributes.size - size
    _count_record(broker, job, attributes.packed_bytes - packed_bytes)


def _count_record(broker: Broker, job: Job, more: int) -> None:
    if job.place >= broker.journal.first_place:
        broker.journal.live_bytes[job.place] += more


def fail(broker: Broker, job: Job, error: bytes | None) -> None:
    """Note why the last delivery failed (None: no reason). Tell the holders if that changes the part."""
    part = job.part
    if part is None and error is None:
        return
    part = begin(broker, job)
    if part.error != error:
        part.error = error
        change(broker, job)


def delay(broker: Broker, job: Job, part: Changeable, delay_ms: int, *, is_held: bool = False) -> None:
    """Delay an ACTIVE job that was given back: it is not queued for this span. The caller calls `change`.

    is_held   the delay stands for a pause, so PROMOTE does not end it
    """
    assert job.state == ACTIVE
    part.is_delayed = True
    part.is_held = is_held
    part.due_ms = broker.now_ms + delay_ms
    lifecycle.end_lease(broker, job)
    lifecycle.postpone(broker, job, part.due_ms)
    lifecycle.arm(broker, job)


def error_of(job: Job) -> bytes | None:
    """Return the error of the job's last failure; None if none is known.

    For a job without a changeable part, the counters tell: a job that was queued again and never given back has lost a
    lease.
    """
    part = job.part
    if part is not None:
        return part.error
    return LEASE_EXPIRED if job.attempt and job.deliveries and not job.nacks else None


# -- the end of all attempts ----------------------------------------------------------------------------


def give_up(broker: Broker, job: Job, error: bytes | None) -> bool:
    """Make a job without attempts left errored, or move it to the dead-letter queue.

    Return whether it is queued there now. If so, the caller tells the holders (requeue.py).
    """
    assert job.state == ACTIVE or job.state == QUEUED
    if job.state == QUEUED:
        lifecycle.dequeue(broker, job)
    part = begin(broker, job)
    part.error = error
    part.ended = max(part.ended, job.attempt)
    part.is_delayed = False
    is_elsewhere = not job.is_leased_here
    lifecycle.end_lease(broker, job)
    if job.work is not None:
        job.work = None
    if broker.pauses.deferred:
        broker.pauses.deferred.pop(job, None)
    if broker.tokens.by_job:
        broker.tokens.drop(job)
    rules = broker.queue_settings.of(job.terms.queue)
    if rules.dead_letter and rules.dead_letter != job.terms.queue and not part.is_dead_letter:
        return _move(broker, job, part, rules.dead_letter, is_elsewhere=is_elsewhere)
    events.note(broker, job, event_format.ERRORED_EVENT, None if error is None else {"error": _text(error)})
    part.is_errored = True
    expire_at(broker, job, max(job.expire_at_ms, broker.now_ms + rules.retention_ms))
    lifecycle.stop_requeueing(broker, job)
    broker.stats.jobs_errored += 1
    change(broker, job)
    return False


def expire_at(broker: Broker, job: Job, expire_at_ms: int) -> None:
    """Move the end of a job's life. A repair may have skipped the job because it was about to end (spec RC1)."""
    if expire_at_ms > job.expire_at_ms:
        broker.repairs.lengthened(job, job.expire_at_ms - broker.now_ms, broker.now_ms)
    windows.move_end(job, expire_at_ms)


def _move(broker: Broker, job: Job, part: Changeable, name: bytes, *, is_elsewhere: bool) -> bool:
    """Move a job to a dead-letter queue. Return whether it is queued there.

    is_elsewhere   whether another node may have delivered it last
    """
    source = job.terms.queue
    count = part.history[4] + 1 if part.history is not None else 1
    spent = max(0, job.attempt - part.start)
    part.history = (source, part.error or b"", spent, broker.wall_ms, count, part.limit)
    part.is_dead_letter = True
    rules = broker.queue_settings.of(name)
    part.limit = rules.attempts
    part.start = job.attempt
    left = events.status_of(job)
    lifecycle.rename_queue(broker, job, name)
    expire_at(broker, job, broker.now_ms + rules.retention_ms)
    broker.stats.jobs_dead_lettered += 1
    rare = {"from_queue": _text(source)}
    if part.error is not None:
        rare["error"] = _text(part.error)
    queue = broker.queues.get(name)
    is_paused = queue is not None and bool(queue.paused & PAUSED_IN)
    code = event_format.DEAD_LETTERED_INVISIBLE if is_paused else event_format.DEAD_LETTERED
    events.note(broker, job, code, rare, left=left)
    if is_paused and is_elsewhere:
        # The news of a delay ends the lease of that node. The end of the pause ends the delay.
        delay(broker, job, part, job.terms.retry_ms, is_held=True)
    change(broker, job)
    if is_paused:
        lifecycle.postpone(broker, job, broker.now_ms + job.terms.retry_ms + broker.jitter())
        lifecycle.arm(broker, job)
        broker.pauses.deferred[job] = job.requeue_at_ms
        return False
    lifecycle.enqueue(broker, job)
    return True


def renew(broker: Broker, job: Job) -> None:
    """Begin a new set of attempts of an errored job, with a new TTL of the same span. The caller queues the job."""
    part = begin(broker, job)
    part.is_errored = False
    part.is_delayed = False
    part.start = job.attempt
    part.error = None
    expire_at(broker, job, broker.now_ms + part.ttl_ms)
    lifecycle.arm(broker, job)
    change(broker, job)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def setack_of(broker: Broker, job: Job) -> tuple[Any, ...]:
    """Return the SETACK that tells a node of an acked record, with the outcome where the message needs one."""
    packed = broker.sets.pack(job.holders)
    if type(job.work) is Cancellation:
        return (job.id, packed, job.version, canceled_outcome(job))
    if job.version == UNTOLD:
        return (job.id, packed, UNTOLD, OUTCOME_DOUBTED)
    return (job.id, packed)


def send_result(broker: Broker, nodes: tuple[Node, ...], job: Job) -> bool:
    """Send the result of an acked job, before its SETACK, to some nodes. Return whether there is one. Spec RW1."""
    if not broker.results.by_id:
        return False
    result = broker.results.item(job.id)
    if result is None:
        return False
    broker.send(nodes, RESULT, result)
    return True


def send_ack(broker: Broker, node: Node, job: Job) -> None:
    """Tell a node of an acked record, with its result."""
    only = broker.sets.only(node)
    send_result(broker, only, job)
    broker.send(only, SETACK, setack_of(broker, job))


def canceled_outcome(job: Job) -> int:
    """Return the outcome for the SETACK of a canceled job."""
    return OUTCOME_REPLACED if windows.is_replaced(job) else OUTCOME_CANCELED


# -- other nodes ----------------------------------------------------------------------------------------


def number_of(job: Job) -> tuple[int, bytes]:
    """Return the change number that this node knows, and the node that made the change."""
    part = job.part
    return NO_CHANGE if part is None else (part.number, part.node)


def read_number(item: Any, at: int) -> tuple[int, bytes]:
    """Return the change number at a position of a message, and the node id after it. Raise ValueError."""
    if len(item) < at + 2:
        return NO_CHANGE
    number, node = item[at], item[at + 1]
    if not changeable.is_number(number) or type(node) is not bytes:
        raise ValueError("an invalid change number")
    return number, node


def compare_change(broker: Broker, sender: Node, job: Job, theirs: tuple[int, bytes]) -> bool:
    """Compare our change number of a job with a node's. If they differ, tell the node our part or ask for its part.

    Return whether the node knows at least our part. Spec Y3.
    """
    ours = number_of(job)
    if theirs == ours:
        return True
    if theirs < ours:
        tell(broker, sender, job)
        return False
    if not _is_believable(theirs[0], ours[0]):
        broker.stats.ignored("change number out of range")
        tell(broker, sender, job)
        return False
    begin(broker, job)  # `behind` is only looked at for jobs with attributes.
    left, heard = broker.behind.get(job, NOT_BEHIND)
    broker.behind[job] = (left or ASKS_MAX, max(heard, theirs[0]))
    broker.send(broker.sets.only(sender), ASKCHANGED, job.id)
    if job.state == QUEUED and job.terms.retry_ms:
        # The job may be errored, delayed or in another queue. We must know before we deliver it.
        lifecycle.dequeue(broker, job)
        job.requeue_at_ms = broker.now_ms + ASK_AGAIN_MS
        lifecycle.arm(broker, job)
    return True


def _is_believable(number: int, ours: int) -> bool:
    return number - ours <= NUMBER_STEP_MAX


def merge(broker: Broker, sender: Node, known: Job, job: Job, snapshot: Any) -> None:
    """Take over a snapshot's part and attempts for a job that is known here, or tell the sender our newer part.

    known      the job as it is here
    job        the job as the snapshot has it
    """
    if job.attempt > known.attempt:
        known.attempt = job.attempt
        lifecycle.mark_dirty(broker, known)
    part = job.part
    if part is not None and number_of(job) > number_of(known):
        adopt(broker, known, part, snapshot[PART])
    elif number_of(job) < number_of(known) and known.state != ACKED:
        tell(broker, sender, known)


def tell(broker: Broker, node: Node, job: Job) -> None:
    """Send the job's part to a node."""
    part = job.part
    if part is not None:
        broker.send(broker.sets.only(node), CHANGED, (job.id, pack_part(broker, job, part), job.version))


def may_queue(broker: Broker, job: Job) -> bool:
    """Return whether a job that is due may be queued. If a newer part is missing, ask for it and postpone the job."""
    left, heard = broker.behind.get(job, NOT_BEHIND)
    if not left:
        return True
    others = broker.sets.others(job.holders)
    broker.behind[job] = (left - 1 if others else 0, heard)
    if not others:
        return True
    broker.send(others, ASKCHANGED, job.id)
    lifecycle.postpone(broker, job, broker.now_ms + ASK_AGAIN_MS)
    lifecycle.arm(broker, job)
    return False


def on_askchanged(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Send our parts of jobs to a node that has older ones."""
    for job_id in items:
        job = broker.find(job_id)
        if job is None:
            if job_id in broker.tombstones:
                broker.send(broker.sets.only(sender), SETACK, (job_id, b""))
        elif job.state == ACKED:
            send_ack(broker, sender, job)
        else:
            tell(broker, sender, job)


def on_changed(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take over newer parts, each as a whole."""
    for job_id, field, *more in items:
        part = changeable.unpack(field)
        job = broker.find(job_id)
        if job is not None and more:  # Nodes of an older version don't send the version.
            events.heard(job, more[0])
        if job is None:
            broker.stats.ignored("change of an unknown job")
        elif job.state == ACKED:
            send_ack(broker, sender, job)
        elif not _is_believable(part.number, number_of(job)[0]):
            broker.stats.ignored("change number out of range")
        elif (part.number, part.node) > number_of(job):
            adopt(broker, job, part, field)
        elif (part.number, part.node) < number_of(job):
            tell(broker, sender, job)
        else:
            broker.behind.pop(job, None)


def adopt(broker: Broker, job: Job, part: Changeable, field: Any) -> None:
    """Take over a newer part, and change the job's queue, timers and state accordingly.

    field   the packed form of the part
    """
    old = begin(broker, job)
    attributes = job.attributes
    assert attributes is not None
    was_held = old.is_errored or old.is_delayed
    name: bytes = field[changeable.QUEUE_AT]
    left_ms: int = field[changeable.LEFT_AT]
    due_ms: int = field[changeable.DUE_AT]
    priority: int | None = field[changeable.PRIORITY_AT]
    broker.behind.pop(job, None)
    job.attempt = max(job.attempt, part.start, part.ended)  # We may have missed these deliveries.
    retry_at_ms = broker.now_ms + job.terms.retry_ms + broker.jitter()
    if job.state == QUEUED and (
        part.is_errored
        or part.is_spent(job.attempt)
        or due_ms
        or name != job.terms.queue
        or priority != attributes.priority
    ):
        lifecycle.dequeue(broker, job)
        job.requeue_at_ms = retry_at_ms
    if name != job.terms.queue:
        lifecycle.rename_queue(broker, job, name)
    if priority != attributes.priority:
        lifecycle.set_priority(broker, job, attributes, priority)
    queue = broker.queues.get(name) if job.state == QUEUED and part.history != old.history else None
    if queue is not None and queue.filters is not None:
        queue.filters.left(job)  # Its history counts as META.
    attributes.part = part
    if queue is not None and queue.filters is not None:
        queue.filters.added(job)
    expire_at(broker, job, broker.now_ms + left_ms)
    measure(broker, job, attributes)
    lifecycle.mark_dirty(broker, job)
    if job.state == WAIT_REPL:
        return
    if part.is_errored:
        lifecycle.end_lease(broker, job)
        if isinstance(job.work, Handover):
            job.work = None
        events.learn(broker, job, event_format.ERRORED)
        if broker.pauses.deferred:
            broker.pauses.deferred.pop(job, None)
        lifecycle.stop_requeueing(broker, job)
        return
    if due_ms and not (job.is_leased_here and job.attempt > part.ended):
        # The node to which the consumer gave the job back queues it. Our timer ends later.
        part.is_delayed = True
        part.due_ms = broker.now_ms + due_ms
        lifecycle.end_lease(broker, job)
        events.learn(broker, job, event_format.INVISIBLE)
        if job.terms.retry_ms and job.state == ACTIVE:
            margin_ms = 2 * lifecycle.WILLQUEUE_LEAD_MS + broker.jitter()
            lifecycle.postpone(broker, job, part.due_ms + margin_ms)
    elif was_held and job.state == ACTIVE and job.terms.retry_ms and not job.is_leased_here:
        events.learn(broker, job, event_format.PENDING)
        job.was_queued = True  # Its delay is over, although the node that ended it may wait for the end of a pause.
        lifecycle.postpone(broker, job, retry_at_ms)
    lifecycle.arm(broker, job)
