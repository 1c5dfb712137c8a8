"""Nodes for benchmarks: those of the integration tests, with what is measured about their processes.

They live in a scratch folder, listen on free loopback ports, and end with the benchmark: in order when it ends, fails
or is interrupted, and (on Linux) by the kernel's hand when it is killed. `maxmemory` keeps all of them together within
the plan's share of memory; the default, 1 GB, would make the larger benchmarks measure -OOM. They keep no log of
events: what that costs is a benchmark of its own (events.py), and `--directive events=yes` measures others with it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))  # Where servers.py lies.

from disque_py.cli.bench.processes import WITH_PARENT
from plan import Plan, memory_allowed
from servers import Cluster, Server, Word, until

__all__ = ["Node", "NodeCluster", "cpu_s", "options_for", "started", "until"]


class Node(Server):
    """One node; `with_parent` says whether the system can end it with us."""

    with_parent = sys.platform == "linux"

    @property
    def words(self) -> list[str]:
        words = super().words
        return [sys.executable, "-c", WITH_PARENT, str(os.getpid()), *words] if self.with_parent else words

    def cpu_s(self) -> float:
        """CPU time it used so far, in seconds."""
        return cpu_s(self.pid)

    def rss_bytes(self) -> int:
        """Resident memory, as INFO shows it."""
        return int(self.info("memory")["used_memory_rss"])

    def used_memory(self) -> int:
        """The accounted memory, which maxmemory applies to."""
        return int(self.info("memory")["used_memory"])

    def registered_jobs(self) -> int:
        """Jobs it holds, in whatever state."""
        return int(self.info("jobs")["registered_jobs"])


class NodeCluster(Cluster):
    """Several of them; as its base, but the nodes are ours."""

    node_class: type[Node] = Node

    def __init__(self, folder: Path, count: int, options: Sequence[Word]) -> None:
        super().__init__(folder, 0)
        self.nodes = [self.node_class(folder / f"node-{number}", None, options) for number in range(1, count + 1)]
        self.servers += self.nodes


@contextmanager
def started(plan: Plan, count: int = 1) -> Iterator[list[Node]]:
    """Nodes that know each other, for the time of a `with`."""
    with tempfile.TemporaryDirectory(prefix="disque-benchmark.") as folder:
        cluster = NodeCluster(Path(folder), count, options_for(plan, count))
        with cluster:
            yield cluster.nodes


def options_for(plan: Plan, count: int) -> list[Word]:
    """Return the command line options of each of so many nodes."""
    return ["--maxmemory", memory_allowed() // count, "--events", "no", *plan.directives]


def cpu_s(pid: int) -> float:
    """CPU time that a process of ours used so far, in seconds.

    Linux has a clock per process, to the nanosecond; its number is made from the pid as clock_getcpuclockid(3) does.
    """
    return time.clock_gettime((~pid << 3) | 2)
