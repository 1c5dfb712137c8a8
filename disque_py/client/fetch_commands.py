"""GETJOB, and the commands about all jobs that one token fetched. Pure. Spec R8.

A GETJOB that waits is sent with a connection of its own (`Lane.OWN`). If the connection breaks, the client may repeat a
GETJOB: jobs that were lost on the way come again when their leases are over. With a token, the repeated command returns
the same jobs. Only the node that delivered the jobs knows their token, so the commands about tokens name this node, or
the node that the client's consumers use. `jobs` makes GETJOB after GETJOB, for iterators and workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Unpack

from disque_py.client import results
from disque_py.client.address import Address
from disque_py.client.arguments import Where, add_pair, short_reason, where_words
from disque_py.client.job_options import FetchOptions
from disque_py.client.protocol import word
from disque_py.client.request import Lane, Repeat, Request
from disque_py.client.results import Job
from disque_py.client.spans import Milliseconds, Seconds, milliseconds, seconds, time_words, whole


def get_jobs(
    *queues: str | bytes,
    count: int = 1,
    timeout_ms: Milliseconds = 0,
    nohang: bool = False,
    withcounters: bool = False,
    withmeta: bool = False,
    withlease: bool = False,
    lease: Seconds | None = None,
    where: Where | None = None,
    match: Iterable[str | bytes] | None = None,
    token: str | bytes | None = None,
    node: Address | None = None,
) -> Request[list[Job]]:
    """Fetch jobs from queues, or wait for one (GETJOB) → up to `count` jobs; empty if none came in time.

    queues         names of queues; jobs of the first queue come before those of the next
    count          number of jobs at most, 1 by default. A call that had to wait gets one job, with any count
    timeout_ms     milliseconds to wait for the first job; 0, the default, waits for ever
    nohang         True: do not wait at all. False by default
    withcounters   True: fill in `Job.nacks` and `Job.additional_deliveries`
    withmeta       True: fill in `Job.meta`
    withlease      True: fill in `Job.lease_ms` and `Job.attempt`
    lease          seconds for which these deliveries last; by default each job's RETRY
    where          names and values: only jobs whose metadata have all these pairs. None, the default: any job
    match          patterns instead of names, such as `["mail.*"]`, 16 at most: jobs of every queue whose name matches,
                   also of queues that are created later. None by default
    token          a name for this answer, none by default. If the call is repeated with the same token on the same
                   node, it gets the same jobs, as long as they are leased. `ack_token`, `nack_token` and `extend_token`
                   work on all of them. With a token or a lease, jobs of RETRY 0 are skipped
    node           ask this node only. A token belongs to the node that answered (`Job.node`). By default the client
                   chooses

    If the connection breaks while the call waits, the client opens another one. Jobs that are lost in flight come again
    after their RETRY. In the asyncio client the call may be cancelled: the client then puts back the jobs in flight.
    With a token it puts back nothing, because a repetition may have the same jobs already.

    Raises ValueError without a queue, or for a number that is not whole; TypeError for `match` that is no list.

        for job in client.get_jobs("mail", "news", count=10, timeout_ms=1000):
            print(job.body)
            client.ack(job)
    """
    if isinstance(match, (str, bytes)):
        raise TypeError("match is a list of patterns, not one pattern")
    patterns = () if match is None else tuple(map(word, match))
    if bool(queues) == bool(patterns):
        raise ValueError("GETJOB needs at least one queue, or one pattern and no queue")
    timeout = milliseconds("timeout_ms", timeout_ms)
    limit = whole("count", count)
    argv = [b"GETJOB"]
    wait_word: int | None = None
    if nohang:
        argv.append(b"NOHANG")
    else:
        argv += (b"TIMEOUT", b"%d" % timeout)
        wait_word = 2
    if limit != 1:
        argv += (b"COUNT", b"%d" % limit)
    if withcounters:
        argv.append(b"WITHCOUNTERS")
    if withmeta:
        argv.append(b"WITHMETA")
    if withlease:
        argv.append(b"WITHLEASE")
    if lease is not None:
        argv += time_words("lease", lease)
    add_pair(argv, b"TOKEN", token)
    argv += where_words(where)
    argv.append(b"FROMMATCH" if patterns else b"FROM")
    argv += patterns or [word(queue) for queue in queues]
    is_pinned, has_token = node is not None, token is not None
    if nohang:
        return Request(
            tuple(argv), results.jobs, node=node, is_consumers=True, is_pinned=is_pinned, has_token=has_token
        )
    return Request(
        tuple(argv),
        results.jobs,
        Repeat.SAFE,
        Lane.OWN,
        timeout,
        wait_word,
        node=node,
        is_consumers=True,
        is_pinned=is_pinned,
        has_token=has_token,
    )


def get_job(
    *queues: str | bytes,
    timeout_ms: Milliseconds = 0,
    nohang: bool = False,
    token: str | bytes | None = None,
    **options: Unpack[FetchOptions],
) -> Request[Job | None]:
    """Fetch one job from queues, or wait for it (GETJOB) → the job; None if none came in time.

    queues         names of queues; jobs of the first queue come before those of the next
    timeout_ms     milliseconds to wait for a job; 0, the default, waits for ever
    nohang         True: do not wait at all. False by default
    withcounters   True: fill in `Job.nacks` and `Job.additional_deliveries`
    withmeta       True: fill in `Job.meta`
    withlease      True: fill in `Job.lease_ms` and `Job.attempt`
    lease          seconds for which this delivery lasts; by default the job's RETRY
    where          names and values: only a job whose metadata have all these pairs. None, the default: any job
    match          patterns instead of names, such as `["mail.*"]`, 16 at most: jobs of every queue whose name matches,
                   also of queues that are created later. None by default
    token          a name for this answer: the same token on the same node gets the same job (see `get_jobs`). None by
                   default
    node           ask this node only; by default the client chooses

    Raises ValueError without a queue, or for a number that is not whole; TypeError for `match` that is no list.

        job = client.get_job("mail", timeout_ms=1000)
        if job is not None:
            client.ack(job)
    """
    ask = get_jobs(*queues, timeout_ms=timeout_ms, nohang=nohang, token=token, **options)
    return Request(
        ask.argv,
        results.first_job,
        ask.repeat,
        ask.lane,
        ask.wait_ms,
        ask.wait_word,
        node=ask.node,
        is_consumers=True,
        is_pinned=ask.is_pinned,
    )


def jobs(
    *queues: str | bytes,
    count: int = 1,
    idle_ms: Milliseconds = 0,
    **options: Unpack[FetchOptions],
) -> Request[list[Job]]:
    """Iterate over jobs: for ever, or until none came for `idle_ms`. The caller acknowledges each.

    queues         names of queues; jobs of the first queue come before those of the next
    count          number of jobs to fetch with one command at most, 1 by default
    idle_ms        milliseconds without a job after which the iterator ends; 0, the default: never
    withcounters   True: fill in `Job.nacks` and `Job.additional_deliveries`
    withmeta       True: fill in `Job.meta`
    withlease      True: fill in `Job.lease_ms` and `Job.attempt`
    lease          seconds for which each delivery lasts; by default the job's RETRY
    where          names and values: only jobs whose metadata have all these pairs. None, the default: any job
    match          patterns instead of names, such as `["mail.*"]`, 16 at most: jobs of every queue whose name matches,
                   also of queues that are created later. None by default
    node           ask this node only; by default the client chooses

    An iterator that ends early puts back the jobs that it has fetched but not handed out. It ends when its loop is
    left, when it is closed, and when the client is closed.

    Raises ValueError without a queue, or for a number that is not whole; TypeError for `match` that is no list.

        for job in client.jobs("mail", count=10, idle_ms=500):  # asyncio: async for
            print(job.body)
            client.ack(job)
    """
    return get_jobs(*queues, count=count, timeout_ms=milliseconds("idle_ms", idle_ms), **options)


def ack_token(*tokens: str | bytes, node: Address | None = None) -> Request[int]:
    """Acknowledge all jobs that are still leased under these tokens (ACKTOKEN) → their number.

    tokens   tokens of GETJOBs
    node     the node that answered the GETJOB. Other nodes don't know the token and answer 0. By default the client
             chooses

        jobs = client.get_jobs("mail", count=100, token="batch-7")
        client.ack_token("batch-7", node=jobs[0].node)
    """
    return _about_tokens(b"ACKTOKEN", tokens, node)


def nack_token(
    *tokens: str | bytes,
    delay: Seconds | None = None,
    reason: str | bytes | None = None,
    node: Address | None = None,
) -> Request[int]:
    """Put back all jobs that are still leased under these tokens (NACKTOKEN) → their number.

    tokens   tokens of GETJOBs
    delay    seconds until the next delivery, or a timedelta; by default the jobs' back-off, else that of their queue,
             else they are queued again immediately
    reason   the error, which SHOW reports until the next NACK; none by default
    node     the node that answered the GETJOB; by default the client chooses
    """
    request = _about_tokens(b"NACKTOKEN", tokens, node)
    if delay is not None:
        request.argv += time_words("delay", delay)
    if reason is not None:
        request.argv += (b"REASON", short_reason(reason))
    return request


# The parameter shadows the function of that name.
_as_seconds: Final = seconds


def extend_token(token: str | bytes, seconds: Seconds, *, node: Address | None = None) -> Request[int]:
    """Extend all leases that still run under this token (EXTENDTOKEN) → their number.

    token     the token of a GETJOB
    seconds   seconds that the leases last from now
    node      the node that answered the GETJOB; by default the client chooses

    Raises ValueError for a number that is not whole.
    """
    return _about_tokens(b"EXTENDTOKEN", (token, b"%d" % _as_seconds("seconds", seconds)), node)


def _about_tokens(name: bytes, argv: Iterable[str | bytes], node: Address | None) -> Request[int]:
    is_pinned = node is not None
    return Request((name, *map(word, argv)), int, Repeat.SAFE, node=node, is_consumers=True, is_pinned=is_pinned)
