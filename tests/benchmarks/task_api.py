"""The task API: tasks that do nothing, from one producer, on one node, by one worker process.

The tasks are added in pipelines (`add_many`) while their queue is paused for consumers. Then the queue is opened, and
the time counts until the node has no jobs left. So each figure belongs to one side only: the producer, or the worker
with its node. Figures for task libraries are often published for 20,000 tasks, the default.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from disque_py.client import Disque
from disque_py.tasks import BaseTask
from figures import Benchmark, Column, Row
from nodes import Node, cpu_s, started
from plan import Plan
from task_program import answer, app, nothing, nothing_async

COUNT = (20_000, 300)  # full, quick
FOLDER = Path(__file__).parent
CASES: tuple[tuple[str, BaseTask[..., Any], int], ...] = (
    ("coroutine, 10 at a time", nothing_async, 10),
    ("coroutine, 100 at a time", nothing_async, 100),
    ("coroutine with a result, 100 at a time", answer, 100),
    ("plain function, 10 at a time", nothing, 10),
)
PATIENCE_S = 300.0


def run(plan: Plan) -> Iterator[Row]:
    """Measure each case on its own node."""
    count = plan.count(*COUNT)
    for name, task, concurrency in CASES:
        plan.say(f"tasks: {name}")
        with started(plan) as (node,):
            yield Row(name, _measured(node, task, concurrency, count))


def _measured(node: Node, task: BaseTask[..., Any], concurrency: int, count: int) -> dict[str, float]:
    app.url = f"disque://127.0.0.1:{node.port}"
    queue = app.queues[0]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (FOLDER, *sys.path)))}
    words = [
        sys.executable,
        "-m",
        "disque_py.tasks.command",
        "task_program",
        "--url",
        app.url,
        "--log-level",
        "warning",
    ]
    worker = subprocess.Popen([*words, "-c", str(concurrency)], env=environment)
    try:
        with app, Disque(f"127.0.0.1:{node.port}") as client:
            task.add().wait(timeout=60)  # Wait until the worker runs.
            client.pause(queue, "out")
            began, calls = time.perf_counter(), [task.call()] * count
            app.add_many(calls)
            added_s = time.perf_counter() - began
            before_s, began = cpu_s(worker.pid), time.perf_counter()
            client.pause(queue, "none")
            while node.registered_jobs():
                if time.perf_counter() - began > PATIENCE_S:
                    raise TimeoutError(f"{node.registered_jobs()} tasks are left")
                time.sleep(0.02)
            ran_s = time.perf_counter() - began
            cpu = cpu_s(worker.pid) - before_s
    finally:
        worker.terminate()
        worker.wait(30)
    return {"tasks": count, "added_per_s": count / added_s, "ran_per_s": count / ran_s, "cpu_us": cpu / count * 1e6}


TASKS = Benchmark(
    "tasks",
    "The task API",
    "kind of task",
    (
        Column("tasks", "tasks"),
        Column("added_per_s", "added per second"),
        Column("ran_per_s", "run per second"),
        Column("cpu_us", "worker's CPU µs each", 1),
    ),
    "cpu_us",
    run,
)
