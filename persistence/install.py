"""Install: puts a whole journal into a node's directory, or changes nothing.

An import and a restore write into a directory beside the intended one, `<directory>.new`. When everything is on disk,
it gets the intended name in one step. A running node holds the lock, so its journal is not replaced. A journal that is
there already is never overwritten: the install is refused, or moves it aside if the caller asks for that.
"""

# Stays Python: files.
from __future__ import annotations

import errno
import fcntl
import os
import shutil
from types import TracebackType
from typing import Final

from persistence.files import LOCK_NAME, Files, parent_of, sync_directory, take_lock
from persistence.journal import CLEAN_NAME
from persistence.records import parse_file_name
from persistence.recovery import RESTORED_NAME
from persistence.reserved_segment import RESERVE_NAME

NEW_SUFFIX: Final = ".new"
ASIDE_SUFFIX: Final = ".old-"
# A journal without a segment may consist of these files.
REMAINS: Final = frozenset((LOCK_NAME, CLEAN_NAME, RESERVE_NAME, RESTORED_NAME))


class OccupiedError(OSError):
    """An error: there is a journal already. The text says what to do."""

    def __init__(self, directory: str) -> None:
        text = f"{directory} has a journal already: add --force to move it aside"
        super().__init__(errno.EEXIST, text, directory)

    def __str__(self) -> str:
        return str(self.strerror)


class Install:
    """A context: write to `folder`, then `commit` puts it in place; without that nothing is left behind.

    directory      where the journal is to be
    moves_aside    an existing journal is renamed to <directory>.old-<n> (`moved_to`) instead of being refused
    Raises JournalInUseError, OccupiedError, OSError.
    """

    folder: Files

    def __init__(self, directory: str, *, moves_aside: bool = False) -> None:
        self.directory = os.path.abspath(directory)
        self.moved_to = ""
        self._moves_aside = moves_aside
        self._fresh = self.directory + NEW_SUFFIX
        self._lock_fd = -1

    def __enter__(self) -> Install:
        if os.path.isdir(self.directory):
            self._lock_fd = take_lock(self.directory)
        try:
            if os.path.isdir(self.directory):
                self._refuse_what_is_there()
            self.folder = Files(self._fresh)
            for name in self.folder.names():  # Remains of an import that was killed.
                self.folder.remove(name)
        except OSError:
            self._unlock()
            raise
        return self

    def commit(self) -> None:
        """Put the new journal in place; after an OSError nothing has changed."""
        self.folder.close()
        if self._lock_fd >= 0:
            if has_journal(self.directory):
                self.moved_to = free_name(self.directory)
                os.rename(self.directory, self.moved_to)
            else:
                for name in REMAINS.intersection(os.listdir(self.directory)):
                    os.unlink(f"{self.directory}/{name}")
                os.rmdir(self.directory)
            self._unlock()
        try:
            os.rename(self._fresh, self.directory)
        except OSError:
            if self.moved_to and not os.path.lexists(self.directory):
                os.rename(self.moved_to, self.directory)
            raise
        sync_directory(parent_of(self.directory))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.folder.close()
        self._unlock()
        shutil.rmtree(self._fresh, ignore_errors=True)

    def _refuse_what_is_there(self) -> None:
        if has_journal(self.directory):
            if not self._moves_aside:
                raise OccupiedError(self.directory)
        elif others := sorted(set(os.listdir(self.directory)) - REMAINS):
            raise OSError(errno.ENOTEMPTY, f"{self.directory} is not the directory of a journal: it holds {others[0]}")

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def has_journal(directory: str) -> bool:
    """Whether there are segments in it; False without the directory."""
    try:
        with os.scandir(directory) as entries:
            return any(parse_file_name(entry.name) is not None for entry in entries)
    except FileNotFoundError:
        return False


def is_in_use(directory: str) -> bool:
    """Whether a process owns the journal right now. It takes no lock itself."""
    try:
        fd = os.open(f"{directory}/{LOCK_NAME}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def free_name(path: str) -> str:
    """Return the first of <path>.old-1, .old-2 … that is not there."""
    number = 1
    while os.path.lexists(f"{path}{ASIDE_SUFFIX}{number}"):
        number += 1
    return f"{path}{ASIDE_SUFFIX}{number}"
