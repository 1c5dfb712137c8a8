"""One node queues a job again, not all of its holders: WILLQUEUE, QUEUED, LEASED.

Several nodes hold a job, and one of them has it queued. A delivery starts a lease on that node, which tells the other
holders (LEASED). Each holder has a timer that fires when the last lease it was told about is over.

Most jobs are done in a few milliseconds. So the node tells the others about a delivery a moment later, and not at all
if the job is done by then. A holder whose timer fires in between asks first, as it always does.

Before its timer fires, a holder asks the others with WILLQUEUE. A node that knows better objects:

* with QUEUED if the job waits in its queue. The creator of a fan-out also sends this, while one of the jobs has no
  copies yet (spec TP9);
* with LEASED, which includes the rest of the lease, if it has delivered the job;
* with SETACK if the job is done.

Without an objection, the holder queues the job and tells the others with QUEUED. If two holders queue the job at the
same time, it stays queued on the one that `wins`. Both compute that by the same rule.

If a job waits long in a queue, its node announces it before the timers of the other holders come near. The node
collects ids per group of holders and sends them once a second (QUEUED_WAITING), so 100,000 waiting jobs cost a few
messages.

Counters and attempts travel with every message and merge by maximum. The messages also carry the job's change number
(changing.py). A job without attempts left is not queued: it becomes errored instead. If two holders are about to make
it errored, the one that `wins` does. With `assign quorum` that node first claims the job, which shows that its last
delivery has ended. Spec L2, L3, L4, L5, L6, Y4, EX7.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from cluster_bus.messages import LEASED, QUEUED, QUEUED_RELEASED, QUEUED_WAITING, SETACK, WILLQUEUE
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import changing, claim_stamps, claiming, events, lifecycle
from disque_py.core.broker import Broker
from disque_py.core.changeable import LEASE_EXPIRED
from disque_py.core.claim_stamps import HAS_QUORUM
from disque_py.core.grants import GRANTED, HELD
from disque_py.core.job import ACKED, ACTIVE, ATTEMPT_MAX, COUNTER_MAX, WAIT_REPL, Handover, Job, Replication
from disque_py.core.job import QUEUED as IS_QUEUED
from disque_py.core.job_snapshot import SPAN_BITS
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.queue import PAUSED_IN
from disque_py.event_format import RUNNING

# Announcements of waiting jobs are sent at most this often (spec L4).
ANNOUNCE_EVERY_MS: Final = 1_000
# At most this many jobs are announced at a time. A receiver needs about a microsecond for each.
ANNOUNCE_JOBS_MAX: Final = 2_000
# The rest is announced in parts, this long after one another.
ANNOUNCE_PART_MS: Final = 50
# The other holders are told about a shorter lease immediately, because its end is near.
TOLD_LATER_MS_MIN: Final = 5_000
# How long a claim lasts that only shows that the last attempt of a job is over. If it fails, the next one begins this
# much later.
END_LEASE_MS: Final = 1_000
END_AGAIN_MS: Final = 2_000
# The index of the change number in the items of these messages. The node of the change is the next field.
NUMBER_OF_LEASED: Final = 4
NUMBER_OF_WILLQUEUE: Final = 2
# The index of a claim's fences and holder.
CLAIM_OF_LEASED: Final = 6


def tell_leased(broker: Broker, job: Job) -> None:
    """Tell the other holders that a consumer of this node has the job, and for how long."""
    others = broker.sets.others(job.holders)
    if others:
        _tell_leased(broker, others, job)


def tell_delivered(broker: Broker, job: Job) -> None:
    """Arrange that the other holders are told about a delivery, unless the job is done a moment later. Spec L1.

    They are told immediately if the job has attributes (ATTEMPTS, a claim), because each holder limits the job's
    deliveries then.
    """
    if job.attributes is not None or job.terms.retry_ms < TOLD_LATER_MS_MIN:
        tell_leased(broker, job)
    else:
        broker.copies.delivered.add(job.id, broker.now_ms)


def tell_due(broker: Broker, count_max: int) -> int:
    """Tell the other holders about recent deliveries that are still out. Return the number of ids that were checked."""
    due = broker.copies.delivered.due(broker.now_ms, count_max)
    for job_id in due:
        job = broker.find(job_id)
        if job is not None and job.state == ACTIVE and job.is_leased_here and job.requeue_at_ms > broker.now_ms:
            tell_leased(broker, job)
    return len(due)


def _tell_leased(broker: Broker, nodes: tuple[Node, ...], job: Job) -> None:
    item = (job.id, job.requeue_at_ms - broker.now_ms, job.attempt, job.version)
    if job.attributes is None:
        broker.send(nodes, LEASED, item)
        return
    stamp = claim_stamps.stamp_of(job)
    if stamp is not None and stamp.fence:
        claim = (stamp.fence, stamp.own_fence, stamp.holder)
        broker.send(nodes, LEASED, (*item, *changing.number_of(job), *claim))
    else:
        broker.send(nodes, LEASED, _numbered(job, item))


def _tell_attempt(broker: Broker, sender: Node, job: Job) -> None:
    """Tell our attempt to a node that now answers for the job and had not heard of our delivery. Spec L5."""
    if job.attributes is None:
        broker.send(broker.sets.only(sender), WILLQUEUE, (job.id, job.attempt))


def _numbered(job: Job, item: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the item of a message, extended by the job's change number and its node unless the number is 0."""
    part = job.part
    return item if part is None or not part.number else (*item, part.number, part.node)


