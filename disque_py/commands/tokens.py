"""ACKTOKEN, NACKTOKEN, EXTENDTOKEN: do the work of ACKJOB, NACK and WORKING for all jobs of a delivery.

A token is known on the node that answered the GETJOB, as long as one of its leases runs (core/tokens.py). An unknown
token counts 0. Spec G1, G2, G3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from disque_py.commands.attempts import NACKTOKEN_WORDS, nack_one, read_nack_words
from disque_py.commands.ending import ack_one
from disque_py.commands.options import LEASE_ERROR, options_at, read_lease
from disque_py.core import claim_stamps, exclusive, incremental, lifecycle, requeue, stalling, versions
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.incremental import PART
from disque_py.core.job import Job
from disque_py.resp.replies import integer

Action = Callable[[Broker, Job], int]

EXTEND_ERROR: Final = LEASE_ERROR.replace("LEASE", "EXTENDTOKEN")


def acktoken(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ACKTOKEN token [token ...] → number of jobs acknowledged."""
    return incremental.begin(broker, client, _to_all(broker, argv[1:], _ack))


def nacktoken(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """NACKTOKEN token [token ...] [DELAY sec] [REASON text] → number of jobs that were given back."""
    first = options_at(argv, NACKTOKEN_WORDS)
    if first in (1, len(argv)):
        return incremental.begin(broker, client, _to_all(broker, argv[1:], _nack))
    how = read_nack_words(argv, first, NACKTOKEN_WORDS)
    versions.refuse_older(broker)

    def nack_job(broker: Broker, job: Job) -> int:
        broker.tokens.drop(job)
        return nack_one(broker, job.id, how)

    return incremental.begin(broker, client, _to_all(broker, argv[1:first], nack_job))


def extendtoken(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """EXTENDTOKEN token seconds → number of leases that last this long from now."""
    lease_ms = read_lease(argv[2], EXTEND_ERROR)

    claimed: list[Job] = []

    def extend(broker: Broker, job: Job) -> int:
        if job.is_half_over(broker.now_ms, broker.wall_ms):
            return 0  # WORKING refuses it, too (spec L7).
        if job.id in broker.exclusive.running and claim_stamps.stamp_of(job) is not None:
            claimed.append(job)
            return 0
        _extend(broker, job, lease_ms)
        return 1

    return incremental.begin(broker, client, _extend_all(broker, client, argv[1:2], extend, claimed, lease_ms))


def _extend_all(
    broker: Broker, client: Client, names: list[bytes], extend: Action, claimed: list[Job], lease_ms: int
) -> incremental.Steps:
    """Extend the leases of a token's jobs. Those under a claim follow when a majority renewed it. Spec EX5."""
    running = broker.exclusive.running
    if running and any(job.id in running for name in names for job in broker.tokens.held(name)):
        exclusive.refuse_long(broker, lease_ms)
    total = yield from _counted(broker, names, extend)
    renewals: list[tuple[Job, exclusive.Renewal]] = []
    claimed = [job for job in claimed if claim_stamps.stamp_of(job) is not None]  # Others have moved meanwhile.
    left = [len(claimed)]

    def renewed() -> None:
        left[0] -= 1
        if not left[0]:
            stalling.resume_client_now(broker, client)

    for job in claimed:
        renewal = exclusive.Renewal(broker, job, 0, lease_ms)
        renewals.append((job, renewal))
        renewal.begin(renewed)
    yield from stalling.until(broker, client, lambda: not left[0])
    for job, renewal in renewals:
        span_ms = min(lease_ms, renewal.until_ms - broker.now_ms)
        is_running = job.id in broker.exclusive.running and job.is_leased_here and not renewal.is_over(job)
        if span_ms > 0 and is_running:
            _extend(broker, job, span_ms)
            exclusive.renewed(broker, job, broker.now_ms + span_ms)
            total += 1
    return integer(total)


def _extend(broker: Broker, job: Job, lease_ms: int) -> None:
    """Let the lease of a job last this long from now, and its slot of a cap as long (spec CP1)."""
    lifecycle.extend(broker, job, lease_ms)
    if broker.caps.limits:
        broker.caps.extended(job, job.requeue_at_ms)
    requeue.tell_leased(broker, job)


def _to_all(broker: Broker, names: list[bytes], action: Action) -> incremental.Steps:
    """Do something to each job that is leased under one of the tokens; reply to how many it was done."""
    return integer((yield from _counted(broker, names, action)))


def _counted(broker: Broker, names: list[bytes], action: Action) -> Generator[None, None, int]:
    """Do something to each job that is leased under one of the tokens, PART at a time; return to how many."""
    tokens = broker.tokens
    total = done = 0
    for name in names:
        done += 1
        if done >= PART:
            done = 0
            yield
        token = tokens.by_name.get(name)
        if token is None:
            continue
        jobs = tokens.held(name)
        for at in range(0, len(jobs), PART):
            if at:
                yield
            part = jobs[at : at + PART]
            done += len(part)
            for job in part:
                # Other commands ran since the last part. Jobs that left the token then are skipped.
                if tokens.by_job.get(job) is token and tokens.is_held(job, token.jobs[job]):
                    total += action(broker, job)
    return total


def _ack(broker: Broker, job: Job) -> int:
    return ack_one(broker, job.id)


def _nack(broker: Broker, job: Job) -> int:
    broker.tokens.drop(job)
    return nack_one(broker, job.id)
