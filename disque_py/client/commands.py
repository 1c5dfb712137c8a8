"""The commands: functions that make a Request of typed arguments.

AsyncDisque, Disque and the pipelines derive their methods from these functions (faces.py). So each signature and its
documentation are written here only. Spans of time are whole numbers or a `timedelta` (spans.py): seconds where Disque
takes seconds, milliseconds where an argument ends in `_ms`. Commands without a function here go through `execute`.
Pure. Spec R8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from disque_py.client import results
from disque_py.client.address import Address
from disque_py.client.backoff import Backoff
from disque_py.client.protocol import Reply, Word, text, word
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.results import (
    ClusterNode,
    Hello,
    Job,
    JobInfo,
    LockGrant,
    LockInfo,
    QueueSettings,
    QueueStat,
    Task,
    Voters,
)
from disque_py.client.spans import Milliseconds, Seconds, milliseconds, seconds, time_words, whole
from disque_py.event_format import JobStatus

Body: TypeAlias = "bytes | bytearray | memoryview | str"
JobRef: TypeAlias = "Job | str | bytes"
Meta: TypeAlias = Mapping[str, str | bytes]
Where: TypeAlias = "Mapping[str, str | bytes] | Mapping[bytes, str | bytes]"
TaskRef: TypeAlias = "Task | str | bytes"
PauseState: TypeAlias = Literal["in", "out", "all", "none"]
# A setting's default.
Default: TypeAlias = Literal[""]
JobState: TypeAlias = Literal["wait-repl", "active", "queued", "acked"]
# A policy as text, as `exponential:1000:60000:20`, or as an object.
BackoffPolicy: TypeAlias = "str | Backoff"

# The default time for the copies of a job. In Disque's protocol it is mandatory; here it has a default.
ADD_TIMEOUT_MS: Final = 5_000
# The most bytes of a NACK's reason.
REASON_BYTES_MAX: Final = 1024
# A change of queue settings waits so long for other nodes, besides the disk.
QUEUE_SET_MS: Final = 1_000
# A claim that the voters have not decided within this time has failed (spec CL8).
CLAIM_MS: Final = 1_000


def add_options(
    *,
    replicate: int | Literal["quorum"] | None = None,
    zones: int | None = None,
    delay: Seconds | None = None,
    retry: Seconds | None = None,
    ttl: Seconds | None = None,
    maxlen: int | None = None,
    async_: bool = False,
    priority: int | None = None,
    meta: Meta | None = None,
    key: str | bytes | None = None,
    window: Seconds | None = None,
    replace: bool = False,
    attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
    batch: str | bytes | None = None,
) -> tuple[bytes, ...]:
    """Return ADDJOB's words after the timeout. None leaves the choice to the node."""
    options: list[bytes] = []
    if replicate is not None:
        options += (b"REPLICATE", b"QUORUM" if replicate == "quorum" else b"%d" % whole("replicate", replicate))
    if zones is not None:
        options += (b"ZONES", b"%d" % whole("zones", zones))
    for name, span in (("delay", delay), ("retry", retry), ("ttl", ttl)):
        if span is not None:
            options += time_words(name, span)
    for name, value in (("maxlen", maxlen), ("priority", priority), ("attempts", attempts)):
        if value is not None:
            options += (name.upper().encode(), b"%d" % whole(name, value))
    if backoff is not None:
        options += (b"BACKOFF", str(backoff).encode())
    if async_:
        options.append(b"ASYNC")
    for name_of_pair, value_of_pair in (meta or {}).items():
        options += (b"META", word(name_of_pair), word(value_of_pair))
    if key is not None:
        options += (b"KEY", word(key))
    if batch is not None:
        options += (b"BATCH", word(batch))
    if window is not None:
        options += (b"WINDOW", b"%d" % whole("window", seconds("window", window)))
    if replace:
        options.append(b"REPLACE")
    return tuple(options)


def add_job(
    queue: str | bytes,
    body: Body,
    *,
    timeout_ms: Milliseconds = ADD_TIMEOUT_MS,
    replicate: int | Literal["quorum"] | None = None,
    zones: int | None = None,
    delay: Seconds | None = None,
    retry: Seconds | None = None,
    ttl: Seconds | None = None,
    maxlen: int | None = None,
    async_: bool = False,
    priority: int | None = None,
    meta: Meta | None = None,
    key: str | bytes | None = None,
    window: Seconds | None = None,
    replace: bool = False,
    attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
    batch: str | bytes | None = None,
    retry_unsafe: bool | None = None,
) -> Request[str]:
    """ADDJOB → the job's id.

    queue          name of the queue
    body           the job's content; text becomes UTF-8
    timeout_ms     milliseconds in which the node has to make the copies, 5000 by default; 0 waits for ever
    replicate      number of copies, or "quorum": a majority of the node's data centre; by default the node chooses
    zones          number of zones that have a copy before the answer; by default any number
    delay          seconds until the job is queued; by default it is queued at once. Times may be a `timedelta`, which
                   may have milliseconds
    retry          seconds without an ack after which the job is queued again; by default the node chooses.
                   0: it is delivered at most once
    ttl            seconds after which the job is dropped; by default the node chooses
    maxlen         refuse the job if the queue has this many jobs or more; by default there is no limit
    async_         answer before the copies are made
    priority       a lower number is served first; by default the creation time in Unix milliseconds
    meta           pairs of names and values that travel with the job, none by default
    key            one job per queue and key: if the key has a job already, the answer is that job's id. None by default
    window         whole seconds from the creation of the key's first job in which the key is used; 0: until that job is
                   over or errored. By default until its TTL is over. Needs a key
    replace        if the key's job still waits for its delay, the new job takes its place. Needs a key and a delay.
                   False by default
    attempts       deliveries after which a job that failed is errored, or a dead letter; 0: any number. By default as
                   the queue's settings say, else any number
    backoff        the delay after a NACK without one: a `Backoff`, or text as `exponential:1000:60000:20`. By default
                   as the queue's settings say, else none
    batch          name of the batch that the job belongs to; None, the default: none
    retry_unsafe   send the command again when its answer was lost. Then the job may exist twice. None, the default,
                   takes the client's setting. With a key and no window it is always sent again, because a key prevents
                   a second job

    Raises NoReplError, PausedError, MaxLenError, TooBigError, NoKeyError, OutOfMemoryError, UnreachableError;
    ConnectionLostError when the connection broke and the job may exist; ValueError for a number that is not whole.
    """
    options = add_options(
        replicate=replicate,
        zones=zones,
        delay=delay,
        retry=retry,
        ttl=ttl,
        maxlen=maxlen,
        async_=async_,
        priority=priority,
        meta=meta,
        key=key,
        window=window,
        replace=replace,
        attempts=attempts,
        backoff=backoff,
        batch=batch,
    )
    timeout = milliseconds("timeout_ms", timeout_ms)
    argv = (b"ADDJOB", word(queue), word(body), b"%d" % timeout, *options)
    repeat = _allowed(retry_unsafe) if key is None or window is not None else Repeat.SAFE
    return Request(argv, results.job_id, repeat, Lane.ADDS, timeout, awaits_nodes=replicate is None)


