"""LEAVING: a node passes on all its jobs, until it has none.

Queued jobs go by hand-over. A copy goes by REPLJOB to a node that is not a holder yet. Once that node has *taken* it,
LEFT tells all holders which node replaces this one. It also tells the job's creator, which may keep no copy itself and
still count ours. When all have answered, the copy here is dropped.

Every usable node may be in the holder set already. Then LEFT names no new holder and asks the holders whether they have
the job. If at least one does, the copy here is dropped, and the missing copy is counted. If none does, the copy stays.
A holder that answers that it has no copy has lost it. The node that replaces this one may have asked that holder about
its copies before it had this job, and does not ask again. So this node asks a node with a copy to take a repair turn
for the job (repair_turns.py).

Leased jobs wait for their ack or for the end of the lease. Delivered at-most-once jobs are dropped. Acks are collected
or passed on. Other jobs that can't go stay, and `blocked_by` gives the reason. Spec V1, V2, V3, V4, V5, RC3.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import LEFT, LEFT_OK, REPLJOB, SETACK
from cluster_bus.node import FORGOTTEN, ID_BYTES, Node
from disque_py import event_format
from disque_py.core import acks, changing, events, handover, lifecycle, pulls, repair_turns, replication, spilling
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.ids import creator_of
from disque_py.core.job import ACKED, ACTIVE, GONE, Job
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.replica_sets import choose
from disque_py.core.spilled import Spilled

# Work per step (ten steps a second), so that a node with a million jobs stays responsive while it drains.
JOBS_PER_STEP: Final = 500
MOVING_MAX: Final = 5_000
PENDING_BATCHES_MAX: Final = 8
ASK_AGAIN_MS: Final = 1_000

# In LEFT_OK: whether the node that answers has the job.
HAS_NOT: Final = 0
HAS: Final = 1
HAS_ACK: Final = 2  # It knows that the job is done.


class Move:
    """The move of one copy to another node.

    new           the node that will replace us as holder; None if every usable node seems to hold the job
    is_taken      whether LEFT was sent, because `new` has taken the copy or no node has to
    has_other     whether another node is known to have a copy
    is_short      whether a holder has lost its copy
    unanswered    nodes that have not answered LEFT: holders, and the creator while it is linked
    asked_ms      when REPLJOB or LEFT was last sent
    """

    __slots__ = ("asked_ms", "has_other", "is_short", "is_taken", "new", "unanswered")

    def __init__(self, new: Node | None, now_ms: int) -> None:
        self.new = new
        self.is_taken = new is None
        self.has_other = False
        self.is_short = False
        self.unanswered: tuple[Node, ...] = ()
        self.asked_ms = now_ms


class Drain:
    """The state of leaving: the moves of copies, and the reason why another job can't go."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.moving: dict[Job, Move] = {}
        self.shard = 0
        self.blocked_by = ""
        self.blocked_ms = 0

    def block(self, reason: str) -> None:
        """Note why a job can't go now. CLUSTER INFO shows the reason until it is outdated."""
        self.blocked_by = reason
        self.blocked_ms = self._broker.now_ms

    def copied(self, job: Job, node: Node) -> None:
        """Tell the holders that a node replaces us, because it has taken a copy."""
        move = self.moving.get(job)
        if move is not None and move.new is node and not move.is_taken:
            move.is_taken = move.has_other = True
            tell_left(self._broker, job, move)

    def known(self, job: Job, node: Node) -> None:
        """End the move, because `node` had the job before. The next look finds another node, or none is needed."""
        move = self.moving.get(job)
        if move is not None and move.new is node and not move.is_taken:
            del self.moving[job]

    def refused(self, job: Job, node: Node) -> None:
        """End the move, because `node` takes no copy. It is no holder, and gets no jobs of this queue for a while."""
        move = self.moving.get(job)
        if move is not None and move.new is node and not move.is_taken:
            del self.moving[job]
            _is_no_holder(self._broker, job, node)
            handover.remember_refusal(self._broker, node, job.terms.queue)


def begin(broker: Broker) -> None:
    """Start leaving (CLUSTER LEAVING yes)."""
    if broker.drain is None:
        broker.drain = Drain(broker)


def end(broker: Broker) -> None:
    """Stop leaving (CLUSTER LEAVING no). Copies stay here, and the holders that received LEFT are told so."""
    drain = broker.drain
    broker.drain = None
    if drain is not None:
        for job, move in drain.moving.items():
            _take_back(broker, job, move)


