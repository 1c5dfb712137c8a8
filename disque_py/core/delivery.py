"""GETJOB: delivery of jobs to clients, immediately or when jobs arrive.

A client that finds its queues empty waits in the line of each of them. A push into a queue with such a line marks the
queue ready. Once per turn the ready queues are served: each client gets one job, in the order in which the clients
began to wait. Spec R10.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import Any, Final

from disque_py.core import (
    exclusive,
    exclusive_state,
    gathering,
    keying,
    lifecycle,
    ordering,
    producer_waits,
    pulls,
    replication,
    requeue,
)
from disque_py.core.broker import Broker
from disque_py.core.claim_stamps import Stamp, fence_of, needed
from disque_py.core.client import RUNNING, WAITS_FOR_JOBS, WROTE, WROTE_IN_TROUBLE, Client
from disque_py.core.errors import LEAVING
from disque_py.core.exclusive_state import Pick
from disque_py.core.fetch_options import COUNTERS, LEASE, META, PLAIN, WITH_COUNTERS, FetchOptions
from disque_py.core.filters import Filters, Group, filters_of
from disque_py.core.job import Job
from disque_py.core.ordering import SERVED_MS
from disque_py.core.patterns import PatternGroup
from disque_py.core.queue import LINE_BYTES, PAUSED_OUT, Queue
from disque_py.resp.replies import EMPTY_ARRAY, bulk_array, nil_array

# A reply gets no further job at this size. The client can ask again (spec B1).
REPLY_BYTES_MAX: Final = 1024 * 1024

# Waiting clients of a queue for which claims may be under way at the same time.
LINE_CLAIMS_MAX: Final = 64
# Jobs that are set aside in one turn. There are many after a queue with many jobs has become exclusive.
LATE_MAX: Final = 200
# Queues that are looked at again when a claim for a waiting client is decided.
HELD_PER_TURN: Final = 10

LEAVING_REPLY: Final = b"-%b\r\n" % LEAVING.encode()


def collect(broker: Broker, queues: list[Queue], count: int, options: FetchOptions, bytes_max: int) -> list[bytes]:
    """Return up to `count` jobs as encoded entries of a reply, with about `bytes_max` bytes in all.

    Each pass takes one job per queue, from left to right. The list ends early at a queue that is stalled.
    """
    entries: list[bytes] = []
    size = 0
    found = True
    fetch = lifecycle.fetch_retried if options.is_picky else lifecycle.fetch
    where = options.where
    if broker.caps.limits:
        broker.caps.note_demand(queues, count, broker.now_ms)
    while found and len(entries) < count and size < bytes_max:
        found = False
        for queue in queues:
            if not queue.length or queue.paused & PAUSED_OUT:
                continue
            if where is None:
                rivals = queue.rivals
                if (
                    rivals is not None
                    and rivals.best is not None
                    and not ordering.may_serve(broker, queue, rivals, is_picky=options.is_picky)
                ):
                    continue
                job = fetch(broker, queue)
            else:
                job = lifecycle.fetch_matching(broker, queue, where, is_picky=options.is_picky)
            if job is None:
                if queue.is_stalled:
                    return entries  # The body of its first job is being read back. No other job may overtake it.
                continue
            if queue.parking is not None and needed(broker, job) is not None:
                lifecycle.undo_fetch(broker, queue, job)  # It needs a claim (claimed_fetch.py).
                continue
            found = True
            entry = deliver(broker, queue, job, options)
            entries.append(entry)
            size += len(entry)
            if not queue.length:
                ran_dry(broker, queue)
            if len(entries) == count or size >= bytes_max:
                break
    return entries


def deliver(broker: Broker, queue: Queue, job: Job, options: FetchOptions) -> bytes:
    """Deliver a fetched job: start its lease and tell the other holders. Return the encoded entry."""
    queue.jobs_out += 1
    now_ms = queue.active_ms = broker.now_ms
    broker.stats.jobs_delivered += 1
    lifecycle.lease(broker, job)
    if now_ms - queue.served_ms >= SERVED_MS:
        ordering.note_served(broker, queue)
    if options.is_picky:
        if options.lease_ms:
            lifecycle.extend(broker, job, options.lease_ms)
        if options.token:
            broker.tokens.add(options.token, job)
    if broker.caps.limits:
        broker.caps.delivered(job, now_ms, job.requeue_at_ms - now_ms)
    if job.terms.retry_ms and job.holders is not broker.sets.mine:
        if options.is_picky:
            requeue.tell_leased(broker, job)
        else:
            requeue.tell_delivered(broker, job)
    body: bytes = job.body  # type: ignore[assignment]  # fetch never gives a job whose body is on disk.
    if options is PLAIN:
        return b"*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (queue.head_bytes, job.id, len(body), body)
    if options is WITH_COUNTERS:
        return b"*7\r\n%b%b\r\n$%d\r\n%b\r\n$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n" % (
            queue.head_bytes,
            job.id,
            len(body),
            body,
            job.nacks,
            job.deliveries,
        )
    return entry_of(broker, job, body, options.shows)


def entry_of(broker: Broker, job: Job, body: bytes, shows: int) -> bytes:
    """Return a delivered job as an entry of GETJOB's reply, with all fields that were asked for (spec R6)."""
    name, job_id = job.terms.queue, job.id
    count = 3
    more = b""
    if shows & COUNTERS:
        count = 7
        more = b"$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n" % (job.nacks, job.deliveries)
    if shows & META:
        count += 2
        more += b"$4\r\nmeta\r\n%b" % (bulk_array(job.meta) if job.meta else EMPTY_ARRAY)
    if shows & LEASE:
        count += 6
        left_ms = job.requeue_at_ms - broker.now_ms if job.terms.retry_ms else 0
        fence = 0 if job.attributes is None else fence_of(job)
        words = b"$8\r\nlease-ms\r\n:%d\r\n$7\r\nattempt\r\n:%d\r\n$5\r\nfence\r\n:%d\r\n"
        more += words % (max(0, left_ms), job.attempt, fence)
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
    """Ask other nodes for jobs after the last one left, so that no client has to wait, if the queue is under load."""
    if queue.sources and pulls.has_import_rate(broker, queue):
        pulls.ask_sources(broker, queue, is_urgent=True)