def _allowed(retry_unsafe: bool | None) -> Repeat:
    if retry_unsafe is None:
        return Repeat.ASK
    return Repeat.SAFE if retry_unsafe else Repeat.NEVER


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
    """GETJOB → up to `count` jobs; an empty list when none came in time.

    queues         names of queues; jobs of the first are given before those of the next
    count          number of jobs at most, 1 by default. A call that had to wait gets one job, with any count
    timeout_ms     milliseconds to wait for the first job; 0, the default, waits for ever
    nohang         do not wait at all
    withcounters   `Job.nacks` and `Job.additional_deliveries` are filled in
    withmeta       `Job.meta` is filled in
    withlease      `Job.lease_ms` and `Job.attempt` are filled in
    lease          seconds for which these deliveries last; by default each job's RETRY
    where          pairs of names and values; only jobs whose metadata have all of them. None, the default, takes any
                   job
    match          patterns in the place of names, as `["mail.*"]`, 16 at most: jobs of every queue whose name matches,
                   also of queues that come into being later. None by default
    token          none by default. The same token on the same node is answered with the same jobs, as long as they
                   are leased. `ack_token`, `nack_token` and `extend_token` work on all of them. With a token or a
                   lease, jobs of RETRY 0 are skipped
    node           ask this node only. A token belongs to the node that answered (`Job.node`). By default the client
                   chooses

    A connection that breaks while the call waits is replaced. Jobs that are lost in flight come again after their
    RETRY. Cancelling the call is safe in the asyncio client: it puts back the jobs in flight.

    Raises ValueError for a number that is not whole, or without a queue.
    """
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
    _add(argv, b"TOKEN", token)
    argv += _where(where)
    argv.append(b"FROMMATCH" if patterns else b"FROM")
    argv += patterns or [word(queue) for queue in queues]
    is_pinned = node is not None
    if nohang:
        return Request(tuple(argv), results.jobs, node=node, is_consumers=True, is_pinned=is_pinned)
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
    )


def get_job(
    *queues: str | bytes,
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
) -> Request[Job | None]:
    """GETJOB → one job, or None when none came in time.

    queues         names of queues; jobs of the first are given before those of the next
    timeout_ms     milliseconds to wait for a job; 0, the default, waits for ever
    nohang         do not wait at all
    withcounters   `Job.nacks` and `Job.additional_deliveries` are filled in
    withmeta       `Job.meta` is filled in
    withlease      `Job.lease_ms` and `Job.attempt` are filled in
    lease          seconds for which this delivery lasts; by default the job's RETRY
    where          pairs of names and values; only a job whose metadata have all of them. None, the default, takes any
                   job
    match          patterns in the place of names, as `["mail.*"]`, 16 at most: jobs of every queue whose name matches,
                   also of queues that come into being later. None by default
    token          none by default. The same token on the same node is answered with the same job (see `get_jobs`)
    node           ask this node only; by default the client chooses

    Raises ValueError for a number that is not whole, or without a queue.
    """
    ask = get_jobs(
        *queues,
        timeout_ms=timeout_ms,
        nohang=nohang,
        withcounters=withcounters,
        withmeta=withmeta,
        withlease=withlease,
        lease=lease,
        where=where,
        match=match,
        token=token,
        node=node,
    )
    return Request(
        ask.argv,
        results.first_job,
        ask.repeat,
        ask.lane,
        ask.wait_ms,
        ask.wait_word,
        node=node,
        is_consumers=True,
        is_pinned=ask.is_pinned,
    )


def jobs(
    *queues: str | bytes,
    count: int = 1,
    idle_ms: Milliseconds = 0,
    withcounters: bool = False,
    withmeta: bool = False,
    withlease: bool = False,
    lease: Seconds | None = None,
    where: Where | None = None,
    match: Iterable[str | bytes] | None = None,
    node: Address | None = None,
) -> Request[list[Job]]:
    """Iterate over jobs: for ever, or until none came for `idle_ms`. The caller acknowledges each.

    queues         names of queues; jobs of the first are given before those of the next
    count          number of jobs that are fetched at once at most, 1 by default
    idle_ms        milliseconds without a job after which the iterator ends; 0, the default: never
    withcounters   `Job.nacks` and `Job.additional_deliveries` are filled in
    withmeta       `Job.meta` is filled in
    withlease      `Job.lease_ms` and `Job.attempt` are filled in
    lease          seconds for which each delivery lasts; by default the job's RETRY
    where          pairs of names and values; only jobs whose metadata have all of them. None, the default, takes any
                   job
    match          patterns in the place of names, as `["mail.*"]`, 16 at most: jobs of every queue whose name matches,
                   also of queues that come into being later. None by default
    node           ask this node only; by default the client chooses

    An iterator that ends early puts back the jobs that it has fetched and not handed out. It ends when its loop is
    left, when it is closed, and when the client is closed.

    Raises ValueError for a number that is not whole, or without a queue.
    """
    return get_jobs(
        *queues,
        count=count,
        timeout_ms=milliseconds("idle_ms", idle_ms),
        withcounters=withcounters,
        withmeta=withmeta,
        withlease=withlease,
        lease=lease,
        where=where,
        match=match,
        node=node,
    )