def step(broker: Broker) -> None:
    """Pass on a bounded number of jobs."""
    begin(broker)
    drain = broker.drain
    assert drain is not None
    if broker.now_ms - drain.blocked_ms > 2 * ASK_AGAIN_MS:
        drain.blocked_by = ""
    targets = [node for node in broker.cluster.usable if node.is_linked]
    if not targets and broker.job_count:
        drain.block("no other node is usable")
    _ask_again(broker, drain)
    if targets:
        _give_queued(broker, drain, targets)
    _look_at_copies(broker, drain, targets)


def _give_queued(broker: Broker, drain: Drain, targets: list[Node]) -> None:
    given = 0
    for queue in list(broker.queues.values()):
        if queue.parking is not None and queue.parking.length:
            queue.parking.offer(JOBS_PER_STEP)  # Jobs that are set aside are handed over, too.
        if not queue.length:
            continue
        takers = [node for node in targets if not handover.exchange(node).refuses(queue.name, broker.now_ms)]
        if not takers:
            drain.block(f"all nodes refuse jobs of queue {queue.name.decode('utf-8', 'replace')}")
        for node in takers:
            while queue.length and len(handover.exchange(node).pending) < PENDING_BATCHES_MAX:
                if given >= JOBS_PER_STEP:
                    return
                count = pulls.give(broker, node, queue, pulls.NEEDJOBS_MAX)
                given += count
                if not count:
                    break


def _look_at_copies(broker: Broker, drain: Drain, targets: list[Node]) -> None:
    looked = 0
    for _ in range(SHARDS):
        if looked >= JOBS_PER_STEP or len(drain.moving) >= MOVING_MAX:
            return
        drain.shard = (drain.shard + 1) % SHARDS
        if not broker.shards[drain.shard]:
            continue
        for job in list(broker.shards[drain.shard].values()):
            looked += 1
            if job.state == ACTIVE:
                _move_copy(broker, drain, job, targets)
            elif job.state == ACKED:
                _pass_ack_on(broker, drain, job, targets)


def _move_copy(broker: Broker, drain: Drain, job: Job, targets: list[Node]) -> None:
    if job.work is not None or job in drain.moving:
        return
    if type(job.body) is Spilled and (job.terms.retry_ms or not job.is_delivered):
        _read_back(broker, drain, job)
        return
    if not job.terms.retry_ms:
        _move_once(broker, drain, job, targets)
        return
    part = job.part
    is_known = part is not None and part.is_delayed  # Every holder knows when it is over, and queues the job then.
    if not job.was_queued and job.requeue_at_ms > broker.now_ms and not is_known:
        # The job's DELAY is not over, and only this node knows when it will be.
        _hand_on(broker, drain, job, targets)
        return
    if job.is_leased_here and job.requeue_at_ms > broker.now_ms:
        # A worker has the job. It goes after its ack, or after the end of the lease.
        if not drain.blocked_by:
            drain.block("a job is with a worker; it goes with its ack, or when its lease ends")
        return
    refusing = [node for node in targets if handover.exchange(node).refuses(job.terms.queue, broker.now_ms)]
    more = choose(broker, 1, job.holders.union(refusing), held=broker.sets.others(job.holders))
    if more:
        drain.moving[job] = Move(more[0], broker.now_ms)
        job.holders = broker.sets.union(job.holders, broker.sets.of(more))
        mark_holders_dirty(broker, job)
        broker.send(more, REPLJOB, repair_turns.copy_of(broker, job))
    elif any(node not in job.holders for node in refusing):
        drain.block(f"node {refusing[0].name.decode()} refuses to take the copy of a job")
    elif broker.sets.others(job.holders):
        move = drain.moving[job] = Move(None, broker.now_ms)
        tell_left(broker, job, move)
    else:
        drain.block("no node is free to take the copy of a job")


def _read_back(broker: Broker, drain: Drain, job: Job) -> None:
    """Have the body read back from disk, and move the copy afterwards."""
    if len(broker.spill.readings) >= MOVING_MAX:
        return

    def back() -> None:
        if broker.drain is drain and job.state == ACTIVE:
            targets = [node for node in broker.cluster.usable if node.is_linked]
            _move_copy(broker, drain, job, targets)

    spilling.when_back(broker, job, back)


