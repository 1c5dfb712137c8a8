"""The throughput of three nodes: ADDJOB … REPLICATE 3, and the whole life of jobs from ADDJOB over GETJOB to ACKJOB.

The CPU column is the sum over the three nodes, until the last node has forgotten the last job: the cost of a job for
the cluster. If the machine has fewer cores than processes (three nodes and the load generator), the rate is not that of
three machines. The CPU time per job is valid for other machines, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import uvloop

from consumers import Tally, consumers
from figures import Benchmark, Column, Row, percentile
from load import Repeated, load, packed, run_load
from nodes import Node, started, until
from plan import Plan

CLIENTS = 50
CONSUMERS_PER_NODE = 8
PIPELINES = (1, 16, 100)
COUNTS = {1: (50_000, 2_000), 16: (200_000, 5_000), 100: (300_000, 10_000)}  # full, quick
WAY_PIPELINE = 16
WAY_COUNT = (200_000, 5_000)
WAY_LIMIT_SECONDS = 600.0
FORGET_SECONDS = 60.0
QUEUE = "benchmark"
BODY = "x" * 100


def run(plan: Plan) -> Iterator[Row]:
    """Measure copies first, then whole lives of jobs."""
    for pipeline in PIPELINES:
        full, quick = COUNTS[pipeline]
        yield _copies(plan, plan.count(full, quick), pipeline)
    count = plan.count(*WAY_COUNT)
    for replicate in (1, 3):
        for producers_on in (1, 3):
            yield _way(plan, count, replicate, producers_on)


def _addjob(replicate: int) -> bytes:
    return packed("ADDJOB", QUEUE, BODY, 0, "REPLICATE", replicate)


def _copies(plan: Plan, count: int, pipeline: int) -> Row:
    plan.say(f"three nodes: {count} ADDJOB REPLICATE 3, -P {pipeline}")
    with started(plan, 3) as nodes:
        before_s = _cpu_s(nodes)
        ports = [node.port for node in nodes]
        result = run_load(ports, Repeated(_addjob(3), count, pipeline), CLIENTS)
        nodes_us = (_cpu_s(nodes) - before_s) / count * 1e6
    p99_ms = percentile(result.round_trips_ms, 99)
    values = {"jobs": count, "per_s": result.per_s, "nodes_us": nodes_us, "p99_ms": p99_ms, "again": None}
    return Row(f"ADDJOB REPLICATE 3, -P {pipeline}", values)


def _way(plan: Plan, count: int, replicate: int, producers_on: int) -> Row:
    where = "one node" if producers_on == 1 else "all nodes"
    name = f"ADD → GET → ACK, REPLICATE {replicate}, producers on {where}"
    plan.say(f"three nodes: {count} jobs, {name}")
    with started(plan, 3) as nodes, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        before_s = _cpu_s(nodes)
        ports = [node.port for node in nodes]
        add = Repeated(_addjob(replicate), count, WAY_PIPELINE)
        seconds, again = runner.run(travel(ports[:producers_on], ports, add, count))
        until(lambda: not any(node.registered_jobs() for node in nodes), FORGET_SECONDS)
        nodes_us = (_cpu_s(nodes) - before_s) / count * 1e6
    values = {"jobs": count, "per_s": count / seconds, "nodes_us": nodes_us, "p99_ms": None, "again": again}
    return Row(name, values)


async def travel(producers: Sequence[int], ports: Sequence[int], add: Repeated, count: int) -> tuple[float, int]:
    """Add and consume jobs at the same time. Return the seconds until the last ack, and the surplus deliveries."""
    tally = Tally(count)
    workers = await consumers(ports, CONSUMERS_PER_NODE * len(ports), QUEUE, tally)
    try:
        began_at = time.perf_counter()
        async with asyncio.timeout(WAY_LIMIT_SECONDS):
            await load(producers, add, CLIENTS)
            await tally.done
    finally:
        for worker in workers:
            worker.close()
    return tally.finished_at - began_at, tally.delivered - len(tally.seen)


def _cpu_s(nodes: Sequence[Node]) -> float:
    return sum(node.cpu_s() for node in nodes)


THREE_NODES = Benchmark(
    "three-nodes",
    f"Three nodes, {CLIENTS} connections, bodies of {len(BODY)} bytes, {CONSUMERS_PER_NODE} consumers on each node",
    "work",
    (
        Column("jobs", "jobs"),
        Column("per_s", "jobs per second"),
        Column("nodes_us", "CPU µs per job, all nodes", 2),
        Column("p99_ms", "p99 ms", 2),
        Column("again", "delivered again"),
    ),
    "nodes_us",
    run,
)
