"""Telling holders the progress of jobs: PROGRESS.

The node that a worker talks to keeps the progress (progress.py). It tells the other holders at once, and then at most
once a second per job. Each telling is an event. A holder that hears of a delivery later than its own takes the
progress, too. One for an earlier delivery is ignored. Spec RW4.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import PROGRESS
from cluster_bus.node import Node
from disque_py import event_format
from disque_py.core import events
from disque_py.core.broker import Broker
from disque_py.core.job import ACKED, ATTEMPT_MAX, Job
from disque_py.core.progress import PERCENT_MAX, TEXT_BYTES_MAX

TELL_EVERY_MS: Final = 1_000
# Jobs looked at per call.
LOOKED_MAX: Final = 1_000


def progress(broker: Broker, job: Job, percent: int, text: bytes, attempt: int) -> None:
    """Keep the progress that a worker told, and tell the other holders now or soon."""
    table = broker.progress
    known = table.put(job, percent, text, max(attempt, job.attempt))
    if known.told_ms < 0 or broker.now_ms - known.told_ms >= TELL_EVERY_MS:
        _tell(broker, job)
    else:
        table.due[job] = None


def step(broker: Broker) -> None:
    """Tell what has waited for its second."""
    table = broker.progress
    for job in list(table.due)[:LOOKED_MAX]:
        known = table.get(job)
        if known is None:
            table.drop(job)
        elif broker.now_ms - known.told_ms >= TELL_EVERY_MS:
            _tell(broker, job)


def _tell(broker: Broker, job: Job) -> None:
    table = broker.progress
    table.due.pop(job, None)
    known = table.by_job[job]
    known.told_ms = broker.now_ms
    if events.status_of(job) == event_format.RUNNING:
        since_ms = job.since_ms
        rare: dict[str, Any] = {"progress": known.percent}
        if known.text:
            rare["progress_text"] = known.text.decode("utf-8", "replace")
        events.note(broker, job, event_format.PROGRESS, rare)
        job.since_ms = since_ms  # It entered its state before.
    others = broker.sets.others(job.holders)
    if others:
        broker.send(others, PROGRESS, (job.id, known.percent, known.text, known.attempt, job.version))


def on_progress(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Keep the progress of jobs that another holder knows."""
    for job_id, percent, text, attempt, version, *_ in items:
        if type(percent) is not int or not 0 <= percent <= PERCENT_MAX:
            raise ValueError("a progress that is no percentage")
        if type(text) is not bytes or len(text) > TEXT_BYTES_MAX:
            raise ValueError("the text of a progress that is none")
        if type(attempt) is not int or not 0 <= attempt <= ATTEMPT_MAX:
            raise ValueError("a progress of a delivery that is none")
        job = broker.find(job_id)
        if job is None or job.state == ACKED or attempt < job.attempt:
            broker.stats.ignored("progress of a job that is not running")
            continue
        events.heard(job, version)
        broker.progress.put(job, percent, text, attempt).told_ms = broker.now_ms
