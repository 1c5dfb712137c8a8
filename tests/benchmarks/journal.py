"""The cost of the journal, and the speed of reading it: rates per policy, bytes on disk, a rewrite, loading.

The rates are those of 50 pipelining connections. There is a node without a journal, and one per policy. They take
turns, so that noise of the machine affects all of them equally, and the ratios are medians of those within a round. A
rewrite is measured in its worst case: every other job is gone, so it pays for every segment.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import uvloop

from consumers import Tally, consumers
from figures import Benchmark, Column, Row
from filling import Meter
from load import Repeated, packed, run_load
from nodes import Node, started, until
from plan import Plan

ROUNDS = (15, 2)  # full, quick
ROUND_COUNT = (40_000, 5_000)
LOAD_COUNT = (1_000_000, 20_000)
CLIENTS = 50
PIPELINE = 16
QUEUE = "benchmark"
GOAL_LOAD_S_PER_MILLION = 5.0
GOAL_WORST_MS = 20.0
WAIT_S = 600.0
POLICIES = ("off", "no", "everysec", "always")
PARTS = ("ADDJOB", "GETJOB and ACKJOB", "all three")
GOALS_CPU = {"everysec": 1.2, "always": 1.4}


def run(plan: Plan) -> Iterator[Row]:
    """Rates, then a large node: its journal, a rewrite of it, a restart."""
    yield from _rates(plan)
    yield from _large(plan)


def _with(plan: Plan, policy: str) -> Plan:
    if policy == "off":
        return plan
    words = ("--appendonly", "yes", "--appendfsync", policy, "--auto-aof-rewrite-percentage", "0")
    return replace(plan, directives=(*plan.directives, *words))


def _rates(plan: Plan) -> Iterator[Row]:
    """Measure a node per policy, in rounds of turns. The ratios are those to the node without a journal in a round."""
    count = plan.count(*ROUND_COUNT)
    plan.say(f"journal: {plan.count(*ROUNDS)} rounds of {count:,} jobs on each of four nodes")
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(started(_with(plan, policy)))[0] for policy in POLICIES]
        measured = [[_round(node, count) for node in nodes] for _ in range(plan.count(*ROUNDS))]
    for number, policy in enumerate(POLICIES):
        for part, name in enumerate(PARTS):
            here = [each[number][part] for each in measured]
            off = [each[0][part] for each in measured]
            values = {
                "per_s": count / median(cost.seconds for cost in here),
                "of_off": median(o.seconds / h.seconds for h, o in zip(here, off, strict=True)),
                "cpu_us": median(cost.cpu_s for cost in here) / count * 1e6,
                "of_cpu": median(h.cpu_s / o.cpu_s for h, o in zip(here, off, strict=True)),
            }
            goal = GOALS_CPU.get(policy) if name == PARTS[-1] else None
            yield Row(f"{name}, {policy}", values, {} if goal is None else {"of_cpu": goal})


class Cost(NamedTuple):
    """Seconds that jobs took, and the node's CPU seconds."""

    seconds: float
    cpu_s: float


def _round(node: Node, count: int) -> tuple[Cost, Cost, Cost]:
    """Return the costs of the parts for this number of jobs."""
    add = packed("ADDJOB", QUEUE, "x" * 100, 0, "REPLICATE", 1)
    cpu = [node.cpu_s()]
    at = [perf_counter()]
    run_load([node.port], Repeated(add, count, PIPELINE), CLIENTS)
    cpu.append(node.cpu_s())
    at.append(perf_counter())
    _consume(node, count)
    cpu.append(node.cpu_s())
    at.append(perf_counter())
    first, second, third = (Cost(at[b] - at[a], cpu[b] - cpu[a]) for a, b in ((0, 1), (1, 2), (0, 2)))
    return first, second, third


def _large(plan: Plan) -> Iterator[Row]:
    count = plan.count(*LOAD_COUNT)
    add = packed("ADDJOB", QUEUE, "x" * 100, 0, "REPLICATE", 1)
    plan.say(f"journal: {count:,} jobs to be read back")
    everysec = _with(plan, "everysec")
    with started(everysec) as (node,), started(plan) as (control,), tempfile.TemporaryDirectory() as folder:
        meter = Meter(node, control, Path(folder))
        run_load([node.port], Repeated(add, count, PIPELINE), CLIENTS)
        size = int(node.info("persistence")["aof_current_size"])
        before_mib = node.rss_bytes() / 2**20
        yield Row(f"bytes on disk per job of 100 bytes ({count:,})", {"bytes": size / count}, {})
        _consume(node, count - count // 2)
        plan.say("journal: rewriting")
        row = meter.row(f"BGREWRITEAOF with {count // 2:,} jobs left", lambda: _rewrite(node))
        values = {**row.values, "per_s": None, "grown": node.rss_bytes() / 2**20 / before_mib}
        yield Row(row.name, values, {"worst_ms": GOAL_WORST_MS})
        run_load([node.port], Repeated(add, count - count // 2, PIPELINE), CLIENTS)
        plan.say("journal: restart")
        node.stop()
        node.start()
        info = node.info("persistence")
        seconds = int(info["loading_last_time_ms"]) / 1000
        values = {"load_s": seconds, "per_s": count / seconds, "cpu_us": node.cpu_s() / count * 1e6}
        yield Row(f"loading {node.registered_jobs():,} jobs", values, {"load_s": GOAL_LOAD_S_PER_MILLION * count / 1e6})


def _consume(node: Node, count: int) -> int:
    """Fetch and acknowledge so many jobs, COUNT at a time as consumers do; how many that was."""

    async def consumed() -> int:
        tally = Tally(count)
        at_work = await consumers([node.port], CLIENTS, QUEUE, tally)
        try:
            await asyncio.wait_for(tally.done, WAIT_S)
        finally:
            for consumer in at_work:
                consumer.close()
        return len(tally.acknowledged)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(consumed())


def _rewrite(node: Node) -> int:
    with node.connect(60.0) as connection:
        connection.command("BGREWRITEAOF")
        until(lambda: node.info("persistence")["aof_rewrite_in_progress"] == "0", WAIT_S)
    return 0


JOURNAL = Benchmark(
    "journal",
    "The journal",
    "what",
    (
        Column("per_s", "jobs per second"),
        Column("of_off", 'of "off"', 2),
        Column("cpu_us", "node's CPU µs each", 1),
        Column("of_cpu", '× CPU of "off"', 2),
        Column("bytes", "bytes"),
        Column("load_s", "seconds", 1),
        Column("p99_ms", "PING's p99 ms", 2),
        Column("worst_ms", "worst ms", 2),
        Column("control_worst_ms", "idle node's worst ms", 2),
        Column("grown", "resident memory, times", 2),
    ),
    "cpu_us",
    run,
)
