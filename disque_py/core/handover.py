"""Hand-over of jobs to another node, the giver's part: YOURJOBS, TOOK.

A hand-over loses nothing and delivers nothing twice. Each one has a number, which is unique for the pair of processes.
The giver keeps the job, in no queue, until the taker has answered (taking.py). Until then it sends the job again under
the same number. The taker of a job with RETRY > 0 becomes a holder, and the giver keeps a copy. The giver forgets a job
with RETRY 0 once it is taken.

When either process restarts, the hand-over is over: at-least-once jobs wait for their timer, and at-most-once jobs are
dropped and counted. Other modules decide which jobs go to which node: pulls.py for consumers, and leaving.py for a node
that leaves. `start_once` chooses a node for an at-most-once job of which this node keeps no copy.
Spec H1, H2, H4, H7, H8.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import (
    REFUSED_BUSY,
    REFUSED_DISK,
    REFUSED_LEAVING,
    REFUSED_MEMORY,
    REFUSED_PAUSED,
    SETTLED,
    YOURJOBS,
)
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import events, lifecycle, producer_waits
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.job import ACTIVE, Handover, Job
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.replica_sets import choose
from disque_py.core.rivals import Standing

TAKEN: Final = 0
# Refusals that may end soon, or that do not apply to other nodes.
ELSEWHERE: Final = (REFUSED_PAUSED, REFUSED_MEMORY, REFUSED_LEAVING, REFUSED_BUSY, REFUSED_DISK)
# For this long, a queue's jobs are not offered again to a node that refused one.
REFUSED_MS: Final = 1_000
# Refused queues remembered per node, and the longest name that is remembered. A forgotten refusal costs one more offer.
NAMES_MAX: Final = 10_000
NAME_BYTES_MAX: Final = 1_024
RESEND_MS: Final = 1_000
# Batches sent again per step, so that clients do not wait while a long list of unanswered batches is sent.
RESEND_BATCHES: Final = 32
RESEND_STEP_MS: Final = 10


class Batch:
    """One hand-over: the jobs of a YOURJOBS in order, and the time at which it was last sent.

    When the batch is sent again, None takes the place of each job that has left this hand-over. So a taker that never
    answers does not keep all jobs in memory that were ever offered to it.
    """

    __slots__ = ("handover", "jobs", "sent_ms")

    def __init__(self, jobs: list[Job], handover: Handover) -> None:
        self.jobs: list[Job | None] = [*jobs]
        self.handover = handover
        self.sent_ms = 0


class Exchange:
    """The hand-overs between us and one other node, and that node's interest as it told us.

    run              the node's process; the numbers of its hand-overs are valid for this process only
    next_number      number of our next hand-over to the node; it only grows, even if the node restarts
    lowest           all our numbers below this one are settled
    pending          number -> batch of ours that is not answered yet
    told_settled     the highest settled number that we have told the node
    answers          number of a hand-over to us -> our answer, until the node has settled it
    answers_from     the node's numbers below this one are settled
    interest         queue -> how many of the node's clients wait for it; `interest_bytes` are the bytes of these names
    filters          (queue, pairs) that its clients wait for (filter_interest.py); `filter_bytes` are their bytes
    patterns         tuples of patterns that its clients wait for (pattern_interest.py); `pattern_bytes` are their bytes
    standing         queue -> the remainder of the node's standing pull (pulls.py)
    refused          queue -> until when no job of the queue is offered to the node
    is_timed         whether a `resend` is scheduled
    """

    __slots__ = (
        "answers",
        "answers_from",
        "filter_bytes",
        "filters",
        "interest",
        "interest_bytes",
        "is_timed",
        "lowest",
        "next_number",
        "pattern_bytes",
        "patterns",
        "pending",
        "refused",
        "run",
        "standing",
        "timer",
        "told_settled",
    )

    def __init__(self, run: bytes) -> None:
        self.run = run
        self.next_number = 1
        self.lowest = 1
        self.pending: dict[int, Batch] = {}
        self.told_settled = 0
        self.answers: dict[int, bytes] = {}
        self.answers_from = 1
        self.interest: dict[bytes, int] = {}
        self.interest_bytes = 0
        self.filters: dict[tuple[bytes, tuple[bytes, ...]], None] = {}
        self.filter_bytes = 0
        self.patterns: dict[tuple[bytes, ...], None] = {}
        self.pattern_bytes = 0
        self.refused: dict[bytes, int] = {}
        self.standing: dict[bytes, Standing] = {}
        self.is_timed = False
        self.timer = 0

    def settled(self) -> int:
        """Return the highest number up to which all our hand-overs are answered."""
        while self.lowest < self.next_number and self.lowest not in self.pending:
            self.lowest += 1
        assert self.told_settled < self.lowest
        return self.lowest - 1

    def refuses(self, name: bytes, now_ms: int) -> bool:
        """Whether the node refused a job of this queue a moment ago."""
        return bool(self.refused) and self.refused.get(name, 0) > now_ms


def exchange(node: Node) -> Exchange:
    """Return the state between us and this node. Create it if needed, and note the node's process once it is known."""
    found = node.core
    if found is None:
        found = node.core = Exchange(node.run)
    assert isinstance(found, Exchange)
    if not found.run:
        found.run = node.run
    return found