def requeue(broker: Broker, job: Job) -> None:
    """Queue an ACTIVE job whose time has come, and tell the other holders."""
    if job.attributes is not None and _is_held_back(broker, job):
        return
    again = job.was_queued
    if again and job.deliveries < COUNTER_MAX:
        job.deliveries += 1
    events.note(broker, job, event_format.REQUEUED if again else event_format.QUEUED)
    lifecycle.enqueue(broker, job)
    if again:
        broker.stats.jobs_requeued += 1
        tell_queued(broker, job, 0)


def _is_held_back(broker: Broker, job: Job) -> bool:
    """Handle the end of a lease or a delay of a job with a changeable part. Return whether nothing is left to do.

    This is the case if other holders may have a newer part, if the job is or becomes errored, or if a NACK delayed it.
    """
    part = job.part
    if part is None:
        return False
    if part.is_errored:
        lifecycle.stop_requeueing(broker, job)
        return True
    if not changing.may_queue(broker, job):
        return True
    if part.is_delayed:
        part.is_delayed = False
        events.note(broker, job, event_format.QUEUED)
        lifecycle.enqueue(broker, job)
        tell_queued(broker, job, 0)
        return True
    if job.terms.retry_ms and part.is_spent(job.attempt):
        stamp = claim_stamps.needed(broker, job)
        if stamp is not None and stamp.flags & HAS_QUORUM:
            _claim_end(broker, job, stamp)
        else:
            _give_up(broker, job)
        return True
    if job.was_queued and job.attempt > part.ended:
        changing.fail(broker, job, LEASE_EXPIRED)
    return False


def _give_up(broker: Broker, job: Job) -> None:
    if changing.give_up(broker, job, LEASE_EXPIRED):
        tell_queued(broker, job, QUEUED_RELEASED)


def _claim_end(broker: Broker, job: Job, stamp: claim_stamps.Stamp) -> None:
    """Give up a job with `assign quorum` once a majority of the voters has granted its key, and so ended its delivery.

    The worker may have renewed its claim while this node was cut off. As a dead letter the job needs no claim, so it
    would be given to a second worker. The claim counts as no attempt. Spec EX7.
    """
    key, holder = claim_stamps.job_key(job, stamp), broker.exclusive.next_holder(broker.me)
    keep_ms = max(1, job.expire_at_ms - broker.now_ms)  # The voters go on keeping the count.
    wanted = claiming.WantedClaim(key, holder, END_LEASE_MS, keep_ms, first=0)
    until_ms = broker.now_ms + claiming.DECIDE_MS + END_AGAIN_MS
    _postpone(broker, job, until_ms)
    claiming.claim(broker, wanted, partial(_end_claimed, broker, job, wanted, until_ms))


