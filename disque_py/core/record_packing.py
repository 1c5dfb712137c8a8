"""JobRun: records of one kind, which are packed one after the other.

Nearly every ADDJOB makes a JOB, and every GETJOB and ACKJOB a STATE or a GONE. To make a tuple and pack it with msgpack
costs half a microsecond per record. So compiled code writes the usual records byte by byte into a buffer, as
event_packing.py does with events. persistence/layouts.py has their fields. The bytes are the same that msgpack makes
from the tuples. In plain Python the calls of the buffer cost more than a tuple, so there the run is a list of tuples.

An unusual record becomes a tuple in both builds: a job with attributes or of a topic, large counters, an id of another
shape.
"""

from __future__ import annotations

import struct
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # It ships no types.
from mypy_extensions import i16, i32, i64, u8

from disque_py.core.ids import ID_BYTES
from disque_py.event_format import BIN8, SMALL_MAX
from persistence.layouts import BASE_STATE, HEADER, STATE_FIELDS, VERSION
from persistence.records import PackedRun

try:
    from librt.strings import BytesWriter, write_i16_be, write_i16_le, write_i32_be, write_i32_le, write_i64_le
except ImportError:  # Plain Python works without it; compiled code reports a missing module itself.
    pass

if TYPE_CHECKING:
    from disque_py.core.job import Job, JobTerms

# msgpack: bytes with a length of 16 or 32 bits, unsigned numbers of 8, 16 or 32 bits, arrays of few items, nil.
_BIN16: Final = 0xC5
_BIN32: Final = 0xC6
_U8: Final = 0xCC
_U16: Final = 0xCD
_U32: Final = 0xCE
_NIL: Final = 0xC0

# Each is the beginning of a field of bytes: the type, and a length of 8 bits. It is written as a signed number.
_BIN8_HIGH: Final = (BIN8 << 8) - (1 << 16)
_ID_START: Final = _BIN8_HIGH + ID_BYTES
_HEADER_START: Final = _BIN8_HIGH + 42
_LONG_HEADER_START: Final = _BIN8_HIGH + 46  # With the job's version.
_BASE_STATE_START: Final = _BIN8_HIGH + 9
_STATE_START: Final = _BIN8_HIGH + 21
_JOB_ARRAY: Final = 0x96
_STATE_ARRAY: Final = 0x93
_GONE_ARRAY: Final = 0x92

# Attempt, nacks and additional deliveries: zeros in a new job.
_COUNTERS_BYTES: Final = 8

# Larger times of creation don't fit a compiled int.
_TIME_MAX: Final = (1 << 62) - 1

# From this size on, the buffer is not kept for the next turn.
_KEPT_BYTES_MAX: Final = 1 << 20

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
_pack_base = BASE_STATE.pack
_pack_header = HEADER.pack
_pack_terms = struct.Struct("<QQH").pack  # A part of HEADER.
_pack_state = STATE_FIELDS.pack


