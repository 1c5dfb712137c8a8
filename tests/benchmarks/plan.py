"""Plan: the options of one call of the benchmarks, and its bounds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# A generous estimate of the memory of a job of 100 bytes, for planning (memory.py measures it).
JOB_ROOM_BYTES = 900
# The share of the machine's free memory that all nodes of a benchmark may take together.
MEMORY_SHARE = 0.7


@dataclass(frozen=True)
class Plan:
    """Options of one call.

    is_quick    use small numbers: all benchmarks together take a minute or two, and the figures mean little
    jobs, seconds   replace the benchmark's own numbers
    directives  words for every node's command line
    say         function that shows the progress
    """

    is_quick: bool = False
    jobs: int | None = None
    seconds: float | None = None
    directives: tuple[str, ...] = ()
    say: Callable[[str], None] = print

    def count(self, full: int, quick: int) -> int:
        """Return the number of jobs: the option, or one of the benchmark's own numbers, limited by memory."""
        wanted = self.jobs if self.jobs is not None else quick if self.is_quick else full
        return max(1, min(wanted, int(memory_allowed() / JOB_ROOM_BYTES)))

    def span_s(self, full: float, quick: float) -> float:
        """Return the duration in seconds."""
        if self.seconds is not None:
            return self.seconds
        return quick if self.is_quick else full


def memory_allowed() -> int:
    """Return the bytes that the nodes of a benchmark may use."""
    return int(memory_available() * MEMORY_SHARE)


def memory_available() -> int:
    """Return the bytes that can be used without swapping, on the machine or in its container."""
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    available = int(match[1]) * 1024
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return available
    return min(available, max(0, limit - used))
