"""Recovery: reading a journal's records in order, up to a torn tail.

The newest file's header names the chain: the files that belong to it and the end of each. Closed files were synced
before the next one was made. So a broken block in them is damage, and nothing is guessed: the journal is refused, and
the error names the place. The last file may end anywhere, because the machine died. Everything from the first broken
block on is cut, unless a later block says that this place was on disk when it was written. A clean stop leaves a mark
that names the journal's end. If the journal ends before that, a part of it has been lost since.

With `always` the blocks of a file replace zeros. A write that did not end leaves some of these zeros between its other
bytes. No reply left the node for such a write, so it is as if it had never begun: this is no torn tail.

`step` reads a piece at a time, so the caller decides where (a thread, a tool, a simulated disk) and how long. Reading
changes nothing. A server calls `Recovery.repair` before it writes to the journal.
"""

from __future__ import annotations

from typing import Final

from persistence.disk import Folder
from persistence.journal import CLEAN_NAME
from persistence.records import (
    HEAD_BYTES,
    HEADER_ALIGN,
    IS_ALWAYS,
    Block,
    FormatError,
    Header,
    NewerFormatError,
    Part,
    block_size,
    decode_block,
    decode_header,
    encode_block,
    file_name,
    header_size,
    looks_like_block,
    parse_file_name,
)
from persistence.reserved_segment import RESERVE_NAME, keep_if_usable

# The mark of a restored journal. The restore of a backup makes it, and so does switching off a journal that can't be
# written any more. At-most-once jobs are never queued from such a journal (spec O5).
RESTORED_NAME: Final = "restored"
# The bytes that are read at a time; the blocks of a piece are handed on together.
PIECE_BYTES: Final = 1024 * 1024
WINDOW_BYTES: Final = 1 << 16
# A disk writes a sector of this size, or of a multiple of it, as a whole or not at all.
SECTOR_BYTES: Final = 512
# A block begins with its length, which is not zero.
LENGTH_BYTES: Final = 4
# Hardly any block ends with so many zeros.
ZEROS_MIN: Final = 8


class DamagedJournalError(Exception):
    """An error: the journal can't be read to its end. The text names the place and the remedy."""


