"""The keepers of a batch record the ids of its jobs, and compare them: BATCHADD, BATCHGOT, BATCHSUM.

The *keepers* of a batch are the node that made it and two others. The batch's shared state names them. Each node
*reports* jobs of the batch to all linked keepers with BATCHADD. A keeper answers BATCHGOT once it has recorded the
report, and one answer is enough. A report without an answer is repeated. If no keeper is linked, the node that reports
becomes a keeper.

Keepers compare digests (BATCHSUM) when a link between them comes up, and when the list of keepers changes. Each sends
the other its entries of the parts that differ. Sets of ids merge, so both have the same entries afterwards. If two
nodes change the list of keepers at the same time, one list wins. A node that has ids and is not in that list pushes its
ids to a keeper, and forgets them when the keeper has recorded them.

batch_state.py has the state, and batch_ends.py decides when a batch is done. Spec BT1, BT2, BT3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from cluster_bus.messages import BATCHADD, BATCHFLUSHED, BATCHGOT, BATCHSUM
from cluster_bus.node import FAIL, LEAVING, Node
from disque_py.core import acks, producer_waits, settings_sync, stalling
from disque_py.core.batch_state import ABORTED, KEEPERS, MADE, PARTS, Batch, Push, Report, keepers_of, packed_entry
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.errors import CommandError
from disque_py.core.id_sets import ENTRY_BYTES, KEY_BYTES, check_entries
from disque_py.core.job import ACKED, WAIT_REPL, Handover, Job
from disque_py.core.job_attributes import BATCH
from disque_py.core.queue_settings import BATCH as BATCH_STATE
from disque_py.core.queue_settings import state_key
from disque_py.event_format import CANCELED, COMPLETED, EXPIRED

KEEPERS_MAX: Final = 3
BATCHES_MAX: Final = 100_000
NAME_BYTES_MAX: Final = 1_024
# Entries of one message.
ENTRIES_MAX: Final = 500
RETRY_MS: Final = 1_000
# A node that has reports for a batch whose shared state it does not know asks for that state this often.
ASK_MS: Final = 10_000
# After this time it gives up reports about the ends of jobs: no node knows the batch any more.
UNKNOWN_MS: Final = 60_000
# It gives up reports about a batch that was deleted after this time, unless another node has made the batch again.
DELETED_MS: Final = 1_000
LOOKED_PER_PART: Final = 500
# Statuses of jobs that are over.
OVER: Final = (ABORTED, COMPLETED, CANCELED, EXPIRED)
TOO_MANY: Final = f"ERR too many batches, at most {BATCHES_MAX}"
CLOSED_ERROR: Final = "CLOSED The batch is closed"


def _nothing(failure: OSError | None) -> None:
    """Ignore the result. The next look at the batch repeats a change that failed."""


def install(broker: Broker) -> None:
    """Subscribe to changes of the shared state of batches."""
    broker.queue_settings.watch(BATCH_STATE, partial(_changed, broker))


def change(broker: Broker, batch: Batch, values: list[tuple[bytes, bytes]]) -> None:
    """Set fields of a batch's shared state."""
    settings_sync.change(broker, state_key(BATCH_STATE, batch.name), values, _nothing)


# -- the shared state -----------------------------------------------------------------------------------


def refuse_closed(broker: Broker, name: bytes) -> None:
    """Refuse a job of a batch that is closed. CommandError."""
    batch = broker.batches.by_name.get(name)
    if batch is not None and batch.is_known and batch.is_closed:
        raise CommandError(CLOSED_ERROR)


def begin(broker: Broker, name: bytes) -> None:
    """Make a batch of this name if there is none. CommandError if it is closed, or if there are too many."""
    refuse_closed(broker, name)
    batch = broker.batches.by_name.get(name)
    if batch is not None and batch.is_known:
        return
    key = state_key(BATCH_STATE, name)
    keepers = chosen_keepers(broker, [broker.me])
    made = b"%d-%b" % (broker.wall_ms, broker.me.name[:8])
    state = broker.queue_settings.states.get(key)
    # A change that came at the same time as the DEL of an earlier batch may have outlived it. Without a DEL, these are
    # fields of a batch that another node has made. The others have not arrived yet.
    left = state.fields if state is not None and state.reset[0] else {}
    values = [(field, b"") for field, known in left.items() if known[0] and field not in (MADE, KEEPERS)]
    values += [(MADE, made), (KEEPERS, b"".join([node.id for node in keepers]))]
    others = len(broker.batches.by_name) - (batch is not None)  # A job that waits for copies may have entered it.
    if others >= BATCHES_MAX or not settings_sync.has_room(broker, key, values):
        raise CommandError(TOO_MANY)
    batch = broker.batches.get(name)
    batch.is_spreading = True

    def spread(failure: OSError | None) -> None:
        batches = broker.batches
        batch.is_spreading = False
        held = [key for key, held in batches.held.items() if _batch_of(held.job) == name]
        # Other nodes may have become keepers meanwhile. Jobs whose reports are on their way to them are not released.
        unreported = batches.pending.keys() | batches.noted.get(name, {}).keys()
        release(broker, [key for key in held if key not in unreported])

    settings_sync.change(broker, key, values, spread)


