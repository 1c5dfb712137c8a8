"""The creator's part of copies before the reply: it sends REPLJOB, and reads GOTJOB and REFUSED.

An ADDJOB with REPLICATE R is answered when R nodes hold the job. The creator keeps one copy and sends the job to R-1
other usable nodes, chosen at random. A creator that is leaving, or is short of memory while other nodes are not,
replicates *externally*: it keeps no copy and sends the job to R nodes. The reply may also wait until a number of zones
or a majority of a data centre has a copy (zones.py).

A node that refuses a copy sends the reason, and the creator immediately asks another node. While a node does not
answer, the creator asks one more node every EXTEND_MS. It never sends the body twice to a node that has confirmed the
job. Such a node receives only the longer list of holders.

A leaving node may move a copy to a node that is asked for one, too. `has_moved` and `_counts_known` count it once.

`holders` grows when a copy is *sent*, and never shrinks. A node that refused a copy stays in it, and later confirms the
ack like the others.

An at-most-once job must not exist twice. If the creator keeps no copy of one, it passes the job on by an acknowledged
hand-over instead (handover.py; spec O6).

The jobs of one fan-out share one Replication (shared_copies.py). `part` gives each job its own as soon as an event
concerns only one of them: a refusal, a deadline, silence for EXTEND_MS, or an ack.

The part of the nodes that are asked is holding.py. The producer's place among the replies is in producer_waits.py.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import DELJOB, ENQUEUE, HOLDERS, REFUSED_KEY, REFUSED_LEAVING, REPLJOB
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import events, lifecycle, producer_waits, zones
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.job import WAIT_REPL, Handover, Job, Replication, Wanted, terms_of
from disque_py.core.job_attributes import BATCH
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.node_sets import NodeSet
from disque_py.core.replica_sets import choose

# While copies are missing, one more node is asked this often (spec C3).
EXTEND_MS: Final = 50
# When no other node is left to ask, silent nodes get the job again this often, because their link may have broken.
RESEND_MS: Final = 1_000

COPIES_DEFAULT: Final = 3

# Repairs note the answers to REPLJOB (repair_turns.py): one of these, or else the reason of a refusal.
COPY_TAKEN: Final = -1
COPY_KNOWN: Final = -2

# Flags of REPLJOB.
NO_ANSWER: Final = 1  # Best effort: the receiver does not confirm.
NEW_KEY: Final = 2  # A new job with a key: the receiver refuses it if another job uses the key (keying.py).
TIMED: Final = 4  # The copy replaces one that was lost, or whose node leaves. The time until its timer fires follows.
TIMER_AT: Final = 2  # With TIMED, the index of the milliseconds until the copy's timer fires.
STATUS_AT: Final = 3  # With TIMED, the index of the state that the sender shows to users.

# Second field of GOTJOB: the sender had a copy before, and
KNOWN: Final = 1  # keeps it;
MOVING: Final = 2  # leaves, so the copy may be on its way to another node.

# Third field of DELJOB.
CREATION_ABORTED: Final = 2  # The job was not created, so its key is free.
NOT_CREATED: Final = 3  # The job was not created. It belongs to a batch and has no key.


def start(
    broker: Broker,
    client: Client,
    job: Job,
    timeout_ms: int,
    *,
    is_external: bool,
    is_default: bool = False,
    zone_count: int = 0,
    is_quorum: bool = False,
    slot: list[bytes | None] | None = None,
) -> None:
    """Register the job and make `client` wait for its copies. With `timeout_ms` 0 it waits for ever.

    is_default   the producer named no number of copies, so the number may fall (`count_again`)
    zone_count   the number of zones that must have a copy, too (spec ZN3)
    is_quorum    the reply waits for a majority of this data centre; each other data centre gets one copy (spec ZN4)
    slot         the reply slot in which the client waits already, if it does
    """
    if is_external:
        targets = choose(broker, job.terms.replicate, is_local=is_quorum)
        job.holders = broker.sets.of(targets)
        confirmed: tuple[Node, ...] = ()
    else:
        drawn = broker.copies.local_sets if is_quorum else broker.copies.replica_sets
        targets, job.holders = drawn.draw(broker, job.terms.replicate - 1)
        assert broker.me in job.holders
        confirmed = broker.sets.only(broker.me)
    if is_quorum:
        targets, job.holders = _with_others(broker, targets, job.holders)
    if slot is None:
        slot = producer_waits.wait_for_copies(client, job)
        broker.waits.blocked_count += 1
    now_ms = broker.now_ms
    deadline_ms = now_ms + timeout_ms if timeout_ms else 0
    job.work = work = Replication(client, slot, confirmed, now_ms, deadline_ms, is_external, is_default)
    work.zones = zone_count
    work.is_quorum = is_quorum
    lifecycle.register_waiting(broker, job)
    if targets:
        broker.send(targets, REPLJOB, (snapshot_of(broker, job), 0 if job.attributes is None else _flags(job)))
    if 0 < timeout_ms < EXTEND_MS:
        _schedule(broker, job, work, EXTEND_MS)
    else:
        line_up(broker, job)


def line_up(broker: Broker, job: Job) -> None:
    """Have `extend_due` look at the job in EXTEND_MS.

    Nearly all jobs have their copies long before, and an entry in this list costs less than a timer.
    """
    now_ms = broker.now_ms
    if now_ms != broker.copies.extending_ms:
        broker.copies.extending_ms = now_ms
        broker.copies.extending = []
        broker.copies.extensions.append((now_ms + EXTEND_MS, broker.copies.extending))
    broker.copies.extending.append(job)


def part(broker: Broker, work: Replication, *, lines_up: bool = True) -> list[Job]:
    """Give each job that shares this Replication its own, because an event concerns only one of them. Return the jobs.

    lines_up   call `line_up` for all but the first job, which is in that list already
    """
    together = work.together
    assert together is not None
    client = work.client
    del broker.producers.together[together.marker]
    work.together = None
    for job in together.jobs:
        slot: list[bytes | None] = [None]
        own = Replication(client, slot, work.confirmed, work.asked_again_ms, work.deadline_ms, False, work.is_default)
        own.is_held = work.is_held
        own.leased = work.leased
        job.work = own
        together.slots.append(slot)
        client.waiting_jobs[job] = slot
        broker.waits.blocked_count += 1
        broker.producers.fans[job] = together.fan
        if lines_up and job is not together.jobs[0]:
            line_up(broker, job)
    return together.jobs


def _flags(job: Job) -> int:
    """Return the flags of a new job's REPLJOB."""
    return NEW_KEY if job.attributes is not None and job.attributes.is_keyed else 0


