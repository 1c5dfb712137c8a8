"""The taker's part of a hand-over: YOURJOBS, TOOK, SETTLED.

This node takes or refuses each job of a hand-over. It keeps the answer under the hand-over's number until the giver
says that all numbers up to it are settled. A giver that repeats a hand-over gets the same answer, and nothing else
happens. So a lost answer causes no second delivery. The giver's part is handover.py. Spec H3, H5, H6.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import HOLDERS, REFUSED_BUSY, REFUSED_DONE, TOOK
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import changing, events, holding, lifecycle
from disque_py.core.broker import Broker
from disque_py.core.handover import TAKEN, Exchange, answer_producer, exchange, taken
from disque_py.core.job import ACKED, ACTIVE, IMPORT_BITS, QUEUED, WAIT_REPL, Handover, Job
from disque_py.core.job_snapshot import AFTER, SPAN_BITS, job_of
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.pulls import NEEDJOBS_MAX, imported

# Twice the most jobs that this node ever asks a giver for.
SNAPSHOTS_MAX: Final = 2 * NEEDJOBS_MAX
# A hand-over is answered only if its number is below the first unsettled number plus this. Otherwise the giver repeats
# it later, when more numbers are settled. The first unsettled number, for which the giver has waited longest, is always
# answered. So no answer must be forgotten before it is settled (spec H3, H5, H6).
ANSWERS_MAX: Final = 20_000


def on_yourjobs(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take or refuse each of these jobs for our clients. If the giver repeats a hand-over, repeat the answer."""
    if sender.is_newcomer:
        # Our answer could not reach the sender. If it is never reached, it is given up, and our answers are lost.
        broker.stats.ignored("a hand-over from a node that was not reached yet")
        return
    state = exchange(sender)
    for number, settled, snapshots, *_ in items:
        _forget_answers(state, settled)
        if type(number) is not int or number < state.answers_from:
            continue
        if number >= state.answers_from + ANSWERS_MAX:
            broker.stats.ignored("a hand-over too far beyond those that are settled")
            continue
        if len(snapshots) > SNAPSHOTS_MAX:
            raise ValueError("more jobs than any node asks for")
        answers = state.answers.get(number)
        if answers is None:
            assert 0 <= number - state.answers_from < ANSWERS_MAX
            answers = bytes([_take(broker, sender, snapshot) for snapshot in snapshots])
            state.answers[number] = answers
        broker.send(broker.sets.only(sender), TOOK, (number, answers))


def _take(broker: Broker, sender: Node, snapshot: Any) -> int:
    if snapshot is None:
        return REFUSED_DONE
    job = job_of(broker, snapshot)
    after_ms = snapshot[AFTER] if len(snapshot) > AFTER else 0
    if type(after_ms) is not int or after_ms >> SPAN_BITS:
        raise ValueError("a delay that is not a number")
    if not job.terms.retry_ms:
        broker.outbox.messages.is_urgent = True  # The producer may wait for our answer, if the giver keeps no copy.
    known = broker.find(job.id)
    if known is not None and isinstance(known.work, Handover):
        # The job returns from the node that we handed it to. So that hand-over was taken and has ended.
        _taken_back(broker, known)
        known = broker.find(job.id)
    if known is None:
        if job.id in broker.tombstones or job.id in broker.acks.not_held:
            holding.hold_ack(broker, sender, job)
            return REFUSED_DONE
        reason = holding.refusal(broker, job)
        if reason:
            return reason
        job.holders = broker.sets.add(job.holders, broker.me)
        job.was_queued = True
        lifecycle.register(broker, job)
    else:
        answer = _known_again(broker, sender, known, job, snapshot)
        if answer is not None:
            return answer
        job = known
        events.learn(broker, job, event_format.INVISIBLE if after_ms else event_format.PENDING)
    job.imported_at = broker.now_ms & IMPORT_BITS or 1
    if after_ms:
        job.requeue_at_ms = broker.now_ms + after_ms
        job.was_announced = True
        job.was_queued = False
        lifecycle.arm(broker, job)
    else:
        assert job.work is None
        queue = lifecycle.enqueue(broker, job)
        imported(broker, queue, sender)
    assert broker.me in job.holders
    mark_holders_dirty(broker, job)
    if job.attributes is not None and job.part is not None:
        # A holder that does not know of us would queue the job without asking us, which could use one attempt too many.
        broker.send(broker.sets.others(job.holders), HOLDERS, (job.id, broker.sets.pack(job.holders)))
    return TAKEN


def _taken_back(broker: Broker, known: Job) -> None:
    work = known.work
    assert isinstance(work, Handover)
    if work.client is not None:
        answer_producer(broker, known)
    else:
        taken(broker, known)


def _known_again(broker: Broker, sender: Node, known: Job, job: Job, snapshot: Any) -> int | None:
    """Return our answer for a job that has a record here; None if it is to be queued here."""
    sets = broker.sets
    if known.state == WAIT_REPL:
        return REFUSED_BUSY  # The producer still waits for copies, and queueing the job would not answer it (spec Q7).
    known.holders = sets.union(known.holders, job.holders)
    if known.version != changing.UNTOLD:
        events.heard(known, job.version)
    mark_holders_dirty(broker, known)
    if known.state == ACKED:
        changing.send_ack(broker, sender, known)
        return REFUSED_DONE
    known.holders = sets.add(known.holders, broker.me)
    mark_holders_dirty(broker, known)
    if job.attributes is not None or known.attributes is not None:
        changing.merge(broker, sender, known, job, snapshot)
        part = known.part
        if part is not None and (part.is_errored or part.is_delayed or part.is_spent(known.attempt)):
            return REFUSED_DONE  # The giver did not know this, and `merge` tells it.
    if known.state == QUEUED:
        return TAKEN
    if known.is_leased_here and known.requeue_at_ms > broker.now_ms:
        # A consumer of this node has the job, which the giver does not know. On a refusal, it would queue the job.
        return TAKEN
    if known.retry_ms == 0 and known.is_delivered:
        return TAKEN
    if (
        job.attempt < known.attempt
        and known.requeue_at_ms > broker.now_ms
        and events.status_of(known) == event_format.RUNNING
    ):
        # A consumer of another node has the job and its lease runs, which the giver does not know.
        return TAKEN
    reason = holding.refusal(broker, known)
    if reason:
        return reason
    assert known.state == ACTIVE
    return None


def on_settled(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Forget our answers up to this number, because the giver has received them."""
    for number in items:
        _forget_answers(exchange(sender), number)


def _forget_answers(state: Exchange, settled: int) -> None:
    if type(settled) is not int:
        raise ValueError("a malformed number of a hand-over")
    if settled < state.answers_from:
        return
    if settled - state.answers_from > len(state.answers) + 1_000:
        state.answers = {number: answer for number, answer in state.answers.items() if number > settled}
    else:
        for number in range(state.answers_from, settled + 1):
            state.answers.pop(number, None)
    assert settled >= state.answers_from
    state.answers_from = settled + 1
