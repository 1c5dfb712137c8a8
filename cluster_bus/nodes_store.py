"""The nodes file on disk: one owner at a time, and never half written.

A save writes a new file, syncs it, renames it over the old one and syncs the directory. So after a power cut either the
old or the new table is there (spec Q36: rewriting in place bricked nodes). An advisory lock on `<path>.lock` is held as
long as the process lives, because two nodes with one id would ruin each other's jobs. The lock is a separate file,
because a rename would leave a lock on the old file behind.

Between two saves, `write` puts a newer text beside the file, without any sync. That text survives the end of the
process, but perhaps not a power failure. It names the texts that it is newer than (`follows`, their crc32). A start
uses it only if the file has one of these texts. So it never overrules a file that an operator moved away or replaced.

Synchronous: a save takes two syncs, so a caller with an event loop runs it in an executor. A write takes none.
"""

# Stays Python: files.
from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Sequence


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
        """Return the text, None if there is no file. Bytes that are no text become surrogates: `parse` refuses them."""
        try:
            with open(self.path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def load_latest(self, text: str) -> str | None:
        """Return the text written after the file had this one; None if there is none or it did not survive. OSError."""
        try:
            with open(f"{self.path}.latest", encoding="utf-8", errors="surrogateescape", newline="") as file:
                first, _, latest = file.read().partition("\n")
        except FileNotFoundError:
            return None
        words = first.split()
        return latest if words[:1] == ["follows"] and f"{crc_of(text):08x}" in words else None

    def write(self, text: str, follows: Sequence[int]) -> None:
        """Put a text beside the file, newer than those with these crc_of. It survives the process's end. OSError."""
        new_path = f"{self.path}.latest.new"
        head = " ".join(["follows", *(f"{crc:08x}" for crc in follows)])
        fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with open(fd, "wb") as file:
            file.write(f"{head}\n{text}".encode())
        os.replace(new_path, f"{self.path}.latest")

    def save(self, text: str) -> None:
        """Replace the file. When this returns, the new text is on disk."""
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


def crc_of(text: str) -> int:
    """Return the checksum by which a later text names this one."""
    return zlib.crc32(text.encode(errors="surrogateescape"))
