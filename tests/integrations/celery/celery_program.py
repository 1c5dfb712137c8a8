"""The tasks that the tests' workers run. `DISQUE_URL` names the nodes, `RUNS` a file that gets a line per run."""

from __future__ import annotations

import os
import time

from celery import Celery
from celery.exceptions import Reject

URL = os.environ["DISQUE_URL"]
app = Celery("tests", broker=URL, backend=URL)
app.conf.update(
    broker_transport_options={"visibility_timeout": float(os.environ.get("LEASE", "60"))},
    task_acks_late=True,
    worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


def note(word: object) -> None:
    """Append a line to the file of runs."""
    with open(os.environ["RUNS"], "a") as runs:
        runs.write(f"{word} {os.getpid()} {time.time()}\n")


@app.task
def add(first: int, second: int) -> int:
    return first + second


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def big(size: int) -> str:
    return "x" * size


@app.task
def run(word: str, seconds: float = 0) -> str:
    note(word)
    time.sleep(seconds)
    note(f"{word}-done")
    return word


@app.task
def fail() -> None:
    raise ValueError("no")


@app.task(bind=True, max_retries=3)
def third_time(self) -> int:
    note(f"try-{self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return self.request.retries


@app.task(bind=True)
def reject_once(self) -> bool:
    note("rejecting")
    if not self.request.delivery_info["redelivered"]:
        raise Reject("again", requeue=True)
    return True
