"""Batches: groups of jobs that are counted together, as one node knows them.

A batch is *shared state* (settings_sync.py): whether it is closed, its callback, its keepers, and whether it is done.
Every node knows that. The *ids* of its jobs are with the keepers alone, as PARTS sets (id_sets.py).

A node that adds or ends a job of a batch makes a *report*: an entry for the set. A node that is a keeper records it in
the same turn as the job. Any other node sends it to the keepers, and repeats it until one has recorded it. Until then
the producer's reply waits, and the record of the ended job stays. keeping.py sends reports.

Reports are noted by events.py, where every change of a job's status passes. Spec BT1, BT2, BT3.
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
# That of a job whose ADDJOB failed, after a node with a copy of it may have reported it as live. It does not count.
ABORTED: Final = 1
# A batch besides its ids, and an id in it, in `used_memory`.
BATCH_BYTES: Final = 1_000
ID_BYTES: Final = 38
RECORD_BYTES: Final = 16
# Entries of one record, and of one part of a walk.
RECORDED_MAX: Final = 500
# The life of a batch whose name was never deleted. Older journals have 0 or 1 there, which say nothing.
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

# Events that bring an errored job, or a dead letter, back.
_RESTARTS: Final = frozenset(
    (event_format.ENQUEUED, event_format.ENQUEUED_INVISIBLE, event_format.MOVED, event_format.MOVED_INVISIBLE)
)
_DEAD: Final = frozenset((event_format.DEAD_LETTERED, event_format.DEAD_LETTERED_INVISIBLE))
_ENDS: Final = (event_format.COMPLETED, event_format.CANCELED, event_format.ERRORED, event_format.EXPIRED)


class Batch:
    """One batch.

    fields       its shared state; empty while that is not known here
    parts        part -> ids
    places       segment of the journal -> about the bytes of its records there
    count        ids in all parts
    ttl_minutes  the longest time to live of its jobs, as their ids say it
    changes      how often the ids changed
    touched_ms   when they changed last
    held         jobs of it that this node has
    is_spreading the state was made a moment ago, and is on its way to the disk and to other nodes
    is_renewed   all of its keepers were replaced at once since this node knows it, or it came out of the journal
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
        """How many ids are not over."""
        return sum([part.counts[LIVE] for part in self.parts.values()])

    def digests(self) -> list[int]:
        """Return the digest of each part."""
        return [self.parts[part].digest if part in self.parts else 0 for part in range(PARTS)]

    @property
    def is_closed(self) -> bool:
        """Whether no job may be added any more."""
        return CLOSED in self.fields

    @property
    def is_done(self) -> bool:
        """Whether it is closed, and all its jobs are over or errored."""
        return DONE in self.fields

    @property
    def is_known(self) -> bool:
        """Whether its shared state is known here, and it was not deleted."""
        return MADE in self.fields


class Report:
    """Entries on their way to a keeper.

    ids       packed id -> (status, version)
    sent_ms   when they were sent last
    """

    __slots__ = ("ids", "name", "sent_ms")

    def __init__(self, name: bytes, ids: dict[bytes, tuple[int, int]], sent_ms: int) -> None:
        self.name = name
        self.ids = ids
        self.sent_ms = sent_ms


