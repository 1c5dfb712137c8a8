"""Collecting finished jobs: SETACK, GOTACK, DELJOB.

A consumer acknowledges a job on one node, but several nodes may have copies. A node that never hears of the ack would
queue its copy again. So a node may forget an acked job only when every node in `job.holders` has confirmed, or when the
TTL is over. `holders` is never smaller than the truth: a node joins it when a copy is *sent*, not when it arrives.

SETACK and GOTACK carry holder sets, and every node merges the sets that it receives. Nodes compare the sets themselves,
not their sizes, because two nodes may know different holders. A node whose set has a holder that the sender's set lacks
starts collecting, too. So the collector that knows all holders finishes the collection. A GOTACK confirms only if the
SETACK that it answers named the answering node: a node that is not a holder now may still receive a copy. A SETACK from
a node of the set also confirms. So if sender and receiver are the only holders, the receiver ends the collection
instead of answering. A node that has ended a collection answers a late SETACK with its DELJOB.

A *dummy ack* is the record of an ack for a job that the node never held (client_acks.py). Its set is empty. Its node
learns the holders from other nodes and then collects like any other node, but it never counts as a holder itself. Two
dummy acks tell each other nothing (spec Q10).

A *canceled* job is collected in the same way, but its SETACKs carry OUTCOME_CANCELED (CANCELJOB). If a node hears that
the job was completed and that it was canceled, completed wins. The node on which the job's lease runs keeps the record
until the lease is over, so that the worker hears of the cancellation.

The node that ends a collection sends DELJOB with its set to all holders. A receiver that knows more holders continues
to collect. A node that was away may have a holder set that is too small, because other nodes may have replaced lost
copies meanwhile (repair.py). Therefore the collector asks every linked node if the job is of an earlier era. A node
that named a new holder waits for that holder's own confirmation.

If a job has a result, a RESULT precedes each of its SETACKs (client_acks.py). A node may hear of an end without the
result: from a DELJOB, or from a node that knows only that the job is done. Then the end is in doubt there (ends.py).

No function here waits. Timers call `try_collect` again. Spec A1, A2, A3, A4, A5, A7, A9, A10, A13, A14, RC7, RC8, Y8,
Y9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cluster_bus.messages import DELJOB, GOTACK, SETACK
from cluster_bus.node import FORGOTTEN, Node
from disque_py import event_format
from disque_py.core import changing, events, holding, lifecycle, producer_waits, replication, results, windows
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.broker_parts import ACK_ASKED_MS
from disque_py.core.changing import OUTCOME_CANCELED, OUTCOME_DOUBTED, OUTCOME_REPLACED, UNTOLD
from disque_py.core.ids import is_valid_id, ttl_minutes
from disque_py.core.job import ACKED, NO_TERMS, WAIT_REPL, Cancellation, Collection, Handover, Job, Replication
from disque_py.core.job_attributes import BATCH
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.node_sets import EMPTY, NodeSet
from disque_py.core.schedule import Line

# After the first retry (broker_parts.py) we back off, because an unreachable holder often stays unreachable for
# minutes, and every retry costs a message per holder.
COLLECT_RETRY_MS_MAX: Final = 180_000
# A node keeps records for acks of jobs that it never held, up to this number and up to 95 % of memory. A larger number
# comes from a holder that lost its memory while another holder is away, or from a client that invents ids. Beyond the
# limit the node remembers only that the job is done, and only for a while. Such a job may cost one more question, or
# one more delivery elsewhere.
ACKED_COUNT_MAX: Final = 500_000
# Such a record may name this many holders. A larger, invented set could use a hundred times the memory that is
# accounted for a record.
UNKNOWN_HOLDERS_MAX: Final = 64
# Jobs looked at per part of a walk over all of them. A job that is collected counts as ten.
LOOKED_PER_PART: Final = 3_000
# A SETACK of two fields comes from a node that may know only that the job is done.
ITEMS_MIN: Final = 2
# Nearly all have three: id, holders, version. A fourth, the outcome, says that the job was not simply completed.
USUAL_FIELDS: Final = 3
OUTCOME_AT: Final = 3
# Third field of a DELJOB without a set: the job is done, and no node that held it has reported that yet.
IS_DONE: Final = 1
_NOTHING: Final[Any] = object()  # Equal to no field of a message.


def acknowledge(broker: Broker, job: Job, *, is_news: bool = False, is_canceled: bool = False) -> None:
    """Note that the job is done, because a client or a node says so. It is not queued here again.

    An acked job does not change.

    is_news      whether no holder of the job has heard of this before, so that this node writes the event (events.py)
    is_canceled  whether the job was canceled
    """
    if job.state == ACKED:
        return
    if job.state == WAIT_REPL:
        if isinstance(job.work, Replication) and job.work.together is not None:
            replication.part(broker, job.work)
        work = job.work
        if isinstance(work, Replication) and work.is_external:
            # We keep no copy. The nodes that have one have heard of the ack, or will hear of it.
            lifecycle.make_active(broker, job)
            events.added(broker, job, event_format.ADDED_INVISIBLE)
            producer_waits.answer(broker, work.client, job, work.slot, b"+%b\r\n" % job.id)
        elif isinstance(work, Replication):
            # A consumer got the job from a replica, so the job exists and was processed (spec Q11).
            reply = b"+%b\r\n" % job.id
            lifecycle.make_active(broker, job)
            events.added(broker, job, event_format.ADDED)
            broker.stats.jobs_added += 1
            producer_waits.answer(broker, work.client, job, work.slot, reply)
    elif job.work is not None:
        producer_waits.tell_taken(broker, job)  # The consumer got it from the node that took it.
        if isinstance(job.work, Handover) and not job.terms.retry_ms:
            job.holders = broker.sets.add(job.holders, job.work.node)  # It may have the job, or get it later.
            mark_holders_dirty(broker, job)
    if is_canceled:
        if is_news:
            events.canceled(broker, job, windows.replacement(job))
            broker.stats.jobs_canceled += 1
        elif broker.events is not None:
            events.learn(broker, job, event_format.CANCELED)
        kept_until_ms = job.requeue_at_ms if _is_running(broker, job) else 0
        lifecycle.acknowledge(broker, job, Cancellation(kept_until_ms))
    else:
        if is_news:
            events.acked(broker, job)
        lifecycle.acknowledge(broker, job)
    if is_news and isinstance(job.work, Collection):
        job.work.is_reported = True  # Its event has reported the end to its batch, if it has one.


def _is_running(broker: Broker, job: Job) -> bool:
    return job.is_leased_here and job.requeue_at_ms > broker.now_ms


def _complete(broker: Broker, job: Job) -> None:
    """Turn a canceled job into a completed one, because a node says so: completed wins."""
    work = job.work
    if not isinstance(work, Cancellation):
        return
    done = Collection()
    done.confirmed = work.confirmed
    done.passed = work.passed
    done.attempts = work.attempts
    done.is_doubted = work.is_doubted
    job.work = done
    if broker.events is not None:
        events.learn(broker, job, event_format.COMPLETED)
    lifecycle.mark_dirty(broker, job)


def try_collect(broker: Broker, job: Job) -> None:
    """Finish the collection if all holders have confirmed. Else ask the others, now and again later."""
    work = job.work
    if not isinstance(work, Collection):
        return
    assert job.state == ACKED
    if type(work) is Cancellation and work.is_over:
        _end_canceled(broker, job, work)
        return
    missing = _missing(broker, job, work)
    if not missing:
        finish(broker, job)
        return
    asked = _linked(broker, missing)
    if asked:
        holders = job.holders
        result = broker.results.by_id and changing.send_result(broker, asked, job)
        item = (job.id, broker.sets.pack(holders), job.version if holders else UNTOLD)
        if type(work) is not Collection:
            broker.send(asked, SETACK, (*item, changing.canceled_outcome(job)))
        elif work.is_doubted and job.terms.queue and not result:
            broker.send(asked, SETACK, (*item, OUTCOME_DOUBTED))
        else:
            broker.send(asked, SETACK, item)
    attempts = work.attempts
    if attempts and job.requeue_at_ms > broker.now_ms:
        return  # An answer led here, not the timer. It must not lengthen the pause, because a node may be starting.
    work.attempts = attempts + 1
    if attempts:
        span_ms = min(ACK_ASKED_MS << min(attempts, 10), COLLECT_RETRY_MS_MAX)
        job.requeue_at_ms = broker.now_ms + span_ms + broker.jitter()
        lifecycle.arm(broker, job)
    else:
        _look_later(broker, job, broker.acks.asked)


def _linked(broker: Broker, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the linked ones of some nodes. Equal groups are the same tuple, so that a turn's messages are one run."""
    for node in nodes:
        if not node.is_linked:
            return broker.sets.others(broker.sets.of([node for node in nodes if node.is_linked]))
    return nodes


