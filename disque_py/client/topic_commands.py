"""Commands about topics. A job of a topic goes into all queues that are bound to it. Pure. Spec TP7, TP8.

Nodes share bindings as they share queue settings, so any node takes a change, and tells the others. `publish` has the
options of `add_job`, and adds a job to each queue whose filter takes it, or to none. As with `add_job`, a publication
whose answer was lost is repeated only if it has a key, or if the caller allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack

from disque_py.client.arguments import ADD_TIMEOUT_MS, QUEUE_SET_MS, Body, Where, where_words
from disque_py.client.job_options import AddOptions, adding
from disque_py.client.protocol import Reply, text, word
from disque_py.client.request import Lane, Repeat, Request
from disque_py.client.spans import Milliseconds


@dataclass(slots=True)
class Binding:
    """An entry of TOPIC LIST: a queue that gets the jobs of a topic.

    topic   the topic
    queue   the queue
    where   pairs that the metadata of a job must have; empty without a filter
    """

    topic: str
    queue: str
    where: dict[str, bytes] = field(default_factory=dict)


def bind(topic: str | bytes, queue: str | bytes, *, where: Where | None = None) -> Request[bool]:
    """Bind a queue to a topic, so that it gets the topic's jobs (TOPIC BIND) → True.

    The answer comes when all linked nodes know the binding.

    topic   name of the topic
    queue   name of the queue that gets its jobs
    where   names and values: only jobs whose metadata have all these pairs. None, the default: any job. An existing
            binding gets the new filter

    Raises ReplyError if the topic has 1000 queues.

        client.bind("orders", "billing")
        client.bind("orders", "customs", where={"region": "eu"})
    """
    argv = (b"TOPIC", b"BIND", word(topic), word(queue), *where_words(where))
    return Request(argv, _is_ok, Repeat.SAFE, Lane.OWN, QUEUE_SET_MS)


def unbind(topic: str | bytes, queue: str | bytes) -> Request[bool]:
    """Unbind a queue from a topic (TOPIC UNBIND) → whether it was bound.

    topic   name of the topic
    queue   name of the queue that gets no more of its jobs
    """
    return Request((b"TOPIC", b"UNBIND", word(topic), word(queue)), bool, Repeat.SAFE, Lane.OWN, QUEUE_SET_MS)


def topics(pattern: str | bytes | None = None) -> Request[list[Binding]]:
    """List the bindings of topics (TOPIC LIST) → the bindings, sorted by topic and queue.

    pattern   only topics that match it, such as `orders.*`; None, the default: all
    """
    argv = (b"TOPIC", b"LIST") if pattern is None else (b"TOPIC", b"LIST", word(pattern))
    return Request(argv, _bindings)


def publish(
    topic: str | bytes,
    body: Body,
    *,
    timeout_ms: Milliseconds = ADD_TIMEOUT_MS,
    retry_unsafe: bool | None = None,
    **options: Unpack[AddOptions],
) -> Request[list[tuple[str, str]]]:
    """Add a job to every queue that is bound to a topic (TOPIC PUBLISH) → queue and id of each job.

    The answer is sorted by queue, and empty if no filter takes the job.

    topic          name of the topic
    body           the content of all jobs; text becomes UTF-8
    timeout_ms     milliseconds in which the node has to make all copies, 5000 by default; 0 waits for ever
    replicate      copies of each job, or "quorum": a majority of the node's data centre; by default the node or the
                   settings of each queue choose
    zones          number of zones that have a copy of each job before the answer; by default any number
    delay          seconds until the jobs are queued; by default as the settings of each queue say
    retry          seconds without an ack after which a job is queued again; by default as each queue's settings say
    ttl            seconds after which a job is dropped; by default as the settings of each queue say
    maxlen         refuse the jobs if one of the queues has this many jobs or more; by default there is no limit
    async_         True: the node replies before the copies are made. False by default
    priority       a lower number is served first; by default the creation time in Unix milliseconds
    meta           pairs of names and values that travel with the jobs, and which filters compare; none by default
    key            one job per queue and key: a repetition names the jobs that exist, and makes those that are missing.
                   None by default
    window         seconds for which the key is used, as in `add_job`; by default until the TTL is over
    replace        True: replace jobs that still wait for their delay, as in `add_job`; False by default
    attempts       deliveries after which a job is errored; by default as the settings of each queue say
    backoff        the delay after a NACK without one; by default as the settings of each queue say
    batch          name of the batch that the jobs belong to; None, the default: none
    retry_unsafe   True: send the command again if its answer is lost, as in `add_job`. None, the default: the client's
                   setting

    All jobs are made, or none. Raises NoReplError, PausedError, MaxLenError, TooBigError, NoKeyError, OutOfMemoryError,
    UnreachableError, BatchClosedError. A name that is not a topic raises ReplyError. After ConnectionLostError the jobs
    may exist, because the connection broke before the answer. A number that is not whole raises ValueError.

        for queue, job_id in client.publish("orders", b"order 17", meta={"region": "eu"}):
            print(queue, job_id)
    """
    start = (b"TOPIC", b"PUBLISH", word(topic))
    return adding("publish", start, body, _published, timeout_ms, retry_unsafe, options)


def _is_ok(reply: Reply) -> bool:
    return text(reply) == "OK"


def _published(reply: Reply) -> list[tuple[str, str]]:
    return [(text(queue), text(job_id)) for queue, job_id, *_ in reply]


def _bindings(reply: Reply) -> list[Binding]:
    return [
        Binding(
            text(topic), text(queue), {text(name): value for name, value in zip(where[::2], where[1::2], strict=True)}
        )
        for topic, queue, where, *_ in reply
    ]
