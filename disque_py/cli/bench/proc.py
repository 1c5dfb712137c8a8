"""CPU time and memory of a server with all its children, from /proc.

A process's line in /proc/<pid>/stat has its CPU time and that of children that have ended. Running children have their
own lines. The sum over the tree is the cost of the server. The kernel usually counts in ticks of 10 ms. Linux also has
a clock for each process, which counts nanoseconds; where it can be read, it replaces the process's own ticks. Without
/proc (not Linux) there are no figures.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Stat:
    """One process: its parent, its CPU time in ticks, that of its children that have ended, resident pages."""

    parent: int
    ticks: int
    ended_ticks: int
    pages: int


def parse_stat(text: str) -> Stat:
    """Return the fields of a line of /proc/<pid>/stat. Raises ValueError for any other text.

    The second field is the program's name in parentheses. The name itself may contain spaces and parentheses.
    """
    fields = text.rpartition(")")[2].split()
    if len(fields) < 22:
        raise ValueError(f"{text!r} is not a line of /proc/<pid>/stat")
    # In the numbering of proc(5), ppid is 4, utime, stime, cutime and cstime are 14 to 17, rss is 24. This list begins
    # at 3.
    user, system, ended_user, ended_system = map(int, fields[11:15])
    return Stat(int(fields[1]), user + system, ended_user + ended_system, int(fields[21]))


def family(stats: Mapping[int, Stat], roots: Collection[int]) -> set[int]:
    """Return the processes that are roots or descend from one."""
    found = {pid for pid in roots if pid in stats}
    waiting = list(found)
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def all_stats() -> dict[int, Stat]:
    """Return all processes of the system; empty without /proc."""
    found: dict[int, Stat] = {}
    if not PROC.is_dir():
        return found
    for name in os.listdir(PROC):
        if name.isdigit():
            try:
                found[int(name)] = parse_stat((PROC / name / "stat").read_text(errors="replace"))
            except (OSError, ValueError):
                continue  # It has ended meanwhile.
    return found


def cpu_seconds(roots: Collection[int]) -> float | None:
    """Return the CPU seconds that the trees of these processes have used; None if no process can be seen."""
    return _total(roots, lambda pid, stat: own_cpu_seconds(pid, stat) + stat.ended_ticks / TICKS_PER_S)


def own_cpu_seconds(pid: int, stat: Stat) -> float:
    """Return the CPU time of a process without its children, from its clock if that can be read.

    The clock's number is derived from the process id, as clock_getcpuclockid(3) does.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return stat.ticks / TICKS_PER_S


def resident_bytes(roots: Collection[int]) -> float | None:
    """Return the resident bytes of the trees of these processes; None if no process can be seen."""
    return _total(roots, lambda _, stat: float(stat.pages * PAGE_BYTES))


def _total(roots: Collection[int], value: Callable[[int, Stat], float]) -> float | None:
    stats = all_stats()
    members = family(stats, roots)
    return sum(value(pid, stats[pid]) for pid in members) if members else None


def memory_available() -> int:
    """Return the bytes of memory that new programs can use without swapping; 1 GiB if that is unknown."""
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return 1 << 30
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 1 << 30)


def machine() -> dict[str, str]:
    """Return facts about this machine that figures depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "time": time.strftime("%Y-%m-%d %H:%M %Z"),
        "processor": _processor(),
        "cores": str(cores),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * PAGE_BYTES / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "load at the start": f"{os.getloadavg()[0]:.2f}",
    }


def _processor() -> str:
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
