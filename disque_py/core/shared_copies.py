"""Copies of the jobs of one fan-out: one message for all of them, and one answer (REPLMANY, GOTMANY).

A fan-out makes a job in each bound queue (fanout.py). These jobs have the same body, attributes, terms, TTL and
receivers, and consecutive creation times. So one item contains all that once, with the ids and queues of the jobs:

    REPLMANY   [ids in one byte string, header of the first job, [queue, …], body, holders, attributes]
    GOTMANY    the ids, when the receiver has taken all of these jobs

The jobs share one wait for their copies (`Replication.together`), and one turn queues all of them. If an event concerns
only one of them, replication.py gives each job its own Replication. If a receiver has a reason not to take some of the
jobs, it treats the item as that many REPLJOBs. Nodes of an older version of the bus get REPLJOBs and GOTJOBs:
`for_older` is called when a frame for such a node is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cluster_bus.messages import GOTJOB, GOTMANY, REPLJOB, REPLMANY
from cluster_bus.node import Node
from disque_py.core import holding, lifecycle, replication
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.ids import ID_BYTES, is_valid_id
from disque_py.core.job import JOB_BYTES, Job, Replication, Together
from disque_py.core.job_attributes import pack_topic
from disque_py.core.job_snapshot import job_of
from disque_py.core.record_packing import header_of
from persistence.layouts import HEADER

# More jobs than this are copied one by one, because a receiver handles an item in one step, which must be short.
JOBS_MAX: Final = 128
# The most items of REPLMANY per run, for the same reason.
ITEMS_PER_RUN: Final = 16
_FIELDS: Final = 6
_CTIME_BYTES: Final = 8
_WANTS_ANSWER: Final = 0

Item = tuple[Any, ...]


def start(
    broker: Broker, client: Client, together: Together, timeout_ms: int, slot: list[bytes | None], *, is_default: bool
) -> None:
    """Register new jobs that differ only in their ids and queues, and send their copies to the same nodes.

    timeout_ms   0, or at least EXTEND_MS
    slot         the reply slot of the command
    """
    jobs = together.jobs
    sets = broker.sets
    targets, holders = broker.copies.replica_sets.draw(broker, jobs[0].terms.replicate - 1)
    assert broker.me in holders
    now_ms = broker.now_ms
    deadline_ms = now_ms + timeout_ms if timeout_ms else 0
    work = Replication(client, slot, sets.only(broker.me), now_ms, deadline_ms, False, is_default)
    work.together = together
    for job in jobs:
        job.holders = holders
        job.work = work
        lifecycle.register_waiting(broker, job)
    broker.producers.together[together.marker] = work
    if targets:
        broker.send(targets, REPLMANY, item_of(broker, jobs, together.ids))
    replication.line_up(broker, jobs[0])


def on_replmany(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Take copies of jobs that were made together. If all are new and can be taken, one answer confirms them.

    Otherwise each job is handled and answered as if it had come alone.
    """
    only = broker.sets.only(sender)
    shards = broker.shards
    not_held = broker.acks.not_held
    has_not_held = bool(not_held)
    for item in items:
        jobs = jobs_of(broker, item)
        done, done_before = broker.tombstones.generations()
        is_choosy = broker.is_leaving or broker.pauses.paused_count > 0 or broker.journal.disk_level > 0
        more_bytes = len(jobs) * (JOB_BYTES + len(jobs[0].body))
        if is_choosy or broker.used_memory + more_bytes > broker.memory.limits[1]:
            holding.on_repljob(broker, sender, [(snapshot, _WANTS_ANSWER) for snapshot in snapshots_of(item)])
            continue
        wait_ms = jobs[0].terms.delay_ms + jobs[0].terms.retry_ms
        taken: list[bytes] = []
        for job in jobs:
            job_id = job.id
            shard = shards[(job_id[12] & 63) << 6 | job_id[13] & 63]
            if job_id in shard or job_id in done or job_id in done_before or (has_not_held and job_id in not_held):
                continue
            shard[job_id] = job
            holding.take_in(broker, job, wait_ms)
            taken.append(job_id)
        if len(taken) == len(jobs):
            broker.send(only, GOTMANY, item[0])
            continue
        broker.send_all(only, GOTJOB, taken)
        known = set(taken)
        others = [(each, _WANTS_ANSWER) for each in snapshots_of(item) if each[0] not in known]
        holding.on_repljob(broker, sender, others)


