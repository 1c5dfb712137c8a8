"""Huge pages: a large node's memory moves to pages of 2 MiB, so that its processor finds addresses faster.

With millions of jobs, nearly every access goes to a page whose address the processor has forgotten. It then reads the
page tables, which are in main memory, too, and on a virtual machine there are two of them. A huge page needs one entry
where 512 small pages need 512. The system makes huge pages only for memory that is first used in large pieces. The
interpreter asks for memory in pieces of 1 MiB, so it never gets any.

So with `huge-pages yes`, and from RESIDENT_MIN on, a thread asks the system to move ranges to huge pages (madvise with
MADV_COLLAPSE, Linux 6.1).
Only ranges whose pages are nearly all in use are moved, so the process hardly grows. While the system copies a range,
which takes half a millisecond, the node may have to wait for memory. After each range the thread rests REST_FACTOR
times as long as it worked, so it takes a tenth of a core at most, and as long as the move took, if it had to wait.

`look` is called by the loop, the rest is done in the thread, which ends when it has visited all memory. Errors are
harmless: the memory remains as it was. If the system has no such pages, or the operator switched them off for the whole
machine, one line of the log says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from disque_py.server.log import tell
from disque_py.server.process import rss_bytes

if TYPE_CHECKING:
    from disque_py.config.settings import Settings

LOOK_SECONDS: Final = 10.0

HUGE_BYTES: Final = 2 << 20
# Below this, caches hide most of the cost. A node with 400,000 jobs of 100 bytes has about as much.
RESIDENT_MIN: Final = 256 << 20
# Memory is visited again after it has grown by this much, or after this time, because it may have been exchanged.
GROWTH_BYTES: Final = 32 << 20
AGAIN_SECONDS: Final = 120.0
# The rest after a move is so many times its CPU time. Of the other ranges, every sixteenth is followed by REST_S.
REST_FACTOR: Final = 9
REST_S: Final = 0.005
LOOKS_PER_REST: Final = 16
# The unused pages that a moved range may have: 1.6 %. The interpreter divides 1 MiB into pools of 16 KiB. If that MiB
# does not begin at a multiple of 16 KiB, four of its small pages are never used.
UNUSED_MAX: Final = 8
# A range that is moved already takes a few microseconds. A move copies 2 MiB.
MOVE_S: Final = 0.000_05
# After so many refusals in a row for lack of memory, the thread ends. The next one tries again.
SHORTAGES_MAX: Final = 8

_POLICY_FILE: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SIZE_FILE: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_MAPS_FILE: Final = Path("/proc/self/maps")
_MADV_COLLAPSE: Final = 25
_FOUND: Final = b"\x01"  # A page that is in memory, in the result of mincore.
# The system never learned this request, does not permit it, or has no huge pages.
_NEVER: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EACCES))


class Memory(Protocol):
    """The needs of this module: the process's memory, as the system shows it."""

    def obstacle(self) -> str:
        """Return the reason why there are no huge pages; empty if there is none."""

    def ranges(self) -> Iterator[int]:
        """Yield the addresses of all ranges of HUGE_BYTES that could be huge pages."""

    def is_used(self, address: int) -> bool:
        """Return whether nearly all pages of the range are in memory."""

    def move(self, address: int) -> int:
        """Move the range to a huge page. Return 0, also if it was one; else the number of the system's error."""


