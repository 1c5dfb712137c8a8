"""GETJOB: jobs to clients, at once or when they come.

A client that finds its queues empty waits in the line of each of them. Whatever puts a job into a queue with
such a line marks it ready, and once per turn the ready queues are served, first come, first served, one job for
each client. Spec R10.
"""

from __future__ import annotations

from typing import Any, Final

from disque_py.core import lifecycle, pulls, replication, requeue
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_JOBS, WROTE, WROTE_IN_TROUBLE, Client
from disque_py.core.errors import LEAVING
from disque_py.core.job import Job
from disque_py.core.queue import LINE_BYTES, PAUSED_OUT, Queue
from disque_py.core.wish import COUNTERS, LEASE, META, PLAIN, WITH_COUNTERS, Wish
from disque_py.resp import EMPTY_ARRAY, bulk_array, nil_array

# A reply stops growing here; the client can ask again (spec B1).
REPLY_BYTES_MAX: Final = 1024 * 1024

LEAVING_REPLY: Final = b"-%b\r\n" % LEAVING.encode()


def collect(broker: Broker, queues: list[Queue], count: int, wish: Wish, bytes_max: int) -> list[bytes]:
    """Up to `count` jobs, one per queue and pass, left to right, as encoded reply entries of about `bytes_max`.

    It ends early at a queue that is stalled.
    """
    entries: list[bytes] = []
    size = 0
    found = True
    fetch = lifecycle.fetch_retried if wish.is_picky else lifecycle.fetch
    while found and len(entries) < count and size < bytes_max:
        found = False
        for queue in queues:
            if not queue.length or queue.paused & PAUSED_OUT:
                continue
            job = fetch(broker, queue)
            if job is None:
                if queue.is_stalled:
                    return entries  # Its head is being read back: nothing else comes before it.
                continue
            found = True
            entry = deliver(broker, queue, job, wish)
            entries.append(entry)
            size += len(entry)
            if not queue.length:
                ran_dry(broker, queue)
            if len(entries) == count or size >= bytes_max:
                break
    return entries


def deliver(broker: Broker, queue: Queue, job: Job, wish: Wish) -> bytes:
    """The fetched job goes to a client: its lease starts, the other holders hear of it. The encoded entry."""
    queue.jobs_out += 1
    queue.active_ms = broker.now_ms
    broker.stats.jobs_delivered += 1
    lifecycle.lease(broker, job)
    if wish is not PLAIN and wish.is_picky:
        if wish.lease_ms:
            lifecycle.extend(broker, job, wish.lease_ms)
        if wish.token:
            broker.tokens.add(wish.token, job)
    if job.retry_ms and job.holders is not broker.sets.mine:
        requeue.tell_leased(broker, job)
    body: Any = job.body  # Bytes: fetch never gives a job whose body is on disk.
    if wish is PLAIN:
        return b"*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (queue.head_bytes, job.id, len(body), body)
    if wish is WITH_COUNTERS:
        return b"*7\r\n%b%b\r\n$%d\r\n%b\r\n$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n" % (
            queue.head_bytes,
            job.id,
            len(body),
            body,
            job.nacks,
            job.deliveries,
        )
    return entry_of(broker, job, body, wish.shows)


def entry_of(broker: Broker, job: Job, body: bytes, shows: int) -> bytes:
    """A delivered job as an entry of GETJOB's reply, with all that was asked for (spec R6)."""
    name, job_id = job.queue, job.id
    count = 3
    more = b""
    if shows & COUNTERS:
        count = 7
        more = b"$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n" % (job.nacks, job.deliveries)
    if shows & META:
        count += 2
        more += b"$4\r\nmeta\r\n%b" % (bulk_array(job.meta) if job.meta else EMPTY_ARRAY)
    if shows & LEASE:
        count += 4
        left_ms = job.requeue_at_ms - broker.now_ms if job.retry_ms else 0
        more += b"$8\r\nlease-ms\r\n:%d\r\n$7\r\nattempt\r\n:%d\r\n" % (max(0, left_ms), job.attempt)
    return b"*%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
        count,
        len(name),
        name,
        len(job_id),
        job_id,
        len(body),
        body,
        more,
    )


def ran_dry(broker: Broker, queue: Queue) -> None:
    """The last job went out: under load, ask for more before somebody waits."""
    if queue.sources and pulls.has_import_rate(broker, queue):
        pulls.ask_sources(broker, queue, is_urgent=True)


