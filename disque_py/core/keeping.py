"""Keeping batches: nodes that record the ids of a batch, and what they tell each other.

The *keepers* of a batch are the node that made it and two others. The shared state names them. Reports of other nodes
come as BATCHADD, and a keeper answers BATCHGOT when they are recorded. Reports go to all linked keepers, and one answer
is enough. A report that is not answered is repeated. Where no keeper is linked, the node that reports becomes one.

Keepers compare digests (BATCHSUM) when a link between them comes up, and when the list of keepers changes. Each tells
the other its entries of the parts that differ. Sets of ids merge, so both have the same afterwards. A node with ids may
be no keeper any more, because another list won. It gives its ids to the keepers and forgets them then.

The linked keeper with the lowest id is the *primary*. It replaces keepers that have failed or left, says when a batch
is done, makes the callback, and forgets old batches.

A batch is done when it is closed and every id is over or errored. Before the primary says so it asks all linked nodes
whether their reports have arrived (BATCHFLUSH). A keeper also tells how many ids it has. So no job that a producer was
told of is missed while nodes are linked.

A callback is an ADDJOB of this node's own, with a KEY, so nodes that make it at the same time make one job.
An id may stay alive whose job was lost with all of its copies. No node tells its end then. After its time to live the
primary counts it as expired. Spec BT1, BT2, BT3, BT4, BT5, BT8.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from cluster_bus.messages import BATCHADD, BATCHFLUSH, BATCHFLUSHED, BATCHGOT, BATCHSUM
from cluster_bus.node import FAIL, FORGOTTEN, LEAVING, Node
from disque_py.core import acks, replication, settings_sync, stalling
from disque_py.core.batch_state import (
    CALLBACK_BODY,
    CALLBACK_ID,
    CALLBACK_QUEUE,
    CLOSED,
    DONE,
    KEEPERS,
    LIVE,
    MADE,
    PARTS,
    Batch,
    Flush,
    Push,
    Report,
    keepers_of,
    packed_entry,
)
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.client import WROTE, Client
from disque_py.core.errors import CommandError
from disque_py.core.id_sets import ENTRY_BYTES, KEY_BYTES, check_entries
from disque_py.core.ids import TTL_MINUTES_MAX
from disque_py.core.job import ACKED, WAIT_REPL, Job
from disque_py.core.job_attributes import BATCH
from disque_py.core.queue_settings import BATCH as BATCH_STATE
from disque_py.core.queue_settings import RESET_FIELD, state_key
from disque_py.event_format import EXPIRED
from disque_py.resp.replies import error

KEEPERS_MAX: Final = 3
BATCHES_MAX: Final = 100_000
NAME_BYTES_MAX: Final = 1_024
# Entries of one message.
ENTRIES_MAX: Final = 500
RETRY_MS: Final = 1_000
# A look at all batches: their keepers, and whether they are old.
LOOK_MS: Final = 10_000
LOOKED_PER_PART: Final = 500
# A batch that is done, or that was never closed and whose jobs are over, is forgotten after this.
KEPT_MS: Final = 86_400_000
# Nodes that have a job tell that it expired, and repeat that. Clocks and links need less than this.
LOST_MS: Final = 600_000
MINUTE_MS: Final = 60_000
# The field of an id says no more of a longer time to live.
TTL_UNKNOWN_MINUTES: Final = TTL_MINUTES_MAX - 1
LOST_NEVER_MS: Final = 1 << 62
CALLBACK_RETRY_MS: Final = 1_000
CALLBACK_ADD_MS: Final = b"5000"
CALLBACK_KEY: Final = b"x-disque-batch:"
META_BATCH: Final = b"x-disque-batch"
TOO_MANY: Final = f"ERR too many batches, at most {BATCHES_MAX}"
CLOSED_ERROR: Final = "CLOSED The batch is closed"


def _nothing(failure: OSError | None) -> None:
    """Do nothing: the change is repeated with the next look, if it failed."""


def install(broker: Broker) -> None:
    """Begin to follow the shared state of batches."""
    broker.queue_settings.watch(BATCH_STATE, partial(_changed, broker))


def _change(broker: Broker, batch: Batch, values: list[tuple[bytes, bytes]]) -> None:
    settings_sync.change(broker, state_key(BATCH_STATE, batch.name), values, _nothing)


# -- the shared state -----------------------------------------------------------------------------------


def begin(broker: Broker, name: bytes) -> None:
    """Make a batch of this name if there is none. CommandError if it is closed, or if there are too many."""
    batch = broker.batches.by_name.get(name)
    if batch is not None and batch.is_known:
        if batch.is_closed:
            raise CommandError(CLOSED_ERROR)
        return
    key = state_key(BATCH_STATE, name)
    keepers = _chosen(broker, [broker.me])
    made = b"%d-%b" % (broker.wall_ms, broker.me.name[:8])
    values = [(MADE, made), (KEEPERS, b"".join([node.id for node in keepers]))]
    if len(broker.batches.by_name) >= BATCHES_MAX or not settings_sync.has_room(broker, key, values):
        raise CommandError(TOO_MANY)
    batch = broker.batches.get(name)
    batch.is_spreading = True

    def spread(failure: OSError | None) -> None:
        batch.is_spreading = False
        release(broker, [key for key, held in broker.batches.held.items() if _batch_of(held.job) == name])

    settings_sync.change(broker, key, values, spread)


def _batch_of(job: Job) -> bytes | None:
    name: bytes | None = None if job.attributes is None else job.attributes.extra(BATCH)
    return name


def _chosen(broker: Broker, keepers: list[Node]) -> list[Node]:
    """Return these keepers and further nodes, as many as a batch should have."""
    others = [node for node in broker.cluster.linked if node not in keepers and not node.flags & (FAIL | LEAVING)]
    broker.rng.shuffle(others)
    return [*keepers, *others[: max(0, KEEPERS_MAX - len(keepers))]]


def _changed(broker: Broker, name: bytes, fields: dict[bytes, bytes]) -> None:
    """Follow a change of a batch's shared state."""
    batches = broker.batches
    if MADE not in fields:
        if fields and not _is_deleted(broker, name):
            return  # Fields come one by one. Reports wait until all of the state is here.
        known = batches.by_name.get(name)
        if known is not None:
            known.fields = {}
            known.keepers = ()
            batches.drop(known)
            _drop_reports(broker, name)
        wake(broker, name)
        return
    batch = batches.get(name)
    old = batch.keepers
    batch.fields = fields
    batch.keepers = keepers_of(broker, fields)
    batches.due[name] = None
    if batch.keepers != old:
        batches.to_sync[name] = old
    if batch.is_done:
        wake(broker, name)