def wait(broker: Broker, client: Client, queues: list[Queue], timeout_ms: int, options: FetchOptions) -> None:
    """Block the client in the lines of its queues. A `timeout_ms` of 0 means no time limit."""
    distinct = tuple(dict.fromkeys(queues))
    client.queues = distinct
    client.options = options
    client.waiting = WAITS_FOR_JOBS
    broker.waits.blocked_count += 1
    broker.used_memory += LINE_BYTES * len(distinct)
    if timeout_ms:
        broker.waits.timeouts.set(client, broker.now_ms + timeout_ms)
    if options.token:
        broker.tokens.waits.setdefault(options.token, {})[client] = None
    broker.arrivals += 1
    client.arrival = broker.arrivals
    if options.where is not None:
        for queue in distinct:
            filters_of(broker, queue).wait(client, options.where)
        return
    for queue in distinct:
        queue.waiting[client] = None
        if options.is_picky:
            queue.picky += 1
        broker.consumers.interest_due[queue] = None
        pulls.ask_sources(broker, queue, is_urgent=False)
        pulls.ask_all_nodes(broker, queue)


def wait_in_group(broker: Broker, client: Client, group: PatternGroup, timeout_ms: int, options: FetchOptions) -> None:
    """Block the client in the line of its patterns, as `wait` does in the lines of queues."""
    client.queues = ()
    client.group = group
    client.options = options
    client.waiting = WAITS_FOR_JOBS
    broker.waits.blocked_count += 1
    broker.used_memory += LINE_BYTES
    if timeout_ms:
        broker.waits.timeouts.set(client, broker.now_ms + timeout_ms)
    if options.token:
        broker.tokens.waits.setdefault(options.token, {})[client] = None
    broker.arrivals += 1
    client.arrival = broker.arrivals
    broker.patterns.due[group] = None
    if options.where is not None:
        group.filtered[client] = None
        return
    group.waiting[client] = None
    if options.is_picky:
        group.picky += 1


def _leave_group(broker: Broker, client: Client, group: PatternGroup) -> None:
    broker.used_memory -= LINE_BYTES
    client.group = None
    broker.patterns.due[group] = None
    group.used_ms = broker.now_ms
    if client.options.where is not None:
        group.filtered.pop(client, None)
        group.filtered_ms = broker.now_ms
        return
    group.waiting.pop(client, None)
    if client.options.is_picky:
        group.picky -= 1
        group.picky_ms = broker.now_ms
    else:
        group.asked_ms = broker.now_ms


