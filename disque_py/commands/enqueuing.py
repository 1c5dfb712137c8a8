"""ENQUEUE, DEQUEUE, LOADJOB: jobs put into their queues and taken out of them by hand.

ENQUEUE gives an errored job fresh attempts. DEQUEUE takes a job out of its queue until its timer ends. LOADJOB is
refused: it is a record of the original's journal. The core does the work. Spec R11.
"""

from __future__ import annotations

from typing import Final

from disque_py import event_format
from disque_py.commands.id_lists import count_done
from disque_py.core import changing, events, lifecycle, pausing, requeue
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import PAUSED, CommandError
from disque_py.core.job import ACKED, ACTIVE, COUNTER_MAX, QUEUED
from disque_py.resp.replies import error


def enqueue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ENQUEUE [id ...] → number of jobs put into their queues. Refused as a whole if one of these is paused."""
    return count_done(broker, client, argv, _enqueue, _refuse_paused)


def _refuse_paused(broker: Broker, ids: list[bytes]) -> None:
    if broker.pauses.paused_count:
        for job in map(broker.find, ids):
            if job is not None and job.state != ACKED and pausing.is_paused_in(broker, job):
                raise CommandError(PAUSED)


def _enqueue(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None:
        return 0
    is_errored = job.state == ACTIVE and job.is_errored
    if not is_errored and not requeue.is_queueable(job):
        return 0
    if broker.pauses.paused_count and pausing.is_paused_in(broker, job):
        return 0  # The queue was paused since the check: other commands ran in between.
    part = job.part
    if is_errored:
        left = events.status_of(job)
        if job.deliveries < COUNTER_MAX:
            job.deliveries += 1
        events.note(broker, job, event_format.ENQUEUED, left=left)
        changing.renew(broker, job)
        requeue.release(broker, job)
        return 1
    if part is not None and part.is_spent(job.attempt):
        return 0  # Its last worker has it. When that attempt ends, the job is errored.
    if job.was_queued:
        if job.deliveries < COUNTER_MAX:
            job.deliveries += 1
        events.note(broker, job, event_format.ENQUEUED)
        requeue.release(broker, job)
    else:
        events.note(broker, job, event_format.ENQUEUED)
        lifecycle.enqueue(broker, job)
    return 1


def dequeue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DEQUEUE [id ...] → number of jobs taken out of their queues here."""
    return count_done(broker, client, argv, _dequeue)


def _dequeue(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None or job.state != QUEUED:
        return 0
    events.note(broker, job, event_format.DEQUEUED)
    lifecycle.dequeue(broker, job)
    if job.terms.retry_ms:
        job.requeue_at_ms = broker.now_ms + job.terms.retry_ms + broker.jitter()
    lifecycle.arm(broker, job)
    return 1


LOADJOB_REPLY: Final = error("ERR LOADJOB is a special command only processed from AOF")


def loadjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LOADJOB blob: refuse the original's journal record, which is never a client's command."""
    return LOADJOB_REPLY