# -- giving -----------------------------------------------------------------------------------------


def hand_over(broker: Broker, node: Node, jobs: list[Job], due_ms: int = 0) -> Handover:
    """Send ACTIVE jobs, which are in no queue, to a node. They stay here until it has answered."""
    state = exchange(node)
    number = state.next_number
    state.next_number = number + 1
    handover = Handover(node, number, due_ms)
    sets = broker.sets
    assert node is not broker.me
    assert state.lowest <= number
    assert number not in state.pending
    for job in jobs:
        assert job.state == ACTIVE
        job.work = handover
        job.is_leased_here = False
        mark_holders_dirty(broker, job)
        if job.terms.retry_ms:
            job.holders = sets.add(job.holders, node)
            job.requeue_at_ms = max(broker.now_ms, due_ms) + job.terms.retry_ms + broker.jitter()
        else:
            job.requeue_at_ms = 0
        lifecycle.arm(broker, job)
    state.pending[number] = Batch(jobs, handover)
    _send(broker, node, state, number)
    _time_resend(broker, node, state, RESEND_MS)
    return handover


def _send(broker: Broker, node: Node, state: Exchange, number: int) -> None:
    batch = state.pending[number]
    batch.sent_ms = broker.now_ms
    batch.jobs = [job if job is not None and job.work is batch.handover else None for job in batch.jobs]
    snapshots = [_snapshot(broker, job, batch.handover) for job in batch.jobs]
    settled = state.settled()
    assert state.told_settled <= settled < number
    state.told_settled = settled
    broker.send(broker.sets.only(node), YOURJOBS, (number, settled, snapshots))


def _snapshot(broker: Broker, job: Job | None, handover: Handover) -> tuple[Any, ...] | None:
    """Return the job as plain values; None if the job has left the hand-over."""
    if job is None:
        return None
    snapshot = snapshot_of(broker, job, max(0, handover.due_ms - broker.now_ms) if handover.due_ms else 0)
    if job.terms.retry_ms:
        return snapshot
    # Only the taker will have it.
    receiver = broker.sets.of((handover.node,))
    return (*snapshot[:4], broker.sets.pack(receiver), *snapshot[5:])


def _time_resend(broker: Broker, node: Node, state: Exchange, span_ms: int) -> None:
    if not state.is_timed:
        state.is_timed = True
        state.timer += 1
        broker.schedule.call_at(broker.now_ms + span_ms, partial(resend, broker, node, state, state.timer))


