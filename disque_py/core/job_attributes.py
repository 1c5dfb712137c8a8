"""JobAttributes: fields that only some jobs have. They are in one object, so that other jobs need no memory for them.

The fields are PRIORITY (jobs with lower values are served first), META (pairs without a meaning for the broker),
whether the job was added with a KEY (keys.py), and the changeable part (changeable.py). They travel with the job. On
the bus and in the journal the first three are one of the later fields of a job's snapshot (job_snapshot.py): (priority
or nil, [name, value, …], 1 if keyed). The changeable part is the field after it.

Rarer values are *extras*: pairs of a code and a value, in one flat list at the end of that field, which only jobs with
extras have. A node keeps extras with unknown codes, and passes them on. The topic of a job travels as an extra, too. In
memory it is one of the job's terms (job.py). Spec F1, F3, F11, K6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from disque_py.config.directives import META_PAIRS_MAX
from disque_py.core import changeable
from disque_py.core.changeable import Changeable

INT64_LIMIT: Final = 1 << 63

# The measured bytes of a job's attributes without its pairs: the object, and the entry in the table of keys. A job that
# has only a PRIORITY needs half of this.
ATTRIBUTES_BYTES: Final = 280
PAIR_BYTES: Final = 90
PACKED_BYTES: Final = 12

# The most bytes of names and values of one job. Its snapshot with the body must fit into a frame.
META_BYTES_MAX: Final = 65_536
NAME_BYTES_MAX: Final = 1_024  # The names of pairs have the same limit as the names of batches and topics.
# Libraries add trace context, so it does not count against the limits of the user's pairs. These two pairs have a limit
# of their own.
TRACE_NAMES: Final = (b"traceparent", b"tracestate")
TRACE_BYTES_MAX: Final = 1_024

# Codes of extras.
CLAIM: Final = 1  # The key under which the job may be delivered.
WINDOW: Final = 2  # How long its KEY is used (windows.py).
TOPIC: Final = 3  # The topic that it was published to. In memory it is one of the job's terms (job.py).
BATCH: Final = 4  # The batch that it belongs to.
SCHEDULE: Final = 5  # The schedule that made it.
# The most extras of a job.
EXTRAS_MAX: Final = 32
# The most packed bytes of all its extras.
EXTRAS_BYTES_MAX: Final = 65_536
EXTRA_BYTES: Final = 120
# The number of items in the packed form of a job that has only a topic.
TOPIC_FIELD_LENGTH: Final = 4

# The types of the words of CLAIM: queue, name, value, flags, fence, fence of the job's own key, holder.
STAMP_TYPES: Final = (bytes, bytes, bytes, int, int, int, bytes)

Extras = dict[int, Any]
# Priority, pairs, 1 if keyed; extras if there are any.
Packed = tuple[Any, ...]


class JobAttributes:
    """The attributes of one job.

    priority   PRIORITY; None: the job's creation time in Unix milliseconds
    meta       name, value, name, value …
    is_keyed   whether the job was added with a KEY, which its id contains (keys.py)
    is_open    whether it is a copy with a key, of which this node does not know yet whether it was created (keying.py)
    extras     code -> value (bytes, a number, or a list of these); None: there are none
    part       the changeable part; None if nothing of it has changed and the job has no ATTEMPTS or BACKOFF
    packed_bytes   approximate size of the attributes in a record
    size       accounted bytes
    """

    __slots__ = ("extras", "is_keyed", "is_open", "meta", "packed_bytes", "part", "priority", "size")

    def __init__(self, priority: int | None, meta: tuple[bytes, ...], *, is_keyed: bool = False) -> None:
        self.priority = priority
        self.meta = meta
        self.is_keyed = is_keyed
        self.is_open = False
        self.extras: Extras | None = None
        self.part: Changeable | None = None
        self.packed_bytes = PACKED_BYTES
        self.size = ATTRIBUTES_BYTES
        if meta:
            self.measure()

    def measure(self) -> None:
        """Compute `packed_bytes` and `size` again, because the part or an extra has changed."""
        words = sum(map(len, self.meta))
        self.packed_bytes = PACKED_BYTES + 3 * len(self.meta) + words
        self.size = ATTRIBUTES_BYTES + PAIR_BYTES * (len(self.meta) >> 1) + words
        if self.extras is not None:
            texts = _bytes_of_extras(self.extras)
            self.packed_bytes += texts + 2 * len(self.extras)
            self.size += texts + EXTRA_BYTES * len(self.extras)
        if self.part is not None:
            texts = self.part.text_bytes
            self.packed_bytes += changeable.PACKED_BYTES + texts
            self.size += changeable.PART_BYTES + texts

    def extra(self, code: int) -> Any:
        """Return the value of an extra; None if the job has none."""
        return None if self.extras is None else self.extras.get(code)

    def set_extra(self, code: int, value: Any) -> None:
        """Set an extra of the job, or remove it (None). The caller accounts for the memory, as after any change."""
        if value is not None:
            if self.extras is None:
                self.extras = {}
            self.extras[code] = value
        elif self.extras is not None:
            self.extras.pop(code, None)
            self.extras = self.extras or None
        self.measure()

    def again(self) -> JobAttributes:
        """Return a copy for another id of the same key."""
        same = JobAttributes(self.priority, self.meta, is_keyed=True)
        if self.extras is not None:
            same.extras = dict(self.extras)
            same.measure()
        if self.part is not None:
            same.part = Changeable(self.part.ttl_ms, self.part.limit, self.part.backoff)
            same.measure()
        return same

    def like(self) -> JobAttributes:
        """Return a copy for another new job: priority, pairs and extras."""
        same = JobAttributes(self.priority, self.meta)
        if self.extras is not None:
            same.extras = dict(self.extras)
            same.measure()
        return same

    def pack(self, topic: bytes | None = None) -> Packed:
        """Return the attributes as a field of a snapshot, with the topic of the job's terms."""
        if self.extras is not None or topic is not None:
            flat: list[Any] = [] if topic is None else [TOPIC, topic]
            if self.extras is not None:
                for code, value in self.extras.items():
                    flat.append(code)
                    flat.append(value)
            return (self.priority, self.meta, int(self.is_keyed), flat)
        return (self.priority, self.meta, int(self.is_keyed))