def by_node(jobs: Iterable[JobRef]) -> dict[Address | None, list[JobRef]]:
    """Return jobs grouped by the node that delivered them. That node knows their lease."""
    groups: dict[Address | None, list[JobRef]] = {}
    for job in jobs:
        groups.setdefault(job.node if isinstance(job, Job) else None, []).append(job)
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
    """ACKJOB → number of jobs that were known at the nodes that delivered them. Unknown jobs are acknowledged too.

    jobs      jobs, or their ids
    attempt   the number of the delivery of exactly one job (`Job.attempt`): if a later delivery is known, nothing is
              done and the answer is 0. By default the job is acknowledged whichever delivery it is
    fence     the fence of the delivery's claim, of exactly one job; by default that of a single `Job` (`Job.fence`)
    result    the result of exactly one job, for clients that wait for it; None, the default: none

    Raises BadIdError; FencedError if a later claim is known; ValueError for `attempt`, `fence` or `result` with several
    jobs.
    """
    request = _about_jobs(b"ACKJOB", jobs, Repeat.SAFE)
    request.argv += _of_delivery(jobs, attempt, fence)
    if result is not None:
        if len(jobs) != 1:
            raise ValueError("result is that of exactly one job")
        request.argv += (b"RESULT", word(result))
    return request


def _of_delivery(jobs: tuple[JobRef, ...], attempt: int | None, fence: int | None) -> tuple[bytes, ...]:
    """Return the words that name one delivery. A single job under a claim has its fence with it."""
    words: tuple[bytes, ...] = ()
    if attempt is not None:
        words += (b"ATTEMPT", b"%d" % whole("attempt", attempt))
    if fence is None and len(jobs) == 1 and isinstance(jobs[0], Job):
        fence = jobs[0].fence
    if fence:
        words += (b"FENCE", b"%d" % whole("fence", fence))
    if words and len(jobs) != 1:
        raise ValueError("attempt and fence are about the delivery of exactly one job")
    return words


def fast_ack(*jobs: JobRef) -> Request[int]:
    """FASTACK → number of jobs that were known. It is cheaper than `ack`; failing nodes cause more second deliveries.

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
    """NACK, at the nodes that delivered the jobs → number of jobs that were given back.

    jobs      jobs that could not be processed, or their ids. Jobs that the node does not know are not counted
    delay     seconds until the next delivery, or a timedelta; by default the job's back-off decides, else its queue's,
              else it is queued at once
    reason    the error, which SHOW tells until the next NACK; none by default. Longer ones are cut to 1024 bytes
    final     spend all attempts that are left: the job is errored, or a dead letter
    attempt   the number of the delivery of exactly one job (`Job.attempt`): if that delivery is over, nothing is done
              and the answer is 0. So the client may repeat the command. By default any delivery is meant, and the
              client does not repeat it after a failure: a second NACK could hit the next delivery
    fence     the fence of the delivery's claim, of exactly one job; by default that of a single `Job` (`Job.fence`)

    Raises BadIdError, OutOfMemoryError; FencedError if a later claim is known; ValueError for `attempt` or `fence` with
    several jobs.
    """
    request = _about_jobs(b"NACK", jobs, Repeat.ASK if attempt is None else Repeat.SAFE)
    words: list[bytes] = []
    if delay is not None:
        words += time_words("delay", delay)
    if reason is not None:
        words += (b"REASON", _short_reason(reason))
    if final:
        words.append(b"FINAL")
    request.argv += (*words, *_of_delivery(jobs, attempt, fence))
    return request


def _short_reason(reason: str | bytes) -> bytes:
    """Return a reason as NACK takes it: UTF-8, and at most REASON_BYTES_MAX bytes."""
    whole_reason = reason.encode("utf-8", "replace") if isinstance(reason, str) else reason
    if len(whole_reason) <= REASON_BYTES_MAX:
        return whole_reason
    return whole_reason[:REASON_BYTES_MAX].decode("utf-8", "ignore").encode()


def cancel(*jobs: JobRef, fence: int | None = None) -> Request[int]:
    """CANCELJOB → number of jobs that were known, on any linked node, and not over. None of them is delivered again.

    jobs    jobs, or their ids
    fence   the fence of the claim of exactly one job's delivery, which ends, too; None, the default: no claim ends

    A worker that runs a canceled job hears of it with its next WORKING.

    Raises BadIdError; FencedError if a later claim is known.
    """
    request = _about_jobs(b"CANCELJOB", jobs, Repeat.SAFE)
    if fence is not None:
        request.argv += _of_delivery(jobs, None, fence)
    return request


def ack_token(*tokens: str | bytes, node: Address | None = None) -> Request[int]:
    """ACKTOKEN → number of jobs that were acknowledged: all that are still leased under these tokens.

    tokens   tokens of GETJOBs
    node     the node that answered the GETJOB. Other nodes don't know the token and answer 0. By default the client
             chooses
    """
    return _about_tokens(b"ACKTOKEN", tokens, node)


def nack_token(
    *tokens: str | bytes,
    delay: Seconds | None = None,
    reason: str | bytes | None = None,
    node: Address | None = None,
) -> Request[int]:
    """NACKTOKEN → number of jobs that were put back: all that are still leased under these tokens.

    tokens   tokens of GETJOBs
    delay    seconds until the next delivery, or a timedelta; by default the jobs' back-off decides, else their queue's,
             else they are queued at once
    reason   the error, which SHOW tells until the next NACK; none by default
    node     the node that answered the GETJOB; by default the client chooses
    """
    request = _about_tokens(b"NACKTOKEN", tokens, node)
    if delay is not None:
        request.argv += time_words("delay", delay)
    if reason is not None:
        request.argv += (b"REASON", _short_reason(reason))
    return request


# The parameter shadows the function of that name.
_as_seconds: Final = seconds


def extend_token(token: str | bytes, seconds: Seconds, *, node: Address | None = None) -> Request[int]:
    """EXTENDTOKEN → number of leases that were extended: all that still run under this token.

    token     the token of a GETJOB
    seconds   seconds that the leases last from now
    node      the node that answered the GETJOB; by default the client chooses

    Raises ValueError for a number that is not whole.
    """
    return _about_tokens(b"EXTENDTOKEN", (token, b"%d" % _as_seconds("seconds", seconds)), node)


def _about_tokens(name: bytes, argv: Iterable[str | bytes], node: Address | None) -> Request[int]:
    is_pinned = node is not None
    return Request((name, *map(word, argv)), int, Repeat.SAFE, node=node, is_consumers=True, is_pinned=is_pinned)


def enqueue(*jobs: JobRef) -> Request[int]:
    """ENQUEUE → number of jobs that were put into their queue.

    jobs   jobs, or their ids. An errored job gets fresh attempts

    Raises BadIdError, PausedError, OutOfMemoryError.
    """
    return _about_jobs(b"ENQUEUE", jobs, Repeat.ASK)


def dequeue(*jobs: JobRef) -> Request[int]:
    """DEQUEUE → number of jobs that were taken out of their queue, on the node asked.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return _about_jobs(b"DEQUEUE", jobs, Repeat.NEVER)