def resend(broker: Broker, node: Node, state: Exchange, timer: int) -> None:
    """Send the batches again that were not answered within RESEND_MS, to the same process under the same numbers.

    If no batch is left, tell the node which numbers are settled, so that it may forget its answers.
    """
    if timer != state.timer:
        return  # A new link has set another timer.
    state.is_timed = False
    sent = 0
    if node.is_linked:
        due_ms = broker.now_ms - RESEND_MS
        for number, batch in list(islice(state.pending.items(), 4 * RESEND_BATCHES)):
            if batch.sent_ms <= due_ms:
                if sent == RESEND_BATCHES:
                    break
                # Move it to the end of the line, so that all batches get their turn.
                del state.pending[number]
                if not any(job is not None and job.work is batch.handover for job in batch.jobs):
                    continue  # All its jobs have left the hand-over, so no answer matters.
                state.pending[number] = batch
                _send(broker, node, state, number)
                sent += 1
        if not state.pending and state.told_settled < state.settled():
            state.told_settled = state.settled()
            broker.send(broker.sets.only(node), SETTLED, state.told_settled)
    if state.pending:
        _time_resend(broker, node, state, RESEND_STEP_MS if sent == RESEND_BATCHES else RESEND_MS // 4)


def on_took(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Handle the answer to a hand-over of ours, job by job."""
    state = exchange(sender)
    for number, answers, *_ in items:
        batch = state.pending.get(number)
        if batch is None:
            broker.stats.ignored("answer to a hand-over that is over")
            continue
        if type(answers) is not bytes or len(answers) != len(batch.jobs):
            raise ValueError("an answer for each job was expected")
        del state.pending[number]
        for job, answer in zip(batch.jobs, answers, strict=True):
            if job is not None and job.work is batch.handover:
                _settle(broker, job, batch.handover, answer)
        if not state.pending:
            _time_resend(broker, sender, state, RESEND_MS)


def _settle(broker: Broker, job: Job, handover: Handover, answer: int) -> None:
    assert job.state == ACTIVE  # Code that ends or queues a job also ends its hand-over.
    if answer in ELSEWHERE:
        _refused(broker, job, handover)
    elif handover.client is not None:
        answer_producer(broker, job)
    elif answer == TAKEN:
        broker.stats.jobs_exported += 1
        taken(broker, job)
    elif job.terms.retry_ms:
        job.work = None  # The job is done elsewhere, and its ack is on its way. Until then the job has its timer.
        lifecycle.mark_dirty(broker, job)
    else:
        lifecycle.forget(broker, job)


def taken(broker: Broker, job: Job) -> None:
    """Turn our job into a copy, or forget it, because the other node has queued it."""
    assert job.state == ACTIVE
    due_ms = job.work.due_ms if isinstance(job.work, Handover) else 0
    job.work = None
    job.was_queued = True  # The taker queues it for the first time.
    lifecycle.mark_dirty(broker, job)
    if job.terms.retry_ms:
        until_ms = max(broker.now_ms, due_ms) + job.terms.retry_ms + broker.jitter()
        if until_ms > job.requeue_at_ms:
            lifecycle.postpone(broker, job, until_ms)
    else:
        lifecycle.forget(broker, job)


def _refused(broker: Broker, job: Job, handover: Handover) -> None:
    """Put the job back where it was, and offer no job of its queue to the node for a while."""
    remember_refusal(broker, handover.node, job.terms.queue)
    if handover.client is not None:
        _hand_on(broker, job, handover, handover.tried)
        return
    job.work = None
    lifecycle.mark_dirty(broker, job)
    if handover.due_ms:
        # The job is delayed. It must not be queued early because a node refused it.
        job.requeue_at_ms = max(handover.due_ms, broker.now_ms + 1)
        job.was_announced = True
        lifecycle.arm(broker, job)
        return
    if job.was_queued:
        lifecycle.put_back(broker, job)
        lifecycle.arm_queued(broker, job)
    else:  # It was handed over as soon as it was added, and its producer is gone.
        events.note(broker, job, event_format.QUEUED)
        lifecycle.enqueue(broker, job)
    queue = broker.queues[job.terms.queue]
    broker.consumers.hint_due.pop(queue, None)
    broker.schedule.call_at(broker.now_ms + REFUSED_MS, partial(broker.owe_hint, queue))


def remember_refusal(broker: Broker, node: Node, name: bytes) -> None:
    """Note that the node takes no job of this queue now."""
    state = exchange(node)
    if len(state.refused) > NAMES_MAX:
        state.refused.clear()
    if len(name) <= NAME_BYTES_MAX:
        state.refused[name] = broker.now_ms + REFUSED_MS


# -- at-most-once jobs of which we keep no copy -------------------------------------------------------


def start_once(
    broker: Broker, client: Client, job: Job, timeout_ms: int, slot: list[bytes | None] | None = None
) -> None:
    """Hand over an at-most-once job of which we keep no copy. Answer the producer when it is taken (spec Q3, Q39)."""
    if slot is None:
        slot = producer_waits.wait_for_copies(client, job)
        broker.waits.blocked_count += 1
    lifecycle.register(broker, job)
    first = Handover(broker.me, 0, broker.now_ms + job.terms.delay_ms if job.terms.delay_ms else 0)
    first.client = client
    first.slot = slot
    first.deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
    _hand_on(broker, job, first, ())


def _hand_on(broker: Broker, job: Job, before: Handover, tried: tuple[Node, ...]) -> None:
    """Hand the job to a node that has not refused it yet. If there is none, refuse the producer's request."""
    targets = choose(broker, 1, frozenset(tried))
    if not targets:
        assert before.client is not None
        job.work = before
        lifecycle.creation_aborted(broker, job)
        broker.stats.replication_short_of_nodes += 1
        producer_waits.end_wait(broker, job, producer_waits.NOREPL_REFUSED)
        lifecycle.forget(broker, job)
        return
    handover = hand_over(broker, targets[0], [job], before.due_ms)
    handover.client = before.client
    handover.slot = before.slot
    handover.deadline_ms = before.deadline_ms
    handover.tried = (*tried, targets[0])
    if handover.deadline_ms:
        job.requeue_at_ms = handover.deadline_ms
        lifecycle.arm(broker, job)


def answer_producer(broker: Broker, job: Job) -> None:
    """Answer the producer, because another node has the job now."""
    producer_waits.tell_taken(broker, job)
    lifecycle.forget(broker, job)


def on_deadline(broker: Broker, job: Job, handover: Handover) -> None:
    """Answer the producer at its deadline: no node has answered in time, but one may have the job (spec Q30)."""
    broker.stats.replication_timeouts += 1
    producer_waits.end_wait(broker, job, producer_waits.NOREPL_TIMEOUT)
    lifecycle.forget(broker, job)


# -- links ------------------------------------------------------------------------------------------


def on_link_up(broker: Broker, node: Node) -> None:
    """Send unanswered batches again soon, because answers may have been lost with the old link."""
    state = exchange(node)
    for batch in state.pending.values():
        batch.sent_ms = 0
    if state.pending:
        state.is_timed = False
        _time_resend(broker, node, state, 0)


def on_run_over(broker: Broker, node: Node) -> None:
    """End all hand-overs to a node that was forgotten or has restarted, because it will not answer them.

    After a restart the node numbers its hand-overs from one. After a mere FORGET it does not, so our answers are kept.
    """
    state = exchange(node)
    pending, state.pending = state.pending, {}
    for batch in pending.values():
        for job in batch.jobs:
            if job is not None and job.work is batch.handover:
                _given_up(broker, job, batch.handover)
    if node.run != state.run:
        state.run = node.run
        state.answers = {}
        state.answers_from = 1
        state.told_settled = 0
        state.refused.clear()


def on_renamed(broker: Broker) -> None:
    """Forget our answers: after CLUSTER RESET HARD we are another node, and the others number from one again."""
    for node in broker.cluster.known_nodes():
        if node.core is not None:
            state = exchange(node)
            state.answers = {}
            state.answers_from = 1


def _given_up(broker: Broker, job: Job, handover: Handover) -> None:
    """Let a job with RETRY wait for its timer. Drop and count an at-most-once job: the node may have delivered it."""
    if job.terms.retry_ms:
        job.work = None
        lifecycle.mark_dirty(broker, job)
        return
    broker.stats.once_lost_in_handover += 1
    if handover.client is not None:
        producer_waits.end_wait(broker, job, producer_waits.NOREPL_TIMEOUT)
    else:
        events.ended(broker, job, event_format.LOST, "no node answered whether its hand-over was taken")
    lifecycle.forget(broker, job)
