"""Progress of running jobs: a percentage and a text that the worker tells with PROGRESS.

The node with the job keeps the newest progress and tells the other holders at most once a second per job. An event
`progress` goes with each telling. A later delivery begins without progress: a progress counts only for the delivery
that it was told for. The journal does not keep it, because a worker tells it again and again.

This module is data; telling.py talks to the other holders. Spec RW4.
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

    attempt   the delivery
    told_ms   when the other holders heard of the job's progress last
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
    due      jobs whose other holders are to hear of it
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
        """Forget the progress of a job that is over, or that is delivered anew."""
        known = self.by_job.pop(job, None)
        if known is not None:
            self._broker.used_memory -= PROGRESS_BYTES + len(known.text)
            self.due.pop(job, None)

    def clear(self) -> None:
        """Forget all, because all jobs are gone (reset.py)."""
        self.by_job.clear()
        self.due.clear()