def delete(*jobs: JobRef) -> Request[int]:
    """DELJOB → number of jobs that were removed, on the node asked only.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return _about_jobs(b"DELJOB", jobs, Repeat.NEVER)


def promote(*jobs: JobRef) -> Request[int]:
    """PROMOTE → number of jobs whose delay was ended: they are pending now. Any node will do.

    jobs   jobs, or their ids

    Raises BadIdError, OutOfMemoryError, and UnreachableError if no node that holds a job can be asked.
    """
    return _about_jobs(b"PROMOTE", jobs, Repeat.SAFE)


def reschedule(job: JobRef, *, delay: Seconds | None = None, priority: int | None = None) -> Request[bool]:
    """RESCHEDULE → whether the waiting job has another delay or priority now. Any node will do.

    job        a job, or its id
    delay      seconds from now until it is pending, or a timedelta of milliseconds; 0: at once. None by default: as it
               is
    priority   its new priority, lower ones first. None by default: as it is

    False: a worker has the job, or it is errored or over. Raises BadIdError, OutOfMemoryError, UnreachableError, and
    ValueError if neither is given.

        client.reschedule(job, delay=60)
    """
    if delay is None and priority is None:
        raise ValueError("reschedule needs delay or priority")
    argv = list(words(b"RESCHEDULE", job.id if isinstance(job, Job) else job))
    if isinstance(delay, timedelta):
        argv += (b"DELAYMS", b"%d" % milliseconds("delay", delay))
    elif delay is not None:
        argv += (b"DELAY", b"%d" % seconds("delay", delay))
    _add(argv, b"PRIORITY", None if priority is None else whole("priority", priority))
    return Request(tuple(argv), bool, node=job.node if isinstance(job, Job) else None)


def working(
    job: JobRef, seconds: Seconds | None = None, *, attempt: int | None = None, fence: int | None = None
) -> Request[int]:
    """WORKING → seconds for which the job's next delivery is put off, rounded up.

    job       a job, or its id
    seconds   seconds from now, or a timedelta; by default the job's RETRY
    attempt   the number of the delivery (`Job.attempt`); by default any delivery is meant
    fence     the fence of the delivery's claim; by default that of a `Job` (`Job.fence`)

    Raises NoJobError, TooLateError, BadIdError; JobCanceledError if the job was canceled; StaleError if a later
    delivery than `attempt` is known; FencedError if a later claim is known; NoQuorumError if the claim could not be
    renewed; ValueError for a number that is not whole.
    """
    request = _about_jobs(b"WORKING", (job,), Repeat.SAFE)
    if seconds is not None:
        name, span = time_words("lease", seconds)
        if name == b"LEASEMS":
            request.argv += (name, span)
            request.read = _seconds_of_ms
        else:
            request.argv += (span,)
    request.argv += _of_delivery((job,), attempt, fence)
    return request


def _seconds_of_ms(reply: Reply) -> int:
    return -(-int(reply) // 1000)


def show(job: JobRef, *, cluster: bool = False) -> Request[JobInfo | None]:
    """SHOW → the job as the node sees it, None if the node does not know it.

    job       a job, or its id
    cluster   as the node sees it that knows most of the job; None if no linked node knows it. Takes up to a second

    Raises BadIdError.
    """
    ask = _about_jobs(b"SHOW", (job,), Repeat.SAFE)
    return Request((*ask.argv, b"CLUSTER") if cluster else ask.argv, results.job_info, node=ask.node, is_consumers=True)


def qlen(
    queue: str | bytes, *, where: Where | None = None, status: JobStatus | None = None, cluster: bool = False
) -> Request[int]:
    """QLEN → number of jobs of a queue.

    queue     name of the queue
    where     pairs of names and values; only jobs whose metadata have all of them count. None, the default, counts all
    status    jobs of this status; by default those that are pending
    cluster   on all linked nodes, each job once; by default on the node asked. Takes up to a second if a node is silent

    Example: `client.qlen("mail", where={"tenant": "a"})`
    """
    return Request(_of_status((*words(b"QLEN", queue), *_where(where)), status, cluster=cluster), int)


def qpeek(
    queue: str | bytes,
    count: int,
    *,
    where: Where | None = None,
    status: JobStatus | None = None,
    withmeta: bool = False,
    cluster: bool = False,
) -> Request[list[Job]]:
    """QPEEK → jobs of the queue, without fetching them.

    queue     name of the queue
    count     number of jobs at most: the oldest first, or with a negative count the newest first
    where     pairs of names and values; only jobs whose metadata have all of them. None, the default, shows any job
    status    jobs of this status; by default those that are pending
    withmeta  `Job.meta` is filled in
    cluster   of all linked nodes, in the queue's order; by default of the node asked. Takes up to a second if a node is
              silent
    """
    argv = (*words(b"QPEEK", queue, whole("count", count)), *_where(where))
    if withmeta:
        argv = (*argv, b"WITHMETA")
    return Request(_of_status(argv, status, cluster=cluster), results.jobs)


def queue_depths(
    queue: str | bytes,
    by: str | bytes,
    *,
    status: JobStatus | None = None,
    count: int = 100,
    cluster: bool = False,
) -> Request[dict[bytes | None, int]]:
    """QDEPTH → number of jobs of a queue for each value of one name of their metadata.

    queue     name of the queue
    by        name of the metadata
    status    jobs of this status; by default those that are pending
    count     number of values at most, 100 by default; those with the most jobs come first
    cluster   on all linked nodes, each job once; by default on the node asked. Takes up to a second if a node is silent

    Jobs without the name are counted under None, last.

    Example: `client.queue_depths("mail", "tenant")` → `{b"a": 12, b"b": 3, None: 1}`
    """
    argv = words(b"QDEPTH", queue, b"BY", by, b"COUNT", whole("count", count))
    return Request(_of_status(argv, status, cluster=cluster), results.depths)


def _where(where: Where | None) -> tuple[bytes, ...]:
    """Return the words of a filter."""
    found: list[bytes] = []
    if where is not None:
        for name, value in where.items():
            found += (b"WHERE", word(name), word(value))
    return tuple(found)


def _of_status(argv: tuple[bytes, ...], status: str | None, *, cluster: bool) -> tuple[bytes, ...]:
    if status is not None:
        argv = (*argv, b"STATUS", word(status))
    return (*argv, b"CLUSTER") if cluster else argv


def qstat(queue: str | bytes, *, cluster: bool = False, recent: bool = False) -> Request[QueueStat | None]:
    """QSTAT → the queue's figures, None if there is no such queue. Raises ValueError for both options together.

    queue     name of the queue
    cluster   sums over all linked nodes; by default the figures of the node asked. Takes up to a second if a node is
              silent
    recent    figures that need a walk over all jobs of the node may be a second old. For many queues at once
    """
    if cluster and recent:
        raise ValueError("qstat takes cluster or recent, not both")
    argv = (b"QSTAT", word(queue), b"RECENT") if recent else (b"QSTAT", word(queue))
    return Request((*argv, b"CLUSTER") if cluster else argv, results.queue_stat)


def job_ids(queue: str | bytes, keys: Iterable[str | bytes]) -> Request[list[str | None]]:
    """JOBID → the id of the job that each key names, None for a key that no node knows. Nothing is created.

    queue   name of the queue that the keys were used with
    keys    keys, one at least

    Raises UnreachableError if a node could not be asked and no other one knows a key.
    """
    return Request(words(b"JOBID", queue, *keys), _ids)


def _ids(reply: Reply) -> list[str | None]:
    return [None if job_id is None else text(job_id) for job_id in reply]


def purge(
    queue: str | bytes, *, where: Where | None = None, status: JobStatus | None = None, wait: bool = True
) -> Request[Task]:
    """QPURGE → the task that cancels the jobs of a queue, on all nodes.

    queue    name of the queue
    where    pairs of names and values; only jobs whose metadata have all of them. None, the default, takes all
    status   jobs of this status: "pending", the default, "invisible" or "errored"
    wait     whether to wait for the end; with False the task runs on, and `task` tells how far it is. True by default

    Jobs that come later stay. Raises ReplyError if the node leads too many tasks.

        purged = client.purge("mail", where={"tenant": "a"})
        print(purged.jobs, purged.nodes_missing)
    """
    argv = _of_status((*words(b"QPURGE", queue), *_where(where)), status, cluster=False)
    return _task(argv, "qpurge", queue, Repeat.SAFE, wait=wait)


def move(
    queue: str | bytes,
    to: str | bytes,
    *,
    where: Where | None = None,
    status: JobStatus | None = None,
    limit: int | None = None,
    rate: int | None = None,
    wait: bool = True,
) -> Request[Task]:
    """QMOVE → the task that moves the jobs of a queue to another queue, on all nodes.

    queue    name of the queue
    to       name of the other queue
    where    pairs of names and values; only jobs whose metadata have all of them. None, the default, takes all
    status   jobs of this status: "pending", the default, "invisible" or "errored"
    limit    most jobs, those that are served first. None by default: all
    rate     most jobs per second. None by default: as fast as it goes
    wait     whether to wait for the end. True by default

    Raises OutOfMemoryError, and ReplyError if the queues are the same or the node leads too many tasks.
    """
    argv = _of_status((*words(b"QMOVE", queue, to), *_where(where)), status, cluster=False)
    return _task(_paced(argv, limit, rate), "qmove", queue, _repeat_of(limit), wait=wait)


def redrive(
    queue: str | bytes,
    *,
    where: Where | None = None,
    to: str | bytes | None = None,
    limit: int | None = None,
    rate: int | None = None,
    wait: bool = True,
) -> Request[Task]:
    """QREDRIVE → the task that gives errored jobs and dead letters of a queue fresh attempts, on all nodes.

    queue    name of the queue
    where    pairs of names and values; only jobs whose metadata have all of them. None, the default, takes all
    to       queue that they go to. None by default: errored jobs stay, and dead letters go back
    limit    most jobs, the oldest ones. None by default: all
    rate     most jobs per second. None by default: as fast as it goes
    wait     whether to wait for the end. True by default

    Raises OutOfMemoryError, and ReplyError if the node leads too many tasks.
    """
    argv = (*words(b"QREDRIVE", queue), *_where(where))
    if to is not None:
        argv = (*argv, b"TO", word(to))
    return _task(_paced(argv, limit, rate), "qredrive", queue, _repeat_of(limit), wait=wait)


def _paced(argv: tuple[bytes, ...], limit: int | None, rate: int | None) -> tuple[bytes, ...]:
    more: list[bytes] = []
    _add(more, b"LIMIT", None if limit is None else whole("limit", limit))
    _add(more, b"RATE", None if rate is None else whole("rate", rate))
    return (*argv, *more)


def _repeat_of(limit: int | None) -> Repeat:
    """A task that is done again finds nothing to do, but with a limit it takes further jobs."""
    return Repeat.SAFE if limit is None else Repeat.ASK


def _task(argv: tuple[bytes, ...], command: str, queue: str | bytes, repeat: Repeat, *, wait: bool) -> Request[Task]:
    name = text(word(queue))
    if not wait:
        return Request((*argv, b"ASYNC"), lambda reply: results.begun_task(reply, command, name), Repeat.ASK)
    return Request(argv, lambda reply: results.ended_task(reply, command, name), repeat, Lane.OWN, 0)


def tasks() -> Request[list[Task]]:
    """QTASK LIST → the tasks that the node asked began, the running ones and those of the last hour, oldest first."""
    return Request((b"QTASK", b"LIST"), results.tasks)


def task(task: TaskRef) -> Request[Task | None]:
    """QTASK SHOW → how far a task is; None if the node asked does not know it, or no more.

    task   a task, which its own node is asked about, or an id
    """
    task_id, node = (task.id, task.node) if isinstance(task, Task) else (task, None)
    return Request(words(b"QTASK", b"SHOW", task_id), results.task, node=node, is_pinned=node is not None)


def cancel_task(task: TaskRef) -> Request[bool]:
    """QTASK CANCEL → whether the task ran; it ends where it is, and finished changes stay.

    task   a task, which its own node is asked about, or an id
    """
    task_id, node = (task.id, task.node) if isinstance(task, Task) else (task, None)
    return Request(words(b"QTASK", b"CANCEL", task_id), bool, node=node, is_pinned=node is not None)


def pause(queue: str | bytes, *states: PauseState, bcast: bool = False) -> Request[str]:
    """PAUSE → the state afterwards: none, in, out or all.

    queue    name of the queue
    states   the new state, which replaces the old one; without any the state is only reported
    bcast    on every node of the cluster
    """
    argv = [b"PAUSE", word(queue), *words(*states)]
    if bcast:
        argv.append(b"bcast")
    if not states:
        argv.append(b"state")
    return Request(tuple(argv), text, Repeat.NEVER if states and not bcast else Repeat.SAFE)


def queue_settings(queue: str | bytes) -> Request[QueueSettings | None]:
    """QUEUE GET → the queue's settings, None if it never had any.

    queue   name of the queue
    """
    return Request((b"QUEUE", b"GET", word(queue)), results.queue_settings)


def set_queue(
    queue: str | bytes,
    *,
    lease: Seconds | Default | None = None,
    delay: Seconds | Default | None = None,
    ttl: Seconds | Default | None = None,
    replicate: int | Literal["quorum", ""] | None = None,
    attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
    dead_letter: str | bytes | None = None,
    retention: Seconds | Default | None = None,
    maxlen: int | None = None,
    maxsize: int | None = None,
    require_meta: Iterable[str | bytes] | None = None,
    index: Iterable[str | bytes] | None = None,
    exclusive_by: str | bytes | None = None,
    assign: Literal["local", "quorum"] | None = None,
    rate: str | int | None = None,
    rate_by: str | bytes | None = None,
    max_running: int | None = None,
    max_running_by: str | bytes | None = None,
    result_retention: Seconds | Default | None = None,
    more: Mapping[str, str | bytes] | None = None,
) -> Request[str]:
    """QUEUE SET → OK: settings of a queue are changed, on all nodes. Fields that are None stay as they are.

    queue          name of the queue
    lease          RETRY of jobs that name none, in seconds, or a timedelta of milliseconds; "" is Disque's default.
                   None by default
    delay          DELAY of jobs that name none, in seconds, likewise. None by default
    ttl            TTL of jobs that name none, in seconds, likewise. None by default
    replicate      REPLICATE of jobs that name none: 1 to 65535, or "quorum"; "" is Disque's default. None by default
    attempts       deliveries of jobs that name no limit; 0: any number. None by default
    backoff        back-off of jobs that name none: a `Backoff`, or text as `exponential:1000:60000:20`; "": none. None
                   by default
    dead_letter    queue for jobs without attempts left; "": they are errored. None by default
    retention      how long errored jobs stay, in seconds, or a timedelta; "" is seven days. None by default
    maxlen         most pending jobs in the whole cluster; 0: any number. None by default
    maxsize        most bytes of a body; 0: any number. None by default
    require_meta   up to 8 names that the META of a job must have; []: none. None by default
    index          up to 8 names of META that GETJOB's WHERE finds at once from the first time on; []: none. None by
                   default
    exclusive_by   name of META: at most one job per value runs at a time; "": any number. It needs voters. None by
                   default
    assign         "quorum": at most one worker has a job, and `attempts` is exact; it needs voters. "local": as many
                   as a partition makes. None by default
    rate           most deliveries per second, or per time as "100/10s"; 0: any number. None by default
    rate_by        name of META: `rate` holds for each of its values; "": for the queue. None by default
    max_running    most leases that run at a time; 0: any number. None by default
    max_running_by   name of META: `max_running` holds for each of its values; "": for the queue. None by default
    result_retention   how long results of jobs stay, in seconds, or a timedelta; "" is an hour. None by default
    more           fields that this library does not know, and their values. None by default

    The settings are on the node's disk afterwards, and linked nodes had a second to confirm them. Raises ReplyError
    for a value that is refused, and ValueError if no field is given.

        client.set_queue("mail", lease=90, ttl=timedelta(days=2), maxlen=100_000)
    """
    argv = [b"QUEUE", b"SET", word(queue)]
    for name, span in (("lease", lease), ("delay", delay), ("ttl", ttl)):
        if span is not None:
            argv += (name.encode(), _setting_span(name, span))
    if replicate is not None:
        shown = replicate if isinstance(replicate, str) else str(whole("replicate", replicate))
        argv += (b"replicate", shown.encode())
    _add(argv, b"attempts", None if attempts is None else whole("attempts", attempts))
    if backoff is not None:
        argv += (b"backoff", str(backoff).encode())
    if dead_letter is not None:
        argv += (b"dead-letter", word(dead_letter))
    if retention is not None:
        argv += (b"retention", _setting_span("retention", retention))
    if result_retention is not None:
        argv += (b"result-retention", _setting_span("result_retention", result_retention))
    _add(argv, b"maxlen", None if maxlen is None else whole("maxlen", maxlen))
    _add(argv, b"maxsize", None if maxsize is None else whole("maxsize", maxsize))
    if require_meta is not None:
        argv += (b"require-meta", b",".join(map(word, require_meta)))
    if index is not None:
        argv += (b"index", b",".join(map(word, index)))
    if exclusive_by is not None:
        argv += (b"type", b"exclusive" if exclusive_by else b"simple", b"exclusive-by", word(exclusive_by))
    if assign is not None:
        argv += (b"assign", assign.encode())
    if rate is not None:
        argv += (b"rate", str(rate).encode())
    if rate_by is not None:
        argv += (b"rate-by", word(rate_by))
    _add(argv, b"max-running", None if max_running is None else whole("max_running", max_running))
    if max_running_by is not None:
        argv += (b"max-running-by", word(max_running_by))
    for field_name, value in (more or {}).items():
        argv += (word(field_name), word(value))
    if len(argv) == 3:
        raise ValueError("set_queue needs a field")
    return Request(tuple(argv), text, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)


def _setting_span(name: str, span: Seconds | Default) -> bytes:
    if isinstance(span, str):
        if span:
            raise ValueError(f'{name} must be a number of seconds, a timedelta or "", not {span!r}')
        return b""
    if isinstance(span, timedelta):
        return b"%dms" % milliseconds(name, span)
    return b"%d" % seconds(name, span)


def queues_with_settings(pattern: str | None = None) -> Request[list[str]]:
    """QUEUE LIST → the names of queues with a setting that is no default, sorted.

    pattern   only names that match it: `*`, `?`, `[a-z]`; by default all names
    """
    argv = (b"QUEUE", b"LIST") if pattern is None else (b"QUEUE", b"LIST", word(pattern))
    return Request(argv, _names)


def reset_queue(queue: str | bytes) -> Request[str]:
    """QUEUE RESET → OK: all settings of a queue have their defaults again, on all nodes. A pause stays.

    queue   name of the queue
    """
    return Request((b"QUEUE", b"RESET", word(queue)), text, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)


def _names(reply: Reply) -> list[str]:
    return [text(name) for name in reply]


def qscan_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    minlen: int | None = None,
    maxlen: int | None = None,
    importrate: int | None = None,
) -> Request[tuple[int, list[str]]]:
    """QSCAN → the next cursor (0: done) and names of queues. A cursor is valid on its node only."""
    argv = [b"QSCAN", b"%d" % cursor]
    _add(argv, b"COUNT", None if count is None else whole("count", count))
    if busyloop:
        argv.append(b"BUSYLOOP")
    _add(argv, b"MINLEN", None if minlen is None else whole("minlen", minlen))
    _add(argv, b"MAXLEN", None if maxlen is None else whole("maxlen", maxlen))
    _add(argv, b"IMPORTRATE", None if importrate is None else whole("importrate", importrate))
    return Request(tuple(argv), _names_page, Repeat.NEVER if cursor else Repeat.SAFE)


def jscan_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
) -> Request[tuple[int, list[str]]]:
    """JSCAN → the next cursor (0: done) and ids of jobs."""
    argv = _jscan(cursor, count, busyloop, queue, states, statuses, where)
    return Request(argv, _names_page, Repeat.NEVER if cursor else Repeat.SAFE)


def jscan_info_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
) -> Request[tuple[int, list[JobInfo]]]:
    """JSCAN REPLY all → the next cursor (0: done) and jobs as SHOW shows them."""
    argv = (*_jscan(cursor, count, busyloop, queue, states, statuses, where), b"REPLY", b"all")
    return Request(argv, _infos_page, Repeat.NEVER if cursor else Repeat.SAFE)


def _jscan(
    cursor: int,
    count: int | None,
    busyloop: bool,
    queue: str | bytes | None,
    states: Iterable[JobState],
    statuses: Iterable[JobStatus],
    where: Where | None,
) -> tuple[bytes, ...]:
    argv = [b"JSCAN", b"%d" % cursor]
    _add(argv, b"COUNT", None if count is None else whole("count", count))
    if busyloop:
        argv.append(b"BUSYLOOP")
    _add(argv, b"QUEUE", queue)
    for state in states:
        _add(argv, b"STATE", state)
    for status in statuses:
        _add(argv, b"STATUS", status)
    return (*argv, *_where(where))


def _add(argv: list[bytes], name: bytes, value: Word | None) -> None:
    if value is not None:
        argv += (name, word(value))


def _names_page(reply: Reply) -> tuple[int, list[str]]:
    return int(reply[0]), [text(name) for name in reply[1]]


def _infos_page(reply: Reply) -> tuple[int, list[JobInfo]]:
    infos = (results.job_info(entry) for entry in reply[1])
    return int(reply[0]), [entry for entry in infos if entry is not None]


def acquire_lock(
    name: str | bytes,
    owner: str | bytes,
    lease_ms: Milliseconds,
    *,
    attempts: int | None = None,
    timeout_ms: Milliseconds = 0,
) -> Request[LockGrant | None]:
    """LOCK ACQUIRE → the grant; None if another owner has the lock.

    name         name of the lock
    owner        name of the owner; no two workers may use the same one
    lease_ms     milliseconds after which the lock ends, unless it is extended
    attempts     number of attempts at most, over all owners, until the work is done; None, the default: any number
    timeout_ms   milliseconds to wait for another owner; 0, the default, answers at once

    The owner that has the lock renews it so, with the same fence and attempt. So the client sends the command again
    when its answer was lost. `lock` does more: it extends the lease, and tells when the lock is lost.

    Raises LockDoneError, LockSpentError, NoQuorumError; ValueError for a number that is not whole.
    """
    argv = [*words(b"LOCK", b"ACQUIRE", name, owner), b"%d" % milliseconds("lease_ms", lease_ms)]
    timeout = milliseconds("timeout_ms", timeout_ms)
    wait_word: int | None = None
    if timeout:
        argv += (b"TIMEOUT", b"%d" % timeout)
        wait_word = len(argv) - 1
    _add(argv, b"ATTEMPTS", None if attempts is None else whole("attempts", attempts))
    # Its own connection: the node gives the lock back if the client hangs up before the answer.
    wait_ms = timeout or CLAIM_MS
    return Request(tuple(argv), results.lock_grant, Repeat.SAFE, Lane.OWN, wait_ms, wait_word, awaits_voters=True)


def extend_lock(name: str | bytes, owner: str | bytes, fence: int, lease_ms: Milliseconds) -> Request[int]:
    """LOCK EXTEND → milliseconds of the lease, which begins anew.

    name       name of the lock
    owner      the owner that has it
    fence      the fence of its grant
    lease_ms   milliseconds after which the lock ends, unless it is extended again

    Raises FencedError if the lock is no longer this owner's, NoQuorumError; ValueError for a number that is not whole.
    """
    argv = words(b"LOCK", b"EXTEND", name, owner, whole("fence", fence), milliseconds("lease_ms", lease_ms))
    return Request(argv, int, lane=Lane.ADDS, wait_ms=CLAIM_MS, awaits_voters=True)


def release_lock(
    name: str | bytes, owner: str | bytes, fence: int, *, done_ms: Milliseconds | None = None
) -> Request[bool]:
    """LOCK RELEASE → whether the lock was held under this fence.

    name      name of the lock
    owner     the owner that has it
    fence     the fence of its grant
    done_ms   milliseconds for which the cluster remembers that the work is done; no owner gets the lock meanwhile, and
              attempts are counted from 1 afterwards. None, the default: it is not done

    A release without `done_ms` whose answer was lost is sent again, and then the answer is False.

    Raises NoQuorumError: some voters may have released it, the others do when the lease is over. ValueError for a
    number that is not whole.
    """
    argv = [*words(b"LOCK", b"RELEASE", name, owner, whole("fence", fence))]
    _add(argv, b"DONE", None if done_ms is None else milliseconds("done_ms", done_ms))
    return Request(tuple(argv), bool, lane=Lane.ADDS, wait_ms=CLAIM_MS, awaits_voters=True)


def show_lock(name: str | bytes) -> Request[LockInfo | None]:
    """LOCK SHOW → the lock as a majority of the voters knows it; None if it is free and nothing is remembered.

    name   name of the lock

    Raises NoQuorumError.
    """
    return Request(words(b"LOCK", b"SHOW", name), results.lock_info, wait_ms=CLAIM_MS, awaits_voters=True)


def locks(pattern: str | None = None) -> Request[list[str]]:
    """LOCK LIST → the names of locks that are held or remembered, sorted; at most 10,000.

    pattern   only names that match it: `*`, `?`, `[a-z]`; by default all names

    Raises NoQuorumError.
    """
    argv = words(b"LOCK", b"LIST") if pattern is None else words(b"LOCK", b"LIST", pattern)
    return Request(argv, _names, wait_ms=CLAIM_MS, awaits_voters=True)


def hello() -> Request[Hello]:
    """HELLO → the node that answers, and the nodes that it knows."""
    return Request((b"HELLO",), results.hello)


def ping() -> Request[str]:
    """PING → PONG."""
    return Request((b"PING",), text)


def time() -> Request[tuple[int, int]]:
    """TIME → the node's Unix seconds, and microseconds of that second."""
    return Request((b"TIME",), lambda reply: (int(reply[0]), int(reply[1])))


