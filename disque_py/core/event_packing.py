"""Noted: the events of a turn, which are packed while they are noted.

Nearly every ADDJOB, GETJOB and ACKJOB makes an event. To make a tuple and pack it at the end of the turn costs half a
microsecond per event. So compiled code writes the three most common events byte by byte into a buffer, which costs a
tenth of a microsecond. event_format.py has their layout. The bytes are the same that msgpack makes from the tuples.
`librt` is mypyc's library. Compiled code calls its buffer as C functions, without intermediate objects. In plain Python
a few such calls cost more than a tuple, so there tuples are kept and packed together.

An unusual event becomes a tuple in both builds: large counters, a queue with a long name, an id of another shape. A
msgpack array begins with the number of its items. Space for this number is reserved at the beginning of each part, and
filled in at its end.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, final

import msgpack  # type: ignore[import-untyped]  # It ships no types.
from mypy_extensions import i16, i32, i64, u8

from disque_py.event_format import (
    ACKED,
    ADDED,
    DELIVERED,
    SMALL_MAX,
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

# A reader gets whole blocks, so a turn with very many events makes several blocks. A power of two.
EVENTS_PER_BLOCK: Final = 1_024
_IN_PART: Final = 1_023

# msgpack: an array whose length has 16 bits, numbers of 8 to 64 bits.
_ARRAY16: Final = 0xDC
_ARRAY4_MAX: Final = 15  # msgpack itself puts shorter lengths into one byte.
_U8: Final = 0xCC
_U16: Final = 0xCD
_U32: Final = 0xCE
_U64: Final = 0xCF

# The usual range of times. From the first value on, msgpack uses 64 bits. The second is the largest compiled int.
_TIME_MIN: Final = 1 << 32
_TIME_MAX: Final = (1 << 62) - 1

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


@final
class Noted:
    """The events of a turn. `count` is their number since the last `take`."""

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
            counters = job.small_counters()
            if version <= SMALL_MAX and counters >= 0 and (not since_ms or since_ms >= _TIME_MIN):
                writer = self._begun()
                write_i32_be(writer, START_OF_DELIVERED)
                writer.write(job.id)
                if since_ms:
                    write_i16_be(writer, i16(version << 8 | _U64))
                    write_i64_be(writer, since_ms)
                else:  # The job has just arrived from another node.
                    write_i16_be(writer, i16(version << 8))
                write_i32_be(writer, i32(counters << 8 | _U64))
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
            counters = job.small_counters()
            if version <= SMALL_MAX and counters >= 0 and since_ms >= _TIME_MIN:
                writer = self._begun()
                write_i32_be(writer, START_OF_ACKED)
                writer.write(job.id)
                write_i16_be(writer, i16(version << 8 | status))
                writer.append(_U64)
                write_i64_be(writer, since_ms)
                write_i32_be(writer, i32(counters << 8 | _U64))
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
        """Return all events in order, as (packed list of events, their number), and start with none."""
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
        """Return the buffer for the next event."""
        writer = self._writer
        if not self.count & _IN_PART:
            writer.append(_ARRAY16)
            write_i16_be(writer, 0)
        return writer

    def _end(self, writer: BytesWriter, job: Job, size: int) -> None:
        """Write the fields with which all three kinds of events end: creation time, queue, bytes."""
        write_i64_be(writer, job.ctime)
        writer.write(job.terms.packed_queue)
        number: i64 = size
        if number <= SMALL_MAX:
            writer.append(u8(number))  # For another type of number, the compiler would use a slow Python call.
        else:
            _long_number(writer, number)
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
    """Return the same bytes as the buffer would have, so that both builds give the same traces."""
    count = len(events)
    payload: bytes = _pack(events)
    return (payload if count > _ARRAY4_MAX else b"%c\0%c%b" % (_ARRAY16, count, payload[1:])), count


def _is_usual(job: Job) -> bool:
    """Whether the job's times fit a compiled int, and msgpack needs one byte for each length."""
    ctime = job.ctime
    id_bytes: i64 = len(job.id)
    return ctime >= _TIME_MIN and ctime <= _TIME_MAX and id_bytes == USUAL_ID_BYTES and job.terms.is_short


def _long_number(writer: BytesWriter, number: i64) -> None:
    """Write a number from 128 on, of at most 32 bits. No body has more bytes than that."""
    if number < 1 << 8:
        writer.append(_U8)
        writer.append(u8(number))
    elif number < 1 << 16:
        writer.append(_U16)
        write_i16_be(writer, i16(number if number < 1 << 15 else number - (1 << 16)))
    else:
        writer.append(_U32)
        write_i32_be(writer, i32(number if number < 1 << 31 else number - (1 << 32)))


# A compiled function is a builtin, not a FunctionType.
IS_COMPILED: Final = not isinstance(_is_usual, FunctionType)