class LinuxMemory:
    """The memory of this process on Linux."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._madvise, self._mincore = library.madvise, library.mincore
        self._madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
        self._found = ctypes.create_string_buffer(HUGE_BYTES // os.sysconf("SC_PAGE_SIZE"))

    def obstacle(self) -> str:
        """Return the reason why there are no huge pages; empty if there is none."""
        try:
            policy, size = _POLICY_FILE.read_text(), int(_SIZE_FILE.read_text())
        except (OSError, ValueError):
            return "the system has none"
        if "[never]" in policy:
            return f"{_POLICY_FILE} is never"
        return "" if size == HUGE_BYTES else f"their size is {size}"

    def ranges(self) -> Iterator[int]:
        """Yield the addresses of all ranges of the process's own memory."""
        for line in _MAPS_FILE.read_text(errors="replace").splitlines():
            span, access, _, _, inode, *name = line.split(maxsplit=5)
            if access != "rw-p" or inode != "0" or (name and name[0] != "[heap]"):
                continue
            start, end = (int(text, 16) for text in span.split("-"))
            yield from range(-(-start // HUGE_BYTES) * HUGE_BYTES, end - HUGE_BYTES + 1, HUGE_BYTES)

    def is_used(self, address: int) -> bool:
        """Return whether nearly all pages of the range are in memory."""
        if self._mincore(address, HUGE_BYTES, self._found):
            return False
        return self._found.raw.count(_FOUND) >= len(self._found) - UNUSED_MAX

    def move(self, address: int) -> int:
        """Move the range to a huge page. Return 0, also if it was one; else the number of the system's error."""
        return ctypes.get_errno() if self._madvise(address, HUGE_BYTES, _MADV_COLLAPSE) else 0


class HugePages:
    """The huge pages of one process. The loop calls `look` every LOOK_SECONDS."""

    def __init__(self, settings: Settings, memory: Memory | None = None) -> None:
        self._settings = settings
        self._memory = memory
        self._thread: threading.Thread | None = None
        self._is_possible = True
        self._obstacle = ""
        self._visited_bytes = 0
        self._visited_s = 0.0
        self._moved = 0

    def look(self) -> None:
        """Start a visit to all memory, if the node is large and its memory has changed."""
        if not self._is_possible or not self._settings.huge_pages or (self._thread and self._thread.is_alive()):
            return
        self._tell()
        resident_bytes, now_s = rss_bytes(), time.monotonic()
        if not self._is_possible or resident_bytes < RESIDENT_MIN:
            return
        if resident_bytes < self._visited_bytes + GROWTH_BYTES and now_s < self._visited_s + AGAIN_SECONDS:
            self._visited_bytes = min(self._visited_bytes, resident_bytes)
            return
        self._visited_bytes, self._visited_s = resident_bytes, now_s
        self._thread = threading.Thread(target=self.visit, name="huge-pages", daemon=True)
        self._thread.start()

    def visit(self) -> None:
        """Move all ranges that are in use. Runs in the thread."""
        try:
            memory = self._memory or LinuxMemory()
            self._obstacle = memory.obstacle()
            if not self._obstacle:
                self._memory = memory
                self._move_all(memory)
        except (OSError, AttributeError, ValueError) as error:
            self._obstacle = str(error)  # Another system: its C library has no such function, or it has no /proc.

    def _move_all(self, memory: Memory) -> None:
        looks = successes = shortages = 0
        refusal = 0
        for address in memory.ranges():
            if not self._settings.huge_pages or shortages >= SHORTAGES_MAX:
                break
            looks += 1
            if looks % LOOKS_PER_REST == 0:
                time.sleep(REST_S)
            if not memory.is_used(address):
                continue
            start_s, start_cpu_s = time.perf_counter(), time.thread_time()
            error = memory.move(address)
            spent_s, cpu_s = time.perf_counter() - start_s, time.thread_time() - start_cpu_s
            if error in _NEVER:
                refusal = error
            elif error:
                shortages += 1
            else:
                shortages = 0
                successes += 1
                self._moved += spent_s > MOVE_S
            if spent_s > MOVE_S:
                time.sleep(max(spent_s, cpu_s * REST_FACTOR))
        if refusal and not successes:
            self._obstacle = os.strerror(refusal)

    def _tell(self) -> None:
        """Log the outcome of the last visit. The log belongs to the loop."""
        if self._obstacle:
            self._is_possible = False
            tell("huge-pages-missing", reason=self._obstacle)
        elif self._moved:
            tell("huge-pages", moved=self._moved)
            self._moved = 0
