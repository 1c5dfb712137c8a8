"""Checksum: CRC-32 of large blocks, as zlib computes it, by the fastest function on this system.

Every byte of a journal and of a log of events is checked. With zlib that is a third of the instructions that recording
a job costs. libdeflate, which many systems have, uses the processor's own instructions and takes a third of the time. A
call of it costs more, so it is for large blocks only. Without libdeflate zlib does all.
"""

# Stays Python: functions of a system library.
from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Final

try:
    import ctypes
except ImportError:  # A Python that was built without libffi.
    ctypes = None  # type: ignore[assignment]  # checked before it is used

LIBRARY: Final = "libdeflate.so.0"
# From this size on, the library is faster than zlib, with its call.
LARGE_BYTES: Final = 4_096

Checksum = Callable[[bytes, int], int]


def checksum_of(library: str) -> Checksum | None:
    """Return the CRC-32 function of this library; None if there is no such library, or it computes something else."""
    if ctypes is None or sys.platform != "linux":
        return None
    try:
        # PyDLL keeps the interpreter's lock: a megabyte takes less time than another thread needs to get the lock.
        compute = ctypes.PyDLL(library).libdeflate_crc32
    except (OSError, AttributeError):
        return None
    compute.argtypes = (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
    compute.restype = ctypes.c_uint32

    def checksum(data: bytes, value: int) -> int:
        found: int = compute(value, data, len(data))
        return found

    sample = bytes(range(256)) * 3
    return checksum if checksum(sample, 7) == zlib.crc32(sample, 7) else None


crc32_of_large: Final[Checksum] = checksum_of(LIBRARY) or zlib.crc32
