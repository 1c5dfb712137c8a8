"""The jobs of a share: how a task chooses and changes them, and the hand-overs of a rebalance.

A walk visits all jobs of the node, a slice per step. It chooses those that were there when the share began and have not
changed their state since. A job knows when it entered its state, so the share needs no list of jobs. An ordered walk
keeps the first CHOSEN_MAX places, and the next walk finds the places behind them.

The share changes the jobs of a grant (`act_on_all`), or hands them over to the receiver and waits until all are
answered (`give`). tasks.py reports to the leader. Spec MV5, MV6, ZN7, ZN8.
"""

from __future__ import annotations

from bisect import insort
from functools import partial
from typing import TYPE_CHECKING, Final

from disque_py.core import census, changing, client_acks, handover, lifecycle, memory, moving, spilling
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.job import ACTIVE, CTIMES_PER_MS, QUEUED, Handover, Job
from disque_py.core.queue import PAUSED_IN
from disque_py.core.spilled import Spilled
from disque_py.core.task_state import (
    CHOSEN_MAX,
    ERRORED,
    GOES_ON,
    MOVE,
    OFFER_MAX,
    PENDING,
    PURGE,
    REDRIVE,
    UNABLE,
    Place,
    Share,
    Steps,
    Work,
)

if TYPE_CHECKING:
    from cluster_bus.node import Node

# The numbers of jobs that one slice visits and changes. Each takes about a millisecond.
LOOKED_PER_PART: Final = 500
ACTED_PER_PART: Final = 25
# A hand-over of a rebalance carries at most this many jobs and bytes. The share looks for the answer every
# ANSWER_LOOK_MS, for at most ANSWER_MS.
GIVEN_PER_BATCH: Final = 25
GIVEN_BYTES_MAX: Final = 256 * 1024
ANSWER_LOOK_MS: Final = 5
ANSWER_MS: Final = 5_000


def wake(broker: Broker, share: Share) -> None:
    """Wake a share that waits, unless it waits for a grant."""
    if share.is_idle and not share.is_offering and not share.is_dropped and share.outcome == GOES_ON:
        share.is_idle = False
        broker.tasks.busy[share] = None


def choose(broker: Broker, share: Share) -> Steps:
    """Choose jobs, a slice per step.

    An unordered share stops at about OFFER_MAX jobs. An ordered one visits all jobs and keeps the first places behind
    those of earlier walks.
    """
    is_ordered = share.work.is_ordered
    if is_ordered and share.chosen:
        share.floor = share.chosen[-1]
        share.shard = 0
    is_first = share.floor is None
    share.was_cut = False
    share.chosen = chosen = []
    share.at = 0
    share.told = 0
    looked = 0
    while share.shard < SHARDS:
        shard = broker.shards[share.shard]
        share.shard += 1
        looked += 1
        for job in list(shard.values()) if shard else ():
            looked += 1
            if job.terms.queue != share.work.queue:
                continue
            looked += 4
            if is_wanted(broker, share, job):
                if is_ordered:
                    _insert(share, job)
                else:
                    chosen.append((0, 0, job.id))
            elif is_first and _was_taken(broker, share, job):
                share.failed += 1
            if looked >= LOOKED_PER_PART:
                looked = 0
                yield
        if not is_ordered and len(chosen) >= OFFER_MAX:
            return
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield


def _insert(share: Share, job: Job) -> None:
    """Keep the job's place if it is among the first CHOSEN_MAX places behind those of earlier walks."""
    chosen = share.chosen
    place = _place_of(share.work, job)
    if share.floor is not None and place <= share.floor:
        return
    if len(chosen) >= CHOSEN_MAX:
        share.was_cut = True
        if place >= chosen[-1]:
            return
        chosen.pop()
    insort(chosen, place)


def _place_of(work: Work, job: Job) -> Place:
    """Return a job's place: by age for QREDRIVE, else by the order of delivery."""
    if work.command == REDRIVE:
        return (0, job.ctime, job.id)
    return (job.priority, job.ctime, job.id)


