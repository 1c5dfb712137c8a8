"""A job as plain values: one format for bus and journal.

A snapshot is (id, header, queue, body, holders, later fields …). The header is a binary string of fixed size. So a
receiver reads its numbers in one step, and another node can send nothing but numbers there. A node ignores later fields
that it does not know. Times are spans: milliseconds of life left, and milliseconds until the first queueing.

If the job's version (events.py) is not 1, it follows at the end of the header (VERSION).

The later fields have these positions. A missing field has its default:

5   on the bus, milliseconds until the taker of a hand-over queues the job, default 0; in the journal, the job's state
6   attributes (job_attributes.py), default None
7   the changeable part (changeable.py), default None
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import i64

from disque_py.core import changeable
from disque_py.core.events import heard
from disque_py.core.ids import is_valid_id
from disque_py.core.job import Job, terms_of
from disque_py.core.job_attributes import JobAttributes, pack_topic, unpack
from disque_py.core.record_packing import IS_COMPILED, header_of
from persistence.layouts import ATTRIBUTES_AT, HEADER, PART_AT, VERSION

try:
    from librt.strings import read_i16_le, read_i32_le, read_i64_le
except ImportError:  # Plain Python works without it; compiled code reports a missing module itself.
    pass

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.changeable import Changeable

_VERSIONED_BYTES: Final = HEADER.size + VERSION.size
_unpack = HEADER.unpack_from

Snapshot = tuple[Any, ...]

AFTER: Final = 5
ATTRIBUTES: Final = ATTRIBUTES_AT
PART: Final = PART_AT

# The most bits of a span. A client's spans are at most 2^63 / 1000 milliseconds. Spans from other nodes must not be
# much longer, because a record has 63 bits for the sum of some of them.
SPAN_BITS: Final = 54


def snapshot_of(broker: Broker, job: Job, after_ms: int = 0) -> Snapshot:
    """Return the job's snapshot for another node, with values that have the same meaning on every node.

    The body must be in memory, because the codec refuses a Spilled.

    after_ms   milliseconds until the taker of a hand-over queues the job
    """
    snapshot = (job.id, header_of(job, broker.now_ms), job.terms.queue, job.body, broker.sets.pack(job.holders))
    attributes = job.attributes
    if attributes is not None:
        if attributes.part is not None:
            return (*snapshot, after_ms, attributes.pack(job.terms.topic), pack_part(broker, job, attributes.part))
        return (*snapshot, after_ms, attributes.pack(job.terms.topic))
    if job.terms.topic is not None:
        return (*snapshot, after_ms, pack_topic(job.terms.topic))
    return (*snapshot, after_ms) if after_ms else snapshot


def pack_part(broker: Broker, job: Job, part: Changeable) -> changeable.Packed:
    """Return the job's changeable part as a field of the snapshot. Times are spans from now on."""
    now_ms = broker.now_ms
    attributes = job.attributes
    left_ms = job.expire_at_ms - now_ms
    due_ms = part.due_ms - now_ms if part.is_delayed and not part.is_errored else 0
    return part.pack(
        job.terms.queue,
        None if attributes is None else attributes.priority,
        left_ms if left_ms > 0 else 0,
        due_ms if due_ms > 0 else 0,
    )


def set_part(broker: Broker, job: Job, attributes: JobAttributes, field: Any, elapsed_ms: int = 0) -> None:
    """Set the changeable part of a job that is not registered and in no queue. Raise ValueError if it is malformed.

    Queue, priority and end of life are fields of the snapshot, so they are not read from the part. A change number that
    is too high is lowered, so that the next change can have a higher one.
    """
    attributes.part = part = changeable.unpack(field)
    part.number = min(part.number, changeable.NUMBER_STEP_MAX)
    due_ms: int = field[changeable.DUE_AT]
    if due_ms:
        part.is_delayed = True
        part.due_ms = broker.now_ms + max(0, due_ms - elapsed_ms)
    attributes.measure()


def job_of(broker: Broker, snapshot: Any) -> Job:
    """Return a Job from its snapshot: ACTIVE, with the holders that the snapshot names.

    Raise ValueError if the snapshot is malformed. The life left counts from now on, so the clocks of nodes need not
    agree (spec T4).
    """
    try:
        length = len(snapshot)
        job_id = snapshot[0]
        header = snapshot[1]
        queue = snapshot[2]
        body = snapshot[3]
        holders = snapshot[4]
        if IS_COMPILED and type(header) is bytes and len(header) >= HEADER.size:
            # The same fields as in HEADER. A number that is too large for a compiled int becomes negative.
            packed: bytes = header
            ctime: int = read_i64_le(packed, 0)
            left_ms: int = read_i64_le(packed, 8)
            retry_ms: int = read_i64_le(packed, 16)
            delay_ms: int = read_i64_le(packed, 24)
            replicate: int = i64(read_i16_le(packed, 32)) & 0xFFFF
            nacks: int = i64(read_i16_le(packed, 34)) & 0xFFFF
            deliveries: int = i64(read_i16_le(packed, 36)) & 0xFFFF
            attempt: int = i64(read_i32_le(packed, 38)) & 0xFFFFFFFF
        else:
            ctime, left_ms, retry_ms, delay_ms, replicate, nacks, deliveries, attempt = _unpack(header)
        if (left_ms | retry_ms | delay_ms) >> SPAN_BITS or ctime >> 63:
            raise ValueError("a span or a time out of range")
        if (
            type(body) is bytes
            and type(queue) is bytes
            and type(holders) is bytes
            and type(job_id) is bytes
            and is_valid_id(job_id)
        ):
            attributes: JobAttributes | None = None
            topic: bytes | None = None
            if length > ATTRIBUTES:
                attributes, topic = unpack(snapshot[ATTRIBUTES])
            terms = terms_of(broker.terms, queue, retry_ms, delay_ms, replicate, topic)
            expire_at_ms = broker.now_ms + left_ms
            nodes = broker.sets.unpack(holders)
            job = Job(job_id, terms, body, ctime, expire_at_ms, nodes)
            if nacks or deliveries or attempt:
                job.nacks = nacks
                job.deliveries = deliveries
                job.attempt = attempt
            if len(header) >= _VERSIONED_BYTES:
                heard(job, VERSION.unpack_from(header, HEADER.size)[0])
            job.attributes = attributes
            if length > PART and snapshot[PART] is not None and snapshot[ATTRIBUTES] is not None:
                if attributes is None:
                    job.attributes = attributes = JobAttributes(None, ())
                set_part(broker, job, attributes, snapshot[PART])
            return job
    except (TypeError, LookupError, struct.error) as broken:
        raise ValueError(f"malformed job snapshot: {broken}") from broken
    raise ValueError("malformed job snapshot")
