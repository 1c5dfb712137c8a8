"""Collecting finished jobs: SETACK, GOTACK, DELJOB.

A consumer acknowledges a job on one node, but copies may sit on many. A copy that never hears of the ack would
be queued again, so a node may forget an acked job only when every node in `job.holders` has confirmed, or the
job's TTL is over. `holders` is never smaller than the truth: a node joins it when a copy is *sent*, not when it
arrives.

SETACK and GOTACK carry sets, and everybody merges what it sees: equal sizes prove nothing, two nodes may know
different holders. A node whose set has a member that the sender's lacks starts collecting too, so among several
collectors the best informed one finishes. A GOTACK confirms only if the SETACK it answers named the answering
node: "not a holder" may stop being true.

An empty set comes from a *dummy ack*: an ack taken by a node that never held the job. It is told whom the
holders are and then collects like anybody else; it never counts as a holder itself. Two dummies tell each other
nothing (quirks Q10).

The node that ends a collection tells all with DELJOB and its set; who knows more collects on. Timers call
try_collect again; nothing here waits. Source: README "Acknowledged jobs garbage collection"; semantics.md,
section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cluster_bus.messages import DELJOB, GOTACK, SETACK
from cluster_bus.node import FORGOTTEN, Node
from disque_py.core import lifecycle, replication
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.ids import is_retried_id, is_valid_id, ttl_minutes
from disque_py.core.job import ACKED, WAIT_REPL, Collection, Job, Replication
from disque_py.core.nodesets import EMPTY, NodeSet

# The first retry comes soon, for the common lost packet; then we back off, because an unreachable
# holder stays so for minutes, and every retry costs a message per holder.
COLLECT_RETRY_MS_MIN: Final = 1_000
COLLECT_RETRY_MS_MAX: Final = 180_000
# Jobs looked at per part of a walk over all of them; one that is collected counts for ten.
LOOKED_PER_PART: Final = 3_000


def acknowledge(broker: Broker, job: Job) -> None:
    """The job is done, says a client or a node: it will not be queued here again. Does nothing if known."""
    if job.state == ACKED:
        return
    if job.state == WAIT_REPL:
        work = job.work
        if isinstance(work, Replication) and work.is_external:
            # We hold no copy to look after; those who do have heard, or will hear, of the ack.
            lifecycle.achieve(broker, job)
            replication.answer(broker, work.client, job, work.slot, b"+%b\r\n" % job.id)
        elif isinstance(work, Replication):
            # Somebody consumed a replica: the producer's job exists and was processed (quirks Q11).
            reply = b"+%b\r\n" % job.id
            lifecycle.achieve(broker, job)
            broker.stats.jobs_added += 1
            replication.answer(broker, work.client, job, work.slot, reply)
    replication.end_wait(broker, job, b"+%b\r\n" % job.id)
    lifecycle.acknowledge(broker, job)


def ack_here(broker: Broker, job_id: bytes) -> int:
    """ACKJOB of one id: 1 if the job was known and not acknowledged yet, else 0."""
    job = broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
    if job is None:
        if broker.cluster.size > 1 and job_id not in broker.done:
            if is_retried_id(job_id) and not broker.is_leaving:
                try_collect(broker, dummy_ack(broker, job_id))
            elif broker.cluster.linked:
                # Nothing is kept here, neither by a node that leaves nor for a job that is delivered once anyway; but
                # whoever has its record need not keep it until its TTL.
                broker.send(broker.cluster.linked, SETACK, (job_id, b""))
        return 0
    if job.state == ACKED:
        try_collect(broker, job)
        return 0
    if job.holders is broker.sets.mine and job.state != WAIT_REPL and job.work is None:
        # Nobody else can have a copy: nothing to collect.
        broker.stats.jobs_acked += 1
        lifecycle.forget(broker, job)
        return 1
    acknowledge(broker, job)
    try_collect(broker, job)
    return 1


def dummy_ack(broker: Broker, job_id: bytes) -> Job:
    """A record of an ack for a job we never held; it lives as long as the id says (whole minutes, at least one)."""
    ttl_ms = max(1, ttl_minutes(job_id)) * 60_000
    job = Job(job_id, b"", b"", 0, broker.now_ms + ttl_ms, 0, 0, 0, EMPTY)
    lifecycle.register_acked(broker, job)
    return job


def try_collect(broker: Broker, job: Job) -> None:
    """Finish if every holder is known to know; else ask those who have not confirmed, and again later."""
    work = job.work
    if not isinstance(work, Collection):
        return
    sets = broker.sets
    missing = _missing(broker, job, work)
    if not missing:
        finish(broker, job)
        return
    packed = sets.pack(job.holders)
    linked = tuple(node for node in missing if node.is_linked)
    if linked:
        # The memoized tuple lets a turn's SETACKs for the same group travel as one run.
        group = sets.others(sets.of(linked))
        broker.send(group, SETACK, (job.id, packed))
    attempts = work.attempts
    span_ms = min(COLLECT_RETRY_MS_MIN << min(attempts, 10), COLLECT_RETRY_MS_MAX)
    work.attempts = attempts + 1
    job.requeue_at_ms = broker.now_ms + span_ms + broker.jitter()
    lifecycle.arm(broker, job)


def _missing(broker: Broker, job: Job, work: Collection) -> tuple[Node, ...]:
    """Whom we still need to hear from; for a dummy ack that is everybody in the table."""
    confirmed = work.confirmed
    if job.holders:
        others = broker.sets.others(job.holders)
        if not confirmed and not any(node.flags & FORGOTTEN for node in others):
            return others
        return tuple(node for node in others if node not in confirmed and not node.flags & FORGOTTEN)
    return tuple(node for node in broker.members() if node not in confirmed)


def finish(broker: Broker, job: Job) -> None:
    """Every holder knows: tell them that it is over, and forget the job."""
    others = broker.sets.others(job.holders)
    if others:
        broker.send(others, DELJOB, (job.id, broker.sets.pack(job.holders)))
    if others or not job.holders:
        broker.done.add(job.id, broker.now_ms)  # A copy that is still on its way finds the ack here.
    lifecycle.forget(broker, job)


def on_setack(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A node tells us that jobs were acknowledged, and whom it believes to hold them.

    We merge its set into ours and answer GOTACK with the union. If we know a holder that it doesn't, we collect
    too: it may crash before it hears of that one. Named without having the job, we keep the ack until the
    collection ends.
    """
    sets = broker.sets
    me = broker.me
    only = sets.only(sender)
    shards = broker.shards
    for job_id, packed, *_ in items:
        theirs = sets.unpack(packed)
        named = me in theirs
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None:
            if named:
                _hold_ack(broker, job_id, theirs)
                broker.send(only, GOTACK, (job_id, packed, 1))
            elif job_id in broker.done:
                broker.send(only, DELJOB, (job_id, b""))
            else:
                broker.send(only, GOTACK, (job_id, b"", 0))
            continue
        was_acked = job.state == ACKED
        if was_acked and not job.holders and not theirs:
            broker.send(only, GOTACK, (job_id, b"", 0))  # Two dummy acks: neither is an owner (quirks Q10).
            continue
        if not was_acked:
            acknowledge(broker, job)
        ours = job.holders
        if ours is not theirs:
            job.holders = sets.union(ours, theirs)
        broker.send(only, GOTACK, (job_id, packed if job.holders is theirs else sets.pack(job.holders), int(named)))
        if job.holders is theirs:
            if not was_acked:
                # The sender collects; we look after it if it doesn't come to an end.
                job.requeue_at_ms = broker.now_ms + COLLECT_RETRY_MS_MIN + broker.jitter()
                lifecycle.arm(broker, job)
        else:
            _collect_too(broker, job, theirs)