def _look_later(broker: Broker, job: Job, line: Line) -> None:
    """Look at the job again later. In most cases its collection has ended by then."""
    now_ms = broker.now_ms
    job.requeue_at_ms = at_ms = now_ms + line.span_ms
    if job.awake_at_ms or job.expire_at_ms <= at_ms:
        lifecycle.arm(broker, job)
    else:
        line.add(job.id, now_ms)


def look_again(broker: Broker, count_max: int) -> int:
    """Continue collections that began about a second ago. Return the number of ids that were looked at."""
    looked = 0
    for line in (broker.acks.asked, broker.acks.heard):
        if not line:
            continue
        due = line.due(broker.now_ms, count_max)
        looked += len(due)
        for job_id in due:
            job = broker.find(job_id)
            if job is not None and job.state == ACKED and not job.awake_at_ms:
                try_collect(broker, job)
    return looked


def _missing(broker: Broker, job: Job, work: Collection) -> tuple[Node, ...]:
    """Return the nodes that must still confirm. Equal groups are the same tuple.

    For a dummy ack, all nodes of the table must confirm. While this node was away, a job that it held may have got
    holders of which it never heard. For such a job every linked node is asked (spec RC8).
    """
    sets = broker.sets
    confirmed = work.confirmed
    others = sets.others(job.holders or sets.of(broker.members()))
    if job.era == broker.era and not broker.cluster.has_forgotten:
        # This is the usual case. Mostly either none of the nodes or each of them has confirmed.
        if not confirmed:
            return others
        for node in others:
            if node not in confirmed:
                break
        else:
            return ()
    if job.era != broker.era and job.holders and job.terms.replicate > 1:
        others = sets.others(sets.union(job.holders, sets.of(broker.cluster.linked)))
        holders, passed = job.holders, work.passed
        missing = [
            node
            for node in others
            if not node.flags & FORGOTTEN and node not in (confirmed if node in holders else passed)
        ]
    else:
        missing = [node for node in others if not node.flags & FORGOTTEN and node not in confirmed]
    return others if len(missing) == len(others) else sets.others(sets.of(missing))


