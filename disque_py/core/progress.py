"""Progress of running jobs: a percentage and a text that the worker sends with PROGRESS.

The worker's node keeps the newest progress, and sends it to the other holders at most once a second per job. Each time,
it writes an event `progress`. A progress counts only for the delivery for which it was sent, so the next delivery
starts without one. Progress is not in the journal, because workers send it repeatedly.

This module is data, and telling.py sends it to the other holders. Spec RW4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.core.job import Job

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

PROGRESS_BYTES: Final = 300
PERCENT_MAX: Final = 100
TEXT_BYTES_MAX: Final = 256


class Progress:
    """The progress of one delivery of a job.

    attempt   the attempt number of the delivery
    told_ms   when the job's progress was last sent to the other holders; -1: never
    """

    __slots__ = ("attempt", "percent", "text", "told_ms")

    def __init__(self, percent: int, text: bytes, attempt: int, told_ms: int) -> None:
        self.percent = percent
        self.text = text
        self.attempt = attempt
        self.told_ms = told_ms


class ProgressTable:
    """The progress of all jobs on this node.

    by_job   job -> its progress
    due      jobs whose progress must be sent to the other holders
    """

    __slots__ = ("_broker", "by_job", "due")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.by_job: dict[Job, Progress] = {}
        self.due: dict[Job, None] = {}

    def get(self, job: Job) -> Progress | None:
        """Return the progress of the present delivery; None if there is none."""
        known = self.by_job.get(job)
        return known if known is not None and known.attempt >= job.attempt else None

    def put(self, job: Job, percent: int, text: bytes, attempt: int) -> Progress:
        """Keep the newest progress of a job."""
        known = self.by_job.get(job)
        told_ms = -1
        if known is not None:
            told_ms = known.told_ms
            self.drop(job)
        made = self.by_job[job] = Progress(percent, text, attempt, told_ms)
        self._broker.used_memory += PROGRESS_BYTES + len(text)
        return made

    def drop(self, job: Job) -> None:
        """Forget the progress of a job that has ended or is delivered again."""
        known = self.by_job.pop(job, None)
        if known is not None:
            self._broker.used_memory -= PROGRESS_BYTES + len(known.text)
            self.due.pop(job, None)

    def clear(self) -> None:
        """Forget all progress, because all jobs are gone (reset.py)."""
        self.by_job.clear()
        self.due.clear()
