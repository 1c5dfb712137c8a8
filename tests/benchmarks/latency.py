"""The time that a job takes to reach a consumer that waits on another node.

A consumer is blocked in GETJOB on node B, and a producer adds a job on node A. The time runs from before ADDJOB is
sent until the job has arrived. The benchmark compares a consumer on the producer's own node, a queue in use, a queue
that has been silent for a long time, a queue that did not exist, and a job that was there before its consumer came. A
silent queue must make no difference, because nodes announce their interest once and the others keep it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from figures import Benchmark, Column, Row, percentile
from nodes import Node, started
from plan import Plan
from servers import Connection

SAMPLES = (1000, 60)  # full, quick
SILENT_QUEUES = (200, 20)
SILENT_QUEUES_MAX = 500  # Each has its own connection.
# Longer than the time between fallback broadcasts of NEEDJOBS (30 s), so the result does not depend on them.
SILENCE_S = (45.0, 3.0)
GOAL_P99_MS = 50.0
# The pause between two samples, so that no sample profits from the one before.
PAUSE_S = (0.002, 0.02)
REPLY_SECONDS = 120.0
BODY = "x" * 100


def run(plan: Plan) -> Iterator[Row]:
    """Measure one kind after another on the same three nodes, with pauses from a fixed random seed."""
    samples = plan.count(*SAMPLES)
    rng = random.Random(1)
    with started(plan, 3) as (a, b, _):
        trial = _Trial(plan, rng)
        yield trial.row("consumer on the same node", samples, a, a, 1)
        for replicate in (1, 3):
            yield trial.row(f"queue in use, REPLICATE {replicate}", samples, a, b, replicate)
        yield trial.row("queue that is new", samples, a, b, 3, is_new=True)
        yield trial.late_consumers("job was there first", samples, a, b)
        yield trial.silent(min(plan.count(*SILENT_QUEUES), SILENT_QUEUES_MAX), a, b, plan.span_s(*SILENCE_S))


class _Trial:
    """Ways of taking samples."""

    def __init__(self, plan: Plan, rng: random.Random) -> None:
        self._plan = plan
        self._rng = rng
        self._serial = 0

    def row(self, name: str, samples: int, a: Node, b: Node, replicate: int, *, is_new: bool = False) -> Row:
        """Measure a consumer that has been blocked for a few milliseconds."""
        self._plan.say(f"latency: {name}")
        queue = self._queue()
        with a.connect(REPLY_SECONDS) as producer, b.connect(REPLY_SECONDS) as consumer:
            found = []
            for _ in range(samples):
                queue = self._queue() if is_new else queue
                consumer.send("GETJOB", "FROM", queue)
                self._pause()
                found.append(_passage_ms(producer, consumer, queue, replicate))
        return _row(name, found)

    def silent(self, count: int, a: Node, b: Node, silence_s: float) -> Row:
        """Measure silent queues, each with its own consumer: one job, a long silence, then the measured job."""
        name = f"queue silent for {silence_s:.0f} s, REPLICATE 3"
        self._plan.say(f"latency: {name}")
        queues = [self._queue() for _ in range(count)]
        with ExitStack() as stack:
            producer = stack.enter_context(a.connect(REPLY_SECONDS))
            consumers = [stack.enter_context(b.connect(REPLY_SECONDS)) for _ in queues]
            for queue, consumer in zip(queues, consumers, strict=True):
                consumer.send("GETJOB", "FROM", queue)
                _passage_ms(producer, consumer, queue, 3)
                consumer.send("GETJOB", "FROM", queue)
            time.sleep(silence_s)
            found = []
            for queue, consumer in zip(queues, consumers, strict=True):
                self._pause()
                found.append(_passage_ms(producer, consumer, queue, 3))
        return _row(name, found)

    def late_consumers(self, name: str, samples: int, a: Node, b: Node) -> Row:
        """Measure from the consumer's GETJOB on B, while the job is on A."""
        self._plan.say(f"latency: {name}")
        with a.connect(REPLY_SECONDS) as producer, b.connect(REPLY_SECONDS) as consumer:
            found = []
            for _ in range(samples):
                queue = self._queue()
                producer.command("ADDJOB", queue, BODY, 0, "REPLICATE", 1)
                self._pause()
                found.append(_timed_ms(consumer, partial(consumer.send, "GETJOB", "FROM", queue)))
        return _row(name, found)

    def _queue(self) -> str:
        self._serial += 1
        return f"benchmark-{self._serial}"

    def _pause(self) -> None:
        time.sleep(self._rng.uniform(*PAUSE_S))


def _passage_ms(producer: Connection, consumer: Connection, queue: str, replicate: int) -> float:
    passage_ms = _timed_ms(consumer, lambda: producer.send("ADDJOB", queue, BODY, 0, "REPLICATE", replicate))
    producer.read()
    return passage_ms


def _timed_ms(consumer: Connection, act: Callable[[], None]) -> float:
    """Return the time from the act until the job comes, and acknowledge the job."""
    before_s = time.perf_counter()
    act()
    ((_, job_id, _),) = consumer.read()
    passed_ms = (time.perf_counter() - before_s) * 1000
    consumer.command("ACKJOB", job_id)
    return passed_ms


def _row(name: str, found: list[float]) -> Row:
    found.sort()
    values = {"p50_ms": percentile(found, 50), "p99_ms": percentile(found, 99), "worst_ms": found[-1]}
    return Row(name, {"samples": len(found), **values}, {"p99_ms": GOAL_P99_MS})


LATENCY = Benchmark(
    "latency",
    "From ADDJOB on node A to the consumer on node B",
    "kind",
    (
        Column("samples", "jobs"),
        Column("p50_ms", "p50 ms", 2),
        Column("p99_ms", "p99 ms", 2),
        Column("worst_ms", "worst ms", 2),
    ),
    "p50_ms",
    run,
)
