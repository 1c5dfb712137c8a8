"""Rewrite: compaction of a journal, one segment after the other.

There is no fork and no pause. A segment's file is read a piece at a time beside the loop, and a few records are
examined per turn. The caller, which knows jobs, appends the records that still count where the journal ends now. When
the copies are on disk the segment is dropped. Any segment can be dropped at any time, in any order, because a job's
base is its complete record. A GONE is recorded again as long as there is a file that may have a base of its id.

The rewrite chooses the segments with the most dead bytes, as long as it is worth it (`chosen`); BGREWRITEAOF chooses
all with any dead bytes. The oldest segments need no reading if nothing in them lives. Spec J5 says when a rewrite
starts; the rest is our choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from persistence.disk import READING, Disk, Folder
from persistence.journal import Journal
from persistence.layouts import SEGMENT_AT
from persistence.records import (
    DROPPED,
    GONE,
    HEAD_BYTES,
    HEADER_ALIGN,
    FormatError,
    Part,
    block_size,
    decode_block,
    file_name,
    header_size,
)

PIECE_BYTES: Final = 256 * 1024
# The records that are examined per step: about a millisecond.
RECORDS_PER_STEP: Final = 500
# The rewrite runs ahead of the disk by no more than this.
AHEAD_BYTES_MAX: Final = 4 * 1024 * 1024
# An automatic rewrite skips a segment of which a smaller share is dead.
DEAD_SHARE_MIN: Final = 0.2

# (segment, kind, item, whether a file that may hold a base of the id exists) -> recorded again, if it still counts
Keep = Callable[[int, int, Any, bool], None]


class Rewrite:
    """One rewrite: the segments it was started for, one after the other.

    keep          called with every record of a segment, in order
    wake          has `step` called soon
    stale         segments with bases that later ones replaced, from an interrupted rewrite: they go first
    is_over       nothing is left to do, or `error` says why it ended
    is_damaged    it ended because the bytes read are not those written
    """

    def __init__(
        self, journal: Journal, disk: Disk, keep: Keep, wake: Callable[[], None], numbers: list[int], stale: set[int]
    ) -> None:
        self.is_over = not numbers
        self.is_damaged = False
        self.error = ""
        self.segments_total = len(numbers)
        self.segments_done = 0
        self.bytes_won = 0
        self._journal = journal
        self._disk = disk
        self._keep = keep
        self._wake = wake
        self._numbers = sorted(numbers, key=lambda number: (number not in stale, number))
        self._stale = stale
        self._number = 0
        self._parts: list[Part] = []
        self._position = 0
        self._offset = 0
        self._rest = b""
        self._records: list[tuple[int, Any]] = []
        self._at = 0
        self._is_reading = False
        self._waits_for = -1

    def step(self) -> bool:
        """Do a small part of the work; True if there is more to do at once."""
        journal = self._journal
        if self.is_over:
            return False
        if journal.level and not journal.is_on_reserve:
            return False  # The disk fails or is slow; later.
        if journal.position - journal.written > AHEAD_BYTES_MAX:
            return False
        if self._at < len(self._records):
            self._look()
            return True
        if self._is_reading:
            return False
        if self._waits_for >= 0:
            # Kept records are in the journal since the end of the last turn, and must be on disk before this one goes.
            journal.drop(self._number)
            self._stale.discard(self._number)
            self.segments_done += 1
            self._waits_for = -1
            self._number = 0
        if self._parts:
            self._read()
        elif self._number:
            self._waits_for = journal.position
            return True
        elif self._numbers:
            self._begin(self._numbers.pop(0))
            return True
        else:
            self.is_over = True
        return False

    def _begin(self, number: int) -> None:
        self._number = number
        self._parts = self._journal.parts_of(number)
        self.bytes_won += sum(part.end - part.start for part in self._parts)
        self._offset = -1
        self._rest = b""

    def _look(self) -> None:
        """Examine some of the records that were read."""
        journal = self._journal
        number = self._number
        for kind, item in self._records[self._at : self._at + RECORDS_PER_STEP]:
            if kind == GONE:
                self._keep(number, kind, item, self._may_matter(item[SEGMENT_AT]))
            elif kind == DROPPED:
                if item != number and journal.has_segment(item):
                    journal.append([[DROPPED, item]])
            else:
                self._keep(number, kind, item, True)
        self._at += RECORDS_PER_STEP
        if self._at >= len(self._records):
            self._records = []
            self._at = 0

    def _may_matter(self, place: int) -> bool:
        """Whether some file may still have a base of an id that is gone and had its base in segment `place`."""
        return (place != self._number and self._journal.has_segment(place)) or any(
            stale <= place and stale != self._number for stale in self._stale
        )

    def _read(self) -> None:
        """Ask for the next piece of the current file."""
        part = self._parts[0]
        name = file_name(part.number, part.part)
        offset = self._offset

        def work(folder: Folder) -> tuple[int, bytes]:
            at = offset
            if at < 0:
                at = header_size(folder.read(name, 0, HEADER_ALIGN))
            return at, folder.read(name, at, PIECE_BYTES)

        self._is_reading = True
        self._disk.start(READING, work, self._on_read)

    def _on_read(self, outcome: tuple[int, bytes] | OSError) -> None:
        self._is_reading = False
        self._wake()
        if isinstance(outcome, OSError):
            self._give_up(outcome.strerror or str(outcome))
            return
        part = self._parts[0]
        offset, piece = outcome
        if self._offset < 0:
            self._position = part.start
        self._offset = offset + len(piece)
        data = self._rest + piece
        at = 0
        while self._position < part.end:
            try:
                block = decode_block(data, at, self._position)
            except FormatError as broken:
                self.is_damaged = True
                self._give_up(str(broken))
                return
            if block is None:
                break
            for run in block.runs:
                kind = run[0]
                self._records += [(kind, item) for item in run[1:]]
            at += block.size
            self._position += block.size
        if self._position >= part.end:
            self._parts.pop(0)
            self._offset = -1
            self._rest = b""
            return
        self._rest = data[at:]
        wanted = max(block_size(self._rest, 0, self._position), HEAD_BYTES)
        if not piece or len(self._rest) >= wanted:
            self.is_damaged = True
            self._give_up(f"{file_name(part.number, part.part)}: damaged at position {self._position}")

    def give_up(self, error: str) -> None:
        """End the rewrite; the segments done so far stay done."""
        if not self.is_over:
            self._give_up(error)

    def _give_up(self, error: str) -> None:
        """End the rewrite: this segment and the others stay as they are. Some bases of this one are replaced by now."""
        self._stale.add(self._number)
        self.error = error
        self.is_over = True


def fitting(journal: Journal, live_bytes: Mapping[int, int], stale: set[int], room: int) -> list[int]:
    """Return the segments worth rewriting whose living bytes fit into `room`, those with the fewest first."""
    numbers: list[int] = []
    worth = chosen(journal, live_bytes, everything=False)
    worth += [number for number in journal.closed_segments() if number in stale and number not in worth]
    for number in sorted(worth, key=lambda number: live_bytes.get(number, 0)):
        room -= live_bytes.get(number, 0)
        if room <= 0:
            break
        numbers.append(number)
    return numbers


def chosen(journal: Journal, live_bytes: Mapping[int, int], *, everything: bool) -> list[int]:
    """Return the segments that are worth rewriting."""
    numbers: list[int] = []
    for number in journal.closed_segments():
        size = journal.size_of(number)
        dead = size - live_bytes.get(number, 0)
        if dead > (0 if everything else size * DEAD_SHARE_MIN):
            numbers.append(number)
    return numbers


def unread_prefix(journal: Journal, live_records: Mapping[int, int], stale: set[int]) -> list[int]:
    """Return the oldest segments in which nothing lives: their records about other segments name removed ones."""
    numbers: list[int] = []
    for number in journal.closed_segments():
        if live_records.get(number, 0) > 0 or number in stale:
            break
        numbers.append(number)
    return numbers
