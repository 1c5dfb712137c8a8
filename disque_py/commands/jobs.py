"""ACKJOB, FASTACK, DELJOB, WORKING, NACK, ENQUEUE, DEQUEUE, SHOW.

Handlers read their arguments into locals, and refuse a command before it changes anything. The core does the work.
Spec R11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from disque_py import event_format
from disque_py.commands.options import read_ids, read_lease
from disque_py.core import acks, events, incremental, lifecycle, pausing, replication, requeue, spilling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, PAUSED, SYNTAX, CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.incremental import PART
from disque_py.core.job import ACKED, ACTIVE, QUEUED, STATE_NAMES, WAIT_REPL, Collection, Job, Replication
from disque_py.core.job_snapshot import COUNTER_MAX
from disque_py.resp.replies import array, bulk, bulk_array, error, integer, nil_bulk

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
        return b":1\r\n" if acks.ack_here(broker, argv[1]) else b":0\r\n"
    return _count(broker, client, argv, acks.ack_here)


def fastack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """FASTACK [id ...] → number of jobs deleted here. Other nodes delete their copies, best effort."""
    return _count(broker, client, argv, acks.fast_ack)


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


def working(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """WORKING id [seconds] → seconds from now by which the next delivery is postponed: these, or RETRY."""
    job_id = argv[1]
    if len(argv) > 3:
        raise CommandError(SYNTAX)
    lease_ms = read_lease(argv[2], WORKING_ERROR) if len(argv) == 3 else 0
    if not is_valid_id(job_id):
        raise CommandError(BAD_ID)
    job = broker.find(job_id)
    if job is None:
        raise CommandError("NOJOB Job not known in the context of this node.")
    if job.state == ACKED:
        raise CommandError("NOJOB Job already acknowledged.")
    if job.is_half_over(broker.now_ms, broker.wall_ms):
        raise CommandError(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
        )
    if not job.retry_ms:
        return integer(0)
    lease_ms = lease_ms or job.retry_ms
    if job.state != WAIT_REPL:
        if job.state == QUEUED:
            lifecycle.dequeue(broker, job)
        if broker.pauses.deferred:
            broker.pauses.deferred.pop(job, None)
        job.work = None
        if events.status_of(job) != event_format.RUNNING:
            events.note(broker, job, event_format.WORKING)
        job.is_leased_here = True
        lifecycle.extend(broker, job, lease_ms)
        requeue.tell_leased(broker, job)
    return integer(lease_ms // 1000)


def nack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """NACK [id ...] → number of jobs that went back to their queues. Their nacks counters grow."""
    return _count(broker, client, argv, nack_one)


def nack_one(broker: Broker, job_id: bytes) -> int:
    """NACK one id. Return 1 if it went back to its queue."""
    job = broker.find(job_id)
    if job is None or not requeue.is_queueable(job):
        return 0
    if job.nacks < COUNTER_MAX:
        job.nacks += 1
    if pausing.is_paused_in(broker, job):
        events.note(broker, job, event_format.NACKED_INVISIBLE)
        pausing.defer(broker, job)
        lifecycle.mark_dirty(broker, job)
    else:
        events.note(broker, job, event_format.NACKED)
        requeue.release(broker, job)
    broker.stats.jobs_nacked += 1
    return 1


def enqueue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ENQUEUE [id ...] → number of jobs put into their queues. Refused as a whole if one of these is paused."""
    return _count(broker, client, argv, _enqueue, _refuse_paused)


def _refuse_paused(broker: Broker, ids: list[bytes]) -> None:
    if broker.pauses.paused_count:
        for job in map(broker.find, ids):
            if job is not None and requeue.is_queueable(job) and pausing.is_paused_in(broker, job):
                raise CommandError(PAUSED)


def _enqueue(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None or not requeue.is_queueable(job):
        return 0
    if broker.pauses.paused_count and pausing.is_paused_in(broker, job):
        return 0  # The queue was paused since the check: other commands ran in between.
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
    if job.retry_ms:
        job.requeue_at_ms = broker.now_ms + job.retry_ms + broker.jitter()
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
    return described(broker, client.protocol, job, body)


def described(broker: Broker, protocol: int, job: Job, body: bytes) -> bytes:
    """Return the reply of SHOW: the original's fifteen pairs, then our own (spec R8)."""
    nil = nil_bulk(protocol)
    is_dummy = job.is_dummy
    now_ms = broker.now_ms
    confirmed: list[bytes] = []
    if isinstance(job.work, Replication | Collection):
        confirmed = broker.sets.names(job.work.confirmed)
        if job.state == ACKED:
            confirmed.append(broker.me.name)
    if job.state == QUEUED:
        requeue_ms = job.retry_ms or None
    elif job.state == ACTIVE and job.requeue_at_ms:
        requeue_ms = max(0, job.requeue_at_ms - now_ms)
    else:
        requeue_ms = None
    # A timer beyond the schedule's horizon is not set yet, but its time is known.
    awake_at_ms = job.awake_at_ms or min(job.expire_at_ms, job.requeue_at_ms or job.expire_at_ms)
    awake_ms = max(0, awake_at_ms - now_ms)
    fields = (
        ("id", bulk(job.id)),
        ("queue", nil if is_dummy else bulk(job.queue)),
        ("state", bulk(STATE_NAMES[job.state])),
        ("repl", integer(job.replicate)),
        ("ttl", integer(max(0, -((now_ms - job.expire_at_ms) // 1000)))),
        ("ctime", integer(job.ctime)),
        ("delay", integer(job.delay_ms // 1000)),
        ("retry", integer(job.retry_ms // 1000)),
        ("nacks", integer(job.nacks)),
        ("additional-deliveries", integer(job.deliveries)),
        ("nodes-delivered", bulk_array(broker.sets.names(job.holders))),
        ("nodes-confirmed", bulk_array(confirmed)),
        ("next-requeue-within", nil if requeue_ms is None else integer(requeue_ms)),
        ("next-awake-within", integer(awake_ms)),
        ("body", nil if is_dummy else bulk(body)),
        ("attempt", integer(job.attempt)),
        ("leased", integer(int(job.is_leased_here and job.requeue_at_ms > now_ms))),
        ("priority", integer(job.priority)),
        ("meta", bulk_array(job.meta)),
    )
    return array([part for name, value in fields for part in (bulk(name), value)])


LOADJOB_REPLY: Final = error("ERR LOADJOB is a special command only processed from AOF")


def loadjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LOADJOB blob: refuse the original's journal record, which is never a client's command."""
    return LOADJOB_REPLY
