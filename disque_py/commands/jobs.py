"""ACKJOB, CANCELJOB, FASTACK, DELJOB, WORKING, NACK, ENQUEUE, DEQUEUE, SHOW.

Handlers read their arguments into locals, and refuse a command before it changes anything. The core does the work.
Options stand behind the ids. ATTEMPT names one delivery of one job: a command for an older delivery changes nothing.
Spec R11, Y9, Y11.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from cluster_bus.messages import QUEUED_RELEASED
from disque_py import event_format
from disque_py.commands.options import (
    ATTEMPT_MAX,
    LEASEMS_ERROR,
    MS_MAX,
    ONE_ID,
    SECONDS_MAX,
    between,
    options_at,
    read_attempt,
    read_fence,
    read_ids,
    read_lease,
    read_ms,
    value_of,
)
from disque_py.core import (
    acks,
    asking,
    changing,
    claim_stamps,
    claiming,
    deferred_reply,
    events,
    exclusive,
    fencing,
    incremental,
    lifecycle,
    pausing,
    repair,
    replication,
    requeue,
    scan,
    spilling,
    versions,
    windows,
)
from disque_py.core.broker import Broker
from disque_py.core.changeable import REASON_BYTES_MAX, Changeable, backoff_ms
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, PAUSED, SYNTAX, CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.incremental import PART
from disque_py.core.job import (
    ACKED,
    ACTIVE,
    COUNTER_MAX,
    QUEUED,
    STATE_NAMES,
    WAIT_REPL,
    Cancellation,
    Collection,
    Job,
    Replication,
)
from disque_py.core.job_attributes import BATCH
from disque_py.core.users import sees_bodies
from disque_py.resp.replies import array, bulk, bulk_array, error, integer, nil_bulk

DELAY_ERROR: Final = "ERR DELAY time must be a non negative number"
# Options behind the ids.
ACKJOB_WORDS: Final = frozenset((b"attempt", b"fence", b"result"))
CANCELJOB_WORDS: Final = frozenset((b"fence",))
RESULT_ONE_ID: Final = "ERR RESULT needs exactly one job id"
RESULT_TOO_LONG: Final = "ERR RESULT is longer than result-max-bytes"
WORKING_WORDS: Final = frozenset((b"leasems", b"attempt", b"fence"))
NACKTOKEN_WORDS: Final = frozenset((b"delay", b"delayms", b"reason"))
NACK_WORDS: Final = NACKTOKEN_WORDS | {b"final", b"attempt", b"fence"}
WORKING_ERROR: Final = "ERR WORKING must be given a number of seconds > 0"


Deed = Callable[[Broker, bytes], int]
Check = Callable[[Broker, list[bytes]], None]


def _count(broker: Broker, client: Client, argv: list[bytes], deed: Deed, check: Check | None = None) -> bytes | None:
    """Do something to each named job, and reply to how many it was done. Long lists are done in parts.

    check   raises CommandError if it may not be done to one of the jobs; then it is done to none
    """
    if len(argv) <= PART:
        ids = read_ids(argv)
        if check is not None:
            check(broker, ids)
        return integer(sum([deed(broker, job_id) for job_id in ids]))
    return incremental.begin(broker, client, _count_in_parts(broker, argv, deed, check))


def _count_in_parts(broker: Broker, argv: list[bytes], deed: Deed, check: Check | None) -> incremental.Steps:
    for at in range(1, len(argv), 8 * PART):
        if not all(map(is_valid_id, argv[at : at + 8 * PART])):
            raise CommandError(BAD_ID)  # With one bad id nothing is done.
        yield
    if check is not None:
        for at in range(1, len(argv), PART):
            check(broker, argv[at : at + PART])
            yield
    total = 0
    for at in range(1, len(argv), PART):
        total += sum([deed(broker, job_id) for job_id in argv[at : at + PART]])
        yield
    return integer(total)


def ackjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ACKJOB [id ...] → number of jobs that were known here and not acknowledged yet."""
    if len(argv) == 2:
        if not is_valid_id(argv[1]):
            raise CommandError(BAD_ID)
        if broker.exclusive.running:
            exclusive.end(broker, argv[1])
        return b":1\r\n" if acks.ack_here(broker, argv[1]) else b":0\r\n"
    first = options_at(argv, ACKJOB_WORDS)
    if first == len(argv):
        return _count(broker, client, argv, ack_one)
    attempt = fence = 0
    result: bytes | None = None
    at = first
    while at < len(argv):
        option = argv[at].lower()
        if option not in ACKJOB_WORDS:
            raise CommandError(SYNTAX)
        if option == b"result":
            result = value_of(argv, at)
        elif option == b"fence":
            fence = read_fence(value_of(argv, at))
        else:
            attempt = read_attempt(value_of(argv, at))
        at += 2
    job_id = _only_id(argv, first, ONE_ID if result is None else RESULT_ONE_ID)
    if result is not None and len(result) > broker.settings.result_max_bytes:
        raise CommandError(RESULT_TOO_LONG)
    versions.refuse_older(broker, versions.FLOWS if fence or result is not None else versions.ATTEMPTS)
    if fence:
        exclusive.refuse_fenced(broker.find(job_id), fence)
        return integer(fencing.ack(broker, job_id, fence, attempt, result))
    if result is not None:
        count = acks.ack_with_result(broker, job_id, attempt, result)
    else:
        count = acks.ack_attempt(broker, job_id, attempt)
    if count:
        exclusive.end(broker, job_id)
    return integer(count)


