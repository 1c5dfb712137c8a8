"""Claim stamps: which claims a job needs before it may be delivered. Spec EX1, EX2.

The stamp of a job in an exclusive queue names the job's value: (queue, name, value). The stamp of a job in a queue with
`assign quorum` says that the job is claimed by its id. A stamp is an extra of the job (job_attributes.py). So a node
delivers such a job only under a claim, even if it has not heard of the queue's settings. A node that has heard of them
stamps jobs that have no stamp yet.

A stamp is only valid in the queue that it names. So a job that moves loses its stamp, and gets another one if its new
queue requires it. After `type simple`, stamped jobs keep their stamps.

The stamp also has the newest claim of the job that this node knows: its fences and its holder. LEASED carries them, and
every holder of the job keeps the highest. A node remembers the jobs of which it knows a claim, so that it can tell the
claims to a node that was cut off (fencing.py). It remembers a bounded number of jobs.

Keys of values, jobs and locks begin with different letters, so they are never equal. A value may be long, so its key is
a hash.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py.core.grants import FENCE_MAX
from disque_py.core.job import ACKED, Job
from disque_py.core.job_attributes import CLAIM, JobAttributes
from disque_py.core.parking import Parking
from disque_py.core.queue import Queue
from disque_py.core.queue_fields import QueueSettings

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

VALUE_PREFIX: Final = b"V"
OWN_PREFIX: Final = b"O"
JOB_PREFIX: Final = b"J"
DIGEST_BYTES: Final = 24

# Flags of a stamp.
HAS_VALUE: Final = 1  # The job is claimed by its value.
LACKS_NAME: Final = 2  # The job lacks the name, and is claimed as a value that it shares with no other job.
HAS_QUORUM: Final = 4  # The job is claimed by its id.

STAMP_FIELDS: Final = 7
HOLDER_BYTES_MAX: Final = 64

# The most jobs that a node remembers because it knows a claim of them. If there is one more, the node looks at up to
# NEWEST_LOOKS of the oldest ones for a job that is over, and forgets it. If none is over, it forgets the next one.
NEWEST_MAX: Final = 10_000
NEWEST_LOOKS: Final = 4


class Stamp(NamedTuple):
    """The claims that a job needs, and its newest known claim.

    queue, name, value   the value by which the job is claimed; only the queue if there is no such value
    flags                HAS_VALUE, LACKS_NAME, HAS_QUORUM
    fence, own_fence     of the newest known claim: the fence that users see, and the fence of the job's own key
    holder               the delivery that has or had that claim
    """

    queue: bytes
    name: bytes
    value: bytes
    flags: int
    fence: int = 0
    own_fence: int = 0
    holder: bytes = b""


def stamp_of(job: Job) -> Stamp | None:
    """Return a job's stamp if it is valid in the job's queue; else None."""
    attributes = job.attributes
    if attributes is None or attributes.extras is None:
        return None
    words: Any = attributes.extras.get(CLAIM)
    if words is None or words[0] != job.terms.queue:
        return None
    return Stamp(*words[:STAMP_FIELDS])


def fence_of(job: Job) -> int:
    """Return the fence of the newest claim of a job that this node knows; 0 if it knows none."""
    stamp = stamp_of(job)
    return 0 if stamp is None else stamp.fence


def lacks_name(broker: Broker, job: Job) -> bool:
    """Return whether a pending job of an exclusive queue lacks the name, so that it counts as a separate value."""
    stamp = stamp_of(job)
    if stamp is None and broker.queue_settings.exclusive and job.terms.retry_ms:
        rules = broker.queue_settings.exclusive.get(job.terms.queue)
        if rules is not None:  # The job itself will be stamped when it is fetched.
            stamp = new_stamp(job.terms.queue, rules, job.meta)
    return stamp is not None and bool(stamp.flags & LACKS_NAME)


def new_stamp(queue: bytes, rules: QueueSettings, meta: tuple[bytes, ...]) -> Stamp:
    """Return the stamp of a job under these settings."""
    flags = HAS_QUORUM if rules.is_quorum else 0
    name, value = rules.exclusive_by, b""
    if name:
        for at in range(0, len(meta), 2):
            if meta[at] == name:
                value = meta[at + 1]
                flags |= HAS_VALUE
                break
        else:
            flags |= LACKS_NAME
    return Stamp(queue, name, value, flags)


def value_key(job: Job, stamp: Stamp) -> bytes:
    """Return the key for the claim on the job's value; empty if the job needs no such claim."""
    if stamp.flags & HAS_VALUE:
        head = b"%d %d " % (len(stamp.queue), len(stamp.name))
        words = head + stamp.queue + stamp.name + stamp.value
        return VALUE_PREFIX + blake2b(words, digest_size=DIGEST_BYTES).digest()
    return OWN_PREFIX + job.id if stamp.flags & LACKS_NAME else b""