def is_wanted(broker: Broker, share: Share, job: Job) -> bool:
    """Return whether the share acts on this job: it was in the queue when the share began, and counts here."""
    work = share.work
    if work.command == REDRIVE:
        if not moving.is_redrivable(job):
            return False
        if not (job.state == QUEUED or census.is_errored(broker, job) or census.is_invisible(broker, job)):
            return False
    elif work.status == PENDING:
        if job.state != QUEUED:
            return False
    elif work.status == ERRORED:
        if not census.is_errored(broker, job):
            return False
    elif not census.is_invisible(broker, job):
        return False
    return _was_there(broker, share, job) and (work.where is None or work.where.takes(job))


def _was_there(broker: Broker, share: Share, job: Job) -> bool:
    """Return whether the job entered its state before the share began. A wall clock may have been set back since."""
    since_ms = job.since_ms
    if since_ms != share.began_ms:
        return since_ms < share.began_ms or since_ms > broker.wall_ms
    return job.ctime <= share.mark or job.ctime // CTIMES_PER_MS < since_ms


def _was_taken(broker: Broker, share: Share, job: Job) -> bool:
    """Return whether a job that was there is now with a worker or being handed over, so that it counts as failed."""
    work = share.work
    if job.state != ACTIVE or work.status != PENDING or (work.command == REDRIVE and not moving.is_redrivable(job)):
        return False
    if isinstance(job.work, Handover):
        is_taken = job.work.client is None and job.terms.retry_ms > 0 and _was_there(broker, share, job)
    else:
        is_taken = census.is_running(broker, job) and not _was_there(broker, share, job) and job.ctime <= share.mark
    return is_taken and (work.where is None or work.where.takes(job))


def tell_errored(broker: Broker, share: Share) -> bool:
    """Tell the other holders our parts of the errored jobs of the next offer. Return whether there are any.

    A holder with a newer part answers with it. This node may have been away when another one redrove the job.
    """
    is_told = False
    new = share.chosen[max(share.at, share.told) : share.at + OFFER_MAX]
    share.told = share.at + OFFER_MAX
    for place in new:
        job = broker.find(place[2])
        if job is not None and job.state == ACTIVE and job.is_errored:
            for node in broker.sets.others(job.holders):
                changing.tell(broker, node, job)
                is_told = True
    return is_told


def pass_changed(broker: Broker, share: Share) -> None:
    """Skip jobs of the next offer that have changed since they were chosen, because a grant for one would be wasted.

    Near its LIMIT, a leader grants one job at a time, and each grant waits for answers of all nodes (simulator 1251).
    """
    passed: list[Place] = []
    kept: list[Place] = []
    for place in share.chosen[share.at : share.at + OFFER_MAX]:
        job = broker.find(place[2])
        if job is None or job.terms.queue != share.work.queue:
            passed.append(place)
        elif is_wanted(broker, share, job):
            kept.append(place)
        else:
            share.failed += _was_taken(broker, share, job)
            passed.append(place)
    if passed:
        share.chosen[share.at : share.at + OFFER_MAX] = passed + kept
        share.at += len(passed)


def act_on_all(broker: Broker, share: Share) -> Steps:
    """Change the jobs of a grant, a slice per step."""
    for number in range(1, share.granted + 1):
        if broker.journal.disk_level:
            share.outcome = UNABLE
            return
        _act(broker, share, share.chosen[share.at][2])
        share.at += 1
        if number % ACTED_PER_PART == 0:
            yield


def _act(broker: Broker, share: Share, job_id: bytes) -> None:
    """Change one job, unless it has ended or changed since it was chosen."""
    job = broker.find(job_id)
    work = share.work
    if job is None or job.terms.queue != work.queue:
        return
    if not is_wanted(broker, share, job):
        share.failed += _was_taken(broker, share, job)
        return
    if isinstance(job.work, Handover):
        is_done = False
    elif work.command == PURGE:
        is_done = client_acks.cancel_here(broker, job_id) > 0
    elif memory.is_full(broker):
        is_done = False
    elif work.command == MOVE:
        is_done = moving.move(broker, job, work.to)
    else:
        is_done = moving.redrive(broker, job, work.to)
    if is_done:
        share.changed += 1
    else:
        share.failed += 1


