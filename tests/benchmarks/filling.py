"""The longest wait of a client: PING on a separate connection while a node fills up, rests full, and is emptied.

A broker in one thread answers no client while it grows a table, collects garbage or works through a batch. This
benchmark finds the longest such moment. A second node without work is pinged in the same way at the same time. The
worst PING of that node comes from the machine (too few cores, other programs), not from the broker.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from figures import Benchmark, Column, Row, percentile
from load import Repeated, packed, run_load
from nodes import Node, started
from pinger import pinging
from plan import Plan

COUNT = (5_000_000, 50_000)  # full, quick
REST_S = (20.0, 3.0)
PARTS = 5
# Few connections: the requests of many would wait for each other, which is not measured here.
CLIENTS = 4
PIPELINE = 50
GET_COUNT = 100
PING_INTERVAL_MS = 2.0
GOAL_WORST_MS = 10.0
QUEUE = "benchmark"


def run(plan: Plan) -> Iterator[Row]:
    """Fill the node in parts, let it rest, fetch a part, and remove all jobs."""
    count = plan.count(*COUNT)
    with started(plan) as (node,), started(plan) as (control,), tempfile.TemporaryDirectory() as name:
        meter = Meter(node, control, Path(name))
        add = packed("ADDJOB", QUEUE, "x" * 100, 0, "REPLICATE", 1)
        filled = 0
        for part in range(1, PARTS + 1):
            upto = count * part // PARTS
            plan.say(f"filling: {filled:,} to {upto:,} jobs")
            source = Repeated(add, upto - filled, PIPELINE)
            yield meter.row(f"{filled:,} to {upto:,} jobs", partial(_load, node, source))
            filled = upto
        rest_s = plan.span_s(REST_S[0], REST_S[1])
        plan.say(f"filling: {rest_s:.0f} s at rest")
        yield meter.row(f"at rest with {count:,} jobs", lambda: _rest(rest_s))
        plan.say("filling: fetching a fifth")
        get = Repeated(packed("GETJOB", "NOHANG", "COUNT", GET_COUNT, "FROM", QUEUE), count // PARTS // GET_COUNT, 1)
        yield meter.row(f"GETJOB COUNT {GET_COUNT} of a fifth", lambda: _load(node, get) * GET_COUNT)
        plan.say("filling: DEBUG FLUSHALL")
        yield meter.row("DEBUG FLUSHALL", lambda: _flush(node))


def _load(node: Node, source: Repeated) -> int:
    return run_load([node.port], source, CLIENTS).count


def _rest(seconds: float) -> int:
    time.sleep(seconds)
    return 0


def _flush(node: Node) -> int:
    with node.connect(120.0) as connection:
        connection.command("DEBUG", "FLUSHALL")
    return 0


class Meter:
    """A meter that pings both nodes while the first one has work."""

    def __init__(self, node: Node, control: Node, folder: Path) -> None:
        self._node = node
        self._control = control
        self._folder = folder

    def row(self, name: str, work: Callable[[], int]) -> Row:
        """Do the work, which returns a number of jobs, and return the row about it."""
        with (
            pinging(self._node.port, PING_INTERVAL_MS, self._folder) as pings,
            pinging(self._control.port, PING_INTERVAL_MS, self._folder) as others,
        ):
            before_at = time.perf_counter()
            jobs = work()
            seconds = time.perf_counter() - before_at
        values = {
            "per_s": jobs / seconds if jobs else None,
            "pings": len(pings.ordered_ms),
            "p99_ms": percentile(pings.ordered_ms, 99),
            "worst_ms": pings.ordered_ms[-1],
            "control_p99_ms": percentile(others.ordered_ms, 99),
            "control_worst_ms": others.ordered_ms[-1],
            "rss_mib": self._node.rss_bytes() / 2**20,
        }
        return Row(name, values, {"worst_ms": GOAL_WORST_MS})


FILLING = Benchmark(
    "filling",
    "PING on a connection of its own",
    "meanwhile",
    (
        Column("per_s", "jobs per second"),
        Column("pings", "PINGs"),
        Column("p99_ms", "p99 ms", 2),
        Column("worst_ms", "worst ms", 2),
        Column("control_p99_ms", "idle node's p99 ms", 2),
        Column("control_worst_ms", "idle node's worst ms", 2),
        Column("rss_mib", "resident MiB"),
    ),
    "worst_ms",
    run,
)
