"""CPU time of this process's children and grandchildren by group: nodes, the JVM, Python workers.

On a machine with other work, a rate means little. The cost of an event or a job, summed over all processes that worked
on it, shows how many of them two free cores could handle. The figures come from /proc, so this needs Linux. Children
that have ended are not counted.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
NODES, JVM, WORKERS, HERE = "nodes", "JVM", "Python workers", "this process"


def cpu_seconds() -> dict[int, tuple[str, float]]:
    """Return for each process its group and its CPU seconds so far."""
    found: dict[int, tuple[int, float, str]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            words = (entry / "cmdline").read_text().replace("\0", " ")
        except (OSError, IndexError):
            continue  # The process has ended meanwhile.
        found[int(entry.name)] = (int(status[1]), (int(status[11]) + int(status[12])) / TICKS, words)
    return {pid: (_group_of(pid, words), spent) for pid, (_, spent, words) in found.items() if _is_ours(pid, found)}


def _is_ours(pid: int, found: dict[int, tuple[int, float, str]]) -> bool:
    while pid in found:
        if pid == os.getpid():
            return True
        pid = found[pid][0]
    return False


def _group_of(pid: int, words: str) -> str:
    if pid == os.getpid():
        return HERE
    if "disque_py.server" in words:
        return NODES
    return JVM if words.split(" ")[0].endswith("java") else WORKERS


def micros_each(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], count: int
) -> dict[str, float]:
    """Return the CPU microseconds per item by group, for processes that still exist at the end."""
    spent = dict.fromkeys((NODES, JVM, WORKERS, HERE), 0.0)
    for pid, (group, seconds) in after.items():
        spent[group] += (seconds - before.get(pid, (group, 0.0))[1]) * 1e6 / max(1, count)
    return spent