def _drop_reports(broker: Broker, name: bytes) -> None:
    batches = broker.batches
    for number, report in list(batches.reports.items()):
        if report.name == name:
            _confirmed(broker, number)


def wake(broker: Broker, name: bytes) -> None:
    """Let the clients go on that wait for a batch."""
    for client in broker.batches.waiting.pop(name, {}):
        stalling.go_on(broker, client)


def is_primary(broker: Broker, batch: Batch) -> bool:
    """Return whether this node is the linked keeper with the lowest id."""
    for node in batch.keepers:
        if node is broker.me:
            return True
        if node.is_linked:
            return False
    return False


# -- reports --------------------------------------------------------------------------------------------


def settle(broker: Broker) -> None:
    """At the end of a turn: record reports, or send them to keepers."""
    batches = broker.batches
    for name, old in batches.to_sync.items():
        _keepers_changed(broker, name, old)
    batches.to_sync = {}
    noted, batches.noted = batches.noted, {}
    for name, ids in noted.items():
        _report(broker, name, ids)
    answers, batches.flush_answers = batches.flush_answers, []
    for node, number, name in answers:
        batch = batches.by_name.get(name)
        live = batch.live if batch is not None else 0
        broker.send(broker.sets.only(node), BATCHFLUSHED, (number, live, batch.count if batch is not None else 0))


