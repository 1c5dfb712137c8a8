"""ADDJOB. Publications, schedules and `add_jobs` share its options (job_options.py). Pure. Spec R8."""

from __future__ import annotations

from typing import Unpack

from disque_py.client import results
from disque_py.client.arguments import ADD_TIMEOUT_MS, Body
from disque_py.client.job_options import AddOptions, adding
from disque_py.client.protocol import word
from disque_py.client.request import Request
from disque_py.client.spans import Milliseconds


def add_job(
    queue: str | bytes,
    body: Body,
    *,
    timeout_ms: Milliseconds = ADD_TIMEOUT_MS,
    retry_unsafe: bool | None = None,
    **options: Unpack[AddOptions],
) -> Request[str]:
    """Add a job to a queue (ADDJOB) → its id.

    queue          name of the queue
    body           the job's content; text becomes UTF-8
    timeout_ms     milliseconds in which the node has to make the copies, 5000 by default; 0 waits for ever
    replicate      number of copies, or "quorum": a majority of the node's data centre; by default the node chooses
    zones          number of zones that have a copy before the answer; by default any number
    delay          seconds until the job is queued; by default it is queued immediately. This and other times may be a
                   `timedelta`, which may have milliseconds
    retry          seconds without an ack after which the job is queued again; by default the node chooses.
                   0: it is delivered at most once
    ttl            seconds after which the job is dropped; by default the node chooses
    maxlen         refuse the job if the queue has this many jobs or more; by default there is no limit
    async_         True: the node replies before the copies are made. False by default
    priority       a lower number is served first; by default the creation time in Unix milliseconds
    meta           pairs of names and values that travel with the job, none by default
    key            makes the command safe to repeat: one job per queue and key. If the key has a job already, the answer
                   is that job's id. None by default
    window         whole seconds for which the key is used, from the creation of its first job; 0: until that job is
                   over or errored. By default until its TTL is over. Needs a key
    replace        True: if the key's job still waits for its delay, the new job takes its place. Needs a key and a
                   delay. False by default
    attempts       number of deliveries after which a job that failed is errored, or a dead letter; 0: any number. By
                   default the queue's setting, else any number
    backoff        the delay after a NACK without one: a `Backoff`, or text as `exponential:1000:60000:20`. By default
                   the queue's setting, else none
    batch          name of the batch that the job belongs to; None, the default: none
    retry_unsafe   True: send the command again if its answer is lost. Then the job may exist twice. None, the default:
                   the client's setting. A command with a key and without a window is always sent again, because the key
                   prevents a second job

    Raises NoReplError, PausedError, MaxLenError, TooBigError, NoKeyError, OutOfMemoryError, UnreachableError,
    BatchClosedError. A topic none of whose queues takes the job raises NoRouteError. After ConnectionLostError the job
    may exist, because the connection broke before the answer. A number that is not whole raises ValueError.

        job_id = client.add_job("mail", "Dear Ada, ...", retry=60, delay=timedelta(minutes=5))
    """
    return adding("add_job", (b"ADDJOB", word(queue)), body, results.job_id, timeout_ms, retry_unsafe, options)