def info(section: str | None = None) -> Request[dict[str, str | int | float]]:
    """INFO → its fields. Values that are numbers become numbers.

    section   name of one section; by default all
    """
    return Request((b"INFO",) if section is None else words(b"INFO", section), results.info)


def config_get(pattern: str = "*") -> Request[dict[str, str]]:
    """CONFIG GET → names and values of directives.

    pattern   which directives, as a glob; by default "*", all
    """
    return Request(words(b"CONFIG", b"GET", pattern), results.pairs)


def config_set(name: str, value: Word) -> Request[str]:
    """CONFIG SET → OK, on the node asked.

    name    name of the directive
    value   its new value
    """
    return Request(words(b"CONFIG", b"SET", name, value), text, Repeat.NEVER)


def cluster_info() -> Request[dict[str, str | int | float]]:
    """CLUSTER INFO → its fields."""
    return Request((b"CLUSTER", b"INFO"), results.info)


def cluster_nodes() -> Request[list[ClusterNode]]:
    """CLUSTER NODES → every node that the asked one knows."""
    return Request((b"CLUSTER", b"NODES"), results.cluster_nodes)


def cluster_myid() -> Request[str]:
    """CLUSTER MYID → the node's id."""
    return Request((b"CLUSTER", b"MYID"), text)


