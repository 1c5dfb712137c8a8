"""The tests: the requests of each, and the values of one measurement of one contestant.

A test has cells, for example "p=16 c=50". Every cell is measured `runs` times for all contestants alternately, A B A B
… (main.py). All work is bounded: by seconds, by a number of jobs, and by the patience of load.py.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import uvloop

from disque_py.cli.bench import load, paced
from disque_py.cli.bench.dialects import Dialect
from disque_py.cli.bench.figures import spread
from disque_py.cli.bench.load import Acknowledge, Cycle, Fetch, Loaded, LoadError, Repeat, TwoServers
from disque_py.cli.bench.processes import Line, Running

Values = Mapping[str, float]
Found = Mapping[str, Values]

# CPU seconds are shown for so many requests or jobs.
PER: Final = 100_000
# A job of 100 bytes takes about 600 bytes of a server; this leaves room for the generator's list of ids.
BACKLOG_BYTES_PER_JOB: Final = 1_200
BACKLOG_CONNECTIONS: Final = 4
BACKLOG_PIPELINE: Final = 100
PAIRS: Final = 8
PACED_CONNECTIONS: Final = 10
QUEUES_CONNECTIONS: Final = 50
QUEUES_PIPELINE: Final = 16
REPLICATE_CONNECTIONS: Final = 50
# Every connection finishes its batch, so this number of requests limits how much longer than its seconds a cell takes.
OUTSTANDING_MAX: Final = 100_000
# Descriptors in addition to those of the connections: files, the loop, the terminal.
SPARE_FILES: Final = 64
TIMER_DELAYS_S: Final = (1, 2)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run: seconds of each measurement, the axes of the matrix, numbers of jobs and samples."""

    seconds: float = 1.0
    pipelines: tuple[int, ...] = (1, 4, 16, 100)
    connections: tuple[int, ...] = (1, 50, 500, 5_000)
    rates: tuple[int, ...] = (1_000, 5_000)
    wakeups: int = 300
    timers: int = 1_000
    backlog: int = 100_000
    queues: int = 1_000
    body: bytes = b"x" * 100

    def quick(self) -> Plan:
        """Return small sizes, to check that everything works."""
        return replace(
            self,
            seconds=0.2,
            pipelines=(1, 16),
            connections=(1, 50),
            rates=(1_000,),
            wakeups=30,
            timers=100,
            backlog=10_000,
            queues=100,
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One place in the matrix of a test; its text names it in results."""

    text: str
    pipeline: int = 1
    connections: int = 1
    rate: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Test:
    """A name, a sentence, and the metric that ratios and charts show, with its title."""

    name: str
    summary: str
    metric: str
    unit: str


TESTS: Final = {
    test.name: test
    for test in (
        Test("ping", "PING, or else the cheapest request", "rate", "requests per second"),
        Test("add", "Jobs added to a queue", "rate", "jobs per second"),
        Test("get", "Jobs fetched from a full queue, one per request", "rate", "jobs per second"),
        Test("ack", "Fetched jobs acknowledged, one per request", "rate", "jobs per second"),
        Test("cycle", "Whole cycles of jobs: add, get, acknowledge", "rate", "jobs per second"),
        Test("latency", "Latency of adds at a fixed rate, from the intended send time", "p99", "p99, milliseconds"),
        Test("wakeup", "Time from sending an add to a blocked consumer's job, on one node", "p50", "p50, milliseconds"),
        Test("wakeup-far", "The same with the consumer on another node", "p50", "p50, milliseconds"),
        Test("timers", "Delayed jobs: time from the end of the delay to the delivery", "p99", "p99, milliseconds"),
        Test("queues", "Whole cycles of jobs that are spread over many queues", "rate", "jobs per second"),
        Test("backlog", "A queue filled with jobs: rate, and memory per job", "memory", "resident bytes per job"),
        Test("federation", "Producers on one node, consumers on another", "rate", "jobs per second"),
        Test("replicate", "Three nodes, jobs added with three copies", "rate", "jobs per second"),
    )
}


@dataclass(frozen=True, slots=True)
class Measure:
    """A measurement that gives the values of one test or of several."""

    tests: tuple[str, ...]
    cells: Callable[[Plan], list[Cell]]
    run: Callable[[Running, Cell, Plan], Found]
    suits: Callable[[Dialect], bool]
    nodes: int = 1
    # Start a new server for every measurement, because memory use depends on earlier work.
    is_fresh: bool = False


def new_queue() -> str:
    """Return a name that no other measurement uses, not even on a server that was running before."""
    return f"bench-{os.getpid()}-{next(_numbers)}"


def raise_file_limit() -> int:
    """Raise the limit of open files as far as possible, for this process and its servers. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            return soft
    return soft


def fitting(plan: Plan, file_limit: int, memory: int) -> tuple[Plan, list[str]]:
    """Return the plan without the parts that this machine has no room for, and notes about those parts."""
    notes = []
    connections = tuple(count for count in plan.connections if count + SPARE_FILES <= file_limit or file_limit < 0)
    if connections != plan.connections:
        left_out = ", ".join(f"{count:,}" for count in plan.connections if count not in connections)
        notes.append(f"Left out: {left_out} connections; the limit of open files is {file_limit:,} (ulimit -n).")
    large = [f"p={p} c={c:,}" for c in connections for p in plan.pipelines if p * c > OUTSTANDING_MAX]
    if large:
        notes.append(f"Left out: {', '.join(large)}, which have more than {OUTSTANDING_MAX:,} requests in flight.")
    most = int(memory * 0.7) // (BACKLOG_BYTES_PER_JOB + len(plan.body))
    if plan.backlog > most:
        notes.append(f"A backlog of {plan.backlog:,} jobs does not fit into memory; reduced to {most:,}.")
    return replace(plan, connections=connections, backlog=min(plan.backlog, most)), notes


def _in_loop(work: Callable[[], Awaitable[Found]]) -> Found:
    async def run() -> Found:
        return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def matrix(plan: Plan) -> list[Cell]:
    """Return a cell for each pair of connections and pipeline with at most OUTSTANDING_MAX requests in flight."""
    pairs = [(p, c) for c in plan.connections for p in plan.pipelines if p * c <= OUTSTANDING_MAX]
    return [Cell(f"p={p} c={c}", p, c) for p, c in pairs]


def values_of(running: Running, loaded: Loaded, before_cpu_s: float | None) -> dict[str, float]:
    """Return the metrics of a flow: rate and count, the generator's share of a core, the servers' CPU per 100,000."""
    found = {"rate": loaded.rate, "generator": loaded.generator_share, "count": float(loaded.count)}
    after_cpu_s = running.cpu_s()
    if before_cpu_s is not None and after_cpu_s is not None and loaded.count:
        found["cpu"] = (after_cpu_s - before_cpu_s) / loaded.count * PER
    return found


def prepare(running: Running, queue: str) -> None:
    """Send the request that a queue needs before its first job. Raises LoadError."""
    request = running.contestant.dialect.prepare(queue)
    if request is not None:
        try:
            with Line(running.ports[0], running.contestant.dialect) as line:
                line.request(request)
        except (OSError, EOFError) as error:
            raise LoadError(f"CONNECT {running.contestant.name}: {error}") from error


async def _flow(
    running: Running, connections: Sequence[load.LoadConnection], flow: load.Flow, seconds: float | None
) -> dict[str, float]:
    before_cpu_s = running.cpu_s()
    loaded = await flow.run(connections, seconds)
    if not loaded.count:
        raise LoadError(f"EMPTY {running.contestant.name} answered nothing in time; use more --seconds")
    return values_of(running, loaded, before_cpu_s)


def ping(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure PING."""

    async def work() -> Found:
        dialect = running.contestant.dialect
        connections = await load.connected(running.ports[:1], dialect, cell.connections, new_queue())
        try:
            flow = Repeat(dialect.ping(), cell.pipeline)
            return {"ping": await _flow(running, connections, flow, plan.seconds)}
        finally:
            load.close_all(connections)

    return _in_loop(work)


def chain(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure add for the plan's seconds, then get and acknowledge all jobs that were added."""
    queue = new_queue()
    prepare(running, queue)

    async def work() -> Found:
        dialect = running.contestant.dialect
        connections = await load.connected(running.ports[:1], dialect, cell.connections, queue)
        try:
            adding = Repeat(dialect.add(queue, plan.body), cell.pipeline)
            found = {"add": await _flow(running, connections, adding, plan.seconds)}
            getting = Fetch(dialect, queue, adding.count, cell.pipeline)
            found["get"] = await _flow(running, connections, getting, None)
            acking = Acknowledge(dialect, queue, plan.body, getting.ids, cell.pipeline)
            found["ack"] = await _flow(running, connections, acking, None)
            return found
        finally:
            load.close_all(connections)

    return _in_loop(work)


def cycle(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure whole cycles through one queue."""
    return {"cycle": _cycle(running, cell, plan, [new_queue()])}


def queues(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure whole cycles through many queues."""
    name = new_queue()
    return {"queues": _cycle(running, cell, plan, [f"{name}-{number}" for number in range(cell.count)])}


def _cycle(running: Running, cell: Cell, plan: Plan, names: list[str]) -> Values:
    for name in names:
        prepare(running, name)

    async def work() -> Found:
        dialect = running.contestant.dialect
        connections = await load.connected(running.ports[:1], dialect, cell.connections, names[0])
        try:
            flow = Cycle(dialect, names, plan.body, cell.pipeline, cell.connections)
            return {"cycle": await _flow(running, connections, flow, plan.seconds)}
        finally:
            load.close_all(connections)

    return _in_loop(work)["cycle"]


def latency(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure adds at a fixed rate."""
    queue = new_queue()
    dialect = running.contestant.dialect
    prepare(running, queue)
    before_cpu_s = running.cpu_s()
    lines: list[Line] = []
    try:
        lines += [paced.open_line(running.ports[0], dialect, queue) for _ in range(PACED_CONNECTIONS)]
        result = paced.fixed_rate(lines, dialect.add(queue, plan.body), cell.rate, plan.seconds * 2)
    finally:
        for line in lines:
            line.sock.close()
    after_cpu_s = running.cpu_s()
    values = {**spread(result.latencies_ms), "generator": result.generator_share, "rate": result.achieved_rate}
    if before_cpu_s is not None and after_cpu_s is not None:
        values["cpu"] = (after_cpu_s - before_cpu_s) / len(result.latencies_ms) * PER
    running.flush()
    return {"latency": values}


def _wakeup(running: Running, consumer_port: int, plan: Plan) -> Values:
    queue = new_queue()
    dialect = running.contestant.dialect
    prepare(running, queue)
    with (
        paced.open_line(running.ports[0], dialect, queue) as producer,
        paced.open_line(consumer_port, dialect, queue) as consumer,
    ):
        return spread(paced.wakeups(producer, consumer, dialect, queue, plan.body, plan.wakeups))


def wakeup(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure a blocked consumer on the producer's node."""
    return {"wakeup": _wakeup(running, running.ports[0], plan)}


def wakeup_far(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure a blocked consumer on another node."""
    return {"wakeup-far": _wakeup(running, running.ports[1], plan)}


def timers(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure delayed jobs that become due evenly over two seconds, or over the plan's seconds if that is longer."""
    queue = new_queue()
    dialect = running.contestant.dialect
    delays = [TIMER_DELAYS_S[number % len(TIMER_DELAYS_S)] for number in range(cell.count)]
    span_s = max(2 * plan.seconds, cell.count / 1_000)
    with (
        paced.open_line(running.ports[0], dialect, queue) as producer,
        paced.open_line(running.ports[0], dialect, queue) as consumer,
    ):
        found = paced.timers(producer, consumer, dialect, queue, plan.body, delays, span_s)
    return {"timers": spread(found)}


def backlog(running: Running, cell: Cell, plan: Plan) -> Found:
    """Fill a new server; its growth divided by the number of jobs is the memory per job."""
    queue = new_queue()
    prepare(running, queue)

    async def work() -> Found:
        dialect = running.contestant.dialect
        connections = await load.connected(running.ports[:1], dialect, BACKLOG_CONNECTIONS, queue)
        try:
            before = running.resident()
            flow = Repeat(dialect.add(queue, plan.body), BACKLOG_PIPELINE, limit=cell.count)
            values = await _flow(running, connections, flow, None)
            after = running.resident()
            if before is not None and after is not None:
                values["memory"] = (after - before) / cell.count
            return {"backlog": values}
        finally:
            load.close_all(connections)

    return _in_loop(work)


def federation(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure jobs that producers add on the first node and consumers get on the second."""
    queue = new_queue()
    dialect = running.contestant.dialect

    async def work() -> Found:
        connections = await load.connected(running.ports[:1], dialect, PAIRS, queue)
        try:
            connections += await load.connected(running.ports[1:2], dialect, PAIRS, queue)
            # Room for a batch of every producer, one in flight, and an incomplete one at every consumer.
            flow = TwoServers(dialect, queue, plan.body, cell.pipeline, PAIRS, 4 * PAIRS * cell.pipeline)
            return {"federation": await _flow(running, connections, flow, plan.seconds)}
        finally:
            load.close_all(connections)

    before = running.bus()
    values = dict(_in_loop(work)["federation"])
    return {"federation": values | _bus(before, running.bus(), values["count"])}


def replicated(running: Running, cell: Cell, plan: Plan) -> Found:
    """Measure adds that are answered when every node has a copy."""
    dialect = running.contestant.dialect
    before = running.bus()
    queue = new_queue()

    async def work() -> Found:
        connections = await load.connected(running.ports[:1], dialect, cell.connections, queue)
        try:
            flow = Repeat(dialect.add(queue, plan.body, replicate=len(running.ports)), cell.pipeline)
            values = await _flow(running, connections, flow, plan.seconds)
            return {"replicate": values}
        finally:
            load.close_all(connections)

    values = dict(_in_loop(work)["replicate"])
    found = {"replicate": values | _bus(before, running.bus(), values["count"])}
    running.flush()
    return found


def _bus(before: tuple[int, int | None], after: tuple[int, int | None], jobs: float) -> dict[str, float]:
    """Return messages between nodes per job, and bytes if the nodes count them."""
    found = {"messages": (after[0] - before[0]) / jobs}
    if before[1] is not None and after[1] is not None:
        found["bus_bytes"] = (after[1] - before[1]) / jobs
    return found


def _any(dialect: Dialect) -> bool:
    return True


def _has_jobs(dialect: Dialect) -> bool:
    return dialect.has_jobs


def _has_delay(dialect: Dialect) -> bool:
    return dialect.has_delay


def _has_queues(dialect: Dialect) -> bool:
    # A connection of beanstalkd uses one tube at a time, so this test would measure its `use`.
    return dialect.has_jobs and dialect.hello("q") is None


def _is_disque(dialect: Dialect) -> bool:
    return dialect.is_disque


MEASURES: Final = (
    Measure(("ping",), matrix, ping, _any),
    Measure(("add", "get", "ack"), matrix, chain, _has_jobs),
    Measure(("cycle",), matrix, cycle, _has_jobs),
    Measure(("latency",), lambda plan: [Cell(f"{r:,}/s", rate=r) for r in plan.rates], latency, _has_jobs),
    Measure(("wakeup",), lambda plan: [Cell("same node")], wakeup, _has_jobs),
    Measure(("timers",), lambda plan: [Cell(f"{plan.timers:,} jobs", count=plan.timers)], timers, _has_delay),
    Measure(
        ("queues",),
        lambda plan: [
            Cell(f"{plan.queues:,} queues", QUEUES_PIPELINE, min(QUEUES_CONNECTIONS, plan.queues), count=plan.queues)
        ],
        queues,
        _has_queues,
    ),
    Measure(
        ("backlog",),
        lambda plan: [Cell(f"{plan.backlog:,} jobs", count=plan.backlog)],
        backlog,
        _has_jobs,
        is_fresh=True,
    ),
    Measure(
        ("federation",), lambda plan: [Cell(f"p={p}", p) for p in plan.pipelines if p <= 16], federation, _is_disque, 2
    ),
    Measure(("wakeup-far",), lambda plan: [Cell("other node")], wakeup_far, _is_disque, 2),
    Measure(
        ("replicate",),
        lambda plan: [Cell(f"p={p} c={REPLICATE_CONNECTIONS}", p, REPLICATE_CONNECTIONS) for p in plan.pipelines],
        replicated,
        _is_disque,
        3,
    ),
)
