"""Restoring: read jobs, pauses and other state from the journal, before the node serves clients.

`block` takes the blocks that were read, in order. Then `finish` puts every job into its place, a part at a time. The
journal records how much time was left until a deadline when the block was written. The time since then is subtracted
(spec T3).

A job may go straight back into its queue only if its state is *certain*: the journal shows everything that can have
happened to it. This is the case after a clean shutdown, or with `appendfsync always` if the journal's tail is not
torn.

* RETRY > 0, certain, no other holder: the job is queued, because no other node can have it.
* RETRY > 0, certain, other holders: the job is queued soon, after WILLQUEUE has asked them. Another node may have
  queued the job while this node was away.
* RETRY > 0, not certain: the retry timer queues the job. It continues where it was.
* RETRY 0, certain and undelivered: the job is queued, now or after the rest of its DELAY.
* RETRY 0, not certain or delivered: the job is never queued again. SHOW still shows it, marked as delivered. If the
  delivery is not certain, the job is counted as lost.

Spec O2, O4, J4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from cluster_bus.node import ID_BYTES
from disque_py import event_format
from disque_py.core import claim_stamps, events, exclusive, lifecycle, pausing, requeue, windows
from disque_py.core.broker import Broker
from disque_py.core.changeable import LEFT_AT, PRIORITY_AT, QUEUE_AT
from disque_py.core.id_sets import ENTRY_BYTES
from disque_py.core.job import ACKED, ACTIVE, GONE, JOB_BYTES, QUEUED, Cancellation, Job, terms_of
from disque_py.core.job_attributes import BATCH as BATCH_EXTRA
from disque_py.core.job_attributes import JobAttributes, topic_bytes
from disque_py.core.job_attributes import unpack as unpack_attributes
from disque_py.core.job_snapshot import set_part
from disque_py.core.journaling import QUEUED_BASE, base_bytes, record_soon
from disque_py.core.node_sets import NodeSet
from disque_py.core.queue import PAUSED_IN, PAUSED_OUT
from disque_py.core.spilled import Spilled, released
from persistence.layouts import (
    BASE_BYTES,
    BASE_STATE,
    HEADER,
    IS_ACKED,
    IS_CANCELED,
    IS_DELIVERED,
    IS_GIVEN,
    IS_LEASED,
    IS_QUEUED,
    STATE_FIELDS,
    STATE_FIELDS_V1,
    STATE_FIELDS_V2,
    VERSION,
    WAS_QUEUED,
)
from persistence.records import BATCH, DROPPED, IS_ALWAYS, JOB, KEY, PAUSE, RESULT, STATE, TOKEN, FormatError
from persistence.records import GONE as GONE_RECORD

_unpack_header = HEADER.unpack_from
_unpack_base = BASE_STATE.unpack

# Links come up within this time. Then the other holders can be asked.
ASK_AFTER_MS: Final = 3_000
# The number of WILLQUEUEs per millisecond, and the longest time over which they are spread. If there are too many jobs
# for both, more WILLQUEUEs are sent per millisecond.
ASKED_PER_MS: Final = 20
ASK_SPREAD_MS_MAX: Final = 60_000
# The number of jobs that are put in place per part of the work, which takes about four milliseconds.
PLACED_PER_PART: Final = 1_000


class Restoring:
    """The work of one restart.

    jobs            every job whose base was read, in the order of the bases; those that ended since are GONE
    stale           segments with a base that a later base replaces, because a compaction was interrupted
    dropped         segments that were dropped, because their live records are in later segments
    pauses          queue -> (flags, version ms, node, flags set with BCAST), from its last record
    expired, queued, waiting, lost    the number of jobs by outcome; `lost` are at-most-once jobs that may not be queued
    """

    def __init__(self, broker: Broker, *nodes: bytes) -> None:
        self.jobs: list[Job] = []
        self.stale: set[int] = set()
        self.dropped: set[int] = set()
        self.pauses: dict[bytes, tuple[int, int, bytes, int]] = {}
        self._pause_places: dict[bytes, int] = {}
        # token -> (segment, [(id, attempt) …])
        self._tokens: dict[bytes, tuple[int, list[tuple[bytes, int]]]] = {}
        # id of a job that is over and whose key is used -> (when its TTL is over, segment)
        self._keys: dict[bytes, tuple[int, int]] = {}
        # [(batch, part, life of the part, entries, segment) …]
        self._batches: list[tuple[bytes, int, int, bytes, int]] = []
        # id -> (result, version, node, when it expires or 0, segment)
        self._results: dict[bytes, tuple[bytes, int, bytes, int, int]] = {}
        self.expired = self.queued = self.waiting = self.lost = 0
        self._broker = broker
        self._serial = 0
        self._uncertain = 0  # The number of the last block that was not written under `appendfsync always`.
        # The journal may contain ids that this node had before its nodes file was lost (spec Q21).
        self._old_me = frozenset(node for node in nodes if node != broker.me.id)
        # Equal sets become one object, so that memory does not grow with the number of jobs.
        self._sets: dict[bytes, NodeSet] = {}

    # -- reading -----------------------------------------------------------------------------------

    def block(self, number: int, wall_ms: int, flags: int, runs: list[list[Any]]) -> int:
        """Take a block of segment `number`. Return the number of its records. FormatError if one is malformed."""
        self._serial += 1
        if not flags & IS_ALWAYS:
            self._uncertain = self._serial
        elapsed_ms = max(0, self._broker.wall_ms - wall_ms)
        count = 0
        try:
            for run in runs:
                items = run[1:]
                count += len(items)
                kind = run[0]
                if kind == JOB:
                    self._bases(number, items, elapsed_ms)
                elif kind == STATE:
                    self._states(items, elapsed_ms)
                elif kind == GONE_RECORD:
                    self._gone(items)
                elif kind == PAUSE:
                    for name, state, version_ms, version_node, *more in items:
                        # The journal of an older version has one state for both kinds of pause.
                        self.pauses[name] = (state, version_ms, version_node, more[0] if more else state)
                        self._pause_places[name] = number
                elif kind == DROPPED:
                    self.dropped.update(items)
                elif kind == TOKEN:
                    self._take_tokens(number, items)
                elif kind == KEY:
                    now_ms = self._broker.now_ms
                    for job_id, left_ms, *_ in items:
                        self._keys[job_id] = (now_ms + left_ms - elapsed_ms, number)
                elif kind == BATCH:
                    for name, part, life, data, *_ in items:
                        self._batches.append((name, part, life, data, number))
                elif kind == RESULT:
                    self._take_results(number, items, elapsed_ms)
        except (ValueError, TypeError, IndexError, struct.error) as broken:
            raise FormatError(f"a malformed record: {broken}") from broken
        return count

    def _bases(self, number: int, items: list[Any], elapsed_ms: int) -> None:
        """Restore jobs from their bases. One loop does all of it, for speed: a journal may have ten million jobs."""
        broker = self._broker
        shards = broker.shards
        jobs = self.jobs
        now_ms = broker.now_ms
        known_terms = broker.terms
        sets = self._sets
        serial = self._serial
        used = size = count = 0
        broker.journal.live_bytes.setdefault(number, 0)
        broker.journal.live_records.setdefault(number, 0)
        for job_id, header, name, body, packed, state, *later in items:
            ctime, left_ms, retry_ms, delay_ms, replicate, nacks, deliveries, attempt = _unpack_header(header)
            attributes, topic = unpack_attributes(later[0]) if later else (None, None)
            terms = terms_of(known_terms, name, retry_ms, delay_ms, replicate, topic)
            queue = terms.queue
            holders = sets.get(packed)
            if holders is None:
                holders = sets[packed] = broker.sets.unpack(self._renamed(packed))
            job = Job(
                job_id,
                terms,
                body,
                ctime,
                now_ms + (left_ms - elapsed_ms if left_ms > elapsed_ms else 0),
                holders,
            )
            if len(header) > HEADER.size:
                job.version = VERSION.unpack_from(header, HEADER.size)[0]
            if attempt or nacks or deliveries:
                job.attempt = attempt
                job.nacks = nacks
                job.deliveries = deliveries
            shard = shards[(job_id[12] & 63) << 6 | job_id[13] & 63]
            known = shard.get(job_id)
            if known is not None:
                self.stale.add(known.place)
                self._forget(known)
            shard[job_id] = job
            job.place = number
            if topic is not None:
                size += topic_bytes(topic)
            if attributes is not None:
                job.attributes = attributes
                size += attributes.packed_bytes
                lifecycle.attributes_in(broker, job, attributes)
                attributes.is_open = attributes.is_keyed  # The outcome may be unknown here, so the creator is asked.
            if len(later) > 1 and later[1] is not None:
                self._set_part(job, later[1], elapsed_ms)
            used += len(body) + job.terms.name_bytes
            size += len(queue) + len(body)
            count += 1
            if state == QUEUED_BASE and retry_ms:
                job.was_queued = job.was_announced = True
                job.requeue_at_ms = now_ms + (retry_ms - elapsed_ms if retry_ms > elapsed_ms else 0)
            else:
                flags, due_ms = _unpack_base(state)
                self._apply(job, flags, due_ms, elapsed_ms)
                if not retry_ms:
                    job.imported_at = serial  # Until `finish`, the number of the block with the job's base.
            jobs.append(job)
        broker.job_count += count
        broker.used_memory += used + count * JOB_BYTES
        if broker.memory.is_spilling and count:
            broker.spill.fresh += jobs[-count:]
        broker.journal.add_live(number, size + count * BASE_BYTES, count)

    def _states(self, items: list[Any], elapsed_ms: int) -> None:
        broker = self._broker
        shards = broker.shards
        for job_id, packed, holders, *later in items:
            job = shards[(job_id[12] & 63) << 6 | job_id[13] & 63].get(job_id)
            if job is None:
                continue  # A later segment has the job's base, which includes the changes recorded here.
            if len(packed) >= STATE_FIELDS.size:
                flags, due_ms, job.attempt, job.nacks, job.deliveries, job.version = STATE_FIELDS.unpack_from(packed)
            elif len(packed) >= STATE_FIELDS_V2.size:
                flags, due_ms, job.attempt, job.nacks, job.deliveries = STATE_FIELDS_V2.unpack_from(packed)
            else:
                flags, due_ms, job.attempt = STATE_FIELDS_V1.unpack_from(packed)
            if holders is not None:
                job.holders = broker.sets.unpack(self._renamed(holders))
            if later:
                self._set_part(job, later[0], elapsed_ms)
                if len(later) > 1:
                    claim_stamps.heard(broker, job, later[1])
            self._apply(job, flags, due_ms, elapsed_ms)

    def _set_part(self, job: Job, field: Any, elapsed_ms: int) -> None:
        """Restore the changeable part of a job, and the fields of the job that belong to it."""
        broker = self._broker
        attributes = job.attributes
        if attributes is None:
            attributes = job.attributes = JobAttributes(None, ())
            broker.used_memory += attributes.size
            broker.journal.live_bytes[job.place] += attributes.packed_bytes
        size, packed_bytes = attributes.size, attributes.packed_bytes
        set_part(broker, job, attributes, field, elapsed_ms)
        broker.used_memory += attributes.size - size
        broker.journal.live_bytes[job.place] += attributes.packed_bytes - packed_bytes
        attributes.priority = field[PRIORITY_AT]
        left_ms = field[LEFT_AT] - elapsed_ms
        windows.move_end(job, broker.now_ms + max(0, left_ms))
        name = field[QUEUE_AT]
        if name != job.terms.queue:
            broker.journal.live_bytes[job.place] += len(name) - len(job.terms.queue)
            broker.used_memory -= job.terms.name_bytes
            job.terms = job.terms.of_queue(broker.terms, name)
            broker.used_memory += job.terms.name_bytes

    def _apply(self, job: Job, flags: int, due_ms: int, elapsed_ms: int) -> None:
        """Apply the recorded state. `was_announced` means "was in its queue" until `finish`."""
        now_ms = self._broker.now_ms
        job.is_delivered = (
            bool(flags & (IS_DELIVERED | IS_GIVEN)) if not job.terms.retry_ms else bool(flags & IS_DELIVERED)
        )
        job.is_leased_here = bool(flags & IS_LEASED)
        if flags & IS_GIVEN and not flags & IS_DELIVERED and not job.terms.retry_ms:
            job.is_leased_here = True  # Until `finish`, this marks a hand-over with an unknown outcome.
        job.was_queued = bool(flags & WAS_QUEUED)
        job.was_announced = bool(flags & IS_QUEUED)
        if flags & IS_QUEUED:
            # The retry timer started when the block was written, at the latest.
            left_ms = job.terms.retry_ms - elapsed_ms
            job.requeue_at_ms = now_ms + (left_ms if left_ms > 0 else 0) if job.terms.retry_ms else 0
        elif due_ms < 0:
            job.requeue_at_ms = 0
        else:
            job.requeue_at_ms = now_ms + (due_ms - elapsed_ms if due_ms > elapsed_ms else 0)
        if flags & IS_ACKED:
            if job.state != ACKED:
                self._drop_body(job)
                job.state = ACKED
            if flags & IS_CANCELED:
                job.work = Cancellation()
            elif isinstance(job.work, Cancellation):
                job.work = None  # The job was completed after all.
        else:
            job.state = ACTIVE

    def _gone(self, items: list[Any]) -> None:
        broker = self._broker
        for job_id, place, *_ in items:
            job = broker.find(job_id)
            if job is not None:
                if job.place != place:
                    self.stale.add(job.place)  # The record refers to another base, in a segment that is gone.
                self._forget(job)

    def _take_tokens(self, number: int, items: list[Any]) -> None:
        for name, goes_on, ids, *_ in items:
            pairs = [(job_id, attempt) for job_id, attempt, *_ in ids]
            known = self._tokens.get(name)
            if goes_on and known is not None:
                known[1].extend(pairs)
            else:
                self._tokens[name] = (number, pairs)

    def _restore_tokens(self) -> None:
        """Restore tokens when the jobs are in place, because a token keeps only the jobs that are still leased."""
        for name, (number, ids) in self._tokens.items():
            if number not in self.dropped:
                self._broker.tokens.restored(name, ids, number)
        self._tokens = {}

    def _take_results(self, number: int, items: list[Any], elapsed_ms: int) -> None:
        now_ms = self._broker.now_ms
        for job_id, value, left_ms, version, node, *_ in items:
            expire_at_ms = now_ms + left_ms - elapsed_ms if left_ms else 0
            self._results[job_id] = (value, version, node, expire_at_ms, number)

    def _restore_results(self) -> None:
        """Restore results. A result that is kept only as long as its job is dropped if the job is gone."""
        broker = self._broker
        for job_id, (value, version, node, expire_at_ms, number) in self._results.items():
            if number not in self.dropped and (expire_at_ms or broker.find(job_id) is not None):
                broker.results.restored(job_id, value, version, node, expire_at_ms, number)
        self._results = {}

    def _restore_batches(self) -> Iterator[None]:
        batches, self._batches = self._batches, []
        count = 0
        for name, part, life, data, number in batches:
            if number not in self.dropped:
                self._broker.batches.restored(name, part, life, data, number)
            count += len(data) // ENTRY_BYTES
            if count >= PLACED_PER_PART:
                count = 0
                yield

    def _restore_keys(self) -> None:
        for job_id, (expire_at_ms, number) in self._keys.items():
            if number not in self.dropped:
                self._broker.producers.keys.restored(job_id, expire_at_ms, number)
        self._keys = {}

    def end_reading(self) -> None:
        """End the reading: forget jobs and pauses whose records are in dropped segments.

        Such a segment was dropped and its file could not be removed. Its live records were recorded again before that.
        """
        live = self._broker.journal.live_bytes
        left = {number for number in self.dropped if live.get(number, 0) > 0}
        for job in self.jobs if left else ():
            if job.place in left and job.state != GONE:
                self._forget(job)
        for name, number in self._pause_places.items():
            if number in self.dropped:
                del self.pauses[name]

    def _forget(self, job: Job) -> None:
        broker = self._broker
        job_id = job.id
        del broker.shards[(job_id[12] & 63) << 6 | job_id[13] & 63][job_id]
        broker.job_count -= 1
        broker.used_memory -= JOB_BYTES + job.terms.name_bytes
        self._drop_body(job)
        broker.journal.live_bytes[job.place] -= base_bytes(job)
        broker.journal.live_records[job.place] -= 1
        if job.attributes is not None:
            broker.used_memory -= job.attributes.size
            broker.producers.keys.leave(job.id)
            batch = job.attributes.extra(BATCH_EXTRA)
            if batch is not None:
                broker.batches.job_out(batch)
        if job.awake_at_ms:
            broker.schedule.cancel(job)  # The sweep over all jobs may have set its timer already.
        job.state = GONE

    def _drop_body(self, job: Job) -> None:
        broker = self._broker
        body = job.body
        size = len(body)
        broker.used_memory -= size
        if type(body) is Spilled:
            size = released(broker, body)
        if size:
            broker.journal.live_bytes[job.place] -= size
        job.body = b""

    def _renamed(self, packed: bytes) -> bytes:
        """Return a packed set of nodes in which our present id replaces our earlier ids."""
        old = self._old_me
        if not old:
            return packed
        ids = [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
        return b"".join(sorted({self._broker.me.id if node_id in old else node_id for node_id in ids}))

    # -- placing jobs ------------------------------------------------------------------------------

    def finish(self, *, is_certain: bool, is_whole: bool, is_restored: bool, wants_queues: bool) -> Iterator[None]:
        """Put all jobs in place, PLACED_PER_PART at a time.

        is_certain    the last shutdown was clean, so everything that happened is recorded
        is_whole      the journal's tail was not torn
        is_restored   the journal is a backup, so later changes are missing
        wants_queues  `aof-enqueue-jobs-once` is set: jobs that were queued are queued again
        """
        broker = self._broker
        self.end_reading()
        self._restore_pauses()
        self._restore_keys()
        self._restore_results()
        yield from self._restore_batches()
        jobs = self.jobs
        spread_ms = min(len(jobs) // ASKED_PER_MS, ASK_SPREAD_MS_MAX)
        was_always = is_whole and not self._uncertain
        for at in range(0, len(jobs), PLACED_PER_PART):
            for index in range(at, min(at + PLACED_PER_PART, len(jobs))):
                job = jobs[index]
                if job.state == GONE:
                    continue
                ask_at_ms = broker.now_ms + ASK_AFTER_MS + spread_ms * index // len(jobs)
                if job.expire_at_ms <= broker.now_ms:
                    self.expired += 1
                    broker.stats.jobs_expired += job.state != ACKED
                    self._expire(job)
                elif job.state == ACKED:
                    lifecycle.acked_again(broker, job)
                    job.requeue_at_ms = ask_at_ms
                    lifecycle.arm(broker, job)
                elif job.terms.retry_ms:
                    self._place(
                        job, ask_at_ms, (is_certain or was_always) and not is_restored, is_restored, wants_queues
                    )
                else:
                    is_sure = is_certain or (is_whole and job.imported_at > self._uncertain)
                    job.imported_at = 0
                    self._place_once(job, is_sure and not is_restored)
            yield
        self._restore_tokens()
        self.jobs = []

    def _place(self, job: Job, ask_at_ms: int, is_certain: bool, is_restored: bool, wants_queues: bool) -> None:
        broker = self._broker
        was_in_queue = job.was_announced
        job.was_announced = False
        if job.is_errored:
            self.waiting += 1
            lifecycle.stop_requeueing(broker, job)
            return
        if job.attributes is not None:
            if claim_stamps.fence_of(job):
                claim_stamps.remember(broker, job.id)
            if job.is_leased_here:
                exclusive.resume(broker, job)
        is_mine = job.holders is broker.sets.mine
        now_ms = broker.now_ms
        if was_in_queue and wants_queues:
            job.requeue_at_ms = now_ms
            requeue.requeue(broker, job)
            self.queued += 1
            return
        if was_in_queue and is_mine and is_certain:
            lifecycle.enqueue(broker, job)
            self.queued += 1
            return
        self.waiting += 1
        if was_in_queue and not is_restored:
            job.status = event_format.PENDING  # As far as this node knows, no worker has the job.
        elif is_mine and job.was_queued and not (was_in_queue or job.is_leased_here):
            job.status = event_format.INVISIBLE  # It waited for the end of a pause, or was taken out by DEQUEUE.
        if was_in_queue and is_certain and ask_at_ms < job.requeue_at_ms:
            job.requeue_at_ms = ask_at_ms
        if not job.requeue_at_ms:
            job.requeue_at_ms = now_ms + job.terms.retry_ms
        if not is_mine and job.requeue_at_ms < ask_at_ms:
            job.requeue_at_ms = ask_at_ms
        if is_restored and not is_mine:
            job.requeue_at_ms = ask_at_ms  # A holder that knows that the job is done will answer so.
        if not job.was_queued and is_mine:
            job.was_announced = True
        lifecycle.arm(broker, job)
        if was_in_queue and not is_restored and pausing.is_paused_in(broker, job):
            pausing.keep_pending(broker, job)

    def _place_once(self, job: Job, is_sure: bool) -> None:
        broker = self._broker
        was_in_queue = job.was_announced
        job.was_announced = False
        if job.is_delivered:
            broker.memory.once_delivered_count += 1
            job.requeue_at_ms = 0
            if job.is_leased_here:
                # The hand-over ended with the process that made it (spec H7).
                job.is_leased_here = False
                broker.stats.once_lost_in_handover += 1
                events.ended(broker, job, event_format.LOST, "the node ended before its hand-over was answered")
                record_soon(broker, job)
        elif not is_sure:
            self.lost += 1
            broker.stats.once_lost_in_restart += 1
            events.ended(broker, job, event_format.LOST, "perhaps delivered before the restart")
            job.is_delivered = True
            broker.memory.once_delivered_count += 1
            job.requeue_at_ms = 0
            # Recorded before the node serves clients, so that a later clean shutdown does not make the job certain.
            record_soon(broker, job)
        elif was_in_queue or not job.requeue_at_ms:
            lifecycle.enqueue(broker, job)
            self.queued += 1
            return
        else:
            self.waiting += 1
        lifecycle.arm(broker, job)

    def _expire(self, job: Job) -> None:
        events.ended(self._broker, job, event_format.EXPIRED_EVENT)
        if job.state == ACKED:
            lifecycle.acked_again(self._broker, job)
        elif job.is_delivered and not job.terms.retry_ms:
            self._broker.memory.once_delivered_count += 1
        lifecycle.forget(self._broker, job)

    def _restore_pauses(self) -> None:
        both = PAUSED_IN | PAUSED_OUT
        for name, (flags, version_ms, version_node, told) in self.pauses.items():
            pausing.restore(self._broker, name, flags & both, version_ms, version_node, told & both)


def give_up_once(broker: Broker) -> None:
    """Give up at-most-once jobs that the journal shows as undelivered.

    From now on, their deliveries can't be recorded, so a restart could deliver them again.
    """
    for shard in broker.shards:
        for job in shard.values():
            if (
                job.terms.retry_ms
                or job.is_delivered
                or job.place < broker.journal.first_place
                or job.state not in (ACTIVE, QUEUED)
            ):
                continue
            if job.state == QUEUED:
                lifecycle.dequeue(broker, job)
            events.ended(broker, job, event_format.LOST, "its delivery could not be recorded")
            job.is_delivered = True
            job.requeue_at_ms = 0
            broker.memory.once_delivered_count += 1
            broker.stats.once_lost_in_restart += 1
            lifecycle.arm(broker, job)
