"""Pages: where in a window (disk.py) the loop may write, and what the disk has to prepare for that.

The loop copies to the end of a file without ever waiting for the disk. Two things would make it wait:

* A page that isn't there, or that the system is writing to the disk. So the loop writes only bytes that were *prepared*
  a moment ago: up to `limit`, and no later than FRESH_MS after they were last made ready. All other writes go through a
  lane of the disk. About as many bytes are ready as a second needs, so a quiet file takes little room and a busy one
  never waits.
* A sync, which holds the pages it writes while it lasts. So a sync gets all pages up to the one that is being written.
  The loop continues behind it, at the beginning of the next page, and a *gap* stays in the file. If nothing was written
  meanwhile, the loop goes back to where it was, and there is no gap. So a quiet file has hardly any gaps.

The rule for readers: a length is never zero. If the four bytes of a length are zero, the next block begins at
`behind_gap`.
"""

from __future__ import annotations

from typing import Final

from persistence.disk import Folder, Window

PAGE_BYTES: Final = 4096
# Readers look at this many bytes to see that there is a gap.
GAP_BYTES_MIN: Final = 4

# The bytes that are ready: twice those of the last second, within these bounds. Few large steps cost less than many
# small ones. The upper bound exists because the loop waits for a step (`Disk.wait`), and because ready bytes are memory
# of the process.
READY_BYTES_MIN: Final = 64 * 1024
READY_BYTES_MAX: Final = 1024 * 1024

# The last block of a file may begin before the file is full and end behind that. The window has room for it: size / 8.
WINDOW_SLACK: Final = 8

# Linux writes pages that have been changed to disk after thirty seconds.
FRESH_MS: Final = 5_000


def behind_gap(offset: int) -> int:
    """Return the start of the next block if there is a gap at this offset of a file."""
    return -(-(offset + GAP_BYTES_MIN) // PAGE_BYTES) * PAGE_BYTES


class Pages:
    """The part of a window that may be written. The owner knows where the next bytes go (`at`).

    window    the file's memory
    limit     bytes before it are ready
    ready_ms  when they were last made ready
    wanted    bytes that should be ready; a busy writer's next file begins with the value that the last one reached
    """

    __slots__ = ("_left_at", "limit", "ready_ms", "wanted", "window")

    def __init__(self, window: Window, at: int, limit: int, now_ms: int, wanted: int = READY_BYTES_MIN) -> None:
        self.window = window
        self.limit = limit
        self.ready_ms = now_ms
        self.wanted = wanted
        self._left_at = at

    def has_room(self, at: int, size: int, now_ms: int) -> bool:
        """Whether `size` bytes can be put at `at` now."""
        return at + size <= self.limit and now_ms - self.ready_ms < FRESH_MS

    def is_short(self, at: int) -> bool:
        """Whether more bytes should be made ready soon."""
        return self.limit - at < self.wanted // 2 and self.limit < self.window.size

    def to_prepare(self, at: int, size: int, now_ms: int) -> tuple[int, int]:
        """Return (start, end) of the bytes to be made ready next, so that there is room for `size` bytes."""
        is_fresh = now_ms - self.ready_ms < FRESH_MS
        start = self.limit if is_fresh else min(self.limit, at)
        end = max(self.limit, at + max(size, self.wanted))
        return start - start % PAGE_BYTES, min(-(-end // PAGE_BYTES) * PAGE_BYTES, self.window.size)

    def prepared(self, at: int, start: int, end: int, now_ms: int) -> None:
        """Note that `start` to `end` are ready; the work was begun at `now_ms`."""
        if start <= at:
            self.ready_ms = now_ms
        self.limit = max(self.limit, end)
        self.wanted = min(2 * self.wanted, READY_BYTES_MAX)  # Many small steps cost more than few large ones.

    def leave(self, at: int) -> tuple[int, tuple[int, int]]:
        """Begin a sync of all up to `at`: return where to continue, and (start, end) of the bytes it takes away."""
        self.wanted = min(max(2 * (at - self._left_at), READY_BYTES_MIN), READY_BYTES_MAX)
        start = at - at % PAGE_BYTES
        if start < at:
            at = behind_gap(at)
        self._left_at = at
        self.limit = min(self.limit, -(-(at + self.wanted) // PAGE_BYTES) * PAGE_BYTES)
        return at, (start, self.limit)

    def pass_by(self, at: int) -> tuple[int, int]:
        """Begin a sync of the bytes before the page of `at`, or up to `at` while nothing is put. The next byte stays.

        Return (start, end) of the bytes that should be made ready once more afterwards.
        """
        self.wanted = min(max(2 * (at - self._left_at), READY_BYTES_MIN), READY_BYTES_MAX)
        self._left_at = at
        start = at - at % PAGE_BYTES
        return start, max(start, self.limit)  # A thread may have written behind all that was ready.

    def come_back(self, at: int, end: int, now_ms: int) -> int:
        """End that sync: all is ready again since `now_ms`. Return where to continue; `end` is behind the last byte."""
        self.ready_ms = now_ms
        if at == self._left_at:
            self._left_at = at = end
        return at


# -- in a lane of the disk ------------------------------------------------------------------------------


def map_pages(folder: Folder, name: str, size: int, ready: int) -> Window | None:
    """Return a window on a file of about `size` bytes, `ready` of which lie ready; None if there are no windows."""
    try:
        window = folder.map(name, size + size // WINDOW_SLACK)
        if window is not None:
            folder.prepare(name, window, 0, min(ready, window.size))
        return window
    except OSError:
        return None


def sync_pages(folder: Folder, name: str, window: Window, part: tuple[int, int], again: tuple[int, int]) -> bool:
    """Sync a part of the file and make another ready once more (`leave`, `pass_by`); False if that failed. OSError."""
    folder.sync_window(name, window, *part)
    try:
        folder.prepare(name, window, *again)
    except OSError:
        return False
    return True