def _move_once(broker: Broker, drain: Drain, job: Job, targets: list[Node]) -> None:
    if job.is_delivered:
        broker.stats.once_dropped_leaving += 1
        events.ended(broker, job, event_format.DROPPED)
        lifecycle.forget(broker, job)
    else:
        _hand_on(broker, drain, job, targets)


def _hand_on(broker: Broker, drain: Drain, job: Job, targets: list[Node]) -> None:
    """Hand over a job that has not been queued yet, with the moment of its first queueing."""
    for node in targets:
        state = handover.exchange(node)
        if len(state.pending) < PENDING_BATCHES_MAX * 8 and not state.refuses(job.terms.queue, broker.now_ms):
            handover.hand_over(broker, node, [job], job.requeue_at_ms)
            return
    if targets:
        drain.block("no node is free to take a job that is not queued yet")


def tell_left(broker: Broker, job: Job, move: Move) -> None:
    """Send LEFT to every other holder and to the creator. Our copy is dropped when all have answered.

    One of the holders must have the job.
    """
    creator = creator_of(broker.cluster.linked, job.id)
    told = broker.sets.others(job.holders)
    if creator is not None and creator not in told:
        told = (*told, creator)
    move.unanswered = _who_must_answer(job, told)
    move.asked_ms = broker.now_ms
    _send_left(broker, job, move)
    _drop_if_answered(broker, job, move)


