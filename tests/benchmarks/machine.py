"""The machine of a run, and its current speed.

Calibration is a loop of typical operations of a broker in CPython (tuples, dict entries, lookups), timed like
everything else. A figure divided by the calibration is a ratio that changes little between machines, hours and CPU
frequencies. Compare two versions of the program by these ratios, not by nanoseconds.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from time import process_time_ns

from disque_py.server import process

ROOT = Path(__file__).resolve().parents[2]
CALIBRATION_STEPS = 300
CALIBRATION_ROUNDS = 400
LIBRARIES = ("uvloop", "hiredis", "msgpack")


def calibration_ns() -> float:
    """Return the CPU time of one step of the calibration loop."""
    before_ns = process_time_ns()
    entries: dict[int, tuple[int, int]] = {}
    for number in range(CALIBRATION_STEPS):
        entries[number] = (number, number + 1)
        entries.get(number)
    return (process_time_ns() - before_ns) / CALIBRATION_STEPS


def settled_calibration_ns() -> float:
    """Return the CPU time of one step, as the median of many runs."""
    return statistics.median(calibration_ns() for _ in range(CALIBRATION_ROUNDS))


def described() -> dict[str, str | int | float | None]:
    """Return processor, memory, versions, calibration and load."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()} ({process.BUILD})",
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
        "redis_benchmark": _redis_benchmark(),
        "revision": _revision(),
        "calibration_ns": round(settled_calibration_ns(), 1),
        "load": round(os.getloadavg()[0], 2),
    }


def in_words(machine: dict[str, str | int | float | None]) -> str:
    """Return the facts that `described` found, in two lines."""
    libraries = ", ".join(f"{name} {machine[name]}" for name in LIBRARIES)
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB; {machine['system']}; "
        f"{machine['python']}, {libraries}, redis-benchmark {machine['redis_benchmark'] or 'not installed'}; "
        f"revision {machine['revision'] or 'unknown'}; calibration {machine['calibration_ns']} ns per step, "
        f"load {machine['load']} at the start"
    )


def is_busy(machine: dict[str, str | int | float | None]) -> bool:
    """Return whether other processes were using the machine when the run began."""
    return float(machine["load"] or 0) > 0.5


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def _redis_benchmark() -> str | None:
    if shutil.which("redis-benchmark") is None:
        return None
    return _said("redis-benchmark", "--version").removeprefix("redis-benchmark ").split(" ")[0] or None


def _revision() -> str | None:
    """Return the commit, with a + if files differ from it."""
    commit = _said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    changed = commit and _said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if changed else "") or None


def _said(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
