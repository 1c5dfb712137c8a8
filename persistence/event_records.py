"""Event records: the format of a log of events in its files.

A log is a row of segment files, each named after the number of its first event. A segment begins with a header that
names its log. Blocks follow, one or more per turn of the loop: a fixed head with a checksum, and the block's events,
packed. The head alone says how many events there are and when, so finding a number or a moment reads heads only. Only
the broker knows what an event is.

Between two blocks of a segment there may be a gap (pages.py). While a segment is written, zeros follow its last block.
A log is never repaired. A torn tail, as a power cut leaves it, is cut off: no reader has seen it. Any other broken
place ends the log, and the next one has a new id. docs/events.md shows the bytes.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from persistence.checksum import LARGE_BYTES, crc32_of_large
from persistence.pages import GAP_BYTES_MIN, behind_gap
from persistence.records import JOINED_BYTES_MAX, FormatError, NewerFormatError

MAGIC: Final = b"DISQUEEV"
VERSION: Final = 2  # Version 1 has no gaps between blocks.

# magic, version, reserved, length and checksum of the description that follows
_HEADER: Final = struct.Struct("<8sHHII")
HEADER_BYTES_MAX: Final = 512

# payload length, checksum of what follows it; number of the first event, first one that was not known to be on disk
# when this was written, wall clock ms, number of events
_HEAD: Final = struct.Struct("<IIQQQI")
HEAD_BYTES: Final = _HEAD.size
_CHECKED: Final = 8
MOMENT_AT: Final = 28
"""Offset of the upper half of the wall clock in a head."""

SUFFIX: Final = ".events"
_DIGITS: Final = 16
_NO_LENGTH: Final = bytes(GAP_BYTES_MIN)

_crc = zlib.crc32
# The two parts of a head.
_pack_unchecked = struct.Struct("<II").pack
_pack_checked = struct.Struct("<QQQI").pack
_unpack_head = _HEAD.unpack_from
_packb = msgpack.Packer(use_bin_type=True, autoreset=True).pack


class Header(NamedTuple):
    """A segment's header: its log, its first event's number, the node, when it was made, the header's bytes."""

    log_id: str
    first_seq: int
    node: bytes
    wall_ms: int
    size: int


class Block(NamedTuple):
    """The events of one turn: the first one's number, how many, when they happened, and the packed events."""

    seq: int
    event_count: int
    wall_ms: int
    payload: bytes


def file_name(first_seq: int) -> str:
    """Return a segment's name, like 0000000000000001.events."""
    return f"{first_seq:0{_DIGITS}d}{SUFFIX}"


def parse_file_name(name: str) -> int | None:
    """Return the number of the first event, from a segment's name; None for any other file."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and stem.isdigit() and stem.isascii() else None


def encode_header(log_id: str, first_seq: int, node: bytes, wall_ms: int) -> bytes:
    """Return the header of a new segment."""
    described = _packb([log_id, first_seq, node, wall_ms])
    head: bytes = _HEADER.pack(MAGIC, VERSION, 0, len(described), _crc(described)) + described
    return head


def decode_header(name: str, data: bytes) -> Header:
    """Decode the header at the start of `data`; FormatError, NewerFormatError."""
    if len(data) < _HEADER.size:
        raise FormatError(f"{name}: too short for a header")
    magic, version, _, length, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"{name}: not a log of events")
    if version > VERSION:
        raise NewerFormatError(f"{name}: written in format {version}, this version reads up to {VERSION}")
    described = data[_HEADER.size : _HEADER.size + length]
    if len(described) < length or _crc(described) != checksum:
        raise FormatError(f"{name}: the header is damaged")
    try:
        log_id, first_seq, node, wall_ms, *_ = msgpack.unpackb(described)
    except (ValueError, TypeError) as broken:
        raise FormatError(f"{name}: the header is damaged: {broken}") from broken
    if type(log_id) is not str or type(first_seq) is not int or type(wall_ms) is not int:
        raise FormatError(f"{name}: the header is damaged")
    return Header(log_id, first_seq, node, wall_ms, _HEADER.size + length)


def pack_events(events: list[Any]) -> bytes:
    """Return the payload of a block."""
    payload: bytes = _packb(events)
    return payload


def encode_block(events: list[Any], seq: int, durable_seq: int, wall_ms: int) -> bytes:
    """Return one block with these events, of which the first has number `seq`."""
    return b"".join(encode_packed(_packb(events), len(events), seq, durable_seq, wall_ms))


def encode_packed(payload: bytes, count: int, seq: int, durable_seq: int, wall_ms: int) -> list[bytes]:
    """Return one block of `count` events, which are packed already, in parts; a small block is one part."""
    checked = _pack_checked(seq, durable_seq, wall_ms, count)
    checksum = _crc(checked)
    checksum = crc32_of_large(payload, checksum) if len(payload) >= LARGE_BYTES else _crc(payload, checksum)
    head: bytes = _pack_unchecked(len(payload), checksum) + checked
    return [head + payload] if len(payload) <= JOINED_BYTES_MAX else [head, payload]


def block_bytes(data: bytes, at: int) -> int:
    """Return the bytes of the block whose head begins at `at`, as the head says; 0 if there is no whole head."""
    return HEAD_BYTES + int(_unpack_head(data, at)[0]) if at + HEAD_BYTES <= len(data) else 0


def look_at(data: bytes, at: int, seq: int) -> tuple[int, int, int, int] | None:
    """Check the block that begins at `at` with event `seq`; None if it isn't whole and right.

    The result is (bytes, events, wall clock ms, first event not known to be on disk then).
    """
    if at + HEAD_BYTES > len(data):
        return None
    length, checksum, stands_at, durable_seq, wall_ms, count = _unpack_head(data, at)
    end = at + HEAD_BYTES + length
    if stands_at != seq or not count or end > len(data):
        return None
    if _crc(memoryview(data)[at + _CHECKED : end]) != checksum:
        return None
    return HEAD_BYTES + length, count, wall_ms, durable_seq


def next_at(data: bytes, at: int, base: int) -> int:
    """Return the start of the next block: behind the gap if there is one at `at`, else `at`.

    `base` is the offset of `data` in its file.
    """
    return behind_gap(base + at) - base if data[at : at + GAP_BYTES_MIN] == _NO_LENGTH else at


def head_at(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return (bytes, first event's number, events, wall clock ms) from the head at `at`; None without a whole head."""
    if at + HEAD_BYTES > len(data):
        return None
    length, _, seq, _, wall_ms, count = _unpack_head(data, at)
    return HEAD_BYTES + length, seq, count, wall_ms


def decode_events(payload: bytes) -> list[Any]:
    """Return the events of a block whose checksum was right; FormatError."""
    try:
        events = msgpack.unpackb(payload)
    except (ValueError, RecursionError) as broken:
        raise FormatError(f"a block of events with a right checksum and wrong content: {broken}") from broken
    if type(events) is not list:
        raise FormatError("a block of events that is not a list")
    return events