def stop_waiting(broker: Broker, client: Client) -> None:
    """Take the client out of every line."""
    options = client.options
    if client.group is not None:
        _leave_group(broker, client, client.group)
    broker.used_memory -= LINE_BYTES * len(client.queues)
    for queue in client.queues:
        if options.where is not None:
            if queue.filters is not None:
                queue.filters.stop_waiting(client, options.where)
            continue
        queue.waiting.pop(client, None)
        if options.is_picky:
            queue.picky -= 1
            queue.picky_ms = broker.now_ms
        else:
            queue.waited_ms = broker.now_ms
        broker.consumers.interest_due[queue] = None
        if queue.length and queue.picky == len(queue.waiting):
            broker.consumers.hint_due[queue] = None
    client.queues = ()
    client.waiting = RUNNING
    broker.waits.blocked_count -= 1
    if client.awake_at_ms:
        broker.waits.timeouts.cancel(client)
    if options.token:
        waiting = broker.tokens.waits[options.token]
        del waiting[client]
        if not waiting:
            del broker.tokens.waits[options.token]


def serve_ready(broker: Broker) -> None:
    """Deliver jobs of ready queues to waiting clients, in the order in which the clients began to wait."""
    while broker.ready:
        ready = broker.ready
        broker.ready = {}
        for queue in ready:
            filters = queue.filters
            if filters is not None and filters.due:
                _serve_filtered(broker, queue, filters)
            if queue.patterns is not None:
                _serve_by_arrival(broker, queue)
            waiting = queue.waiting
            while waiting and queue.length and not queue.paused & PAUSED_OUT:
                rivals = queue.rivals
                if (
                    rivals is not None
                    and rivals.best is not None
                    and not ordering.may_serve(broker, queue, rivals, is_picky=queue.picky == len(waiting))
                ):
                    break
                if queue.picky:
                    job, client = _match(broker, queue)
                else:
                    job, client = lifecycle.fetch(broker, queue), next(iter(waiting))
                if job is None:
                    break
                if queue.parking is not None and (stamp := needed(broker, job)) is not None:
                    if not _claim_for_line(broker, queue, job, stamp, iter(waiting)):
                        break
                    continue
                _serve(broker, queue, job, client)


def _serve(broker: Broker, queue: Queue, job: Job, client: Client) -> None:
    """Deliver a fetched job to a client that waited for it."""
    options = client.options
    if client.group is not None:
        client.served_from = queue.name
    stop_waiting(broker, client)
    send(broker, client, b"*1\r\n" + deliver(broker, queue, job, options))
    if options.token and options.token in broker.tokens.waits:
        _repeat_to_others(broker, options.token, job)
    if not queue.length:
        ran_dry(broker, queue)


def _serve_filtered(broker: Broker, queue: Queue, filters: Filters) -> None:
    """Serve the clients that wait with a filter, and clients without one that began to wait before them (spec W3).

    Only groups that have got jobs since the last call are looked at.
    """
    due = filters.due
    filters.due = {}
    lines: list[tuple[int, int, Group]] = []
    for group in due:
        client = group.client_for()
        if client is not None:
            lines.append((client.arrival, len(lines), group))
    heapify(lines)
    may_serve_plain = True
    while lines and not queue.paused & PAUSED_OUT:
        arrival, number, group = lines[0]
        plain = _first_waiting(queue, takes_once=False) if may_serve_plain else None
        if plain is not None and plain.arrival < arrival:
            is_picky = plain.options.is_picky
            rivals = queue.rivals
            if (
                rivals is not None
                and rivals.best is not None
                and not ordering.may_serve(broker, queue, rivals, is_picky=is_picky)
            ):
                may_serve_plain = False
                continue
            job = lifecycle.fetch_retried(broker, queue) if is_picky else lifecycle.fetch(broker, queue)
            if job is None:
                may_serve_plain = False
            elif queue.parking is not None and (stamp := needed(broker, job)) is not None:
                may_serve_plain = _claim_for_line(broker, queue, job, stamp, _by_arrival(queue))
            else:
                _serve(broker, queue, job, plain)
            continue
        client = group.client_for()
        if client is None or client.arrival != arrival:
            heappop(lines)  # Its job went to another client.
            if client is not None:
                heappush(lines, (client.arrival, number, group))
            continue
        where = client.options.where
        assert where is not None
        job = lifecycle.fetch_matching(broker, queue, where, is_picky=client.options.is_picky)
        if job is None:
            heappop(lines)  # For example, its body is on disk. The queue is looked at again when the body is back.
            continue
        if queue.parking is not None and (stamp := needed(broker, job)) is not None:
            if not _claim_for_line(broker, queue, job, stamp, iter(group.waiting)):
                heappop(lines)
            continue
        _serve(broker, queue, job, client)
    if lines:
        for _, _, group in lines:
            filters.due[group] = None


