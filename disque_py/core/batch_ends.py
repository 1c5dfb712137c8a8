"""The ends of batches: when a batch is done, and when it is forgotten. BATCHFLUSH, BATCHFLUSHED.

The *primary* of a batch is the linked keeper with the lowest id. It replaces keepers that have failed or left, decides
when the batch is done, and forgets old batches. keeping.py explains how keepers get the ids.

A batch is done when it is closed and every job is over or errored. Before the primary decides that, it asks all linked
nodes whether their reports have arrived (BATCHFLUSH). In its answer a keeper also tells how many ids it has. So while
the nodes are linked, no job is missed whose producer has got its reply. Then the callback of the batch is added, if it
has one (batch_callbacks.py).

If all copies of a job were lost, no node reports its end, and its id would stay live. After the job's TTL the primary
counts it as expired. Spec BT4, BT5, BT8.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from cluster_bus.messages import BATCHFLUSH
from cluster_bus.node import FAIL, FORGOTTEN, LEAVING, UNKNOWN, Node
from disque_py.core import keeping, stalling
from disque_py.core.batch_state import (
    CALLBACK_BODY,
    CALLBACK_ID,
    CALLBACK_QUEUE,
    CLOSED,
    DONE,
    KEEPERS,
    LIVE,
    Batch,
    Flush,
)
from disque_py.core.broker import Broker
from disque_py.core.id_sets import ENTRY_BYTES, KEY_BYTES
from disque_py.core.ids import TTL_MINUTES_MAX
from disque_py.core.keeping import LOOKED_PER_PART, RETRY_MS
from disque_py.core.queue_settings import RESET_FIELD
from disque_py.event_format import EXPIRED

# How often the keepers and the ages of all batches are checked.
LOOK_MS: Final = 10_000
# A batch that is done, or that was never closed and whose jobs are over, is forgotten after this span.
KEPT_MS: Final = 86_400_000
# A node that has a job reports its expiry, again and again. Differences of clocks and links delay it by less than this.
LOST_MS: Final = 600_000
MINUTE_MS: Final = 60_000
# The TTL field of an id has this value for every longer TTL, too.
TTL_UNKNOWN_MINUTES: Final = TTL_MINUTES_MAX - 1
LOST_NEVER_MS: Final = 1 << 62


def step(broker: Broker) -> None:
    """Repeat reports, decide which batches are done, and check keepers. Called ten times a second."""
    batches = broker.batches
    if broker.is_loading:
        batches.was_loading = True
        return
    if batches.was_loading:
        batches.was_loading = False
        for node in broker.cluster.linked:
            keeping.on_link_up(broker, node)
    keeping.repeat_reports(broker)
    _repeat_flushes(broker)
    if batches.due:
        due, batches.due = list(batches.due), {}
        for name in due[:LOOKED_PER_PART]:
            _look_at(broker, name)
        if len(due) > LOOKED_PER_PART:
            broker.schedule.walk(_looked_at_due(broker, due[LOOKED_PER_PART:]))
    for name, clients in list(batches.waiting.items()):
        for client, until_ms in list(clients.items()):
            if 0 < until_ms <= broker.now_ms or client not in broker.waits.incremental:
                del clients[client]
                stalling.resume_client(broker, client)
        if not clients:
            batches.waiting.pop(name, None)
    is_changed = broker.cluster.epoch != batches.seen_epoch
    if batches.by_name and (is_changed or broker.now_ms - batches.looked_ms >= LOOK_MS):
        batches.seen_epoch = broker.cluster.epoch
        batches.looked_ms = broker.now_ms
        broker.schedule.walk(_looked_at(broker))


def _repeat_flushes(broker: Broker) -> None:
    """Repeat questions without an answer. A node that reads its journal does not hear them."""
    flushes = broker.batches.flushes
    for _ in range(LOOKED_PER_PART):
        if not flushes:
            return
        number = next(iter(flushes))
        flush = flushes[number]
        if broker.now_ms - flush.sent_ms < RETRY_MS:
            return
        del flushes[number]
        batch = broker.batches.by_name.get(flush.name)
        if batch is None or not keeping.is_primary(broker, batch):
            if batch is not None and batch.flush == number:
                batch.flush = 0
            continue
        flushes[number] = flush  # To the end, because it is the question that was asked last.
        flush.sent_ms = broker.now_ms
        flush.nodes = dict.fromkeys([node for node in flush.nodes if node.is_linked])
        nodes = broker.sets.others(broker.sets.of([*flush.nodes]))
        if nodes:
            broker.send(nodes, BATCHFLUSH, (number, flush.name))
        _end_flush(broker, number)


def _looked_at_due(broker: Broker, names: list[bytes]) -> Iterator[None]:
    for looked, name in enumerate(names, 1):
        _look_at(broker, name)
        if looked % LOOKED_PER_PART == 0:
            yield


def _looked_at(broker: Broker) -> Iterator[None]:
    """Check the keepers and the ages of all batches. Send ids again that no keeper has confirmed."""
    batches = broker.batches
    for looked, batch in enumerate(list(batches.by_name.values()), 1):
        if looked % LOOKED_PER_PART == 0:
            yield
        if batch.is_known and batch.parts and broker.me not in batch.keepers:
            push = batches.pushes.get(batch.name)
            if push is None or (push.is_sent and broker.now_ms - push.begun_ms >= LOOK_MS):
                keeping.push_ids(broker, batch)
        if not batch.is_known:
            continue
        if not keeping.is_primary(broker, batch):
            _look_for_keepers(broker, batch)
            if batch.is_closed and batch.live and broker.me in batch.keepers:
                # While this node was cut off, the others may have heard of an end, and of the end of the batch.
                keeping.send_digests(broker, batch, batch.keepers)
            continue
        here = [node for node in batch.keepers if not node.flags & (FAIL | FORGOTTEN | LEAVING) or node is broker.me]
        keepers = keeping.chosen_keepers(broker, here)
        if len(here) < len(batch.keepers) or len(keepers) > len(batch.keepers):
            if keepers != list(batch.keepers) and any(node not in batch.keepers for node in keepers):
                keeping.change(broker, batch, [(KEEPERS, b"".join([node.id for node in keepers]))])
        live = batch.live
        if live and batch.is_closed:
            keeping.send_digests(broker, batch, batch.keepers)  # A push may have told an end to only one other keeper.
        if live and broker.now_ms - batch.touched_ms >= _lost_after_ms(batch):
            broker.schedule.walk(_expired(broker, batch))
        is_idle = not live and broker.now_ms - batch.touched_ms >= KEPT_MS
        done_ms = int(batch.fields.get(DONE, b"0"))
        if is_idle and (not done_ms or broker.wall_ms - done_ms >= KEPT_MS):
            keeping.change(broker, batch, [(RESET_FIELD, b"")])


def _look_for_keepers(broker: Broker, batch: Batch) -> None:
    """Become a keeper of a batch whose keepers were all forgotten, left or were reset. Spec BT3.

    A report does the same immediately (keeping.report_ids). But if no job ends any more, no report comes, and the batch
    would neither be done nor be forgotten. A node that has just joined knows no other node yet, so it waits for the
    next look.
    """
    keeperless = broker.batches.keeperless
    if any(not node.flags & (FORGOTTEN | UNKNOWN) for node in batch.keepers):
        keeperless.pop(batch.name, None)
    elif broker.now_ms - keeperless.setdefault(batch.name, broker.now_ms) >= LOOK_MS:
        del keeperless[batch.name]
        keeping.become_keeper(broker, batch)


def _lost_after_ms(batch: Batch) -> int:
    """Return the span after the last change of a batch's ids in which all its jobs must have ended. Spec BT8."""
    if batch.ttl_minutes >= TTL_UNKNOWN_MINUTES:
        return LOST_NEVER_MS
    # The TTL field of an id has whole minutes, made odd or even (ids.py).
    ttl_ms = (batch.ttl_minutes + 2) * MINUTE_MS
    return ttl_ms + ttl_ms // 100 + LOST_MS


