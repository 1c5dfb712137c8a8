"""Reserve: a file whose blocks are allocated while there is space, for the acks of a full disk.

An ack needs room on the disk, and refusing acks keeps a full disk full. Compaction needs room as well: living records
are recorded again before the rest is removed. So 8 MiB are reserved, enough for some 100,000 acks. When the disk is
full the file is renamed to be the journal's next one, and written in place. Its end is cut off when it is closed, so
compaction can use the room it leaves. When another reserve can be allocated, there is room again, and writing continues
as usual.

The header is written and synced before the file is renamed. A power cut may keep any sectors of an unsynced header, and
a journal's file with such a header is damage (spec J8). So a reserved file with other bytes than zeros is one that
could not be renamed. It is removed: parts of its header could follow the next one, which may be shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from persistence.disk import READING, Disk, Folder

RESERVE_BYTES: Final = 8 * 1024 * 1024
RESERVE_NAME: Final = "reserve"
# The bytes that are looked at a time.
PIECE_BYTES: Final = 1024 * 1024


class Reserve:
    """The reserved file of one journal.

    size       its length; 0: the journal has none
    is_there   it can be taken
    is_used    the journal is being written to it
    """

    def __init__(self, disk: Disk, size: int, *, is_there: bool) -> None:
        self.size = size
        self.is_there = is_there
        self.is_used = False
        self._disk = disk
        self._is_allocating = False

    @property
    def is_missing(self) -> bool:
        """Whether it should be there and isn't."""
        return self.size > 0 and not self.is_there

    def mark_used(self) -> None:
        """Note that it is the journal's file now."""
        self.is_there = False
        self.is_used = True

    def allocate(self, then: Callable[[], None]) -> None:
        """Allocate a reserved file; `then` is called when there is one."""
        if self._is_allocating:
            return
        self._is_allocating = True
        size = self.size

        def work(folder: Folder) -> None:
            if not keep_if_usable(folder):
                folder.allocate(RESERVE_NAME, size)

        def done(outcome: OSError | None) -> None:
            self._is_allocating = False
            if outcome is None:
                self.is_there = True
                then()

        self._disk.start(READING, work, done)


def become_segment(folder: Folder, name: str, header: bytes) -> None:
    """Make the reserved file a file of the journal. After an OSError there is none, if it could be removed."""
    try:
        folder.write(RESERVE_NAME, 0, [header])
        folder.rename(RESERVE_NAME, name)  # This syncs the file first.
    except OSError:
        try:
            folder.remove(RESERVE_NAME)
        except OSError:
            pass  # `allocate` and `repair` try again.
        raise


def keep_if_usable(folder: Folder) -> bool:
    """Return whether there is a reserved file. One with other bytes than zeros or a bad sector is removed. OSError."""
    if RESERVE_NAME not in folder.names():
        return False
    at = 0
    try:
        while piece := folder.read(RESERVE_NAME, at, PIECE_BYTES):
            if piece.strip(b"\0"):
                break
            at += len(piece)
        else:
            return True
    except OSError:
        pass  # It has no records, so it must not keep a node from starting.
    folder.remove(RESERVE_NAME)
    return False
