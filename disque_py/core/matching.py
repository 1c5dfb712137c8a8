"""GETJOB … FROMMATCH: take jobs from all queues whose names match, round robin by name.

A client gets one job of a queue, then one of the next queue by name. It begins behind the queue from which it was last
served. So no queue starves, regardless of how full the others are. Queues without jobs are not visited: the group lists
the queues that had jobs, and a visit that finds none removes the queue from the list (patterns.py). If very many queues
can't be served now, for example because they are paused, the walk over them is done in parts.

A client with a filter waits in each matching queue, and in new ones as they come. Spec TP2, TP4.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from cluster_bus.messages import NEEDJOBS
from cluster_bus.node import Node
from disque_py.core import delivery, filters, lifecycle, ordering, pulls
from disque_py.core.broker import Broker
from disque_py.core.claim_stamps import needed
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.fetch_options import FetchOptions
from disque_py.core.patterns import GONE, PatternGroup
from disque_py.core.queue import LINE_BYTES, PAUSED_OUT, Queue

# The number of queues that one part visits.
LOOKED_PER_PART: Final = 250


class Visit:
    """The state of one client's walk over the queues of its group.

    entries, size      the jobs so far, as entries of the reply, and their bytes
    cursor             the queue that was visited last
    missed             the number of queues in a row that gave no job
    is_stalled         whether a queue's next body is on disk
    is_held            whether a queue's jobs wait for better ones of another node
    is_cut             whether a queue may have jobs behind very many that may not be delivered now
    is_refused         whether jobs can't be delivered because of disk errors
    """

    __slots__ = ("cursor", "entries", "is_cut", "is_held", "is_refused", "is_stalled", "missed", "size")

    def __init__(self, cursor: bytes) -> None:
        self.cursor = cursor
        self.entries: list[bytes] = []
        self.size = 0
        self.missed = 0
        self.is_stalled = self.is_held = self.is_cut = self.is_refused = False


def collect(
    broker: Broker, client: Client, group: PatternGroup, count: int, options: FetchOptions, visit: Visit
) -> bool:
    """Take up to `count` jobs, round robin. Return whether the walk is over. If not, the next call continues it."""
    where = options.where
    looked = 0
    at = bisect_right(group.names, visit.cursor)
    while len(visit.entries) < count and visit.size < delivery.REPLY_BYTES_MAX:
        names = group.names
        if visit.missed >= len(names):
            return True
        if looked >= LOOKED_PER_PART:
            return False
        looked += 1
        if at >= len(names):
            at = 0
        name = names[at]
        queue = broker.queues.get(name)
        if queue is None or (not queue.length and queue.parking is None):
            broker.patterns.unlist(group, name)
            continue
        at += 1
        visit.cursor = name
        visit.missed += 1
        if not queue.length or queue.paused & PAUSED_OUT:
            continue
        if where is None:
            rivals = queue.rivals
            if (
                rivals is not None
                and rivals.best is not None
                and not ordering.may_serve(broker, queue, rivals, is_picky=options.is_picky)
            ):
                visit.is_held = visit.is_held or ordering.is_held_back(queue)
                continue
            job = lifecycle.fetch(broker, queue, is_picky=options.is_picky)
        else:
            job = lifecycle.fetch_matching(broker, queue, where, is_picky=options.is_picky)
            visit.is_cut = visit.is_cut or (job is None and lifecycle.is_searching(queue, where))
        if job is None:
            if queue.is_stalled:
                visit.is_stalled = True
            elif broker.journal.disk_level and queue.once_length and not options.is_picky:
                visit.is_refused = True
            continue
        if queue.parking is not None and needed(broker, job) is not None:
            lifecycle.undo_fetch(broker, queue, job)  # The job needs a claim first (claimed_fetch.py).
            continue
        visit.missed = 0
        entry = delivery.deliver(broker, queue, job, options)
        visit.entries.append(entry)
        visit.size += len(entry)
        client.served_from = name
        if not queue.length:
            delivery.ran_dry(broker, queue)
    return True


def wait(broker: Broker, client: Client, group: PatternGroup, timeout_ms: int, options: FetchOptions) -> None:
    """Block the client. With `timeout_ms` 0 it waits for ever. CommandError if there are too many waiting filters."""
    if options.where is None:
        delivery.wait_in_group(broker, client, group, timeout_ms, options)
        _ask_again(broker, group)
        return
    names = dict.fromkeys(group.names)
    names.update(group.elsewhere)
    if broker.consumers.filter_lines + len(names) > filters.LINES_MAX:
        raise CommandError(f"ERR too many waiting filters, at most {filters.LINES_MAX}")
    delivery.wait_in_group(broker, client, group, timeout_ms, options)
    _join(broker, client, [broker.queue(name) for name in names])


def _ask_again(broker: Broker, group: PatternGroup) -> None:
    """Ask a node for jobs that it offered when no client waited."""
    while group.offers:
        name = next(iter(group.offers))
        node = group.offers.pop(name)
        queue = broker.queues.get(name)
        if queue is None or queue.paused or not node.is_linked:
            continue
        picky_only = group.picky == len(group.waiting)
        flags = pulls.ANSWERS_HINT | (pulls.RETRIED_ONLY if picky_only else 0)
        broker.stats.pulls_sent += 1
        broker.send(broker.sets.only(node), NEEDJOBS, (name, 1, flags))
        return


def asked(broker: Broker, group: PatternGroup, options: FetchOptions) -> None:
    """Note that a client asked, got no job and did not wait."""
    now_ms = broker.now_ms
    broker.patterns.due[group] = None
    if options.where is not None:
        group.filtered_ms = now_ms
        return
    group.polled_ms = now_ms
    if options.is_picky:
        group.picky_ms = now_ms
    else:
        group.asked_ms = now_ms


def _join(broker: Broker, client: Client, queues: list[Queue]) -> None:
    """Make a client with a filter wait in more queues."""
    where = client.options.where
    assert where is not None
    joined = dict.fromkeys(client.queues)
    before = len(joined)
    for queue in queues:
        lines = filters.filters_of(broker, queue)
        if queue not in joined and lines.may_index(where.names):  # The number of indexes per queue is limited.
            joined[queue] = None
            lines.wait(client, where)
            lines.build_soon(lines.index(where.names))
    client.queues = tuple(joined)
    broker.used_memory += LINE_BYTES * (len(joined) - before)


def join_new(broker: Broker) -> None:
    """Make clients with filters wait in matching queues that have jobs now."""
    to_join, broker.patterns.to_join = broker.patterns.to_join, {}
    for queue in to_join:
        for group in queue.patterns or () if not queue.is_dropped else ():
            for client in group.filtered:
                _join(broker, client, [queue])
        if queue.filters is not None:
            queue.filters.all_due()
            broker.ready[queue] = None


def on_queue(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Make clients with filters wait in a queue of the sender. The queue is made here if it does not exist."""
    for name, *_ in items:
        if type(name) is not bytes:
            raise ValueError("a queue without a name")
        groups = [group for group in broker.patterns.matching(name) if group.told[2] > GONE]
        for group in groups:
            group.elsewhere[name] = None
        if groups:
            broker.patterns.to_join[broker.queue(name)] = None
