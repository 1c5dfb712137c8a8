"""Jobs of a test's broker, and its messages from and to other nodes.

`hold` gives the broker a job without any messages. `say` delivers a message of another node. `sent` returns the outbox
since the last call. `advance` lets time pass, and does all work that becomes due.
"""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

from brokers import ask, make_client, pass_time
from cluster_bus.messages import FIRST_JOB_KIND, GOTJOB
from cluster_bus.node import Node
from disque_py.core import journaling, lifecycle, timers
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.ids import ttl_suffix
from disque_py.core.job import Job, terms_of
from disque_py.core.job_snapshot import Snapshot, snapshot_of
from disque_py.core.queue import Queue
from disque_py.node import dispatch
from persistence.records import unpacked

Sent = tuple[tuple[Node, ...], int, Any]


def make_id(number: int = 1, *, retry_s: int = 30, ttl_s: int = 3600, creator: Node | None = None) -> bytes:
    """Return the id of a job that `creator` made, or the node of `make_broker`. Equal arguments give equal ids."""
    chars = b64encode(Random(number).randbytes(18))
    digits = creator.name[:8] if creator is not None else b"00010203"
    return b"D-%b-%b" % (digits, chars) + ttl_suffix(ttl_s * 1000, retry_s > 0)


def make_job(
    broker: Broker,
    *others: Node,
    number: int = 1,
    queue: bytes = b"q",
    body: bytes = b"body",
    retry_s: int = 30,
    ttl_s: int = 3600,
    delay_s: int = 0,
    replicate: int = 0,
    is_mine: bool = True,
    creator: Node | None = None,
) -> Job:
    """Return a job that no broker knows yet. Its holders are the given nodes and, with `is_mine`, this one."""
    holders = broker.sets.of((broker.me, *others) if is_mine else others)
    if holders == broker.sets.mine:
        holders = broker.sets.mine
    return Job(
        make_id(number, retry_s=retry_s, ttl_s=ttl_s, creator=creator),
        terms_of(broker.terms, queue, retry_s * 1000, delay_s * 1000, replicate or len(holders)),
        body,
        broker.wall_ms * 1_000_000 + number,
        broker.now_ms + ttl_s * 1000,
        holders,
    )


def hold(broker: Broker, *others: Node, **fields: Any) -> Job:
    """Give this node an ACTIVE job as after a REPLJOB, with a timer if it has a RETRY. Return the job."""
    job = make_job(broker, *others, **fields)
    lifecycle.register(broker, job)
    job.was_queued = True
    if job.retry_ms:
        job.requeue_at_ms = broker.now_ms + job.delay_ms + job.retry_ms
    lifecycle.arm(broker, job)
    return job


def hold_queued(broker: Broker, *others: Node, **fields: Any) -> Job:
    """Give this node a queued job, and return it."""
    job = hold(broker, *others, **fields)
    lifecycle.enqueue(broker, job)
    return job


def deliver(broker: Broker, queue: bytes = b"q") -> Job:
    """Deliver the oldest job of the queue to a consumer of this node."""
    job = lifecycle.fetch(broker, broker.queues[queue])
    assert job is not None
    lifecycle.lease(broker, job)
    return job


def snapshot(broker: Broker, *holders: Node, **fields: Any) -> Snapshot:
    """Return a job as another node would send it, with these holders."""
    return snapshot_of(broker, make_job(broker, *holders, is_mine=False, **fields))


def pack(*nodes: Node) -> bytes:
    """Return a set of nodes in its form in messages."""
    return b"".join(sorted(node.id for node in nodes))


def say(broker: Broker, sender: Node, kind: int, *items: Any) -> None:
    """Deliver a run of messages from a node."""
    dispatch.receive(broker, sender, [[kind, *items]])


def sent(broker: Broker) -> list[Sent]:
    """Return (receivers, kind, item) for all messages about jobs that this node has sent since the last call."""
    runs = broker.outbox.messages.take()
    return [(nodes, kind, item) for nodes, kind, items in runs if kind >= FIRST_JOB_KIND for item in items]


def sent_of(broker: Broker, kind: int) -> list[tuple[tuple[Node, ...], Any]]:
    """Return (receivers, item) for the messages of one kind, and drop all others."""
    return [(nodes, item) for nodes, each, item in sent(broker) if each == kind]


def advance(broker: Broker, span_ms: int) -> None:
    """Let time pass, and do all work that becomes due, each at its moment."""
    end_ms = broker.now_ms + span_ms
    while broker.now_ms < end_ms:
        due_ms = max(broker.now_ms + 1, min(end_ms, timers.next_ms(broker)))
        pass_time(broker, due_ms - broker.now_ms)
        while dispatch.tick(broker):
            pass
        dispatch.settle(broker)


def queue_of(broker: Broker, name: bytes = b"q") -> list[bytes]:
    """Return the ids of the jobs that are ready, oldest first."""
    queue: Queue | None = broker.queues.get(name)
    return [job.id for job in queue.oldest()] if queue is not None else []


def add_waiting(broker: Broker, *words: str | bytes | int, producer: Client | None = None) -> tuple[Client, Job]:
    """Send an ADDJOB that waits for copies, and return its producer and its job."""
    producer = producer or make_client(broker)
    assert ask(broker, producer, "ADDJOB", "q", "body", *(words or (0,))) == b""
    return producer, list(broker.copies.waiting_repl)[-1]


def confirm(broker: Broker, job: Job, *nodes: Node) -> None:
    """Deliver a GOTJOB of each node for the job."""
    for node in nodes:
        say(broker, node, GOTJOB, job.id)


def collect(broker: Broker) -> list[list[Any]]:
    """Return the records of a turn as runs `[kind, item, …]`, with tuples as items, whether or not they are packed."""
    return [[kind, *map(tuple, items)] for kind, *items in map(unpacked, journaling.collect(broker))]