def _with_others(broker: Broker, targets: tuple[Node, ...], holders: NodeSet) -> tuple[tuple[Node, ...], NodeSet]:
    """Return the receivers and the holders of a new job, extended by one node of each other data centre."""
    sets = broker.sets
    more = sets.of(zones.one_elsewhere(broker))
    if not more:
        return targets, holders
    return sets.others(sets.union(sets.of(targets), more)), sets.union(holders, more)


def start_async(broker: Broker, job: Job, *, is_quorum: bool = False) -> None:
    """Send REPLICATE - 1 copies as best effort, without confirmation. This node holds the job as well."""
    drawn = broker.copies.local_sets if is_quorum else broker.copies.replica_sets
    targets, holders = drawn.draw(broker, job.terms.replicate - 1)
    assert broker.me in holders
    assert broker.me not in targets
    if is_quorum:
        targets, holders = _with_others(broker, targets, holders)
    if targets:
        job.holders = holders
        broker.send(targets, REPLJOB, (snapshot_of(broker, job), NO_ANSWER))


def on_gotjob(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note confirmed copies. A confirmation that comes after the reply matters only to repairs and to leaving."""
    shards = broker.shards
    only = broker.sets.only(sender)
    for item in items:
        is_taken = type(item) is bytes
        job_id: bytes = item if is_taken else item[0]
        job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
        if job is None:
            continue
        if job.state != WAIT_REPL:
            if broker.repairs.named and job in broker.repairs.named:
                known = REFUSED_LEAVING if not is_taken and item[1] == MOVING else COPY_KNOWN
                broker.repairs.noted.append((job, sender, COPY_TAKEN if is_taken else known))
            if broker.drain is not None:
                if is_taken:
                    broker.drain.copied(job, sender)
                else:
                    broker.drain.known(job, sender)
            continue
        work = job.work
        if isinstance(work, Replication):
            if work.together is not None:
                part(broker, work)
                work = job.work
                assert isinstance(work, Replication)
            if not is_taken and not _counts_known(broker, job, work, sender, item[1]):
                continue
            confirmed = work.confirmed
            if sender not in confirmed and (not work.is_quorum or zones.is_local(broker, sender)):
                work.confirmed = confirmed = confirmed + only
                if len(confirmed) >= job.terms.replicate and (not work.zones or zones.count(confirmed) >= work.zones):
                    finish_creation(broker, job, work)


def _counts_known(broker: Broker, job: Job, work: Replication, sender: Node, how: Any) -> bool:
    """Return whether a copy counts that its node had before. If a counted copy may have moved, count anew. Spec C5.

    A leaving node tells the creator that its copy has moved (LEFT), but it drops the copy without an answer if the
    creator is not linked. An external creator therefore asks the nodes again that it has counted before the sender.
    """
    if how == MOVING:
        _uncount(work, sender)
        _extend(broker, job)
        return False
    if work.is_external and sender not in work.confirmed and sender not in work.asked_again:
        linked = broker.sets.of(node for node in work.confirmed if node.is_linked)
        work.asked_again += work.confirmed
        work.asked_again_ms = broker.now_ms
        work.confirmed = ()
        work.is_held = False
        if linked:
            broker.send(broker.sets.others(linked), REPLJOB, (snapshot_of(broker, job), _flags(job)))
    return True


def _uncount(work: Replication, node: Node) -> None:
    """Count a node's copy no more."""
    if node in work.confirmed:
        work.confirmed = tuple(other for other in work.confirmed if other is not node)
        work.is_held = False


def is_external(job: Job) -> bool:
    """Return whether this node makes the job, but keeps no copy of it."""
    return isinstance(job.work, Replication) and job.work.is_external


def has_moved(broker: Broker, job: Job, leaver: Node, new: Node | None) -> None:
    """Count the copy at the node that took it, because the leaver drops it. Spec C5."""
    work = job.work
    if job.state != WAIT_REPL or not isinstance(work, Replication):
        return
    if work.together is not None:
        part(broker, work)
        work = job.work
        assert isinstance(work, Replication)
    if leaver in work.confirmed:
        was_held = work.is_held
        _uncount(work, leaver)
        if new is not None and new not in work.confirmed and (not work.is_quorum or zones.is_local(broker, new)):
            work.confirmed = (*work.confirmed, new)
            work.is_held = was_held and (not work.zones or zones.count(work.confirmed) >= work.zones)


def tell_holders(broker: Broker, job: Job) -> None:
    """Tell all other holders about each other."""
    others = broker.sets.others(job.holders)
    if others:
        broker.send(others, HOLDERS, (job.id, broker.sets.pack(job.holders)))


def finish_creation(broker: Broker, job: Job, work: Replication) -> None:
    """Finish the creation of a job that enough nodes hold: queue or delay it, and answer the producer.

    A job that was replicated externally is queued by one of its holders, and forgotten here. A job of a fan-out first
    waits for the other jobs of the fan-out (fanout.py).
    """
    assert job.state == WAIT_REPL
    assert work.together is None
    if broker.producers.fans and (fan := broker.producers.fans.get(job)) is not None:
        work.is_held = True
        broker.producers.fans_due[fan] = None
        return
    assert len(work.confirmed) >= (job.terms.replicate if work.is_external else job.terms.replicate - 1)
    reply = b"+" + job.id + b"\r\n"
    if work.is_external:
        linked = [node for node in work.confirmed if node.is_linked] or list(work.confirmed)
        first = broker.rng.choice(sorted(linked, key=_node_id))
        if broker.now_ms - work.began_ms >= job.terms.retry_ms // 2 > 0:
            # The copies' timers may have fired, and a node with a later copy may not have heard of that.
            first = linked[0]
        broker.send(broker.sets.only(first), ENQUEUE, (job.id, job.terms.delay_ms))
        events.added(broker, job, event_format.ADDED_INVISIBLE)
        broker.stats.jobs_added += 1
        producer_waits.answer(broker, work.client, job, work.slot, reply)
        lifecycle.forget(broker, job)
        return
    lifecycle.make_active(broker, job)
    if work.leased is None:
        queue_or_delay(broker, job)
    else:
        queue_or_wait(broker, job, work)
    if broker.is_journaling:
        lifecycle.mark_dirty(broker, job)
    broker.stats.jobs_added += 1
    producer_waits.answer(broker, work.client, job, work.slot, reply)


def hold_alone(broker: Broker, client: Client, job: Job, timeout_ms: int, slot: list[bytes | None]) -> None:
    """Register a job of a fan-out that needs no other copy. It waits for the other jobs of the fan-out (fanout.py)."""
    deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
    job.work = work = Replication(client, slot, broker.sets.only(broker.me), broker.now_ms, deadline_ms, False, False)
    lifecycle.register_waiting(broker, job)
    work.is_held = True
    _schedule(broker, job, work, RESEND_MS)
    fan = broker.producers.fans.get(job)
    if fan is not None:
        broker.producers.fans_due[fan] = None


def default_copies(broker: Broker, *, is_external: bool) -> int:
    """Return `replicate-default` if set, else 3 or the number of nodes to count on, if that is lower. Spec C1, Q13."""
    configured = broker.settings.replicate_default
    if configured:
        return configured
    others = broker.cluster.counted
    return max(1, min(COPIES_DEFAULT, others if is_external else others + 1))


def set_copies(broker: Broker, job: Job, copies: int) -> None:
    """Change the number of copies that the job should have."""
    terms = job.terms
    job.terms = terms_of(broker.terms, terms.queue, terms.retry_ms, terms.delay_ms, copies, terms.topic)


def count_again(broker: Broker) -> None:
    """Lower the number of copies for producers that named none, so that they don't wait for nodes that are gone."""
    broker.copies.counted_epoch = broker.cluster.epoch
    for job in list(broker.copies.waiting_repl):
        work = job.work
        if isinstance(work, Replication) and work.is_default:
            copies = max(work.zones, default_copies(broker, is_external=work.is_external))
            if copies < job.terms.replicate:
                if work.together is not None:
                    part(broker, work)
                    work = job.work
                    assert isinstance(work, Replication)
                set_copies(broker, job, copies)
                if len(work.confirmed) >= copies and (not work.zones or zones.count(work.confirmed) >= work.zones):
                    finish_creation(broker, job, work)


def queue_or_wait(broker: Broker, job: Job, work: Replication) -> None:
    """Queue a new job that has its copies, unless a node with a copy delivered it already. Spec L2."""
    until_ms = 0 if work.leased is None else work.leased.get(job, 0)
    if until_ms > broker.now_ms:
        events.added(broker, job, event_format.ADDED)
        events.learn(broker, job, event_format.RUNNING)
        lifecycle.postpone(broker, job, until_ms)
    else:
        queue_or_delay(broker, job)


def queue_or_delay(broker: Broker, job: Job) -> None:
    """Queue a new job, or let it wait for its DELAY."""
    if job.terms.delay_ms:
        job.requeue_at_ms = broker.now_ms + job.terms.delay_ms
        job.was_announced = True  # The first queueing needs no WILLQUEUE.
        lifecycle.arm(broker, job)
        events.added(broker, job, event_format.ADDED_INVISIBLE)
    else:
        events.added(broker, job, event_format.ADDED)
        lifecycle.enqueue(broker, job)


def on_refused(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Ask another node immediately, because the sender takes no copy."""
    for job_id, reason, *_ in items:
        broker.stats.refusals_received += 1
        job = broker.find(job_id)
        if job is None or job.state != WAIT_REPL or not isinstance(job.work, Replication):
            if job is not None and broker.repairs.named and job in broker.repairs.named:
                broker.repairs.noted.append((job, sender, reason))
            if job is not None and broker.drain is not None:
                broker.drain.refused(job, sender)
            continue
        if job.work.together is not None:
            part(broker, job.work)
        if reason == REFUSED_KEY:
            broker.producers.key_conflicts.append(job)
        elif job.work.is_quorum and not zones.is_local(broker, sender):
            _ask_elsewhere(broker, job, sender)
        else:
            _extend(broker, job)


def _ask_elsewhere(broker: Broker, job: Job, refused: Node) -> None:
    """Ask another node of the data centre of `refused`, which takes no copy. Spec ZN4."""
    sets = broker.sets
    more = [node for node in zones.one_elsewhere(broker, job.holders) if node.datacenter == refused.datacenter]
    if more:
        job.holders = sets.union(job.holders, sets.of(more))
        broker.send(sets.only(more[0]), REPLJOB, (snapshot_of(broker, job), _flags(job)))
        told = sets.others(sets.of(node for node in sets.others(job.holders) if node not in (more[0], refused)))
        if told:
            broker.send(told, HOLDERS, (job.id, sets.pack(job.holders)))


def remove(broker: Broker, job: Job) -> None:
    """Remove the job from this node (DELJOB, expiry, reset), and tell a producer that still waits for its copies."""
    if job.state == WAIT_REPL:
        give_up(broker, job, producer_waits.NOREPL_REMOVED)
        return
    producer_waits.end_wait(broker, job, producer_waits.NOREPL_REMOVED)
    lifecycle.forget(broker, job)


def drop_client(broker: Broker, client: Client, reply: bytes | None) -> None:
    """End all waits of this producer, and give up its jobs that miss copies.

    reply   the error that it gets; None if it has disconnected
    """
    if broker.producers.together:
        for marker in list(client.waiting_jobs):
            work = broker.producers.together.get(marker)
            if work is not None:
                part(broker, work)
    for job, slot in list(client.waiting_jobs.items()):
        if broker.producers.fans and (fan := broker.producers.fans.get(job)) is not None:
            broker.producers.fans_due[fan] = None
        if job.state == WAIT_REPL:
            give_up(broker, job, reply)
            continue
        if isinstance(job.work, Handover):
            job.work.client = None  # The hand-over goes on, because the taker may have the job already.
        elif isinstance(job.work, Wanted):
            job.work.is_over = True
            producer_waits.caller_out(broker, job)
            broker.producers.key_events[job.id] = None
        if reply is None:
            client.waiting_jobs.pop(job, None)
            broker.waits.blocked_count -= 1
        else:
            producer_waits.answer(broker, client, job, slot, reply)


def extend_due(broker: Broker) -> None:
    """Look at the jobs whose first EXTEND_MS are over. From then on, each has its own timer."""
    line = broker.copies.extensions
    now_ms = broker.now_ms
    while line and line[0][0] <= now_ms:
        for first in line.popleft()[1]:
            work = first.work
            if isinstance(work, Replication):
                for job in [first] if work.together is None else part(broker, work, lines_up=False):
                    if job.state == WAIT_REPL and isinstance(job.work, Replication):
                        on_timer(broker, job, job.work)


def on_timer(broker: Broker, job: Job, work: Replication) -> None:
    """Give up at the deadline. Before it, ask one more node, because copies are still missing."""
    if work.deadline_ms and broker.now_ms >= work.deadline_ms:
        broker.stats.replication_timeouts += 1
        give_up(broker, job, producer_waits.NOREPL_TIMEOUT)
        return
    if work.is_held:
        _schedule(broker, job, work, RESEND_MS)
        return
    has_asked = _extend(broker, job)
    if job.state == WAIT_REPL:
        _schedule(broker, job, work, EXTEND_MS if has_asked else RESEND_MS)


def give_up(broker: Broker, job: Job, reply: bytes | None) -> None:
    """Answer the producer with an error, and remove the job on all nodes, as best effort.

    reply   the error; None if the producer has disconnected
    """
    work = job.work
    if isinstance(work, Replication) and work.together is not None:
        part(broker, work)
        work = job.work
    others = broker.sets.others(job.holders)
    if others:
        if _flags(job):
            broker.send(others, DELJOB, (job.id, None, CREATION_ABORTED))
        elif job.attributes is not None and job.attributes.extra(BATCH) is not None:
            broker.send(others, DELJOB, (job.id, None, NOT_CREATED))
        else:
            broker.send(others, DELJOB, (job.id, None))
    if job.attributes is not None:
        lifecycle.creation_aborted(broker, job)
    if isinstance(work, Replication):
        if reply is None:
            work.client.waiting_jobs.pop(job, None)
            broker.waits.blocked_count -= 1
        else:
            producer_waits.answer(broker, work.client, job, work.slot, reply)
    lifecycle.forget(broker, job)


def on_link_up(broker: Broker, node: Node) -> None:
    """Send unconfirmed jobs to the node again, because messages on its old link may be lost."""
    only = broker.sets.only(node)
    for job in broker.copies.waiting_repl:
        work = job.work
        if isinstance(work, Replication) and node in job.holders and node not in work.confirmed:
            broker.send(only, REPLJOB, (snapshot_of(broker, job), _flags(job)))


def _schedule(broker: Broker, job: Job, work: Replication, span_ms: int) -> None:
    at_ms = broker.now_ms + span_ms
    if work.deadline_ms and work.deadline_ms < at_ms:
        at_ms = work.deadline_ms
    job.requeue_at_ms = at_ms
    lifecycle.arm(broker, job)


def _extend(broker: Broker, job: Job) -> bool:
    """Ask one more node, and send the longer list of holders to the nodes that have the job.

    If no other node is left, ask the silent nodes again. Return whether one more node was asked.

    An external creator keeps no copy, so it can't tell the holders about each other later. It therefore sends the list
    to all nodes that it has asked. Without the list, a holder could take itself for the only one, and forget the job as
    soon as it is acknowledged. Another holder would then queue the job again.
    """
    work = job.work
    if not isinstance(work, Replication):
        return False
    sets = broker.sets
    more = choose(
        broker,
        1,
        job.holders,
        held=work.confirmed,
        is_local=work.is_quorum,
        must_spread=bool(work.zones) and len(work.confirmed) >= job.terms.replicate,
    )
    if more:
        have = sets.others(job.holders if work.is_external else sets.of(work.confirmed))
        job.holders = sets.union(job.holders, sets.of(more))
        broker.send(more, REPLJOB, (snapshot_of(broker, job), _flags(job)))
        if have:
            broker.send(have, HOLDERS, (job.id, sets.pack(job.holders)))
        return True
    if broker.now_ms - work.asked_again_ms < RESEND_MS:
        return False
    # Nodes that refused are asked again, too, because they may have room by now.
    again = sets.of(node for node in sets.others(job.holders) if node.is_linked and node not in work.confirmed)
    if again:
        broker.send(sets.others(again), REPLJOB, (snapshot_of(broker, job), _flags(job)))
    work.asked_again_ms = broker.now_ms
    return False


def _node_id(node: Node) -> bytes:
    return node.id
