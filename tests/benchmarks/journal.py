"""The cost of the journal, and the speed of reading it: rates per policy, bytes on disk, a rewrite, loading.

The rates are those of 50 pipelining connections, first with the journal off and then with each policy. On a noisy
machine, use the ratios in the column `of "off"`. A rewrite is measured in its worst case: every other job is gone, so
it pays for every segment.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import uvloop

from consumers import Tally, consumers
from figures import Benchmark, Column, Row
from filling import Meter
from load import Repeated, packed, run_load
from nodes import Node, started, until
from plan import Plan

RATE_COUNT = (300_000, 20_000)  # full, quick
LOAD_COUNT = (1_000_000, 20_000)
CLIENTS = 50
PIPELINE = 16
QUEUE = "benchmark"
GOAL_LOAD_S_PER_MILLION = 5.0
GOAL_WORST_MS = 20.0
WAIT_S = 600.0
POLICIES = ("off", "no", "everysec", "always")


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
    count = plan.count(*RATE_COUNT)
    add = packed("ADDJOB", QUEUE, "x" * 100, 0, "REPLICATE", 1)
    off: dict[str, float] = {}
    for policy in POLICIES:
        plan.say(f"journal: {count:,} jobs, {policy}")
        with started(_with(plan, policy)) as (node,):
            for name in ("ADDJOB", "GETJOB and ACKJOB"):
                before_s = node.cpu_s()
                before = perf_counter()
                if name == "ADDJOB":
                    done = run_load([node.port], Repeated(add, count, PIPELINE), CLIENTS).count
                else:
                    done = _consume(node, count)
                seconds = perf_counter() - before
                rate = done / seconds
                off.setdefault(name, rate)
                values = {
                    "per_s": rate,
                    "of_off": rate / off[name],
                    "cpu_us": (node.cpu_s() - before_s) / done * 1e6,
                }
                yield Row(f"{name}, {policy}", values, {})


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
