"""The tasks that the tests' workers run. `DISQUE_URL` names the nodes, `RUNS` a file that gets a line per run."""

from __future__ import annotations

import os
import signal
import time

from celery import Celery, group
from celery.exceptions import Reject, SoftTimeLimitExceeded

URL = os.environ["DISQUE_URL"]
app = Celery("tests", broker=URL, backend=os.environ.get("RESULTS", URL))
app.conf.update(
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("LEASE", "60")),
        "native_delay": os.environ.get("NATIVE_DELAY", "yes"),
    },
    task_track_started=True,
    task_default_queue=os.environ.get("QUEUE", "celery"),
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


@app.task(soft_time_limit=1, time_limit=30)
def softly() -> str:
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        return "in time"
    return "late"


@app.task(time_limit=1)
def endless() -> None:
    time.sleep(60)


@app.task(bind=True, reject_on_worker_lost=True)
def dies_once(self) -> int:
    """Kill the pool's process in the first run."""
    note("dying")
    if not self.request.delivery_info["redelivered"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


@app.task
def rejected() -> None:
    raise Reject("never", requeue=False)


@app.task(bind=True)
def replaced(self, number: int) -> int:
    return self.replace(group(add.s(number, 1), add.s(number, 2)))


@app.task(bind=True, autoretry_for=(OSError,), retry_backoff=1, max_retries=1)
def tries_again(self) -> int:
    if not self.request.retries:
        raise OSError
    return self.request.retries


@app.task(ignore_result=True)
def silent(word: str) -> str:
    note(word)
    return word


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