def _batch_of(job: Job) -> bytes | None:
    name: bytes | None = None if job.attributes is None else job.attributes.extra(BATCH)
    return name


def chosen_keepers(broker: Broker, keepers: list[Node]) -> list[Node]:
    """Return these keepers, filled up with other nodes to the number that a batch should have."""
    others = [node for node in broker.cluster.linked if node not in keepers and not node.flags & (FAIL | LEAVING)]
    broker.rng.shuffle(others)
    return [*keepers, *others[: max(0, KEEPERS_MAX - len(keepers))]]


def _changed(broker: Broker, name: bytes, fields: dict[bytes, bytes]) -> None:
    """Follow a change of a batch's shared state."""
    batches = broker.batches
    if MADE not in fields:
        if fields and not _is_deleted(broker, name):
            return  # Fields arrive one by one. Reports wait until the whole state is here.
        known = batches.by_name.get(name)
        if known is not None and not known.is_known:
            # The state of a new batch may follow, field by field. So the reports wait for it.
            batches.drop_ids(known)
            if not known.is_spreading:
                batches.forget_unused(name)
        elif known is not None:
            known.fields = {}
            known.keepers = ()
            unreported = list(batches.noted.get(name, {}))
            batches.drop(known)
            _drop_reports(broker, name)
            release(broker, unreported)
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
    """Wake the clients that wait for a batch."""
    for client in broker.batches.waiting.pop(name, {}):
        stalling.resume_client(broker, client)


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
    """At the end of a turn, record reports or send them to keepers."""
    batches = broker.batches
    for name, old in batches.to_sync.items():
        _keepers_changed(broker, name, old)
    batches.to_sync = {}
    noted, batches.noted = batches.noted, {}
    for name, ids in noted.items():
        report_ids(broker, name, ids)
    answers, batches.flush_answers = batches.flush_answers, {}
    for node, number, name in answers:
        if name in batches.reporting:
            batches.flush_answers[node, number, name] = None  # Its answer comes behind these reports, too.
            continue
        batch = batches.by_name.get(name)
        if batch is not None and batch.is_known and node not in batch.keepers:
            continue  # The node repeats its question. Other keepers make this one report its jobs again, first.
        live = batch.live if batch is not None else 0
        broker.send(broker.sets.only(node), BATCHFLUSHED, (number, live, batch.count if batch is not None else 0))


def report_ids(broker: Broker, name: bytes, ids: dict[bytes, tuple[int, int]], since_ms: int | None = None) -> None:
    """Report the statuses and versions of a batch's jobs to the linked keepers. A keeper also records them itself.

    The last of a batch's jobs on this node may end before this node hears of the batch (spec BT3). Then the report
    waits for the shared state of the batch. This node may also have heard of the deletion of an earlier batch only.

    since_ms   when the report was first noted; None: now
    """
    batches = broker.batches
    batch = batches.by_name.get(name)
    if since_ms is None:
        since_ms = broker.now_ms
    if batch is None or not batch.is_known:
        waited_ms = broker.now_ms - since_ms
        is_deleted = waited_ms >= DELETED_MS and _is_deleted(broker, name)
        if is_deleted or (batch is None and len(batches.by_name) >= BATCHES_MAX):
            release(broker, list(ids))
            ids = {}
        elif waited_ms >= UNKNOWN_MS:
            ids = _give_up(broker, name, ids)
        if not ids:
            batches.forget_unused(name)
            return
        batch = batches.get(name)
    others = broker.sets.others(broker.sets.of([node for node in batch.keepers if node.is_linked]))
    is_keeper = broker.me in batch.keepers
    if not is_keeper and not others and batch.is_known:
        become_keeper(broker, batch)
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
            batches.reports[number] = Report(name, dict(part), since_ms, broker.now_ms)
            batches.pending.update(dict.fromkeys([key for key, _ in part], number))
        if others:
            data = b"".join([packed_entry(key, *state) for key, state in part])
            broker.send(others, BATCHADD, (number, name, data))


