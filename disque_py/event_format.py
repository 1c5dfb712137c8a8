"""The format of events: states, codes, and the layout of packed events.

A node packs its events (core/event_packing.py), keeps them on disk, and sends them as lines or as packed blocks
(docs/events.md). Spark's side unpacks blocks. Both sides read this one table, so they can't disagree. The module
imports nothing of the project, so a program without a broker may use it.

An event is a plain tuple, packed by msgpack:

    (code, job id, version, state left, ms in which it was entered, attempt, nacks, additional deliveries, creation
     time, queue, bytes of the body, rare fields: a dict)

A reader finds the shape of an event by its number of fields. An event without rare fields ends with the bytes of the
body. The two most common events are shorter still:

    (ADDED, id, creation time, queue, bytes)       was queued at once, with version 1
    (DELIVERED, id, version, entered, attempt, nacks, deliveries, creation time, queue, bytes)       was pending
    (code, rare fields)                            an event of the node, not of a job

Codes are on disk, so a code never changes its meaning. Spec E1, E2, E3.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any, Final, Literal, TypeAlias

# -- states -----------------------------------------------------------------------------------------

# The user's states, as `job.status`; UNKNOWN: this node has not seen the job enter its state.
UNKNOWN: Final = 0
INVISIBLE: Final = 1  # In no queue: its DELAY, a pause or a DEQUEUE holds it back.
PENDING: Final = 2  # In a queue of some node.
RUNNING: Final = 3  # With a consumer.
COMPLETED: Final = 4
CANCELED: Final = 5
ERRORED: Final = 6  # Given up here, not for ever: ENQUEUE, or another node, may bring it back.
EXPIRED: Final = 7

STATUS_NAMES: Final = (
    None,
    "invisible",
    "pending",
    "running",
    "completed",
    "canceled",
    "errored",
    "expired",
)
# The states that STATUS takes. An expired job is on no node.
JobStatus: TypeAlias = Literal["invisible", "pending", "running", "completed", "canceled", "errored"]
JOB_STATUSES: Final = tuple([name for name in STATUS_NAMES[INVISIBLE:EXPIRED] if name is not None])

# -- codes ------------------------------------------------------------------------------------------

ADDED: Final = 1
DELIVERED: Final = 2
ACKED: Final = 3
ADDED_ANYHOW: Final = 4  # An ADDED with a rare field, or with a version.
ADDED_INVISIBLE: Final = 5
QUEUED: Final = 6
REQUEUED: Final = 7
NACKED: Final = 8
NACKED_INVISIBLE: Final = 9
ENQUEUED: Final = 10
DEQUEUED: Final = 11
WORKING: Final = 12
DELETED: Final = 13
DELETED_COPY: Final = 14
EXPIRED_EVENT: Final = 15
DROPPED: Final = 16
LOST: Final = 17
ERRORED_EVENT: Final = 18
DEAD_LETTERED: Final = 19
DEAD_LETTERED_INVISIBLE: Final = 20
CANCELED_EVENT: Final = 21
PROMOTED: Final = 22
PROMOTED_INVISIBLE: Final = 23
RESCHEDULED: Final = 24
RESCHEDULED_INVISIBLE: Final = 25
MOVED: Final = 26
MOVED_INVISIBLE: Final = 27
MOVED_ERRORED: Final = 28
ENQUEUED_INVISIBLE: Final = 29  # By QREDRIVE, while the input of the queue is paused.
REQUEUED_INVISIBLE: Final = 30  # The lease ended while the input of the queue was paused.
PROGRESS: Final = 44
# Events of the node.
STARTED: Final = 32
FLUSHED: Final = 33
REPAIR_STARTED: Final = 34
REPAIR_FINISHED: Final = 35

# Name of the event, state entered.
CODES: Final[dict[int, tuple[str, int]]] = {
    ADDED: ("added", PENDING),
    DELIVERED: ("delivered", RUNNING),
    ACKED: ("acked", COMPLETED),
    ADDED_ANYHOW: ("added", PENDING),
    ADDED_INVISIBLE: ("added", INVISIBLE),
    QUEUED: ("queued", PENDING),
    REQUEUED: ("requeued", PENDING),
    NACKED: ("nacked", PENDING),
    NACKED_INVISIBLE: ("nacked", INVISIBLE),
    ENQUEUED: ("enqueued", PENDING),
    DEQUEUED: ("dequeued", INVISIBLE),
    WORKING: ("working", RUNNING),
    DELETED: ("deleted", CANCELED),
    DELETED_COPY: ("deleted", INVISIBLE),
    EXPIRED_EVENT: ("expired", EXPIRED),
    DROPPED: ("dropped", EXPIRED),
    LOST: ("lost", ERRORED),
    ERRORED_EVENT: ("errored", ERRORED),
    DEAD_LETTERED: ("dead-lettered", PENDING),
    DEAD_LETTERED_INVISIBLE: ("dead-lettered", INVISIBLE),
    CANCELED_EVENT: ("canceled", CANCELED),
    PROMOTED: ("promoted", PENDING),
    PROMOTED_INVISIBLE: ("promoted", INVISIBLE),
    RESCHEDULED: ("rescheduled", PENDING),
    RESCHEDULED_INVISIBLE: ("rescheduled", INVISIBLE),
    MOVED: ("moved", PENDING),
    MOVED_INVISIBLE: ("moved", INVISIBLE),
    MOVED_ERRORED: ("moved", ERRORED),
    ENQUEUED_INVISIBLE: ("enqueued", INVISIBLE),
    REQUEUED_INVISIBLE: ("requeued", INVISIBLE),
    PROGRESS: ("progress", RUNNING),
    STARTED: ("started", UNKNOWN),
    FLUSHED: ("flushed", UNKNOWN),
    REPAIR_STARTED: ("repair-started", UNKNOWN),
    REPAIR_FINISHED: ("repair-finished", UNKNOWN),
}
# A code of a later version.
UNKNOWN_EVENT: Final[tuple[str, int]] = ("unknown", UNKNOWN)

# -- layout -----------------------------------------------------------------------------------------

# The number of fields of each shape.
FIELDS_OF_NODE: Final = 2
FIELDS_OF_ADDED: Final = 5
FIELDS_OF_DELIVERED: Final = 10
FIELDS_OF_CHANGE: Final = 11
FIELDS_WITH_RARE: Final = 12

VERSION_FIRST: Final = 1
# A creation time is in ns. A job without PRIORITY has its creation time in ms as its priority.
MS_OF_CTIME: Final = 1_000_000

# The first four bytes of the three usual events, as a signed number: msgpack's head of an array with its number of
# fields, the code, and msgpack's head of a byte string of 40 bytes, which is the id.
USUAL_ID_BYTES: Final = 40
_ARRAY: Final = 0x90
# In msgpack: bytes whose length has 8 bits, the most bytes that they can have, and the highest number in one byte.
BIN8: Final = 0xC4
SHORT_BYTES_MAX: Final = 255
SMALL_MAX: Final = 127
_ID: Final = BIN8 << 8 | USUAL_ID_BYTES
START_OF_ADDED: Final = ((_ARRAY | FIELDS_OF_ADDED) << 24 | ADDED << 16 | _ID) - (1 << 32)
START_OF_DELIVERED: Final = ((_ARRAY | FIELDS_OF_DELIVERED) << 24 | DELIVERED << 16 | _ID) - (1 << 32)
START_OF_ACKED: Final = ((_ARRAY | FIELDS_OF_CHANGE) << 24 | ACKED << 16 | _ID) - (1 << 32)

# -- replies ----------------------------------------------------------------------------------------

# The first byte of a packed reply. No line begins with it. A later packing would begin with another byte.
PACKED_MARK: Final = b"\x01"
# The head of a block: bytes of the packed events, how many, number of the first, Unix ms.
BLOCK_HEAD: Final = struct.Struct("<IIQQ")

# Readers order the events of a job by (final, version, node, seq). `final` is the rank of the state entered, else 0. An
# event of a kind that the reader doesn't know enters no known state, so every other event of its job is newer.
UNKNOWN_RANK: Final = -1
FINAL_RANKS: Final[dict[int, int]] = {COMPLETED: 3, CANCELED: 2, EXPIRED: 1}
FINAL_RANKS_BY_NAME: Final[dict[str, int]] = {str(STATUS_NAMES[state]): rank for state, rank in FINAL_RANKS.items()}
_RANKS: Final = " ".join(f"WHEN to_state = '{name}' THEN {rank}" for name, rank in FINAL_RANKS_BY_NAME.items())
# The rank as an expression of SQL, and the names of the other states as a list of SQL.
FINAL_RANK_SQL: Final = f"CASE WHEN to_state IS NULL THEN {UNKNOWN_RANK} {_RANKS} ELSE 0 END"
_LIVE: Final = ", ".join(f"'{name}'" for name in STATUS_NAMES if name and name not in FINAL_RANKS_BY_NAME)
LIVE_SQL: Final = f"({_LIVE})"
# The events of a job that end its state, as a condition of SQL.
TRANSITION_SQL: Final = "(to_state IS NOT NULL AND event IS DISTINCT FROM 'progress')"
# The events that are failures, as a condition of SQL. A dead letter is a failure without a reason, too. `canceled`
# names the job that took another one's place, and `moved` leaves an errored job errored.
FAILURE_SQL: Final = (
    "(error <> '' OR to_state = 'errored' OR event = 'dead-lettered') AND event NOT IN ('canceled', 'moved') "
    "AND to_state IS NOT NULL"
)

# The column `v` of lines, and of the rows that are made of blocks.
SCHEMA_VERSION: Final = 1


def in_full(event: Any) -> Any:
    """Return an event of a job, of any shape, as a sequence with all its fields."""
    if len(event) == FIELDS_OF_ADDED:
        code, job_id, ctime, queue, size = event
        return code, job_id, VERSION_FIRST, UNKNOWN, 0, 0, 0, 0, ctime, queue, size
    return (*event[:3], PENDING, *event[3:]) if len(event) == FIELDS_OF_DELIVERED else event


def line_fields(seq: int, ts_ms: int, event: Any) -> dict[str, Any]:
    """Return the fields of the event's line, in their order; ValueError or IndexError if the event is malformed."""
    rare: dict[str, Any] = event[-1] if isinstance(event[-1], dict) else {}
    name, entered = CODES.get(event[0], UNKNOWN_EVENT)
    fields: dict[str, Any] = {
        "seq": seq,
        "ts": ts_ms,
        "job_id": None,
        "ctime": None,
        "queue": None,
        "version": None,
        "event": name,
        "from_state": None,
        "to_state": STATUS_NAMES[entered],
        "since": None,
        "attempt": None,
        "nacks": None,
        "deliveries": None,
        "priority": None,
        "error": None,
        "worker": None,
        "meta": {},
        "body_size": None,
        "v": SCHEMA_VERSION,
    }
    if len(event) > FIELDS_OF_NODE:
        _, job_id, version, left, since_ms, attempt, nacks, deliveries, ctime, queue, size, *_ = in_full(event)
        fields |= {
            "job_id": job_id.decode("ascii", "replace"),
            "ctime": ctime,
            "queue": queue.decode("utf-8", "replace"),
            "version": version,
            # A later version may have more states.
            "from_state": STATUS_NAMES[left] if left < len(STATUS_NAMES) else None,
            "since": since_ms or None,
            "attempt": attempt,
            "nacks": nacks,
            "deliveries": deliveries,
            "priority": ctime // MS_OF_CTIME,
            "body_size": size,
        }
    for key, value in rare.items():
        if key == "body":
            fields |= _body(value)
        elif key == "meta":
            words = [word.decode("utf-8", "replace") for word in value]
            fields[key] = dict(zip(words[::2], words[1::2], strict=True))
        else:
            fields[key] = value
    return fields


def _body(body: bytes) -> dict[str, str]:
    """Return the body as text if it is text, else in Base64."""
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode("ascii")}