def pack_topic(topic: bytes) -> Packed:
    """Return the field of a job that has a topic and no other attributes."""
    return (None, (), 0, (TOPIC, topic))


def topic_bytes(topic: bytes) -> int:
    """Return the approximate size of a topic in a record, in bytes."""
    return PACKED_BYTES + len(topic)


def unpack(field: Any) -> tuple[JobAttributes | None, bytes | None]:
    """Return the attributes from a snapshot's field, and the topic. Raise ValueError if the field is not valid."""
    if field is None:
        return None, None
    if len(field) == TOPIC_FIELD_LENGTH and field[0] is None and not field[1] and not field[2]:
        extras = field[3]
        if type(extras) in (list, tuple) and len(extras) == 2 and extras[0] == TOPIC and type(extras[1]) is bytes:
            if len(extras[1]) > EXTRAS_BYTES_MAX:
                raise ValueError("extras of too many bytes")
            return None, extras[1]
    attributes = _unpack(field)
    topic: bytes | None = attributes.extra(TOPIC)
    if topic is not None:
        attributes.set_extra(TOPIC, None)
    return attributes, topic


def _unpack(field: Any) -> JobAttributes:
    priority, meta, is_keyed, *later = field
    if priority is not None and (type(priority) is not int or not -INT64_LIMIT <= priority < INT64_LIMIT):
        raise ValueError("a priority that is not a 64-bit number")
    if type(meta) not in (list, tuple) or len(meta) & 1:
        raise ValueError("metadata that are not pairs")
    if any(type(word) is not bytes for word in meta):
        raise ValueError("metadata that are not bytes")
    if len(meta) > 2 * META_PAIRS_MAX or sum(map(len, meta)) > META_BYTES_MAX:
        _check_limits(meta)
    attributes = JobAttributes(priority, tuple(meta), is_keyed=bool(is_keyed))
    if later and later[0]:
        attributes.extras = _unpack_extras(later[0])
        attributes.measure()
    return attributes


def _unpack_extras(field: Any) -> Extras:
    """Return the extras of a field. Raise ValueError."""
    if type(field) not in (list, tuple) or len(field) & 1 or len(field) > 2 * EXTRAS_MAX:
        raise ValueError("extras that are not pairs, or too many")
    extras: Extras = {}
    for at in range(0, len(field), 2):
        code, value = field[at], field[at + 1]
        if type(code) is not int or not _is_plain(value):
            raise ValueError("an invalid extra")
        check = CHECKS.get(code)
        if check is not None and not check(value):
            raise ValueError(f"an invalid extra of code {code}")
        extras[code] = value
    if _bytes_of_extras(extras) > EXTRAS_BYTES_MAX:
        raise ValueError("extras of too many bytes")
    return extras


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(type(each) in (bytes, int) for each in value)
    return type(value) in (bytes, int)


def _bytes_of_extras(extras: Extras) -> int:
    total = 0
    for value in extras.values():
        total += len(value) + 3 if type(value) is bytes else _bytes_of(value)
    return total


def _bytes_of(value: Any) -> int:
    """Return the approximate size of a value in a record, in bytes."""
    if type(value) is bytes:
        return len(value) + 3
    return sum(map(_bytes_of, value)) if type(value) in (list, tuple) else 9


def _is_text(value: Any) -> bool:
    return type(value) is bytes


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _is_window(value: Any) -> bool:
    """Return whether a value can be a WINDOW: a number, or with REPLACE a list of a number and ids."""
    if type(value) not in (list, tuple):
        return _is_count(value)
    return len(value) > 0 and _is_count(value[0]) and all(type(each) is bytes for each in value[1:])


def _is_stamp(value: Any) -> bool:
    """Return whether a value can be a stamp (claim_stamps.py)."""
    if type(value) not in (list, tuple) or len(value) < len(STAMP_TYPES):
        return False
    if any(type(each) is not kind for each, kind in zip(value, STAMP_TYPES, strict=False)):
        return False
    return 0 <= value[3] < 1 << 31 and 0 <= value[4] < 1 << 63 and 0 <= value[5] < 1 << 63 and len(value[6]) <= 64


# Code -> function that checks a value from another node. Other codes are of newer versions.
CHECKS: Final[dict[int, Callable[[Any], bool]]] = {
    CLAIM: _is_stamp,
    WINDOW: _is_window,
    TOPIC: _is_text,
    BATCH: _is_text,
    SCHEDULE: _is_text,
}


def _check_limits(meta: list[bytes] | tuple[bytes, ...]) -> None:
    """Raise ValueError for too many pairs or bytes. Trace context and other pairs have separate limits (spec F9)."""
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
