"""Changeable: the part of a job that may change. It is a separate object, so that other jobs need no memory for it.

A job's body, TTL span, RETRY, REPLICATE, KEY and META never change. Its changeable part consists of queue, priority,
due time, end of life, limit and start of the current set of attempts, last error, and dead-letter history. Queue,
priority and end of life are fields of the job. This object has the rest.

The part has a change number. A node that changes the part takes the highest number that it knows plus one. The part
with the higher (number, node id) wins as a whole. A job without such an object has number 0.

On the bus and in the journal the part is one field: (number, node id, queue, priority or nil, ms of life left, ms until
due, limit, start, attempt ended by a NACK, flags, error or nil, TTL span, back-off, dead-letter history or nil).
changing.py tells other nodes. Spec Y2, Y3.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any, Final

ATTEMPTS_MAX: Final = 1_000_000_000
REASON_BYTES_MAX: Final = 1_024
# The limits for spans and numbers from other nodes, as in job_snapshot.py.
_SPAN_BITS: Final = 54
_NUMBER_MAX: Final = 1 << 53
# A node ignores a change number that is this far above its own, because no job changes so often. So a wrong number
# can't use up all numbers.
NUMBER_STEP_MAX: Final = 1 << 32
_NODE_BYTES: Final = 20
_BACKOFF_BYTES_MAX: Final = 64
# The limit for an error from another node: a reason given by a worker, or a text of the node itself.
_ERROR_BYTES_MAX: Final = 4_096

# The measured bytes of a part in memory, without its texts.
PART_BYTES: Final = 330
# The bytes of its record, without its texts.
PACKED_BYTES: Final = 60

# Positions of the values that are fields of the job.
QUEUE_AT: Final = 2
PRIORITY_AT: Final = 3
LEFT_AT: Final = 4
DUE_AT: Final = 5

IS_ERRORED: Final = 1
IS_DEAD_LETTER: Final = 2
IS_HELD: Final = 4

LEASE_EXPIRED: Final = b"lease expired"

_BACKOFF: Final = re.compile(rb"(fixed|linear|exponential):([0-9]{1,16}):([0-9]{1,16})(?::([0-9]{1,3}))?")

# The names of META that show the dead-letter history.
FROM: Final = b"x-disque-from"
ERROR: Final = b"x-disque-error"
ATTEMPTS: Final = b"x-disque-attempts"
TIME: Final = b"x-disque-time"
COUNT: Final = b"x-disque-count"
HISTORY_NAMES: Final = (FROM, ERROR, ATTEMPTS, TIME, COUNT)

# Former queue, error, attempts spent there, Unix ms of the move, number of moves, limit of attempts there.
History = tuple[bytes, bytes, int, int, int, int]
# The part on the bus and in the journal.
Packed = tuple[Any, ...]


class Changeable:
    """The changeable part of one job (see the module).

    number, node   the change number, and the node that made the change; 0 and b"": nothing was changed
    limit          deliveries that one set of attempts allows; 0: any number
    start          the job's `attempt` when the current set began
    ended          the last delivery that a NACK ended
    backoff        the back-off policy for NACKs without DELAY, in the option's form; empty: the queue's policy
    error          reason of the last failure; None: no failure
    is_errored     whether no attempts are left, so that the job is in no queue
    is_dead_letter whether the job came into its queue as a dead letter
    history        the last move to a dead-letter queue; None: it was never moved
    ttl_ms         the span of the job's TTL
    due_ms         when the delay of a NACK ends (monotonic clock of this node)
    is_delayed     whether this delay is running
    is_held        whether this delay stands for a pause: the node that the job was given back to queues it at its end
    """

    __slots__ = (
        "backoff",
        "due_ms",
        "ended",
        "error",
        "history",
        "is_dead_letter",
        "is_delayed",
        "is_errored",
        "is_held",
        "limit",
        "node",
        "number",
        "start",
        "ttl_ms",
    )

    def __init__(self, ttl_ms: int, limit: int = 0, backoff: bytes = b"") -> None:
        self.number = 0
        self.node = b""
        self.limit = limit
        self.start = 0
        self.ended = 0
        self.backoff = backoff
        self.error: bytes | None = None
        self.is_errored = False
        self.is_dead_letter = False
        self.history: History | None = None
        self.ttl_ms = ttl_ms
        self.due_ms = 0
        self.is_delayed = False
        self.is_held = False

    def count(self, heard: int) -> None:
        """Take the number of the next change: one above all known numbers. `heard` is the highest of other nodes."""
        self.number = min(max(self.number, heard) + 1, _NUMBER_MAX)

    def is_spent(self, attempt: int) -> bool:
        """Return whether no delivery is left in the current set of attempts."""
        return 0 < self.limit <= attempt - self.start

    def attempts_left(self, attempt: int) -> int | None:
        """Return how many deliveries are left; None: any number."""
        if self.is_errored:
            return 0
        return max(0, self.limit - (attempt - self.start)) if self.limit else None

    def pairs(self) -> tuple[bytes, ...]:
        """Return the dead-letter history as pairs of META."""
        history = self.history
        if history is None:
            return ()
        return (
            FROM,
            history[0],
            ERROR,
            history[1],
            ATTEMPTS,
            b"%d" % history[2],
            TIME,
            b"%d" % history[3],
            COUNT,
            b"%d" % history[4],
        )

    @property
    def text_bytes(self) -> int:
        """Return the size of its texts in bytes."""
        size = len(self.backoff) + (len(self.error) if self.error is not None else 0)
        return size if self.history is None else size + len(self.history[0]) + len(self.history[1])

    def pack(self, queue: bytes, priority: int | None, left_ms: int, due_ms: int) -> Packed:
        """Return the part in its packed form. `left_ms` and `due_ms` are spans from now."""
        flags = (IS_ERRORED if self.is_errored else 0) | (IS_DEAD_LETTER if self.is_dead_letter else 0)
        if due_ms and self.is_held:
            flags |= IS_HELD
        return (
            self.number,
            self.node,
            queue,
            priority,
            left_ms,
            due_ms,
            self.limit,
            self.start,
            self.ended,
            flags,
            self.error,
            self.ttl_ms,
            self.backoff,
            self.history,
        )


def is_number(value: Any) -> bool:
    """Return whether this is a change number that fits the format."""
    return type(value) is int and 0 <= value <= _NUMBER_MAX


def unpack(field: Any) -> Changeable:
    """Return the part from its packed form, without the values that are fields of the job. Raise ValueError."""
    number, node, queue, priority, left_ms, due_ms, limit, start, ended, flags, error, ttl_ms, backoff, past, *_ = field
    for value in (left_ms, due_ms, limit, start, ended, flags, ttl_ms):
        if type(value) is not int or value < 0:
            raise ValueError("a change with an invalid number")
    if (left_ms | due_ms | ttl_ms) >> _SPAN_BITS or not is_number(number) or limit > ATTEMPTS_MAX:
        raise ValueError("a change with a number out of range")
    if (start | ended) >> 32:
        raise ValueError("a change with an attempt out of range")
    if priority is not None and (type(priority) is not int or not -(1 << 63) <= priority < 1 << 63):
        raise ValueError("a change with a priority that is not a 64-bit number")
    if type(node) is not bytes or len(node) not in (0, _NODE_BYTES) or type(queue) is not bytes:
        raise ValueError("a change without a node or a queue")
    if error is not None and (type(error) is not bytes or len(error) > _ERROR_BYTES_MAX):
        raise ValueError("a change with an error that is not a text")
    if type(backoff) is not bytes or len(backoff) > _BACKOFF_BYTES_MAX:
        raise ValueError("a change with an invalid back-off")
    part = Changeable(ttl_ms, limit, backoff)
    part.number = number
    part.node = node
    part.start = start
    part.ended = ended
    part.error = error
    part.is_errored = bool(flags & IS_ERRORED)
    part.is_dead_letter = bool(flags & IS_DEAD_LETTER)
    part.is_held = bool(flags & IS_HELD)
    part.history = _history(past)
    return part


def _history(past: Any) -> History | None:
    if past is None:
        return None
    source, error, attempts, time_ms, count, *later = past
    limit = later[0] if later else 0
    if type(source) is not bytes or type(error) is not bytes or len(error) > _ERROR_BYTES_MAX:
        raise ValueError("a dead-letter history without a queue or an error")
    if type(limit) is not int or not 0 <= limit <= ATTEMPTS_MAX:
        raise ValueError("a dead-letter history with an invalid limit")
    for value in (attempts, time_ms, count):
        if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
            raise ValueError("a dead-letter history with an invalid number")
    return source, error, attempts, time_ms, count, limit


def read_backoff(text: bytes, span_ms_max: int) -> bytes:
    """Return a back-off policy in its shortest form; empty if the text is not a valid policy."""
    match = _BACKOFF.fullmatch(text.lower())
    if match is None:
        return b""
    base_ms, cap_ms, jitter = int(match[2]), int(match[3]), int(match[4] or b"0")
    if base_ms > cap_ms or cap_ms > span_ms_max or jitter > 100:
        return b""
    short = b"%b:%d:%d" % (match[1], base_ms, cap_ms)
    return b"%b:%d" % (short, jitter) if jitter else short


def backoff_ms(policy: bytes, spent: int, rng: Random) -> int:
    """Return the delay of a NACK after `spent` attempts; 0 without a policy. Spec Y6."""
    if not policy:
        return 0
    kind, base, cap, *jitter = policy.split(b":")
    span_ms, cap_ms = int(base), int(cap)
    spent = max(1, spent)
    if kind == b"linear":
        span_ms *= spent
    elif kind == b"exponential":
        span_ms <<= min(spent - 1, 64)
    span_ms = min(span_ms, cap_ms)
    if jitter:
        span_ms -= int(rng.random() * span_ms * int(jitter[0]) / 100)
    return span_ms
