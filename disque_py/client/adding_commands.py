"""ADDJOB, and its options, which publications, schedules and batches of ADDJOBs take too. Pure. Spec R8."""

from __future__ import annotations

from typing import Literal

from disque_py.client import results
from disque_py.client.arguments import ADD_TIMEOUT_MS, BackoffPolicy, Body, Meta
from disque_py.client.protocol import word
from disque_py.client.request import Lane, Repeat, Request
from disque_py.client.spans import Milliseconds, Seconds, milliseconds, seconds, time_words, whole


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
