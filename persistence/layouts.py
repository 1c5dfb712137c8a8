"""Layouts: the positions in the items of a journal's records, and the numbers that are packed into them.

An item is a tuple. `FIELDS` names its positions for each kind of record. The broker writes and reads items its own way
(core/journaling.py, core/restoring.py), because there every microsecond counts. The tools read them without a broker
(items.py, check.py). Both take positions, packings and flags from here, and tests/unit/persistence/test_layouts.py
compares both with the table.

A job's snapshot on the bus (core/job_snapshot.py) has the same first five positions and the same header.
docs/journal.md shows every byte. records.py says how to change the format.
"""

from __future__ import annotations

import struct
from typing import Final

from persistence.records import BATCH, DROPPED, GONE, JOB, KEY, PAUSE, RESULT, STATE, TOKEN

# -- positions --------------------------------------------------------------------------------------

# Later versions add fields at the end. The item of a DROPPED is a number instead.
FIELDS: Final = {
    JOB: ("id", "header", "queue", "body", "holders", "state", "attributes", "part"),
    STATE: ("id", "state", "holders", "part", "claim"),
    GONE: ("id", "segment"),
    PAUSE: ("queue", "flags", "version_ms", "version_node", "told_flags"),
    DROPPED: (),
    TOKEN: ("token", "goes_on", "deliveries"),
    KEY: ("id", "left_ms"),
    RESULT: ("id", "result", "left_ms", "version", "node"),
    BATCH: ("batch", "part", "life", "entries"),
}


def _at(kind: int, field: str) -> int:
    return FIELDS[kind].index(field)


ID_AT: Final = _at(JOB, "id")  # In every item about a job.
HEADER_AT: Final = _at(JOB, "header")
QUEUE_AT: Final = _at(JOB, "queue")
BODY_AT: Final = _at(JOB, "body")
HOLDERS_AT: Final = _at(JOB, "holders")
BASE_STATE_AT: Final = _at(JOB, "state")
ATTRIBUTES_AT: Final = _at(JOB, "attributes")
PART_AT: Final = _at(JOB, "part")
# Every version writes the fields of a JOB up to its state.
BASE_LENGTH: Final = BASE_STATE_AT + 1
STATE_AT: Final = _at(STATE, "state")
# None while the holders are those of the base.
STATE_HOLDERS_AT: Final = _at(STATE, "holders")
STATE_PART_AT: Final = _at(STATE, "part")
# Every version writes the fields of a STATE up to its holders.
STATE_LENGTH: Final = STATE_HOLDERS_AT + 1
SEGMENT_AT: Final = _at(GONE, "segment")
PAUSED_AT: Final = _at(PAUSE, "queue")
PAUSE_FLAGS_AT: Final = _at(PAUSE, "flags")
PAUSE_MS_AT: Final = _at(PAUSE, "version_ms")
PAUSE_NODE_AT: Final = _at(PAUSE, "version_node")
TOKEN_AT: Final = _at(TOKEN, "token")
BATCH_AT: Final = _at(BATCH, "batch")
BATCH_PART_AT: Final = _at(BATCH, "part")
ENTRIES_AT: Final = _at(BATCH, "entries")

# -- packed numbers ---------------------------------------------------------------------------------

# Creation time, ms of life left, retry ms, delay ms, copies asked for, nacks, additional deliveries, attempt.
HEADER: Final = struct.Struct("<QQQQHHHI")
# The bytes of `retry ms` in it: all zero for an at-most-once job.
RETRY_START: Final = 16
RETRY_END: Final = 24
# Behind the header, unless it is 1: the job's version.
VERSION: Final = struct.Struct("<I")
# A base's state: flags, ms until it is to be queued (-1: no such moment).
BASE_STATE: Final = struct.Struct("<Bq")
# The state in a STATE: the same, attempt, nacks, additional deliveries, the job's version. Version 1 of the format
# ended after the attempt. Early files of version 2 end after the counters.
STATE_FIELDS: Final = struct.Struct("<BqIHHI")
STATE_FIELDS_V2: Final = struct.Struct("<BqIHH")
STATE_FIELDS_V1: Final = struct.Struct("<BqI")

# About how many bytes a base takes in its segment, besides queue name and body.
BASE_BYTES: Final = 130

# -- flags of a state -------------------------------------------------------------------------------

IS_QUEUED: Final = 1  # In a queue of this node.
IS_DELIVERED: Final = 2  # Handed to a consumer, or given away, at least once.
IS_ACKED: Final = 4  # Done; kept for nodes that don't know.
IS_LEASED: Final = 8  # Delivered by this node, and the lease is running.
WAS_QUEUED: Final = 16  # Its next queueing is a re-queue.
IS_GIVEN: Final = 32  # Being handed over to another node.
IS_CANCELED: Final = 64  # Acknowledged with the outcome "canceled".
