"""LEAVING: a node gives away what it holds, down to zero jobs.

Queued jobs go by hand-over. A copy goes by REPLJOB to a node that is not a holder yet; once that has *taken*
it, LEFT tells all holders who replaces us, and when every one of them has answered our copy is dropped. If
every usable node holds the job already, LEFT without a new holder is enough, and the missing copy is counted.
Leased jobs wait for their ack or the end of the lease, delivered at-most-once jobs are dropped, acks are
collected or passed on. What can't go stays, and `blocked_by` says why. Source: semantics.md, section 10.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import LEFT, LEFT_OK, REPLJOB, SETACK
from cluster_bus.node import FORGOTTEN, Node
from disque_py.core import acks, federation, lifecycle
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.groups import choose
from disque_py.core.image import image_of
from disque_py.core.job import ACKED, ACTIVE, Job

# Work per step (ten steps a second), so that a node with a million jobs stays responsive while it drains.
JOBS_PER_STEP: Final = 2_000
SHARDS_PER_STEP: Final = 512
MOVING_MAX: Final = 5_000
PENDING_BATCHES_MAX: Final = 8
ASK_AGAIN_MS: Final = 1_000


class Move:
    """One copy on its way out: to whom, who still has to answer, when we last asked."""

    __slots__ = ("asked_ms", "is_taken", "new", "unanswered")

    def __init__(self, new: Node | None, now_ms: int) -> None:
        self.new = new
        self.is_taken = new is None
        self.unanswered: tuple[Node, ...] = ()
        self.asked_ms = now_ms


class Drain:
    """The state of leaving: copies on their way, and why the rest can't go."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.moving: dict[Job, Move] = {}
        self.shard = 0
        self.blocked_by = ""

    def copied(self, job: Job, node: Node) -> None:
        """The node has taken a copy: tell the holders that it replaces us."""
        move = self.moving.get(job)
        if move is not None and move.new is node and not move.is_taken:
            move.is_taken = True
            tell_left(self._broker, job, move)


def begin(broker: Broker) -> None:
    """CLUSTER LEAVING yes."""
    if broker.drain is None:
        broker.drain = Drain(broker)


def end(broker: Broker) -> None:
    """CLUSTER LEAVING no: what was on its way stays a copy like any other."""
    broker.drain = None


def step(broker: Broker) -> None:
    """Give away a bounded number of jobs."""
    begin(broker)
    drain = broker.drain
    assert drain is not None
    drain.blocked_by = ""
    targets = [node for node in broker.cluster.usable if node.is_linked]
    if not targets and broker.job_count:
        drain.blocked_by = "no other node is usable"
    _ask_again(broker, drain)
    if targets:
        _give_queued(broker, targets)
    _look_at_copies(broker, drain, targets)


def _give_queued(broker: Broker, targets: list[Node]) -> None:
    at = 0
    given = 0
    for queue in list(broker.queues.values()):
        while queue.length and given < JOBS_PER_STEP:
            node = targets[at % len(targets)]
            at += 1
            if at > len(targets) * PENDING_BATCHES_MAX:
                return
            if len(federation.exchange(node).pending) >= PENDING_BATCHES_MAX:
                continue
            count = federation.give(broker, node, queue, federation.NEEDJOBS_MAX)
            given += count
            if not count:
                break


def _look_at_copies(broker: Broker, drain: Drain, targets: list[Node]) -> None:
    looked = 0
    for _ in range(SHARDS):
        if looked >= JOBS_PER_STEP or len(drain.moving) >= MOVING_MAX:
            return
        drain.shard = (drain.shard + 1) % SHARDS
        for job in list(broker.shards[drain.shard].values()):
            looked += 1
            if job.state == ACTIVE:
                _move_copy(broker, drain, job, targets)
            elif job.state == ACKED:
                _pass_ack_on(broker, drain, job, targets)