def _report(broker: Broker, name: bytes, ids: dict[bytes, tuple[int, int]]) -> None:
    batches = broker.batches
    batch = batches.by_name.get(name)
    if batch is None or (not batch.is_known and _is_deleted(broker, name)):
        release(broker, list(ids))
        return
    others = broker.sets.others(broker.sets.of([node for node in batch.keepers if node.is_linked]))
    is_keeper = broker.me in batch.keepers
    if not is_keeper and not others and batch.is_known:
        _become_keeper(broker, batch)
        is_keeper = True
        others = broker.sets.others(broker.sets.of([node for node in batch.keepers if node.is_linked]))
    if is_keeper:
        for key, (status, version) in ids.items():
            batches.enter(batch, key, status, version)
        release(broker, list(ids))
    items = list(ids.items())
    for at in range(0, len(items), ENTRIES_MAX):
        part = items[at : at + ENTRIES_MAX]
        number = 0
        if not is_keeper:
            batches.number += 1
            number = batches.number
            batches.reports[number] = Report(name, dict(part), broker.now_ms)
            batches.pending.update(dict.fromkeys([key for key, _ in part]))
        if others:
            data = b"".join([packed_entry(key, *state) for key, state in part])
            broker.send(others, BATCHADD, (number, name, data))


def _is_deleted(broker: Broker, name: bytes) -> bool:
    state = broker.queue_settings.states.get(state_key(BATCH_STATE, name))
    return state is not None and state.reset[0] > 0


def _become_keeper(broker: Broker, batch: Batch) -> None:
    """Become a keeper, because none can be reached."""
    keepers = _chosen(broker, [broker.me])
    _change(broker, batch, [(KEEPERS, b"".join([node.id for node in keepers]))])


def release(broker: Broker, keys: list[bytes]) -> None:
    """Answer producers, and collect ended jobs, that waited for these reports."""
    batches = broker.batches
    for key in keys:
        batches.pending.pop(key, None)
        held = batches.held.get(key)
        if held is not None:
            batch = batches.by_name.get(_batch_of(held.job) or b"")
            if batch is None or not batch.is_spreading:
                del batches.held[key]
                if held.client.waiting_jobs.get(held.job) is held.slot:
                    replication.answer(broker, held.client, held.job, held.slot, held.reply)
        job_id = batches.collecting.pop(key, None)
        job = None if job_id is None else broker.find(job_id)
        if job is not None and job.state == ACKED:
            acks.try_collect(broker, job)


def _confirmed(broker: Broker, number: int) -> None:
    report = broker.batches.reports.pop(number, None)
    if report is not None:
        release(broker, list(report.ids))


