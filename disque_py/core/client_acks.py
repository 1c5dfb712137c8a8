"""Acks from clients: the commands ACKJOB, CANCELJOB and FASTACK, and the messages ACKATTEMPT and RESULT.

A client may acknowledge a job on any node. A node with the job ends it and begins the collection (acks.py). If no other
node can have a copy, the node forgets the job immediately. A node without the job keeps a *dummy ack*, which is the
record of an ack for a job that it never held. The dummy ack finds the holders. If there is no room for a dummy ack, the
node only passes the ack on.

ATTEMPT names a delivery. If a holder knows a later delivery, the ack has no effect there. A node without the job passes
the ack on (ACKATTEMPT), and the holders compare.

A *result* travels with the ack. A RESULT precedes each SETACK of the job, so a holder that hears of the ack has the
result already (results.py). A holder whose copy is still on its way keeps the result together with the ack.

A *canceled* job is collected like an acknowledged one, with another outcome. FASTACK deletes the job everywhere, as
best effort. Spec A9, A10, RW1, RW2, Y8, Y9.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import ACKATTEMPT, DELJOB, RESULT, SETACK
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import events, lifecycle, producer_waits, replication, results
from disque_py.core.acks import IS_DONE, acknowledge, may_remember, try_collect
from disque_py.core.broker import Broker
from disque_py.core.changing import OUTCOME_CANCELED, UNTOLD
from disque_py.core.ids import is_retried_id, ttl_minutes
from disque_py.core.job import ACKED, NO_TERMS, WAIT_REPL, Cancellation, Collection, Handover, Job
from disque_py.core.node_sets import EMPTY

# Results whose acks have not arrived. An ack follows its result directly, so there are more only after a link broke.
AHEAD_MAX: Final = 4


def cancel_here(broker: Broker, job_id: bytes) -> int:
    """Handle CANCELJOB of one id. Return 1 if the job was known here and not over, else 0.

    For an unknown job, the node keeps a dummy ack, as ACKJOB does.
    """
    job = broker.find(job_id)
    if job is None:
        if broker.cluster.size > 1 and job_id not in broker.tombstones:
            if is_retried_id(job_id) and not broker.is_leaving and may_remember(broker):
                job = dummy_ack(broker, job_id)
                job.work = Cancellation()
                try_collect(broker, job)
            elif broker.cluster.linked:
                broker.send(broker.cluster.linked, SETACK, (job_id, b"", UNTOLD, OUTCOME_CANCELED))
        return 0
    if job.state == ACKED:
        try_collect(broker, job)
        return 0
    acknowledge(broker, job, is_news=True, is_canceled=True)
    try_collect(broker, job)
    return 1


def ack_attempt(broker: Broker, job_id: bytes, attempt: int) -> int:
    """Handle ACKJOB … ATTEMPT, like `ack_here` unless a later delivery is known.

    A node without the job passes the ack on, and the holders compare.
    """
    job = broker.find(job_id)
    if job is None:
        if broker.cluster.linked and job_id not in broker.tombstones:
            broker.send(broker.cluster.linked, ACKATTEMPT, (job_id, attempt))
        return 0
    return 0 if is_stale(job, attempt) else ack_here(broker, job_id)


def ack_with_result(broker: Broker, job_id: bytes, attempt: int, value: bytes) -> int:
    """Handle ACKJOB … RESULT, like `ack_here`, or like `ack_attempt` if an attempt is named. Spec RW1, RW2."""
    job = broker.find(job_id)
    if job is not None:
        if job.state != ACKED:
            if attempt and is_stale(job, attempt):
                return 0
            _keep_result(broker, job, value, job.version + 1, broker.me.id)
        return ack_here(broker, job_id)
    if broker.cluster.size == 1 or job_id in broker.tombstones:
        return 0
    linked = broker.cluster.linked
    if attempt:
        if linked:
            broker.send(linked, ACKATTEMPT, (job_id, attempt, value))
    elif is_retried_id(job_id) and not broker.is_leaving and may_remember(broker):
        broker.results.put(job_id, value, 0, b"", 0)
        try_collect(broker, dummy_ack(broker, job_id))
    elif linked:
        broker.send(linked, RESULT, (job_id, value, 0, b""))
        broker.send(linked, SETACK, (job_id, b"", UNTOLD))
    return 0


def _keep_result(broker: Broker, job: Job, value: bytes, version: int, node: bytes) -> bool:
    """Keep a result for the time that the job's queue sets, unless the result of an earlier ack is known.

    Return whether it is kept.
    """
    keep_ms = broker.queue_settings.of(job.terms.queue).result_retention_ms
    return broker.results.put(job.id, value, version, node, keep_ms)


def on_result(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Keep the results of the acks that follow this message."""
    for item in items:
        job_id, value, version, node = results.read_item(item)
        job = broker.find(job_id)
        if job is None:
            _replace_kept(broker, job_id, value, version, node)
            ahead = broker.acks.ahead
            ahead[job_id] = (job_id, value, version, node)
            if len(ahead) > AHEAD_MAX:
                del ahead[next(iter(ahead))]
        elif not job.holders or (job.state == ACKED and not version and not _may_lack_result(broker, job)):
            broker.stats.ignored("result of a job that is unknown or over")
        else:
            had_another = job_id in broker.results.by_id
            if not version:
                _keep_result(broker, job, value, job.version + 1, broker.me.id)
            elif _keep_result(broker, job, value, version, node) and had_another:
                _pass_on(broker, sender, job)
            if job.state == ACKED and broker.ends.watched:
                broker.ends.note(job_id)


