"""Search: finds some jobs' bases in one segment, in any folder.

A job's `place` names the segment that holds its base. A node that needs a body once more, and has lost its own copy of
it, reads that whole segment. It reads and decodes a piece at a time, in a lane of the disk: the segment may have 32
MiB, and the loop must not wait. Nothing is changed. The segment may be the one that is being written: only bytes
written before the search began are examined.

If a segment is removed meanwhile (FileNotFoundError), the caller looks up the base's new place, later in the journal.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

from persistence.disk import Folder
from persistence.layouts import BODY_AT, ID_AT
from persistence.records import (
    HEAD_BYTES,
    HEADER_ALIGN,
    JOB,
    FormatError,
    Part,
    block_size,
    decode_block,
    file_name,
    header_size,
)

PIECE_BYTES: Final = 1024 * 1024


class Search:
    """One reading of one segment.

    ids        the jobs whose bases are looked for; the caller removes ids that it needs no more
    is_over    all files were read, or no id is left
    """

    def __init__(self, parts: Iterable[Part], ids: set[bytes]) -> None:
        self.ids = ids
        self._parts = list(parts)
        self.is_over = not self._parts or not ids
        self._offset = -1
        self._position = 0
        self._piece_bytes = PIECE_BYTES

    def step(self, folder: Folder) -> list[tuple[bytes, bytes]]:
        """Return (id, body) of the bases in the next piece, in order; OSError, with EIO for damage."""
        part = self._parts[0]
        name = file_name(part.number, part.part)
        if self._offset < 0:
            self._offset = header_size(folder.read(name, 0, HEADER_ALIGN))
            self._position = part.start
        data = folder.read(name, self._offset, self._piece_bytes)
        found: list[tuple[bytes, bytes]] = []
        at = 0
        try:
            while self._position < part.end:
                block = decode_block(data, at, self._position)
                if block is None:
                    break
                for run in block.runs:
                    if run[0] == JOB:
                        found += [(item[ID_AT], item[BODY_AT]) for item in run[1:] if item[ID_AT] in self.ids]
                at += block.size
                self._position += block.size
        except (FormatError, IndexError, TypeError):
            raise self._damaged(name) from None
        self._offset += at
        if self._position >= part.end:
            self._parts.pop(0)
            self._offset = -1
            self.is_over = not self._parts
        elif at:
            self._piece_bytes = PIECE_BYTES
        else:
            wanted = max(block_size(data, 0, self._position), HEAD_BYTES)
            if len(data) < self._piece_bytes or wanted <= len(data):
                raise self._damaged(name)
            self._piece_bytes = wanted  # One block, longer than a piece.
        return found

    def _damaged(self, name: str) -> OSError:
        return OSError(errno.EIO, f"damaged at position {self._position}", name)
