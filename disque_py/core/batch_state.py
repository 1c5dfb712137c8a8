"""Batches: groups of jobs that are counted together, as one node knows them.

A batch has *shared state* that every node knows (settings_sync.py): whether the batch is closed, its callback, its
keepers, and whether it is done. Only the keepers know the *ids* of its jobs. They keep them as PARTS sets (id_sets.py).

A node that adds or ends a job of a batch makes a *report*, which is an entry for such a set. If the node is a keeper
itself, it records the report in the same turn as the job. Any other node sends it to the keepers, again and again until
one has recorded it. Until then, the producer's reply waits, and the record of the ended job stays. keeping.py sends the
reports.

events.py notes reports here, because every change of a job's status passes there. Spec BT1, BT2, BT3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from disque_py import event_format
from disque_py.core.id_sets import ENTRY_BYTES, KEY_BYTES, IdSet, pack_id
from disque_py.core.job_attributes import BATCH
from disque_py.core.queue_settings import BATCH as BATCH_STATE
from disque_py.core.queue_settings import state_key

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.job import Job

# The status of a job that is not over, in an entry.
LIVE: Final = 0
# The status of a job whose ADDJOB failed after a node with a copy may have reported it as live. It does not count.
ABORTED: Final = 1
# Bytes in `used_memory` of a batch without its ids, and of each id.
BATCH_BYTES: Final = 1_000
ID_BYTES: Final = 38
RECORD_BYTES: Final = 16
# The most entries of one record, and of one part of a walk.
RECORDED_MAX: Final = 500
# The life of a batch whose name was never deleted. Older journals have 0 or 1 here, without a meaning.
FIRST_LIFE: Final = 2
PARTS: Final = 16
_PART_AT: Final = 12
_TTL_AT: Final = KEY_BYTES - 2
NODE_BYTES: Final = 20

# Fields of the shared state.
MADE: Final = b"made"
KEEPERS: Final = b"keepers"
CLOSED: Final = b"closed"
CALLBACK_QUEUE: Final = b"callback-queue"
CALLBACK_BODY: Final = b"callback-body"
CALLBACK_ID: Final = b"callback-id"
DONE: Final = b"done"

# Events that bring back an errored job or a dead letter.
_RESTARTS: Final = frozenset(
    (event_format.ENQUEUED, event_format.ENQUEUED_INVISIBLE, event_format.MOVED, event_format.MOVED_INVISIBLE)
)
_DEAD: Final = frozenset((event_format.DEAD_LETTERED, event_format.DEAD_LETTERED_INVISIBLE))
_ENDS: Final = (event_format.COMPLETED, event_format.CANCELED, event_format.ERRORED, event_format.EXPIRED)


class Batch:
    """One batch.

    fields       its shared state; empty while this node does not know it
    parts        part -> ids
    places       segment of the journal -> approximate size of its records there, in bytes
    count        number of ids in all parts
    ttl_minutes  the longest TTL of its jobs, as their ids tell it
    changes      how often the ids have changed
    touched_ms   when the ids last changed
    held         how many of its jobs this node has
    is_spreading whether its state is new, and still on its way to the disk and to other nodes
    is_renewed   whether all its keepers were replaced together while this node knew it, or it came from the journal
    flush        number of the question whether all reports have arrived; 0: none
    """

    __slots__ = (
        "changes",
        "count",
        "fields",
        "flush",
        "held",
        "is_renewed",
        "is_spreading",
        "keepers",
        "name",
        "parts",
        "places",
        "touched_ms",
        "ttl_minutes",
    )

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.fields: dict[bytes, bytes] = {}
        self.keepers: tuple[Node, ...] = ()
        self.parts: dict[int, IdSet] = {}
        self.places: dict[int, int] = {}
        self.count = 0
        self.ttl_minutes = 0
        self.changes = 0
        self.touched_ms = 0
        self.held = 0
        self.is_spreading = False
        self.is_renewed = False
        self.flush = 0

    def counts(self) -> list[int]:
        """Return how many ids have each status."""
        total = [0] * 8
        for part in self.parts.values():
            for status, count in enumerate(part.counts):
                total[status] += count
        return total

    @property
    def live(self) -> int:
        """The number of ids whose jobs are not over."""
        return sum([part.counts[LIVE] for part in self.parts.values()])

    def digests(self) -> list[int]:
        """Return the digest of each part."""
        return [self.parts[part].digest if part in self.parts else 0 for part in range(PARTS)]

    @property
    def is_closed(self) -> bool:
        """Whether no more jobs may be added."""
        return CLOSED in self.fields

    @property
    def is_done(self) -> bool:
        """Whether it is closed, and all its jobs are over or errored."""
        return DONE in self.fields

    @property
    def is_known(self) -> bool:
        """Whether this node knows its shared state, and the batch was not deleted."""
        return MADE in self.fields


class Report:
    """Entries on their way to a keeper.

    ids        packed id -> (status, version)
    since_ms   when they were first noted
    sent_ms    when they were last sent
    """

    __slots__ = ("ids", "name", "sent_ms", "since_ms")

    def __init__(self, name: bytes, ids: dict[bytes, tuple[int, int]], since_ms: int, sent_ms: int) -> None:
        self.name = name
        self.ids = ids
        self.since_ms = since_ms
        self.sent_ms = sent_ms


class Push:
    """Ids on their way to the keepers, from a node that is no longer a keeper.

    unanswered   numbers of the messages that are not answered yet
    is_sent      whether all messages have been sent
    begun_ms     when the push began
    """

    __slots__ = ("begun_ms", "is_sent", "name", "size", "unanswered")

    def __init__(self, name: bytes, size: int, begun_ms: int) -> None:
        self.name = name
        self.size = size
        self.unanswered: dict[int, None] = {}
        self.is_sent = False
        self.begun_ms = begun_ms


class Flush:
    """A question whether all reports of a batch have arrived.

    nodes     nodes that have not answered yet
    sent_ms   when they were last asked
    """

    __slots__ = ("name", "nodes", "sent_ms")

    def __init__(self, name: bytes, nodes: tuple[Node, ...], sent_ms: int) -> None:
        self.name = name
        self.nodes: dict[Node, None] = dict.fromkeys(nodes)
        self.sent_ms = sent_ms


class Held:
    """A producer's reply that waits until a keeper has recorded the job."""

    __slots__ = ("client", "job", "reply", "slot")

    def __init__(self, client: Client, job: Job, slot: list[bytes | None], reply: bytes) -> None:
        self.client = client
        self.job = job
        self.slot = slot
        self.reply = reply