class Recovery:
    """One reading of a node's journal, from the oldest file to the last whole block.

    newest        header of the last file; None: there is no journal
    files         (name, header, end) in order; end -1 for the last one
    missing       segments that the chain names and that have no file: fine if a DROPPED record says so
    leftovers     names of segment files that are not part of the chain
    total_bytes, done_bytes   of all files, for progress
    torn          (name, offset, bytes cut) once a torn tail was met
    unfinished    (name, offset, bytes) of the last write if it did not end; these bytes are ignored
    is_clean      the clean-shutdown mark fits the end of the journal (known when all is read)
    is_restored   this is a backup that was put in place
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        names = folder.names()
        self.newest: Header | None = None
        self.files: list[tuple[str, Header, int]] = []
        self.missing: set[int] = set()
        self.leftovers: list[str] = []
        self.torn: tuple[str, int, int] | None = None
        self.unfinished: tuple[str, int, int] | None = None
        self.is_finished = False
        self.has_reserve = RESERVE_NAME in names
        self.position = 0
        self._synced = 0
        # Number, part and end of the last file at a clean stop.
        self._mark = _mark_of(folder.read(CLEAN_NAME, 0, 200) if CLEAN_NAME in names else b"")
        self._survey(names)
        self.is_restored = RESTORED_NAME in names and self._is_marked_restored()
        self.total_bytes = sum(
            (end - header.start if end >= 0 else folder.size(name) - header.size) for name, header, end in self.files
        )
        self.done_bytes = 0
        self._at = -1
        self._offset = 0
        self._rest = b""
        self._is_always = False  # Whether the last block was written under `appendfsync always`.
        self._next_file()

    # -- the chain ---------------------------------------------------------------------------------

    def _survey(self, names: list[str]) -> None:
        found = sorted((key, name) for name in names if (key := parse_file_name(name)) is not None)
        headers: dict[tuple[int, int], Header] = {}
        while found and self.newest is None:
            key, name = found[-1]
            try:
                headers[key] = self.newest = self._header(name)
            except NewerFormatError:
                raise
            except FormatError as broken:
                if not self._is_unborn(name):
                    raise DamagedJournalError(f"{broken}. {ADVICE}") from broken
                self.leftovers.append(name)
                found.pop()
        if self.newest is None:
            return
        present = dict(found)
        for file in self.newest.before:
            name = file_name(file.number, file.part)
            if (file.number, file.part) not in present:
                self.missing.add(file.number)
                continue
            try:
                header = self._header(name)
            except NewerFormatError:
                raise
            except FormatError as broken:
                raise DamagedJournalError(f"{broken}. {ADVICE}") from broken
            if (header.number, header.part, header.start) != file[:3]:
                raise DamagedJournalError(f"{name}: not the file that the journal means. {ADVICE}")
            self.files.append((name, header, file.end))
        newest_name = file_name(self.newest.number, self.newest.part)
        self.files.append((newest_name, self.newest, -1))
        chained = {name for name, _, _ in self.files}
        self.leftovers += [name for _, name in found if name not in chained]

    def _is_marked_restored(self) -> bool:
        """Whether the mark applies: it is empty and means any journal, or names the last segment that it means."""
        last = self._folder.read(RESTORED_NAME, 0, 200).strip()
        return self.newest is None or not last.isdigit() or self.newest.number <= int(last)

    def _header(self, name: str) -> Header:
        data = self._folder.read(name, 0, HEADER_ALIGN)
        size = header_size(data)
        if size > len(data):
            data += self._folder.read(name, len(data), size - len(data))
        return decode_header(name, data)

    def _is_unborn(self, name: str) -> bool:
        """Whether the making of a file was cut short: its header is synced before the first block is written."""
        head = self._folder.read(name, 0, HEADER_ALIGN)
        end = max(header_size(head), HEADER_ALIGN)
        size = self._folder.size(name)
        while end < size:
            piece = self._folder.read(name, end, PIECE_BYTES)
            if not piece or piece.strip(b"\0"):
                return not piece
            end += len(piece)
        return True

    # -- block by block ----------------------------------------------------------------------------

    def step(self) -> list[tuple[int, Block]]:
        """Return (segment, block) of the next piece; empty when everything was read. DamagedJournalError, OSError."""
        blocks: list[tuple[int, Block]] = []
        while not blocks and not self.is_finished:
            name, header, end = self.files[self._at]
            data = self._rest + self._folder.read(name, self._offset, PIECE_BYTES)
            got = len(data) - len(self._rest)
            self._offset += got
            self.done_bytes += got
            at = 0
            while end < 0 or self.position < end:
                block = decode_block(data, at, self.position)
                if block is None:
                    break
                blocks.append((header.number, block))
                if block.synced > self._synced:
                    self._synced = block.synced
                self._is_always = bool(block.flags & IS_ALWAYS)
                at += block.size
                self.position += block.size
            if 0 <= end <= self.position:
                self._next_file()
                continue
            wanted = max(block_size(data, at, self.position), HEAD_BYTES)
            has_more = self._offset < self._folder.size(name)
            if has_more and at + wanted > len(data):
                self._rest = data[at:] + self._large(name, wanted - (len(data) - at) - PIECE_BYTES)
            elif not has_more and at == len(data) and end < 0:
                self._next_file()
            else:
                self._broken(name, header, end, data[at:])
        return blocks

    def _large(self, name: str, size: int) -> bytes:
        """Read the rest of a block that is larger than a piece, except its last piece."""
        if size <= 0:
            return b""
        data = self._folder.read(name, self._offset, size)
        self._offset += len(data)
        self.done_bytes += len(data)
        return data

    def _next_file(self) -> None:
        """Continue with the next file, or end."""
        self._at += 1
        self._rest = b""
        if self._at >= len(self.files):
            self.is_finished = True
            self._compare_with_mark()
            return
        header = self.files[self._at][1]
        self.position = header.start
        self._offset = header.size

    def _compare_with_mark(self) -> None:
        """Compare the end that was read with the mark of a clean stop.

        A mark for an earlier file means nothing. It was being written when the disk failed, and the journal went on.
        """
        if self._mark is None or self._mark[2] <= self.position:
            return
        number, part, end = self._mark
        newest = self.newest
        if newest is None or (newest.number, newest.part) < (number, part):
            raise DamagedJournalError(f"{file_name(number, part)} is missing: the journal was closed there. {ADVICE}")
        if (newest.number, newest.part) == (number, part) and self.torn is None:
            at = newest.size + self.position - newest.start
            self.torn = (file_name(number, part), at, end - self.position)

    def _broken(self, name: str, header: Header, end: int, rest: bytes) -> None:
        """Decide whether a block that isn't whole is a torn tail or damage."""
        at = header.size + self.position - header.start
        if end >= 0:
            raise DamagedJournalError(f"{name}: damaged at byte {at}. {ADVICE}")
        while piece := self._folder.read(name, self._offset, PIECE_BYTES):
            rest += piece
            self._offset += len(piece)
        later = _find_block(rest, self.position)
        if later is not None and later.synced > self.position:
            raise DamagedJournalError(
                f"{name}: damaged at byte {at}, and a later block shows that this was on disk. {ADVICE}"
            )
        used = len(rest.rstrip(b"\0"))
        if used and self._is_always and _is_unfinished(rest, at, block_size(rest, 0, self.position)):
            self.unfinished = (name, at, used)
        elif used:
            self.torn = (name, at, len(rest))
        self._next_file()

    # -- afterwards --------------------------------------------------------------------------------

    @property
    def is_clean(self) -> bool:
        """Whether the last process stopped cleanly, and nothing was written after that."""
        newest = self.newest
        if newest is None:
            return False
        return self._mark == (newest.number, newest.part, self.position)

    def chain(self) -> tuple[Part, ...]:
        """Return the files from which a Journal continues; the last one is closed where the reading ended."""
        return tuple(
            Part(header.number, header.part, header.start, end if end >= 0 else self.position)
            for _, header, end in self.files
        )

    def repair(self) -> None:
        """Prepare the folder for new records: remove the mark first, then files that are no part of the journal."""
        folder = self._folder
        folder.remove(CLEAN_NAME)
        self.has_reserve = keep_if_usable(folder)
        self._write_again()
        if self.torn is not None:
            # A journal that was torn must not look whole once it is cut. So a block without the flag of `always` takes
            # the place of the torn tail, and the next reader takes no job as certain either (spec J3).
            name, at, _ = self.torn
            block = encode_block([], self.position, self.position, 0, 0)
            folder.write(name, at, [block])
            folder.sync(name)
            folder.truncate(name, at + len(block))
            self.position += len(block)
        elif self.files:
            # The next header says that this file is whole. But the last process may have died before it synced it.
            folder.sync(self.files[-1][0])
        for name in self.leftovers:
            folder.remove(name)

    def _write_again(self) -> None:
        """Write the bytes that are not known to be on disk once more, before they are synced.

        They were read from the system's memory. If the last process was told that an fsync failed and then died, the
        system treats those pages as written: an fsync alone would succeed and save nothing.
        """
        if not self.files:
            return
        name, header, _ = self.files[-1]
        first = max(self._synced, header.start)
        offset = header.size + first - header.start
        left = self.position - first
        while left > 0:
            piece = self._folder.read(name, offset, min(left, PIECE_BYTES))
            if not piece:
                break
            self._folder.write(name, offset, [piece])
            offset += len(piece)
            left -= len(piece)


