"""The cost of idle nodes: CPU time of three nodes without jobs, and with jobs that wait.

Waiting jobs have copies. Their timers must be reset without a message per job (WILLQUEUE and QUEUED in the Disque
README). So the measured span should contain the moment at which the copies' RETRY is over. A full run needs
`--seconds 360` for that; `--quick` has a RETRY that is short enough. The worst slice is shown beside the mean, because
a mean hides a burst every five minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from figures import Benchmark, Column, Row
from load import Repeated, packed, run_load
from nodes import Node, started
from plan import Plan

COUNT = (100_000, 5_000)  # full, quick
SPAN_S = (60.0, 12.0)
RETRY_S = (300, 8)
EMPTY_SPAN_S = (20.0, 4.0)
SETTLE_S = 3.0
SLICES = 6
GOAL_CPU_PERCENT = 1.0
CLIENTS = 6
PIPELINE = 50


def run(plan: Plan) -> Iterator[Row]:
    """Measure slices of time. Two INFO per slice are the only connections."""
    count = plan.count(*COUNT)
    retry_s = RETRY_S[plan.is_quick]
    # Jobs with a RETRY of seconds cost more than jobs with one of minutes, so the goal does not apply to them.
    goals = {} if plan.is_quick else {"cpu_percent": GOAL_CPU_PERCENT}
    with started(plan, 3) as nodes:
        time.sleep(SETTLE_S)
        plan.say("idle: three nodes without jobs")
        yield from _rows("no jobs", nodes, EMPTY_SPAN_S[plan.is_quick], goals)
        plan.say(f"idle: adding {count} jobs")
        add = packed("ADDJOB", "benchmark", "x" * 100, 0, "REPLICATE", 2, "RETRY", retry_s)
        run_load([node.port for node in nodes], Repeated(add, count, PIPELINE), CLIENTS)
        time.sleep(SETTLE_S)
        span_s = plan.span_s(*SPAN_S)
        plan.say(f"idle: {span_s:.0f} s with {count} jobs waiting")
        yield from _rows(f"{count:,} jobs, REPLICATE 2 RETRY {retry_s}", nodes, span_s, goals)


def _rows(name: str, nodes: Sequence[Node], span_s: float, goals: dict[str, float]) -> Iterator[Row]:
    slices: list[list[float]] = [[] for _ in nodes]
    sent = [_messages_sent(node) for node in nodes]
    began_at = time.monotonic()
    for _ in range(SLICES):
        before_s = [node.cpu_s() for node in nodes]
        before_at = time.monotonic()
        time.sleep(span_s / SLICES)
        elapsed_s = time.monotonic() - before_at
        for at, node in enumerate(nodes):
            slices[at].append((node.cpu_s() - before_s[at]) / elapsed_s * 100)
    elapsed_s = time.monotonic() - began_at
    for at, node in enumerate(nodes):
        mean = sum(slices[at]) / SLICES
        per_s = (_messages_sent(node) - sent[at]) / elapsed_s
        values = {"cpu_percent": mean, "cpu_percent_worst": max(slices[at]), "messages_per_s": per_s}
        yield Row(f"{name}, node {at + 1}", {**values, "seconds": elapsed_s}, goals)


def _messages_sent(node: Node) -> int:
    return int(node.info("cluster")["cluster_stats_messages_sent"])


IDLE = Benchmark(
    "idle",
    "Idle nodes",
    "what waits",
    (
        Column("seconds", "seconds"),
        Column("cpu_percent", "CPU % of a core", 3),
        Column("cpu_percent_worst", "worst sixth of the time", 3),
        Column("messages_per_s", "messages sent per second", 1),
    ),
    "cpu_percent",
    run,
)
