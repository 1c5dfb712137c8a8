"""FileWindow: the beginning of a real file as memory.

Bytes that are copied into it are in the system's cache, so the death of the process loses none of them. The copy is no
system call, so it doesn't wait for a disk. That needs preparation, which may wait and runs in a lane:

* Blocks are allocated and zeros written, many at a time. So the file has its room before the loop copies into it, and a
  full disk is an error of that call and never a SIGBUS. This extends the file: zeros follow its content.
* Pages are *populated*, made present and writable (MADV_POPULATE_WRITE, Linux 5.14), so that the copy finds them. The
  system protects pages again when it has written them to disk. Then the first copy into each page is a fault, about a
  microsecond, in which a file system may wait for its own journal. So pages that were not touched for long are
  populated again, and a sync takes only pages that the loop has left: `Pages` (pages.py) says which and when.

Both work on file systems that write in place, those of IN_PLACE. A file system that writes each page to a new place
(Btrfs, ZFS) needs room for that whenever a page is changed again. On a full disk the copy would be a SIGBUS there. A
file system behind a network or a program (NFS, FUSE) may wait for minutes.

ctypes gives up the interpreter's lock for the call, which the methods of Python's mmap don't. Where any of this is
missing there is no window, and writes go through a lane, as everywhere else.

If another program cuts a file that a running server writes, the next copy is a SIGBUS: the end of the process.
"""

# Stays Python: memory maps of files.
from __future__ import annotations

import mmap
import os
import sys
from typing import Final

try:
    import ctypes
except ImportError:  # A Python that was built without libffi.
    ctypes = None  # type: ignore[assignment]  # checked before it is used

MADV_DONTNEED: Final = 4
MADV_POPULATE_WRITE: Final = 23
MS_SYNC: Final = 4
# Numbers of statfs(2): ext2 to ext4, XFS, tmpfs, and containers' overlays, which are mostly on one of these.
IN_PLACE: Final = frozenset({0xEF53, 0x58465342, 0x01021994, 0x794C7630})
# Those of ext4 and its predecessors, and of XFS: they sync each write on which RWF_DSYNC is set.
SYNCED_WRITES: Final = frozenset({0xEF53, 0x58465342})
# Longer than the structure of any system; the type of the file system comes first.
_STATFS_BYTES: Final = 512
ZEROS_BYTES: Final = 1024 * 1024
ZEROS_MAX: Final = 256  # So many pieces of zeros in one call, at most.
_ZEROS: Final = bytes(ZEROS_BYTES)


class FileWindow:
    """A Window on a file; OSError if the system offers none.

    size       how many bytes of the file it shows; those behind `allocated` must not be touched
    allocated  the file's length, all of it with blocks
    """

    __slots__ = ("_address", "_libc", "_memory", "allocated", "size")

    def __init__(self, fd: int, size: int) -> None:
        if ctypes is None or sys.platform != "linux":
            raise NotImplementedSystemError
        self._libc = ctypes.CDLL(None, use_errno=True)
        if file_system(fd) not in IN_PLACE:
            raise NotImplementedSystemError
        length = os.fstat(fd).st_size
        page = mmap.PAGESIZE
        self.size = -(-size // page) * page
        self.allocated = length
        # Python maps nothing behind the end of a file.
        os.ftruncate(fd, max(length, self.size))
        try:
            self._memory = mmap.mmap(fd, self.size)
        finally:
            os.ftruncate(fd, length)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for name in ("madvise", "msync"):
            call = getattr(self._libc, name)
            call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
            call.restype = ctypes.c_int

    def put(self, offset: int, data: bytes) -> None:
        """In the loop: copy into bytes that were prepared."""
        self._memory[offset : offset + len(data)] = data

    def prepare(self, fd: int, start: int, end: int) -> None:
        """In a lane: give bytes `start` to `end` blocks, and make them writable without waiting; OSError."""
        end = min(end, self.size)
        grown = max(self.allocated, os.fstat(fd).st_size)  # Bytes that a lane wrote meanwhile must stay.
        if end > grown:
            os.posix_fallocate(fd, grown, end - grown)
            # Page after page would cost five times as much as in one go. Each further call is a wait for the
            # interpreter's lock, in which the loop wakes this thread in vain, so there is only one as a rule.
            at = grown
            while at < end:
                whole, rest = divmod(end - at, ZEROS_BYTES)
                zeros = [memoryview(_ZEROS)] * min(whole, ZEROS_MAX)
                if rest and whole < ZEROS_MAX:
                    zeros.append(memoryview(_ZEROS)[:rest])
                if not (written := os.pwritev(fd, zeros, at)):
                    raise OSError("the system takes no more bytes and gives no reason")
                at += written
            self.allocated = end
        self._call("madvise", start, end, MADV_POPULATE_WRITE)

    def sync(self, start: int, end: int) -> None:
        """In a lane: make these bytes survive a power cut; bytes behind them are left alone. OSError."""
        whole = end - end % mmap.PAGESIZE
        if start < whole:
            # Nothing is written there any more. The bytes stay in the system's cache. But the memory of this process
            # looks smaller, and the system need not protect page after page.
            self._call("madvise", start, whole, MADV_DONTNEED)
        self._call("msync", start, end, MS_SYNC)

    def _call(self, name: str, start: int, end: int, how: int) -> None:
        page = mmap.PAGESIZE
        start -= start % page
        if getattr(self._libc, name)(self._address + start, -(-end // page) * page - start, how):
            errno = ctypes.get_errno()
            raise OSError(errno, os.strerror(errno))


def file_system(fd: int) -> int:
    """Return the number of the file system that a file is on, as in statfs(2); 0 if it is not known."""
    if ctypes is None or sys.platform != "linux":
        return 0
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).fstatfs(fd, found):
        return 0
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def may_write_synced(fd: int) -> bool:
    """Return whether a write to this file may be a sync as well (RWF_DSYNC).

    Other file systems than those of SYNCED_WRITES may ignore that flag, which no error would tell.
    """
    return hasattr(os, "RWF_DSYNC") and file_system(fd) in SYNCED_WRITES


class NotImplementedSystemError(OSError):
    """An error: this system has no such windows."""

    def __init__(self) -> None:
        super().__init__("no files as memory on this system, or on this file system")