def _pass_on(broker: Broker, sender: Node, job: Job) -> None:
    """Send the result that has replaced ours to the other holders. Spec RW2.

    We have told them ours, and the sender may not know all of them.
    """
    item = broker.results.item(job.id)
    others = [node for node in broker.sets.others(job.holders) if node is not sender]
    if item is not None and others:
        broker.send(tuple(others), RESULT, item)


def _replace_kept(broker: Broker, job_id: bytes, value: bytes, version: int, node: bytes) -> None:
    """Replace the result of a job whose record is gone by that of an earlier ack. Spec RW2."""
    known = broker.results.by_id.get(job_id)
    if version and known is not None and known.expire_at_ms > broker.now_ms:
        broker.results.put(job_id, value, version, node, known.expire_at_ms - broker.now_ms)


def _may_lack_result(broker: Broker, job: Job) -> bool:
    """Return whether the ack of a job may have had a result that this node does not know."""
    work = job.work
    is_open = isinstance(work, Collection) and (work.is_doubted or isinstance(work, Cancellation))
    return is_open and job.id not in broker.results.by_id


def is_stale(job: Job, attempt: int) -> bool:
    """Whether a later delivery than this one is known, so that this one is over."""
    return job.attempt > attempt


def ends_claim(broker: Broker, job_id: bytes, attempt: int) -> bool:
    """Whether a command that counted 0 ends the claim here: its job is over, and it names no older delivery."""
    job = broker.find(job_id)
    if job is None:
        running = broker.exclusive.running.get(job_id)
        return running is None or not 0 < attempt < running.attempt
    return job.state == ACKED and not (attempt and is_stale(job, attempt))


def on_ackattempt(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Acknowledge deliveries that clients named to a node without the jobs."""
    for job_id, attempt, *more in items:
        if type(attempt) is not int:
            raise ValueError("an attempt that is not a number")
        job = broker.find(job_id)
        if job is None or job.state == ACKED or is_stale(job, attempt):
            continue
        if more:
            value = more[0]
            if type(value) is not bytes or len(value) > results.BYTES_MAX:
                raise ValueError("an invalid result")
            _keep_result(broker, job, value, job.version + 1, broker.me.id)
        ack_here(broker, job_id)


def ack_here(broker: Broker, job_id: bytes) -> int:
    """Handle ACKJOB of one id. Return 1 if the job was known here and not acknowledged yet, else 0."""
    job = broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
    return ack_unknown(broker, job_id) if job is None else ack_known(broker, job)


def ack_unknown(broker: Broker, job_id: bytes) -> int:
    """Handle ACKJOB of a job that is not known here. Return 0."""
    if broker.cluster.size > 1 and job_id not in broker.tombstones:
        if is_retried_id(job_id) and not broker.is_leaving and may_remember(broker):
            try_collect(broker, dummy_ack(broker, job_id))
        elif broker.cluster.linked:
            # We keep no dummy ack if we leave, if there is no room, or if the job is delivered at most once. But a node
            # that has the job should not have to keep it until its TTL ends.
            broker.send(broker.cluster.linked, SETACK, (job_id, b"", UNTOLD))
    return 0


def ack_known(broker: Broker, job: Job) -> int:
    """Handle ACKJOB of a job that is known here. Return 1 if it was not acknowledged yet, else 0."""
    if job.state == ACKED:
        try_collect(broker, job)
        return 0
    if (
        job.holders is broker.sets.mine
        and job.state != WAIT_REPL
        and job.work is None
        and (job.era == broker.era or job.terms.replicate <= 1)
        and (job.attributes is None or job.attributes.extras is None)
    ):
        # No other node can have a copy, so there is nothing to collect.
        broker.stats.jobs_acked += 1
        events.acked(broker, job)
        lifecycle.forget(broker, job)
        return 1
    acknowledge(broker, job, is_news=True)
    try_collect(broker, job)
    return 1


def dummy_ack(broker: Broker, job_id: bytes) -> Job:
    """Make the record of an ack for a job that we never held. It lives for the TTL in the id, at least one minute."""
    ttl_ms = max(1, ttl_minutes(job_id)) * 60_000
    job = Job(job_id, NO_TERMS, b"", 0, broker.now_ms + ttl_ms, EMPTY)
    job.version = UNTOLD  # Only a node that held the job reports its end, even if we learn the holders meanwhile.
    lifecycle.register_acked(broker, job)
    return job


def fast_ack(broker: Broker, job_id: bytes) -> int:
    """Handle FASTACK of one id: delete the job everywhere, as best effort. Return 1 if it was known here, else 0."""
    job = broker.find(job_id)
    if job is None:
        others = broker.cluster.linked
        if others:
            broker.send(others, DELJOB, (job_id, None, IS_DONE))
        return 0
    others = broker.sets.others(job.holders)
    if job.state == WAIT_REPL:
        replication.give_up(broker, job, producer_waits.NOREPL_REMOVED)
        return 1
    work = job.work
    if isinstance(work, Handover) and work.node not in job.holders:
        others = (*others, work.node)  # It may have the at-most-once job already.
    if others:
        broker.send(others, DELJOB, (job_id, None))
    elif not job.holders and broker.cluster.linked:
        broker.send(broker.cluster.linked, DELJOB, (job_id, None, IS_DONE))
    if others and job.terms.retry_ms:
        broker.tombstones.add(job_id, broker.now_ms)
    broker.stats.jobs_acked += job.state != ACKED
    events.ended(broker, job, event_format.ACKED)
    replication.remove(broker, job)
    return 1
