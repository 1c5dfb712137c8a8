"""Noted: a turn's events, packed as they are noted down.

Nearly every ADDJOB, GETJOB and ACKJOB makes an event. A tuple that is packed at the end of the turn costs half a
microsecond. So compiled code writes the three most common events byte by byte into a buffer. event_format.py has their
layout. The bytes are those that msgpack makes of their tuples. That costs a tenth of a microsecond. `librt` is mypyc's
own library: its buffer is C that compiled code calls without objects in between. In plain Python a few of these calls
cost more than making the tuple, so there tuples are kept and packed together.

An unusual event (large counters, a queue with a long name, an id of another shape) becomes a tuple. An array of msgpack
begins with the number of its items. Room for that is left at the beginning of a part, and filled in at its end.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # It ships no types.
from mypy_extensions import i16, i32, i64, u8

from disque_py.event_format import (
    ACKED,
    ADDED,
    DELIVERED,
    START_OF_ACKED,
    START_OF_ADDED,
    START_OF_DELIVERED,
    USUAL_ID_BYTES,
)

try:
    from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
except ImportError:  # Plain Python works without it; compiled code reports a missing module itself.
    pass

if TYPE_CHECKING:
    from disque_py.core.job import Job

# A reader gets whole blocks at a time, so a turn with very many events makes several. A power of two.
EVENTS_PER_BLOCK: Final = 1_024
_IN_PART: Final = 1_023

# msgpack: an array whose length has 16 bits, bytes with a length of 8 bits, numbers of 8 to 64 bits.
_ARRAY16: Final = 0xDC
_ARRAY4_MAX: Final = 15  # msgpack itself puts shorter lengths into one byte.
_BIN8: Final = 0xC4
_U8: Final = 0xCC
_U16: Final = 0xCD
_U32: Final = 0xCE
_U64: Final = 0xCF

_QUEUE_BYTES_MAX: Final = 255
# Numbers up to this one take one byte.
_SMALL_MAX: Final = 127
# Times are above the first value, so they have 64 bits, and up to the second, the largest compiled int.
_TIME_MIN: Final = 1 << 32
_TIME_MAX: Final = (1 << 62) - 1
_BIN8_HIGH: Final = (_BIN8 << 8) - (1 << 16)

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


class Noted:
    """The events of a turn; `count` is their number since `take`."""

    __slots__ = ("_events", "_parts", "_writer", "count")

    def __init__(self) -> None:
        self.count: i64 = 0
        self._events: list[Any] = []
        self._parts: list[tuple[bytes, int]] = []
        if IS_COMPILED:
            self._writer = BytesWriter()

    def append(self, event: tuple[Any, ...]) -> None:
        """Note any event."""
        if not IS_COMPILED:
            self._events.append(event)
            self.count += 1
            return
        writer = self._begun()
        writer.write(_pack(event))
        self._ended()

    def added(self, job: Job, size: int) -> None:
        """(ADDED, id, creation time, queue, bytes)"""
        if not IS_COMPILED or not _is_usual(job):
            self.append((ADDED, job.id, job.ctime, job.terms.queue, size))
            return
        writer = self._begun()
        write_i32_be(writer, START_OF_ADDED)
        writer.write(job.id)
        writer.append(_U64)
        self._end(writer, job, size)

    def delivered(self, job: Job, size: int) -> None:
        """(DELIVERED, id, version, entered, attempt, nacks, deliveries, creation time, queue, bytes)"""
        if IS_COMPILED and _is_usual(job):
            version = i64(job.version)
            since_ms: i64 = job.since_ms
            attempt: i64 = job.attempt
            nacks: i64 = job.nacks
            deliveries: i64 = job.deliveries
            if version | attempt | nacks | deliveries <= _SMALL_MAX and (not since_ms or since_ms >= _TIME_MIN):
                writer = self._begun()
                write_i32_be(writer, START_OF_DELIVERED)
                writer.write(job.id)
                if since_ms:
                    write_i16_be(writer, i16(version << 8 | _U64))
                    write_i64_be(writer, since_ms)
                else:  # Another node handed the job over a moment ago.
                    write_i16_be(writer, i16(version << 8))
                write_i32_be(writer, i32(attempt << 24 | nacks << 16 | deliveries << 8 | _U64))
                self._end(writer, job, size)
                return
        self.append(
            (
                DELIVERED,
                job.id,
                job.version,
                job.since_ms,
                job.attempt,
                job.nacks,
                job.deliveries,
                job.ctime,
                job.terms.queue,
                size,
            )
        )

    def acked(self, job: Job, size: int) -> None:
        """(ACKED, id, version, state left, entered, attempt, nacks, deliveries, creation time, queue, bytes)"""
        if IS_COMPILED and _is_usual(job):
            version = i64(job.version)
            status = i64(job.status)
            since_ms: i64 = job.since_ms
            attempt: i64 = job.attempt
            nacks: i64 = job.nacks
            deliveries: i64 = job.deliveries
            if version | attempt | nacks | deliveries <= _SMALL_MAX and since_ms >= _TIME_MIN:
                writer = self._begun()
                write_i32_be(writer, START_OF_ACKED)
                writer.write(job.id)
                write_i16_be(writer, i16(version << 8 | status))
                writer.append(_U64)
                write_i64_be(writer, since_ms)
                write_i32_be(writer, i32(attempt << 24 | nacks << 16 | deliveries << 8 | _U64))
                self._end(writer, job, size)
                return
        self.append(
            (
                ACKED,
                job.id,
                job.version,
                job.status,
                job.since_ms,
                job.attempt,
                job.nacks,
                job.deliveries,
                job.ctime,
                job.terms.queue,
                size,
            )
        )

    def take(self) -> list[tuple[bytes, int]]:
        """Return all events in order, as (packed list of events, how many), and begin anew."""
        if not IS_COMPILED:
            events, self._events = self._events, []
            self.count = 0
            return [_packed(events[at : at + EVENTS_PER_BLOCK]) for at in range(0, len(events), EVENTS_PER_BLOCK)]
        rest = self.count & _IN_PART
        if rest:
            self._cut(rest)
        parts, self._parts = self._parts, []
        self.count = 0
        return parts

    def _begun(self) -> BytesWriter:
        """Return the buffer for the event."""
        writer = self._writer
        if not self.count & _IN_PART:
            writer.append(_ARRAY16)
            write_i16_be(writer, 0)
        return writer

    def _end(self, writer: BytesWriter, job: Job, size: int) -> None:
        """Write the common end of all three: creation time, queue, bytes."""
        write_i64_be(writer, job.ctime)
        queue = job.terms.queue
        name_bytes: i64 = len(queue)
        write_i16_be(writer, i16(_BIN8_HIGH + name_bytes))
        writer.write(queue)
        _number(writer, size)
        self._ended()

    def _ended(self) -> None:
        self.count += 1
        if not self.count & _IN_PART:
            self._cut(EVENTS_PER_BLOCK)

    def _cut(self, count: i64) -> None:
        """End a part that is complete."""
        writer = self._writer
        writer[1] = u8(count >> 8)
        writer[2] = u8(count & 255)
        self._parts.append((writer.getvalue(), int(count)))
        writer.truncate(0)


def _packed(events: list[Any]) -> tuple[bytes, int]:
    """Return the bytes that the buffer would have: both builds give the same traces."""
    count = len(events)
    payload: bytes = _pack(events)
    return (payload if count > _ARRAY4_MAX else b"%c\0%c%b" % (_ARRAY16, count, payload[1:])), count


def _is_usual(job: Job) -> bool:
    """Whether a compiled int holds its times, and msgpack needs one byte for each length."""
    return (
        _TIME_MIN <= job.ctime <= _TIME_MAX
        and len(job.id) == USUAL_ID_BYTES
        and len(job.terms.queue) <= _QUEUE_BYTES_MAX
    )


def _number(writer: BytesWriter, number: i64) -> None:
    """Write a number of at most 32 bits: no body has more bytes."""
    if number <= _SMALL_MAX:
        writer.append(u8(number))  # Any other type of number goes the long way, through Python's own call.
    elif number < 1 << 8:
        writer.append(_U8)
        writer.append(u8(number))
    elif number < 1 << 16:
        writer.append(_U16)
        write_i16_be(writer, i16(number if number < 1 << 15 else number - (1 << 16)))
    else:
        writer.append(_U32)
        write_i32_be(writer, i32(number if number < 1 << 31 else number - (1 << 32)))


# A compiled function is a builtin one.
IS_COMPILED: Final = not isinstance(_is_usual, FunctionType)