def finish(broker: Broker, job: Job) -> None:
    """Tell all holders that the collection is over, and forget the job. Every holder knows the ack."""
    assert job.state == ACKED
    if job.attributes is not None and job.attributes.extras is not None and _waits_for_keeper(broker, job):
        job.requeue_at_ms = 0  # No timer: the keeper's answer calls this function again.
        return
    sets = broker.sets
    others = sets.others(job.holders)
    if others:
        packed = sets.pack(job.holders)
        broker.send(others, DELJOB, (job.id, packed))
        # For a copy that is still on its way, and for nodes that still collect. The packed set has no forgotten node.
        broker.tombstones.add(job.id, broker.now_ms, sets.unpack(packed))
    elif not job.holders:
        broker.tombstones.add(job.id, broker.now_ms)
    if type(job.work) is Cancellation:
        _end_canceled(broker, job, job.work)
    else:
        lifecycle.forget(broker, job)


def _waits_for_keeper(broker: Broker, job: Job) -> bool:
    """Return whether the record must stay, because no keeper of the job's batch has recorded its end. Spec BT3."""
    attributes = job.attributes
    work = job.work
    name: bytes | None = None if attributes is None else attributes.extra(BATCH)
    if name is None or not isinstance(work, Collection):
        return False
    if not work.is_reported:
        work.is_reported = True
        status = event_format.CANCELED if isinstance(work, Cancellation) else event_format.COMPLETED
        broker.batches.report(name, job, status)
    if not broker.batches.is_pending(job):
        return False
    broker.batches.collect_later(job)
    return True


def _end_canceled(broker: Broker, job: Job, work: Cancellation) -> None:
    """Forget a canceled job whose collection is over. It stays until its lease here would have ended."""
    if work.kept_until_ms > broker.now_ms:
        work.is_over = True
        job.requeue_at_ms = work.kept_until_ms
        lifecycle.arm(broker, job)
        return
    lifecycle.forget(broker, job)


