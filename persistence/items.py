"""Items: the content of a job's records, for programs that read journals without a broker.

`facts_of` makes plain values of a base and of the later STATE; `base_item` makes a base of plain values. layouts.py has
the positions and packings, which the broker uses, too. Times in an item are spans, counted from the wall clock in its
block's head. Facts have moments (Unix milliseconds), which mean the same an hour later.
"""

# Stays Python: runs in programs and at DEBUG LOADAOF only.
from __future__ import annotations

from typing import Any, Final, NamedTuple

from persistence.layouts import (
    BASE_LENGTH,
    BASE_STATE,
    BASE_STATE_AT,
    BODY_AT,
    HEADER,
    HEADER_AT,
    HOLDERS_AT,
    ID_AT,
    IS_ACKED,
    IS_DELIVERED,
    IS_GIVEN,
    IS_LEASED,
    IS_QUEUED,
    QUEUE_AT,
    STATE_AT,
    STATE_FIELDS,
    STATE_FIELDS_V1,
    STATE_FIELDS_V2,
    STATE_HOLDERS_AT,
    STATE_LENGTH,
    VERSION,
    WAS_QUEUED,
)
from persistence.records import FormatError

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
        and len(item) >= BASE_LENGTH
        and all(type(part) is bytes for part in item[:BASE_LENGTH])
        and len(item[ID_AT]) == ID_BYTES
        and len(item[HEADER_AT]) >= HEADER.size
        and not len(item[HOLDERS_AT]) % NODE_BYTES
        and len(item[BASE_STATE_AT]) >= BASE_STATE.size
    ):
        raise FormatError("a malformed job record")


def check_state(item: Any) -> None:
    """Raise FormatError unless this can be a STATE record's item."""
    if not (isinstance(item, list | tuple) and len(item) >= STATE_LENGTH):
        raise FormatError("a malformed state record")
    state, holders = item[STATE_AT], item[STATE_HOLDERS_AT]
    if not (
        type(item[ID_AT]) is bytes
        and type(state) is bytes
        and len(state) >= STATE_FIELDS_V1.size
        and (holders is None or (type(holders) is bytes and not len(holders) % NODE_BYTES))
    ):
        raise FormatError("a malformed state record")


def facts_of(base: Any, wall_ms: int, state: bytes | None = None, state_wall_ms: int = 0) -> Facts:
    """Return plain values of a base written at `wall_ms`, and of the last STATE's bytes, if one came after it.

    `base` was checked, and its holders are the latest ones.
    """
    header = base[HEADER_AT]
    ctime, left_ms, retry_ms, delay_ms, replicate, nacks, deliveries, attempt = HEADER.unpack_from(header)
    version = 1
    if len(header) >= HEADER.size + VERSION.size:
        (version,) = VERSION.unpack_from(header, HEADER.size)
    if state is None:
        flags, due_ms = BASE_STATE.unpack_from(base[BASE_STATE_AT])
        state_wall_ms = wall_ms
    elif len(state) >= STATE_FIELDS.size:
        flags, due_ms, attempt, nacks, deliveries, version = STATE_FIELDS.unpack_from(state)
    elif len(state) >= STATE_FIELDS_V2.size:
        flags, due_ms, attempt, nacks, deliveries = STATE_FIELDS_V2.unpack_from(state)
    else:
        flags, due_ms, attempt = STATE_FIELDS_V1.unpack_from(state)
    return Facts(
        base[ID_AT],
        base[QUEUE_AT],
        b"" if flags & IS_ACKED else base[BODY_AT],
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
        split_nodes(base[HOLDERS_AT]),
        version,
        tuple(base[BASE_LENGTH:]),
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