def ack_one(broker: Broker, job_id: bytes) -> int:
    """ACKJOB one id. Return 1 if it was known here and not acknowledged yet. The claim of its delivery ends."""
    if broker.exclusive.running:
        exclusive.end(broker, job_id)
    return acks.ack_here(broker, job_id)


def _only_id(argv: list[bytes], first: int, text: str = ONE_ID) -> bytes:
    """Return the only id of a command with ATTEMPT or FENCE, whose options begin at `first`. CommandError."""
    read_ids(argv[:first])
    if first != 2:
        raise CommandError(text)
    return argv[1]


def canceljob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """CANCELJOB id [id ...] → number of jobs that were known, here or on another node, and not over."""
    first = options_at(argv, CANCELJOB_WORDS)
    if first < len(argv):
        return _cancel_fenced(broker, client, argv, first)
    ids = read_ids(argv) if len(argv) <= PART else []
    versions.refuse_older(broker)
    if ids and None not in map(broker.find, ids):
        return integer(sum([acks.cancel_here(broker, job_id) for job_id in ids]))
    return incremental.begin(broker, client, _cancel_in_parts(broker, client, argv))


def _cancel_fenced(broker: Broker, client: Client, argv: list[bytes], first: int) -> bytes | None:
    """CANCELJOB id FENCE n: the claim of that delivery ends, too. Spec EX5, EX6."""
    fence = 0
    for at in range(first, len(argv), 2):
        if argv[at].lower() not in CANCELJOB_WORDS:
            raise CommandError(SYNTAX)
        fence = read_fence(value_of(argv, at))
    job_id = _only_id(argv, first)
    versions.refuse_older(broker, versions.FLOWS)
    if broker.find(job_id) is not None:
        return integer(_not_fenced(fencing.cancel(broker, job_id, fence)))
    return incremental.begin(broker, client, _cancel_fenced_elsewhere(broker, client, job_id, fence))


def _cancel_fenced_elsewhere(broker: Broker, client: Client, job_id: bytes, fence: int) -> incremental.Steps:
    answers = yield from asking.ask(broker, client, [job_id], asking.CANCEL, [b"%d" % fence])
    if job_id in answers.done:
        return integer(_not_fenced(answers.done[job_id]))
    return integer(acks.cancel_here(broker, job_id) if answers.known.get(job_id) != asking.OVER else 0)


def _not_fenced(count: int) -> int:
    """Return a number of canceled jobs. CommandError if the holder knows a later claim."""
    if count == fencing.IS_FENCED:
        raise CommandError(exclusive.FENCED)
    return count


def _cancel_in_parts(broker: Broker, client: Client, argv: list[bytes]) -> incremental.Steps:
    for at in range(1, len(argv), 8 * PART):
        if not all(map(is_valid_id, argv[at : at + 8 * PART])):
            raise CommandError(BAD_ID)
        if at > 1:
            yield
    total = 0
    for at in range(1, len(argv), PART):
        if at > 1:
            yield
        elsewhere: list[bytes] = []
        for job_id in dict.fromkeys(argv[at : at + PART]):
            if broker.find(job_id) is not None:
                total += acks.cancel_here(broker, job_id)
            elif job_id not in broker.tombstones:
                elsewhere.append(job_id)
        answers = yield from asking.ask(broker, client, elsewhere, asking.CANCEL, [])
        for job_id in elsewhere:
            if job_id in answers.done:
                total += answers.done[job_id]
            elif answers.known.get(job_id) != asking.OVER:
                # No node knows it, or its holder died or stands still: the cancellation is remembered here.
                total += acks.cancel_here(broker, job_id)
    return integer(total)