def _collect_too(broker: Broker, job: Job, theirs: NodeSet) -> None:
    """We know more than the sender of a SETACK: collect, unless we are at it already and asked a moment ago."""
    work = job.work
    if isinstance(work, Collection) and work.attempts and theirs:
        if any(node not in work.confirmed and node in theirs for node in broker.sets.others(job.holders)):
            return  # Asked already; the answers are on their way, and the timer asks again.
    try_collect(broker, job)


def _hold_ack(broker: Broker, job_id: bytes, holders: NodeSet) -> None:
    """Remember an ack of a job we are said to hold and don't: a late copy must find it."""
    if not is_valid_id(job_id):
        raise ValueError("an id that is none")
    ttl_ms = max(1, ttl_minutes(job_id)) * 60_000
    job = Job(job_id, b"", b"", 0, broker.now_ms + ttl_ms, 0, 0, 0, holders)
    lifecycle.register_acked(broker, job)
    job.requeue_at_ms = broker.now_ms + COLLECT_RETRY_MS_MIN + broker.jitter()
    lifecycle.arm(broker, job)


def on_gotack(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A node knows of the ack now, or says that it is no holder; new holders are asked at once."""
    sets = broker.sets
    shards = broker.shards
    for job_id, packed, was_named, *_ in items:
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None or job.state != ACKED:
            continue
        work = job.work
        if not isinstance(work, Collection):
            continue
        theirs = sets.unpack(packed)
        ours = job.holders
        if theirs and ours is not theirs:
            merged = sets.union(ours, theirs)
            if not ours:
                work.confirmed.clear()  # "Not a holder" answers to a dummy ack confirm nothing for a real set.
            if merged is not ours:
                job.holders = merged
                if was_named:
                    work.confirmed.add(sender)
                try_collect(broker, job)
                continue
        if was_named or not ours:
            confirmed = work.confirmed
            confirmed.add(sender)
            if len(confirmed) >= len(ours) - 1 and not _missing(broker, job, work):
                finish(broker, job)


def on_deljob(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A collection ended (a set: delete unless we know more), or the job is to go whatever is known (None)."""
    sets = broker.sets
    shards = broker.shards
    for job_id, packed, *_ in items:
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None:
            continue
        if packed is None:
            if job.state == WAIT_REPL:
                replication.give_up(broker, job, replication.NOREPL_REMOVED)
            else:
                replication.remove(broker, job)
            continue
        theirs = sets.unpack(packed)
        if job.state != ACKED:
            acknowledge(broker, job)
        if job.holders is theirs or job.holders <= theirs:
            broker.done.add(job_id, broker.now_ms)
            lifecycle.forget(broker, job)
        else:
            # The sender never heard of some holder of ours: it ended too early, we go on with what both know.
            job.holders = sets.union(job.holders, theirs)
            work = job.work
            if isinstance(work, Collection):
                work.confirmed.update(node for node in sets.others(theirs))
            try_collect(broker, job)


def fast_ack(broker: Broker, job_id: bytes) -> int:
    """FASTACK of one id: best-effort deletion everywhere; 1 if it was known here."""
    job = broker.find(job_id)
    if job is None:
        others = broker.cluster.linked
        if others:
            broker.send(others, DELJOB, (job_id, None))
        return 0
    others = broker.sets.others(job.holders)
    if job.state == WAIT_REPL:
        replication.give_up(broker, job, replication.NOREPL_REMOVED)
        return 1
    if others:
        broker.send(others, DELJOB, (job_id, None))
    elif not job.holders and broker.cluster.linked:
        broker.send(broker.cluster.linked, DELJOB, (job_id, None))
    if others and job.retry_ms:
        broker.done.add(job_id, broker.now_ms)
    broker.stats.jobs_acked += job.state != ACKED
    replication.remove(broker, job)
    return 1


def collect_again(broker: Broker) -> None:
    """A node came back, or was forgotten: whoever waits for it need not wait for the end of its back-off.

    All acked records are looked at, a part per tick.
    """
    if broker.acked_count:
        broker.recollect = _collect_again(broker)


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
    """Nodes that confirmed to know the ack."""
    work = job.work
    return frozenset(work.confirmed) if isinstance(work, Collection) else frozenset()
