"""The memory of a job: the resident bytes of the process, compared with the accounted bytes (INFO used_memory).

`maxmemory` limits the accounted sum: JOB_BYTES (disque_py/core/job.py) plus the body, for each job. So the constant
should be the bytes that a job with an empty body adds to the process. The last column has the measured value. It
depends on the number of jobs, because index and schedule grow by doubling. So each step of the large row is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from figures import Benchmark, Column, Row
from load import Repeated, packed, run_load
from nodes import Node, started
from plan import Plan

CLIENTS = 8
PIPELINE = 100
WARM_UP = 5_000  # The first jobs make the process allocate buffers and arenas, which must not count.
QUEUE = "benchmark"
BODY_BYTES = 100
FULL, QUICK = 1_000_000, 20_000
SMALL_SHARE = 5  # The variations get a fifth of the jobs.


def run(plan: Plan) -> Iterator[Row]:
    """Measure one large node in steps, then variations on fresh nodes."""
    count = plan.count(FULL, QUICK)
    yield from _steps(plan, count)
    few = max(1, count // SMALL_SHARE)
    for body_bytes in (0, 1000):
        yield _variation(plan, f"{few:,} waiting, body of {body_bytes:,}", few, body_bytes)
    yield _variation(plan, f"{few:,} with DELAY 3600", few, BODY_BYTES, ("DELAY", 3600, "TTL", 86_400))
    yield _variation(plan, f"{few:,} delivered, not acknowledged", few, BODY_BYTES, deliver=True)
    yield _variation(plan, f"{few:,} with REPLICATE 3, the node asked", few, BODY_BYTES, ("REPLICATE", 3), at=0)
    yield _variation(plan, f"{few:,} with REPLICATE 3, another holder", few, BODY_BYTES, ("REPLICATE", 3), at=1)


def _addjob(body_bytes: int, options: Sequence[str | int] = ()) -> bytes:
    return packed("ADDJOB", QUEUE, "x" * body_bytes, 0, *(options or ("REPLICATE", 1)))


def _steps(plan: Plan, count: int) -> Iterator[Row]:
    plan.say(f"memory: {count} jobs of {BODY_BYTES} bytes")
    with started(plan) as (node,):
        start = _fill(node, WARM_UP, _addjob(BODY_BYTES))
        filled = 0
        for share in (8, 4, 2, 1):
            upto = count // share
            now = _fill(node, upto - filled, _addjob(BODY_BYTES))
            filled = upto
            yield _row(f"{upto:,} waiting, body of {BODY_BYTES}", upto, BODY_BYTES, start, now)


def _variation(
    plan: Plan,
    name: str,
    count: int,
    body_bytes: int,
    options: Sequence[str | int] = (),
    *,
    deliver: bool = False,
    at: int | None = None,
) -> Row:
    """Measure a variation on one node, or with `at` on this one of three nodes."""
    plan.say(f"memory: {name}")
    add = _addjob(body_bytes, options)
    with started(plan, 1 if at is None else 3) as nodes:
        measured = nodes[at or 0]
        _fill(nodes[0], WARM_UP, add)
        start = measured.rss_bytes(), measured.used_memory()
        _fill(nodes[0], count, add)
        if deliver:
            get = packed("GETJOB", "NOHANG", "COUNT", 100, "FROM", QUEUE)
            run_load([nodes[0].port], Repeated(get, (count + WARM_UP) // 100 + 1, 1), CLIENTS)
        return _row(name, count, body_bytes, start, (measured.rss_bytes(), measured.used_memory()))


def _fill(node: Node, count: int, add: bytes) -> tuple[int, int]:
    """Add jobs, and return the resident and the accounted bytes afterwards."""
    if count > 0:
        run_load([node.port], Repeated(add, count, PIPELINE), CLIENTS)
    return node.rss_bytes(), node.used_memory()


def _row(name: str, count: int, body_bytes: int, start: tuple[int, int], now: tuple[int, int]) -> Row:
    rss = (now[0] - start[0]) / count
    used = (now[1] - start[1]) / count
    values = {"rss_bytes": rss, "used_bytes": used, "used_of_rss": used / rss if rss else None}
    return Row(name, {"jobs": count, **values, "job_bytes": rss - body_bytes})


MEMORY = Benchmark(
    "memory",
    "Memory per job",
    "jobs",
    (
        Column("rss_bytes", "resident bytes per job", 1),
        Column("used_bytes", "accounted (INFO used_memory)", 1),
        Column("used_of_rss", "accounted / resident", 2),
        Column("job_bytes", "JOB_BYTES would be", 1),
    ),
    "rss_bytes",
    run,
)