class JobRun:
    """The records of one kind in a turn. `count` is their number since the last `take`."""

    __slots__ = (
        "_due_ms",
        "_flags",
        "_holders",
        "_items",
        "_kind",
        "_packed_end",
        "_packed_new",
        "_packed_terms",
        "_terms",
        "_writer",
        "count",
    )

    def __init__(self, kind: int) -> None:
        self.count: i64 = 0
        self._kind = kind
        self._items: list[Any] = []
        # The terms of the last job, and how they are packed: many jobs of a turn have the same. The counters of a new
        # job lie between terms and queue.
        self._terms: JobTerms | None = None
        self._packed_terms = self._packed_new = b""
        # The last fields of the last job. They are packed when a job has the same ones as the job before.
        self._holders = self._packed_end = b""
        self._flags = 0
        self._due_ms = 0
        if IS_COMPILED:
            self._writer = BytesWriter()

    def add(self, item: tuple[Any, ...]) -> None:
        """Add any record."""
        self.count += 1
        if IS_COMPILED:
            self._writer.write(_pack(item))
        else:
            self._items.append(item)

    def add_job(self, job: Job, body: bytes, holders: bytes, flags: int, due_ms: int, now_ms: int) -> None:
        """Add the base of a job: (id, header, queue, body, holders, base state)."""
        terms = job.terms
        attempt: i64 = job.attempt
        nacks: i64 = job.nacks
        deliveries: i64 = job.deliveries
        if (
            not IS_COMPILED
            or (terms is not self._terms and not self._take_terms(terms))
            or len(job.id) != ID_BYTES
            or (nacks | deliveries) >> 15
            or attempt >> 31
            or job.ctime > _TIME_MAX
            or len(holders) > 255
        ):
            self.add((job.id, header_of(job, now_ms), terms.queue, body, holders, _pack_base(flags, due_ms)))
            return
        self.count += 1
        writer = self._writer
        writer.append(_JOB_ARRAY)
        write_i16_be(writer, _ID_START)
        writer.write(job.id)
        version: i32 = job.version
        write_i16_be(writer, _HEADER_START if version == 1 else _LONG_HEADER_START)
        write_i64_le(writer, job.ctime)
        left_ms: i64 = job.expire_at_ms - now_ms
        if left_ms < 0:  # An expression would make an object of it.
            left_ms = 0
        write_i64_le(writer, left_ms)
        if version == 1 and not nacks | deliveries | attempt:
            writer.write(self._packed_new)
        else:
            writer.write(self._packed_terms)
            write_i16_le(writer, i16(nacks))
            write_i16_le(writer, i16(deliveries))
            write_i32_le(writer, i32(attempt))
            if version != 1:
                write_i32_le(writer, version)
            writer.write(terms.packed_queue)
        body_bytes: i64 = len(body)
        if body_bytes < 1 << 8:
            write_i16_be(writer, i16(_BIN8_HIGH + body_bytes))
        elif body_bytes < 1 << 16:
            writer.append(_BIN16)
            write_i16_be(writer, i16(body_bytes if body_bytes < 1 << 15 else body_bytes - (1 << 16)))
        else:
            writer.append(_BIN32)
            write_i32_be(writer, i32(body_bytes if body_bytes < 1 << 31 else body_bytes - (1 << 32)))
        writer.write(body)
        if holders is self._holders and flags == self._flags and due_ms == self._due_ms:
            if len(self._packed_end) == 0:  # Its truth would be a slow call.
                self._packed_end = _pack(holders) + _pack(_pack_base(flags, due_ms))
            writer.write(self._packed_end)
            return
        self._holders = holders
        self._flags = flags
        self._due_ms = due_ms
        self._packed_end = b""
        write_i16_be(writer, i16(_BIN8_HIGH + len(holders)))
        writer.write(holders)
        write_i16_be(writer, _BASE_STATE_START)
        writer.append(u8(flags))
        write_i64_le(writer, due_ms)

    def add_state(self, job: Job, holders: bytes | None, flags: int, due_ms: int) -> None:
        """Add the state of a job: (id, state, holders or nothing)."""
        attempt: i64 = job.attempt
        nacks: i64 = job.nacks
        deliveries: i64 = job.deliveries
        if (
            not IS_COMPILED
            or holders is not None
            or len(job.id) != ID_BYTES
            or (nacks | deliveries) >> 15
            or attempt >> 31
        ):
            self.add((job.id, state_of(job, flags, due_ms), holders))
            return
        self.count += 1
        writer = self._writer
        writer.append(_STATE_ARRAY)
        write_i16_be(writer, _ID_START)
        writer.write(job.id)
        write_i16_be(writer, _STATE_START)
        writer.append(u8(flags))
        write_i64_le(writer, due_ms)
        write_i32_le(writer, i32(attempt))
        write_i16_le(writer, i16(nacks))
        write_i16_le(writer, i16(deliveries))
        write_i32_le(writer, job.version)
        writer.append(_NIL)

    def add_gone(self, job_id: bytes, place: int) -> None:
        """Add the removal of a job: (id, segment of its base)."""
        if not IS_COMPILED or len(job_id) != ID_BYTES:
            self.add((job_id, place))
            return
        self.count += 1
        writer = self._writer
        writer.append(_GONE_ARRAY)
        write_i16_be(writer, _ID_START)
        writer.write(job_id)
        number: i64 = place
        if number <= SMALL_MAX:
            writer.append(u8(number))
        elif number < 1 << 8:
            writer.append(_U8)
            writer.append(u8(number))
        elif number < 1 << 16:
            writer.append(_U16)
            write_i16_be(writer, i16(number if number < 1 << 15 else number - (1 << 16)))
        else:
            writer.append(_U32)
            write_i32_be(writer, i32(number))  # A job's place has 31 bits.

    def _take_terms(self, terms: JobTerms) -> bool:
        """Pack these terms. Return False if they are not written field by field."""
        if not terms.is_short or terms.replicate >> 15:
            return False
        self._terms = terms
        self._packed_terms = _pack_terms(terms.retry_ms, terms.delay_ms, terms.replicate)
        self._packed_new = self._packed_terms + bytes(_COUNTERS_BYTES) + terms.packed_queue
        return True

    def clear(self) -> None:
        """Forget the records."""
        self.count = 0
        self._items = []
        if IS_COMPILED:
            self._writer.truncate(0)

    def take(self) -> list[Any] | PackedRun:
        """Return the run, and start with none."""
        count = int(self.count)
        self.count = 0
        if not IS_COMPILED:
            items, self._items = self._items, []
            return [self._kind, *items]
        writer = self._writer
        run = PackedRun(self._kind, count, writer.getvalue())
        if len(writer) > _KEPT_BYTES_MAX:
            self._writer = BytesWriter()
        else:
            writer.truncate(0)
        return run


