"""Disk: the protocols through which the journal uses the outside.

A `Folder` is one directory of files, used synchronously: recovery, the tools and the lanes below work on it. A `Disk`
does such work away from the loop, in lanes. Each lane finishes its work in order and reports back in the loop's own
thread. Server and simulator have one of each (file_disk.py; disque_py/simulator/world/disk.py). So the journal itself
knows no thread, no file descriptor and no clock.
"""

# Stays Python: protocols that any class may implement.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

# Lanes of a disk. Work in one lane never overtakes; lanes don't wait for each other.
WRITING: Final = 0  # Appending, and work that has to happen in order with it.
SYNCING: Final = 1  # The fsync once a second, beside the writing.
READING: Final = 2  # Reading back, linking and removing: no reply waits for it.
LANES: Final = 3


class Window(Protocol):
    """The beginning of a file as memory (`Folder.map`); `size` bytes of it."""

    size: int

    def put(self, offset: int, data: bytes) -> None:
        """Copy bytes in the loop's thread, without waiting. Only where the folder did `prepare` a moment ago.

        From then on the bytes survive the death of the process. They survive a power cut after `sync_window` or `sync`.
        """


class Folder(Protocol):
    """A directory of files with plain names. Every method may raise OSError with its errno.

    Changes made by `create`, `replace`, `remove` and `rename` survive a power cut once they return: they sync file and
    directory. Bytes written by `write` survive the death of the process, and a power cut after `sync`.
    """

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def size(self, name: str) -> int:
        """Return the length in bytes; FileNotFoundError without the file."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer at the end of the file."""

    def create(self, name: str, data: bytes) -> None:
        """Make a new file with this content; FileExistsError if there is one. After an error there is none."""

    def write(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all chunks, one after the other, at `offset`. After an error any part of them may be there."""

    def sync(self, name: str) -> None:
        """Make all writes to the file survive a power cut. After an error their state is unknown."""

    def write_synced(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all chunks at `offset` so that they survive a power cut. Earlier writes to the file may be left out.

        After an error the state of the file is as after that of a `sync`.
        """

    def truncate(self, name: str, size: int) -> None:
        """Cut the file, and sync it."""

    def replace(self, name: str, data: bytes) -> None:
        """Give the file this content; after an error it has its old one."""

    def remove(self, name: str) -> None:
        """Remove the file; no error if it is gone already."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step."""

    def allocate(self, name: str, size: int) -> None:
        """Make a file of `size` zero bytes with allocated blocks, so that writing into it needs no further space."""

    def link(self, name: str, directory: str) -> None:
        """Make a hard link of the file in another directory of the same file system, made if need be."""

    def store(self, directory: str, name: str, data: bytes, *, is_private: bool = False) -> None:
        """Write a small file beside such links. It and they survive a power cut when this returns.

        is_private   only the owner may read it
        """

    def stored(self, directory: str) -> list[str]:
        """Return the names in that directory, sorted; none if it isn't there."""

    def discard(self, directory: str) -> None:
        """Remove that directory and all files in it; no error if it isn't there."""

    def map(self, name: str, size: int) -> Window | None:
        """Return a window on the file's first bytes, also those that it doesn't have yet; None: no windows here."""

    def prepare(self, name: str, window: Window, start: int, end: int) -> None:
        """Make these bytes of the window writable without waiting. The file is extended with zeros up to `end`."""

    def sync_window(self, name: str, window: Window, start: int, end: int) -> None:
        """Make the bytes put in this range survive a power cut. After an error their state is unknown."""

    def close(self) -> None:
        """Release all resources, the lock included."""


class Disk(Protocol):
    """A runner of work on a folder, away from the loop."""

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this lane. `done` gets its result, or the OSError it raised, in the loop's thread."""

    def wait(self, lane: int) -> None:
        """Wait a moment for the work of this lane, and hand over what ends meanwhile. A slow disk is not waited for."""
