"""Records: the content of a journal, and its format in files.

A journal is a chain of segment files. Each begins with a header that names the files before it and the end of each.
Blocks follow, one or more per turn of the loop. A block is written, checked and lost as a whole. It has a fixed head
with a checksum, and runs of records, `[kind, item, item …]`, in msgpack. Positions are bytes of blocks since the
journal began. So a block knows its place, and how far the journal was known to be on disk when it was written. A broken
block before that position is damage. A broken block behind it is a torn tail.

docs/journal.md shows every byte, and how to change the format. New kinds, and new fields at the end of an item, need no
new version if an old reader that skips them restores a safe state. Any other change raises VERSION. Then the old
version must stay readable, and its golden file is added to tests/support/journals.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from persistence.checksum import LARGE_BYTES, crc32_of_large

# -- kinds; layouts.py has the fields of their items --------------------------------------------------

JOB: Final = 1  # The complete record of a job; the *base* of its id.
STATE: Final = 2  # Changes since the base. Without a base of its id it means nothing.
GONE: Final = 3  # Nothing of the job is left here.
PAUSE: Final = 4  # A queue's pause; version 0: set for this node only.
DROPPED: Final = 5  # A segment's living records follow later in the journal. Its files are being removed.
TOKEN: Final = 6  # Deliveries that a client can ask for again. A record may add to an earlier one.
KEY: Final = 7  # The job is over, and its key is used until then.
RESULT: Final = 10  # The result that a job was acknowledged with.
BATCH: Final = 11  # Ids of a batch, with their statuses. A record may add to an earlier one.

KIND_NAMES: Final = {
    JOB: "job",
    STATE: "state",
    GONE: "gone",
    PAUSE: "pause",
    DROPPED: "dropped",
    TOKEN: "token",
    KEY: "key",
    RESULT: "result",
    BATCH: "batch",
}

# -- files ------------------------------------------------------------------------------------------

MAGIC: Final = b"DISQUEPJ"
VERSION: Final = 2
VERSION_MIN: Final = 1
"""Version 1 had no counters (nacks, additional deliveries) in a state."""

# magic, version, reserved, length and checksum of the description that follows
_HEADER: Final = struct.Struct("<8sHHII")
# Blocks begin at a multiple of this, so that a header can be written over a reserved file's zeros.
HEADER_ALIGN: Final = 512

# payload length, checksum of what follows it; position, position known to be on disk, wall clock ms, flags
_HEAD: Final = struct.Struct("<IIQQQI")
HEAD_BYTES: Final = _HEAD.size
_CHECKED: Final = 8  # The checksum covers the head from here on, and the payload.

# A larger block stays in its parts: to join them would copy all records once more.
JOINED_BYTES_MAX: Final = 16 * 1024

IS_ALWAYS: Final = 1
"""Flag of a block: `appendfsync always` was in force when it was written."""

# The largest value of the length field; a turn never comes near it (a body has at most 512 MiB).
PAYLOAD_BYTES_MAX: Final = (1 << 32) - 1

# The two parts of a head.
_pack_unchecked = struct.Struct("<II").pack
_pack_checked = struct.Struct("<QQQI").pack
_crc = zlib.crc32
_packb = msgpack.Packer(use_bin_type=True, autoreset=True).pack


class FormatError(ValueError):
    """An error: a file is not what it should be. The text says what is wrong and where."""


class NewerFormatError(FormatError):
    """An error: a later version of this software wrote the file."""


class PackedRun(NamedTuple):
    """A run of records that are packed already: their kind, their number, and the bytes of all items."""

    kind: int
    length: int
    items: bytes


# A run of records: `[kind, item, …]`, or the same packed.
Run: TypeAlias = list[Any] | PackedRun


class Part(NamedTuple):
    """One file of the chain, as a later file's header describes it: blocks from `start` up to `end`."""

    number: int
    part: int
    start: int
    end: int


class Header(NamedTuple):
    """The header of a segment file.

    number, part   its segment, and its place among the files of that segment (more than one only after disk errors)
    start          position of its first block
    before         the files of the chain before it, oldest first
    node           id of the node whose journal this is
    wall_ms        when it was made
    version        version of the format
    size           bytes up to the first block
    """

    number: int
    part: int
    start: int
    before: tuple[Part, ...]
    node: bytes
    wall_ms: int
    version: int
    size: int


class Block(NamedTuple):
    """The head of a block that was found whole, and its records."""

    position: int
    synced: int
    wall_ms: int
    flags: int
    runs: list[list[Any]]
    size: int


def file_name(number: int, part: int = 0) -> str:
    """Return a segment file's name: 0000000012.seg; further parts 0000000012-1.seg."""
    return f"{number:010d}.seg" if part == 0 else f"{number:010d}-{part}.seg"


def parse_file_name(name: str) -> tuple[int, int] | None:
    """Return (number, part) of a segment file's name; None for any other file."""
    stem, dot, suffix = name.partition(".")
    number, dash, part = stem.partition("-")
    if suffix != "seg" or not dot or not number.isdigit() or (dash and not part.isdigit()):
        return None
    return int(number), int(part or 0)


