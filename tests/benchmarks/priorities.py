"""Random priorities: the rates of ADDJOB and GETJOB while a queue has few jobs, and while it has millions.

One node gets jobs with random priorities in one queue. Then the queue keeps its length: a thousand jobs are added, the
first thousand are fetched, and so on, with the time of both counted separately. One connection does everything, so the
rates are those of one client with a pipeline. The goal compares the longest queue with the shortest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from time import perf_counter

from figures import Benchmark, Column, Row
from filters import Caller
from load import packed
from nodes import started
from plan import Plan

QUEUE = "benchmark"
BODY = "x" * 100
PIPELINE = 1_000
SIZES = (10_000, 1_000_000)
QUICK_SIZES = (1_000, 2_000)
# Jobs added and fetched while the queue keeps its length.
STEADY, QUICK_STEADY = 300_000, 2_000


def run(plan: Plan) -> Iterator[Row]:
    """Measure each number of jobs on its own node. `--jobs` replaces the largest number."""
    sizes = QUICK_SIZES if plan.is_quick else SIZES
    if plan.jobs is not None:
        sizes = (sizes[0], plan.count(plan.jobs, plan.jobs))
    shortest: tuple[float, float] | None = None
    for size in sizes:
        plan.say(f"priorities: {size:,} jobs in the queue")
        added, got, resident_bytes = _rates(plan, size)
        shortest = shortest or (added, got)
        values = {
            "jobs": size,
            "added_per_s": added,
            "added_ratio": added / shortest[0],
            "got_per_s": got,
            "got_ratio": got / shortest[1],
            "bytes": resident_bytes,
        }
        yield Row(f"{size:,} jobs", values)


def _rates(plan: Plan, size: int) -> tuple[float, float, float]:
    """Return the ADDJOBs and GETJOBs per second, and the resident bytes per job."""
    rng = Random(size)
    with started(plan) as (node,):
        caller = Caller(node.port)
        caller.ask(packed("ADDJOB", "other", BODY, 0), 1)
        before = node.rss_bytes()
        for at in range(0, size, PIPELINE):
            count = min(PIPELINE, size - at)
            caller.ask(_added(rng, count), count)
        resident_bytes = (node.rss_bytes() - before) / size
        get = packed("GETJOB", "NOHANG", "FROM", QUEUE) * PIPELINE
        adding_s = getting_s = 0.0
        rounds = (QUICK_STEADY if plan.is_quick else STEADY) // PIPELINE
        for _ in range(rounds):
            batch = _added(rng, PIPELINE)
            start = perf_counter()
            caller.ask(batch, PIPELINE)
            added = perf_counter()
            replies = caller.ask(get, PIPELINE)
            getting_s += perf_counter() - added
            adding_s += added - start
            assert None not in replies, "the queue was empty"
        caller.close()
    return rounds * PIPELINE / adding_s, rounds * PIPELINE / getting_s, resident_bytes


def _added(rng: Random, count: int) -> bytes:
    return b"".join(packed("ADDJOB", QUEUE, BODY, 0, "PRIORITY", rng.randrange(1 << 40)) for _ in range(count))


PRIORITIES = Benchmark(
    "priorities",
    "Random priorities",
    "jobs in the queue",
    (
        Column("added_per_s", "ADDJOB per second"),
        Column("added_ratio", "of the shortest queue's", 2),
        Column("got_per_s", "GETJOB per second"),
        Column("got_ratio", "of the shortest queue's", 2),
        Column("bytes", "resident bytes per job", 1),
    ),
    "got_per_s",
    run,
)