def _give_up(broker: Broker, name: bytes, ids: dict[bytes, tuple[int, int]]) -> dict[bytes, tuple[int, int]]:
    """Give up reports about a batch that no node knows any more. Return the reports about jobs that this node has.

    The record of an ended job waits for its report. So it may not keep the report.
    """
    release(broker, [key for key, (status, _) in ids.items() if status in OVER])
    batch = broker.batches.by_name.get(name)
    if batch is not None and batch.held:
        return {key: state for key, state in ids.items() if state[0] not in OVER}
    release(broker, list(ids))
    return {}


def repeat_reports(broker: Broker) -> None:
    """Repeat reports that no keeper has answered for RETRY_MS. Ask other nodes about batches that are unknown here."""
    batches = broker.batches
    is_unknown = False
    for number, report in list(batches.reports.items()):
        if broker.now_ms - report.sent_ms >= RETRY_MS and number in batches.reports:
            del batches.reports[number]
            # A later report of the same job, which is on its way, has a later status.
            newest = {key: state for key, state in report.ids.items() if batches.pending.get(key) == number}
            if newest:
                report_ids(broker, report.name, newest, report.since_ms)
            batch = batches.by_name.get(report.name)
            is_unknown |= batch is not None and not batch.is_known and not _is_deleted(broker, report.name)
    if is_unknown and broker.now_ms >= batches.ask_at_ms:
        batches.ask_at_ms = broker.now_ms + ASK_MS
        settings_sync.ask_all(broker)


def _is_deleted(broker: Broker, name: bytes) -> bool:
    state = broker.queue_settings.states.get(state_key(BATCH_STATE, name))
    return state is not None and state.reset[0] > 0


def become_keeper(broker: Broker, batch: Batch) -> None:
    """Become a keeper, because no keeper can be reached, or none is left."""
    keepers = chosen_keepers(broker, [broker.me])
    change(broker, batch, [(KEEPERS, b"".join([node.id for node in keepers]))])


def release(broker: Broker, keys: list[bytes], number: int = 0) -> None:
    """Answer the producers, and collect the ended jobs, that waited for these reports to be recorded.

    number   of the report that was recorded; 0: no report of these jobs matters any more
    """
    batches = broker.batches
    for key in keys:
        is_last = not number or batches.pending.get(key) == number
        if is_last:
            batches.pending.pop(key, None)
        held = batches.held.get(key)
        if held is not None:
            batch = batches.by_name.get(_batch_of(held.job) or b"")
            if batch is None or not batch.is_spreading:
                del batches.held[key]
                if held.client.waiting_jobs.get(held.job) is held.slot:
                    producer_waits.answer(broker, held.client, held.job, held.slot, held.reply)
        if not is_last:
            continue  # The job has ended since, and the report of its end is on its way.
        job_id = batches.collecting.pop(key, None)
        job = None if job_id is None else broker.find(job_id)
        if job is not None and job.state == ACKED:
            acks.try_collect(broker, job)


def _confirmed(broker: Broker, number: int) -> None:
    report = broker.batches.reports.pop(number, None)
    if report is not None:
        release(broker, list(report.ids), number)