def fastack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """FASTACK [id ...] → number of jobs deleted here. Other nodes delete their copies, best effort."""
    return _count(broker, client, argv, _fast_ack)


def _fast_ack(broker: Broker, job_id: bytes) -> int:
    if broker.exclusive.running:
        exclusive.end(broker, job_id)
    return acks.fast_ack(broker, job_id)


def deljob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DELJOB [id ...] → number of jobs deleted here. Other nodes are not told."""
    return _count(broker, client, argv, _delete)


def _delete(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None:
        return 0
    if job.holders is broker.sets.mine:
        events.ended(broker, job, event_format.DELETED)
    elif job.state == QUEUED:
        events.note(broker, job, event_format.DELETED_COPY)  # Another holder will queue the job.
    replication.remove(broker, job)
    return 1


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
    claims, holder = exclusive.renewable(broker, job, work.fence)
    found: list[exclusive.Renewal] = []

    def start(done: deferred_reply.Done) -> None:
        renewal = exclusive.Renewal(broker, work.lease_ms, partial(done, None))
        found.append(renewal)
        renewal.begin(claims, holder)

    def reply(_: OSError | None) -> bytes:
        until_ms = found[0].until_ms
        if not until_ms:
            raise CommandError(claiming.REASONS[claiming.NO_MAJORITY])
        _workable(broker, job.id, work.attempt, work.fence)
        lease_ms = min(work.lease_ms, until_ms - broker.now_ms)
        _extend(broker, job, lease_ms)
        exclusive.renewed(broker, job, broker.now_ms + lease_ms)
        return integer(-(-work.lease_ms // work.unit_ms))

    return deferred_reply.begin(broker, client, start, reply)


def _workable(broker: Broker, job_id: bytes, attempt: int, fence: int) -> Job:
    """Return the job of a WORKING, if its lease may be extended. CommandError."""
    job = broker.find(job_id)
    if job is None:
        exclusive.end_over(broker, job_id, fence)
        raise CommandError("NOJOB Job not known in the context of this node.")
    exclusive.refuse_fenced(job, fence)
    if job.state == ACKED:
        exclusive.end_over(broker, job_id, fence)
        if isinstance(job.work, Cancellation):
            raise CommandError("CANCELED The job was canceled")
        raise CommandError("NOJOB Job already acknowledged.")
    part = job.part
    if attempt and (acks.is_stale(job, attempt) or (part is not None and part.ended >= attempt)):
        raise CommandError("STALE A later delivery of the job is known")
    if part is not None and (part.is_errored or (part.is_spent(job.attempt) and job.state == QUEUED)):
        raise CommandError("NOJOB No attempts of the job are left. ENQUEUE gives it fresh ones.")
    if job.is_half_over(broker.now_ms, broker.wall_ms):
        raise CommandError(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
        )
    return job


def _extend(broker: Broker, job: Job, lease_ms: int) -> None:
    """Let the lease of a job last so long from now."""
    part = job.part
    if job.state != WAIT_REPL:
        if job.state == QUEUED:
            lifecycle.dequeue(broker, job)
        if broker.pauses.deferred:
            broker.pauses.deferred.pop(job, None)
        job.work = None
        if part is not None:
            part.is_delayed = False
        if events.status_of(job) != event_format.RUNNING:
            events.note(broker, job, event_format.WORKING)
        job.is_leased_here = True
        lifecycle.extend(broker, job, lease_ms)
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
        return _count(broker, client, argv, nack_one)
    how = read_nack_words(argv, first, NACK_WORDS)
    if how.attempt or how.fence:
        job_id = _only_id(argv, first)
        exclusive.refuse_fenced(broker.find(job_id), how.fence)
    versions.refuse_older(broker, versions.FLOWS if how.fence else versions.ATTEMPTS)

    def nack_so(broker: Broker, job_id: bytes) -> int:
        return nack_one(broker, job_id, how)

    return _count(broker, client, argv[:first], nack_so)


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
    elif broker.exclusive.running and (count or _is_over(broker, job_id)):
        exclusive.end(broker, job_id)
    return count


def _is_over(broker: Broker, job_id: bytes) -> bool:
    job = broker.find(job_id)
    return job is None or job.state == ACKED


def _nack_one(broker: Broker, job_id: bytes, how: NackWords | None) -> int:
    job = broker.find(job_id)
    if job is None or not requeue.is_queueable(job):
        return 0
    part = job.part
    if how is not None and how.attempt:
        if acks.is_stale(job, how.attempt) or (part is not None and part.ended >= how.attempt):
            return 0
    if job.nacks < COUNTER_MAX:
        job.nacks += 1
    if job.terms.retry_ms and (how is not None or part is not None or broker.queue_settings.in_force):
        return _give_back(broker, job, how if how is not None else NackWords())
    if pausing.is_paused_in(broker, job):
        events.note(broker, job, event_format.NACKED_INVISIBLE)
        pausing.defer(broker, job)
        lifecycle.mark_dirty(broker, job)
    else:
        events.note(broker, job, event_format.NACKED)
        requeue.release(broker, job)
    broker.stats.jobs_nacked += 1
    return 1


def _learn_attempt(broker: Broker, job: Job, attempt: int) -> int:
    """Note a delivery that a client names, before the node that made it does. Return how many were not heard of."""
    unheard = min(attempt, ATTEMPT_MAX) - job.attempt
    if unheard <= 0:
        return 0
    job.attempt += unheard
    lifecycle.mark_dirty(broker, job)
    return unheard


def _may_be_delivered(broker: Broker, job: Job, part: Changeable) -> bool:
    """Whether another node may have delivered the job just now, and this node has not heard of it yet.

    It can't while the job is delayed, or waits here for the end of a pause, or if no other node holds it.
    """
    if not job.was_queued or job.holders is broker.sets.mine or (part.is_delayed and part.due_ms > broker.now_ms):
        return False
    if job.terms.delay_ms and not job.attempt and job.requeue_at_ms > broker.now_ms + job.terms.retry_ms:
        return False  # The DELAY of its ADDJOB is not over.
    return broker.pauses.deferred.get(job) != job.requeue_at_ms


def _give_back(broker: Broker, job: Job, how: NackWords) -> int:
    """Give a job back whose attempts, back-off or options decide about the next delivery. Spec Y4, Y6."""
    part = job.part
    broker.stats.jobs_nacked += 1
    unheard = 0
    if how.attempt:
        unheard = _learn_attempt(broker, job, how.attempt)
    elif part is not None and part.limit and not job.is_leased_here and part.ended >= job.attempt:
        # A worker gives back a delivery of which this node has not heard yet: without it one more would be allowed.
        if _may_be_delivered(broker, job, part):
            unheard = _learn_attempt(broker, job, job.attempt + 1)
    if unheard:
        # This change is later than that of a lease that ended before the delivery.
        part = changing.begin(broker, job)
        part.number += min(unheard, changing.UNHEARD_MAX)
    if how.is_final or (part is not None and part.is_spent(job.attempt)):
        if changing.give_up(broker, job, how.reason):
            requeue.tell_queued(broker, job, QUEUED_RELEASED)
        return 1
    delay_ms = how.delay_ms
    if delay_ms < 0:
        policy = part.backoff if part is not None else b""
        spent = job.attempt - part.start if part is not None else job.attempt
        delay_ms = backoff_ms(policy or broker.queue_settings.of(job.terms.queue).backoff, spent, broker.rng)
    is_paused = pausing.is_paused_in(broker, job)
    events.note(broker, job, event_format.NACKED_INVISIBLE if delay_ms or is_paused else event_format.NACKED)
    if part is not None or delay_ms or how.reason is not None or how.attempt:
        part = changing.begin(broker, job)
        part.error = how.reason
        part.ended = max(part.ended, job.attempt)
        if delay_ms:
            job.work = None
            changing.delay(broker, job, part, delay_ms)
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


def enqueue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ENQUEUE [id ...] → number of jobs put into their queues. Refused as a whole if one of these is paused."""
    return _count(broker, client, argv, _enqueue, _refuse_paused)