def cluster_meet(host: str, port: int, bus_port: int | None = None) -> Request[str]:
    """CLUSTER MEET → OK; the nodes shake hands afterwards.

    host       address of the node to meet
    port       its client port
    bus_port   its bus port; by default 10000 above the client port
    """
    argv = words(b"CLUSTER", b"MEET", host, whole("port", port))
    return Request(argv if bus_port is None else (*argv, b"%d" % whole("bus_port", bus_port)), text, Repeat.NEVER)


def cluster_forget(node_id: str) -> Request[str]:
    """CLUSTER FORGET → OK, on the node asked only.

    node_id   the id of the node to forget, 40 characters
    """
    return Request(words(b"CLUSTER", b"FORGET", node_id), text, Repeat.NEVER)


def cluster_reset(*, hard: bool = False) -> Request[str]:
    """CLUSTER RESET → OK: the node forgets its nodes, jobs and queues.

    hard   it also forgets its own id
    """
    return Request((b"CLUSTER", b"RESET", b"HARD" if hard else b"SOFT"), text, Repeat.NEVER)


def cluster_leaving(leaving: bool | None = None) -> Request[bool]:
    """CLUSTER LEAVING → whether the node asked is leaving.

    leaving   True or False sets it; by default it is only reported
    """
    if leaving is None:
        return Request((b"CLUSTER", b"LEAVING"), lambda reply: bool(reply == b"yes"))
    answer = leaving
    return Request((b"CLUSTER", b"LEAVING", b"yes" if answer else b"no"), lambda _: answer, Repeat.NEVER)