# -- a rebalance ------------------------------------------------------------------------------------


def takes_jobs(broker: Broker, name: bytes) -> bool:
    """Return whether this node takes jobs of a rebalance. Spec ZN7."""
    queue = broker.queues.get(name)
    is_paused = queue is not None and bool(queue.paused & PAUSED_IN)
    return not (broker.is_leaving or is_paused or broker.memory_level > 1 or broker.journal.disk_level)


def give(broker: Broker, share: Share) -> Steps:
    """Hand over the jobs of a grant, a batch per step, and wait until all are answered. Spec ZN8."""
    receiver = share.receiver
    jobs = _granted_jobs(broker, share, receiver)
    until_ms = broker.now_ms + ANSWER_MS
    for job in jobs:
        if type(job.body) is Spilled:
            spilling.when_back(broker, job, _do_nothing)
    while broker.now_ms < until_ms and any(type(job.body) is Spilled and job.state == QUEUED for job in jobs):
        yield from _rest(broker, share)
    given: list[tuple[Job, Handover]] = []
    batch: list[Job] = []
    size = 0
    for job in jobs:
        if broker.journal.disk_level:
            share.outcome = UNABLE
            break
        if receiver is None or not _may_go(broker, share, job, receiver):
            share.failed += 1
            continue
        lifecycle.dequeue(broker, job)
        batch.append(job)
        size += len(job.body)
        if len(batch) >= GIVEN_PER_BATCH or size >= GIVEN_BYTES_MAX:
            _hand_over(broker, share, receiver, batch, given)
            batch = []
            size = 0
            yield
    if batch and receiver is not None:
        _hand_over(broker, share, receiver, batch, given)
    until_ms = broker.now_ms + ANSWER_MS
    while broker.now_ms < until_ms and any(job.work is work for job, work in given):
        yield from _rest(broker, share)
    for job, work in given:
        if job.work is work or job.state == QUEUED:
            share.failed += 1  # The receiver refused the job or did not answer.
        else:
            share.changed += 1


def _do_nothing() -> None:
    """Do nothing when a body is back, because the share checks for it."""


def _granted_jobs(broker: Broker, share: Share, receiver: Node | None) -> list[Job]:
    """Return the jobs of a grant, and count those that can't be moved as failed.

    Among the offered jobs, those of which the receiver has a copy come first.
    """
    known: list[Place] = []
    unknown: list[Place] = []
    for place in share.chosen[share.at : share.at + OFFER_MAX]:
        job = broker.find(place[2])
        (known if job is not None and receiver in job.holders else unknown).append(place)
    share.chosen[share.at : share.at + OFFER_MAX] = known + unknown
    jobs: list[Job] = []
    for place in share.chosen[share.at : share.at + share.granted]:
        job = broker.find(place[2])
        if job is None or job.terms.queue != share.work.queue:
            continue  # The job has ended or was moved.
        if is_wanted(broker, share, job):
            jobs.append(job)
        else:
            share.failed += _was_taken(broker, share, job)
    share.at += share.granted
    return jobs


def _may_go(broker: Broker, share: Share, job: Job, receiver: Node) -> bool:
    if type(job.body) is Spilled or not receiver.is_linked or not is_wanted(broker, share, job):
        return False
    return job.work is None and not handover.exchange(receiver).refuses(share.work.queue, broker.now_ms)


def _hand_over(
    broker: Broker, share: Share, receiver: Node, batch: list[Job], given: list[tuple[Job, Handover]]
) -> None:
    queue = broker.queues.get(share.work.queue)
    if queue is not None:
        queue.jobs_out += len(batch)
        queue.active_ms = broker.now_ms
    work = handover.hand_over(broker, receiver, batch)
    given += [(job, work) for job in batch]


def _rest(broker: Broker, share: Share) -> Steps:
    """Wait for ANSWER_LOOK_MS, while other work goes on."""
    broker.schedule.call_at(broker.now_ms + ANSWER_LOOK_MS, partial(wake, broker, share))
    share.is_idle = True
    yield
