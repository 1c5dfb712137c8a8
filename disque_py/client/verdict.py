"""Decisions of a handler about its job: once more, or never again.

    async def handle(job):
        if is_rate_limited():
            raise Retry(delay=60, reason="rate limited")
        if not is_valid(job.body):
            raise Fail("no address")

A handler raises or returns them, and so may the worker's `on_error`. The worker makes a NACK of them (settling.py):
DELAY, REASON and FINAL. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from disque_py.client.results import Job
from disque_py.client.spans import Span, float_seconds

# About 30,000 years. A node and a timedelta take this delay, but not one that is a hundred times as long.
DELAY_MS_MAX: Final = 10**15


class Retry(Exception):  # noqa: N818  # A decision, which handlers may also return.
    """The job comes again. This is no failure: it is logged in one line, without a traceback.

    delay    seconds until the next delivery, with a fraction, or a timedelta; None, the default: as after a failure
    reason   text that SHOW reports as the job's `error`; none by default

    Like any delivery, this one counts as an attempt. Raises ValueError for a delay below 0 or above
    10**12 seconds.

        raise Retry(delay=60, reason="rate limited")
    """

    def __init__(self, delay: Span | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.reason = reason
        self.delay_ms = None if delay is None else round(1000 * float_seconds("delay", delay))
        if self.delay_ms is not None and not 0 <= self.delay_ms <= DELAY_MS_MAX:
            raise ValueError("delay must not be below 0 or above 10**12 seconds")


class Fail(Exception):  # noqa: N818  # A decision, as Retry.
    """The job has failed for good: it is errored or a dead letter, however many attempts are left.

    reason   text that SHOW reports as the job's `error`; none by default

        raise Fail("no address")
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave up")
        self.reason = reason


@dataclass(slots=True)
class GivenBack:
    """A job that goes back to the cluster.

    reason     the words for REASON, "": none
    delay_ms   milliseconds until the next delivery; None: the back-off of the job, of its queue, or of the worker
    is_final   all its attempts are spent
    """

    job: Job
    reason: str
    delay_ms: int | None = None
    is_final: bool = False


def reason_of(error: BaseException) -> str:
    """Return an error as text, for NACK's REASON."""
    if isinstance(error, (Retry, Fail)):
        return error.reason
    text = message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def message_of(error: BaseException) -> str:
    """Return the message of an error; "" if the error's own method raises."""
    try:
        return str(error)
    except Exception:  # The method is the user's code.
        return ""