class Batches:
    """All batches that a node knows.

    by_name      name -> batch
    noted        batch -> (packed id -> (status, version)), for the reports of this turn
    reports      number -> report that no keeper has confirmed yet
    pending      packed id -> number of the last of these reports that has it
    number       the number of the last report or question
    ask_at_ms    when other nodes are asked again for batches that this node does not know
    held         packed id -> producer's reply that waits for the report
    collecting   packed id -> id of an ended job whose record waits for the report
    recorded     (batch, part) -> entries that the journal must record
    due          batches that may have become done, or may no longer be done
    waiting      batch -> (client that waits until it is done -> until when; 0: without a limit)
    callbacks    batch whose callback must be added -> the earliest moment for that, and whether it was refused before
    clients      batch -> client of the callback's ADDJOB, while that waits
    flushes      number -> question whether all reports have arrived, oldest first
    flush_answers   questions of other nodes whether our reports have arrived: (node, number, batch)
    to_sync      batches whose keepers have changed
    reporting    batch of which this node reports all jobs again -> how many walks do so
    keeperless   batch whose keepers have all left, or were forgotten or reset -> since when
    pushes       batch -> its ids on their way to the keepers
    push_of      number of a message -> its push
    seen_epoch, was_loading, looked_ms   epoch, loading and time at the last check of keepers
    """

    __slots__ = (
        "_broker",
        "ask_at_ms",
        "by_name",
        "callbacks",
        "clients",
        "collecting",
        "due",
        "flush_answers",
        "flushes",
        "held",
        "keeperless",
        "looked_ms",
        "noted",
        "number",
        "pending",
        "push_of",
        "pushes",
        "recorded",
        "reporting",
        "reports",
        "seen_epoch",
        "to_sync",
        "waiting",
        "was_loading",
    )

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.by_name: dict[bytes, Batch] = {}
        self.noted: dict[bytes, dict[bytes, tuple[int, int]]] = {}
        self.reports: dict[int, Report] = {}
        self.pending: dict[bytes, int] = {}
        self.number = 0
        self.ask_at_ms = 0
        self.held: dict[bytes, Held] = {}
        self.collecting: dict[bytes, bytes] = {}
        self.recorded: dict[tuple[bytes, int], dict[bytes, tuple[int, int]]] = {}
        self.due: dict[bytes, None] = {}
        self.waiting: dict[bytes, dict[Client, int]] = {}
        self.callbacks: dict[bytes, tuple[int, bool]] = {}
        self.clients: dict[bytes, Client] = {}
        self.flushes: dict[int, Flush] = {}
        self.flush_answers: dict[tuple[Node, int, bytes], None] = {}
        self.to_sync: dict[bytes, tuple[Node, ...]] = {}
        self.reporting: dict[bytes, int] = {}
        self.keeperless: dict[bytes, int] = {}
        self.pushes: dict[bytes, Push] = {}
        self.push_of: dict[int, Push] = {}
        self.looked_ms = 0
        self.seen_epoch = -1
        self.was_loading = False

    # -- reports -----------------------------------------------------------------------------------

    def get(self, name: bytes) -> Batch:
        """Return the batch of this name. Create the object if it is missing."""
        batch = self.by_name.get(name)
        if batch is None:
            batch = self.by_name[name] = Batch(name)
            batch.touched_ms = self._broker.now_ms
            self._broker.used_memory += BATCH_BYTES + len(name)
        return batch

    def note(self, job: Job, code: int, left: int, entered: int) -> None:
        """Note a change of a job's status, given by its event (events.py)."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is None:
            return
        if code in _DEAD:
            self.report(name, job, event_format.ERRORED)
        elif entered in _ENDS:
            self.report(name, job, entered)
        elif left == event_format.ERRORED or (code in _RESTARTS and not _is_dead_letter(job)):
            self.report(name, job, LIVE)

    def note_added(self, job: Job) -> None:
        """Note a new job. Called just before its producer gets the reply."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is not None:
            self.report(name, job, LIVE)

    def note_aborted(self, job: Job) -> None:
        """Note that a job's ADDJOB failed, if a node may have reported the job. Spec BT8.

        New keepers get reports of all jobs. A job that was moved, for example, has another version, and was reported.
        """
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is not None and (self.by_name[name].is_renewed or job.version != event_format.VERSION_FIRST):
            self.report(name, job, ABORTED)

    def hold(self, client: Client, job: Job, slot: list[bytes | None], reply: bytes) -> None:
        """Hold back the reply to an ADDJOB until a keeper has recorded the job."""
        key = pack_id(job.id)
        assert key is not None
        self.held[key] = Held(client, job, slot, reply)

    def collect_later(self, job: Job) -> None:
        """Let the record of an ended job stay until a keeper has recorded its end."""
        key = pack_id(job.id)
        assert key is not None
        self.collecting[key] = job.id

    def report(self, name: bytes, job: Job, status: int) -> None:
        """Note a report about a job."""
        key = pack_id(job.id)
        if key is not None:
            known = self.noted.setdefault(name, {})
            known[key] = (status, job.version)

    def is_pending(self, job: Job) -> bool:
        """Return whether a report of the job is noted, or is on its way to a keeper."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is None:
            return False
        key = pack_id(job.id)
        return key is not None and (key in self.pending or key in self.noted.get(name, {}))

    # -- ids ---------------------------------------------------------------------------------------

    def enter(self, batch: Batch, key: bytes, status: int, version: int) -> bool:
        """Enter an id, or a later status of it, into a batch. Return whether the batch has changed."""
        number = key[_PART_AT] % PARTS
        part = batch.parts.get(number)
        if part is None:
            part = batch.parts[number] = IdSet()
        before = part.count
        if not part.merge(key, status, version):
            return False
        if part.count > before:
            batch.count += 1
            batch.ttl_minutes = max(batch.ttl_minutes, int.from_bytes(key[_TTL_AT:], "big"))
            self._broker.used_memory += ID_BYTES
        batch.changes += 1
        batch.touched_ms = self._broker.now_ms
        self.due[batch.name] = None
        if self._broker.is_journaling:
            self.recorded.setdefault((batch.name, number), {})[key] = (status, version)
        return True

    def drop_ids(self, batch: Batch) -> None:
        """Forget the ids of a batch, because it was deleted or has other keepers now."""
        self._broker.used_memory -= ID_BYTES * batch.count
        for part in batch.parts:
            self.recorded.pop((batch.name, part), None)
        journal = self._broker.journal
        for place, size in batch.places.items():
            if place >= journal.first_place and place in journal.live_bytes:
                journal.live_bytes[place] -= size
                journal.live_records[place] -= 1
        batch.parts = {}
        batch.places = {}
        batch.count = 0

    def drop(self, batch: Batch) -> None:
        """Forget a batch."""
        self.drop_ids(batch)
        self.noted.pop(batch.name, None)
        self.due.pop(batch.name, None)
        self.callbacks.pop(batch.name, None)
        self.keeperless.pop(batch.name, None)
        if not batch.held:
            self._forget(batch)

    def _forget(self, batch: Batch) -> None:
        del self.by_name[batch.name]
        self._broker.used_memory -= BATCH_BYTES + len(batch.name)

    def job_in(self, name: bytes) -> None:
        """Count one more job of a batch on this node. A job from the journal may have been reported again before."""
        batch = self.get(name)
        batch.held += 1
        if self._broker.is_loading:
            batch.is_renewed = True

    def job_out(self, name: bytes) -> None:
        """Count one job less of a batch on this node."""
        batch = self.by_name[name]
        batch.held -= 1
        self.forget_unused(name)

    def forget_unused(self, name: bytes) -> None:
        """Forget a batch if this node knows nothing of it and has none of its jobs. Reports about it stay."""
        batch = self.by_name.get(name)
        if batch is not None and not batch.held and not batch.fields and not batch.parts:
            self._forget(batch)

    def clear_jobs(self) -> None:
        """Forget ids and reports, because all jobs are gone (reset.py). The shared state stays."""
        for batch in list(self.by_name.values()):
            batch.held = 0
            self.drop_ids(batch)
            if not batch.fields:
                self._forget(batch)
            else:  # No id is live here any more. Other keepers may know live ones. Otherwise the batch is done.
                self.due[batch.name] = None
        self.noted.clear()
        self.reports.clear()
        self.pending.clear()
        self.collecting.clear()
        self.recorded.clear()

    @property
    def size(self) -> int:
        """The accounted bytes of all batches."""
        return sum(BATCH_BYTES + len(name) + ID_BYTES * batch.count for name, batch in self.by_name.items())

    # -- journal -----------------------------------------------------------------------------------
    #
    # Each record is complete in itself, because entries merge in any order. When a segment is dropped, its records are
    # written again one by one, without the entries that have changed since. So no turn has to write a whole part.

    def take_records(self) -> list[tuple[bytes, int, int, bytes]]:
        """Return the entries that the journal must record: (batch, part, its life, entries)."""
        recorded, self.recorded = self.recorded, {}
        place = self._broker.journal.place
        records: list[tuple[bytes, int, int, bytes]] = []
        for (name, number), entries in recorded.items():
            batch = self.by_name.get(name)
            if batch is None or number not in batch.parts:
                continue
            life = self._life(name)
            packed = [packed_entry(key, *state) for key, state in entries.items()]
            for at in range(0, len(packed), RECORDED_MAX):
                data = b"".join(packed[at : at + RECORDED_MAX])
                self._place(batch, place, len(data))
                records.append((name, number, life, data))
        return records

    def _life(self, name: bytes) -> int:
        """Return a number that grows when the name is deleted. It marks records of earlier batches of this name."""
        state = self._broker.queue_settings.states.get(state_key(BATCH_STATE, name))
        return FIRST_LIFE + (0 if state is None else state.reset[0])

    def _place(self, batch: Batch, place: int, entries_bytes: int) -> None:
        """Count a record of a batch in a segment."""
        journal = self._broker.journal
        size = RECORD_BYTES + len(batch.name) + entries_bytes
        if place not in batch.places:
            batch.places = {each: known for each, known in batch.places.items() if each in journal.live_bytes}
            batch.places[place] = 0
            journal.live_records[place] = journal.live_records.get(place, 0) + 1
        batch.places[place] += size
        journal.live_bytes[place] = journal.live_bytes.get(place, 0) + size

    def record_again(self, name: bytes, part: int, data: bytes) -> None:
        """Record those entries of a record again that are still current, because its segment will be dropped."""
        batch = self.by_name.get(name)
        ids = None if batch is None else batch.parts.get(part)
        if ids is None:
            return
        for at in range(0, len(data), ENTRY_BYTES):
            entry = data[at : at + ENTRY_BYTES]
            if ids.has(entry):
                tail = entry[KEY_BYTES:]
                state = (tail[0], int.from_bytes(tail[1:], "little"))
                self.recorded.setdefault((name, part), {})[entry[:KEY_BYTES]] = state

    def record_all(self) -> Iterator[None]:
        """Record all ids of all batches, because the journal is new. Each part of the walk records some of them."""
        first_place = self._broker.journal.first_place
        count = 0
        for batch in list(self.by_name.values()):
            batch.places = {place: size for place, size in batch.places.items() if place >= first_place}
            for number, ids in list(batch.parts.items()):
                for data in ids.entries():
                    if self.by_name.get(batch.name) is not batch or batch.parts.get(number) is not ids:
                        break
                    self.record_again(batch.name, number, data)
                    count += len(data) // ENTRY_BYTES
                    if count >= RECORDED_MAX:
                        count = 0
                        yield

    def restored(self, name: bytes, part: int, life: int, data: bytes, place: int) -> None:
        """Enter entries from the journal. Entries of an earlier batch of this name, which was deleted, are skipped."""
        if FIRST_LIFE <= life < self._life(name):
            return
        batch = self.get(name)
        for at in range(0, len(data), ENTRY_BYTES):
            status = data[at + KEY_BYTES]
            version = int.from_bytes(data[at + KEY_BYTES + 1 : at + ENTRY_BYTES], "little")
            self.enter(batch, data[at : at + KEY_BYTES], status, version)
        self._place(batch, place, len(data))
        self.recorded.pop((name, part), None)


def _is_dead_letter(job: Job) -> bool:
    """Return whether the job counts as errored until it is over, also if it is moved."""
    part = job.part
    return part is not None and part.is_dead_letter


def packed_entry(key: bytes, status: int, version: int) -> bytes:
    """Return an entry in its packed form."""
    return key + bytes((status,)) + version.to_bytes(4, "little")


def keepers_of(broker: Broker, fields: dict[bytes, bytes]) -> tuple[Any, ...]:
    """Return the keepers that a state names, in the order of their ids."""
    packed = fields.get(KEEPERS, b"")
    ids = sorted({packed[at : at + NODE_BYTES] for at in range(0, len(packed) - NODE_BYTES + 1, NODE_BYTES)})
    return tuple([broker.cluster.intern(node_id) for node_id in ids])