def job_key(job: Job, stamp: Stamp) -> bytes:
    """Return the key for the claim on the job itself; empty if the job needs no such claim."""
    return JOB_PREFIX + job.id if stamp.flags & HAS_QUORUM else b""


def set_stamp(broker: Broker, job: Job, stamp: Stamp) -> None:
    """Set or replace the stamp of a known job, and account for its memory."""
    attributes = job.attributes
    if attributes is None:
        attributes = job.attributes = JobAttributes(None, ())
        size = packed_bytes = 0
    else:
        size, packed_bytes = attributes.size, attributes.packed_bytes
    attributes.set_extra(CLAIM, tuple(stamp))
    broker.used_memory += attributes.size - size
    if job.place >= broker.journal.first_place:
        broker.journal.live_bytes[job.place] += attributes.packed_bytes - packed_bytes


def learn(broker: Broker, job: Job, fence: int, own_fence: int, holder: bytes) -> None:
    """Note a claim of a job, unless a newer one is known."""
    stamp = stamp_of(job)
    if stamp is not None and fence > stamp.fence:
        set_stamp(broker, job, stamp._replace(fence=fence, own_fence=own_fence, holder=holder))
        remember(broker, job.id)


def remember(broker: Broker, job_id: bytes) -> None:
    """Remember a job of which this node knows a claim."""
    newest = broker.exclusive.newest
    newest[job_id] = None
    newest.move_to_end(job_id)
    if len(newest) <= NEWEST_MAX:
        return
    for _ in range(NEWEST_LOOKS):
        oldest = newest.popitem(last=False)[0]
        job = broker.find(oldest)
        if job is None or job.state == ACKED:
            return
        newest[oldest] = None
    newest.popitem(last=False)


def read_claim(words: Any) -> tuple[int, int, bytes]:
    """Return the claim in a message: fence, fence of the job's own key, holder. Raise ValueError if it is malformed."""
    fence, own_fence, holder, *_ = words
    if type(fence) is not int or type(own_fence) is not int or type(holder) is not bytes:
        raise ValueError("an invalid claim of a delivery")
    if not (0 <= fence <= FENCE_MAX and 0 <= own_fence <= FENCE_MAX and len(holder) <= HOLDER_BYTES_MAX):
        raise ValueError("a claim of a delivery with a value out of range")
    return fence, own_fence, holder


def heard(broker: Broker, job: Job, words: Any) -> None:
    """Note the claim of another node's delivery. Raise ValueError if the message is malformed. Spec EX6."""
    learn(broker, job, *read_claim(words))
    if job.id in broker.exclusive.running:
        broker.exclusive.heard[job] = None


def needed(broker: Broker, job: Job) -> Stamp | None:
    """Return the stamp of a job that is pending here. The queue's settings may give it one. None: it needs no claim."""
    stamp = stamp_of(job)
    if stamp is None and broker.queue_settings.exclusive and job.terms.retry_ms:
        rules = broker.queue_settings.exclusive.get(job.terms.queue)
        if rules is not None:
            stamp = new_stamp(job.terms.queue, rules, job.meta)
            set_stamp(broker, job, stamp)
    return stamp


# -- queues: jobs by value --------------------------------------------------------------------------------


def open_parking(broker: Broker, queue: Queue) -> None:
    """Give a queue parking for keys of claims, which keeps its jobs by value from now on (parking.py)."""
    if queue in broker.exclusive.queues:
        return
    broker.exclusive.queues[queue] = None
    if queue.parking is None:
        queue.parking = Parking(queue, partial(_value_of, broker), partial(_room_of, broker))
    else:  # The queue has parking already, because its jobs wait for slots (caps.py).
        queue.parking.value_of = partial(_value_of, broker)
        queue.parking.room_of = partial(_room_of, broker)


def open_for(broker: Broker, queue: Queue, job: Job) -> None:
    """Give a queue parking for the keys of claims if this job needs a claim."""
    stamp = stamp_of(job)
    if stamp is not None:
        open_parking(broker, queue)
        if stamp.fence:
            remember(broker, job.id)


def adopt(broker: Broker, name: bytes) -> None:
    """Keep the jobs of a queue by value, because its settings require claims now."""
    queue = broker.queues.get(name)
    if queue is not None:
        open_parking(broker, queue)


def _value_of(broker: Broker, job: Job) -> bytes | None:
    """Return the key for which a pending job may have to wait; None if no other job and no claim has the same key."""
    stamp = needed(broker, job)
    if stamp is None:
        return None
    busy = broker.exclusive.busy
    key = value_key(job, stamp)
    if stamp.flags & HAS_VALUE:
        return key
    for own in (key, job_key(job, stamp)):
        if own in busy:
            busy[own] = job.terms.queue  # The job may have moved here meanwhile, so `free` must look here.
            return own
    return None


def _room_of(broker: Broker, key: bytes) -> int:
    return 0 if key in broker.exclusive.busy else 1