def on_setack(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Handle acks that a node knows of, with the nodes that it takes for the holders of each job.

    We merge its set into ours and answer GOTACK with the union. If we know a holder that the sender doesn't know, we
    collect, too, because the sender may crash before it hears of that holder. If the sender names us as a holder and we
    don't have the job, we keep the ack until the collection ends.
    """
    sets = broker.sets
    me = broker.me
    only = sets.only(sender)
    shards = broker.shards
    theirs, named, last = EMPTY, False, _NOTHING
    is_pair = False  # Whether the sender and we are the only holders that the sender knows.
    answers: list[Any] = []
    for item in items:
        job_id: bytes = item[0]
        packed = item[1]
        if packed != last:  # Jobs with equal holders come in a row.
            theirs = sets.unpack(packed)
            named = me in theirs
            is_pair = named and len(theirs) == 2 and sender in theirs
            last = packed
        field_count = len(item)
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None:
            ahead = broker.acks.ahead.pop(job_id, None)
            ended = _ended_here(broker, sender, job_id, theirs) if named else None
            if ended is not None and (ahead is None or job_id not in broker.ends.watched):
                # A DELJOB was lost, or crossed this message.
                broker.send(only, DELJOB, (job_id, sets.pack(ended)))
            elif named:
                version = (
                    UNTOLD if field_count > ITEMS_MIN and item[ITEMS_MIN] == UNTOLD else event_format.VERSION_FIRST
                )
                _hold_ack(broker, job_id, theirs, ahead, version, is_canceled=_is_canceled(item))
                broker.send(only, GOTACK, (job_id, packed, 1))
            elif job_id in broker.tombstones:
                broker.send(only, DELJOB, (job_id, b""))
            else:
                broker.acks.not_held.add(job_id, broker.now_ms)  # A copy may still be on its way here.
                broker.send(only, GOTACK, (job_id, b"", 0))
            continue
        was_acked = job.state == ACKED
        ours = job.holders
        if field_count > ITEMS_MIN and item[2] != job.version:
            events.heard(job, item[2])
        if was_acked:
            if type(job.work) is Cancellation and field_count > ITEMS_MIN and not _is_canceled(item):
                if item[2] == UNTOLD and ours:
                    events.acked(broker, job)
                _complete(broker, job)
        elif field_count == USUAL_FIELDS and job.work is None and item[2] != UNTOLD:
            lifecycle.acknowledge(broker, job)
        else:
            is_news = field_count > ITEMS_MIN and item[2] == UNTOLD
            acknowledge(broker, job, is_news=is_news, is_canceled=_is_canceled(item))
            outcome = item[OUTCOME_AT] if field_count > OUTCOME_AT else 0
            if field_count == ITEMS_MIN or outcome == OUTCOME_DOUBTED:
                _doubt(job)
            elif outcome == OUTCOME_REPLACED and not windows.is_replaced(job):
                changing.begin(broker, job).error = windows.REPLACED_BY + b"another job"
        if was_acked and not ours and not theirs:
            broker.send(only, GOTACK, (job_id, b"", 0))  # Two dummy acks: neither is an owner (spec Q10).
            continue
        if ours is not theirs:
            job.holders = sets.union(ours, theirs)
            mark_holders_dirty(broker, job)
        if job.holders is theirs:
            if (
                is_pair
                and type(job.work) is Collection
                and job.era == broker.era
                and job not in broker.repairs.named
                and (job.attributes is None or job.attributes.extras is None)
            ):
                # The sender and we are the only holders, and both know the ack: the collection is over (spec A13).
                finish(broker, job)
                continue
            answers.append((job_id, packed, int(named)))
            if not was_acked:
                # The sender collects. If it does not finish, we collect.
                _look_later(broker, job, broker.acks.heard)
        else:
            broker.send(only, GOTACK, (job_id, sets.pack(job.holders), int(named)))
            _collect_too(broker, job, theirs)
    broker.send_all(only, GOTACK, answers)


def _ended_here(broker: Broker, sender: Node, job_id: bytes, theirs: NodeSet) -> NodeSet | None:
    """Return the set of a collection that has ended here if all nodes of a SETACK's set had confirmed in it; else None.

    If we kept the ack again, we would collect again a second later. On slow links the other nodes would keep it again
    because of that, and so on for ever (spec A14).
    """
    ended = broker.tombstones.ended(job_id)
    if ended is not None and theirs <= ended:
        return ended
    if len(theirs) == 2 and sender in theirs and job_id in broker.tombstones:
        return theirs  # The sender and we are the only holders, and both know the ack (spec A13).
    return None


def _doubt(job: Job) -> None:
    """Note that the ack of a job may have had a result of which the sender does not know."""
    work = job.work
    if isinstance(work, Collection):
        work.is_doubted = True


def _is_canceled(item: Any) -> bool:
    """Whether a SETACK says that its job was canceled."""
    return len(item) > OUTCOME_AT and item[OUTCOME_AT] in (OUTCOME_CANCELED, OUTCOME_REPLACED)


def _collect_too(broker: Broker, job: Job, theirs: NodeSet) -> None:
    """Collect, because we know more holders than the sender of a SETACK, unless our questions are on their way."""
    assert job.holders >= theirs
    work = job.work
    if isinstance(work, Collection) and work.attempts and theirs:
        if any(node not in work.confirmed and node in theirs for node in broker.sets.others(job.holders)):
            return  # They were asked already. Without answers, the timer asks again.
    try_collect(broker, job)


def may_remember(broker: Broker) -> bool:
    """Whether there is room for one more ack of a job that was never here."""
    return broker.memory.acked_count < ACKED_COUNT_MAX and broker.used_memory <= broker.memory.limits[1]


def _hold_ack(
    broker: Broker,
    job_id: bytes,
    holders: NodeSet,
    result: results.Item | None,
    version: int,
    *,
    is_canceled: bool,
) -> None:
    """Keep the ack, and the result, of a job that we don't have although the sender counts us as a holder.

    A copy that arrives late must find the ack.

    version   UNTOLD if, as far as the sender knows, no node that held the job has reported its end
    """
    if not is_valid_id(job_id):
        raise ValueError("an invalid job id")
    if not may_remember(broker) or len(holders) > UNKNOWN_HOLDERS_MAX:
        broker.stats.ignored("ack of an unknown job, no room for more of them")
        broker.tombstones.add(job_id, broker.now_ms)
        return
    ttl_ms = max(1, ttl_minutes(job_id)) * 60_000
    job = Job(job_id, NO_TERMS, b"", 0, broker.now_ms + ttl_ms, holders)
    job.version = version
    lifecycle.register_acked(broker, job)
    if is_canceled:
        job.work = Cancellation()
    if result is not None:
        _, value, result_version, node = result
        broker.results.put(job_id, value, result_version, node, 0)
    _look_later(broker, job, broker.acks.heard)


def on_gotack(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that a node knows the ack, or that it is no holder. Ask new holders immediately."""
    sets = broker.sets
    shards = broker.shards
    only = sets.only(sender)
    theirs, last = EMPTY, _NOTHING
    for item in items:
        job_id: bytes = item[0]
        packed = item[1]
        was_named = item[2]
        if packed != last:
            theirs = sets.unpack(packed)
            last = packed
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None or job.state != ACKED:
            continue
        work = job.work
        if not isinstance(work, Collection):
            continue
        ours = job.holders
        if theirs and ours is not theirs:
            merged = sets.union(ours, theirs)
            if not ours:
                if job.version == UNTOLD:
                    job.version = event_format.VERSION_FIRST  # The sender, or a holder that it asked, has reported it.
                if broker.ends.watched:
                    broker.ends.note(job_id)  # Now the ack proves that the job is over.
                work.confirmed = ()  # A "not a holder" that answered the dummy ack confirms nothing for a real set.
            if merged is not ours:
                job.holders = merged
                mark_holders_dirty(broker, job)
                if was_named:
                    work.confirm(sender)
                try_collect(broker, job)
                continue
        if ours and sender not in job.holders:
            work.passed = (*work.passed, sender)
            if not _missing(broker, job, work):
                finish(broker, job)
            continue
        if was_named or not ours:
            confirmed = work.confirmed
            if sender not in confirmed:
                work.confirmed = confirmed = confirmed + only
            is_enough = len(confirmed) >= len(ours) - 1 or broker.cluster.has_forgotten
            if is_enough and not _missing(broker, job, work):
                finish(broker, job)


def on_holders(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge more holders. If we know that the job is done, a sender that knew it, too, is told again.

    It has the job anew, because it had forgotten its jobs and took this one from a holder without the ack. Spec A5.
    """
    holding.on_holders(broker, sender, items)
    shards = broker.shards
    for item in items:
        job_id: bytes = item[0]
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        work = None if job is None else job.work
        if job is not None and isinstance(work, Collection) and sender in work.confirmed:
            work.confirmed = tuple([node for node in work.confirmed if node is not sender])
            try_collect(broker, job)


def on_deljob(broker: Broker, sender: Node, items: list[Any]) -> None:
    """End collections. An item with a set deletes its job unless we know more holders; one with None always does."""
    sets = broker.sets
    shards = broker.shards
    done = broker.tombstones
    now_ms = broker.now_ms
    theirs, last = EMPTY, _NOTHING
    for item in items:
        job_id: bytes = item[0]
        packed = item[1]
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None:
            continue
        if packed is None:
            if job.state == WAIT_REPL:
                replication.give_up(broker, job, producer_waits.NOREPL_REMOVED)
            else:
                flag = item[2] if len(item) > 2 else 0
                if flag == IS_DONE:
                    events.ended(broker, job, event_format.ACKED)
                elif flag == replication.CREATION_ABORTED:
                    if job.attributes is not None and not job.attributes.is_open:
                        # While its creator could not be asked, a producer was told that the job exists.
                        broker.stats.ignored("deljob of a job that was named meanwhile")
                        broker.repairs.recount(job)
                        continue
                    lifecycle.creation_aborted(broker, job)
                elif flag == replication.NOT_CREATED:
                    lifecycle.creation_aborted(broker, job)
                if job.state == ACKED:
                    done.add(job_id, now_ms)  # The sender did not know of the ack. A copy may still be on its way.
                replication.remove(broker, job)
            continue
        if packed != last:
            theirs = sets.unpack(packed)
            last = packed
        if job.state != ACKED:
            acknowledge(broker, job)
            _doubt(job)  # No RESULT precedes a DELJOB.
        if not theirs and sender not in job.holders:
            # The sender is no holder. We asked it because we had been away, and it knows that the job is done.
            work = job.work
            if isinstance(work, Collection) and job.holders:
                work.passed = (*work.passed, sender)
                if not _missing(broker, job, work):
                    finish(broker, job)
                continue
        if broker.repairs.named and _must_ask_named(broker, sender, job, theirs):
            try_collect(broker, job)
            continue
        if job.holders is theirs or job.holders <= theirs:
            done.add(job_id, now_ms, theirs or None)
            if type(job.work) is Cancellation:
                _end_canceled(broker, job, job.work)
            else:
                lifecycle.forget(broker, job)
        else:
            # The sender never heard of some holder of ours, so it ended too early. We continue with the union.
            job.holders = sets.union(job.holders, theirs)
            mark_holders_dirty(broker, job)
            work = job.work
            if isinstance(work, Collection):
                for node in sets.others(theirs):
                    work.confirm(node)
            try_collect(broker, job)


def _must_ask_named(broker: Broker, sender: Node, job: Job, theirs: NodeSet) -> bool:
    """Whether a node that we named as a new holder has not confirmed to us. All others of the set count as confirmed.

    The named node's confirmation to the sender may come from a process that has lost its memory since, and our copy may
    have reached the process after it. The sender itself confirms by this message. Spec RC7.
    """
    named = broker.repairs.named.get(job)
    work = job.work
    if named is None or not isinstance(work, Collection):
        return False
    if sender in named:
        work.confirm(sender)
    if all(node.flags & FORGOTTEN or node in work.confirmed for node in named):
        return False
    job.holders = broker.sets.union(job.holders, theirs)
    mark_holders_dirty(broker, job)
    for node in broker.sets.others(theirs):
        if node not in named:
            work.confirm(node)
    return True


def collect_again(broker: Broker) -> None:
    """Retry the collection of all acked records without back-off, because a node came back or was forgotten.

    A walk visits all records, one part per tick.
    """
    if broker.memory.acked_count:
        broker.acks.recollect = _collect_again(broker)


def _collect_again(broker: Broker) -> Iterator[None]:
    looked = 0
    for shard in range(SHARDS):
        for job in list(broker.shards[shard].values()):
            work = job.work
            if job.state == ACKED and isinstance(work, Collection):
                work.attempts = 0
                try_collect(broker, job)
                looked += 9
            looked += 1
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield


def confirmed_by(job: Job) -> frozenset[Node]:
    """Return the nodes that confirmed that they know the ack."""
    work = job.work
    return frozenset(work.confirmed) if isinstance(work, Collection) else frozenset()
