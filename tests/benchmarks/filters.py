"""Filters: rates with indexes, and a GETJOB with WHERE that matches only one of all jobs.

One node has the jobs, each with a random PRIORITY and one of a thousand tenants. A queue of the node is indexed by two
names. Then jobs with a unique pair are added and fetched one by one among all others. One connection does everything,
so the rates are those of one client with a pipeline.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from random import Random
from time import perf_counter

import hiredis

from figures import Benchmark, Column, Row, percentile
from load import packed
from nodes import started
from plan import Plan

QUEUE = "benchmark"
BODY = "x" * 100
TENANTS = 1_000
PIPELINE = 1_000
SIZES = (10_000, 1_000_000)
QUICK_SIZES = (2_000,)
RARE, QUICK_RARE = 2_000, 100
# The largest number of jobs to fetch for the rate, so that this doesn't take minutes.
FETCHED_MAX = 100_000
GOAL_MS = 2.0


class Caller:
    """A connection. `ask` sends commands and waits for all replies."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def ask(self, commands: bytes, count: int) -> list[object]:
        """Return the replies to `count` commands."""
        self._socket.sendall(commands)
        replies: list[object] = []
        while len(replies) < count:
            self._reader.feed(self._socket.recv(1 << 16))
            while len(replies) < count and (reply := self._reader.gets()) is not False:
                replies.append(reply)
        return replies

    def close(self) -> None:
        self._socket.close()


def run(plan: Plan) -> Iterator[Row]:
    """Measure each number of jobs on its own node."""
    sizes = QUICK_SIZES if plan.is_quick else SIZES
    if plan.jobs is not None:
        sizes = (plan.count(plan.jobs, plan.jobs),)
    for size in sizes:
        yield _row(plan, size)


def _row(plan: Plan, size: int) -> Row:
    plan.say(f"filters: {size:,} jobs with random priorities")
    rng = Random(size)
    with started(plan) as (node,):
        caller = Caller(node.port)
        caller.ask(packed("ADDJOB", "other", BODY, 0), 1)
        before = node.rss_bytes()
        spent_s = 0.0
        for at in range(0, size, PIPELINE):
            count = min(PIPELINE, size - at)
            batch = b"".join(_added(rng) for _ in range(count))
            start = perf_counter()
            caller.ask(batch, count)
            spent_s += perf_counter() - start
        added = size / spent_s
        plain_bytes = (node.rss_bytes() - before) / size
        start = perf_counter()
        for name in ("tenant", "rare"):
            caller.ask(packed("QLEN", QUEUE, "WHERE", name, "none"), 1)
        indexed_s = perf_counter() - start
        all_bytes = (node.rss_bytes() - before) / size
        spans_ms = []
        for number in range(QUICK_RARE if plan.is_quick else RARE):
            caller.ask(packed("ADDJOB", QUEUE, BODY, 0, "META", "rare", number), 1)
            start = perf_counter()
            (found,) = caller.ask(packed("GETJOB", "NOHANG", "WHERE", "rare", number, "FROM", QUEUE), 1)
            spans_ms.append((perf_counter() - start) * 1_000)
            assert isinstance(found, list), "the job was not found"
        fetched = min(size, FETCHED_MAX)
        get = packed("GETJOB", "NOHANG", "FROM", QUEUE)
        start = perf_counter()
        for at in range(0, fetched, PIPELINE):
            count = min(PIPELINE, fetched - at)
            caller.ask(get * count, count)
        got = fetched / (perf_counter() - start)
        caller.close()
    spans_ms.sort()
    p99_ms = percentile(spans_ms, 99)
    values = {
        "jobs": size,
        "added_per_s": added,
        "got_per_s": got,
        "where_p50_ms": percentile(spans_ms, 50),
        "where_p99_ms": p99_ms,
        "indexed_s": indexed_s,
        "bytes": plain_bytes,
        "indexed_bytes": all_bytes - plain_bytes,
    }
    return Row(f"{size:,} jobs", values, {"where_p99_ms": GOAL_MS})


def _added(rng: Random) -> bytes:
    tenant, priority = rng.randrange(TENANTS), rng.randrange(1 << 40)
    return packed("ADDJOB", QUEUE, BODY, 0, "PRIORITY", priority, "META", "tenant", f"t{tenant}")


FILTERS = Benchmark(
    "filters",
    "Filters",
    "jobs",
    (
        Column("added_per_s", "ADDJOB per second"),
        Column("got_per_s", "GETJOB per second, indexed"),
        Column("where_p50_ms", "GETJOB WHERE, p50 ms", 2),
        Column("where_p99_ms", "p99 ms", 2),
        Column("indexed_s", "two indexes built in s", 2),
        Column("bytes", "resident bytes per job", 1),
        Column("indexed_bytes", "more by indexes", 1),
    ),
    "where_p99_ms",
    run,
)
