"""The nodes file on disk: one owner at a time, and never half written.

A save writes a new file, syncs it, renames it over the old one and syncs the directory, so after
a power cut either the old or the new table is there (Q36: rewriting in place bricked nodes). An
advisory lock on `<path>.lock` is held as long as the process lives, for two nodes with one id would
ruin each other's jobs; it is a file of its own because a rename would leave a lock on the old one behind.

Synchronous: a save takes two syncs, so a caller with an event loop runs it in an executor.
"""

from __future__ import annotations

import fcntl
import os


class NodesFileLockedError(Exception):
    """Another process holds the lock; the text says which file."""


class NodesFileStore:
    """The file at `path`; OSError from the system passes through every method."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock_fd = -1

    def lock(self) -> None:
        """Become the owner until `close` or the end of the process; NodesFileLockedError."""
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise NodesFileLockedError(
                f"{self.path} is in use by another node; every node needs its own cluster-config-file"
            ) from None
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def load(self) -> str | None:
        """The text, None if there is no file. Bytes that are no text survive as surrogates, for parse to refuse."""
        try:
            with open(self.path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def save(self, text: str) -> None:
        """Replace the file; when this returns, the new text is on disk."""
        new_path = f"{self.path}.new"
        fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with open(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(new_path, self.path)
        directory_fd = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory_fd)
        finally:
            os.close(directory_fd)

    def close(self) -> None:
        """Give the lock up."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