def encode_header(number: int, part: int, start: int, before: Iterable[Part], node: bytes, wall_ms: int) -> bytes:
    """Return the header of a new file, padded to HEADER_ALIGN."""
    described = _packb([number, part, start, [list(file) for file in before], node, wall_ms])
    head: bytes = _HEADER.pack(MAGIC, VERSION, 0, len(described), _crc(described)) + described
    return head + bytes(-len(head) % HEADER_ALIGN)


def decode_header(name: str, data: bytes) -> Header:
    """Decode the header at the start of `data`; FormatError if there is none, NewerFormatError if it is newer."""
    if len(data) < _HEADER.size:
        raise FormatError(f"{name}: too short for a header")
    magic, version, _, length, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"{name}: not a journal file")
    if version > VERSION:
        raise NewerFormatError(
            f"{name}: written in format {version}, this version reads up to {VERSION}: start the newer version again"
        )
    described = data[_HEADER.size : _HEADER.size + length]
    if version < VERSION_MIN or len(described) < length or _crc(described) != checksum:
        raise FormatError(f"{name}: the header is damaged")
    try:
        number, part, start, before, node, wall_ms, *_ = msgpack.unpackb(described)
        files = tuple(Part(*file[:4]) for file in before)
    except (ValueError, TypeError) as broken:
        raise FormatError(f"{name}: the header is damaged: {broken}") from broken
    size = _HEADER.size + length
    return Header(number, part, start, files, node, wall_ms, version, size + -size % HEADER_ALIGN)


def header_size(data: bytes) -> int:
    """Return how many bytes the header needs, from its first 24; 0 if that is no header."""
    if len(data) < _HEADER.size:
        return 0
    magic, _, _, length, _ = _HEADER.unpack_from(data)
    size = _HEADER.size + length
    return size + -size % HEADER_ALIGN if magic == MAGIC else 0


def encode_block(runs: Sequence[Run], position: int, synced: int, wall_ms: int, flags: int) -> bytes:
    """Return one block with these runs."""
    return b"".join(encode_parts(runs, position, synced, wall_ms, flags))


def encode_parts(runs: Sequence[Run], position: int, synced: int, wall_ms: int, flags: int) -> list[bytes]:
    """Return one block with these runs, in parts that belong one behind the other; a small block is one part."""
    head = _pack_checked(position, synced, wall_ms, flags)
    parts = [b"", head, _array_head(len(runs))]
    for run in runs:
        if type(run) is PackedRun:
            parts.append(b"%b%c" % (_array_head(run.length + 1), run.kind))
            parts.append(run.items)
        else:
            parts.append(_packb(run))
    checksum = 0
    size = -len(head)
    for part in parts:
        part_bytes = len(part)
        checksum = crc32_of_large(part, checksum) if part_bytes >= LARGE_BYTES else _crc(part, checksum)
        size += part_bytes
    parts[0] = _pack_unchecked(size, checksum)
    return [b"".join(parts)] if size <= JOINED_BYTES_MAX else parts


def unpacked(run: Run) -> list[Any]:
    """Return a run as a list."""
    if type(run) is not PackedRun:
        assert type(run) is list
        return run
    unpacker = msgpack.Unpacker(max_buffer_size=len(run.items))
    unpacker.feed(run.items)
    return [run.kind, *unpacker]


def _array_head(length: int) -> bytes:
    """Return the beginning of a list of this length, as msgpack writes it."""
    if length < 16:
        return b"%c" % (0x90 | length)
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")


def decode_block(data: bytes | memoryview, at: int, position: int) -> Block | None:
    """Decode the block at index `at` of `data`, which should have this position; None if it isn't whole and right."""
    end = at + HEAD_BYTES
    if end > len(data):
        return None
    length, checksum, stands_at, synced, wall_ms, flags = _HEAD.unpack_from(data, at)
    if stands_at != position or length > PAYLOAD_BYTES_MAX or end + length > len(data):
        return None
    if _crc(data[at + _CHECKED : end + length]) != checksum:
        return None
    try:
        runs = msgpack.unpackb(data[end : end + length])
    except (ValueError, RecursionError) as broken:
        raise FormatError(f"a block with a right checksum and wrong content: {broken}") from broken
    return Block(position, synced, wall_ms, flags, runs, HEAD_BYTES + length)


def block_size(data: bytes | memoryview, at: int, position: int) -> int:
    """Return the bytes of the block whose head begins at `at`, if the head is plausible; else 0."""
    if at + HEAD_BYTES > len(data):
        return 0
    length, _, stands_at, *_ = _HEAD.unpack_from(data, at)
    return HEAD_BYTES + length if stands_at == position and length <= PAYLOAD_BYTES_MAX else 0


def looks_like_block(data: bytes, at: int, position: int) -> bool:
    """Whether a head of this position begins at `at`: the cheap first test when searching behind a broken place."""
    return data[at + 8 : at + 16] == position.to_bytes(8, "little")
