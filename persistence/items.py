"""Items: the content of a job's records, for programs that read journals without a broker.

The broker writes and reads items its own way (core/journaling.py, core/restoring.py), because there every microsecond
counts. The tools meet the same bytes here. `facts_of` makes plain values of a base and of the later STATE; `base_item`
makes a base of plain values. Times in an item are spans, counted from the wall clock in its block's head. Facts carry
moments (Unix milliseconds), so that they mean the same an hour later.

docs/journal.md shows the layouts, and tests compare them with the broker's.
"""

# Stays Python: runs in programs and at DEBUG LOADAOF only.
from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from persistence.records import FormatError

# Creation time, ms of life left, retry ms, delay ms, copies asked for, nacks, additional deliveries, attempt.
HEADER: Final = struct.Struct("<QQQQHHHI")
# Behind it, unless it is 1: the job's version.
VERSION: Final = struct.Struct("<I")
# A base's state: flags, ms until it is to be queued (-1: no such moment).
BASE_STATE: Final = struct.Struct("<Bq")
# The state in a STATE: the same, attempt, nacks, additional deliveries, the job's version. Version 1 ended after
# the attempt. Early files of version 2 end after the counters.
STATE: Final = struct.Struct("<BqIHHI")
STATE_V2: Final = struct.Struct("<BqIHH")
STATE_V1: Final = struct.Struct("<BqI")

IS_QUEUED: Final = 1
IS_DELIVERED: Final = 2
IS_ACKED: Final = 4
IS_LEASED: Final = 8
WAS_QUEUED: Final = 16
IS_GIVEN: Final = 32
FLAG_NAMES: Final = (
    (IS_QUEUED, "queued"),
    (IS_DELIVERED, "delivered"),
    (IS_ACKED, "acked"),
    (IS_LEASED, "leased"),
    (WAS_QUEUED, "was-queued"),
    (IS_GIVEN, "given"),
)

ID_BYTES: Final = 40
NODE_BYTES: Final = 20
# Fields of a base that are read here: id, header, queue, body, holders, state.
KNOWN_FIELDS: Final = 6
SPAN_MAX: Final = (1 << 63) - 1


class Facts(NamedTuple):
    """A job as a journal knows it.

    ctime           creation: wall clock ms x 1,000,000 + sequence
    expire_at_ms    end of its life, Unix ms
    due_at_ms       when it is to be queued, Unix ms; 0: no such moment, or it is in its queue
    flags           the constants above
    holders         ids of the nodes that may have a copy, 20 bytes each
    version         the job's version, which grows with its history
    more            fields behind those that are known here; carried on unchanged
    """

    id: bytes
    queue: bytes
    body: bytes
    ctime: int
    expire_at_ms: int
    retry_ms: int
    delay_ms: int
    replicate: int
    nacks: int
    deliveries: int
    attempt: int
    flags: int
    due_at_ms: int
    holders: tuple[bytes, ...]
    version: int = 1
    more: tuple[Any, ...] = ()

    @property
    def state(self) -> str:
        """The job's state: queued, active or acked."""
        return "acked" if self.flags & IS_ACKED else "queued" if self.flags & IS_QUEUED else "active"


def check_base(item: Any) -> None:
    """Raise FormatError unless this can be a JOB record's item."""
    if not (
        isinstance(item, list | tuple)
        and len(item) >= 6
        and all(type(part) is bytes for part in item[:6])
        and len(item[0]) == ID_BYTES
        and len(item[1]) >= HEADER.size
        and not len(item[4]) % NODE_BYTES
        and len(item[5]) >= BASE_STATE.size
    ):
        raise FormatError("a malformed job record")


def check_state(item: Any) -> None:
    """Raise FormatError unless this can be a STATE record's item."""
    if not (
        isinstance(item, list | tuple)
        and len(item) >= 3
        and type(item[0]) is bytes
        and type(item[1]) is bytes
        and len(item[1]) >= STATE_V1.size
        and (item[2] is None or (type(item[2]) is bytes and not len(item[2]) % NODE_BYTES))
    ):
        raise FormatError("a malformed state record")


def facts_of(base: Any, wall_ms: int, state: bytes | None = None, state_wall_ms: int = 0) -> Facts:
    """Return plain values of a base written at `wall_ms`, and of the last STATE's bytes, if one came after it.

    `base` was checked, and its holders are the latest ones.
    """
    ctime, left_ms, retry_ms, delay_ms, replicate, nacks, deliveries, attempt = HEADER.unpack_from(base[1])
    version = 1
    if len(base[1]) >= HEADER.size + VERSION.size:
        (version,) = VERSION.unpack_from(base[1], HEADER.size)
    if state is None:
        flags, due_ms = BASE_STATE.unpack_from(base[5])
        state_wall_ms = wall_ms
    elif len(state) >= STATE.size:
        flags, due_ms, attempt, nacks, deliveries, version = STATE.unpack_from(state)
    elif len(state) >= STATE_V2.size:
        flags, due_ms, attempt, nacks, deliveries = STATE_V2.unpack_from(state)
    else:
        flags, due_ms, attempt = STATE_V1.unpack_from(state)
    return Facts(
        base[0],
        base[2],
        b"" if flags & IS_ACKED else base[3],
        ctime,
        wall_ms + left_ms,
        retry_ms,
        delay_ms,
        replicate,
        nacks,
        deliveries,
        attempt,
        flags,
        state_wall_ms + due_ms if due_ms >= 0 else 0,
        split_nodes(base[4]),
        version,
        tuple(base[KNOWN_FIELDS:]),
    )


def base_item(facts: Facts, wall_ms: int) -> tuple[Any, ...]:
    """Return the item of a JOB record with these facts, for a block written at `wall_ms`."""
    left_ms = max(0, facts.expire_at_ms - wall_ms)
    due_ms = max(0, facts.due_at_ms - wall_ms) if facts.due_at_ms else -1
    header = HEADER.pack(
        facts.ctime,
        left_ms,
        facts.retry_ms,
        facts.delay_ms,
        facts.replicate,
        facts.nacks,
        facts.deliveries,
        facts.attempt,
    )
    return (
        facts.id,
        header if facts.version == 1 else header + VERSION.pack(facts.version),
        facts.queue,
        facts.body,
        b"".join(sorted(facts.holders)),
        BASE_STATE.pack(facts.flags, due_ms),
        *facts.more,
    )


def split_nodes(packed: bytes) -> tuple[bytes, ...]:
    """Return the ids in a packed set."""
    return tuple(packed[at : at + NODE_BYTES] for at in range(0, len(packed), NODE_BYTES))


def flag_words(flags: int) -> list[str]:
    """Return the names of the flags that are set."""
    return [name for flag, name in FLAG_NAMES if flags & flag]