class Push:
    """Ids on their way to the keepers, from a node that is none any more.

    unanswered   numbers of the messages that are not answered
    is_sent      all have been sent
    begun_ms     when it began
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

    nodes     those that have not answered
    sent_ms   when they were asked last
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
    noted        batch -> packed id -> (status, version): reports of this turn
    reports      number -> reports that no keeper has confirmed yet
    pending      packed ids in these
    number       the number of the last report or question
    ask_at_ms    when other nodes are asked again for batches that this node has not heard of
    held         packed id -> the reply that waits for its report
    collecting   packed id -> the id of an ended job whose record waits for its report
    recorded     (batch, part) -> entries that the journal must record
    due          batches that may be done now, or not any more
    waiting      batch -> client that waits until it is done -> until when (0: for ever)
    callbacks    batches whose callback is to be made, and not before -> when
    clients      batch -> the client of its callback's ADDJOB, as long as that waits
    flushes      number -> question whether all reports have arrived, those first that were asked first
    flush_answers   questions of other nodes whether our reports have arrived: (node, number, batch)
    to_sync      batches whose keepers changed
    reporting    batches of which this node reports all of its jobs again -> walks that do so
    keeperless   batches whose keepers are in no cluster any more -> since when
    pushes       batch -> its ids on their way to the keepers
    push_of      number of a message -> its push
    seen_epoch, was_loading, looked_ms   of the last look at keepers
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
        self.pending: dict[bytes, None] = {}
        self.number = 0
        self.ask_at_ms = 0
        self.held: dict[bytes, Held] = {}
        self.collecting: dict[bytes, bytes] = {}
        self.recorded: dict[tuple[bytes, int], dict[bytes, tuple[int, int]]] = {}
        self.due: dict[bytes, None] = {}
        self.waiting: dict[bytes, dict[Client, int]] = {}
        self.callbacks: dict[bytes, int] = {}
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
        """Return the batch of this name. Make its object if it is missing."""
        batch = self.by_name.get(name)
        if batch is None:
            batch = self.by_name[name] = Batch(name)
            batch.touched_ms = self._broker.now_ms
            self._broker.used_memory += BATCH_BYTES + len(name)
        return batch

    def note(self, job: Job, code: int, left: int, entered: int) -> None:
        """Note a change of a job's status, as its event says it (events.py)."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is None:
            return
        if code in _DEAD:
            self.report(name, job, event_format.ERRORED)
        elif entered in _ENDS:
            self.report(name, job, entered)
        elif code in _RESTARTS or left == event_format.ERRORED:
            self.report(name, job, LIVE)

    def note_added(self, job: Job) -> None:
        """Note a new job, just before its producer is told."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is not None:
            self.report(name, job, LIVE)

    def note_aborted(self, job: Job) -> None:
        """Note that the job's ADDJOB failed, if a node may have reported a copy of it to new keepers. Spec BT8."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is not None and self.by_name[name].is_renewed:
            self.report(name, job, ABORTED)

    def hold(self, client: Client, job: Job, slot: list[bytes | None], reply: bytes) -> None:
        """Let the reply of an ADDJOB wait until a keeper has recorded the job."""
        key = pack_id(job.id)
        assert key is not None
        self.held[key] = Held(client, job, slot, reply)

    def collect_later(self, job: Job) -> None:
        """Note that the record of an ended job goes when a keeper has recorded its end."""
        key = pack_id(job.id)
        assert key is not None
        self.collecting[key] = job.id

    def report(self, name: bytes, job: Job, status: int) -> None:
        """Note a report of a job."""
        key = pack_id(job.id)
        if key is not None:
            known = self.noted.setdefault(name, {})
            known[key] = (status, job.version)

    def is_pending(self, job: Job) -> bool:
        """Whether a report of the job is noted, or is on its way to a keeper."""
        attributes = job.attributes
        name: bytes | None = None if attributes is None else attributes.extra(BATCH)
        if name is None:
            return False
        key = pack_id(job.id)
        return key is not None and (key in self.pending or key in self.noted.get(name, {}))

    # -- ids ---------------------------------------------------------------------------------------

    def enter(self, batch: Batch, key: bytes, status: int, version: int) -> bool:
        """Enter an id into a batch, or a later status of it. Return whether that changes anything."""
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
        """Forget the ids of a batch: it was deleted, or other nodes keep it."""
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
        """Count a job of a batch that this node has. Before a restart it may have been reported again."""
        batch = self.get(name)
        batch.held += 1
        if self._broker.is_loading:
            batch.is_renewed = True

    def job_out(self, name: bytes) -> None:
        """Count a job less."""
        batch = self.by_name[name]
        batch.held -= 1
        if not batch.held and not batch.fields and not batch.parts:
            self._forget(batch)

    def clear_jobs(self) -> None:
        """Forget ids and reports, because all jobs are gone (reset.py). The shared state stays."""
        for batch in list(self.by_name.values()):
            batch.held = 0
            self.drop_ids(batch)
            if not batch.fields:
                self._forget(batch)
            else:  # No id is live here any more. Other keepers may know some, or the batch is done.
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
    # Each record stands by itself: entries merge in any order. So when a segment goes, each of its records is recorded
    # again alone, without the entries that have changed since. No turn records a whole part.

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
        """Return the number of the deletion before this batch, so that its records differ from those before."""
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
        """Write the entries of a record anew that still count, because its segment is to go."""
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
        """Write all ids of all batches, some per part: the journal is new."""
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
        """Enter entries from the journal. Those of a batch that was deleted before this one are left out."""
        if FIRST_LIFE <= life < self._life(name):
            return
        batch = self.get(name)
        for at in range(0, len(data), ENTRY_BYTES):
            status = data[at + KEY_BYTES]
            version = int.from_bytes(data[at + KEY_BYTES + 1 : at + ENTRY_BYTES], "little")
            self.enter(batch, data[at : at + KEY_BYTES], status, version)
        self._place(batch, place, len(data))
        self.recorded.pop((name, part), None)


def packed_entry(key: bytes, status: int, version: int) -> bytes:
    """Return an entry as it travels."""
    return key + bytes((status,)) + version.to_bytes(4, "little")


def keepers_of(broker: Broker, fields: dict[bytes, bytes]) -> tuple[Any, ...]:
    """Return the keepers that a state names, in the order of their ids."""
    packed = fields.get(KEEPERS, b"")
    ids = sorted({packed[at : at + NODE_BYTES] for at in range(0, len(packed) - NODE_BYTES + 1, NODE_BYTES)})
    return tuple([broker.cluster.intern(node_id) for node_id in ids])
