"""Random priorities: the rates of ADDJOB and GETJOB while a queue has few jobs, and while it has millions.

One node gets jobs with random priorities in one queue. Then the queue keeps its length: some jobs are added, as many
are fetched, and so on, with the time of both counted separately. This is done by fifty connections that send one
command at a time, by fifty that send sixteen, and by one that sends a thousand. The goal compares the longest queue
with the shortest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from figures import Benchmark, Column, Row
from load import Each, LoadError, LoadResult, Repeated, packed, run_load
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
    """The cost of a number of commands: seconds until the last reply, and CPU seconds of the node."""

    jobs: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def add(self, node: Node, result: LoadResult, cpu_before_s: float) -> None:
        """Add the cost of one load, which began when the node had used `cpu_before_s`."""
        self.jobs += result.count
        self.seconds += result.seconds
        self.cpu_seconds += node.cpu_s() - cpu_before_s


def run(plan: Plan) -> Iterator[Row]:
    """Measure each number of jobs on its own node. `--jobs` replaces the largest number."""
    sizes = QUICK_SIZES if plan.is_quick else SIZES
    if plan.jobs is not None:
        sizes = (sizes[0], plan.count(plan.jobs, plan.jobs))
    shortest: dict[str, tuple[Cost, Cost]] = {}
    for size in sizes:
        yield from _rows(plan, size, shortest)


def _rows(plan: Plan, size: int, shortest: dict[str, tuple[Cost, Cost]]) -> Iterator[Row]:
    """Fill a queue of a new node, and measure each shape."""
    plan.say(f"priorities: {size:,} jobs in the queue")
    rng = Random(size)
    with started(plan) as (node,):
        run_load([node.port], Each([packed("ADDJOB", "other", BODY, 0)], 1), 1)
        before = node.rss_bytes()
        run_load([node.port], _Added(rng, size, FILL_PIPELINE), 1)
        resident_bytes = (node.rss_bytes() - before) / size
        for shape in SHAPES:
            added, got = _costs(node, rng, shape, QUICK_STEADY if plan.is_quick else STEADY)
            added_short, got_short = shortest.setdefault(shape.name, (added, got))
            values = {
                "jobs": size,
                "added_per_s": added.jobs / added.seconds,
                "added_ratio": added_short.seconds / added.seconds,
                "added_cpu_ratio": added.cpu_seconds / added_short.cpu_seconds,
                "got_per_s": got.jobs / got.seconds,
                "got_ratio": got_short.seconds / got.seconds,
                "got_cpu_ratio": got.cpu_seconds / got_short.cpu_seconds,
                "bytes": resident_bytes,
            }
            yield Row(f"{size:,} jobs, {shape.name}", values)


def _costs(node: Node, rng: Random, shape: Shape, jobs: int) -> tuple[Cost, Cost]:
    """Return the costs of adding and of fetching this number of jobs."""
    get = packed("GETJOB", "NOHANG", "FROM", QUEUE)
    added, got = Cost(), Cost()
    while added.jobs < jobs:
        commands = [_command(rng) for _ in range(shape.round_jobs)]
        before_s = node.cpu_s()
        added.add(node, run_load([node.port], Each(commands, shape.pipeline), shape.clients), before_s)
        before_s = node.cpu_s()
        fetching = Repeated(get, shape.round_jobs, shape.pipeline, _check)
        got.add(node, run_load([node.port], fetching, shape.clients), before_s)
    return added, got


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