def on_gotmany(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note confirmed copies of jobs that were made together."""
    for ids in items:
        job_ids = split_ids(ids)
        job = broker.find(job_ids[0])
        work = job.work if job is not None else None
        if not isinstance(work, Replication) or (together := work.together) is None or together.ids != ids:
            replication.on_gotjob(broker, sender, job_ids)
            continue
        if sender not in work.confirmed:
            work.confirmed = work.confirmed + broker.sets.only(sender)
            if len(work.confirmed) >= together.jobs[0].terms.replicate:
                work.is_held = True
                broker.producers.fans_due[together.fan] = None


def finish_all(broker: Broker, work: Replication) -> None:
    """Queue all jobs that share this Replication, because enough nodes hold them. The caller answers the producer."""
    together = work.together
    assert together is not None
    assert len(work.confirmed) >= together.jobs[0].terms.replicate
    del broker.producers.together[together.marker]
    work.together = None
    is_journaling = broker.is_journaling
    for job in together.jobs:
        lifecycle.make_active(broker, job)
        replication.queue_or_wait(broker, job, work)
        if is_journaling:
            lifecycle.mark_dirty(broker, job)
    broker.stats.jobs_added += len(together.jobs)


def ids_of(jobs: Sequence[Job]) -> bytes:
    """Return the ids of the jobs as one byte string."""
    return b"".join([job.id for job in jobs])


def split_ids(ids: Any) -> list[bytes]:
    """Return the ids in such a byte string. ValueError if it is malformed."""
    if type(ids) is not bytes or not ids or len(ids) % ID_BYTES:
        raise ValueError("ids that are cut or missing")
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]


def item_of(broker: Broker, jobs: Sequence[Job], ids: bytes) -> Item:
    """Return the item of REPLMANY for new jobs that differ only in their ids and queues."""
    first = jobs[0]
    topic = first.terms.topic
    attributes = first.attributes
    if attributes is not None:
        field: Any = attributes.pack(topic)
    else:
        field = None if topic is None else pack_topic(topic)
    queues = [job.terms.queue for job in jobs]
    return (ids, header_of(first, broker.now_ms), queues, first.body, broker.sets.pack(first.holders), field)


def jobs_of(broker: Broker, item: Any) -> list[Job]:
    """Return the jobs of an item, as `job_of` does for each of them. ValueError if it is malformed."""
    ids, header, queues, body, holders, field = _fields(item)
    found = split_ids(ids)
    if type(queues) not in (list, tuple) or len(queues) != len(found) or len(found) > JOBS_MAX:
        raise ValueError("jobs without queues, or too many")
    first = job_of(broker, (found[0], header, queues[0], body, holders, 0, field))
    jobs = [first]
    terms, attributes, known = first.terms, first.attributes, broker.terms
    ctime = first.ctime
    for number in range(1, len(found)):
        job_id, queue = found[number], queues[number]
        if type(queue) is not bytes or not is_valid_id(job_id):
            raise ValueError("a job without a queue or an id")
        ctime += 1
        job = Job(job_id, terms.of_queue(known, queue), body, ctime, first.expire_at_ms, first.holders)
        if attributes is not None:
            job.attributes = attributes.like()
        jobs.append(job)
    return jobs


def snapshots_of(item: Any) -> list[Any]:
    """Return a snapshot of each job of an item. ValueError if it is malformed."""
    ids, header, queues, body, holders, field = _fields(item)
    if type(header) is not bytes or len(header) < HEADER.size:
        raise ValueError("a malformed header")
    ctime = int.from_bytes(header[:_CTIME_BYTES], "little")
    rest = header[_CTIME_BYTES:]
    snapshots: list[Any] = []
    for job_id, queue in zip(split_ids(ids), queues, strict=True):
        head = ctime.to_bytes(_CTIME_BYTES, "little") + rest
        snapshots.append((job_id, head, queue, body, holders, 0, field))
        ctime += 1
    return snapshots


def _fields(item: Any) -> Any:
    if len(item) < _FIELDS:
        raise ValueError("an item of too few fields")
    return item[:_FIELDS]


def for_older(kind: int, items: list[Any]) -> tuple[int, list[Any]]:
    """Return messages with the same meaning for a node that knows neither REPLMANY nor GOTMANY.

    Messages of other kinds are returned unchanged.
    """
    if kind == REPLMANY:
        return REPLJOB, [(snapshot, _WANTS_ANSWER) for item in items for snapshot in snapshots_of(item)]
    if kind == GOTMANY:
        return GOTJOB, [job_id for ids in items for job_id in split_ids(ids)]
    return kind, items