def _end_claimed(
    broker: Broker, job: Job, wanted: claiming.WantedClaim, until_ms: int, result: claiming.Result
) -> None:
    if result.outcome == GRANTED:
        claiming.release(broker, wanted, result.fence, _ignore, gives_back=True)
    if job.state != ACTIVE or job.requeue_at_ms != until_ms or broker.find(job.id) is not job or not _is_spent(job):
        return  # This node has heard more about the job meanwhile.
    if result.outcome == GRANTED and result.until_ms > broker.now_ms:
        _give_up(broker, job)
        return
    left_ms = result.until_ms if result.outcome == HELD else END_AGAIN_MS
    _postpone(broker, job, broker.now_ms + max(1, left_ms) + broker.jitter())


def _postpone(broker: Broker, job: Job, until_ms: int) -> None:
    lifecycle.postpone(broker, job, until_ms)
    lifecycle.arm(broker, job)


def _ignore(result: claiming.Result) -> None:
    """Do nothing. If the release is lost, the grant ends with its short lease."""


def release(broker: Broker, job: Job) -> None:
    """Queue a job regardless of its lease, because a consumer gave it back (NACK) or a client asks for it (ENQUEUE)."""
    part = job.part
    if part is not None:
        part.is_delayed = False
    lifecycle.enqueue(broker, job)
    tell_queued(broker, job, QUEUED_RELEASED)


def tell_queued(broker: Broker, job: Job, flags: int) -> None:
    """Send QUEUED to all other holders."""
    others = broker.sets.others(job.holders)
    if others:
        broker.send(others, QUEUED, _queued(job, flags))


def _queued(job: Job, flags: int) -> tuple[Any, ...]:
    item = (job.id, flags, job.attempt, job.nacks, job.deliveries, job.version)
    return item if job.attributes is None else _numbered(job, item)


def tell_willqueue(broker: Broker, job: Job) -> None:
    """Send WILLQUEUE to all other holders: the job will be queued here unless one of them objects."""
    others = broker.sets.others(job.holders)
    job.was_announced = True
    if others:
        item = (job.id, job.attempt)
        broker.send(others, WILLQUEUE, item if job.attributes is None else _numbered(job, item))


def announce_later(broker: Broker, job: Job) -> None:
    """Add a job that still waits in our queue to the next batch of announcements."""
    others = broker.sets.others(job.holders)
    if others:
        if not broker.copies.announcements:
            broker.schedule.call_at(broker.now_ms + ANNOUNCE_EVERY_MS, lambda: send_announcements(broker))
        broker.copies.announcements.setdefault(others, []).append(job)


def send_announcements(broker: Broker) -> None:
    """Announce those jobs that still wait in our queue. Very many jobs are announced in parts."""
    batches = broker.copies.announcements
    broker.copies.announcements = {}
    left = ANNOUNCE_JOBS_MAX
    for others, jobs in batches.items():
        count = len(jobs)
        for job in jobs[-left:] if left else ():
            if job.state == IS_QUEUED:
                broker.send(others, QUEUED, _queued(job, QUEUED_WAITING))
        if count > left:
            if left:
                del jobs[-left:]  # From the end, so that a million other entries need not move.
            broker.copies.announcements[others] = jobs
        left = max(0, left - count)
    if broker.copies.announcements:
        broker.schedule.call_at(broker.now_ms + ANNOUNCE_PART_MS, lambda: send_announcements(broker))


