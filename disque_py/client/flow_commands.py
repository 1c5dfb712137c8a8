"""Commands about the ends of jobs, their progress, and batches. Pure. Spec RW4, RW5, BT6.

WAITJOB and BATCH WAIT wait at the node, for as long as the caller likes. The client sends a long wait in slices: when a
slice is over and `Request.goes_on` says that the answer is not final, the client sends the next one. So the client
notices if the node dies meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from disque_py.client.arguments import QUEUE_SET_MS, Body, JobRef
from disque_py.client.job_options import of_delivery
from disque_py.client.protocol import Reply, text, word
from disque_py.client.request import Lane, Request
from disque_py.client.results import Job
from disque_py.client.spans import Span, float_seconds, whole
from disque_py.event_format import COMPLETED, STATUS_NAMES, JobStatus

# The end of a job; or, at a time-out, the status that it has.
EndStatus: TypeAlias = JobStatus | Literal["expired", "unknown"]
UNKNOWN: Final = "unknown"
# Statuses of jobs that are over. "expired" is the last name of the table.
OVER: Final = frozenset((*STATUS_NAMES[COMPLETED:], UNKNOWN))


@dataclass(frozen=True, slots=True)
class JobEnd:
    """One job in the answer to WAITJOB.

    id       id of the job
    status   the end of the job; "unknown": no node knows it. After a time-out, or with `first`, it may be a status that
             is no end
    result   the bytes that it was acknowledged with; None without any
    error    the reason of an errored job; None without one
    """

    id: str
    status: EndStatus
    result: bytes | None
    error: str | None

    @property
    def is_over(self) -> bool:
        """Whether the job is over, or unknown."""
        return self.status in OVER


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """The answer to BATCH SHOW and BATCH WAIT: the jobs of a batch by status.

    name       name of the batch
    closed     whether the batch takes no more jobs
    total      number of all jobs that were ever added
    invisible_or_pending, running, completed, canceled, errored, expired   numbers of jobs by status
    done       whether it is closed, and each job is over or errored
    callback   the id of the job that was added at the end; None if there is none
    more       fields that this library does not know
    """

    name: str
    closed: bool
    total: int
    invisible_or_pending: int
    running: int
    completed: int
    canceled: int
    errored: int
    expired: int
    done: bool
    callback: str | None
    more: dict[str, Any] = field(default_factory=dict, repr=False)


def _milliseconds(timeout: Span | None) -> int:
    """Return a time-out in milliseconds, at least one; 0 for none. Raises ValueError for an infinite one."""
    if timeout is None:
        return 0
    wait_ms = 1000 * float_seconds("timeout", timeout)
    if not math.isfinite(wait_ms):
        raise ValueError(f"timeout must be finite, or None, not {timeout}")
    return max(1, round(wait_ms))


def _id(job: JobRef) -> bytes:
    return job.id.encode() if isinstance(job, Job) else word(job)


def wait_jobs(*jobs: JobRef, timeout: Span | None = None, first: bool = False) -> Request[list[JobEnd]]:
    """Wait until all of these jobs are over (WAITJOB) → the end of each, in the order of the arguments.

    jobs      jobs, or their ids; at most 1024
    timeout   seconds to wait, with a fraction, or a timedelta; None, the default: for ever. After a time-out the answer
              has the statuses of that moment
    first     True: wait only until one of them is over. False by default

    Any node will do. Raises BadIdError; ValueError without a job, or for a time-out that is not finite.

        first, second = client.wait_jobs(one, other, timeout=30)
    """
    if not jobs:
        raise ValueError("wait_jobs needs a job")
    wait_ms = _milliseconds(timeout)
    argv = (b"WAITJOB", *map(_id, jobs), *((b"ANY",) if first else ()), b"TIMEOUT", b"%d" % wait_ms)
    return Request(
        argv,
        _ends,
        lane=Lane.OWN,
        wait_ms=wait_ms,
        wait_word=len(argv) - 1,
        goes_on=_none_is_over if first else _some_are_open,
    )


def _is_over(end: Any) -> bool:
    """Return whether a job is over. At the end of a slice, "unknown" may mean that its node could not be asked."""
    status = text(end[1])
    return status in OVER and status != UNKNOWN


def _some_are_open(reply: Reply) -> bool:
    return not all(map(_is_over, reply))


def _none_is_over(reply: Reply) -> bool:
    return not any(map(_is_over, reply))


def _ends(reply: Reply) -> list[JobEnd]:
    # The node sends no other status than those of JobStatus, which a type checker can't see.
    return [
        JobEnd(text(job_id), text(status), result, None if error is None else error.decode("utf-8", "replace"))  # type: ignore[arg-type]
        for job_id, status, result, error, *_ in reply
    ]


def progress(
    job: JobRef,
    percent: int,
    note: str | bytes | None = None,
    *,
    attempt: int | None = None,
    fence: int | None = None,
) -> Request[str]:
    """Report how far the work on a job is, to the node that delivered it (PROGRESS) → OK.

    job       a job, or its id
    percent   0 to 100
    note      at most 256 bytes that say more; None by default
    attempt   the number of the delivery (`Job.attempt`); by default any delivery
    fence     the fence of the delivery's claim; by default that of a `Job` (`Job.fence`)

    Raises NoJobError, BadIdError, JobCanceledError if the job was canceled, StaleError if a later delivery than
    `attempt` is known, and FencedError if a later claim is known. A percentage or a note that the node refuses raises
    ReplyError. A number that is not whole raises ValueError.

        client.progress(job, 40, "page 4 of 10")
    """
    argv = [b"PROGRESS", _id(job), b"%d" % whole("percent", percent)]
    if note is not None:
        argv.append(word(note))
    argv += of_delivery((job,), attempt, fence)
    return Request(tuple(argv), text, node=job.node if isinstance(job, Job) else None, is_consumers=True)


def batch_info(name: str | bytes) -> Request[BatchInfo | None]:
    """Count the jobs of a batch by status (BATCH SHOW) → a `BatchInfo`; None if there is no such batch.

    name   name of the batch

    Raises ReplyError for a name that no batch can have.

        client.batch_info("upload-77").completed
    """
    return Request((b"BATCH", b"SHOW", word(name)), _info)


def wait_batch(name: str | bytes, timeout: Span | None = None) -> Request[BatchInfo | None]:
    """Wait until a batch is done (BATCH WAIT) → a `BatchInfo`; None if the batch was deleted meanwhile.

    name      name of the batch
    timeout   seconds to wait, with a fraction, or a timedelta; None, the default: for ever. Look at `BatchInfo.done`
              afterwards

    Raises ReplyError if there is no such batch, ValueError for a time-out that is not finite.

        client.wait_batch("upload-77", timeout=60).done
    """
    wait_ms = _milliseconds(timeout)
    argv = (b"BATCH", b"WAIT", word(name), b"TIMEOUT", b"%d" % wait_ms)
    return Request(argv, _info, lane=Lane.OWN, wait_ms=wait_ms, wait_word=4, goes_on=_is_open)


def _is_open(reply: Reply) -> bool:
    info = _info(reply)
    return info is not None and not info.done


def close_batch(name: str | bytes, callback: tuple[str | bytes, Body] | None = None) -> Request[str]:
    """Close a batch, so that it takes no more jobs and can be done (BATCH CLOSE) → OK.

    name       name of the batch
    callback   queue and body of the job that is added when the batch is done; None, the default: none. If the batch is
               closed again, the first callback stays

    Raises ReplyError if there is no such batch.

        client.close_batch("upload-77", callback=("mail", "upload 77 is ready"))
    """
    argv: tuple[bytes, ...] = (b"BATCH", b"CLOSE", word(name))
    if callback is not None:
        argv += (b"CALLBACK", word(callback[0]), word(callback[1]))
    return Request(argv, text, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)


def delete_batch(name: str | bytes) -> Request[bool]:
    """Delete a batch (BATCH DEL) → whether there was such a batch. Its jobs stay.

    name   name of the batch

    Raises ReplyError for a name that no batch can have.

        client.delete_batch("upload-77")
    """
    return Request((b"BATCH", b"DEL", word(name)), bool, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)


def batches(pattern: str | bytes = "*") -> Request[list[str]]:
    """List the names of batches (BATCH LIST) → the names, sorted.

    pattern   only names that match it, such as `upload-*`; all names by default

        client.batches("upload-*")
    """
    return Request((b"BATCH", b"LIST", word(pattern)), lambda reply: [text(name) for name in reply])


def _info(reply: Reply) -> BatchInfo | None:
    if reply is None:
        return None
    pairs = {text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    callback = pairs.pop("callback", None)
    return BatchInfo(
        name=text(pairs.pop("name")),
        closed=bool(pairs.pop("closed")),
        total=pairs.pop("total"),
        invisible_or_pending=pairs.pop("invisible-or-pending"),
        running=pairs.pop("running"),
        completed=pairs.pop("completed"),
        canceled=pairs.pop("canceled"),
        errored=pairs.pop("errored"),
        expired=pairs.pop("expired"),
        done=bool(pairs.pop("done")),
        callback=None if callback is None else text(callback),
        more=pairs,
    )