def wait(broker: Broker, client: Client, queues: list[Queue], timeout_ms: int, wish: Wish) -> None:
    """Block the client in the lines of its queues; `timeout_ms` 0 waits for ever."""
    distinct = tuple(dict.fromkeys(queues))
    client.queues = distinct
    client.wish = wish
    client.waiting = WAITS_FOR_JOBS
    broker.blocked_count += 1
    broker.used_memory += LINE_BYTES * len(distinct)
    if timeout_ms:
        broker.timeouts.set(client, broker.now_ms + timeout_ms)
    if wish.token:
        broker.token_waits.setdefault(wish.token, {})[client] = None
    for queue in distinct:
        queue.waiting[client] = None
        if wish.is_picky:
            queue.picky += 1
        broker.interest_due[queue] = None
        pulls.ask_sources(broker, queue, is_urgent=False)
        pulls.ask_everybody(broker, queue)


def stop_waiting(broker: Broker, client: Client) -> None:
    """Take the client out of every line."""
    wish = client.wish
    broker.used_memory -= LINE_BYTES * len(client.queues)
    for queue in client.queues:
        queue.waiting.pop(client, None)
        if wish.is_picky:
            queue.picky -= 1
            queue.picky_ms = broker.now_ms
        else:
            queue.waited_ms = broker.now_ms
        broker.interest_due[queue] = None
        if queue.length and queue.picky == len(queue.waiting):
            broker.hint_due[queue] = None
    client.queues = ()
    client.waiting = RUNNING
    broker.blocked_count -= 1
    if client.awake_at_ms:
        broker.timeouts.cancel(client)
    if wish.token:
        waiting = broker.token_waits[wish.token]
        del waiting[client]
        if not waiting:
            del broker.token_waits[wish.token]


def serve_ready(broker: Broker) -> None:
    """Hand jobs of ready queues to the clients that wait, in the order they came."""
    while broker.ready:
        ready = broker.ready
        broker.ready = {}
        for queue in ready:
            waiting = queue.waiting
            while waiting and queue.length and not queue.paused & PAUSED_OUT:
                if queue.picky:
                    job, client = _match(broker, queue)
                else:
                    job, client = lifecycle.fetch(broker, queue), next(iter(waiting))
                if job is None:
                    break
                wish = client.wish
                stop_waiting(broker, client)
                send(broker, client, b"*1\r\n" + deliver(broker, queue, job, wish))
                if wish.token and wish.token in broker.token_waits:
                    _repeat_to_others(broker, wish.token, job)
                if not queue.length:
                    ran_dry(broker, queue)


def _match(broker: Broker, queue: Queue) -> tuple[Job | None, Client]:
    """The next job of a queue where picky clients wait, and who has waited longest of those that take it."""
    waiting = queue.waiting
    first = next(iter(waiting))
    if queue.picky == len(waiting):
        return lifecycle.fetch_retried(broker, queue), first
    job = lifecycle.fetch(broker, queue)
    if job is None or job.retry_ms:
        return job, first
    return job, next(client for client in waiting if not client.wish.is_picky)


def _repeat_to_others(broker: Broker, token: bytes, job: Job) -> None:
    """Whoever waits with the token of a delivery asked for the same: a client that came back before it was served."""
    body: Any = job.body
    for client in list(broker.token_waits[token]):
        shows = client.wish.shows
        stop_waiting(broker, client)
        send(broker, client, b"*1\r\n" + entry_of(broker, job, body, shows))


def send(broker: Broker, client: Client, reply: bytes) -> None:
    """A late reply, in the client's own reply mode; its pipeline goes on."""
    if not client.is_silenced:
        client.reply(reply)
    client.wrote = max(client.wrote, WROTE_IN_TROUBLE if broker.disk_level else WROTE)
    broker.outbox.clients[client] = None


def time_out(broker: Broker, client: Client) -> None:
    """Nothing came in time."""
    stop_waiting(broker, client)
    send(broker, client, nil_array(client.protocol))


def send_away(broker: Broker) -> None:
    """This node leaves: whoever waits here goes elsewhere (spec V6)."""
    for client in list(broker.clients.values()):
        if client.waiting == WAITS_FOR_JOBS:
            stop_waiting(broker, client)
            send(broker, client, LEAVING_REPLY)
        elif client.waiting_jobs:
            replication.drop_client(broker, client, replication.LEAVING_REPLY)


def release_all(broker: Broker) -> None:
    """Everything is reset: waiting GETJOBs get nothing (CLUSTER RESET, DEBUG FLUSHALL)."""
    for client in list(broker.clients.values()):
        if client.waiting == WAITS_FOR_JOBS:
            stop_waiting(broker, client)
            send(broker, client, nil_array(client.protocol))


def drop_client(broker: Broker, client: Client) -> None:
    """The connection is gone."""
    if client.waiting == WAITS_FOR_JOBS:
        stop_waiting(broker, client)
    if client.waiting_jobs:
        replication.drop_client(broker, client, None)
    broker.slices.pop(client, None)
    broker.stalled.pop(client, None)
    broker.spill.crowd.pop(client, None)
    broker.early.pop(client, None)
    broker.clients.pop(client.id, None)
    broker.monitors.pop(client, None)
    broker.outbox.clients.pop(client, None)