ADVICE: Final = (
    "Nothing was changed. Run `disque-check-journal verify` on the directory; restore a backup, "
    "or move the directory away to start empty: other nodes still hold their copies"
)


def _mark_of(text: bytes) -> tuple[int, int, int] | None:
    """Parse the clean-shutdown mark; None if there is none, or it can't be read."""
    words = text.split()
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    return int(words[0]), int(words[1]), int(words[2])


def _is_unfinished(rest: bytes, offset: int, size: int) -> bool:
    """Return whether `rest`, the end of a file of zeros from `offset` on, is from a write that did not end.

    Such a write lacks sectors, or its end. A whole block hardly ever ends with ZEROS_MIN zeros.

    size   the length of the first block, if its head is there
    """
    used = len(rest.rstrip(b"\0"))
    if used + ZEROS_MIN <= max(size, HEAD_BYTES) <= len(rest):
        return True
    first = -offset % SECTOR_BYTES
    if first >= LENGTH_BYTES and not rest[:first].strip(b"\0"):
        return True
    return any(not rest[at : at + SECTOR_BYTES].strip(b"\0") for at in range(first, used, SECTOR_BYTES))


def _find_block(data: bytes, position: int) -> Block | None:
    """Return the block in `data` that claims the furthest synced position, if any; `data` begins at `position`."""
    best: Block | None = None
    at = 1
    while at + HEAD_BYTES <= len(data):
        # All positions of a window share their upper six bytes, so bytes.find does the search.
        here = position + at
        window_end = min(at + WINDOW_BYTES - here % WINDOW_BYTES, len(data) - HEAD_BYTES + 1)
        upper = (here >> 16).to_bytes(6, "little")
        hit = data.find(upper, at + 10, window_end + 16)
        while hit >= 0 and hit - 10 < window_end:
            start = hit - 10
            if looks_like_block(data, start, position + start):
                block = decode_block(data, start, position + start)
                if block is not None and (best is None or block.synced > best.synced):
                    best = block
            hit = data.find(upper, hit + 1, window_end + 16)
        at = window_end
    return best
