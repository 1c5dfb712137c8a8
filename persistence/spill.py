"""Spill files: bodies that left memory, until they are read again or not needed any more.

They are written in batches, one behind the other, into files of FILE_BYTES. They are never synced, and a new process
does not use them: opening the folder removes them all. Each body has a head with its key and a checksum. So a wrong
body is never returned, and a file can be walked through to find its living bodies.

A file is removed when nothing in it lives any more. Bodies mostly end in the order in which they came, so this frees
nearly all space. When too much of the rest is dead, `sparse` names a file whose living bodies are worth copying.

The store knows places and sizes, but no jobs. All work is done on a Disk, away from the loop (disk.py).

    head: crc32 of key and body, length of the body, key (40 bytes)
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from persistence.disk import READING, WRITING, Disk, Folder
from persistence.disk_errors import PASSING

FILE_BYTES: Final = 64 << 20
KEY_BYTES: Final = 40
HEAD: Final = struct.Struct("<II40s")
SUFFIX: Final = ".spill"

# Reads that lie this close to each other become one, as long as it is no longer than READ_BYTES_MAX.
GAP_BYTES_MAX: Final = 16 * 1024
READ_BYTES_MAX: Final = 1 << 20
SCAN_BYTES: Final = 1 << 20
# Copying is worth it when dead bytes outnumber both the living ones and these.
DEAD_BYTES_MIN: Final = 4 * FILE_BYTES
# A file is worth it when this share of it is dead.
DEAD_SHARE_MIN: Final = 0.5


class Place(NamedTuple):
    """The place of a body: file number, offset of its head, length of the body."""

    file: int
    offset: int
    size: int


class SpillFile:
    """One file: its length, how much of that lives, how many writes are in flight, whether more will come.

    is_unreadable   a scan of it failed: its living bodies stay there until one is needed
    """

    __slots__ = ("is_closed", "is_unreadable", "live", "size", "writing")

    def __init__(self) -> None:
        self.size = 0
        self.live = 0
        self.writing = 0
        self.is_closed = False
        self.is_unreadable = False


Entry = tuple[bytes, bytes]  # Key, body.
Wanted = tuple[bytes, Place]
Found = tuple[bytes, Place, bytes]  # Key, place, body.


class SpillStore:
    """The spill files of one process.

    files        number -> file
    size, live   bytes in all of them, heads included
    """

    def __init__(self, disk: Disk, file_bytes: int = FILE_BYTES) -> None:
        self.files: dict[int, SpillFile] = {}
        self.size = 0
        self.live = 0
        self._disk = disk
        self._file_bytes = file_bytes
        self._number = 0

    def open(self, done: Callable[[OSError | None], None]) -> None:
        """Remove the files of an earlier process."""

        def work(folder: Folder) -> None:
            for name in folder.names():
                if name.endswith(SUFFIX):
                    folder.remove(name)

        self._disk.start(WRITING, work, done)

    # -- writing -----------------------------------------------------------------------------------

    def write(self, entries: list[Entry], done: Callable[[list[Place] | OSError], None]) -> None:
        """Write these bodies; `done` gets their places, in the same order, or the error that makes all of them void."""
        length = sum(len(body) for _, body in entries) + len(entries) * HEAD.size
        file = self.files.get(self._number)
        is_new = file is None or file.is_closed or (file.size > 0 and file.size + length > self._file_bytes)
        if file is None or is_new:
            self.close_file()
            self._number += 1
            file = self.files[self._number] = SpillFile()
        number = self._number
        start = offset = file.size
        places = []
        for _, body in entries:
            places.append(Place(number, offset, len(body)))
            offset += HEAD.size + len(body)
        file.size = offset
        file.writing += 1
        self.size += length
        self._disk.start(
            WRITING,
            partial(_append, entries, number, start, is_new),
            partial(self._written, file, number, length, places, done),
        )

    def _written(
        self,
        file: SpillFile,
        number: int,
        length: int,
        places: list[Place],
        done: Callable[[list[Place] | OSError], None],
        outcome: OSError | None,
    ) -> None:
        file.writing -= 1
        if isinstance(outcome, OSError):
            self._close(number)  # Other writes in flight for this file may still succeed.
            done(outcome)
        else:
            file.live += length
            self.live += length
            done(places)
        self._drop_if_dead(number)

    def close_file(self) -> None:
        """Have the next bodies written to a new file."""
        self._close(self._number)

    def _close(self, number: int) -> None:
        file = self.files.get(number)
        if file is not None:
            file.is_closed = True
            self._drop_if_dead(number)

    def release(self, number: int, size: int) -> None:
        """Note that a body of this length is not needed there any more."""
        file = self.files.get(number)
        if file is not None:
            file.live -= HEAD.size + size
            self.live -= HEAD.size + size
            self._drop_if_dead(number)

    def _drop_if_dead(self, number: int) -> None:
        file = self.files.get(number)
        if file is not None and file.is_closed and not file.live and not file.writing:
            self._drop(number)

    def _drop(self, number: int) -> None:
        file = self.files.pop(number)
        self.size -= file.size
        self.live -= file.live
        name = file_name(number)
        # The removal comes after the reads in flight. A file that can't be removed costs its space until the next
        # start.
        self._disk.start(READING, lambda folder: folder.remove(name), _ignore)

    def clear(self) -> None:
        """Release all bodies, except those being written right now, which the caller releases."""
        for number, file in list(self.files.items()):
            self.live -= file.live
            file.live = 0
            self._close(number)

    # -- reading -----------------------------------------------------------------------------------

    def read(self, wanted: list[Wanted], done: Callable[[list[bytes | OSError]], None]) -> None:
        """Read these bodies; each result is the body or an OSError. The keys are compared with the files."""

        def work(folder: Folder) -> list[bytes | OSError]:
            return read_all(folder, wanted)

        def read(outcome: list[bytes | OSError] | OSError) -> None:
            assert isinstance(outcome, list)
            done(outcome)

        self._disk.start(READING, work, read)

    # -- compaction ----------------------------------------------------------------------------------

    def sparse(self) -> int:
        """Return the file with the largest dead share, if copying its living bodies is worth it; else 0."""
        if self.size and not self.live:
            self.close_file()  # No body is on disk any more.
        if self.size - self.live <= max(self.live, min(DEAD_BYTES_MIN, 4 * self._file_bytes)):
            return 0
        best = 0
        best_share = DEAD_SHARE_MIN
        for number, file in self.files.items():
            if file.is_closed and not file.writing and not file.is_unreadable:
                share = 1 - file.live / file.size
                if share > best_share:
                    best, best_share = number, share
        return best

    def scan(self, number: int, offset: int, done: Callable[[tuple[list[Found], int] | OSError], None]) -> None:
        """Read a part of a file from `offset`: some bodies, and the start of the next part; 0: that was all."""
        name = file_name(number)

        def work(folder: Folder) -> tuple[list[Found], int]:
            found: list[Found] = []
            piece = folder.read(name, offset, SCAN_BYTES)
            at = 0
            while len(piece) - at >= HEAD.size:
                crc, size, key = HEAD.unpack_from(piece, at)
                if len(piece) - at - HEAD.size < size:
                    if at:
                        break
                    piece = folder.read(name, offset, HEAD.size + size)  # One body, longer than a part.
                body = piece[at + HEAD.size : at + HEAD.size + size]
                if len(body) < size or checksum(key, body) != crc:
                    raise _damaged(name)
                found.append((key, Place(number, offset + at, size), body))
                at += HEAD.size + size
            return found, offset + at if at else 0

        def scanned(outcome: tuple[list[Found], int] | OSError) -> None:
            file = self.files.get(number)
            if isinstance(outcome, OSError) and outcome.errno not in PASSING and file is not None:
                file.is_unreadable = True
            done(outcome)

        self._disk.start(READING, work, scanned)


def _append(entries: list[Entry], number: int, start: int, is_new: bool, folder: Folder) -> None:
    """Do the disk's part of `SpillStore.write`."""
    name = file_name(number)
    if is_new:
        folder.create(name, b"")
    chunks: list[bytes] = []
    for key, body in entries:
        chunks += (HEAD.pack(checksum(key, body), len(body), key), body)
    folder.write(name, start, chunks)


