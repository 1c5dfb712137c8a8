"""SHOW: one job, as this node knows it.

The reply has the fields of the original in their order, and further fields behind them. A body that left memory is read
from disk first. queues.py has SHOW CLUSTER, which asks all nodes; shares.py describes jobs for it. Spec R8, US2.
"""

from __future__ import annotations

from disque_py import event_format
from disque_py.core import changing, incremental, repair, repair_turns, scan, spilling, windows
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED, ACTIVE, QUEUED, STATE_NAMES, Collection, Job, Replication
from disque_py.core.job_attributes import BATCH
from disque_py.core.users import sees_bodies
from disque_py.resp.replies import array, bulk, bulk_array, integer, nil_bulk


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
        ("copies", integer(repair_turns.copies_of(broker, job))),
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
