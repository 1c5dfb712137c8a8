"""The throughput of one node: PING, ADDJOB, GETJOB, ACKJOB from 50 connections, in batches of 1, 16 and 100.

Rates depend on how the load generator and the node share the machine's cores. The node's CPU time per command does not,
so it is more useful: a core is full at 1,000,000 / (µs per command) commands per second. PING does almost nothing, so
the ratio to PING shows the cost of a command beyond reading it and writing a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from figures import Benchmark, Column, Row, percentile
from load import Each, Repeated, packed, run_load
from nodes import Node, started
from plan import Plan
from redis_load import is_installed, run_redis_benchmark

CLIENTS = 50
PIPELINES = (1, 16, 100)
COUNTS = {1: (100_000, 3_000), 16: (400_000, 10_000), 100: (500_000, 20_000)}  # full, quick
QUEUE = "benchmark"
BODY = "x" * 100

ADDJOB = ("ADDJOB", QUEUE, BODY, "0")
GETJOB = ("GETJOB", "NOHANG", "FROM", QUEUE)

# (commands per second, p99 in milliseconds of a batch)
Rate = tuple[float, float | None]


def run(plan: Plan) -> Iterator[Row]:
    """Measure each generator and batch size on a fresh node."""
    for pipeline in PIPELINES:
        full, quick = COUNTS[pipeline]
        count = plan.count(full, quick)
        if is_installed():
            plan.say(f"redis-benchmark -c {CLIENTS} -P {pipeline} -n {count}")
            with started(plan) as (node,):
                yield from _rows(f"redis-benchmark -P {pipeline}", node, count, _redis_calls(node, count, pipeline))
        plan.say(f"load.py -c {CLIENTS} -P {pipeline} -n {count}")
        with started(plan) as (node,):
            yield from _rows(f"load.py -P {pipeline}", node, count, _own_calls(node, count, pipeline))


def _redis_calls(node: Node, count: int, pipeline: int) -> dict[str, Callable[[], Rate]]:
    def call(*command: str) -> Rate:
        result = run_redis_benchmark(node.port, command, count, CLIENTS, pipeline)
        return result.per_s, result.p99_ms

    return {"PING": lambda: call("PING"), "ADDJOB": lambda: call(*ADDJOB), "GETJOB": lambda: call(*GETJOB)}


def _own_calls(node: Node, count: int, pipeline: int) -> dict[str, Callable[[], Rate]]:
    ids: list[bytes] = []

    def keep_ids(replies: list[Any]) -> None:
        ids.extend(jobs[0][1] for jobs in replies if jobs)

    def call(source: Repeated | Each) -> Rate:
        result = run_load([node.port], source, CLIENTS)
        return result.per_s, percentile(result.round_trips_ms, 99)

    return {
        "PING": lambda: call(Repeated(packed("PING"), count, pipeline)),
        "ADDJOB": lambda: call(Repeated(packed(*ADDJOB), count, pipeline)),
        "GETJOB": lambda: call(Repeated(packed(*GETJOB), count, pipeline, keep_ids)),
        "ACKJOB": lambda: call(Each([packed("ACKJOB", job_id) for job_id in ids], pipeline)),
    }


def _rows(name: str, node: Node, count: int, calls: dict[str, Callable[[], Rate]]) -> Iterator[Row]:
    ping_us = 0.0
    for word, call in calls.items():
        before_s = node.cpu_s()
        per_s, p99_ms = call()
        node_us = (node.cpu_s() - before_s) / count * 1e6
        ping_us = ping_us or node_us
        values = {"per_s": per_s, "node_us": node_us, "of_ping": node_us / ping_us, "p99_ms": p99_ms}
        yield Row(f"{name} {word}", {**values, "commands": count})


ONE_NODE = Benchmark(
    "one-node",
    f"One node, {CLIENTS} connections, bodies of {len(BODY)} bytes",
    "generator, batch, command",
    (
        Column("commands", "commands"),
        Column("per_s", "per second"),
        Column("node_us", "node's CPU µs each", 2),
        Column("of_ping", "× PING's CPU", 2),
        Column("p99_ms", "p99 ms", 2),
    ),
    "node_us",
    run,
)