def _refuse_paused(broker: Broker, ids: list[bytes]) -> None:
    if broker.pauses.paused_count:
        for job in map(broker.find, ids):
            if job is None or not pausing.is_paused_in(broker, job):
                continue
            if requeue.is_queueable(job) or (job.state == ACTIVE and job.is_errored):
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
        return 0  # It is with its last worker; afterwards it is errored.
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
    return _count(broker, client, argv, _dequeue)


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


def show(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHOW id → the job's fields as known here, or nil. queues.py has SHOW id CLUSTER."""
    if not is_valid_id(argv[1]):
        raise CommandError(BAD_ID)
    job = broker.find(argv[1])
    if job is None:
        return nil_bulk(client.protocol)
    body = job.body
    if type(body) is not bytes:
        return incremental.begin(broker, client, _show_from_disk(broker, client, job))
    return describe(broker, client, job, body)


def _show_from_disk(broker: Broker, client: Client, job: Job) -> incremental.Steps:
    bodies = yield from spilling.borrowed(broker, client, (job,))
    if broker.find(job.id) is not job:
        return nil_bulk(client.protocol)
    return describe(broker, client, job, bodies.get(job, b""))


def describe(broker: Broker, client: Client, job: Job, body: bytes) -> bytes:
    """Return the reply of SHOW for this client."""
    return described(broker, client.protocol, job, body, shows_body=sees_bodies(client))


def described(broker: Broker, protocol: int, job: Job, body: bytes, *, shows_body: bool = True) -> bytes:
    """Return the reply of SHOW: the original's fifteen pairs, then our own (spec R8). Bodies: spec US2."""
    nil = nil_bulk(protocol)
    is_dummy = job.is_dummy
    now_ms = broker.now_ms
    confirmed: list[bytes] = []
    if isinstance(job.work, Replication | Collection):
        confirmed = broker.sets.names(job.work.confirmed)
        if job.state == ACKED:
            confirmed.append(broker.me.name)
    if job.state == QUEUED:
        requeue_ms = job.terms.retry_ms or None
    elif job.state == ACTIVE and job.requeue_at_ms:
        requeue_ms = max(0, job.requeue_at_ms - now_ms)
    else:
        requeue_ms = None
    # A timer beyond the schedule's horizon is not set yet, but its time is known.
    awake_at_ms = job.awake_at_ms or min(job.expire_at_ms, job.requeue_at_ms or job.expire_at_ms)
    awake_ms = max(0, awake_at_ms - now_ms)
    part = job.part
    left = None if part is None else part.attempts_left(job.attempt)
    error_text = changing.error_of(job)
    topic = job.terms.topic
    fields = (
        ("id", bulk(job.id)),
        ("queue", nil if is_dummy else bulk(job.terms.queue)),
        ("state", bulk(STATE_NAMES[job.state])),
        ("repl", integer(job.terms.replicate)),
        ("ttl", integer(max(0, -((now_ms - job.expire_at_ms) // 1000)))),
        ("ctime", integer(job.ctime)),
        ("delay", integer(-(-job.terms.delay_ms // 1000))),
        ("retry", integer(-(-job.terms.retry_ms // 1000))),
        ("nacks", integer(job.nacks)),
        ("additional-deliveries", integer(job.deliveries)),
        ("nodes-delivered", bulk_array(broker.sets.names(job.holders))),
        ("nodes-confirmed", bulk_array(confirmed)),
        ("next-requeue-within", nil if requeue_ms is None else integer(requeue_ms)),
        ("next-awake-within", integer(awake_ms)),
        ("body", nil if is_dummy or not shows_body else bulk(body)),
        ("attempt", integer(job.attempt)),
        ("leased", integer(int(job.is_leased_here and job.requeue_at_ms > now_ms))),
        ("priority", integer(job.priority)),
        ("meta", bulk_array(job.meta if shows_body else ())),
        ("status", bulk(event_format.STATUS_NAMES[scan.shown_status(broker, job)] or "")),
        ("attempts", integer(0 if part is None else part.limit)),
        ("attempts-left", nil if left is None else integer(left)),
        ("error", nil if error_text is None else bulk(error_text)),
        ("backoff", nil if part is None or not part.backoff else bulk(part.backoff)),
        ("delay-ms", integer(job.terms.delay_ms)),
        ("retry-ms", integer(job.terms.retry_ms)),
        ("ttl-ms", integer(max(0, job.expire_at_ms - now_ms))),
        ("copies", integer(repair.copies_of(broker, job))),
        ("repairing", integer(int(repair.is_repairing(broker, job)))),
        *_shown_flows(broker, job, nil, shows_body=shows_body),
        ("topic", nil if topic is None else bulk(topic)),
        ("key-window-ms", nil if windows.number(job) is None else integer(windows.left_ms(job, now_ms))),
    )
    return array([part for name, value in fields for part in (bulk(name), value)])


def _shown_flows(broker: Broker, job: Job, nil: bytes, *, shows_body: bool) -> tuple[tuple[str, bytes], ...]:
    """Return the pairs of progress, result and batch."""
    progress = broker.progress.get(job)
    result = broker.results.get(job.id) if job.state == ACKED else None
    batch: bytes | None = None if job.attributes is None else job.attributes.extra(BATCH)
    return (
        ("progress", nil if progress is None else integer(progress.percent)),
        ("progress-text", nil if progress is None or not progress.text or not shows_body else bulk(progress.text)),
        ("result", nil if result is None or not shows_body else bulk(result)),
        ("batch", nil if batch is None else bulk(batch)),
    )


LOADJOB_REPLY: Final = error("ERR LOADJOB is a special command only processed from AOF")


def loadjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LOADJOB blob: refuse the original's journal record, which is never a client's command."""
    return LOADJOB_REPLY