def _expired(broker: Broker, batch: Batch) -> Iterator[None]:
    """Count jobs without a reported end as expired, because all their copies were lost. Spec BT8."""
    changes = batch.changes
    looked = 0
    for ids in list(batch.parts.values()):
        for data in ids.entries():
            if batch.changes != changes or not keeping.is_primary(broker, batch):
                return  # A job began again, or another node is the primary now.
            found: dict[bytes, tuple[int, int]] = {}
            for at in range(0, len(data), ENTRY_BYTES):
                tail = at + KEY_BYTES
                if data[tail] == LIVE:
                    found[data[at:tail]] = (EXPIRED, int.from_bytes(data[tail + 1 : tail + 5], "little"))
            if found:
                keeping.report_ids(broker, batch.name, found)
                changes = batch.changes
            looked += len(data) // ENTRY_BYTES
            if looked >= LOOKED_PER_PART:
                looked = 0
                yield


def _look_at(broker: Broker, name: bytes) -> None:
    """Decide whether a batch is done, if this node is its primary."""
    batch = broker.batches.by_name.get(name)
    if batch is None or not batch.is_known or not keeping.is_primary(broker, batch):
        return
    live = batch.live
    if batch.is_done:
        if live:
            keeping.change(broker, batch, [(DONE, b"")])
        elif CALLBACK_QUEUE in batch.fields and CALLBACK_ID not in batch.fields:
            broker.batches.callbacks.setdefault(name, (0, False))
    elif batch.is_closed and not live and not batch.flush and name not in broker.batches.reporting:
        linked = broker.cluster.linked
        if not linked:
            _done(broker, batch)
            return
        broker.batches.number += 1
        batch.flush = broker.batches.number
        broker.batches.flushes[batch.flush] = Flush(name, linked, broker.now_ms)
        broker.send(linked, BATCHFLUSH, (batch.flush, name))