def _move_copy(broker: Broker, drain: Drain, job: Job, targets: list[Node]) -> None:
    if job.work is not None or job in drain.moving:
        return
    if not job.retry_ms:
        if job.is_delivered:
            broker.stats.once_dropped_leaving += 1
            lifecycle.forget(broker, job)
        elif targets:
            left_ms = max(0, job.requeue_at_ms - broker.now_ms) if job.requeue_at_ms else 0
            federation.hand_over(broker, broker.rng.choice(targets), [job], left_ms)
        return
    if job.is_leased_here and job.requeue_at_ms > broker.now_ms:
        return  # A worker has it: the ack or the end of the lease decides.
    more = choose(broker, 1, job.holders)
    if more:
        drain.moving[job] = Move(more[0], broker.now_ms)
        job.holders = broker.sets.union(job.holders, broker.sets.of(more))
        broker.send(more, REPLJOB, (image_of(broker, job), 0))
    elif broker.sets.others(job.holders):
        move = drain.moving[job] = Move(None, broker.now_ms)
        broker.stats.copies_missing_leaving += 1
        tell_left(broker, job, move)
    else:
        drain.blocked_by = "no node is free to take the copy of a job"


def tell_left(broker: Broker, job: Job, move: Move) -> None:
    """LEFT to every other holder; the copy goes when all have answered."""
    move.unanswered = tuple(node for node in broker.sets.others(job.holders) if not node.flags & FORGOTTEN)
    move.asked_ms = broker.now_ms
    _send_left(broker, job, move)
    _drop_if_answered(broker, job, move)


def _send_left(broker: Broker, job: Job, move: Move) -> None:
    new = move.new.id if move.new is not None else b""
    linked = broker.sets.of(node for node in move.unanswered if node.is_linked)
    if linked:
        item = (job.id, broker.me.id, new, broker.sets.pack(job.holders))
        broker.send(broker.sets.others(linked), LEFT, item)


def _ask_again(broker: Broker, drain: Drain) -> None:
    """What was not answered in time: another node is tried, or the silent holders are asked again and named."""
    for job, move in list(drain.moving.items()):
        if job.state != ACTIVE or job.work is not None:
            del drain.moving[job]  # Queued, acknowledged or gone meanwhile: another way out.
        elif broker.now_ms - move.asked_ms >= ASK_AGAIN_MS:
            if not move.is_taken:
                del drain.moving[job]
                continue
            move.unanswered = tuple(node for node in move.unanswered if not node.flags & FORGOTTEN)
            if move.unanswered:
                drain.blocked_by = f"holder {move.unanswered[0].name.decode()} does not answer"
            move.asked_ms = broker.now_ms
            _send_left(broker, job, move)
            _drop_if_answered(broker, job, move)


def _drop_if_answered(broker: Broker, job: Job, move: Move) -> None:
    if not move.unanswered and broker.drain is not None:
        broker.drain.moving.pop(job, None)
        lifecycle.forget(broker, job)


def _pass_ack_on(broker: Broker, drain: Drain, job: Job, targets: list[Node]) -> None:
    """An ack that a silent holder keeps here: a node that stays looks after it."""
    if not job.holders:
        return
    silent = [node for node in broker.sets.others(job.holders) if not node.is_linked and not node.flags & FORGOTTEN]
    if not silent:
        return
    keeper = next((node for node in targets if node in job.holders), targets[0] if targets else None)
    if keeper is None:
        drain.blocked_by = f"ack of a job held by {silent[0].name.decode()}, which does not answer"
        return
    named = broker.sets.add(job.holders, keeper)
    broker.send(broker.sets.only(keeper), SETACK, (job.id, broker.sets.pack(named)))
    job.holders = named
    if keeper in acks.confirmed_by(job):
        lifecycle.forget(broker, job)


def on_left(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A holder gives up its copy; another may have taken it. We merge what it knows and say so."""
    only = broker.sets.only(sender)
    for job_id, old, new, packed, *_ in items:
        job = broker.find(job_id)
        if job is not None and job.state != ACKED:
            sets = broker.sets
            merged = sets.union(job.holders, sets.unpack(packed))
            if new:
                merged = sets.add(merged, broker.cluster.intern(new))
            leaver = broker.cluster.intern(old)
            job.holders = sets.of(node for node in merged if node is not leaver)
        elif job is not None:
            broker.send(only, SETACK, (job_id, broker.sets.pack(job.holders)))
        broker.send(only, LEFT_OK, job_id)


def on_left_ok(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A holder knows that our copy goes."""
    drain = broker.drain
    for job_id in items:
        job = broker.find(job_id)
        move = drain.moving.get(job) if drain is not None and job is not None else None
        if job is None or move is None or not move.is_taken:
            continue
        move.unanswered = tuple(node for node in move.unanswered if node is not sender)
        if not move.unanswered and job.state == ACTIVE and job.work is None:
            _drop_if_answered(broker, job, move)
