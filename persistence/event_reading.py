"""Reading a log of events: its state at a start, and blocks by number or by moment.

Everything here works on a Folder synchronously, so it runs in a lane of the disk, away from the loop. The loop's part
is disque_py/storage/event_log_service.py. To find a number, the search starts at the nearest mark of its segment and
reads the heads that follow. It remembers the marks it passes, so an old segment is walked over once.
"""

# Stays Python: classes derive from NamedTuple and OSError.
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from persistence.disk import Folder
from persistence.event_log import CLOSED_NAME, MARK_BYTES, OPEN_NAME, Segment
from persistence.event_records import (
    HEAD_BYTES,
    HEADER_BYTES_MAX,
    MOMENT_AT,
    Block,
    Header,
    block_bytes,
    decode_header,
    head_at,
    look_at,
    next_at,
    parse_file_name,
)
from persistence.records import FormatError, NewerFormatError

# The bytes of blocks that are read, and turned into lines, at a time.
PIECE_BYTES: Final = 128 * 1024

_first_seq = attrgetter("first_seq")


class Found(NamedTuple):
    """The result of `open_log`: the log to write, and notices for people."""

    log_id: str
    segments: list[Segment]
    next_seq: int
    notices: list[str]


class Piece(NamedTuple):
    """Blocks in a row, the first of which begins with event `seq`; `end_seq` is behind the last."""

    seq: int
    end_seq: int
    blocks: list[Block]


class DamagedEventsError(OSError):
    """An error: the bytes are no block of this log; `seq` is the event that should have been there."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(f"{name}: event {seq} is damaged")
        self.seq = seq


# -- at start ---------------------------------------------------------------------------------------


def open_log(folder: Folder, new_id: str, node: bytes) -> Found:
    """Open this node's log, with its torn tail cut off and all of it on disk; or begin an empty one, `new_id`.

    A log that can't be continued is removed: events are missing from it, or they are another node's. Readers identify a
    log by its node, too, and would take such events for ours. OSError, NewerFormatError.
    """
    headers, strays = _headers(folder)
    notices: list[str] = []
    log_id = _log_id(folder)
    foreign = [header for header in headers if header.log_id == log_id and header.node != node]
    segments = _chain([header for header in headers if header.log_id == log_id]) if not foreign else []
    if segments:
        next_seq = _end_of(folder, segments)
        if next_seq:
            kept = {segment.name for segment in segments}
            for name in strays + [name for name in _segment_names(folder) if name not in kept and name not in strays]:
                folder.remove(name)
            last = segments[-1]
            if last.first_seq == next_seq:
                # It has no events: the file is made anew under the same name.
                folder.remove(last.name)
                segments.pop()
            return Found(log_id, segments, next_seq, notices)
        notices.append(f"the log of events {log_id} is damaged in {segments[-1].name}; a new one begins")
    elif foreign:
        notices.append(f"the log of events {log_id} is that of node {foreign[-1].node.hex()}; a new one begins")
    elif headers:
        why = _read_small(folder, CLOSED_NAME)
        notices.append(f"events are missing from the log {headers[-1].log_id}{why and f' ({why})'}; a new one begins")
    for name in _segment_names(folder):
        folder.remove(name)
    folder.replace(OPEN_NAME, f"{new_id}\n".encode())
    folder.remove(CLOSED_NAME)
    return Found(new_id, [], 1, notices)


def _segment_names(folder: Folder) -> list[str]:
    return [name for name in folder.names() if parse_file_name(name) is not None]


def _headers(folder: Folder) -> tuple[list[Header], list[str]]:
    """Return the headers of all segments in order, and the names of files that have none."""
    headers: list[Header] = []
    strays: list[str] = []
    for name in _segment_names(folder):
        try:
            header = decode_header(name, folder.read(name, 0, HEADER_BYTES_MAX))
        except NewerFormatError:
            raise
        except FormatError:
            strays.append(name)
            continue
        if header.first_seq == parse_file_name(name):
            headers.append(header)
        else:
            strays.append(name)
    return headers, strays


def _log_id(folder: Folder) -> str:
    """Return the id of the log that may be continued; empty if there is none."""
    return _read_small(folder, OPEN_NAME)


def _read_small(folder: Folder, name: str) -> str:
    try:
        return folder.read(name, 0, HEADER_BYTES_MAX).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def _chain(headers: list[Header]) -> list[Segment]:
    segments = [Segment(header.first_seq, header.wall_ms, header.size) for header in headers]
    for segment, younger in pairwise(segments):
        segment.last_ms = younger.first_ms
    return segments


def _end_of(folder: Folder, segments: list[Segment]) -> int:
    """Walk over the last two segments, cut off a torn tail and sync them; return the number of the next event.

    The last segment is written while the one before it still goes to the disk. If the end of that one is missing, no
    event of the last segment was ever read, and it is removed from `segments`. 0: the log is damaged.
    """
    for segment in segments[:-2]:
        segment.end = segment.durable_end = folder.size(segment.name)
    last = segments[-1]
    if len(segments) > 1:
        before = segments[-2]
        end = _walk(folder, before)
        if end is None or end[0] > last.first_seq:
            return 0
        if end[0] < last.first_seq:
            if _says_on_disk(folder, last, end[0]):
                return 0
            segments.pop()
            return _cut(folder, before, end)
        _cut(folder, before, end)
    end = _walk(folder, last)
    return _cut(folder, last, end) if end is not None else 0


def _cut(folder: Folder, segment: Segment, end: tuple[int, int]) -> int:
    """Cut off everything behind the last whole block and sync the rest; return the number of the next event."""
    next_seq, offset = end
    if offset < folder.size(segment.name):
        folder.truncate(segment.name, offset)
    else:
        folder.sync(segment.name)
    segment.end = segment.durable_end = offset
    return next_seq


def _walk(folder: Folder, segment: Segment) -> tuple[int, int] | None:
    """Return (number behind the last whole block, its end); None if broken bytes had been on disk already."""
    data = folder.read(segment.name, 0, folder.size(segment.name))
    at = segment.end
    seq = segment.first_seq
    for start, size, count, wall_ms, _ in _blocks(data, at, seq):
        segment.mark(seq, start, wall_ms)
        segment.last_ms = max(segment.last_ms, wall_ms)
        at = start + size
        seq += count
    return None if _was_on_disk(data, at, seq, segment.last_ms) else (seq, at)


def _blocks(data: bytes, at: int, seq: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (offset, bytes, events, wall ms, first event not known to be on disk then) of whole blocks from here."""
    while (found := look_at(data, at := next_at(data, at, 0), seq)) is not None:
        yield (at, *found)
        at += found[0]
        seq += found[1]


