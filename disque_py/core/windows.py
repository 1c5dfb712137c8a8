"""Windows of keys: how long the KEY of a job is used, if not until its TTL is over (ADDJOB … WINDOW, REPLACE).

The extra WINDOW of a job is a number. It is 0 if the key is used until the job is done, errored or a dead letter.
Otherwise it is one more than the milliseconds from the end of the window to the end of the job's TTL. Nodes know how
much of each job's TTL is left. So messages need no moment, and a node that gets a copy later computes the same end.

A job that was added with REPLACE has a list instead: this number, and the ids of the jobs that it replaces. Spec TP5,
TP6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import ACKED, ACTIVE, Job
from disque_py.core.job_attributes import WINDOW
from disque_py.event_format import UNKNOWN

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

WHILE_IT_LIVES: Final = 0
# The error of a replaced job begins with this.
REPLACED_BY: Final = b"replaced by "


def number_of(ttl_ms: int, window_ms: int) -> int:
    """Return the number of a window that begins when the job is created."""
    return 1 + max(0, ttl_ms - window_ms) if window_ms else WHILE_IT_LIVES


def number(job: Job) -> int | None:
    """Return the number of a job's window; None: its key is used until its TTL is over."""
    attributes = job.attributes
    value: Any = None if attributes is None else attributes.extra(WINDOW)
    found: int | None = value[0] if type(value) in (list, tuple) else value
    return found


def until_ms(job: Job, now_ms: int) -> int:
    """Return until when the job's key is used, if only time ends the use."""
    found = number(job)
    if found is None:
        return job.expire_at_ms
    if found == WHILE_IT_LIVES:
        part = job.part
        has_failed = part is not None and (part.is_errored or part.is_dead_letter)
        return now_ms if job.state == ACKED or has_failed else job.expire_at_ms
    return job.expire_at_ms - (found - 1)


def left_ms(job: Job, now_ms: int) -> int:
    """Return how long the key will still be used, for SHOW; 0 for a key that is used until the job is done."""
    return 0 if number(job) == WHILE_IT_LIVES else max(0, until_ms(job, now_ms) - now_ms)


def is_used(job: Job, now_ms: int) -> bool:
    """Return whether the job's key is used."""
    attributes = job.attributes
    if attributes is None or (attributes.extras is None and job.state != ACKED):
        return True
    return not is_replaced(job) and (attributes.extras is None or until_ms(job, now_ms) > now_ms)


def is_replaced(job: Job) -> bool:
    """Return whether the job was canceled because another one replaced it."""
    return job.state == ACKED and bool(replacement(job))


def replacement(job: Job) -> str:
    """Return the error of a job that another one has replaced or is about to replace; empty for any other job."""
    part = job.part
    if part is None or part.error is None or not part.error.startswith(REPLACED_BY):
        return ""
    return part.error.decode("ascii", "replace")


def is_replacing(job: Job) -> bool:
    """Return whether the job was added with REPLACE."""
    attributes = job.attributes
    return attributes is not None and type(attributes.extra(WINDOW)) in (list, tuple)


def replaced_ids(job: Job) -> list[bytes]:
    """Return the ids of the jobs that this one replaces."""
    attributes = job.attributes
    value: Any = None if attributes is None else attributes.extra(WINDOW)
    return list(value[1:]) if type(value) in (list, tuple) else []


def move_end(job: Job, expire_at_ms: int) -> None:
    """Change the end of the job's TTL. The end of its window stays, but is never after the end of the TTL."""
    attributes = job.attributes
    if attributes is not None and attributes.extras is not None:
        found = number(job)
        if found:
            moved = max(1, found + expire_at_ms - job.expire_at_ms)
            value = attributes.extras[WINDOW]
            attributes.extras[WINDOW] = [moved, *value[1:]] if type(value) in (list, tuple) else moved
    job.expire_at_ms = expire_at_ms


def is_delayed(broker: Broker, job: Job) -> bool:
    """Return whether the job is still invisible because of its DELAY, as far as this node knows.

    A node that only has a copy is not told when the creator queues the job. So it computes the end from its own timer,
    because wall clocks differ.
    """
    if job.state != ACTIVE or not job.terms.delay_ms or job.attempt or job.is_delivered:
        return False
    part = job.part
    if part is not None and (part.is_errored or part.number):
        return part.is_delayed and part.due_ms > broker.now_ms
    if not job.was_queued:
        return job.requeue_at_ms > broker.now_ms  # It waits here.
    if job.id[2:10] == broker.me.name[:8]:
        return False
    # The timer of a copy is DELAY plus RETRY plus jitter, until another node tells of the job.
    return job.status == UNKNOWN and job.requeue_at_ms - job.terms.retry_ms > broker.now_ms
