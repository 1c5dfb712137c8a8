"""Random priorities: the rates of ADDJOB and GETJOB while a queue has few jobs, and while it has millions.

Each length of the queue has a node of its own, whose queue gets jobs with random priorities. Then the queues keep their
lengths: some jobs are added, as many are fetched, and so on, with the time of both counted separately. The nodes take
turns, so that all lengths meet the same moods of the machine. This is done by fifty connections that send one command
at a time, by fifty that send sixteen, and by one that sends a thousand. The goal compares each queue with the shortest
one: a ratio is the median of the ratios of the single turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from statistics import median

from figures import Benchmark, Column, Row
from load import Each, LoadError, Repeated, packed, run_load
from nodes import Node, started
from plan import Plan

QUEUE = "benchmark"
BODY = "x" * 100
FILL_PIPELINE = 1_000
SIZES = (10_000, 1_000_000)
QUICK_SIZES = (1_000, 2_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to send commands: connections, commands that each sends at a time, and jobs added before as many leave."""

    name: str
    clients: int
    pipeline: int
    round_jobs: int


SHAPES = (
    Shape("50 clients, one command at a time", 50, 1, 10_000),
    Shape("50 clients, 16 at a time", 50, 16, 10_000),
    Shape("one client, 1,000 at a time", 1, 1_000, 1_000),
)
# Jobs added and fetched per shape while the queue keeps its length.
STEADY, QUICK_STEADY = 300_000, 2_000


@dataclass(slots=True)
class Cost:
    """The cost of a kind of command, per turn: seconds until the last reply, and CPU seconds of the node."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def add(self, node: Node, commands: Each | Repeated, clients: int) -> None:
        """Let clients send these commands to a node, and add the cost."""
        before_s = node.cpu_s()
        self.seconds.append(run_load([node.port], commands, clients).seconds)
        self.cpu_seconds.append(node.cpu_s() - before_s)


class LongQueue:
    """A queue of some length on its own node, and its costs by the name of the shape: of ADDJOB, and of GETJOB."""

    def __init__(self, plan: Plan, node: Node, size: int) -> None:
        plan.say(f"priorities: {size:,} jobs in the queue")
        self.size = size
        self.costs = {shape.name: (Cost(), Cost()) for shape in SHAPES}
        self._node = node
        self._rng = Random(size)
        run_load([node.port], Each([packed("ADDJOB", "other", BODY, 0)], 1), 1)
        before = node.rss_bytes()
        run_load([node.port], _Added(self._rng, size, FILL_PIPELINE), 1)
        self.resident_bytes = (node.rss_bytes() - before) / size

    def take_turn(self, shape: Shape) -> None:
        """Add jobs, and fetch as many."""
        added, got = self.costs[shape.name]
        commands = [_command(self._rng) for _ in range(shape.round_jobs)]
        added.add(self._node, Each(commands, shape.pipeline), shape.clients)
        get = packed("GETJOB", "NOHANG", "FROM", QUEUE)
        got.add(self._node, Repeated(get, shape.round_jobs, shape.pipeline, _check), shape.clients)

    def row(self, shape: Shape, shortest: LongQueue) -> Row:
        """Return the figures of a shape."""
        values: dict[str, float] = {"jobs": self.size, "bytes": self.resident_bytes}
        for key, cost, least in zip(("added", "got"), self.costs[shape.name], shortest.costs[shape.name], strict=True):
            values[f"{key}_per_s"] = shape.round_jobs / median(cost.seconds)
            values[f"{key}_ratio"] = _median_ratio(least.seconds, cost.seconds)
            values[f"{key}_cpu_ratio"] = _median_ratio(cost.cpu_seconds, least.cpu_seconds)
        return Row(f"{self.size:,} jobs, {shape.name}", values)


def run(plan: Plan) -> Iterator[Row]:
    """Measure each number of jobs on its own node. `--jobs` replaces the largest number."""
    sizes = QUICK_SIZES if plan.is_quick else SIZES
    if plan.jobs is not None:
        sizes = (sizes[0], plan.count(plan.jobs, plan.jobs))
    jobs = QUICK_STEADY if plan.is_quick else STEADY
    with ExitStack() as nodes:
        queues = [LongQueue(plan, nodes.enter_context(started(plan))[0], size) for size in sizes]
        for shape in SHAPES:
            for number in range(max(1, jobs // shape.round_jobs)):
                for queue in queues if number % 2 else reversed(queues):
                    queue.take_turn(shape)
        for queue in queues:
            for shape in SHAPES:
                yield queue.row(shape, queues[0])


def _median_ratio(dividends: list[float], divisors: list[float]) -> float:
    return median(one / other for one, other in zip(dividends, divisors, strict=True))


def _check(replies: list[object]) -> None:
    """Raise LoadError if a reply has no job."""
    if None in replies:
        raise LoadError("the queue was empty")


class _Added:
    """A source of `count` ADDJOBs with random priorities, made as they are sent."""

    def __init__(self, rng: Random, count: int, pipeline: int) -> None:
        self._rng = rng
        self._left = count
        self._pipeline = pipeline

    def take(self) -> tuple[bytes, int]:
        count = min(self._left, self._pipeline)
        self._left -= count
        return b"".join(_command(self._rng) for _ in range(count)), count

    def answered(self, replies: list[object]) -> None:
        """Ignore the replies."""


def _command(rng: Random) -> bytes:
    return packed("ADDJOB", QUEUE, BODY, 0, "PRIORITY", rng.randrange(1 << 40))


PRIORITIES = Benchmark(
    "priorities",
    "Random priorities",
    "jobs in the queue",
    (
        Column("added_per_s", "ADDJOB per second"),
        Column("added_ratio", "of the shortest queue's", 2),
        Column("added_cpu_ratio", "× CPU of the shortest queue's", 2),
        Column("got_per_s", "GETJOB per second"),
        Column("got_ratio", "of the shortest queue's", 2),
        Column("got_cpu_ratio", "× CPU of the shortest queue's", 2),
        Column("bytes", "resident bytes per job", 1),
    ),
    "got_per_s",
    run,
)
