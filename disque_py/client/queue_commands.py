"""Commands about one queue: its length, its jobs, its figures, a pause and its settings. Pure.

Figures are those of one node, or with `cluster=True` those of all linked nodes together. Settings are always those of
the whole cluster: any node takes a change, and tells the others. After a broken connection the client repeats these
commands, because a second execution changes nothing. The exception is a pause of one node: another node must not
execute it in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Literal

from disque_py.client import results
from disque_py.client.arguments import (
    QUEUE_SET_MS,
    BackoffPolicy,
    Default,
    PauseState,
    Where,
    add_pair,
    names,
    of_status,
    where_words,
)
from disque_py.client.protocol import text, word
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.results import Job, QueueSettings, QueueStat
from disque_py.client.spans import Seconds, milliseconds, seconds, whole
from disque_py.event_format import JobStatus


def qlen(
    queue: str | bytes, *, where: Where | None = None, status: JobStatus | None = None, cluster: bool = False
) -> Request[int]:
    """Count the jobs of a queue (QLEN) → their number.

    queue     name of the queue
    where     names and values: count only jobs whose metadata have all these pairs. None, the default: count all
    status    count jobs of this status; by default those that are pending
    cluster   True: on all linked nodes, each job once. This takes up to a second if a node is silent. False, the
              default: on the node asked

    Example: `client.qlen("mail", where={"tenant": "a"})`
    """
    return Request(of_status((*words(b"QLEN", queue), *where_words(where)), status, cluster=cluster), int)


def qpeek(
    queue: str | bytes,
    count: int,
    *,
    where: Where | None = None,
    status: JobStatus | None = None,
    withmeta: bool = False,
    cluster: bool = False,
) -> Request[list[Job]]:
    """Look at jobs of a queue without fetching them (QPEEK) → the jobs.

    queue     name of the queue
    count     number of jobs at most: the oldest first, or with a negative count the newest first
    where     names and values: only jobs whose metadata have all these pairs. None, the default: any job
    status    only jobs of this status; by default those that are pending
    withmeta  True: fill in `Job.meta`. False by default
    cluster   True: of all linked nodes, in the queue's order. This takes up to a second if a node is silent. False, the
              default: of the node asked

        for job in client.qpeek("mail", 5, withmeta=True):
            print(job.id, job.meta)
    """
    argv = (*words(b"QPEEK", queue, whole("count", count)), *where_words(where))
    if withmeta:
        argv = (*argv, b"WITHMETA")
    return Request(of_status(argv, status, cluster=cluster), results.jobs)


def queue_depths(
    queue: str | bytes,
    by: str | bytes,
    *,
    status: JobStatus | None = None,
    count: int = 100,
    cluster: bool = False,
) -> Request[dict[bytes | None, int]]:
    """Count the jobs of a queue for each value of one name of metadata (QDEPTH) → the numbers by value.

    queue     name of the queue
    by        name of the metadata
    status    count jobs of this status; by default those that are pending
    count     number of values at most, 100 by default; those with the most jobs come first
    cluster   True: on all linked nodes, each job once. This takes up to a second if a node is silent. False, the
              default: on the node asked

    Jobs without the name are counted under None, last.

    Example: `client.queue_depths("mail", "tenant")` → `{b"a": 12, b"b": 3, None: 1}`
    """
    argv = words(b"QDEPTH", queue, b"BY", by, b"COUNT", whole("count", count))
    return Request(of_status(argv, status, cluster=cluster), results.depths)


def qstat(queue: str | bytes, *, cluster: bool = False, recent: bool = False) -> Request[QueueStat | None]:
    """Ask for the figures of a queue (QSTAT) → a `QueueStat`; None if there is no such queue.

    queue     name of the queue
    cluster   True: sums over all linked nodes. This takes up to a second if a node is silent. False, the default: the
              figures of the node asked
    recent    True: figures that need a walk over all jobs of the node may be a second old. Use it to ask about many
              queues. False by default

    Raises ValueError for both options together.

        stat = client.qstat("mail", cluster=True)
    """
    if cluster and recent:
        raise ValueError("qstat takes cluster or recent, not both")
    argv = (b"QSTAT", word(queue), b"RECENT") if recent else (b"QSTAT", word(queue))
    return Request((*argv, b"CLUSTER") if cluster else argv, results.queue_stat)


def pause(queue: str | bytes, *states: PauseState, bcast: bool = False) -> Request[str]:
    """Pause or resume a queue, or ask whether it is paused (PAUSE) → the new state: none, in, out or all.

    queue    name of the queue
    states   the new state, which replaces the old one; without any the state is only reported
    bcast    True: on every node of the cluster. False, the default: on the node asked

        client.pause("mail", "in", bcast=True)  # producers get PausedError
        client.pause("mail", "none", bcast=True)
    """
    argv = [b"PAUSE", word(queue), *words(*states)]
    if bcast:
        argv.append(b"bcast")
    if not states:
        argv.append(b"state")
    return Request(tuple(argv), text, Repeat.NEVER if states and not bcast else Repeat.SAFE)


def queue_settings(queue: str | bytes) -> Request[QueueSettings | None]:
    """Read the settings of a queue (QUEUE GET) → `QueueSettings`; None if it never had any.

    queue   name of the queue

        settings = client.queue_settings("mail")
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
    """Change settings of a queue, on all nodes (QUEUE SET) → OK. Fields that are None stay as they are.

    queue          name of the queue
    lease          RETRY of jobs that name none, in seconds, or a timedelta of milliseconds; "" is Disque's default.
                   None by default
    delay          DELAY of jobs that name none, in seconds, as for `lease`. None by default
    ttl            TTL of jobs that name none, in seconds, as for `lease`. None by default
    replicate      REPLICATE of jobs that name none: 1 to 65535, or "quorum"; "" is Disque's default. None by default
    attempts       deliveries of jobs that name no limit; 0: any number. None by default
    backoff        back-off of jobs that name none: a `Backoff`, or text as `exponential:1000:60000:20`; "": none. None
                   by default
    dead_letter    queue for jobs without attempts left; "": they are errored. None by default
    retention      how long errored jobs stay, in seconds, or a timedelta; "" is seven days. None by default
    maxlen         most pending jobs in the whole cluster; 0: any number. None by default
    maxsize        most bytes of a body; 0: any number. None by default
    require_meta   up to 8 names that the META of a job must have; []: none. None by default
    index          up to 8 names of META that are indexed, so that the first GETJOB with WHERE is fast, too; []: none.
                   None by default
    exclusive_by   name of META: at most one job per value runs at a time; "": any number. It needs voters. None by
                   default
    assign         "quorum": at most one worker has a job, and `attempts` is exact; it needs voters. "local": during a
                   network partition several workers may have it. None by default
    rate           most deliveries per second, or per time as "100/10s"; 0: any number. None by default
    rate_by        name of META: `rate` applies to each of its values; "": to the whole queue. None by default
    max_running    most leases that run at a time; 0: any number. None by default
    max_running_by   name of META: `max_running` applies to each of its values; "": to the whole queue. None by default
    result_retention   how long results of jobs stay, in seconds, or a timedelta; "" is an hour. None by default
    more           fields that this library does not know, and their values. None by default

    When the call returns, the settings are on the node's disk, and linked nodes have had up to a second to confirm
    them. Raises ReplyError for a value that is refused, and ValueError if no field is given.

        client.set_queue("mail", lease=90, ttl=timedelta(days=2), maxlen=100_000)
    """
    argv = [b"QUEUE", b"SET", word(queue)]
    for name, span in (("lease", lease), ("delay", delay), ("ttl", ttl)):
        if span is not None:
            argv += (name.encode(), _setting_span(name, span))
    if replicate is not None:
        shown = replicate if isinstance(replicate, str) else str(whole("replicate", replicate))
        argv += (b"replicate", shown.encode())
    add_pair(argv, b"attempts", None if attempts is None else whole("attempts", attempts))
    if backoff is not None:
        argv += (b"backoff", str(backoff).encode())
    if dead_letter is not None:
        argv += (b"dead-letter", word(dead_letter))
    if retention is not None:
        argv += (b"retention", _setting_span("retention", retention))
    if result_retention is not None:
        argv += (b"result-retention", _setting_span("result_retention", result_retention))
    add_pair(argv, b"maxlen", None if maxlen is None else whole("maxlen", maxlen))
    add_pair(argv, b"maxsize", None if maxsize is None else whole("maxsize", maxsize))
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
    add_pair(argv, b"max-running", None if max_running is None else whole("max_running", max_running))
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
    """List the queues with a setting that is not a default (QUEUE LIST) → their names, sorted.

    pattern   only names that match it: `*`, `?`, `[a-z]`; by default all names
    """
    argv = (b"QUEUE", b"LIST") if pattern is None else (b"QUEUE", b"LIST", word(pattern))
    return Request(argv, names)


def reset_queue(queue: str | bytes) -> Request[str]:
    """Give all settings of a queue their defaults again, on all nodes (QUEUE RESET) → OK. A pause stays.

    queue   name of the queue
    """
    return Request((b"QUEUE", b"RESET", word(queue)), text, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)
