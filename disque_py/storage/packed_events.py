"""Packed events: what EVENTS READ … FORMAT PACKED gives to readers that unpack events themselves.

Making lines costs more than all else in an event's way to a reader, and a program that reads millions takes them apart
again at once. So it may have whole blocks, each behind a head that says of which events it is. The first block may
begin before the event that was asked for, the last may end behind what was: a reader takes what it wants.
docs/events.md has the bytes.
"""

from __future__ import annotations

import struct
from typing import Final

from persistence.disk import Folder
from persistence.event_log import Segment
from persistence.event_reading import read_piece

# What a packed reply begins with: it is not a line's first byte, and another way of packing has another.
MARK: Final = b"\x01"
# A reply ends behind this many bytes: whoever reads next waits for no more than that.
REPLY_BYTES_MAX: Final = 1 << 20

# bytes of the packed events, how many, number of the first, Unix ms
_pack_head = struct.Struct("<IIQQ").pack


def read_packed(folder: Folder, segment: Segment, seq: int, end: int, end_seq: int, bytes_max: int) -> bytes:
    """The block with event `seq` and those behind it, up to event `end_seq` or the end of the segment, which is `end`.

    Runs away from the loop. DamagedEventsError, OSError.
    """
    parts: list[bytes] = [MARK]
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
