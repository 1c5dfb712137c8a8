"""Fan-out, results, caps, batches and schedules: the cost of each, compared with the same work without it.

There are three nodes without journals. CPU time is the sum over all nodes, so a busy machine changes it little.
Response times depend on the other work of the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from claims import Fetches
from figures import Benchmark, Column, Row, percentile
from load import Each, Repeated, packed, run_load
from nodes import Node, started, until
from plan import Plan

PUBLICATIONS = (10_000, 30)  # full, quick
FANOUT = 10
WAITS = (2_000, 40)
CAPPED = (50_000, 100)
CAP_VALUES = (10_000, 20)
BATCHED = (1_000_000, 300)
SCHEDULES = (10_000, 50)
IDLE_S = (20.0, 1.0)
CLIENTS = 50
PIPELINE = 20
PAUSE_S = (0.001, 0.01)
CLOSE_LIMIT_S = 600.0
GOAL_FANOUT_RATIO = 0.8
GOAL_WAITJOB_P99_MS = 10.0
GOAL_SCHEDULES_PERCENT = 1.0
BODY = "x" * 100


def run(plan: Plan) -> Iterator[Row]:
    """Measure each kind on its own cluster."""
    for part in (_fanout, _waits, _caps, _batch, _schedules):
        with started(plan, 3) as nodes:
            yield from part(plan, nodes)


def _fanout(plan: Plan, nodes: Sequence[Node]) -> Iterator[Row]:
    """Fill ten queues by ten ADDJOBs, and by one to a topic; in the second half in the other order."""
    count = plan.count(*PUBLICATIONS)
    plan.say(f"flows: {count:,} jobs for each of {FANOUT} queues")
    for number in range(FANOUT):
        nodes[0].command("TOPIC", "BIND", "topic", f"bound-{number}")
    publish = packed("TOPIC", "PUBLISH", "topic", BODY, 10_000)
    plain = b"".join(packed("ADDJOB", f"plain-{number}", BODY, 10_000) for number in range(FANOUT))
    spent = {"plain": 0.0, "topic": 0.0}
    seconds = dict(spent)
    for kind in ("plain", "topic", "topic", "plain"):
        before_s = _cpu_s(nodes)
        if kind == "topic":
            result = run_load(_ports(nodes[:1]), Repeated(publish, count // 2, 2), CLIENTS)
        else:
            result = run_load(_ports(nodes[:1]), Sets(plain, FANOUT, count // 2, 2), CLIENTS)
        spent[kind] += _cpu_s(nodes) - before_s
        seconds[kind] += result.seconds
    done = 2 * (count // 2)
    yield _cost(f"{FANOUT} ADDJOBs", done, seconds["plain"], spent["plain"])
    ratio = spent["topic"] / spent["plain"]
    yield _cost(
        f"PUBLISH to {FANOUT} queues", done, seconds["topic"], spent["topic"], ratio, {"ratio": GOAL_FANOUT_RATIO}
    )


class Sets:
    """A source of sets of commands that are sent together."""

    def __init__(self, commands: bytes, size: int, count: int, pipeline: int) -> None:
        self._commands = commands
        self._size = size
        self._left = count
        self._pipeline = pipeline

    def take(self) -> tuple[bytes, int]:
        """Return the next sets, and their number of commands."""
        count = min(self._left, self._pipeline)
        self._left -= count
        return self._commands * count, count * self._size

    def answered(self, replies: list[object]) -> None:
        """Ignore the replies."""


def _waits(plan: Plan, nodes: Sequence[Node]) -> Iterator[Row]:
    """Measure from before an ACKJOB with a result at one node until a client at another node has the result."""
    count = plan.count(*WAITS)
    plan.say(f"flows: {count:,} results")
    rng = random.Random(1)
    found = []
    a, b = nodes[0], nodes[1]
    with a.connect() as worker, b.connect() as waiter:
        for _ in range(count):
            job_id = worker.command("ADDJOB", "q", BODY, 10_000, "REPLICATE", 1)
            worker.command("GETJOB", "FROM", "q")
            waiter.send("WAITJOB", job_id)
            time.sleep(rng.uniform(*PAUSE_S))
            before = time.perf_counter()
            worker.send("ACKJOB", job_id, "RESULT", "42")
            ((_, status, result, _),) = waiter.read()
            found.append((time.perf_counter() - before) * 1000)
            assert (status, result) == (b"completed", b"42")
            worker.read()
    found.sort()
    values = {"count": count, "p50_ms": percentile(found, 50), "p99_ms": percentile(found, 99)}
    yield Row("ACKJOB to WAITJOB on another node", values, {"p99_ms": GOAL_WAITJOB_P99_MS})


def _caps(plan: Plan, nodes: Sequence[Node]) -> Iterator[Row]:
    """Fetch and acknowledge jobs of many values, without a cap and with one per value."""
    count, values = plan.count(*CAPPED), plan.count(*CAP_VALUES)
    nodes[0].command("QUEUE", "SET", "capped", "max-running", 1, "max-running-by", "user")
    nodes[0].command("QUEUE", "SET", "rated", "rate", "1000/1s", "rate-by", "user")
    spent: dict[str, float] = {}
    for queue, name in (("plain", "no cap"), ("capped", "max-running 1"), ("rated", "rate 1000/1s")):
        plan.say(f"flows: {count:,} jobs of {values:,} values, {name}")
        words = (("ADDJOB", queue, BODY, 10_000, "META", "user", f"u{one % values}") for one in range(count))
        run_load(_ports(nodes), Each([packed(*one) for one in words], PIPELINE), CLIENTS)
        before_s = _cpu_s(nodes)
        result = run_load(_ports(nodes), Fetches(queue, count), CLIENTS)
        spent[queue] = _cpu_s(nodes) - before_s
        yield _cost(f"GET and ACK, {name}", count, result.seconds, spent[queue], spent[queue] / spent["plain"])


def _batch(plan: Plan, nodes: Sequence[Node]) -> Iterator[Row]:
    """Measure jobs with one copy, without a batch and with one, and the time from the last ack until it is done."""
    count = plan.count(*BATCHED)
    spent: dict[str, float] = {}
    for queue, words in (("plain", ()), ("batched", ("BATCH", "b"))):
        plan.say(f"flows: {count:,} jobs, {queue}")
        used = _used(nodes)
        before_s = _cpu_s(nodes)
        add = packed("ADDJOB", queue, BODY, 10_000, "REPLICATE", 1, *words)
        result = run_load(_ports(nodes), Repeated(add, count, PIPELINE), CLIENTS)
        spent[queue] = _cpu_s(nodes) - before_s
        more = {"bytes": (_used(nodes) - used) / count}
        yield _cost(f"ADDJOB, {queue}", count, result.seconds, spent[queue], spent[queue] / spent["plain"], more=more)
        before_s = _cpu_s(nodes)
        result = run_load(_ports(nodes), Fetches(queue, count), CLIENTS)
        spent[queue + " way"] = cost = _cpu_s(nodes) - before_s
        yield _cost(f"GET and ACK, {queue}", count, result.seconds, cost, cost / spent["plain way"])
    with nodes[0].connect(CLOSE_LIMIT_S) as client:
        before = time.perf_counter()
        client.command("BATCH", "CLOSE", "b")
        client.command("BATCH", "WAIT", "b")
        yield Row("BATCH CLOSE until done", {"count": count, "seconds": time.perf_counter() - before})


def _schedules(plan: Plan, nodes: Sequence[Node]) -> Iterator[Row]:
    """Measure the share of a core that each node uses for schedules without due ticks."""
    count, span_s = plan.count(*SCHEDULES), plan.span_s(*IDLE_S)
    plan.say(f"flows: {count:,} schedules, idle for {span_s:.0f} s")
    set_each = [
        packed("SCHEDULE", "SET", f"s-{number}", "CRON", f"{number % 60} 4 1 1 *", "QUEUE", "q")
        for number in range(count)
    ]
    run_load(_ports(nodes[:1]), Each(set_each, PIPELINE), 10)
    until(lambda: all(len(node.command("SCHEDULE", "LIST")) == count for node in nodes), CLOSE_LIMIT_S)
    before_s = [node.cpu_s() for node in nodes]
    time.sleep(span_s)
    worst = max(node.cpu_s() - before for node, before in zip(nodes, before_s, strict=True))
    values = {"count": count, "seconds": span_s, "core_percent": 100 * worst / span_s}
    yield Row("schedules, idle", values, {"core_percent": GOAL_SCHEDULES_PERCENT})


def _cost(
    name: str,
    count: int,
    seconds: float,
    cpu_s: float,
    ratio: float | None = None,
    goals: dict[str, float] | None = None,
    more: dict[str, float] | None = None,
) -> Row:
    values = {"count": count, "per_s": count / seconds, "cpu_us": cpu_s / count * 1e6, "ratio": ratio, **(more or {})}
    return Row(name, values, goals or {})


def _ports(nodes: Sequence[Node]) -> list[int]:
    return [node.port for node in nodes]


def _cpu_s(nodes: Sequence[Node]) -> float:
    return sum(node.cpu_s() for node in nodes)


def _used(nodes: Sequence[Node]) -> int:
    return sum(node.used_memory() for node in nodes)


FLOWS = Benchmark(
    "flows",
    "Fan-out, results, caps, batches, schedules on three nodes",
    "what",
    (
        Column("count", "times"),
        Column("per_s", "per second"),
        Column("cpu_us", "CPU µs each, all nodes", 1),
        Column("ratio", "CPU, ratio to without", 2),
        Column("p50_ms", "p50 ms", 2),
        Column("p99_ms", "p99 ms", 2),
        Column("bytes", "bytes each"),
        Column("seconds", "seconds", 1),
        Column("core_percent", "% of a core", 2),
    ),
    "cpu_us",
    run,
)
