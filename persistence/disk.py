"""Disk: what the journal needs of the outside, as two protocols.

A `Folder` is one directory of files, used synchronously: recovery, the tools and the lanes below work on it. A
`Disk` does pieces of such work away from the loop: in lanes, each of which finishes its work in order, and reports
back in the loop's own thread. Server and simulator have one of each (files.py; disque_py/simulator/world/disk.py), so the
journal itself knows no thread, no file descriptor and no clock.
"""

# Stays Python: protocols that any class may implement.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

# Lanes of a disk. Work in one lane never overtakes; lanes don't wait for each other.
WRITING: Final = 0  # Appending, and whatever has to happen in order with it.
SYNCING: Final = 1  # The fsync once a second, beside the writing.
READING: Final = 2  # Reading back, linking and removing: nobody waits for it.
LANES: Final = 3


class Window(Protocol):
    """The beginning of a file as memory (`Folder.map`); `size` bytes of it."""

    size: int

    def put(self, offset: int, data: bytes) -> None:
        """In the loop's thread: copy, and wait for nothing. Only where the folder did `prepare` a moment ago.

        It survives the death of the process at once, and a power cut after `sync_window`, or `sync`.
        """


class Folder(Protocol):
    """A directory of files with plain names. Every method may raise OSError with its errno.

    What `create`, `replace`, `remove` and `rename` did survives a power cut once they return: they sync file and
    directory. What `write` did survives the death of the process at once, and a power cut after `sync`.
    """

    def names(self) -> list[str]:
        """All files, sorted."""

    def size(self, name: str) -> int:
        """Length in bytes; FileNotFoundError without it."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer at the end of the file."""

    def create(self, name: str, data: bytes) -> None:
        """A new file with this content; FileExistsError if there is one. After an error there is none."""

    def write(self, name: str, offset: int, chunks: Sequence[bytes]) -> None:
        """All chunks, one after the other, at `offset`. After an error any part of them may be there."""

    def sync(self, name: str) -> None:
        """What was written to the file survives a power cut when this returns. After an error nothing is known."""

    def truncate(self, name: str, size: int) -> None:
        """Cut the file; synced."""

    def replace(self, name: str, data: bytes) -> None:
        """The file has this content, or after an error its old one."""

    def remove(self, name: str) -> None:
        """No error if it is gone already."""

    def rename(self, old: str, new: str) -> None:
        """In one step."""

    def allocate(self, name: str, size: int) -> None:
        """A new file of `size` zero bytes whose blocks are really there: writing into it needs no space."""

    def link(self, name: str, directory: str) -> None:
        """A hard link of the file in another directory of the same file system, made if need be."""

    def store(self, directory: str, name: str, data: bytes) -> None:
        """A small file beside such links; it and they survive a power cut when this returns."""

    def stored(self, directory: str) -> list[str]:
        """The names in that directory, sorted; none if it isn't there."""

    def discard(self, directory: str) -> None:
        """That directory and all files in it are gone; no error if it isn't there."""

    def map(self, name: str, size: int) -> Window | None:
        """A window on the file's first bytes, those that it doesn't have yet included; None: there are none here."""

    def prepare(self, name: str, window: Window, start: int, end: int) -> None:
        """These bytes of the window can be written without waiting. The file is so long then, with zeros."""

    def sync_window(self, name: str, window: Window, start: int, end: int) -> None:
        """What was put between these bytes survives a power cut when this returns. After an error nothing is known."""

    def close(self) -> None:
        """Let go of everything, the lock included."""


class Disk(Protocol):
    """Runs work on a folder, away from the loop."""

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this lane; `done` hears its result, or the OSError it raised, in the loop's thread."""