def header_of(job: Job, now_ms: int) -> bytes:
    """Return the job's numbers in packed form, for the bus or the journal."""
    left_ms = job.expire_at_ms - now_ms
    if IS_COMPILED and _is_usual(job) and job.ctime <= _TIME_MAX:
        terms = job.terms
        if not terms.replicate >> 15:
            writer = _HEADER_WRITER
            writer.truncate(0)
            write_i64_le(writer, job.ctime)
            left: i64 = left_ms
            if left < 0:
                left = 0
            write_i64_le(writer, left)
            write_i64_le(writer, terms.retry_ms)
            write_i64_le(writer, terms.delay_ms)
            write_i16_le(writer, i16(terms.replicate))
            write_i16_le(writer, i16(job.nacks))
            write_i16_le(writer, i16(job.deliveries))
            write_i32_le(writer, i32(job.attempt))
            if job.version != 1:
                write_i32_le(writer, job.version)
            return writer.getvalue()
    header = _pack_header(
        job.ctime,
        left_ms if left_ms > 0 else 0,
        job.terms.retry_ms,
        job.terms.delay_ms,
        job.terms.replicate,
        *job.counters,
    )
    return header if job.version == 1 else header + VERSION.pack(job.version)


def state_of(job: Job, flags: int, due_ms: int) -> bytes:
    """Return the job's state in packed form."""
    return _pack_state(flags, due_ms, job.attempt, job.nacks, job.deliveries, job.version)


def _is_usual(job: Job) -> bool:
    """Return whether the job's numbers fit the compiled numbers that are written for them."""
    return len(job.id) == ID_BYTES and not (job.nacks | job.deliveries) >> 15 and not job.attempt >> 31


# A compiled function is a builtin, not a FunctionType.
IS_COMPILED: Final = not isinstance(_is_usual, FunctionType)
if IS_COMPILED:
    _HEADER_WRITER: Final = BytesWriter()  # Of `header_of`, empty between its calls.
