"""Commands about jobs that exist: their ends, their leases, their place in the queue, and a look at them. Pure.

A command about jobs goes to the node that delivered them, because that node knows their leases.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from disque_py.client import results
from disque_py.client.address import Address
from disque_py.client.arguments import JobRef, add_pair, short_reason
from disque_py.client.job_options import of_delivery
from disque_py.client.protocol import Reply, text, word
from disque_py.client.request import Repeat, Request, words
from disque_py.client.results import Job, JobInfo
from disque_py.client.spans import Seconds, milliseconds, seconds, time_words, whole


def by_node(jobs: Iterable[JobRef]) -> dict[Address | None, list[JobRef]]:
    """Return jobs grouped by the node that delivered them. That node knows their lease."""
    groups: dict[Address | None, list[JobRef]] = {}
    last: Address | None = None
    group: list[JobRef] | None = None
    for job in jobs:
        node = job.node if isinstance(job, Job) else None
        if group is None or node is not last:  # Jobs of one answer have the same object, so it is rarely hashed.
            last, group = node, groups.setdefault(node, [])
        group.append(job)
    return groups


def _about_jobs(name: bytes, jobs: tuple[JobRef, ...], repeat: Repeat) -> Request[int]:
    node: Address | None = None
    argv = [name]
    for job in jobs:
        if isinstance(job, Job):
            node = job.node
            argv.append(job.id.encode())
        else:
            argv.append(word(job))
    return Request(tuple(argv), int, repeat, node=node, is_consumers=True, about=jobs)


def ack(
    *jobs: JobRef, attempt: int | None = None, fence: int | None = None, result: str | bytes | None = None
) -> Request[int]:
    """Acknowledge jobs: they are done (ACKJOB) → the number of jobs that were known.

    Unknown jobs are acknowledged, too. Each job is acknowledged at the node that delivered it.

    jobs      jobs, or their ids
    attempt   the number of the delivery (`Job.attempt`), for exactly one job: if a later delivery is known, nothing is
              done and the answer is 0. By default the job is acknowledged, whichever delivery it is
    fence     the fence of the delivery's claim, for exactly one job; by default that of a single `Job` (`Job.fence`)
    result    the result of exactly one job, for clients that wait for the job; None, the default: no result

    Raises BadIdError; FencedError if a later claim is known; ValueError for `attempt`, `fence` or `result` with several
    jobs.

        client.ack(job)
        client.ack(job, attempt=job.attempt, result=b"42")
    """
    request = _about_jobs(b"ACKJOB", jobs, Repeat.SAFE)
    request.argv += of_delivery(jobs, attempt, fence)
    if result is not None:
        if len(jobs) != 1:
            raise ValueError("result is that of exactly one job")
        request.argv += (b"RESULT", word(result))
    return request


def fast_ack(*jobs: JobRef) -> Request[int]:
    """Acknowledge jobs with fewer messages (FASTACK) → the number of jobs that were known.

    It is cheaper than `ack`, but nodes that fail cause more second deliveries.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return _about_jobs(b"FASTACK", jobs, Repeat.SAFE)


def nack(
    *jobs: JobRef,
    delay: Seconds | None = None,
    reason: str | bytes | None = None,
    final: bool = False,
    attempt: int | None = None,
    fence: int | None = None,
) -> Request[int]:
    """Give jobs back that could not be processed (NACK) → the number of jobs that were given back.

    Each job is given back at the node that delivered it.

    jobs      jobs that could not be processed, or their ids. Jobs that the node does not know are not counted
    delay     seconds until the next delivery, or a timedelta; by default the job's back-off, else that of its queue,
              else it is queued again immediately
    reason    the error, which SHOW reports until the next NACK; none by default. Longer ones are cut to 1024 bytes
    final     True: spend all attempts that are left, so that the job is errored, or a dead letter. False by default
    attempt   the number of the delivery (`Job.attempt`), for exactly one job: if that delivery is over, nothing is done
              and the answer is 0. So the client may send the command again after a failure. By default the NACK is for
              any delivery, and the client does not send it again, because a second NACK could hit the next delivery
    fence     the fence of the delivery's claim, for exactly one job; by default that of a single `Job` (`Job.fence`)

    Raises BadIdError, OutOfMemoryError; FencedError if a later claim is known; ValueError for `attempt` or `fence` with
    several jobs.

        client.nack(job, delay=30, reason="the mail server is busy")
    """
    request = _about_jobs(b"NACK", jobs, Repeat.ASK if attempt is None else Repeat.SAFE)
    words: list[bytes] = []
    if delay is not None:
        words += time_words("delay", delay)
    if reason is not None:
        words += (b"REASON", short_reason(reason))
    if final:
        words.append(b"FINAL")
    request.argv += (*words, *of_delivery(jobs, attempt, fence))
    return request


def cancel(*jobs: JobRef, fence: int | None = None) -> Request[int]:
    """Cancel jobs, so that none is delivered again (CANCELJOB) → the number of jobs that were not over.

    The jobs may be on any linked node.

    jobs    jobs, or their ids
    fence   the fence of the claim of exactly one job's delivery: this claim ends, too. None, the default: no claim ends

    A worker that runs a canceled job learns of it with its next WORKING.

    Raises BadIdError; FencedError if a later claim is known.

        client.cancel(job_id)
    """
    request = _about_jobs(b"CANCELJOB", jobs, Repeat.SAFE)
    if fence is not None:
        request.argv += of_delivery(jobs, None, fence)
    return request


