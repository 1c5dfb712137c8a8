"""Nodes for benchmarks: the nodes of the integration tests, with measurements of their processes.

The nodes use a scratch folder and free loopback ports. They end with the benchmark: in an orderly way when it ends,
fails or is interrupted, and (on Linux) through the kernel when it is killed. `maxmemory` keeps all of them together
within the plan's share of memory; with the default of 1 GB the larger benchmarks would measure -OOM. They keep no log
of events. The benchmark events.py measures its cost, and `--directive events=yes` adds it to other benchmarks.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))  # For servers.py.

from disque_py.cli.bench.processes import WITH_PARENT
from plan import Plan, memory_allowed
from servers import Cluster, Server, Word, until

__all__ = ["Node", "NodeCluster", "cpu_s", "options_for", "started", "until"]


class Node(Server):
    """One node. `with_parent` says whether the system ends it with this process."""

    with_parent = sys.platform == "linux"

    @property
    def words(self) -> list[str]:
        words = super().words
        return [sys.executable, "-c", WITH_PARENT, str(os.getpid()), *words] if self.with_parent else words

    def cpu_s(self) -> float:
        """Return the CPU time so far, in seconds."""
        return cpu_s(self.pid)

    def rss_bytes(self) -> int:
        """Return the resident memory, as INFO shows it."""
        return int(self.info("memory")["used_memory_rss"])

    def used_memory(self) -> int:
        """Return the accounted memory, to which maxmemory applies."""
        return int(self.info("memory")["used_memory"])

    def registered_jobs(self) -> int:
        """Return the number of its jobs in all states."""
        return int(self.info("jobs")["registered_jobs"])


class NodeCluster(Cluster):
    """Several nodes: the base class with the nodes of this module."""

    node_class: type[Node] = Node

    def __init__(self, folder: Path, count: int, options: Sequence[Word]) -> None:
        super().__init__(folder, 0)
        self.nodes = [self.node_class(folder / f"node-{number}", None, options) for number in range(1, count + 1)]
        self.servers += self.nodes


@contextmanager
def started(plan: Plan, count: int = 1) -> Iterator[list[Node]]:
    """Run nodes that know each other for the time of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="disque-benchmark.") as folder:
        cluster = NodeCluster(Path(folder), count, options_for(plan, count))
        with cluster:
            yield cluster.nodes


def options_for(plan: Plan, count: int) -> list[Word]:
    """Return the command line options of each node."""
    return ["--maxmemory", memory_allowed() // count, "--events", "no", *plan.directives]


def cpu_s(pid: int) -> float:
    """Return the CPU time of one of our processes so far, in seconds.

    Linux has a clock per process, with nanoseconds. Its number is made from the pid as in clock_getcpuclockid(3).
    """
    return time.clock_gettime((~pid << 3) | 2)
