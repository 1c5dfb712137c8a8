"""Copies of jobs that one command made: one message for all of them, and one answer (REPLMANY, GOTMANY).

A fan-out makes a job in each bound queue (fanout.py). These jobs have the same body, attributes, terms, end of life and
receivers, and creation times in a row. So one item says all this once, and the ids and queues of the jobs:

    REPLMANY   [ids in one byte string, header of the first job, [queue, …], body, holders, attributes]
    GOTMANY    the ids, when the receiver has taken all of these jobs

A receiver that has a reason to take some of them only treats the item as that many REPLJOBs (replication.py). Nodes of
an older version of the bus get REPLJOBs and GOTJOBs: `for_older` is called when a frame for such a node is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import GOTJOB, GOTMANY, REPLJOB, REPLMANY
from disque_py.core.ids import ID_BYTES, is_valid_id
from disque_py.core.job import Job
from disque_py.core.job_attributes import pack_topic
from disque_py.core.job_snapshot import header_of, job_of
from persistence.layouts import HEADER

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

# More jobs than this are copied one by one: a receiver handles an item at once, which must not take long.
JOBS_MAX: Final = 128
# Items of REPLMANY per run, for the same reason.
ITEMS_PER_RUN: Final = 16
_FIELDS: Final = 6
_CTIME_BYTES: Final = 8
_WANTS_ANSWER: Final = 0

Item = tuple[Any, ...]


def ids_of(jobs: Sequence[Job]) -> bytes:
    """Return the ids of the jobs as one byte string."""
    return b"".join([job.id for job in jobs])


def split_ids(ids: Any) -> list[bytes]:
    """Return the ids of such a byte string. ValueError if it is none."""
    if type(ids) is not bytes or not ids or len(ids) % ID_BYTES:
        raise ValueError("ids that are cut, or none")
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]


def item_of(broker: Broker, jobs: Sequence[Job], ids: bytes) -> Item:
    """Return the item of REPLMANY for new jobs that differ in their ids and queues only."""
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
        raise ValueError("a header that is none")
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
    """Return the same for a node that knows neither REPLMANY nor GOTMANY; other kinds as they are."""
    if kind == REPLMANY:
        return REPLJOB, [(snapshot, _WANTS_ANSWER) for item in items for snapshot in snapshots_of(item)]
    if kind == GOTMANY:
        return GOTJOB, [job_id for ids in items for job_id in split_ids(ids)]
    return kind, items
