"""Packed events: the reply of EVENTS READ … FORMAT PACKED, for readers that unpack events themselves.

Making lines is the most expensive step on an event's way to a reader, and a program that reads millions of lines only
parses them again. So it may ask for whole blocks. Each block follows a header that names its events. The first block
may begin before the requested event, and the last may end behind the requested ones: the reader skips the rest.
docs/events.md describes the bytes.
"""

from __future__ import annotations

from typing import Final

from disque_py.event_format import BLOCK_HEAD, PACKED_MARK
from persistence.disk import Folder
from persistence.event_log import Segment
from persistence.event_reading import read_piece

# A reply ends behind this many bytes. This bounds head-of-line blocking.
REPLY_BYTES_MAX: Final = 1 << 20

_pack_head = BLOCK_HEAD.pack


def read_packed(folder: Folder, segment: Segment, seq: int, end: int, end_seq: int, bytes_max: int) -> bytes:
    """Return the block with event `seq` and the blocks behind it, up to event `end_seq` or the segment's end, `end`.

    Runs in the disk's thread. DamagedEventsError, OSError.
    """
    parts: list[bytes] = [PACKED_MARK]
    size = 0
    at_seq = seq
    while at_seq < end_seq and (not size or size < bytes_max):
        for block in read_piece(folder, segment, at_seq, end).blocks:
            if block.seq >= end_seq or size >= bytes_max:
                return b"".join(parts)
            parts.append(_pack_head(len(block.payload), block.event_count, block.seq, block.wall_ms))
            parts.append(block.payload)
            size += len(block.payload)
            at_seq = block.seq + block.event_count
    return b"".join(parts)