def on_batchadd(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Record what another node reports."""
    batches = broker.batches
    for number, name, data, *_ in items:
        if type(number) is not int or type(name) is not bytes or not 0 < len(name) <= NAME_BYTES_MAX:
            raise ValueError("a report of a batch that is none")
        check_entries(data)
        if len(data) > ENTRIES_MAX * ENTRY_BYTES:
            raise ValueError("a report of too many jobs")
        if not _is_deleted(broker, name) or (name in batches.by_name and batches.by_name[name].is_known):
            if name not in batches.by_name and len(batches.by_name) >= BATCHES_MAX:
                broker.stats.ignored("report of a job of too many batches")
                continue
            batch = batches.get(name)
            for at in range(0, len(data), ENTRY_BYTES):
                tail = at + KEY_BYTES
                version = int.from_bytes(data[tail + 1 : tail + 5], "little")
                batches.enter(batch, data[at:tail], data[tail], version)
            if batch.is_known and broker.me not in batch.keepers:
                batches.to_sync.setdefault(name, batch.keepers)  # Another list won: they are passed on.
        if number:
            broker.send(broker.sets.only(sender), BATCHGOT, number)


def on_batchgot(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that a keeper has recorded reports."""
    batches = broker.batches
    for number in items:
        if type(number) is not int:
            raise ValueError("a number of a report that is none")
        push = batches.push_of.pop(number, None)
        if push is None:
            _confirmed(broker, number)
        else:
            push.unanswered.pop(number, None)
            _end_push(broker, push)


# -- sets of keepers --------------------------------------------------------------------------------------


def _keepers_changed(broker: Broker, name: bytes, old: tuple[Node, ...]) -> None:
    """Bring the sets of the keepers together, because others are keepers now."""
    batches = broker.batches
    batch = batches.by_name.get(name)
    if batch is None or not batch.is_known:
        return
    if broker.me in batch.keepers:
        _sum(broker, batch, batch.keepers)
    elif batch.parts:
        _push(broker, batch)
    if old and batch.held and not any(node in batch.keepers for node in old):
        broker.schedule.walk(_reported_again(broker, name))
    for number, report in list(batches.reports.items()):
        if report.name == name:
            del batches.reports[number]
            _report(broker, name, report.ids)


def _sum(broker: Broker, batch: Batch, nodes: tuple[Node, ...]) -> None:
    others = broker.sets.others(broker.sets.of([node for node in nodes if node.is_linked]))
    if others:
        broker.send(others, BATCHSUM, (batch.name, batch.digests(), 0))


def on_batchsum(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Tell another keeper the entries of parts that differ."""
    batches = broker.batches
    for name, digests, is_answer, *_ in items:
        if type(name) is not bytes or type(digests) not in (list, tuple) or len(digests) != PARTS:
            raise ValueError("digests of a batch that are none")
        batch = batches.by_name.get(name)
        ours = batch.digests() if batch is not None else [0] * PARTS
        if not is_answer and list(digests) != ours:
            broker.send(broker.sets.only(sender), BATCHSUM, (name, ours, 1))
        differing = [part for part in range(PARTS) if ours[part] != digests[part]]
        if batch is not None and differing:
            broker.schedule.walk(_told(broker, batch, sender, differing, None))


def _told(broker: Broker, batch: Batch, node: Node, parts: list[int], push: Push | None) -> Iterator[None]:
    """Tell a node the entries of parts, a message per step."""
    only = broker.sets.only(node)
    batches = broker.batches
    rest = b""
    step = ENTRIES_MAX * ENTRY_BYTES
    for part in parts:
        ids = batch.parts.get(part)
        for data in ids.entries() if ids is not None else ():
            rest += data
            if len(rest) >= step:
                for at in range(0, len(rest) - step + 1, step):
                    _tell(broker, only, batch.name, rest[at : at + step], push)
                rest = rest[len(rest) - len(rest) % step :]
                yield
                if batches.by_name.get(batch.name) is not batch or not node.is_linked:
                    return
                if push is not None and batches.pushes.get(batch.name) is not push:
                    return  # Another one has begun.
    if rest:
        _tell(broker, only, batch.name, rest, push)
    if push is not None:
        push.is_sent = True
        _end_push(broker, push)


def _tell(broker: Broker, only: tuple[Node, ...], name: bytes, data: bytes, push: Push | None) -> None:
    number = 0
    if push is not None:
        broker.batches.number += 1
        number = broker.batches.number
        broker.batches.push_of[number] = push
        push.unanswered[number] = None
    broker.send(only, BATCHADD, (number, name, data))


def _push(broker: Broker, batch: Batch) -> None:
    """Give the ids of a batch to a keeper: this node is none."""
    target = next((node for node in batch.keepers if node.is_linked), None)
    if target is None:
        return
    old = broker.batches.pushes.get(batch.name)
    for number in old.unanswered if old is not None else ():
        broker.batches.push_of.pop(number, None)
    push = broker.batches.pushes[batch.name] = Push(batch.name, batch.count, broker.now_ms)
    broker.schedule.walk(_told(broker, batch, target, list(batch.parts), push))


def _end_push(broker: Broker, push: Push) -> None:
    """Forget ids that a keeper has recorded."""
    batches = broker.batches
    if push.unanswered or not push.is_sent or batches.pushes.get(push.name) is not push:
        return
    del batches.pushes[push.name]
    batch = batches.by_name.get(push.name)
    if batch is None or broker.me in batch.keepers:
        return
    if batch.count > push.size:
        _push(broker, batch)
    else:
        batches.drop_ids(batch)


def _reported_again(broker: Broker, name: bytes) -> Iterator[None]:
    """Report all jobs of a batch that this node has, because all its keepers are others now.

    A job whose producer still waits for copies is reported when it has them (spec BT1).
    """
    looked = 0
    for number in range(SHARDS):
        shard = broker.shards[number]
        for job in list(shard.values()):
            if job.attributes is not None and job.state not in (ACKED, WAIT_REPL) and _batch_of(job) == name:
                broker.batches.note_added(job)
        looked += len(shard)
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield


def on_link_up(broker: Broker, node: Node) -> None:
    """Compare the sets of batches that both nodes keep; give it the ids that it should keep."""
    if broker.batches.by_name:
        broker.schedule.walk(_compared(broker, node))


def _compared(broker: Broker, node: Node) -> Iterator[None]:
    for looked, batch in enumerate(list(broker.batches.by_name.values()), 1):
        if node in batch.keepers:
            if broker.me in batch.keepers:
                _sum(broker, batch, (node,))
                broker.batches.due[batch.name] = None
            elif batch.parts:
                _push(broker, batch)
        if looked % LOOKED_PER_PART == 0:
            yield


def on_link_lost(broker: Broker, node: Node) -> None:
    """Look at the batches that the node keeps: another keeper may have to say that they are done."""
    if broker.batches.by_name:
        broker.schedule.walk(_lost(broker, node))


def _lost(broker: Broker, node: Node) -> Iterator[None]:
    batches = broker.batches
    for looked, batch in enumerate(list(batches.by_name.values()), 1):
        if node in batch.keepers:
            batches.due[batch.name] = None
        if looked % LOOKED_PER_PART == 0:
            yield


# -- the end of a batch -------------------------------------------------------------------------------------


def step(broker: Broker) -> None:
    """Repeat reports, say which batches are done, and look after keepers. Called ten times a second."""
    batches = broker.batches
    if broker.is_loading:
        batches.was_loading = True
        return
    if batches.was_loading:
        batches.was_loading = False
        for node in broker.cluster.linked:
            on_link_up(broker, node)
    for number, report in list(batches.reports.items()):
        if broker.now_ms - report.sent_ms >= RETRY_MS and number in batches.reports:
            del batches.reports[number]
            _report(broker, report.name, report.ids)
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
                stalling.go_on(broker, client)
        if not clients:
            batches.waiting.pop(name, None)
    is_changed = broker.cluster.epoch != batches.seen_epoch
    if batches.by_name and (is_changed or broker.now_ms - batches.looked_ms >= LOOK_MS):
        batches.seen_epoch = broker.cluster.epoch
        batches.looked_ms = broker.now_ms
        broker.schedule.walk(_looked_at(broker))


def _repeat_flushes(broker: Broker) -> None:
    """Ask again where an answer is missing: a node that reads its journal hears no question."""
    flushes = broker.batches.flushes
    for _ in range(LOOKED_PER_PART):
        if not flushes:
            return
        number = next(iter(flushes))
        flush = flushes[number]
        if broker.now_ms - flush.sent_ms < RETRY_MS:
            return
        del flushes[number]
        flushes[number] = flush  # The last one that was asked is the last.
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
    """Look at the keepers and the ages of all batches, and give ids away again that no keeper has confirmed."""
    batches = broker.batches
    for looked, batch in enumerate(list(batches.by_name.values()), 1):
        if looked % LOOKED_PER_PART == 0:
            yield
        if batch.is_known and batch.parts and broker.me not in batch.keepers:
            push = batches.pushes.get(batch.name)
            if push is None or (push.is_sent and broker.now_ms - push.begun_ms >= LOOK_MS):
                _push(broker, batch)
        if not batch.is_known or not is_primary(broker, batch):
            continue
        here = [node for node in batch.keepers if not node.flags & (FAIL | FORGOTTEN | LEAVING) or node is broker.me]
        keepers = _chosen(broker, here)
        if len(here) < len(batch.keepers) or len(keepers) > len(batch.keepers):
            if keepers != list(batch.keepers) and any(node not in batch.keepers for node in keepers):
                _change(broker, batch, [(KEEPERS, b"".join([node.id for node in keepers]))])
        live = batch.live
        if live and batch.is_closed:
            _sum(broker, batch, batch.keepers)  # An end may have reached another keeper alone, in a push.
        if live and broker.now_ms - batch.touched_ms >= _lost_after_ms(batch):
            broker.schedule.walk(_expired(broker, batch))
        is_idle = not live and broker.now_ms - batch.touched_ms >= KEPT_MS
        done_ms = int(batch.fields.get(DONE, b"0"))
        if is_idle and (not done_ms or broker.wall_ms - done_ms >= KEPT_MS):
            _change(broker, batch, [(RESET_FIELD, b"")])


def _lost_after_ms(batch: Batch) -> int:
    """Return how long after the last change of a batch's ids no job of it can be alive. Spec BT8."""
    if batch.ttl_minutes >= TTL_UNKNOWN_MINUTES:
        return LOST_NEVER_MS
    # The field of an id is the time to live in minutes, rounded, and made odd or even (ids.py).
    ttl_ms = (batch.ttl_minutes + 2) * MINUTE_MS
    return ttl_ms + ttl_ms // 100 + LOST_MS


def _expired(broker: Broker, batch: Batch) -> Iterator[None]:
    """Count the jobs as expired of which no node told an end: they were lost with all copies. Spec BT8."""
    changes = batch.changes
    looked = 0
    for ids in list(batch.parts.values()):
        for data in ids.entries():
            if batch.changes != changes or not is_primary(broker, batch):
                return  # A job began again, or another node says so.
            found: dict[bytes, tuple[int, int]] = {}
            for at in range(0, len(data), ENTRY_BYTES):
                tail = at + KEY_BYTES
                if data[tail] == LIVE:
                    found[data[at:tail]] = (EXPIRED, int.from_bytes(data[tail + 1 : tail + 5], "little"))
            if found:
                _report(broker, batch.name, found)
                changes = batch.changes
            looked += len(data) // ENTRY_BYTES
            if looked >= LOOKED_PER_PART:
                looked = 0
                yield


def _look_at(broker: Broker, name: bytes) -> None:
    """Say whether a batch is done, if this node is its primary."""
    batch = broker.batches.by_name.get(name)
    if batch is None or not batch.is_known or not is_primary(broker, batch):
        return
    live = batch.live
    if batch.is_done:
        if live:
            _change(broker, batch, [(DONE, b"")])
        elif CALLBACK_QUEUE in batch.fields and CALLBACK_ID not in batch.fields:
            broker.batches.callbacks.setdefault(name, 0)
    elif batch.is_closed and not live and not batch.flush:
        linked = broker.cluster.linked
        if not linked:
            _done(broker, batch)
            return
        broker.batches.number += 1
        batch.flush = broker.batches.number
        broker.batches.flushes[batch.flush] = Flush(name, linked, broker.now_ms)
        broker.send(linked, BATCHFLUSH, (batch.flush, name))


def _done(broker: Broker, batch: Batch) -> None:
    _change(broker, batch, [(DONE, b"%d" % broker.wall_ms)])
    broker.batches.due[batch.name] = None


def on_batchflush(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Answer behind our reports of this turn."""
    for number, name, *_ in items:
        if type(number) is not int or type(name) is not bytes:
            raise ValueError("a question about reports that is none")
        broker.batches.flush_answers.append((sender, number, name))


def on_batchflushed(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that all reports of a node have arrived."""
    batches = broker.batches
    for number, live, count, *_ in items:
        if type(number) is not int or type(live) is not int or type(count) is not int:
            raise ValueError("an answer about reports that is none")
        flush = batches.flushes.get(number)
        if flush is None or sender not in flush.nodes:
            continue
        name = flush.name
        batch = batches.by_name.get(name)
        if batch is not None and (live or count > batch.count):
            # That node knows more: the sets come together first.
            del batches.flushes[number]
            batch.flush = 0
            _sum(broker, batch, (sender,))
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
    if batch.is_closed and not batch.is_done and not batch.live and is_primary(broker, batch):
        _done(broker, batch)


def close(broker: Broker, batch: Batch, callback: tuple[bytes, bytes] | None) -> list[tuple[bytes, bytes]]:
    """Return the changes that close a batch."""
    values = [(CLOSED, b"1")]
    if callback is not None:
        values += [(CALLBACK_QUEUE, callback[0]), (CALLBACK_BODY, callback[1])]
    return values


# -- callbacks ------------------------------------------------------------------------------------------------


class CallbackPort:
    """The connection of a callback's ADDJOB: its reply goes to the batch (ports.ClientPort)."""

    def __init__(self, broker: Broker, name: bytes) -> None:
        self._broker = broker
        self._name = name
        self.client: Client | None = None

    def wake(self) -> None:
        """Take the reply. It is released when the job's record is safe, like that of any client."""
        client = self.client
        if client is not None and client.out:
            reply = b"".join(client.out)
            client.out = []
            _called_back(self._broker, self._name, reply)

    def close(self, *, after_replies: bool) -> None:
        """Do nothing: there is no connection."""

    def input_bytes(self) -> int:
        """Return 0."""
        return 0

    def output_bytes(self) -> int:
        """Return 0."""
        return 0


def call_back(broker: Broker) -> None:
    """Make the callbacks that are due: an ADDJOB each, as if a client had sent it."""
    batches = broker.batches
    for name, at_ms in list(batches.callbacks.items()):
        batch = batches.by_name.get(name)
        if batch is None or CALLBACK_QUEUE not in batch.fields or CALLBACK_ID in batch.fields:
            del batches.callbacks[name]
        elif at_ms <= broker.now_ms:
            batches.callbacks[name] = broker.now_ms + 10 * CALLBACK_RETRY_MS
            _add(broker, batch)


def _add(broker: Broker, batch: Batch) -> None:
    addjob = broker.recurring.addjob
    assert addjob is not None
    port = CallbackPort(broker, batch.name)
    client = port.client = Client(0, port, "", broker.now_ms)
    queue, body = batch.fields[CALLBACK_QUEUE], batch.fields.get(CALLBACK_BODY, b"")
    key = b"%b%b:%b" % (CALLBACK_KEY, batch.fields[MADE], batch.name)
    argv = [b"ADDJOB", queue, body, CALLBACK_ADD_MS, b"KEY", key[:1024], b"META", META_BATCH, batch.name]
    broker.recurring.is_internal = True
    try:
        reply = addjob(broker, client, argv)
    except CommandError as refused:
        reply = error(refused.text)
    finally:
        broker.recurring.is_internal = False
    if reply is not None:
        client.reply(reply)
        client.wrote = WROTE
        broker.outbox.clients[client] = None
    else:
        broker.batches.clients[batch.name] = client


def _called_back(broker: Broker, name: bytes, reply: bytes) -> None:
    """Note the callback's job; or try again later."""
    batches = broker.batches
    batches.clients.pop(name, None)
    batch = batches.by_name.get(name)
    if batch is None or not batch.is_known:
        return
    if reply.startswith(b"+"):
        batches.callbacks.pop(name, None)
        _change(broker, batch, [(CALLBACK_ID, reply[1:-2])])
    else:
        batches.callbacks[name] = broker.now_ms + CALLBACK_RETRY_MS
