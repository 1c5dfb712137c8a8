"""Claims: how many locks three nodes grant, the cost of a claim per delivery, and how fast a freed value travels.

Three nodes with journals, all of them voters. A grant is answered when a majority of the voters has it on its disk, so
by default this measures disks too (`appendfsync always`; `--directive appendfsync=everysec` leaves them out).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from figures import Benchmark, Column, Row, percentile
from load import Each, LoadResult, packed, run_load
from nodes import Node, started, until
from plan import Plan
from servers import Connection

LOCKS = (5_000, 60)  # full, quick
DELIVERIES = (2_000, 40)
VALUES = (100_000, 100)
HANDOVERS = (500, 10)
CLIENTS = 50
# A value is free on its own node before other nodes offer it.
GOAL_FREED_P99_MS = 1_000.0
LEASE_MS = 60_000
PAUSE_S = (0.001, 0.01)
REPLY_SECONDS = 120.0
JOURNAL = ("--appendonly", "yes", "--appendfsync", "always")
BODY = "x" * 100


def run(plan: Plan) -> Iterator[Row]:
    """Measure everything on one cluster, one after another."""
    with started(replace(plan, directives=(*JOURNAL, *plan.directives)), 3) as nodes:
        nodes[0].command("CLUSTER", "VOTERS", "INIT", *(node.node_id for node in nodes))
        nodes[0].command("QUEUE", "SET", "exclusive", "type", "exclusive", "exclusive-by", "user")
        nodes[0].command("QUEUE", "SET", "values", "type", "exclusive", "exclusive-by", "user")
        for clients in (1, CLIENTS):
            yield _locks(plan, nodes, clients)
        for queue in ("plain", "exclusive"):
            yield _deliveries(plan, nodes, queue)
        yield from _values(plan, nodes)
        yield _freed(plan, nodes)


def _locks(plan: Plan, nodes: Sequence[Node], clients: int) -> Row:
    count = plan.count(*LOCKS)
    plan.say(f"claims: {count:,} locks by {clients} clients")
    commands = [packed("LOCK", "ACQUIRE", f"lock-{clients}-{number}", "owner", LEASE_MS) for number in range(count)]
    before_s = _cpu_s(nodes)
    result = run_load(_ports(nodes), Each(commands, 1), clients)
    return _loaded(f"LOCK ACQUIRE, {clients} at once", nodes, result, before_s)


def _deliveries(plan: Plan, nodes: Sequence[Node], queue: str) -> Row:
    """Measure one consumer that fetches again and again. Each job has a different value."""
    count = plan.count(*DELIVERIES)
    plan.say(f"claims: {count:,} deliveries from a queue that is {queue}")
    _add(nodes[:1], queue, count)
    found = []
    with nodes[0].connect(REPLY_SECONDS) as consumer:
        before_s, before_cpu_s = time.perf_counter(), _cpu_s(nodes)
        for _ in range(count):
            asked = time.perf_counter()
            ((_, job_id, _),) = consumer.command("GETJOB", "FROM", queue)
            found.append((time.perf_counter() - asked) * 1000)
            consumer.command("ACKJOB", job_id)
        seconds, cpu_s = time.perf_counter() - before_s, _cpu_s(nodes) - before_cpu_s
    return _row(f"GETJOB (and its ACKJOB), {queue}", found, seconds, cpu_s)


def _values(plan: Plan, nodes: Sequence[Node]) -> Iterator[Row]:
    """Fill an exclusive queue in which each job has a different value, then consume it at all nodes."""
    count = plan.count(*VALUES)
    plan.say(f"claims: {count:,} values")
    before = sum(node.used_memory() for node in nodes)
    cpu_s = _cpu_s(nodes)
    added = _add(nodes, "values", count)
    used = sum(node.used_memory() for node in nodes) - before
    yield _loaded(f"ADDJOB, {count:,} values", nodes, added, cpu_s, {"bytes": used / count})
    cpu_s = _cpu_s(nodes)
    source = Fetches("values", count)
    taken = run_load(_ports(nodes), source, CLIENTS)
    yield _loaded(f"GETJOB and ACKJOB, {count:,} values", nodes, taken, cpu_s, count=count)


class Fetches:
    """A source of GETJOBs, and of ACKJOBs for the fetched jobs, until a number of jobs is done."""

    def __init__(self, queue: str, count: int) -> None:
        self._get = packed("GETJOB", "TIMEOUT", 100, "FROM", queue)
        self._left = count
        self._done: list[bytes] = []

    def take(self) -> tuple[bytes, int]:
        """Return the acks of the fetched jobs, and the next GETJOB."""
        if self._done:
            acks = packed("ACKJOB", *self._done)
            self._done = []
            return acks + self._get, 2
        return (self._get, 1) if self._left > 0 else (b"", 0)

    def answered(self, replies: list[object]) -> None:
        """Keep the ids of the jobs that came."""
        jobs = replies[-1]
        if isinstance(jobs, list):
            self._done += [job[1] for job in jobs]
            self._left -= len(jobs)


def _freed(plan: Plan, nodes: Sequence[Node]) -> Row:
    """Measure from an ack at one node until the next job of that value reaches a waiting consumer at another node."""
    count = plan.count(*HANDOVERS)
    plan.say(f"claims: {count:,} values freed at one node and taken at another one")
    rng = random.Random(1)
    a, b = nodes[0], nodes[1]
    found = []
    with a.connect(REPLY_SECONDS) as first, b.connect(REPLY_SECONDS) as second:
        for number in range(count):
            user = f"freed-{number}"
            _add_one(first, user)
            ((_, job_id, _),) = first.command("GETJOB", "FROM", "exclusive")
            _add_one(second, user)
            second.send("GETJOB", "FROM", "exclusive")
            time.sleep(rng.uniform(*PAUSE_S))
            asked = time.perf_counter()
            first.command("ACKJOB", job_id)
            ((_, next_id, _),) = second.read()
            found.append((time.perf_counter() - asked) * 1000)
            second.command("ACKJOB", next_id)
    return _row("a freed value, taken elsewhere", found, None, None, {"p99_ms": GOAL_FREED_P99_MS})


def _add(nodes: Sequence[Node], queue: str, count: int) -> LoadResult:
    words = [("ADDJOB", queue, BODY, 10_000, "META", "user", f"u{number}") for number in range(count)]
    result = run_load(_ports(nodes), Each([packed(*one) for one in words], 20), CLIENTS)
    until(lambda: sum(int(node.command("QLEN", queue)) for node in nodes) >= count)
    return result


def _add_one(connection: Connection, user: str) -> None:
    connection.command("ADDJOB", "exclusive", BODY, 10_000, "META", "user", user)


def _ports(nodes: Sequence[Node]) -> list[int]:
    return [node.port for node in nodes]


def _cpu_s(nodes: Sequence[Node]) -> float:
    return sum(node.cpu_s() for node in nodes)


def _loaded(
    name: str,
    nodes: Sequence[Node],
    result: LoadResult,
    before_cpu_s: float,
    more: dict[str, float] | None = None,
    count: int | None = None,
) -> Row:
    done = result.count if count is None else count
    values = {
        "count": done,
        "per_s": done / result.seconds,
        "p50_ms": percentile(result.round_trips_ms, 50),
        "p99_ms": percentile(result.round_trips_ms, 99),
        **(more or {}),
    }
    return Row(name, {**values, "cpu_us": (_cpu_s(nodes) - before_cpu_s) / done * 1e6})


def _row(
    name: str, found: list[float], seconds: float | None, cpu_s: float | None, goals: dict[str, float] | None = None
) -> Row:
    found.sort()
    values: dict[str, float | None] = {
        "count": len(found),
        "per_s": None if seconds is None else len(found) / seconds,
        "p50_ms": percentile(found, 50),
        "p99_ms": percentile(found, 99),
        "cpu_us": None if cpu_s is None else cpu_s / len(found) * 1e6,
    }
    return Row(name, values, goals or {})


CLAIMS = Benchmark(
    "claims",
    "Claims of three nodes with synced journals",
    "what",
    (
        Column("count", "times"),
        Column("per_s", "per second"),
        Column("p50_ms", "p50 ms", 2),
        Column("p99_ms", "p99 ms", 2),
        Column("cpu_us", "CPU µs each, all nodes", 1),
        Column("bytes", "bytes each, all nodes"),
    ),
    "p50_ms",
    run,
)
