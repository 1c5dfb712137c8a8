"""Jobs travel to the consumers: NEEDJOBS, YOURJOBS, TOOK, SETTLED.

A node whose clients wait asks nodes that have jobs (interest.py tells it who), and they hand some over. A
hand-over loses nothing and delivers nothing twice: it is numbered per pair of processes; the giver keeps the
job, in no queue, until the taker has answered; the taker remembers every number with its answer until the giver
says it is settled, and repeats the answer when asked again. A job with RETRY > 0 stays with the giver as a
copy, whose holder the taker becomes; one with RETRY 0 is forgotten once it is taken. When either process
changed, the hand-over is over: retried jobs wait for their timer, at-most-once jobs are dropped and counted.
Source: semantics.md, section 4; README "Cluster messages related to nodes federation".
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from cluster_bus.messages import (
    NEEDJOBS,
    REFUSED_BUSY,
    REFUSED_DONE,
    SETACK,
    SETTLED,
    TOOK,
    YOURJOBS,
)
from cluster_bus.node import Node
from disque_py.core import lifecycle, replication
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.groups import choose
from disque_py.core.image import image_of, job_of
from disque_py.core.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, Handover, Job
from disque_py.core.queue import PAUSED_OUT, Queue

RESEND_MS: Final = 1_000
# A job that was imported this recently is not passed on: two hungry nodes must not throw it to and fro.
REST_MS: Final = 100
NEEDJOBS_MIN: Final = 5
NEEDJOBS_MAX: Final = 100
# One YOURJOBS carries at most this much, so that its receiver is not kept for long.
BATCH_BYTES_MAX: Final = 256 * 1024
RESPONDER_MS: Final = 5_000
ADHOC_MS_MIN: Final = 25
ADHOC_MS_MAX: Final = 2_000
BROADCAST_MS: Final = 30_000
# Import rate (QSTAT): two buckets of at least a second, forgotten after five.
RATE_BUCKET_MS: Final = 1_000
RATE_WINDOW_MS: Final = 5_000
RATE_SPAN_MS_MIN: Final = 50

TAKEN: Final = 0
ANSWERS_HINT: Final = 1


class Exchange:
    """Hand-overs between us and one node, and what it told of its interest.

    next_number      number of our next hand-over to it
    pending          number -> its jobs, in order, until answered
    answers          number of its hand-over to us -> our answer, until settled
    settled          all its numbers up to here are settled
    told_settled     what we last told it of ours
    run              its process, for which the numbers hold
    interest         queues its clients wait for -> how many
    """

    __slots__ = ("answers", "interest", "next_number", "pending", "run", "settled", "told_settled")

    def __init__(self, run: bytes) -> None:
        self.run = run
        self.next_number = 1
        self.pending: dict[int, tuple[list[Job], Handover]] = {}
        self.answers: dict[int, bytes] = {}
        self.settled = 0
        self.told_settled = 0
        self.interest: dict[bytes, int] = {}


def exchange(node: Node) -> Exchange:
    """The state between us and this node."""
    found = node.core
    if found is None:
        found = node.core = Exchange(node.run)
    assert isinstance(found, Exchange)
    return found


# -- giving -----------------------------------------------------------------------------------------


def on_needjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A node's clients wait: give it jobs of ours, at most half of the queue."""
    for name, count, flags, *_ in items:
        broker.stats.pulls_received += 1
        queue = broker.queues.get(name)
        if queue is None or not sender.is_linked:
            continue
        answers_hint = flags == ANSWERS_HINT
        if answers_hint and queue.hint_sent_to is sender:
            queue.hint_until_ms = 0
        if not queue.length or queue.paused & PAUSED_OUT:
            continue
        if not answers_hint and import_rate(broker, queue) > 0:
            continue
        count = max(1, min(int(count), NEEDJOBS_MAX))
        give(broker, sender, queue, count if queue.length >= 2 * count else max(1, queue.length // 2))
        broker.hint_due[queue] = None


def give(broker: Broker, node: Node, queue: Queue, count: int) -> int:
    """Hand over up to `count` of the oldest jobs of a queue; those that came in a moment ago stay. How many went."""
    jobs: list[Job] = []
    resting: list[Job] = []
    size = 0
    now_ms = broker.now_ms
    while len(jobs) < count and size < BATCH_BYTES_MAX:
        job = lifecycle.fetch(broker, queue)
        if job is None:
            break
        if job.imported_at_ms and now_ms - job.imported_at_ms < REST_MS:
            resting.append(job)
            if len(resting) >= count:
                break
            continue
        jobs.append(job)
        size += len(job.body)
    for job in resting:
        lifecycle.put_back(broker, job)
    if resting and not jobs:
        due_ms = resting[0].imported_at_ms + REST_MS
        broker.schedule.call_at(due_ms, lambda: broker.hint_due.setdefault(queue))
    if jobs:
        queue.jobs_out += len(jobs)
        queue.active_ms = now_ms
        hand_over(broker, node, jobs)
    return len(jobs)


def hand_over(broker: Broker, node: Node, jobs: list[Job], after_ms: int = 0) -> Handover:
    """Send ACTIVE jobs of no queue to a node; they stay here until it has answered."""
    state = exchange(node)
    number = state.next_number
    state.next_number = number + 1
    handover = Handover(node, number, after_ms)
    sets = broker.sets
    for job in jobs:
        job.work = handover
        job.is_leased_here = False
        if job.retry_ms:
            job.holders = sets.add(job.holders, node)
            job.requeue_at_ms = broker.now_ms + job.retry_ms + broker.jitter()
        else:
            job.requeue_at_ms = 0
        lifecycle.arm(broker, job)
    if not state.pending:
        broker.schedule.call_at(broker.now_ms + RESEND_MS, lambda: resend(broker, node))
    state.pending[number] = (jobs, handover)
    _send(broker, node, state, number)
    return handover


def _send(broker: Broker, node: Node, state: Exchange, number: int) -> None:
    jobs, handover = state.pending[number]
    images = [_image(broker, job, handover) for job in jobs]
    settled = min(state.pending) - 1
    state.told_settled = settled
    broker.send(broker.sets.only(node), YOURJOBS, (number, settled, images))


def _image(broker: Broker, job: Job, handover: Handover) -> tuple[Any, ...] | None:
    """None for a job that is no longer ours to give: it was acknowledged, or queued again by its timer."""
    if job.work is not handover:
        return None
    image = image_of(broker, job)
    if job.retry_ms:
        return image
    # Nobody but the taker will have it.
    receiver = broker.sets.of((handover.node,))
    return (*image[:4], broker.sets.pack(receiver), handover.after_ms)


def resend(broker: Broker, node: Node) -> None:
    """Ask again for what was not answered within RESEND_MS; to the same process, under the same numbers."""
    state = exchange(node)
    if not state.pending:
        return
    if node.is_linked:
        for number in list(state.pending):
            _send(broker, node, state, number)
    broker.schedule.call_at(broker.now_ms + RESEND_MS, lambda: resend(broker, node))


def on_took(broker: Broker, sender: Node, items: list[Any]) -> None:
    """The answer to a hand-over of ours, per job."""
    state = exchange(sender)
    for number, answers, *_ in items:
        found = state.pending.pop(number, None)
        if found is None:
            broker.stats.ignored("answer to a hand-over that is over")
            continue
        jobs, handover = found
        for job, reply in zip(jobs, answers, strict=False):
            if job.work is handover:
                _settle(broker, job, handover, reply)
        if not state.pending:
            settled = state.next_number - 1
            broker.schedule.call_at(broker.now_ms + RESEND_MS, partial(tell_settled, broker, sender, settled))


def _settle(broker: Broker, job: Job, handover: Handover, reply: int) -> None:
    job.work = None
    if handover.client is not None:
        external_answered(broker, job, handover, taken=reply == TAKEN)
        return
    if reply == TAKEN:
        broker.stats.jobs_exported += 1
        if job.retry_ms:
            lifecycle.postpone(broker, job, broker.now_ms + job.retry_ms + broker.jitter())
        else:
            lifecycle.forget(broker, job)
    elif reply != REFUSED_DONE:
        # Back where it was, as if it had never left.
        lifecycle.put_back(broker, job)
        lifecycle.arm_queued(broker, job)


def tell_settled(broker: Broker, node: Node, settled: int) -> None:
    """No hand-over followed that would have said it: the taker may forget its answers."""
    state = exchange(node)
    if state.told_settled < settled and not state.pending and node.is_linked:
        state.told_settled = settled
        broker.send(broker.sets.only(node), SETTLED, settled)


def on_settled(broker: Broker, sender: Node, items: list[Any]) -> None:
    """The giver has our answers up to this number."""
    for number in items:
        _settled(exchange(sender), int(number))


def _settled(state: Exchange, number: int) -> None:
    if number > state.settled:
        state.settled = number
        for old in [known for known in state.answers if known <= number]:
            del state.answers[old]


# -- taking -----------------------------------------------------------------------------------------


def on_yourjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Jobs for our clients. Each is taken or refused, and the answer repeated whenever we are asked again."""
    state = exchange(sender)
    for number, settled, images, *_ in items:
        _settled(state, int(settled))
        if number <= state.settled:
            continue
        answers = state.answers.get(number)
        if answers is None:
            answers = bytes([_take(broker, sender, image) for image in images])
            state.answers[number] = answers
        broker.send(broker.sets.only(sender), TOOK, (number, answers))


def _take(broker: Broker, sender: Node, image: Any) -> int:
    if image is None:
        return REFUSED_DONE
    job = job_of(broker, image)
    known = broker.find(job.id)
    if known is None:
        if job.id in broker.done:
            replication.hold_ack(broker, job)
            broker.send(broker.sets.only(sender), SETACK, (job.id, broker.sets.pack(job.holders)))
            return REFUSED_DONE
        reason = replication.refusal(broker, job)
        if reason:
            return reason
        job.holders = broker.sets.add(job.holders, broker.me)
        job.was_queued = True
        lifecycle.register(broker, job)
    else:
        answer = _known_again(broker, sender, known, job)
        if answer is not None:
            return answer
        job = known
    after_ms = int(image[5]) if len(image) > 5 else 0
    job.imported_at_ms = broker.now_ms
    if after_ms:
        job.requeue_at_ms = broker.now_ms + after_ms
        lifecycle.arm(broker, job)
    else:
        queue = lifecycle.enqueue(broker, job)
        imported(broker, queue, sender)
    lifecycle.record_job(broker, job)
    return TAKEN


def _known_again(broker: Broker, sender: Node, known: Job, job: Job) -> int | None:
    """What we answer for a job that has a record here; None: it goes into our queue."""
    sets = broker.sets
    if known.state == WAIT_REPL:
        return REFUSED_BUSY  # Its producer still waits for us; queueing it would answer nobody (quirks Q7).
    known.holders = sets.union(known.holders, job.holders)
    if known.state == ACKED:
        broker.send(sets.only(sender), SETACK, (known.id, sets.pack(known.holders)))
        return REFUSED_DONE
    known.holders = sets.add(known.holders, broker.me)
    if isinstance(known.work, Handover):
        known.work = None  # It comes from where we handed it: that hand-over has been taken, and is over.
    if known.state == QUEUED:
        return TAKEN
    reason = replication.refusal(broker, known)
    if reason:
        return reason
    if known.is_leased_here and known.requeue_at_ms > broker.now_ms:
        return TAKEN  # A consumer of ours has it; the giver had not heard.
    if known.retry_ms == 0 and known.is_delivered:
        return TAKEN
    assert known.state == ACTIVE
    return None


def imported(broker: Broker, queue: Queue, sender: Node) -> None:
    """A job came in: remember its source and the rate."""
    now_ms = broker.now_ms
    broker.stats.jobs_imported += 1
    queue.sources[sender] = now_ms
    queue.adhoc_attempts = 0
    if now_ms - queue.import_start_ms > RATE_BUCKET_MS:
        queue.import_previous = queue.import_count
        queue.import_previous_ms = queue.import_start_ms
        queue.import_count = 0
        queue.import_start_ms = now_ms
    queue.import_count += 1


def import_rate(broker: Broker, queue: Queue) -> int:
    """Jobs per second that other nodes hand us for this queue (disque/cluster.md, section 11)."""
    now_ms = broker.now_ms
    if not queue.import_count or now_ms - queue.import_start_ms > RATE_WINDOW_MS:
        return 0
    total = queue.import_count
    since_ms = queue.import_start_ms
    if queue.import_previous and now_ms - queue.import_previous_ms <= RATE_WINDOW_MS:
        total += queue.import_previous
        since_ms = queue.import_previous_ms
    span_ms = max(RATE_SPAN_MS_MIN, now_ms - since_ms)
    return -(-total * 1000 // span_ms)


# -- asking -----------------------------------------------------------------------------------------


def ask_count(broker: Broker, queue: Queue) -> int:
    """How many jobs to ask one source for: its share of the rate, 5 to 100, and one for each waiting client."""
    rate = import_rate(broker, queue)
    sources = max(1, len(queue.sources))
    return max(NEEDJOBS_MIN, min(NEEDJOBS_MAX, max(rate // sources, len(queue.waiting))))


def ask_sources(broker: Broker, queue: Queue, *, is_urgent: bool) -> None:
    """Ask the nodes that lately had jobs; urgent (the queue ran dry under load) without regard to the gap."""
    if broker.is_leaving or not queue.sources or queue.paused:
        return
    now_ms = broker.now_ms
    for node in [node for node, last_ms in queue.sources.items() if now_ms - last_ms > RESPONDER_MS]:
        del queue.sources[node]
    if not queue.sources:
        return
    if not is_urgent:
        gap_ms = min(ADHOC_MS_MIN << min(queue.adhoc_attempts, 10), ADHOC_MS_MAX)
        if now_ms - queue.adhoc_at_ms < gap_ms:
            return
    elif queue.adhoc_at_ms == now_ms:
        return
    queue.adhoc_attempts += 1
    queue.adhoc_at_ms = now_ms
    count = ask_count(broker, queue)
    for node in queue.sources:
        if node.is_linked:
            broker.stats.pulls_sent += 1
            broker.send(broker.sets.only(node), NEEDJOBS, (queue.name, count, 0))


def ask_everybody(broker: Broker, queue: Queue) -> None:
    """The fallback: where clients wait, all linked nodes are asked every 30 s (semantics.md, section 9)."""
    if broker.is_leaving or queue.paused or not queue.waiting:
        return
    if queue.broadcast_at_ms and broker.now_ms - queue.broadcast_at_ms < BROADCAST_MS:
        return
    queue.broadcast_at_ms = broker.now_ms
    if broker.cluster.linked:
        broker.stats.pulls_sent += 1
        broker.send(broker.cluster.linked, NEEDJOBS, (queue.name, 1, 0))


# -- at-most-once jobs of which we keep no copy -------------------------------------------------------


def start_once(broker: Broker, client: Client, job: Job, timeout_ms: int) -> None:
    """An at-most-once job of which we keep no copy: hand it over, and answer when it has been taken (quirks Q3,
    Q39).
    """
    slot = replication.wait_for_copies(client, job)
    broker.blocked_count += 1
    lifecycle.register(broker, job)
    lifecycle.arm(broker, job)
    _hand_on(broker, client, job, slot, ())
    if timeout_ms:
        broker.schedule.call_at(broker.now_ms + timeout_ms, lambda: _once_timed_out(broker, job))


def _hand_on(broker: Broker, client: Client, job: Job, slot: list[bytes | None], tried: tuple[Node, ...]) -> None:
    targets = choose(broker, 1, frozenset(tried))
    if not targets:
        replication.answer(broker, client, job, slot, replication.NOREPL_REFUSED)
        lifecycle.forget(broker, job)
        return
    handover = hand_over(broker, targets[0], [job], job.delay_ms)
    handover.client = client
    handover.slot = slot
    handover.tried = (*tried, targets[0])


def external_answered(broker: Broker, job: Job, handover: Handover, *, taken: bool) -> None:
    """The node we handed a new at-most-once job to has taken it, or it must go to another."""
    client = handover.client
    if client is None:
        return
    if taken:
        broker.stats.jobs_added += 1
        replication.answer(broker, client, job, handover.slot, b"+%b\r\n" % job.id)
        lifecycle.forget(broker, job)
    else:
        _hand_on(broker, client, job, handover.slot, handover.tried)


def _once_timed_out(broker: Broker, job: Job) -> None:
    work = job.work
    if isinstance(work, Handover) and work.client is not None:
        broker.stats.replication_timeouts += 1
        replication.answer(broker, work.client, job, work.slot, replication.NOREPL_TIMEOUT)
        lifecycle.forget(broker, job)


# -- links ------------------------------------------------------------------------------------------


def on_link_up(broker: Broker, node: Node) -> None:
    """Answers may have been lost with the old link: ask again."""
    state = exchange(node)
    for number in list(state.pending):
        _send(broker, node, state, number)


def on_new_run(broker: Broker, node: Node) -> None:
    """Its process changed, or it was forgotten: no hand-over to or from the old one will ever be answered."""
    state = exchange(node)
    pending = list(state.pending.values())
    for jobs, handover in pending:
        for job in jobs:
            if job.work is not handover:
                continue
            job.work = None
            if handover.client is not None:
                external_answered(broker, job, handover, taken=False)
            elif not job.retry_ms:
                # It may have been delivered there: at most once prefers loss (semantics.md, section 4).
                broker.stats.once_lost_in_handover += 1
                lifecycle.forget(broker, job)
    interest = state.interest
    node.core = Exchange(node.run)
    node.core.interest = interest
