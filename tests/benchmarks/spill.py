"""More jobs than memory: a node with `maxmemory-spill yes` is filled far beyond its memory, and emptied.

The bodies have 4 KiB each, and together they are several times `maxmemory`. The benchmark is about resident memory;
rates and the worst PING show the cost. The first rows belong to a node that keeps the same bodies in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from figures import Benchmark, Column, Row
from filling import Meter
from load import Repeated, packed, run_load
from nodes import Node, started
from plan import Plan

COUNT = (1_000_000, 40_000)  # full, quick
IN_MEMORY_SHARE = 10
BODY_BYTES = 4096
# A spilled job needs about three quarters of this in memory, so the limit is far from the goal.
MAXMEMORY_BYTES_PER_JOB = 800
# With less, the disk could not keep up with four connections.
MAXMEMORY_MIN = 64 << 20
CLIENTS = 4
PIPELINE = 50
GET_COUNT = 50
GOAL_RSS_MIB_PER_MILLION = 900.0
GOAL_WORST_MS = 10.0
QUEUE = "benchmark"


def run(plan: Plan) -> Iterator[Row]:
    """Measure a few jobs in memory, then many with bodies on disk."""
    count = plan.count(*COUNT)
    few = max(GET_COUNT, count // IN_MEMORY_SHARE)
    yield from _filled(plan, few, "in memory")
    limit = max(count * MAXMEMORY_BYTES_PER_JOB, MAXMEMORY_MIN)
    spilling = replace(plan, directives=(*plan.directives, "--maxmemory", str(limit), "--maxmemory-spill", "yes"))
    yield from _filled(spilling, count, f"with maxmemory {limit:,} and spill")


def _filled(plan: Plan, count: int, how: str) -> Iterator[Row]:
    plan.say(f"spill: {count:,} jobs of {BODY_BYTES:,} bytes {how}")
    with started(plan) as (node,), started(plan) as (control,), tempfile.TemporaryDirectory() as name:
        meter = Meter(node, control, Path(name))
        add = Repeated(packed("ADDJOB", QUEUE, "x" * BODY_BYTES, 0, "REPLICATE", 1), count, PIPELINE)
        yield _row(node, count, meter, f"ADDJOB of {count:,} {how}", partial(_load, node, add))
        get = Repeated(packed("GETJOB", "NOHANG", "COUNT", GET_COUNT, "FROM", QUEUE), count // GET_COUNT, 1)
        yield _row(node, count, meter, f"GETJOB of {count:,} {how}", lambda: _load(node, get) * GET_COUNT)


def _load(node: Node, source: Repeated) -> int:
    return run_load([node.port], source, CLIENTS).count


def _row(node: Node, count: int, meter: Meter, name: str, work: Callable[[], int]) -> Row:
    before_s = node.cpu_s()
    row = meter.row(name, work)
    memory = node.info("memory")
    values = {
        "cpu_us": (node.cpu_s() - before_s) / count * 1e6,
        "disk_mib": int(memory["spilled_bytes"]) / 2**20,
        "used_mib": int(memory["used_memory"]) / 2**20,
    }
    goals = {"worst_ms": GOAL_WORST_MS}
    if memory["spill_enabled"] == "1":
        goals["rss_mib"] = GOAL_RSS_MIB_PER_MILLION * max(1.0, count / 1e6)
    return Row(name, {**row.values, **values}, goals)


SPILL = Benchmark(
    "spill",
    "More jobs than memory",
    "what was done",
    (
        Column("per_s", "jobs per second"),
        Column("cpu_us", "node's CPU µs each", 1),
        Column("used_mib", "accounted MiB"),
        Column("rss_mib", "resident MiB"),
        Column("disk_mib", "bodies on disk, MiB"),
        Column("p99_ms", "PING's p99 ms", 2),
        Column("worst_ms", "worst ms", 2),
        Column("control_worst_ms", "idle node's worst ms", 2),
    ),
    "rss_mib",
    run,
)
