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
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import (
    NEEDJOBS,
    REFUSED_BUSY,
    REFUSED_DONE,
    REFUSED_LEAVING,
    REFUSED_MEMORY,
    REFUSED_PAUSED,
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
BROADCAST_SLACK_MS: Final = 1_000
# Import rate (QSTAT): two buckets of at least a second, forgotten after five.
RATE_BUCKET_MS: Final = 1_000
RATE_WINDOW_MS: Final = 5_000
RATE_SPAN_MS_MIN: Final = 50
# Fewer imports in the window are no stream: nothing is fetched before somebody waits for it.
IMPORTS_MIN: Final = 5
# Queue names remembered per node, for whatever reason.
NAMES_MAX: Final = 10_000

TAKEN: Final = 0
ANSWERS_HINT: Final = 1
# Refusals that may be over soon, or elsewhere: another node may take the job.
ELSEWHERE: Final = (REFUSED_PAUSED, REFUSED_MEMORY, REFUSED_LEAVING, REFUSED_BUSY)
# A queue's jobs are not offered again to a node that refused one, for this long.
REFUSED_MS: Final = 1_000
# Batches sent again per step, so that a long list of unanswered ones doesn't keep others waiting.
RESEND_BATCHES: Final = 32
RESEND_STEP_MS: Final = 10


class Batch:
    """One hand-over: the jobs of a YOURJOBS, in order, and when it was last sent."""

    __slots__ = ("handover", "jobs", "sent_ms")

    def __init__(self, jobs: list[Job], handover: Handover) -> None:
        self.jobs = jobs
        self.handover = handover
        self.sent_ms = 0


class Exchange:
    """Hand-overs between us and one node, and what it told of its interest.

    run              its process; numbers of its hand-overs hold for this one
    next_number      number of our next hand-over to it; only grows, whatever happens to the node
    lowest           all our numbers below are settled
    pending          number -> its batch, until answered
    told_settled     what we last told it of `lowest`
    answers          number of its hand-over to us -> our answer, until settled
    answers_from     its numbers below this are settled
    interest         queues its clients wait for -> how many
    refused          queue -> until when nothing of it is offered to the node
    is_timed         a `resend` is scheduled
    """

    __slots__ = (
        "answers",
        "answers_from",
        "interest",
        "is_timed",
        "lowest",
        "next_number",
        "pending",
        "refused",
        "run",
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
        self.refused: dict[bytes, int] = {}
        self.is_timed = False

    def settled(self) -> int:
        """All our numbers up to this one are answered."""
        while self.lowest < self.next_number and self.lowest not in self.pending:
            self.lowest += 1
        return self.lowest - 1

    def refuses(self, name: bytes, now_ms: int) -> bool:
        """The node refused a job of this queue a moment ago."""
        return bool(self.refused) and self.refused.get(name, 0) > now_ms


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
        if type(count) is not int:
            raise ValueError("a count that is not a number")
        broker.stats.pulls_received += 1
        queue = broker.queues.get(name)
        if queue is None or not sender.is_linked:
            continue
        answers_hint = flags == ANSWERS_HINT
        if answers_hint and queue.hint_sent_to is sender and queue.interested.get(sender, 0) > 0:
            queue.hint_until_ms = 0
        if not queue.length or queue.paused & PAUSED_OUT:
            continue
        if not answers_hint and import_rate(broker, queue) > 0:
            continue
        count = max(1, min(count, NEEDJOBS_MAX))
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
        # Until they have rested nothing may leave, so no hint is owed before.
        queue.hint_until_ms = resting[0].imported_at_ms + REST_MS
        broker.schedule.call_at(queue.hint_until_ms, partial(broker.owe_hint, queue))
    if jobs:
        queue.jobs_out += len(jobs)
        queue.active_ms = now_ms
        hand_over(broker, node, jobs)
    return len(jobs)


def hand_over(broker: Broker, node: Node, jobs: list[Job], due_ms: int = 0) -> Handover:
    """Send ACTIVE jobs of no queue to a node; they stay here until it has answered."""
    state = exchange(node)
    number = state.next_number
    state.next_number = number + 1
    handover = Handover(node, number, due_ms)
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
    state.pending[number] = Batch(jobs, handover)
    _send(broker, node, state, number)
    _time_resend(broker, node, state, RESEND_MS)
    return handover


def _send(broker: Broker, node: Node, state: Exchange, number: int) -> None:
    batch = state.pending[number]
    batch.sent_ms = broker.now_ms
    images = [_image(broker, job, batch.handover) for job in batch.jobs]
    settled = state.told_settled = state.settled()
    broker.send(broker.sets.only(node), YOURJOBS, (number, settled, images))


def _image(broker: Broker, job: Job, handover: Handover) -> tuple[Any, ...] | None:
    """None for a job that is no longer ours to give: it was acknowledged, or queued again by its timer."""
    if job.work is not handover:
        return None
    image = image_of(broker, job)
    after_ms = max(0, handover.due_ms - broker.now_ms) if handover.due_ms else 0
    if job.retry_ms:
        return (*image, after_ms) if after_ms else image
    # Nobody but the taker will have it.
    receiver = broker.sets.of((handover.node,))
    return (*image[:4], broker.sets.pack(receiver), after_ms)


def _time_resend(broker: Broker, node: Node, state: Exchange, span_ms: int) -> None:
    if not state.is_timed:
        state.is_timed = True
        broker.schedule.call_at(broker.now_ms + span_ms, partial(resend, broker, node, state))


def resend(broker: Broker, node: Node, state: Exchange) -> None:
    """Ask again for what was not answered within RESEND_MS: the same process, under the same numbers.

    With nothing left to ask, say what is settled, so that the taker may forget its answers.
    """
    state.is_timed = False
    sent = 0
    if node.is_linked:
        due_ms = broker.now_ms - RESEND_MS
        for number, batch in list(islice(state.pending.items(), 4 * RESEND_BATCHES)):
            if batch.sent_ms <= due_ms:
                if sent == RESEND_BATCHES:
                    break
                # To the end of the line, so that all get their turn.
                del state.pending[number]
                state.pending[number] = batch
                _send(broker, node, state, number)
                sent += 1
        if not state.pending and state.told_settled < state.settled():
            state.told_settled = state.settled()
            broker.send(broker.sets.only(node), SETTLED, state.told_settled)
    if state.pending:
        _time_resend(broker, node, state, RESEND_STEP_MS if sent == RESEND_BATCHES else RESEND_MS // 4)


def on_took(broker: Broker, sender: Node, items: list[Any]) -> None:
    """The answer to a hand-over of ours, per job."""
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
            if job.work is batch.handover:
                _settle(broker, job, batch.handover, answer)
        if not state.pending:
            _time_resend(broker, sender, state, RESEND_MS)


def _settle(broker: Broker, job: Job, handover: Handover, answer: int) -> None:
    if answer in ELSEWHERE:
        _refused(broker, job, handover)
    elif handover.client is not None:
        _answer_producer(broker, job, handover)
    elif answer == TAKEN:
        broker.stats.jobs_exported += 1
        _taken(broker, job)
    elif job.retry_ms:
        job.work = None  # Done elsewhere: the ack is on its way; until then its timer looks after it.
    else:
        lifecycle.forget(broker, job)


def _taken(broker: Broker, job: Job) -> None:
    """The other node has the job queued: ours is a copy, or nothing."""
    job.work = None
    job.was_queued = True  # Its first queueing is the taker's.
    if job.retry_ms:
        until_ms = broker.now_ms + job.retry_ms + broker.jitter()
        if until_ms > job.requeue_at_ms:
            lifecycle.postpone(broker, job, until_ms)
    else:
        lifecycle.forget(broker, job)


def _refused(broker: Broker, job: Job, handover: Handover) -> None:
    """Nothing of this queue is offered to the node for a while; the job goes back to where it was."""
    remember_refusal(broker, handover.node, job.queue)
    if handover.client is not None:
        _hand_on(broker, job, handover, handover.tried)
        return
    job.work = None
    if handover.due_ms:
        # A delayed job is not early because a node had no room for it.
        job.requeue_at_ms = max(handover.due_ms, broker.now_ms + 1)
        job.was_announced = True
        lifecycle.arm(broker, job)
        return
    lifecycle.put_back(broker, job)
    lifecycle.arm_queued(broker, job)
    queue = broker.queues[job.queue]
    broker.hint_due.pop(queue, None)
    broker.schedule.call_at(broker.now_ms + REFUSED_MS, partial(broker.owe_hint, queue))


def remember_refusal(broker: Broker, node: Node, name: bytes) -> None:
    """The node takes nothing of this queue now."""
    state = exchange(node)
    if len(state.refused) > NAMES_MAX:
        state.refused.clear()
    state.refused[name] = broker.now_ms + REFUSED_MS


def on_settled(broker: Broker, sender: Node, items: list[Any]) -> None:
    """The giver has our answers up to this number."""
    for number in items:
        _forget_answers(exchange(sender), number)


def _forget_answers(state: Exchange, settled: int) -> None:
    if type(settled) is not int:
        raise ValueError("a number of a hand-over that is none")
    if settled < state.answers_from:
        return
    if settled - state.answers_from > len(state.answers) + 1_000:
        state.answers = {number: answer for number, answer in state.answers.items() if number > settled}
    else:
        for number in range(state.answers_from, settled + 1):
            state.answers.pop(number, None)
    state.answers_from = settled + 1


# -- taking -----------------------------------------------------------------------------------------


def on_yourjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Jobs for our clients. Each is taken or refused, and the answer repeated whenever we are asked again."""
    state = exchange(sender)
    for number, settled, images, *_ in items:
        _forget_answers(state, settled)
        if type(number) is not int or number < state.answers_from:
            continue
        if len(images) > 2 * NEEDJOBS_MAX:
            raise ValueError("more jobs than anybody asks for")
        answers = state.answers.get(number)
        if answers is None:
            answers = bytes([_take(broker, sender, image) for image in images])
            state.answers[number] = answers
        broker.send(broker.sets.only(sender), TOOK, (number, answers))


def _take(broker: Broker, sender: Node, image: Any) -> int:
    if image is None:
        return REFUSED_DONE
    job = job_of(broker, image)
    after_ms = image[5] if len(image) > 5 else 0
    if type(after_ms) is not int or after_ms >> 63:
        raise ValueError("a delay that is not a number")
    known = broker.find(job.id)
    if known is not None and isinstance(known.work, Handover):
        # It comes back from where we handed it: that hand-over was taken, and is over.
        _taken_back(broker, known)
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
    job.imported_at_ms = broker.now_ms
    if after_ms:
        job.requeue_at_ms = broker.now_ms + after_ms
        job.was_announced = True
        job.was_queued = False
        lifecycle.arm(broker, job)
    else:
        queue = lifecycle.enqueue(broker, job)
        imported(broker, queue, sender)
    lifecycle.record_job(broker, job)
    return TAKEN


def _taken_back(broker: Broker, known: Job) -> None:
    work = known.work
    assert isinstance(work, Handover)
    if work.client is not None:
        _answer_producer(broker, known, work)
    else:
        _taken(broker, known)


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


def has_import_rate(broker: Broker, queue: Queue) -> bool:
    """Whether jobs come in at a rate worth the name: a single one reads as 20 per second."""
    return queue.import_count + queue.import_previous >= IMPORTS_MIN and import_rate(broker, queue) > 0


# -- asking -----------------------------------------------------------------------------------------


def ask_count(broker: Broker, queue: Queue) -> int:
    """How many jobs to ask one source for: its share of the rate, 5 to 100, and one for each waiting client."""
    rate = import_rate(broker, queue) if has_import_rate(broker, queue) else 0
    sources = max(1, len(queue.sources))
    return max(NEEDJOBS_MIN, min(NEEDJOBS_MAX, max(rate // sources, len(queue.waiting))))


def hinted_count(broker: Broker, queue: Queue) -> int:
    """How many jobs to take of a node that has some: one for each waiting client, more when they come at a rate."""
    share = 0
    if queue.waiting and has_import_rate(broker, queue):
        share = import_rate(broker, queue) // max(1, len(queue.sources))
    return max(1, min(NEEDJOBS_MAX, max(share, len(queue.waiting))))


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
    if broker.is_leaving or queue.paused or not (queue.waiting or queue.waited_ms == broker.now_ms):
        return
    if queue.broadcast_at_ms and broker.now_ms - queue.broadcast_at_ms < BROADCAST_MS - BROADCAST_SLACK_MS:
        return
    queue.broadcast_at_ms = broker.now_ms
    if broker.cluster.linked:
        broker.stats.pulls_sent += 1
        broker.send(broker.cluster.linked, NEEDJOBS, (queue.name, 1, 0))


def ask_for_waiting(broker: Broker, count_max: int) -> None:
    """Part of a walk over the queues where clients wait, begun every BROADCAST_MS, that asks everybody."""
    for _ in range(count_max):
        name = next(broker.asking, None)
        if name is None:
            if broker.now_ms - broker.asked_everybody_ms >= BROADCAST_MS:
                broker.asked_everybody_ms = broker.now_ms
                broker.asking = iter([name for name, queue in broker.queues.items() if queue.waiting])
            return
        queue = broker.queues.get(name)
        if queue is not None:
            ask_everybody(broker, queue)


# -- at-most-once jobs of which we keep no copy -------------------------------------------------------


def start_once(broker: Broker, client: Client, job: Job, timeout_ms: int) -> None:
    """An at-most-once job of which we keep no copy: hand it over, and answer when it was taken (quirks Q3, Q39)."""
    slot = replication.wait_for_copies(client, job)
    broker.blocked_count += 1
    lifecycle.register(broker, job)
    first = Handover(broker.me, 0, broker.now_ms + job.delay_ms if job.delay_ms else 0)
    first.client = client
    first.slot = slot
    first.deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
    _hand_on(broker, job, first, ())


def _hand_on(broker: Broker, job: Job, before: Handover, tried: tuple[Node, ...]) -> None:
    """To a node that has not refused it yet; without one the producer is refused."""
    targets = choose(broker, 1, frozenset(tried))
    if not targets:
        assert before.client is not None
        job.work = before
        end_wait(broker, job, replication.NOREPL_REFUSED)
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


def _answer_producer(broker: Broker, job: Job, handover: Handover) -> None:
    """The job is somebody else's now: its producer may go on."""
    broker.stats.jobs_added += 1
    end_wait(broker, job, b"+%b\r\n" % job.id)
    lifecycle.forget(broker, job)


def end_wait(broker: Broker, job: Job, reply: bytes) -> None:
    """Answer the producer that waits for a hand-over, if one does."""
    replication.end_wait(broker, job, reply)


def on_deadline(broker: Broker, job: Job, handover: Handover) -> None:
    """Nobody has answered in time; it may have been taken all the same (quirks Q30)."""
    broker.stats.replication_timeouts += 1
    end_wait(broker, job, replication.NOREPL_TIMEOUT)
    lifecycle.forget(broker, job)


# -- links ------------------------------------------------------------------------------------------


def on_link_up(broker: Broker, node: Node) -> None:
    """Answers may have been lost with the old link: ask again soon."""
    state = exchange(node)
    for batch in state.pending.values():
        batch.sent_ms = 0
    if state.pending:
        state.is_timed = False
        _time_resend(broker, node, state, 0)


def on_run_over(broker: Broker, node: Node) -> None:
    """Its process changed, or it was forgotten: no hand-over under way will be answered any more.

    Only another process starts with fresh numbers; after a mere FORGET, what was answered is still remembered.
    """
    state = exchange(node)
    pending, state.pending = state.pending, {}
    for batch in pending.values():
        for job in batch.jobs:
            if job.work is batch.handover:
                _given_up(broker, job, batch.handover)
    if node.run != state.run:
        state.run = node.run
        state.answers = {}
        state.answers_from = 1
        state.told_settled = 0
        state.refused.clear()


def _given_up(broker: Broker, job: Job, handover: Handover) -> None:
    """A job with RETRY waits for its timer; one without may have been delivered there, and is dropped and counted."""
    if job.retry_ms:
        job.work = None
        return
    broker.stats.once_lost_in_handover += 1
    if handover.client is not None:
        end_wait(broker, job, replication.NOREPL_TIMEOUT)
    lifecycle.forget(broker, job)
