"""The repair of lost copies: its duration, and the longest PING meanwhile.

Three nodes hold jobs with REPLICATE 2, so a third of all copies is on each. One node is killed and forgotten. The other
two replace its copies on each other, once at the default `repair-rate` and once practically without a limit. A separate
process pings a node all the time (pinger.py). The nodes that send and take copies share the machine, so the worst PING
includes the system's scheduling.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from figures import Benchmark, Column, Row, percentile
from load import Repeated, packed, run_load
from nodes import Node, started, until
from pinger import pinging
from plan import Plan

JOBS, QUICK_JOBS = 1_000_000, 2_000
RATES = (1_000, 1_000_000)
CLIENTS = 20
PIPELINE = 50
PING_MS = 2.0
LIMIT_SECONDS = 1_500.0
GOAL_MS = 10.0
QUEUE = "benchmark"
BODY = "x" * 100


def run(plan: Plan) -> Iterator[Row]:
    """Measure each rate on its own cluster; the default rate with a tenth of the jobs, as its duration is known."""
    count = plan.count(JOBS, QUICK_JOBS) // 3  # A job has two copies, and a third while one is replaced.
    yield _row(plan, max(1, count // 10), RATES[0])
    yield _row(plan, count, RATES[1])


def _row(plan: Plan, count: int, rate: int) -> Row:
    plan.say(f"repair: {count:,} jobs, {rate:,} copies per second and node")
    words = (*plan.directives, "--repair-rate", str(rate))
    with started(replace(plan, directives=words), 3) as nodes, tempfile.TemporaryDirectory() as folder:
        add = packed("ADDJOB", QUEUE, BODY, 0, "REPLICATE", 2)
        run_load([node.port for node in nodes], Repeated(add, count, PIPELINE), CLIENTS)
        *kept, lost = nodes
        missing = lost.registered_jobs()
        lost_id = lost.command("CLUSTER", "MYID")
        with pinging(kept[0].port, PING_MS, Path(folder)) as pings:
            lost.kill()
            before_s = sum(node.cpu_s() for node in kept)
            start = perf_counter()
            for node in kept:
                node.command("CLUSTER", "FORGET", lost_id)
            until(lambda: sum(map(_repaired, kept)) >= missing, LIMIT_SECONDS)
            spent_s = perf_counter() - start
            until(lambda: not any(map(_waiting, kept)), LIMIT_SECONDS)
            whole_s = perf_counter() - start
            cpu_us = (sum(node.cpu_s() for node in kept) - before_s) / max(1, missing) * 1e6
    values = {
        "jobs": count,
        "copies": missing,
        "rate": rate,
        "seconds": spent_s,
        "whole_s": whole_s,
        "cpu_us": cpu_us,
        "ping_p99_ms": percentile(pings.ordered_ms, 99),
        "ping_max_ms": pings.ordered_ms[-1],
    }
    return Row(f"{count:,} jobs", values, {"ping_max_ms": GOAL_MS})


def _repaired(node: Node) -> int:
    return int(node.info("jobs")["total_copies_repaired"])


def _waiting(node: Node) -> int:
    return int(node.info("jobs")["repair_jobs_waiting"])


REPAIR = Benchmark(
    "repair",
    "Replacing lost copies",
    "jobs",
    (
        Column("copies", "copies lost"),
        Column("rate", "repair-rate"),
        Column("seconds", "replaced in s", 1),
        Column("whole_s", "all jobs looked at in s", 1),
        Column("cpu_us", "CPU µs per copy, both nodes", 1),
        Column("ping_p99_ms", "PING p99 ms", 2),
        Column("ping_max_ms", "worst PING ms", 1),
    ),
    "ping_max_ms",
    run,
)