def _who_must_answer(job: Job, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return those of `nodes` whose answers to LEFT count. A creator without a copy need not answer if it is gone."""
    return tuple(node for node in nodes if not node.flags & FORGOTTEN and (node.is_linked or node in job.holders))


def _send_left(broker: Broker, job: Job, move: Move) -> None:
    new = move.new.id if move.new is not None else b""
    linked = broker.sets.of(node for node in move.unanswered if node.is_linked)
    if linked:
        item = (job.id, broker.me.id, new, broker.sets.pack(job.holders), job.version)
        broker.send(broker.sets.others(linked), LEFT, item)


def _ask_again(broker: Broker, drain: Drain) -> None:
    """Send messages again whose answers are late, and report a silent holder as the reason."""
    for job, move in list(drain.moving.items()):
        if job.state != ACTIVE or job.work is not None:
            del drain.moving[job]  # The job was queued, acknowledged or removed meanwhile, and goes in another way.
            _take_back(broker, job, move)
        elif broker.now_ms - move.asked_ms >= ASK_AGAIN_MS:
            move.asked_ms = broker.now_ms
            if move.is_taken:
                move.unanswered = _who_must_answer(job, move.unanswered)
                if move.unanswered:
                    drain.block(f"holder {move.unanswered[0].name.decode()} does not answer")
                _send_left(broker, job, move)
                _drop_if_answered(broker, job, move)
            elif type(job.body) is Spilled:
                del drain.moving[job]  # The move starts again, and reads the body back first.
            elif move.new is not None and move.new in broker.cluster.usable and move.new.is_linked:
                broker.send(broker.sets.only(move.new), REPLJOB, repair_turns.copy_of(broker, job))
            else:
                del drain.moving[job]


def _lacks_copies(broker: Broker, job: Job) -> bool:
    """Return whether copies of forgotten nodes have not been replaced yet.

    The other holders may never hear of those nodes.
    """
    others = broker.sets.others(job.holders)
    left = [node for node in others if not node.flags & FORGOTTEN]
    return len(left) < min(len(others), job.terms.replicate)


def _drop_if_answered(broker: Broker, job: Job, move: Move) -> None:
    if move.unanswered or broker.drain is None:
        return
    broker.drain.moving.pop(job, None)
    if move.has_other:
        broker.stats.copies_missing_leaving += move.new is None
        if move.is_short or _lacks_copies(broker, job):
            repair_turns.give_turn(broker, job)
        lifecycle.forget(broker, job)
    else:
        broker.drain.block("no other node has the copy of a job")
        _take_back(broker, job, move)


def _take_back(broker: Broker, job: Job, move: Move) -> None:
    """Tell holders that our copy stays after all, so that they don't finish a collection without us."""
    if move.is_taken and broker.sets.others(job.holders) and job.state not in (ACKED, GONE):
        job.holders = broker.sets.add(job.holders, broker.me)
        mark_holders_dirty(broker, job)
        replication.tell_holders(broker, job)


def _is_no_holder(broker: Broker, job: Job, node: Node) -> None:
    """Remove a node from the holders, because it has answered that it has no copy.

    This is safe, because the node had received all our earlier messages before it answered.
    """
    assert node is not broker.me
    job.holders = broker.sets.of(holder for holder in broker.sets.others(job.holders) if holder is not node)
    job.holders = broker.sets.add(job.holders, broker.me)
    mark_holders_dirty(broker, job)


def _pass_ack_on(broker: Broker, drain: Drain, job: Job, targets: list[Node]) -> None:
    """Pass an ack on to a node that stays and will collect it, because a silent holder keeps it from ending here."""
    if not job.holders:
        drain.block("an ack whose job no reachable node knows; it stays until its TTL")
        return
    silent = [node for node in broker.sets.others(job.holders) if not node.is_linked and not node.flags & FORGOTTEN]
    if not silent:
        return
    collector = next((node for node in targets if node in job.holders), targets[0] if targets else None)
    if collector is None:
        drain.block(f"ack of a job held by {silent[0].name.decode()}, which does not answer")
        return
    named = broker.sets.add(job.holders, collector)
    job.holders = named
    changing.send_ack(broker, collector, job)
    mark_holders_dirty(broker, job)
    if collector in acks.confirmed_by(job):
        # This node may stay after all, and the silent holder may send it a copy.
        broker.tombstones.add(job.id, broker.now_ms)
        lifecycle.forget(broker, job)


def on_left(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge the holders of a job whose copy the sender drops, and answer whether this node has the job."""
    only = broker.sets.only(sender)
    sets = broker.sets
    for job_id, old, new, packed, *more in items:
        if len(old) != ID_BYTES or len(new) not in (0, ID_BYTES):
            raise ValueError("a malformed node id")
        holders = sets.unpack(packed)
        job = broker.find(job_id)
        if job is None:
            if job_id in broker.tombstones:
                broker.send(only, SETACK, (job_id, b""))
            broker.send(only, LEFT_OK, (job_id, HAS_NOT))
        elif job.state == ACKED:
            changing.send_ack(broker, sender, job)
            broker.send(only, LEFT_OK, (job_id, HAS_ACK))
        else:
            if more:
                events.heard(job, more[0])  # So that versions continue if the leaver gets the job from us again.
            merged = sets.union(job.holders, holders)
            leaver = broker.cluster.intern(old)
            taker = broker.cluster.intern(new) if new else None
            # If so, the leaver's copy and the taker's may have been counted as two.
            was_both = taker in job.holders and leaver in job.holders and taker is not broker.me
            if taker is not None:
                merged = sets.add(merged, taker)
            replication.has_moved(broker, job, leaver, taker)
            mine = broker.me in merged
            rest = sets.of(node for node in sets.others(merged) if node is not leaver)
            assert broker.me not in rest
            job.holders = sets.add(rest, broker.me) if mine else rest
            mark_holders_dirty(broker, job)
            if replication.is_external(job):
                replication.tell_holders(broker, job)  # We can't do so once the producer is answered.
                broker.send(only, LEFT_OK, (job_id, HAS_NOT))
                continue
            if was_both:
                repair_turns.count_anew(broker, job)
            broker.send(only, LEFT_OK, (job_id, HAS))
            move = broker.drain.moving.get(job) if broker.drain is not None else None
            if move is not None and move.is_taken:
                # Our copy is being moved, too. The leaver may have told us that it has one. The node that took ours may
                # have dropped its copy since, because the leaver had one. So all others are asked again.
                move.has_other = False
                move.unanswered = tuple(node for node in sets.others(job.holders) if not node.flags & FORGOTTEN)


def on_left_ok(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a holder's answer to LEFT: whether it has the job."""
    drain = broker.drain
    for job_id, has, *_ in items:
        job = broker.find(job_id)
        move = drain.moving.get(job) if drain is not None and job is not None else None
        if job is None or move is None or not move.is_taken or sender not in move.unanswered:
            continue
        move.unanswered = tuple(node for node in move.unanswered if node is not sender)
        is_holder = sender in job.holders  # Otherwise it is the creator, which keeps no copy.
        if has == HAS and is_holder:
            move.has_other = True
        elif has == HAS_NOT and is_holder and sender is not move.new:
            _is_no_holder(broker, job, sender)
            move.is_short = True
        if job.state == ACTIVE and job.work is None:
            _drop_if_answered(broker, job, move)
