"""Claim stamps: which claims a job needs before it may be delivered. Spec EX1, EX2.

A job of an exclusive queue carries the key of its value: (queue, name, value). A job of a queue with `assign quorum` is
claimed by its id. The stamp is an extra of the job (job_attributes.py). So a node delivers such a job only under a
claim, whether or not it has heard of the queue's settings. A node that has heard of them stamps jobs without one when
it queues them.

A stamp counts in the queue whose name it has. So a job that moves loses it, and gets another one where the other queue
asks for it. After `type simple` stamped jobs keep their stamp.

The stamp also has what this node knows of the job's newest claim: its fences and its holder. They travel with `leased`,
and every holder of the job keeps the highest.

Keys of values, of jobs and of locks begin with different letters, so they never meet. A value may be long, so its key
is a hash.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py.core.grants import FENCE_MAX
from disque_py.core.job import Job
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
HAS_VALUE: Final = 1  # It is claimed by its value.
LACKS_NAME: Final = 2  # It is claimed as a value of its own.
HAS_QUORUM: Final = 4  # It is claimed by its id.

STAMP_FIELDS: Final = 7
HOLDER_BYTES_MAX: Final = 64


class Stamp(NamedTuple):
    """The claims of a job.

    queue, name, value   the value that it shares; the queue alone if it has none
    flags                HAS_VALUE, LACKS_NAME, HAS_QUORUM
    fence, own_fence     of the newest claim that is known: the one that users see, and that of the job's own key
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
    """Return the stamp of a job that counts in its queue; None if it needs no claim."""
    attributes = job.attributes
    if attributes is None or attributes.extras is None:
        return None
    words: Any = attributes.extras.get(CLAIM)
    if words is None or words[0] != job.terms.queue:
        return None
    return Stamp(*words[:STAMP_FIELDS])


def fence_of(job: Job) -> int:
    """Return the fence of the newest claim of a job that this node knows; 0: none."""
    stamp = stamp_of(job)
    return 0 if stamp is None else stamp.fence


def lacks_name(broker: Broker, job: Job) -> bool:
    """Whether a pending job of an exclusive queue lacks the name, so it is a value of its own."""
    stamp = stamp_of(job)
    if stamp is None and broker.queue_settings.exclusive and job.terms.retry_ms:
        rules = broker.queue_settings.exclusive.get(job.terms.queue)
        if rules is not None:  # It is stamped when it is fetched.
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
    """Return the key of the value's claim; empty if the job needs none."""
    if stamp.flags & HAS_VALUE:
        head = b"%d %d " % (len(stamp.queue), len(stamp.name))
        words = head + stamp.queue + stamp.name + stamp.value
        return VALUE_PREFIX + blake2b(words, digest_size=DIGEST_BYTES).digest()
    return OWN_PREFIX + job.id if stamp.flags & LACKS_NAME else b""


def job_key(job: Job, stamp: Stamp) -> bytes:
    """Return the key of the job's own claim; empty if it needs none."""
    return JOB_PREFIX + job.id if stamp.flags & HAS_QUORUM else b""


def set_stamp(broker: Broker, job: Job, stamp: Stamp) -> None:
    """Give a known job a stamp, or a newer one, and account for it."""
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
    """Keep the newest claim of a job that this node heard of."""
    stamp = stamp_of(job)
    if stamp is not None and fence > stamp.fence:
        set_stamp(broker, job, stamp._replace(fence=fence, own_fence=own_fence, holder=holder))


def heard(broker: Broker, job: Job, words: Any) -> None:
    """Note the claim of another node's delivery: fence, fence of the job's own key, holder. Spec EX6. ValueError."""
    fence, own_fence, holder, *_ = words
    if type(fence) is not int or type(own_fence) is not int or type(holder) is not bytes:
        raise ValueError("a claim of a delivery that is none")
    if not (0 <= fence <= FENCE_MAX and 0 <= own_fence <= FENCE_MAX and len(holder) <= HOLDER_BYTES_MAX):
        raise ValueError("a claim of a delivery with a number that is none")
    learn(broker, job, fence, own_fence, holder)
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


# -- the queue's side: jobs by value ----------------------------------------------------------------------


def open_parking(broker: Broker, queue: Queue) -> None:
    """Let a queue keep its jobs by value from now on (parking.py)."""
    if queue in broker.exclusive.queues:
        return
    broker.exclusive.queues[queue] = None
    if queue.parking is None:
        queue.parking = Parking(queue, partial(_value_of, broker), partial(_room_of, broker))
    else:  # Its jobs wait for slots already (caps.py).
        queue.parking.value_of = partial(_value_of, broker)
        queue.parking.room_of = partial(_room_of, broker)


def open_for(broker: Broker, queue: Queue, job: Job) -> None:
    """Let a queue keep its jobs by value from now on, if this job needs a claim."""
    if stamp_of(job) is not None:
        open_parking(broker, queue)


def adopt(broker: Broker, name: bytes) -> None:
    """Keep the jobs of a queue by value, because its settings ask for claims now."""
    queue = broker.queues.get(name)
    if queue is not None:
        open_parking(broker, queue)


def _value_of(broker: Broker, job: Job) -> bytes | None:
    """Return the key by which a pending job has to wait; None: it shares it with no other job, and needs not wait."""
    stamp = needed(broker, job)
    if stamp is None:
        return None
    busy = broker.exclusive.busy
    key = value_key(job, stamp)
    if stamp.flags & HAS_VALUE:
        return key
    if key in busy:
        return key
    key = job_key(job, stamp)
    return key if key in busy else None


def _room_of(broker: Broker, key: bytes) -> int:
    return 0 if key in broker.exclusive.busy else 1
