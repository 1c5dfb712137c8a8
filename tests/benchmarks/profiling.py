"""Where a node spends its time: python tests/benchmarks/profiling.py [--nodes 3] [--out flames.svg]

With py-spy (pip install py-spy) it samples a real node while jobs go from ADDJOB to ACKJOB. It prints the functions
with the largest share of the samples, or writes a flame graph. Without py-spy, the in-memory benchmark of the core runs
under Python's own profiler, which exaggerates the share of small functions.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import os
import pstats
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from core import CORE
from load import Repeated, packed
from nodes import Node, NodeCluster, options_for
from plan import Plan
from three_nodes import QUEUE, travel

JOBS = 60_000
PIPELINE = 16
SAMPLES_PER_SECOND = 500
LINES = 30
END_SECONDS = 60.0


class SampledNode(Node):
    """A node that py-spy starts, because systems let a process inspect only its own children."""

    sampler: tuple[str, ...] = ()
    node_pid = 0

    @property
    def words(self) -> list[str]:
        self.with_parent = not self.sampler  # py-spy can't follow a program that replaces itself.
        return [*self.sampler, *super().words]

    def finish(self) -> None:
        """Stop the node. Then py-spy writes its file."""
        os.kill(self.node_pid, signal.SIGTERM)
        self.wait_ended(END_SECONDS)

    def close(self) -> None:
        if self.sampler and self.node_pid and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.node_pid, signal.SIGKILL)
        super().close()


class SampledCluster(NodeCluster):
    """A cluster whose first node is sampled."""

    node_class = SampledNode


@contextlib.contextmanager
def sampled(count: int, sampler: tuple[str, ...], folder: Path) -> Iterator[list[SampledNode]]:
    """Run nodes, the first of them under the sampler."""
    cluster = SampledCluster(folder, count, options_for(Plan(), count))
    nodes = [node for node in cluster.nodes if isinstance(node, SampledNode)]
    nodes[0].sampler = sampler
    with cluster:
        nodes[0].node_pid = int(nodes[0].info("server")["process_id"])
        yield nodes


def sample(program: str, node_count: int, jobs: int, out: Path | None) -> Counter[tuple[str, ...]]:
    """Let jobs travel, and return the sampled stacks; empty if the file `out` got them as a flame graph."""
    with tempfile.TemporaryDirectory(prefix="disque-profile.") as name:
        raw = Path(name) / "stacks"
        path, form = (out.resolve(), "flamegraph") if out else (raw, "raw")
        sampler = (program, "record", "--rate", str(SAMPLES_PER_SECOND), "--format", form, "--output", str(path), "--")
        with (
            sampled(node_count, sampler, Path(name)) as nodes,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            ports = [node.port for node in nodes]
            add = packed("ADDJOB", QUEUE, "x" * 100, 0, "REPLICATE", node_count)
            runner.run(travel(ports[:1], ports, Repeated(add, jobs, PIPELINE), jobs))
            nodes[0].finish()
        if out:
            return Counter()
        return stacks(raw.read_text(encoding="utf-8"))


def stacks(text: str) -> Counter[tuple[str, ...]]:
    """Read py-spy's raw format: frames from the outermost, separated by semicolons, and the number of samples.

    Samples of imports are left out, because they belong to the start of the node, not to its work.
    """
    found: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if "<frozen importlib" in frames:
            continue
        found[tuple(frame.rpartition(":")[0].rstrip(")") + ")" for frame in frames.split(";"))] += int(count)
    return found


def shares(found: Counter[tuple[str, ...]]) -> Table:
    """Return functions by the share of samples in which they were on top, and anywhere on the stack."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for frames, count in found.items():
        own[frames[-1]] += count
        for frame in set(frames):
            total[frame] += count
    samples = max(1, found.total())
    table = Table("function", title=f"{samples} samples", title_justify="left")
    table.add_column("own %", justify="right")
    table.add_column("with callees %", justify="right")
    for name, count in own.most_common(LINES):
        table.add_row(name, f"{count / samples * 100:.1f}", f"{total[name] / samples * 100:.1f}")
    return table


def main(argv: list[str]) -> int:
    """Profile as the command line says."""
    parser = argparse.ArgumentParser(prog="profiling.py", description="Sample a node at work.")
    parser.add_argument("--nodes", type=int, default=1, help="nodes, and copies of each job (1); the first is sampled")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"jobs that go all their way ({JOBS})")
    parser.add_argument("--out", type=Path, help="write a flame graph (SVG) instead of printing shares")
    options = parser.parse_args(argv)
    console = Console()
    program = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        console.print("py-spy is not installed, so this is cProfile over the core in memory.\n")
        profile = cProfile.Profile()
        profile.enable()
        for _ in CORE.run(Plan(jobs=options.jobs, say=lambda text: None)):
            pass
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(LINES)
        return 0
    found = sample(program, options.nodes, options.jobs, options.out)
    if found:
        console.print(shares(found))
    else:
        console.print(f"{options.out} was written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
