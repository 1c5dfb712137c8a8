"""JobAttributes: fields that only some jobs have, in one object, so that other jobs don't pay for them.

The fields are PRIORITY (a lower one is served first), META (pairs that mean nothing to the broker), whether the job was
added with a KEY (keys.py), and the changeable part (changeable.py) of jobs that have one. They travel with the job. On
the bus and in the journal the first three are one later field of a job's snapshot (job_snapshot.py): (priority or nil,
[name, value, …], 1 if keyed). The changeable part is the next field.
Spec F1, G2, K6, F3.
"""

from __future__ import annotations

from typing import Any, Final

from disque_py.config.directives import META_PAIRS_MAX
from disque_py.core import changeable
from disque_py.core.changeable import Changeable

INT64_LIMIT: Final = 1 << 63

# The bytes of a job's attributes besides its pairs: the object, a tuple, an entry of its priority queue and of the
# table of keys, as measured.
ATTRIBUTES_BYTES: Final = 280
PAIR_BYTES: Final = 90
PACKED_BYTES: Final = 12

# The most bytes of names and values of one job: a snapshot must fit into a frame with its body.
META_BYTES_MAX: Final = 65_536
# Trace context is added by libraries, so it counts against no limit of the user's pairs. Together these have their own.
TRACE_NAMES: Final = (b"traceparent", b"tracestate")
TRACE_BYTES_MAX: Final = 1_024

Packed = tuple[int | None, tuple[bytes, ...], int]


class JobAttributes:
    """The attributes of one job.

    priority   as asked for; None: the job's creation time in Unix milliseconds
    meta       name, value, name, value …
    is_keyed   its id says its key, and it uses that (keys.py)
    is_open    it is a copy with a key, and the outcome of its creation wasn't heard here (keying.py)
    part       the changeable part; None for jobs of which nothing has changed, and without ATTEMPTS and BACKOFF
    packed_bytes   about their bytes in a record
    size       accounted bytes
    """

    __slots__ = ("is_keyed", "is_open", "meta", "packed_bytes", "part", "priority", "size")

    def __init__(self, priority: int | None, meta: tuple[bytes, ...], *, is_keyed: bool = False) -> None:
        self.priority = priority
        self.meta = meta
        self.is_keyed = is_keyed
        self.is_open = False
        self.part: Changeable | None = None
        self.packed_bytes = self.size = 0
        self.measure()

    def measure(self) -> None:
        """Compute `packed_bytes` and `size` anew, because the part has changed."""
        words = sum(map(len, self.meta))
        self.packed_bytes = PACKED_BYTES + 3 * len(self.meta) + words
        self.size = ATTRIBUTES_BYTES + PAIR_BYTES * (len(self.meta) >> 1) + words
        if self.part is not None:
            texts = self.part.text_bytes
            self.packed_bytes += changeable.PACKED_BYTES + texts
            self.size += changeable.PART_BYTES + texts

    def again(self) -> JobAttributes:
        """Return the same for another id of the same key."""
        same = JobAttributes(self.priority, self.meta, is_keyed=True)
        if self.part is not None:
            same.part = Changeable(self.part.ttl_ms, self.part.limit, self.part.backoff)
            same.measure()
        return same

    def pack(self) -> Packed:
        """Return the attributes as a field of a snapshot."""
        return (self.priority, self.meta, int(self.is_keyed))


def unpack(field: Any) -> JobAttributes | None:
    """Return the attributes of a snapshot's field, None for none; ValueError if no node can have sent it."""
    if field is None:
        return None
    priority, meta, is_keyed, *_ = field
    if priority is not None and (type(priority) is not int or not -INT64_LIMIT <= priority < INT64_LIMIT):
        raise ValueError("a priority that is no number of 64 bits")
    if type(meta) not in (list, tuple) or len(meta) & 1:
        raise ValueError("metadata that are no pairs")
    if any(type(word) is not bytes for word in meta):
        raise ValueError("metadata that are no bytes")
    if len(meta) > 2 * META_PAIRS_MAX or sum(map(len, meta)) > META_BYTES_MAX:
        _check_limits(meta)
    return JobAttributes(priority, tuple(meta), is_keyed=bool(is_keyed))


def _check_limits(meta: list[bytes] | tuple[bytes, ...]) -> None:
    """ValueError if there are too many pairs or bytes, trace context and other pairs apart (spec F9)."""
    counts = [0, 0]
    sizes = [0, 0]
    for at in range(0, len(meta), 2):
        kind = int(meta[at] in TRACE_NAMES)
        counts[kind] += 1
        sizes[kind] += len(meta[at]) + len(meta[at + 1])
    if counts[0] > META_PAIRS_MAX or counts[1] > len(TRACE_NAMES):
        raise ValueError("metadata of too many pairs")
    if sizes[0] > META_BYTES_MAX or sizes[1] > TRACE_BYTES_MAX:
        raise ValueError("metadata of too many bytes")