def _claim_for_line(broker: Broker, queue: Queue, job: Job, stamp: Stamp, clients: Iterator[Client]) -> bool:
    """Claim a job for the first of some waiting clients for which no claim is under way. Spec EX3.

    Return whether the caller may go on with the queue's next job. It may not if every client waits for a claim already,
    if no claim may begin now, or if very many jobs were set aside in this turn.
    """
    state = broker.exclusive
    client = next((each for each in islice(clients, LINE_CLAIMS_MAX) if each not in state.lines), None)
    if client is None or exclusive.is_closed(broker):
        lifecycle.undo_fetch(broker, queue, job)
        if exclusive.is_closed(broker):
            exclusive.await_opening(broker)
        else:
            state.held[queue] = None
        return False
    state.lines[client] = None
    if exclusive.begin(broker, queue, job, stamp, client, client.options, partial(_line_decided, broker)) is None:
        del state.lines[client]
        state.looked += 1
        if state.looked >= LATE_MAX:
            # Very many jobs were queued before the queue became exclusive. The next turns set aside the rest.
            state.looked = 0
            broker.look_again(queue)
            return False
    return True


def _line_decided(broker: Broker, pick: Pick) -> None:
    """Deliver a job that was claimed for a waiting client, to it or to another client that would take it. Spec EX3."""
    client, queue = pick.client, pick.queue
    broker.exclusive.lines.pop(client, None)
    if pick.outcome == exclusive_state.GRANTED:
        if _takes_pick(client, pick):
            serve_claimed(broker, pick, client)
        else:
            pass_on(broker, pick)
    if not queue.is_dropped:
        broker.wake(queue)
    _wake_held(broker)


def pass_on(broker: Broker, pick: Pick) -> None:
    """Deliver a job that was claimed for a client that no longer waits, to another one that would take it."""
    clients = islice(_by_arrival(pick.queue), LINE_CLAIMS_MAX)
    taker = next((each for each in clients if _takes_pick(each, pick)), None)
    if taker is None:
        exclusive.give_back(broker, pick)
    else:
        serve_claimed(broker, pick, taker)


def _wake_held(broker: Broker) -> None:
    """Serve some queues whose consumers had a claim under way. Each claim that then begins wakes others at its end."""
    state = broker.exclusive
    for queue in list(islice(state.held, HELD_PER_TURN)):
        del state.held[queue]
        if not queue.is_dropped:
            broker.wake(queue)
    if state.held and not state.lines:
        broker.schedule.call_at(broker.now_ms + 1, partial(_wake_held, broker))


def _takes_pick(client: Client, pick: Pick) -> bool:
    """Return whether a client waits, and would take this claimed job with the lease for which it was claimed."""
    lease_ms = client.options.lease_ms or pick.job.terms.retry_ms
    return lease_ms == pick.lease_ms and _takes(client, pick.queue, pick.job)


def _takes(client: Client, queue: Queue, job: Job) -> bool:
    """Return whether a client waits, and would take this job of the queue."""
    if client.waiting != WAITS_FOR_JOBS:
        return False
    if queue not in client.queues and (client.group is None or queue.patterns is None):
        return False
    if client.group is not None and client.group not in (queue.patterns or ()):
        return False
    return client.options.where is None or client.options.where.takes(job)


def serve_claimed(broker: Broker, pick: Pick, client: Client) -> None:
    """Deliver a claimed job to a client that waits, if it may still be delivered."""
    options = client.options
    entry = deliver_claimed(broker, pick, options)
    if not entry:
        return
    stop_waiting(broker, client)
    send(broker, client, b"*1\r\n" + entry)
    if options.token and options.token in broker.tokens.waits:
        _repeat_to_others(broker, options.token, pick.job)


def deliver_claimed(broker: Broker, pick: Pick, options: FetchOptions) -> bytes:
    """Deliver a claimed job. Return the encoded entry, or b"" if the job can't be delivered any more."""
    lease_ms = exclusive.start(broker, pick)
    if not lease_ms:
        return b""
    bounded = FetchOptions(options.shows, lease_ms, options.token, options.where)
    return deliver(broker, pick.queue, pick.job, bounded)