def on_batchadd(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Record the reports of another node."""
    batches = broker.batches
    for number, name, data, *_ in items:
        if type(number) is not int or type(name) is not bytes or not 0 < len(name) <= NAME_BYTES_MAX:
            raise ValueError("a malformed report about a batch")
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
                batches.to_sync.setdefault(name, batch.keepers)  # Another list of keepers won: push the entries to it.
        elif number:
            continue  # The batch may have been made again. The node repeats its report, or hears of the deletion.
        if number:
            broker.send(broker.sets.only(sender), BATCHGOT, number)


def on_batchgot(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that a keeper has recorded reports."""
    batches = broker.batches
    for number in items:
        if type(number) is not int:
            raise ValueError("a malformed number of a report")
        push = batches.push_of.pop(number, None)
        if push is None:
            _confirmed(broker, number)
        else:
            push.unanswered.pop(number, None)
            _end_push(broker, push)


# -- sets of keepers --------------------------------------------------------------------------------------


def _keepers_changed(broker: Broker, name: bytes, old: tuple[Node, ...]) -> None:
    """Synchronize the keepers' sets of ids, because the list of keepers has changed."""
    batches = broker.batches
    batch = batches.by_name.get(name)
    if batch is None or not batch.is_known:
        return
    if broker.me in batch.keepers:
        send_digests(broker, batch, batch.keepers)
    elif batch.parts:
        push_ids(broker, batch)
    if old and not any(node in batch.keepers for node in old):
        batch.is_renewed = True
        if batch.held:
            batches.reporting[name] = batches.reporting.get(name, 0) + 1
            broker.schedule.walk(_reported_again(broker, name))
    for number, report in list(batches.reports.items()):
        if report.name == name:
            del batches.reports[number]
            report_ids(broker, name, report.ids, report.since_ms)


def send_digests(broker: Broker, batch: Batch, nodes: tuple[Node, ...]) -> None:
    """Send digests of a batch's ids to these keepers, which compare them with their own."""
    others = broker.sets.others(broker.sets.of([node for node in nodes if node.is_linked]))
    if others:
        broker.send(others, BATCHSUM, (batch.name, batch.digests(), 0))


def on_batchsum(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Send another keeper the entries of the parts whose digests differ."""
    batches = broker.batches
    for name, digests, is_answer, *_ in items:
        if type(name) is not bytes or type(digests) not in (list, tuple) or len(digests) != PARTS:
            raise ValueError("malformed digests of a batch")
        batch = batches.by_name.get(name)
        ours = batch.digests() if batch is not None else [0] * PARTS
        if not is_answer and list(digests) != ours:
            broker.send(broker.sets.only(sender), BATCHSUM, (name, ours, 1))
        differing = [part for part in range(PARTS) if ours[part] != digests[part]]
        if batch is not None and differing:
            broker.schedule.walk(_told(broker, batch, sender, differing, None))


def _told(broker: Broker, batch: Batch, node: Node, parts: list[int], push: Push | None) -> Iterator[None]:
    """Send a node the entries of these parts, about one message per step."""
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
                    return  # Another push has replaced this one.
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


def push_ids(broker: Broker, batch: Batch) -> None:
    """Send the ids of a batch to a keeper, because this node is not a keeper any more."""
    target = next((node for node in batch.keepers if node.is_linked), None)
    if target is None:
        return
    old = broker.batches.pushes.get(batch.name)
    for number in old.unanswered if old is not None else ():
        broker.batches.push_of.pop(number, None)
    push = broker.batches.pushes[batch.name] = Push(batch.name, batch.count, broker.now_ms)
    broker.schedule.walk(_told(broker, batch, target, list(batch.parts), push))


def _end_push(broker: Broker, push: Push) -> None:
    """Forget the ids when a keeper has recorded all of them."""
    batches = broker.batches
    if push.unanswered or not push.is_sent or batches.pushes.get(push.name) is not push:
        return
    del batches.pushes[push.name]
    batch = batches.by_name.get(push.name)
    if batch is None or broker.me in batch.keepers:
        return
    if batch.count > push.size:
        push_ids(broker, batch)
    else:
        batches.drop_ids(batch)


def _reported_again(broker: Broker, name: bytes) -> Iterator[None]:
    """Report all jobs of a batch that this node has, because all keepers of the batch are new.

    A job whose producer still waits is reported later, before the producer is answered (spec BT1). Another node can't
    tell its copy of such a job from other copies, and reports it. If the ADDJOB fails, that node reports the failure,
    too (`note_aborted`, spec BT8).
    """
    looked = 0
    for number in range(SHARDS):
        shard = broker.shards[number]
        for job in list(shard.values()):
            if job.attributes is not None and job.state not in (ACKED, WAIT_REPL) and _batch_of(job) == name:
                work = job.work
                if not isinstance(work, Handover) or work.client is None:
                    broker.batches.note_added(job)
        looked += len(shard)
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield
    reporting = broker.batches.reporting
    reporting[name] -= 1
    if not reporting[name]:
        del reporting[name]
        broker.batches.due[name] = None


def on_link_up(broker: Broker, node: Node) -> None:
    """Compare the ids of batches that both nodes keep. Push the ids of batches that only the other node keeps."""
    if broker.batches.by_name:
        broker.schedule.walk(_compared(broker, node))


def _compared(broker: Broker, node: Node) -> Iterator[None]:
    for looked, batch in enumerate(list(broker.batches.by_name.values()), 1):
        if node in batch.keepers:
            if broker.me in batch.keepers:
                send_digests(broker, batch, (node,))
                broker.batches.due[batch.name] = None
            elif batch.parts:
                push_ids(broker, batch)
        if looked % LOOKED_PER_PART == 0:
            yield


def on_link_lost(broker: Broker, node: Node) -> None:
    """Look at the batches that the lost node keeps, because another keeper may have to declare them done."""
    if broker.batches.by_name:
        broker.schedule.walk(_lost(broker, node))


def _lost(broker: Broker, node: Node) -> Iterator[None]:
    batches = broker.batches
    for looked, batch in enumerate(list(batches.by_name.values()), 1):
        if node in batch.keepers:
            batches.due[batch.name] = None
        if looked % LOOKED_PER_PART == 0:
            yield
