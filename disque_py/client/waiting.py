"""Waiting for the end of a job: by WAITJOB, or by checking the job repeatedly.

A node replies to WAITJOB as soon as the job is over. It may be too old for WAITJOB, or refuse it until older nodes are
upgraded. Then the client repeats SHOW CLUSTER instead, with pauses that grow from 20 ms to a second. But a node forgets
a job soon after it was acknowledged on all nodes that had it. So in this way a completed job is often seen only as
"gone". The rule here is the same for both shells, which sleep and ask. Pure.

"gone" is an end: no node has the job. At its time-out, WAITJOB reports "unknown" also for a job whose node could not be
asked (spec RW8). So "unknown" means "gone" only before the time-out; at the time-out it becomes a TimeoutError.
"""

from __future__ import annotations

from typing import Final

from disque_py.client.dialect import is_misunderstood
from disque_py.client.errors import ReplyError
from disque_py.client.flow_commands import UNKNOWN, JobEnd
from disque_py.client.results import JobInfo, Outcome
from disque_py.client.spans import Span, float_seconds

PAUSE_S_MIN: Final = 0.02
PAUSE_S_MAX: Final = 1.0
PAUSE_GROWTH: Final = 1.5
# An answer that comes this long before the time-out is not caused by it. Time-outs are sent in whole milliseconds.
EARLY_S: Final = 0.01


def is_older(error: ReplyError) -> bool:
    """Return whether a node, or another one that it knows, is too old for WAITJOB."""
    return is_misunderstood(error) or "runs an older version" in str(error)


def is_told(end: JobEnd, left_s: float | None) -> bool:
    """Return whether an answer to WAITJOB reports the end of a job.

    left_s   seconds until the wait's time-out; None: it has none. At the time-out, "unknown" may also mean that the
             job's node could not be asked (spec RW8), which is no end
    """
    return end.is_over and not (end.status == UNKNOWN and left_s is not None and left_s < EARLY_S)


def outcome_of(end: JobEnd, left_s: float | None) -> Outcome:
    """Return the end of a job as `wait` reports it. Raises TimeoutError if there is none (`is_told`)."""
    if not is_told(end, left_s):
        raise TimeoutError(f"job {end.id} is not over: {end.status}")
    if end.status == UNKNOWN:
        return Outcome("gone", None)
    return Outcome(end.status, None, end.result, end.error)


class Waiting:
    """One wait: the job as it was shown last, and the pauses.

    job_id      the job, for the text of the error
    timeout     seconds, or a timedelta; None: for ever
    now         the moment of the start, on the shell's clock
    """

    def __init__(self, job_id: str, timeout: Span | None, now: float) -> None:
        self._job_id = job_id
        self._until = None if timeout is None else now + float_seconds("timeout", timeout)
        self._pause_s = PAUSE_S_MIN
        self._last: JobInfo | None = None

    def left_s(self, now: float) -> float | None:
        """Return the seconds until the time-out; None: it has none."""
        return None if self._until is None else self._until - now

    def outcome(self, shown: JobInfo | None) -> Outcome | None:
        """Take in one look. Return the end of the job; None while it is not over."""
        if shown is None:
            return Outcome("gone", self._last)
        self._last = shown
        if shown.status == "completed" or shown.status == "canceled" or shown.status == "errored":
            return Outcome(shown.status, shown)
        return None

    def pause_s(self, now: float) -> float:
        """Return the seconds until the next look. Raises TimeoutError if there is no time for one."""
        pause_s = self._pause_s
        left_s = self.left_s(now)
        if left_s is not None:
            if left_s <= 0:
                status = "unknown" if self._last is None else self._last.status
                raise TimeoutError(f"job {self._job_id} is not over: {status}")
            pause_s = min(pause_s, left_s)
        self._pause_s = min(PAUSE_S_MAX, PAUSE_GROWTH * self._pause_s)
        return pause_s
