"""Descriptors: the journal's files that are open, for several threads at once.

Opening a file costs more than writing a batch into it. So descriptors are kept, one for writing and one for reading per
name, up to a number. A name may be forgotten (the file was removed, or another one has come into its place) while a
thread is in the middle of a call. The descriptor is then *doomed*: it leaves its table, and its last user closes it.
If it were closed earlier, the system could give its number to another file, and the call would write there.

Closing a descriptor with unsynced writes loses no error: Linux reports it to the next descriptor of that file.
"""

# Stays Python: file descriptors.
from __future__ import annotations

import os
import threading
from typing import Final

from persistence.window import may_write_synced

# A journal writes to a handful of files at once; reading back jumps between older ones.
WRITERS_MAX: Final = 8
READERS_MAX: Final = 32


class OpenFile:
    """One descriptor.

    users      calls that use it now
    is_doomed  the last of them closes it; it is in no table
    place      device and inode, to see whether the name still leads here
    may_write_synced   of a descriptor for writing: whether a write may be a sync as well (RWF_DSYNC)
    """

    __slots__ = ("fd", "is_doomed", "may_write_synced", "place", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 1
        self.is_doomed = False
        self.place = place_of(os.fstat(fd))
        self.may_write_synced = False


class Descriptors:
    """The tables; the oldest descriptor makes room for a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards the tables and the counts; never held over a system call on a file.
        self._writers: dict[str, OpenFile] = {}
        self._readers: dict[str, OpenFile] = {}

    def take_for_writing(self, name: str, path: str) -> OpenFile:
        """Return the descriptor of `name`, opened at `path` if need be, until it is given back; OSError."""
        with self._lock:
            file = self._writers.get(name)
            if file is not None:
                file.users += 1
                return file
        file = OpenFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        file.may_write_synced = may_write_synced(file.fd)
        return self._keep(self._writers, WRITERS_MAX, name, file)

    def take_for_reading(self, name: str, path: str) -> OpenFile:
        """Return a descriptor for reading, which must go on when a file system has turned read-only."""
        with self._lock:
            file = self._writers.get(name) or self._readers.get(name)
            if file is not None:
                file.users += 1
                return file
        return self._keep(self._readers, READERS_MAX, name, OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))

    def give_back(self, file: OpenFile) -> None:
        """Give a descriptor back, once for each taking."""
        with self._lock:
            file.users -= 1
            is_over = file.is_doomed and not file.users
        if is_over:
            os.close(file.fd)

    def forget(self, name: str) -> None:
        """Close the descriptors of `name` as soon as no call uses them."""
        for table in (self._writers, self._readers):
            self._drop(table, name)

    def forget_all(self) -> None:
        """Close all descriptors as soon as no call uses them."""
        for table in (self._writers, self._readers):
            for name in list(table):
                self._drop(table, name)

    def _keep(self, table: dict[str, OpenFile], count_max: int, name: str, file: OpenFile) -> OpenFile:
        with self._lock:
            if name in table:
                file.is_doomed = True  # Another thread was quicker: this descriptor serves one call only.
                return file
            table[name] = file
            oldest = next(iter(table)) if len(table) > count_max else None
        if oldest is not None:
            self._drop(table, oldest)
        return file

    def _drop(self, table: dict[str, OpenFile], name: str) -> None:
        with self._lock:
            file = table.pop(name, None)
            if file is None:
                return
            file.users += 1
            file.is_doomed = True
        self.give_back(file)


def place_of(stat: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which tell files apart under any name."""
    return stat.st_dev, stat.st_ino
