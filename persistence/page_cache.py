"""Page cache: the memory in which the system keeps what was written to a folder's logs.

A log is written once, and nearly everything that is read of it is near its end. But the system keeps all of it, until
memory is short. So each page of a growing log is memory that was not used for long. Such memory is slow to get: in a
virtual machine, a page may cost several microseconds, which is more than all other work for the jobs in it.

So the pages of synced bytes are given back to the system when KEPT_BYTES newer bytes were synced. The next bytes of the
log use the same pages again. Older bytes are read from the disk. This is advice to the system (POSIX_FADV_DONTNEED). An
error changes nothing, and is ignored.
"""

# Stays Python: files.
from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final

# The newest synced bytes of a folder stay in memory: the events of some ten thousand jobs, for those who follow them.
KEPT_BYTES: Final = 16 * 1024 * 1024
# Pages are given back so many bytes at a time: a call for each sync of a few kilobytes would cost more than it saves.
STEP_BYTES: Final = 4 * 1024 * 1024
PAGE_BYTES: Final = 4096
IS_ADVISED: Final = hasattr(os, "posix_fadvise")


class PageCache:
    """The synced bytes of a folder's files that the system may still have in memory. For several threads at once."""

    __slots__ = ("_bytes", "_ends", "_kept_bytes", "_lock", "_parts")

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        # (path, start, end) in the order of their syncs; neighbours are one part.
        self._parts: deque[tuple[str, int, int]] = deque()
        self._bytes = 0
        self._ends: dict[str, int] = {}

    def synced(self, path: str, end: int) -> None:
        """Note that a file is on disk up to `end`, and give pages back if there are many newer ones."""
        if not IS_ADVISED:
            return
        with self._lock:
            start = self._ends.get(path, 0)
            if end <= start:
                return
            self._ends[path] = end
            self._bytes += end - start
            parts = self._parts
            if parts and parts[-1][0] == path and parts[-1][2] == start:
                start = parts.pop()[1]
            parts.append((path, start, end))
            old = self._take_old() if self._bytes >= self._kept_bytes + STEP_BYTES else []
        for part in old:
            _give_back(*part)

    def forget(self, path: str) -> None:
        """Note that this path leads to another file, or to none, from now on."""
        with self._lock:
            if self._ends.pop(path, None) is None:
                return
            self._parts = deque(part for part in self._parts if part[0] != path)
            self._bytes = sum(end - start for _, start, end in self._parts)

    def _take_old(self) -> list[tuple[str, int, int]]:
        """Remove the oldest bytes, so that `kept_bytes` are left, and return them. They end at the end of a page."""
        old: list[tuple[str, int, int]] = []
        parts = self._parts
        while (surplus := self._bytes - self._kept_bytes) > 0:
            path, start, end = parts.popleft()
            if end - start > surplus:
                cut = (start + surplus) // PAGE_BYTES * PAGE_BYTES
                parts.appendleft((path, max(start, cut), end))
                end = cut
            if end <= start:
                break
            self._bytes -= end - start
            old.append((path, start, end))
        return old


def _give_back(path: str, start: int, end: int) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        start -= start % PAGE_BYTES
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass
    finally:
        os.close(fd)