def enqueue(*jobs: JobRef) -> Request[int]:
    """Queue jobs now (ENQUEUE) → the number of jobs that were put into their queue.

    jobs   jobs, or their ids. An errored job gets fresh attempts

    Raises BadIdError, PausedError, OutOfMemoryError.

        client.enqueue(job_id)
    """
    return _about_jobs(b"ENQUEUE", jobs, Repeat.ASK)


def dequeue(*jobs: JobRef) -> Request[int]:
    """Take jobs out of their queue on the node asked (DEQUEUE) → the number of jobs that were taken out.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return _about_jobs(b"DEQUEUE", jobs, Repeat.NEVER)


def delete(*jobs: JobRef) -> Request[int]:
    """Remove jobs from the node asked only (DELJOB) → the number of jobs that were removed.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return _about_jobs(b"DELJOB", jobs, Repeat.NEVER)


def promote(*jobs: JobRef) -> Request[int]:
    """End the delay of jobs, so that they are pending (PROMOTE) → the number of jobs that had one.

    Any node will do.

    jobs   jobs, or their ids

    Raises BadIdError, OutOfMemoryError, and UnreachableError if no node that holds a job can be asked.
    """
    return _about_jobs(b"PROMOTE", jobs, Repeat.SAFE)


def reschedule(job: JobRef, *, delay: Seconds | None = None, priority: int | None = None) -> Request[bool]:
    """Give a waiting job another delay or priority (RESCHEDULE) → whether that was possible.

    Any node will do.

    job        a job, or its id
    delay      seconds from now until it is pending, or a timedelta of milliseconds; 0: immediately. None, the default,
               keeps its delay
    priority   its new priority, a lower number is served first. None, the default, keeps its priority

    The answer is False if a worker has the job, or if the job is errored or over. Raises BadIdError, OutOfMemoryError,
    UnreachableError, and ValueError if neither option is given.

        client.reschedule(job, delay=60)
    """
    if delay is None and priority is None:
        raise ValueError("reschedule needs delay or priority")
    argv = list(words(b"RESCHEDULE", job.id if isinstance(job, Job) else job))
    if isinstance(delay, timedelta):
        argv += (b"DELAYMS", b"%d" % milliseconds("delay", delay))
    elif delay is not None:
        argv += (b"DELAY", b"%d" % seconds("delay", delay))
    add_pair(argv, b"PRIORITY", None if priority is None else whole("priority", priority))
    return Request(tuple(argv), bool, node=job.node if isinstance(job, Job) else None)


def move_jobs(*jobs: JobRef, to: str | bytes) -> Request[int]:
    """Move jobs to another queue (MOVEJOB) → the number of jobs that were moved.

    Any node will do.

    jobs   jobs, or their ids
    to     the queue that they go to

    A job is not counted if a worker has it, if it is over, or if it is in that queue already. Raises BadIdError,
    OutOfMemoryError, and UnreachableError if no node that holds a job can be asked.

        client.move_jobs(job, to="mail-slow")
    """
    request = _about_jobs(b"MOVEJOB", jobs, Repeat.SAFE)
    request.argv += words(b"TO", to)
    return request


def working(
    job: JobRef, seconds: Seconds | None = None, *, attempt: int | None = None, fence: int | None = None
) -> Request[int]:
    """Start the lease of a job again (WORKING) → seconds until its next delivery, rounded up.

    job       a job, or its id
    seconds   seconds from now, or a timedelta; by default the job's RETRY
    attempt   the number of the delivery (`Job.attempt`); by default any delivery
    fence     the fence of the delivery's claim; by default that of a `Job` (`Job.fence`)

    Raises NoJobError, TooLateError, BadIdError, JobCanceledError if the job was canceled, StaleError if a later
    delivery than `attempt` is known, and FencedError if a later claim is known. A claim that could not be renewed
    raises NoQuorumError. A number that is not whole raises ValueError. If the node of the job is silent, another one is
    asked after the client's `timeout`, which should be below a third of the lease.

        client.working(job)  # another lease of the job's RETRY, from now
    """
    request = _about_jobs(b"WORKING", (job,), Repeat.SAFE)
    if seconds is not None:
        name, span = time_words("lease", seconds)
        if name == b"LEASEMS":
            request.argv += (name, span)
            request.read = _seconds_of_ms
        else:
            request.argv += (span,)
    request.argv += of_delivery((job,), attempt, fence)
    return request


def _seconds_of_ms(reply: Reply) -> int:
    return -(-int(reply) // 1000)


def show(job: JobRef, *, cluster: bool = False) -> Request[JobInfo | None]:
    """Describe a job (SHOW) → the job as the node sees it; None if the node does not know it.

    job       a job, or its id
    cluster   True: ask all linked nodes, and return the view of the node that knows most; None if no node knows the
              job. This takes up to a second. False by default

    Raises BadIdError.

        info = client.show(job_id, cluster=True)
        print(info.status, info.attempts_left) if info else print("unknown")
    """
    ask = _about_jobs(b"SHOW", (job,), Repeat.SAFE)
    return Request((*ask.argv, b"CLUSTER") if cluster else ask.argv, results.job_info, node=ask.node, is_consumers=True)


def job_ids(queue: str | bytes, keys: Iterable[str | bytes]) -> Request[list[str | None]]:
    """Find the jobs that keys name (JOBID) → the id for each key; None for a key that no node knows.

    Nothing is created.

    queue   name of the queue that the keys were used with
    keys    keys, one at least

    Raises UnreachableError if a node could not be asked and no other one knows a key.

        first, second = client.job_ids("orders", ["order-17", "order-18"])
    """
    return Request(words(b"JOBID", queue, *keys), _ids)


def _ids(reply: Reply) -> list[str | None]:
    return [None if job_id is None else text(job_id) for job_id in reply]
