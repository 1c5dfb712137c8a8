"""Zeros: a file whose writes are synced one by one has zeros behind its blocks, which the next writes replace.

A write that makes a file longer also changes the file system's own records. Its sync then takes nearly twice as long.
So few writes make the file longer: they append zeros, twice as many each time, up to a bound.
If the disk has no room for zeros, the blocks are written without them.

Readers take zeros behind the last block for the end of the file (recovery.py, event_reading.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from persistence.disk import Folder
from persistence.disk_errors import FULL_DISK

ZEROS_BYTES_MIN: Final = 64 * 1024
ZEROS_BYTES_MAX: Final = 1024 * 1024
_NO_LIMIT: Final = 1 << 62


class Zeros:
    """How far the file that is written has zeros on disk, and how many come next."""

    __slots__ = ("_end", "_next_bytes")

    def __init__(self) -> None:
        self._end = 0
        self._next_bytes = ZEROS_BYTES_MIN

    def begin_file(self) -> None:
        """Note that another file is written, which has no zeros yet."""
        self._end = 0

    def behind(self, end: int, size_max: int) -> bytes:
        """Return the zeros that a write up to the offset `end` should append, if any.

        size_max   the file should not become longer by zeros
        """
        if end <= self._end:
            return b""
        size = min(self._next_bytes, size_max - end)
        if size <= 0:
            return b""
        self._next_bytes = min(2 * self._next_bytes, ZEROS_BYTES_MAX)
        return bytes(size)

    def written(self, end: int, *, has_room: bool) -> None:
        """Note that zeros are on disk up to the offset `end`, or that the disk had no room for them."""
        self._end = end if has_room else _NO_LIMIT


def write_synced(
    folder: Folder, name: str, offset: int, chunks: Sequence[bytes], zeros: bytes, *, has_unsynced: bool
) -> bool:
    """Write chunks so that they survive a power cut, and zeros behind them. Return whether the zeros fitted. OSError.

    has_unsynced   whether earlier bytes of the file are not synced yet
    """
    if zeros:
        try:
            folder.write(name, offset, [*chunks, zeros])
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
        else:
            folder.sync(name)
            return True
    if not has_unsynced:
        folder.write_synced(name, offset, chunks)
    else:
        folder.write(name, offset, chunks)
        folder.sync(name)
    return False