def read_all(folder: Folder, wanted: list[Wanted]) -> list[bytes | OSError]:
    """Do the disk's part of `SpillStore.read`: few reads for many bodies; if one fails, one read per body."""
    results: list[bytes | OSError] = [b""] * len(wanted)
    for indexes in _ranges(wanted):
        first = wanted[indexes[0]][1]
        last = wanted[indexes[-1]][1]
        try:
            length = last.offset + HEAD.size + last.size - first.offset
            piece = folder.read(file_name(first.file), first.offset, length)
        except OSError as error:
            if len(indexes) == 1:
                results[indexes[0]] = error.with_traceback(None)
            else:
                for index in indexes:
                    results[index] = read_all(folder, [wanted[index]])[0]
            continue
        for index in indexes:
            key, place = wanted[index]
            at = place.offset - first.offset
            body = piece[at + HEAD.size : at + HEAD.size + place.size]
            if piece[at : at + HEAD.size] == HEAD.pack(checksum(key, body), place.size, key):
                results[index] = body
            else:
                results[index] = _damaged(file_name(place.file))
    return results


def _ranges(wanted: list[Wanted]) -> Iterator[list[int]]:
    """Yield the indexes of bodies that are read in one go."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index][1])
    group: list[int] = []
    for index in order:
        place = wanted[index][1]
        if group:
            first, last = wanted[group[0]][1], wanted[group[-1]][1]
            end = last.offset + HEAD.size + last.size
            if (
                place.file != first.file
                or place.offset - end > GAP_BYTES_MAX
                or place.offset + place.size - first.offset > READ_BYTES_MAX
            ):
                yield group
                group = []
        group.append(index)
    if group:
        yield group


def checksum(key: bytes, body: bytes) -> int:
    """Return the checksum of a body and its key."""
    return crc32(body, crc32(key))


def file_name(number: int) -> str:
    """Return a spill file's name, like `0000000001.spill`."""
    return f"{number:010}{SUFFIX}"


def _damaged(name: str) -> OSError:
    return OSError(errno.EIO, "the bytes read are not the bytes written", name)


def _ignore(_: object) -> None:
    """No caller waits for the result."""