def _done(broker: Broker, batch: Batch) -> None:
    keeping.change(broker, batch, [(DONE, b"%d" % broker.wall_ms)])
    broker.batches.due[batch.name] = None


def on_batchflush(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note questions of other nodes. They are answered after our reports of this turn."""
    for number, name, *_ in items:
        if type(number) is not int or type(name) is not bytes:
            raise ValueError("an invalid question about reports")
        broker.batches.flush_answers[sender, number, name] = None


def on_batchflushed(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that all reports of a node have arrived."""
    batches = broker.batches
    for number, live, count, *_ in items:
        if type(number) is not int or type(live) is not int or type(count) is not int:
            raise ValueError("an invalid answer about reports")
        flush = batches.flushes.get(number)
        if flush is None or sender not in flush.nodes:
            continue
        name = flush.name
        batch = batches.by_name.get(name)
        if batch is not None and (live or count > batch.count):
            # That node knows more ids, or live ones. The sets must become equal first.
            del batches.flushes[number]
            batch.flush = 0
            keeping.send_digests(broker, batch, (sender,))
            broker.schedule.call_at(broker.now_ms + RETRY_MS, partial(_due_again, broker, name))
            continue
        del flush.nodes[sender]
        _end_flush(broker, number)


def _due_again(broker: Broker, name: bytes) -> None:
    broker.batches.due[name] = None


def _end_flush(broker: Broker, number: int) -> None:
    batches = broker.batches
    flush = batches.flushes[number]
    if flush.nodes:
        return
    del batches.flushes[number]
    batch = batches.by_name.get(flush.name)
    if batch is None or batch.flush != number:
        return
    batch.flush = 0
    if batch.is_closed and not batch.is_done and not batch.live and keeping.is_primary(broker, batch):
        _done(broker, batch)


def closing_changes(callback: tuple[bytes, bytes] | None) -> list[tuple[bytes, bytes]]:
    """Return the changes of its shared state that close a batch. `callback` is (queue, body)."""
    values = [(CLOSED, b"1")]
    if callback is not None:
        values += [(CALLBACK_QUEUE, callback[0]), (CALLBACK_BODY, callback[1])]
    return values
