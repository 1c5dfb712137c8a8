"""Send the progress of jobs to their holders: PROGRESS.

The node to which a worker is connected keeps the progress (progress.py). It sends the first one to the other holders
immediately, and later ones at most once a second per job. Each time, it writes an event. A holder also accepts the
progress of a later delivery than it knows. It ignores progress of an earlier delivery. Spec RW4.
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
# The most jobs that one call visits.
LOOKED_MAX: Final = 1_000


def progress(broker: Broker, job: Job, percent: int, text: bytes, attempt: int) -> None:
    """Keep the progress that a worker has sent, and send it to the other holders now or within TELL_EVERY_MS."""
    table = broker.progress
    known = table.put(job, percent, text, max(attempt, job.attempt))
    if known.told_ms < 0 or broker.now_ms - known.told_ms >= TELL_EVERY_MS:
        _tell(broker, job)
    else:
        table.due[job] = None


def step(broker: Broker) -> None:
    """Send the progress of jobs whose last message is TELL_EVERY_MS old."""
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
        job.since_ms = since_ms  # `note` sets it, but the job has not entered a new state.
    others = broker.sets.others(job.holders)
    if others:
        broker.send(others, PROGRESS, (job.id, known.percent, known.text, known.attempt, job.version))


def on_progress(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Keep the progress that another holder has sent."""
    for job_id, percent, text, attempt, version, *_ in items:
        if type(percent) is not int or not 0 <= percent <= PERCENT_MAX:
            raise ValueError("a progress that is not a percentage")
        if type(text) is not bytes or len(text) > TEXT_BYTES_MAX:
            raise ValueError("a malformed text of a progress")
        if type(attempt) is not int or not 0 <= attempt <= ATTEMPT_MAX:
            raise ValueError("a progress with a malformed attempt")
        job = broker.find(job_id)
        if job is None or job.state == ACKED or attempt < job.attempt:
            broker.stats.ignored("progress of a job that is not running")
            continue
        events.heard(job, version)
        broker.progress.put(job, percent, text, attempt).told_ms = broker.now_ms
