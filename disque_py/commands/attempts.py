"""WORKING and NACK: commands about the attempt that a consumer is making.

WORKING extends the lease of a delivery. NACK gives the job back: it is queued again, delayed, or errored if no attempts
are left. ATTEMPT and FENCE name one delivery: a command for an older one changes nothing. A delivery under a claim has
its claim renewed by a majority of the voters before its lease is extended. Spec R11, Y4, Y6, Y9, Y11, EX5.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from cluster_bus.messages import QUEUED_RELEASED
from disque_py import event_format
from disque_py.commands.id_lists import count_done, only_id
from disque_py.commands.options import (
    ATTEMPT_MAX,
    LEASEMS_ERROR,
    MS_MAX,
    SECONDS_MAX,
    between,
    options_at,
    read_attempt,
    read_fence,
    read_lease,
    read_ms,
    value_of,
)
from disque_py.core import (
    changing,
    claim_stamps,
    claiming,
    client_acks,
    deferred_reply,
    events,
    exclusive,
    lifecycle,
    pausing,
    requeue,
    versions,
)
from disque_py.core.broker import Broker
from disque_py.core.changeable import REASON_BYTES_MAX, Changeable, backoff_ms
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, SYNTAX, CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED, COUNTER_MAX, QUEUED, WAIT_REPL, Cancellation, Job
from disque_py.resp.replies import integer

DELAY_ERROR: Final = "ERR DELAY time must be a non negative number"
WORKING_WORDS: Final = frozenset((b"leasems", b"attempt", b"fence"))
NACKTOKEN_WORDS: Final = frozenset((b"delay", b"delayms", b"reason"))
NACK_WORDS: Final = NACKTOKEN_WORDS | {b"final", b"attempt", b"fence"}
WORKING_ERROR: Final = "ERR WORKING must be given a number of seconds > 0"


def working(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """WORKING id [seconds] [LEASEMS ms] [ATTEMPT n] [FENCE n] → time from now by which the next delivery is postponed.

    That is the time given, or RETRY: in seconds, rounded up, or in milliseconds after LEASEMS.
    """
    job_id = argv[1]
    lease_ms = attempt = fence = 0
    unit_ms = 1000
    at = 2
    while at < len(argv):
        word = argv[at].lower()
        if word == b"leasems":
            lease_ms = between(value_of(argv, at), 1, MS_MAX, LEASEMS_ERROR)
            unit_ms = 1
        elif word == b"attempt":
            attempt = read_attempt(value_of(argv, at))
        elif word == b"fence":
            fence = read_fence(value_of(argv, at))
        elif at == 2 and (len(argv) == 3 or argv[3].lower() in WORKING_WORDS):
            lease_ms = read_lease(argv[2], WORKING_ERROR)
            at -= 1
        else:
            raise CommandError(SYNTAX)
        at += 2
    if not is_valid_id(job_id):
        raise CommandError(BAD_ID)
    job = _workable(broker, job_id, attempt, fence)
    if not job.terms.retry_ms:
        return integer(0)
    if attempt:
        _learn_attempt(broker, job, attempt)
    lease_ms = lease_ms or job.terms.retry_ms
    if claim_stamps.stamp_of(job) is not None and job.state != WAIT_REPL:
        if fence:
            versions.refuse_older(broker, versions.FLOWS)
        return _renew(broker, client, job, Work(lease_ms, unit_ms, attempt, fence))
    _extend(broker, job, lease_ms)
    return integer(-(-lease_ms // unit_ms))


class Work(NamedTuple):
    """The words of a WORKING: its lease, the unit of the reply, ATTEMPT and FENCE (0: not given)."""

    lease_ms: int
    unit_ms: int
    attempt: int
    fence: int


def _renew(broker: Broker, client: Client, job: Job, work: Work) -> bytes | None:
    """Renew the claim of a delivery at a majority of the voters, before the lease is extended. Spec EX5."""
    exclusive.refuse_long(broker, work.lease_ms)
    renewal = exclusive.Renewal(broker, job, work.fence, work.lease_ms)

    def start(done: deferred_reply.Done) -> None:
        renewal.begin(partial(done, None))

    def reply(_: OSError | None) -> bytes:
        if renewal.is_denied and not renewal.is_ended:
            _workable(broker, job.id, work.attempt, work.fence)  # Its errors say more.
            raise CommandError(exclusive.DENIED)
        if not renewal.until_ms and not renewal.is_ended:
            raise CommandError(claiming.REASONS[claiming.NO_MAJORITY])
        again = _workable(broker, job.id, work.attempt, work.fence)
        if renewal.is_over(again):
            raise CommandError(exclusive.NO_CLAIM)  # E.g. a NACK of the same worker came meanwhile.
        lease_ms = min(work.lease_ms, renewal.until_ms - broker.now_ms)
        _extend(broker, again, lease_ms)
        exclusive.renewed(broker, again, broker.now_ms + lease_ms)
        return integer(-(-lease_ms // work.unit_ms))

    return deferred_reply.begin(broker, client, start, reply)


def held_job(broker: Broker, job_id: bytes, attempt: int, fence: int) -> Job:
    """Return the job that a worker holds, for a WORKING or a PROGRESS. CommandError if the worker has it no more."""
    job = broker.find(job_id)
    if job is None:
        if client_acks.ends_claim(broker, job_id, attempt):
            exclusive.end_heard(broker, None, job_id, fence)
        raise CommandError("NOJOB Job not known in the context of this node.")
    exclusive.refuse_fenced(job, fence)
    if job.state == ACKED:
        if client_acks.ends_claim(broker, job_id, attempt):
            exclusive.end_heard(broker, job, job_id, fence)
        if isinstance(job.work, Cancellation):
            raise CommandError("CANCELED The job was canceled")
        raise CommandError("NOJOB Job already acknowledged.")
    part = job.part
    if attempt and (client_acks.is_stale(job, attempt) or (part is not None and part.ended >= attempt)):
        raise CommandError("STALE A later delivery of the job is known")
    if part is not None and (part.is_errored or (part.is_spent(job.attempt) and job.state == QUEUED)):
        raise CommandError("NOJOB No attempts of the job are left. ENQUEUE gives it fresh ones.")
    return job


def _workable(broker: Broker, job_id: bytes, attempt: int, fence: int) -> Job:
    """Return the job of a WORKING, if its lease may be extended. CommandError."""
    job = held_job(broker, job_id, attempt, fence)
    if job.is_half_over(broker.now_ms, broker.wall_ms):
        raise CommandError(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
        )
    return job


def _extend(broker: Broker, job: Job, lease_ms: int) -> None:
    """Let the lease of a job last this long from now."""
    part = job.part
    if job.state != WAIT_REPL:
        if job.state == QUEUED:
            lifecycle.dequeue(broker, job)
        if broker.pauses.deferred:
            broker.pauses.deferred.pop(job, None)
        job.work = None
        if part is not None and part.is_delayed:
            part.is_delayed = False
            part.ended = min(part.ended, max(0, job.attempt - 1))  # The delivery that a NACK had ended goes on.
            changing.change(broker, job)
        if events.status_of(job) != event_format.RUNNING:
            events.note(broker, job, event_format.WORKING)
        job.is_leased_here = True
        lifecycle.extend(broker, job, lease_ms)
        if broker.caps.limits:
            broker.caps.extended(job, job.requeue_at_ms)
        requeue.tell_leased(broker, job)


class NackWords:
    """The options of a NACK.

    delay_ms   DELAY, DELAYMS; -1: none, so the back-off decides
    reason     REASON; None: none
    is_final   FINAL
    attempt    ATTEMPT; 0: whichever delivery it is
    fence      FENCE; 0: not given
    """

    __slots__ = ("attempt", "delay_ms", "fence", "is_final", "reason")

    def __init__(self) -> None:
        self.delay_ms = -1
        self.reason: bytes | None = None
        self.is_final = False
        self.attempt = 0
        self.fence = 0


def read_nack_words(argv: list[bytes], at: int, words: frozenset[bytes]) -> NackWords:
    """Return the options from `at` on; only those of `words` are allowed. CommandError."""
    how = NackWords()
    while at < len(argv):
        word = argv[at].lower()
        if word not in words:
            raise CommandError(SYNTAX)
        if word == b"final":
            how.is_final = True
            at += 1
            continue
        value = value_of(argv, at)
        if word == b"delay":
            how.delay_ms = 1000 * between(value, 0, SECONDS_MAX, DELAY_ERROR)
        elif word == b"delayms":
            how.delay_ms = read_ms("DELAYMS", value)
        elif word == b"reason":
            if len(value) > REASON_BYTES_MAX:
                raise CommandError(f"ERR REASON must have at most {REASON_BYTES_MAX} bytes")
            how.reason = value
        elif word == b"fence":
            how.fence = read_fence(value)
        else:
            how.attempt = read_attempt(value)
        at += 2
    return how


def nack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """NACK [id ...] [option ...] → number of jobs that were given back. Their nacks counters grow."""
    first = options_at(argv, NACK_WORDS)
    if first == len(argv):
        return count_done(broker, client, argv, nack_one)
    how = read_nack_words(argv, first, NACK_WORDS)
    if how.attempt or how.fence:
        job_id = only_id(argv, first)
        exclusive.refuse_fenced(broker.find(job_id), how.fence)
    versions.refuse_older(broker, versions.FLOWS if how.fence else versions.ATTEMPTS)

    def nack_job(broker: Broker, job_id: bytes) -> int:
        return nack_one(broker, job_id, how)

    return count_done(broker, client, argv[:first], nack_job)


def nack_one(broker: Broker, job_id: bytes, how: NackWords | None = None) -> int:
    """NACK one id. Return 1 if it was given back: it is queued, delayed, errored or a dead letter.

    The claim of its delivery ends. Spec EX5.
    """
    count = _nack_one(broker, job_id, how)
    if how is not None and how.fence:
        job = broker.find(job_id)
        exclusive.end_over(broker, job_id, how.fence)
        if job is not None:
            exclusive.learn_fence(broker, job, how.fence)
    elif broker.exclusive.running:
        attempt = how.attempt if how is not None else 0
        if count or client_acks.ends_claim(broker, job_id, attempt):
            exclusive.end(broker, job_id)
    return count


def _nack_one(broker: Broker, job_id: bytes, how: NackWords | None) -> int:
    job = broker.find(job_id)
    if job is None or not requeue.is_queueable(job):
        return 0
    part = job.part
    if how is not None and how.attempt:
        if client_acks.is_stale(job, how.attempt) or (part is not None and part.ended >= how.attempt):
            return 0
    if job.nacks < COUNTER_MAX:
        job.nacks += 1
    is_paused = pausing.is_paused_in(broker, job)
    is_special = how is not None or part is not None or bool(broker.queue_settings.in_force)
    if is_paused and not is_special:  # Older nodes do not know the message that ends a lease elsewhere.
        is_special = versions.older_node(broker, versions.ATTEMPTS) is None
    if is_special and job.terms.retry_ms:
        return _give_back(broker, job, how if how is not None else NackWords(), is_paused=is_paused)
    if is_paused:
        events.note(broker, job, event_format.NACKED_INVISIBLE)
        pausing.defer(broker, job)
        lifecycle.mark_dirty(broker, job)
    else:
        events.note(broker, job, event_format.NACKED)
        requeue.release(broker, job)
    broker.stats.jobs_nacked += 1
    return 1


def _learn_attempt(broker: Broker, job: Job, attempt: int) -> int:
    """Note a delivery that a client names. Return how many deliveries up to it this node had not heard of.

    A number that is far too high must not use up the numbers of later deliveries, so few are learned at a time.
    """
    unheard = min(min(attempt, ATTEMPT_MAX) - job.attempt, changing.UNHEARD_MAX)
    if unheard <= 0:
        return 0
    job.attempt += unheard
    lifecycle.mark_dirty(broker, job)
    return unheard


def _is_unheard(job: Job, part: Changeable | None, *, is_kept: bool) -> bool:
    """Return whether a NACK proves a delivery by another node, of which this node has not heard. Spec Y4, Y6.

    This is so for a job with a limit, because otherwise one attempt too many would be allowed. It is also so if the job
    is not queued at once (`is_kept`), because of a delay or a pause, or because its attempts end. Otherwise the node
    that made the delivery would take the change for the NACK of an earlier one, and keep its lease. The history of a
    dead letter would lack the attempt.
    """
    if part is not None and part.limit:
        return part.ended >= job.attempt
    return is_kept and events.status_of(job) != event_format.RUNNING


def _may_be_elsewhere(broker: Broker, job: Job, part: Changeable | None) -> bool:
    """Return whether another node may have delivered the job without this node having heard of the delivery.

    It can't have done so while the job is delayed, or waits here for the end of a pause, or if no other node holds it.
    """
    if job.is_leased_here or not job.was_queued or job.holders is broker.sets.mine:
        return False
    if part is not None and part.is_delayed and part.due_ms > broker.now_ms:
        return False
    if job.terms.delay_ms and not job.attempt and job.requeue_at_ms > broker.now_ms + job.terms.retry_ms:
        return False  # The DELAY of its ADDJOB is not over.
    return broker.pauses.deferred.get(job) != job.requeue_at_ms


def _give_back(broker: Broker, job: Job, how: NackWords, *, is_paused: bool) -> int:
    """Give a job back whose attempts, back-off or options decide about the next delivery. Spec Y4, Y6."""
    part = job.part
    broker.stats.jobs_nacked += 1
    policy = b""
    if how.delay_ms < 0:
        policy = (part.backoff if part is not None else b"") or broker.queue_settings.of(job.terms.queue).backoff
    is_elsewhere = _may_be_elsewhere(broker, job, part)
    unheard = 0
    is_kept = how.is_final or is_paused or bool(policy) or how.delay_ms > 0
    if how.attempt:
        unheard = _learn_attempt(broker, job, how.attempt)
    elif is_elsewhere and _is_unheard(job, part, is_kept=is_kept):
        unheard = _learn_attempt(broker, job, job.attempt + 1)
    if unheard:
        # This change is later than that of a lease that ended before the delivery.
        part = changing.begin(broker, job)
        part.number += unheard
    if how.is_final or (part is not None and part.is_spent(job.attempt)):
        if changing.give_up(broker, job, how.reason):
            requeue.tell_queued(broker, job, QUEUED_RELEASED)
        return 1
    delay_ms = how.delay_ms
    if delay_ms < 0:
        spent = job.attempt - part.start if part is not None else job.attempt
        delay_ms = backoff_ms(policy, spent, broker.rng)
    code = event_format.NACKED_INVISIBLE if delay_ms or is_paused else event_format.NACKED
    events.note(broker, job, code, {"error": how.reason.decode("utf-8", "replace")} if how.reason else None)
    is_told = is_paused and (is_elsewhere or unheard > 0)
    if part is not None or delay_ms or is_told or how.reason is not None or how.attempt:
        part = changing.begin(broker, job)
        part.error = how.reason
        part.ended = max(part.ended, job.attempt)
        # The message about a delay ends the lease on other nodes. The end of the pause ends the delay.
        is_held = is_told and not delay_ms
        told_ms = job.terms.retry_ms if is_held else delay_ms
        if told_ms:
            job.work = None
            changing.delay(broker, job, part, told_ms, is_held=is_held)
        changing.change(broker, job)
    if delay_ms:
        if broker.tokens.by_job:
            broker.tokens.drop(job)
    elif is_paused:
        pausing.defer(broker, job)
        lifecycle.mark_dirty(broker, job)
    else:
        requeue.release(broker, job)
    return 1