def cluster_voters() -> Request[Voters]:
    """CLUSTER VOTERS → the nodes that grant claims, as the node asked knows them."""
    return Request((b"CLUSTER", b"VOTERS"), results.voters, wait_ms=CLAIM_MS)


def cluster_voters_init(*node_ids: str) -> Request[str]:
    """CLUSTER VOTERS INIT → OK: these nodes are the cluster's first voters.

    node_ids   ids of nodes, 40 characters each

    Raises UnreachableError if a node can't be asked, ReplyError if there are voters already.
    """
    return Request(words(b"CLUSTER", b"VOTERS", b"INIT", *node_ids), text, Repeat.NEVER, wait_ms=CLAIM_MS)


def cluster_saveconfig() -> Request[str]:
    """CLUSTER SAVECONFIG → OK, the nodes file is on disk."""
    return Request((b"CLUSTER", b"SAVECONFIG"), text, Repeat.NEVER)


def execute(
    *argv: Word, repeat: bool = False, wait_ms: Milliseconds | None = None, node: Address | None = None
) -> Request[Reply]:
    """Execute any command → the raw reply: bytes, int, None, lists.

    argv      the command and its arguments
    repeat    the command may be executed twice. By default it is sent again only if no byte of it left
    wait_ms   milliseconds that the command itself may wait, 0 for ever; then it has a connection of its own. By default
              the node answers at once
    node      ask this node only; by default the client chooses
    """
    lane = Lane.PLAIN if wait_ms is None else Lane.OWN
    again = Repeat.SAFE if repeat else Repeat.NEVER
    wait = None if wait_ms is None else milliseconds("wait_ms", wait_ms)
    return Request(words(*argv), _raw, again, lane, wait, node=node, is_pinned=node is not None)


def _raw(reply: Reply) -> Reply:
    return reply