def on_leased(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Queue the job no earlier than its lease ends, because a holder delivered it or its worker is still busy."""
    sets = broker.sets
    now_ms = broker.now_ms
    shards = broker.shards
    for item in items:
        job_id: bytes = item[0]
        left_ms = item[1]
        attempt = item[2]
        if type(left_ms) is not int or type(attempt) is not int or left_ms >> SPAN_BITS:
            raise ValueError("a lease that is not a number")
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None:
            _tell_if_done(broker, sender, job_id)
            continue
        if sender not in job.holders:
            job.holders = sets.add(job.holders, sender)
            mark_holders_dirty(broker, job)
        state = job.state
        if state == ACKED:
            changing.send_ack(broker, sender, job)
            continue
        if len(item) > 3:
            before = job.version
            events.heard(job, item[3])
            if job.attributes is not None or len(item) > NUMBER_OF_LEASED + 1:
                changing.compare_change(broker, sender, job, changing.read_number(item, NUMBER_OF_LEASED))
                if len(item) > CLAIM_OF_LEASED:
                    claim_stamps.heard(broker, job, item[CLAIM_OF_LEASED:])
                    changing.begin(broker, job)  # The claim's place in the journal is after the part (spec EX6).
                if job.is_errored:
                    if attempt > job.attempt:
                        job.attempt = min(attempt, ATTEMPT_MAX)
                        lifecycle.mark_dirty(broker, job)
                    continue  # `hear` makes both nodes know the newer part.
                part = job.part
                if part is not None and attempt > part.ended:
                    part.is_delayed = False
                elif part is not None and job.state == IS_QUEUED and item[3] <= before:
                    continue  # A NACK has ended this delivery here. The sender will hear of that, and ends its lease.
        events.learn(broker, job, RUNNING)
        is_later = attempt > job.attempt
        if is_later:
            job.attempt = min(attempt, ATTEMPT_MAX)
        elif attempt < job.attempt and job.is_leased_here:
            _tell_attempt(broker, sender, job)
        job.was_queued = True
        lifecycle.mark_dirty(broker, job)
        if state == WAIT_REPL or not job.terms.retry_ms:
            if isinstance(job.work, Replication) and job.terms.retry_ms:
                # It is not queued here before that lease is over, when it has its copies (replication.py).
                leased = job.work.leased = job.work.leased or {}
                until_ms = now_ms + left_ms + broker.jitter() + lifecycle.WILLQUEUE_LEAD_MS
                leased[job] = max(until_ms, leased.get(job, 0))
            continue
        _moved_on(broker, job)
        if job.state == IS_QUEUED:
            # A consumer of the sender has the job. Leases exist to prevent a second delivery from our queue.
            lifecycle.dequeue(broker, job)
            job.requeue_at_ms = 0
        until_ms = now_ms + left_ms + broker.jitter() + lifecycle.WILLQUEUE_LEAD_MS
        if until_ms > job.requeue_at_ms:
            # From now on only the sender answers for the job. If both nodes did, each would postpone the other's
            # timer for ever.
            job.is_leased_here = False
            lifecycle.postpone(broker, job, until_ms)
        elif job.is_leased_here and not is_later:
            # The sender got a WORKING for less time than our delivery lasts. We continue to answer for the job, and the
            # sender stops.
            _tell_leased(broker, sets.only(sender), job)


def on_queued(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take the job out of our queue and restart our timer, because it waits in the sender's queue."""
    sets = broker.sets
    now_ms = broker.now_ms
    for item in items:
        job_id, flags, attempt, nacks, deliveries, *later = item
        if type(attempt) is not int or type(nacks) is not int or type(deliveries) is not int:
            raise ValueError("a counter that is not a number")
        job = broker.find(job_id)
        if job is None:
            _tell_if_done(broker, sender, job_id)
            continue
        if sender not in job.holders:
            job.holders = sets.add(job.holders, sender)
            mark_holders_dirty(broker, job)
        if job.state == ACKED:
            changing.send_ack(broker, sender, job)
            continue
        if later:
            events.heard(job, later[0])
            if job.attributes is not None or len(later) > 2:
                is_current = changing.compare_change(broker, sender, job, changing.read_number(later, 1))
                part = job.part
                if part is not None and (part.is_errored or (part.is_delayed and not is_current)):
                    if _merge(job, attempt, nacks, deliveries):
                        lifecycle.mark_dirty(broker, job)
                    continue  # `hear` makes both nodes know the newer part.
                if part is not None:
                    part.is_delayed = False
        # A message that only moves the timer is not recorded, because each announcement of a job would cost a record.
        if _merge(job, attempt, nacks, deliveries) or job.is_leased_here or not job.was_queued:
            lifecycle.mark_dirty(broker, job)
        job.was_queued = True
        if job.state == WAIT_REPL or not job.terms.retry_ms:
            if isinstance(job.work, Replication) and job.work.leased is not None:
                job.work.leased.pop(job, None)
            continue
        if flags == QUEUED_RELEASED:
            if attempt < job.attempt and job.is_leased_here:
                _tell_attempt(broker, sender, job)
            for renewal in broker.exclusive.renewals.get(job_id, ()):
                renewal.is_ended = True  # The worker gave the job back at the sender.
            lifecycle.end_lease(broker, job)
        elif job.is_leased_here and job.requeue_at_ms > now_ms:
            # The sender queued the job because it had not heard of our delivery.
            _tell_leased(broker, sets.only(sender), job)
            continue
        elif attempt < job.attempt and job.requeue_at_ms > now_ms and events.status_of(job) == RUNNING:
            # Nor of one on another node. It might hand the job to a node that has, and that would deliver it again.
            _tell_leased(broker, sets.only(sender), job)
            continue
        if job.state == IS_QUEUED:
            if not wins(sender, broker.me, job_id) and not _is_spent(job):
                broker.send(sets.only(sender), QUEUED, _queued(job, QUEUED_WAITING))
                continue
            lifecycle.dequeue(broker, job)
            job.requeue_at_ms = 0
        _moved_on(broker, job)
        events.learn(broker, job, event_format.PENDING)
        job.is_leased_here = False
        until_ms = now_ms + job.terms.retry_ms + broker.jitter()
        if until_ms > job.requeue_at_ms:
            lifecycle.postpone(broker, job, until_ms)


def on_willqueue(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Object if we know better. Without an objection the sender queues the job."""
    sets = broker.sets
    for item in items:
        job_id, attempt = item[0], item[1]
        if type(attempt) is not int:
            raise ValueError("an attempt that is not a number")
        job = broker.find(job_id)
        if job is None:
            _tell_if_done(broker, sender, job_id)
            continue
        if sender not in job.holders:
            job.holders = sets.add(job.holders, sender)
            mark_holders_dirty(broker, job)
        if attempt > job.attempt:
            job.attempt = min(attempt, ATTEMPT_MAX)
            lifecycle.mark_dirty(broker, job)
        if job.state == ACKED:
            changing.send_ack(broker, sender, job)
            continue
        if job.attributes is not None or len(item) > NUMBER_OF_WILLQUEUE + 1:
            is_current = changing.compare_change(broker, sender, job, changing.read_number(item, NUMBER_OF_WILLQUEUE))
            if job.is_errored:
                if is_current:
                    changing.tell(broker, sender, job)  # This is the objection: an errored job is not queued.
                continue
            if job.state == IS_QUEUED and _is_spent(job):
                # The last attempt was delivered by the sender or by a node that it heard from, and its lease is over.
                stamp = claim_stamps.stamp_of(job)
                if stamp is None or not stamp.flags & HAS_QUORUM:
                    _give_up(broker, job)
                continue  # Under a quorum the sender claims the end of the job.
        if job.state == IS_QUEUED:
            tell_queued(broker, job, QUEUED_WAITING)
        elif job.is_leased_here and job.requeue_at_ms > broker.now_ms:
            tell_leased(broker, job)
        elif isinstance(job.work, Handover) and _is_limited(job):
            # The taker has the job queued now or in a moment, and did not receive the question.
            broker.send(sets.only(sender), QUEUED, _queued(job, QUEUED_WAITING))
        elif attempt < job.attempt and job.requeue_at_ms > broker.now_ms and events.status_of(job) == RUNNING:
            # The node that delivered the job could not tell the sender, which would queue a job that is out.
            _tell_leased(broker, sets.only(sender), job)
        elif job.state == ACTIVE and _is_limited(job) and wins(sender, broker.me, job_id):
            # Both nodes may be about to queue the job, or to make it errored. Only the sender does, and tells us. Two
            # deliveries at the same moment could exceed the limit of attempts, and one transition must be one event.
            until_ms = broker.now_ms + lifecycle.willqueue_lead_ms(job) + lifecycle.WILLQUEUE_LEAD_MS
            if job.requeue_at_ms < until_ms:
                lifecycle.postpone(broker, job, until_ms)
        elif job.state == WAIT_REPL and _is_in_fan_out(broker, job):
            # Another job of the fan-out may still fail, and then none of them may have been delivered.
            broker.send(sets.only(sender), QUEUED, _queued(job, QUEUED_WAITING))


def wins(left: Node, right: Node, job_id: bytes) -> bool:
    """Return whether `left` keeps the job queued rather than `right`.

    Both node ids are XORed with the job's random characters and compared, so the winner differs per job (spec L6).
    """
    salt = job_id[11:31]
    return bytes(map(_xor, left.id, salt)) > bytes(map(_xor, right.id, salt))


def on_timer(broker: Broker, job: Job) -> None:
    """Announce the requeueing of an ACTIVE job, or queue it."""
    now_ms = broker.now_ms
    due_ms = job.requeue_at_ms
    if not job.terms.retry_ms and job.work is not None:
        job.requeue_at_ms = 0  # The deadline of a producer that is gone.
        lifecycle.arm(broker, job)  # The job is being handed over, and the taker's answer decides.
        return
    if due_ms > now_ms:
        if job.was_announced or broker.sets.mine is job.holders or due_ms - now_ms > lifecycle.willqueue_lead_ms(job):
            lifecycle.arm(broker, job)
            return
        tell_willqueue(broker, job)
        lifecycle.arm(broker, job)
        return
    queue = broker.queues.get(job.terms.queue)
    deferred_ms = broker.pauses.deferred.get(job, 0)
    was_pending = due_ms > 0 and deferred_ms == -due_ms
    if deferred_ms < 0:
        del broker.pauses.deferred[job]
    if job.terms.retry_ms and queue is not None and queue.paused & PAUSED_IN and not was_pending:
        if job.is_errored:
            lifecycle.stop_requeueing(broker, job)
            return
        part = job.part
        if part is not None and not changing.may_queue(broker, job):
            return
        if part is not None and part.is_spent(job.attempt) and not part.is_delayed:
            _is_held_back(broker, job)  # A pause keeps no job whose attempts are over.
            return
        lifecycle.postpone(broker, job, now_ms + job.terms.retry_ms + broker.jitter())
        lifecycle.arm(broker, job)
        is_ours = job.is_leased_here or not job.was_queued or (part is not None and part.is_delayed)
        if job.is_leased_here:
            _end_lease_in_pause(broker, job)
        elif broker.caps.running:
            broker.caps.ended(job)
        if is_ours or deferred_ms > 0:
            broker.pauses.deferred[job] = job.requeue_at_ms
        return
    requeue(broker, job)


def _end_lease_in_pause(broker: Broker, job: Job) -> None:
    """Note the end of a lease of this node while the input of the queue is paused. The job is invisible. Spec U2."""
    part = job.part
    if part is not None and job.attempt > part.ended:
        changing.fail(broker, job, LEASE_EXPIRED)
    if job.deliveries < COUNTER_MAX:
        job.deliveries += 1
    events.note(broker, job, event_format.REQUEUED_INVISIBLE)
    lifecycle.end_lease(broker, job)
    lifecycle.mark_dirty(broker, job)
    broker.stats.jobs_requeued += 1


def is_queueable(job: Job) -> bool:
    """Return whether this job may be queued now.

    An at-most-once job may not after it was delivered or handed over. An errored job may not before it gets new
    attempts.
    """
    if job.state != ACTIVE or (job.attributes is not None and job.is_errored):
        return False
    return job.terms.retry_ms > 0 or (not job.is_delivered and job.work is None)


def _is_spent(job: Job) -> bool:
    part = job.part
    return part is not None and part.is_spent(job.attempt)


def _is_in_fan_out(broker: Broker, job: Job) -> bool:
    work = job.work
    return isinstance(work, Replication) and (work.together is not None or job in broker.producers.fans)


def _is_limited(job: Job) -> bool:
    part = job.part
    return part is not None and part.limit > 0


def _moved_on(broker: Broker, job: Job) -> None:
    """End a hand-over, because another node has queued or delivered the job: we must not queue it on a refusal."""
    if isinstance(job.work, Handover):
        job.work = None
        lifecycle.mark_dirty(broker, job)


def _merge(job: Job, attempt: int, nacks: int, deliveries: int) -> bool:
    """Take the maximum of each counter. Return whether a counter grew."""
    if attempt <= job.attempt and nacks <= job.nacks and deliveries <= job.deliveries:
        return False
    if attempt > job.attempt:
        job.attempt = min(attempt, ATTEMPT_MAX)
    if nacks > job.nacks:
        job.nacks = min(nacks, COUNTER_MAX)
    if deliveries > job.deliveries:
        job.deliveries = min(deliveries, COUNTER_MAX)
    return True


def _tell_if_done(broker: Broker, sender: Node, job_id: bytes) -> None:
    if job_id in broker.tombstones:
        broker.send(broker.sets.only(sender), SETACK, (job_id, b""))


def _xor(left: int, right: int) -> int:
    return left ^ right