def _serve_by_arrival(broker: Broker, queue: Queue) -> None:
    """Serve clients that wait with patterns, and clients that wait by name, in the order of arrival. Spec TP2."""
    takes_once = False
    while queue.length and not queue.paused & PAUSED_OUT:
        client = _first_waiting(queue, takes_once=takes_once)
        if client is None:
            return
        is_picky = client.options.is_picky
        rivals = queue.rivals
        if (
            rivals is not None
            and rivals.best is not None
            and not ordering.may_serve(broker, queue, rivals, is_picky=is_picky)
        ):
            return
        job = lifecycle.fetch(broker, queue, is_picky=is_picky)
        if job is not None and queue.parking is not None and (stamp := needed(broker, job)) is not None:
            if not _claim_for_line(broker, queue, job, stamp, _by_arrival(queue)):
                return
        elif job is not None:
            _serve(broker, queue, job, client)
        elif is_picky and not queue.is_stalled and not takes_once:
            takes_once = True  # Only at-most-once jobs are left, which picky clients skip.
        else:
            return


def _by_arrival(queue: Queue) -> Iterator[Client]:
    """Yield the clients without a filter that wait by the queue's name or by a pattern, in the order of arrival."""
    if queue.patterns is None:
        return iter(queue.waiting)
    return merge(queue.waiting, *[group.waiting for group in queue.patterns], key=_arrival_of)


def _arrival_of(client: Client) -> int:
    return client.arrival


def _first_waiting(queue: Queue, *, takes_once: bool) -> Client | None:
    """Return the client without a filter that has waited longest, by the queue's name or by a pattern.

    takes_once   consider only clients that take at-most-once jobs
    """
    found: Client | None = None
    lines = [queue.waiting]
    if queue.patterns is not None:
        lines += [group.waiting for group in queue.patterns]
    for line in lines:
        for client in line:
            if not takes_once or not client.options.is_picky:
                if found is None or client.arrival < found.arrival:
                    found = client
                break
    return found


def _match(broker: Broker, queue: Queue) -> tuple[Job | None, Client]:
    """Return a queue's next job, and the client that has waited longest of those that take it.

    Some of the queue's clients are picky.
    """
    waiting = queue.waiting
    first = next(iter(waiting))
    if queue.picky == len(waiting):
        return lifecycle.fetch_retried(broker, queue), first
    job = lifecycle.fetch(broker, queue)
    if job is None or job.terms.retry_ms:
        return job, first
    return job, next(client for client in waiting if not client.options.is_picky)


def _repeat_to_others(broker: Broker, token: bytes, job: Job) -> None:
    """Repeat a delivery to the other clients that wait with the same token.

    This happens when a client reconnects and asks again before its first request was served.
    """
    body: Any = job.body
    for client in list(broker.tokens.waits[token]):
        shows = client.options.shows
        stop_waiting(broker, client)
        send(broker, client, b"*1\r\n" + entry_of(broker, job, body, shows))


def send(broker: Broker, client: Client, reply: bytes) -> None:
    """Send a late reply, according to CLIENT REPLY. The client's pipeline continues."""
    if not client.is_silenced:
        client.reply(reply)
    client.wrote = max(client.wrote, WROTE_IN_TROUBLE if broker.journal.disk_level else WROTE)
    broker.outbox.clients[client] = None


def time_out(broker: Broker, client: Client) -> None:
    """Answer a client whose wait has ended without a job."""
    stop_waiting(broker, client)
    send(broker, client, nil_array(client.protocol))


def send_away(broker: Broker) -> None:
    """Send waiting clients to other nodes, because this node leaves (spec V6)."""
    for client in list(broker.clients.values()):
        if client.waiting == WAITS_FOR_JOBS:
            stop_waiting(broker, client)
            send(broker, client, LEAVING_REPLY)
        elif client.waiting_jobs:
            replication.drop_client(broker, client, producer_waits.LEAVING_REPLY)


def release_all(broker: Broker) -> None:
    """Answer waiting GETJOBs with nothing, because everything is reset (CLUSTER RESET, DEBUG FLUSHALL)."""
    for client in list(broker.clients.values()):
        if client.waiting == WAITS_FOR_JOBS:
            stop_waiting(broker, client)
            send(broker, client, nil_array(client.protocol))


def drop_client(broker: Broker, client: Client) -> None:
    """Drop a client whose connection is gone."""
    if client.waiting == WAITS_FOR_JOBS:
        stop_waiting(broker, client)
    if client.waiting_jobs:
        replication.drop_client(broker, client, None)
    if broker.waits.incremental.pop(client, None) is not None:
        gathering.forget_client(broker, client)
        keying.forget_client(broker, client)
    exclusive.forget_client(broker, client)
    broker.waits.stalled.pop(client, None)
    broker.spill.blocked_producers.pop(client, None)
    broker.waits.early.pop(client, None)
    broker.clients.pop(client.id, None)
    broker.monitors.pop(client, None)
    broker.outbox.clients.pop(client, None)