def _says_on_disk(folder: Folder, segment: Segment, seq: int) -> bool:
    """Whether event `seq`, of an earlier segment, was on disk when a block of this segment was written."""
    data = folder.read(segment.name, 0, folder.size(segment.name))
    return any(durable_seq > seq for *_, durable_seq in _blocks(data, segment.end, segment.first_seq))


def _was_on_disk(data: bytes, at: int, seq: int, wall_ms: int) -> bool:
    """Whether a whole block behind the broken place says that event `seq` was on disk when it was written.

    If so, the broken place is damage; if not, it is a torn tail. The start of the next block is unknown. But its head
    contains the upper half of a moment, which is about the same in all heads, so the search looks for that.
    """
    upper = (wall_ms >> 32).to_bytes(4, "little")
    found = data.find(upper, at + MOMENT_AT)
    while found >= 0:
        start = found - MOMENT_AT
        head = head_at(data, start)
        if head is not None and head[1] > seq:
            block = look_at(data, start, head[1])
            if block is not None and block[3] > seq:
                return True
        found = data.find(upper, found + 1)
    return False


# -- blocks -----------------------------------------------------------------------------------------


def segment_of(segments: list[Segment], seq: int) -> Segment:
    """Return the segment that has this event, if any has it; `segments` is not empty."""
    return segments[max(0, bisect_right(segments, seq, key=_first_seq) - 1)]


def read_piece(folder: Folder, segment: Segment, seq: int, end: int) -> Piece:
    """Read blocks from the one with event `seq` on, about PIECE_BYTES, up to offset `end`. DamagedEventsError."""
    offset, at_seq = _find(folder, segment, seq, end)
    data = folder.read(segment.name, offset, min(PIECE_BYTES, end - offset))
    needed = block_bytes(data, 0)
    if len(data) < needed <= end - offset:
        data = folder.read(segment.name, offset, needed)
    blocks: list[Block] = []
    at = 0
    first_seq = at_seq
    while (found := look_at(data, at := next_at(data, at, offset), at_seq)) is not None:
        size, count, wall_ms, _ = found
        blocks.append(Block(at_seq, count, wall_ms, data[at + HEAD_BYTES : at + size]))
        at += size
        at_seq += count
    if not blocks:
        raise DamagedEventsError(segment.name, at_seq)
    return Piece(first_seq, at_seq, blocks)


def _find(folder: Folder, segment: Segment, seq: int, end: int) -> tuple[int, int]:
    """Return (offset, first event) of the block that has event `seq`."""
    at_seq, offset, _ = segment.marks[bisect_right(segment.marks, seq, key=lambda mark: mark[0]) - 1]
    if at_seq == seq:
        return offset, at_seq
    for start, first, count, _ in _heads(folder, segment, offset, at_seq, end):
        if first + count > seq:
            return start, first
    raise DamagedEventsError(segment.name, seq)


def seek(folder: Folder, segment: Segment, wall_ms: int, end: int) -> int | None:
    """Return the first event in this segment's blocks that is not older than `wall_ms`; None if all are."""
    at_seq, offset, _ = segment.marks[0]
    for mark in segment.marks:  # Clocks may be set back: the first match counts.
        if mark[2] >= wall_ms:
            break
        at_seq, offset, _ = mark
    for _, first, _, ms in _heads(folder, segment, offset, at_seq, end):
        if ms >= wall_ms:
            return first
    return None


def _heads(folder: Folder, segment: Segment, offset: int, seq: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (offset, first event, events, wall clock ms) of the blocks from here on, according to their heads."""
    while offset < end:
        data = folder.read(segment.name, offset, min(MARK_BYTES, end - offset))
        at = 0
        while (head := head_at(data, at := next_at(data, at, offset))) is not None:
            size, stands_at, count, wall_ms = head
            if stands_at != seq or not count:
                return
            segment.mark(seq, offset + at, wall_ms)
            yield offset + at, seq, count, wall_ms
            at += size
            seq += count
        if not at:
            return
        offset += at
