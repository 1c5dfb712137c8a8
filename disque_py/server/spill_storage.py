"""Spill storage: the directory for spilled bodies beside the journal's, and the threads that work on it.

The directory is made, and the threads are started, when `maxmemory-spill` is switched on for the first time. They stay
until the node ends, because bodies on disk have to be read even if no more are written (storage/spill_service.py). The
directory has one owner, like the journal's (persistence/files.py).

A body that leaves memory leaves a hole in the heap. The C library keeps such holes unless they are at the heap's end.
So a thread asks it to return them to the system. Meanwhile no other thread can allocate, for 0.1 ms per MiB returned,
as measured. So the thread asks often, and returns little at a time.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Final

from disque_py.server.log import write
from disque_py.server.process import rss_bytes
from disque_py.storage.spill_service import SpillService
from persistence.disk import SYNCING, Folder
from persistence.file_disk import FileDisk
from persistence.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.config.settings import Settings
    from disque_py.server.turn_loop import TurnLoop

# At the end, removing the files may take this long. The next start removes the rest.
CLOSE_SECONDS: Final = 2.0
# Seconds between two checks, and the bytes that must have become free since the last time for memory to be returned.
TRIM_SECONDS: Final = 0.05
TRIM_BYTES: Final = 16 << 20
# The share of accounted memory that is surely resident. Measurements gave 0.85 to 1.1. Memory that is mistaken for
# waste costs one call that finds nothing to return.
RESIDENT_SHARE: Final = 0.8


class Waste:
    """An estimate of the memory that could be returned to the system, without the part that could not be last time."""

    def __init__(self) -> None:
        self._kept = 0

    def is_worth_it(self, resident_bytes: int, used_bytes: int) -> bool:
        """Return whether enough memory has become free since the last time."""
        waste = _waste(resident_bytes, used_bytes)
        self._kept = min(self._kept, waste)
        return waste - self._kept >= TRIM_BYTES

    def given_back(self, resident_bytes: int, used_bytes: int) -> None:
        """Note the waste that is left after memory was returned."""
        self._kept = _waste(resident_bytes, used_bytes)


def _waste(resident_bytes: int, used_bytes: int) -> int:
    return max(0, resident_bytes - int(used_bytes * RESIDENT_SHARE))


class SpillStorage:
    """One node's spill directory. It is not touched before `open` or `switch`."""

    def __init__(self, settings: Settings, turns: TurnLoop) -> None:
        self.directory = spill_directory(settings)
        self._settings = settings
        self._turns = turns
        self._files: Files | None = None
        self._disk: FileDisk | None = None
        self._trim = _trim()
        self._waste = Waste()
        self._is_trimming = False

    @property
    def is_there(self) -> bool:
        """Return whether an earlier process left the directory."""
        return os.path.isdir(self.directory)

    def open(self) -> None:
        """Take the directory, empty it, and let bodies spill if that is wanted. OSError."""
        files = Files(self.directory)
        driver = self._turns.driver
        self._files = files
        self._disk = FileDisk(files, self._turns.loop.call_soon_threadsafe)
        service = SpillService(driver.broker, self._disk, driver.begin, driver.wake, write)
        driver.spill = service
        service.open()
        if self._trim is not None:
            self._turns.loop.call_later(TRIM_SECONDS, self._look)

    def _look(self) -> None:
        """Return memory to the system if that is worth it."""
        disk = self._disk
        if disk is None:
            return
        if not self._is_trimming and self._waste.is_worth_it(rss_bytes(), self._used_bytes()):
            self._is_trimming = True
            disk.start(SYNCING, self._give_back, self._given)
        self._turns.loop.call_later(TRIM_SECONDS, self._look)

    def _used_bytes(self) -> int:
        return self._turns.driver.broker.used_memory

    def _give_back(self, _: Folder) -> None:
        if self._trim is not None:
            self._trim(0)

    def _given(self, _: OSError | None) -> None:
        self._is_trimming = False
        self._waste.given_back(rss_bytes(), self._used_bytes())

    def switch(self) -> None:
        """Apply CONFIG SET maxmemory-spill. OSError."""
        service = self._turns.driver.spill
        if service is not None:
            service.switch()
        elif self._settings.maxmemory_spill:
            self.open()

    def close(self) -> None:
        """Remove the files as far as that is quick, because the node ends."""
        service = self._turns.driver.spill
        if service is not None and self._disk is not None and self._files is not None:
            service.close()
            self._disk.close(CLOSE_SECONDS)
            self._files.close()
            self._disk = self._files = None


def spill_directory(settings: Settings) -> str:
    """Return the directory for spilled bodies. Call this when `dir` is the working directory."""
    return os.path.abspath(settings.appendfilename + ".spill")


def _trim() -> Callable[[int], object] | None:
    """Return the malloc_trim of glibc; None with another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    found: Callable[[int], object] = trim
    return found
