"""Journaling: the records of a turn.

Code that changes a job's state, timer, counters or holders marks it *dirty*. The end of the turn looks at each dirty
job once. A job that the journal doesn't know gets a *base*, which has everything about the job. Any other job gets a
STATE with the fields that may have changed. A job that came and went within the turn leaves no record. So the journal
always agrees with memory, no matter how many rules changed a job in a turn.

`job.place` is the segment with the job's base, or 0 while there is no base. A place below `broker.journal.first_place`
is a segment of an earlier journal, and counts as 0. When a job with a place is forgotten, a GONE with this place is
recorded. As long as that segment exists, a record must say that the job is over.

Times are spans, counted from the wall clock in the block's head (spec T3). A job that still waits for its copies gets
no base, because its producer has no promise yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from disque_py.core.broker import Broker
from disque_py.core.claim_stamps import stamp_of
from disque_py.core.job import ACKED, ACTIVE, GONE, NEW_HOLDERS, QUEUED, Cancellation, Handover, Job
from disque_py.core.job_attributes import pack_topic, topic_bytes
from disque_py.core.job_snapshot import pack_part
from disque_py.core.record_packing import header_of, state_of
from disque_py.core.spilled import Spilled, size_of
from persistence.layouts import (
    BASE_BYTES,
    BASE_STATE,
    BATCH_AT,
    BATCH_PART_AT,
    BODY_AT,
    ENTRIES_AT,
    ID_AT,
    IS_ACKED,
    IS_CANCELED,
    IS_DELIVERED,
    IS_GIVEN,
    IS_LEASED,
    IS_QUEUED,
    PAUSED_AT,
    SEGMENT_AT,
    TOKEN_AT,
    WAS_QUEUED,
)
from persistence.records import BATCH, JOB, KEY, PAUSE, RESULT, STATE, TOKEN, Run
from persistence.records import GONE as GONE_RECORD

_pack_base = BASE_STATE.pack

# The last field of the base of nearly every new job.
QUEUED_BASE: Final = _pack_base(IS_QUEUED | WAS_QUEUED, -1)


def mark_holders_dirty(broker: Broker, job: Job) -> None:
    """Mark a job as dirty, including its holders, because more or fewer nodes may hold a copy."""
    if broker.is_journaling:
        record_soon(broker, job)


def record_soon(broker: Broker, job: Job) -> None:
    """Record the job at the end of the turn, including its holders."""
    if not job.dirt:
        broker.dirty.append(job)
    job.dirt = NEW_HOLDERS


def clear(broker: Broker) -> None:
    """Record none of the jobs that changed in this turn."""
    for job in broker.dirty:
        job.dirt = 0
    broker.dirty = []


def collect(broker: Broker) -> list[Run]:
    """Return the turn's records as runs, in the order in which they must be read.

    GONE records come first, because a job that is gone may have come back in the same turn.
    """
    runs: list[Run] = []
    outbox = broker.outbox
    if outbox.gone.count:
        broker.journal.settle()
        runs.append(outbox.gone.take())
    if outbox.moved:
        _unplace(broker)
    if broker.dirty:
        _collect_jobs(broker, runs)
    if outbox.pauses:
        runs.append([PAUSE, *(pause_of(broker, name) for name in outbox.pauses)])
        outbox.pauses = {}
    if outbox.tokens:
        tokens = broker.tokens.take_records()
        if tokens:
            runs.append([TOKEN, *tokens])
    if outbox.keys:
        keys = broker.producers.keys.take_records()
        if keys:
            runs.append([KEY, *keys])
    if broker.batches.recorded:
        batches = broker.batches.take_records()
        if batches:
            runs.append([BATCH, *batches])
    if outbox.results:
        results = broker.results.take_records()
        if results:
            runs.append([RESULT, *results])
    return runs


def _unplace(broker: Broker) -> None:
    """Take the place from jobs that need a new base, so that they get one in this turn.

    This happens only now, because a job that is forgotten earlier in the turn must still leave a GONE. The old base may
    be in another segment than the record that caused the new base. That segment becomes a stale place.
    """
    moved, broker.outbox.moved = broker.outbox.moved, {}
    for job in moved:
        if job.state != GONE and job.place >= broker.journal.first_place:
            if job.place != broker.journal.place:
                broker.journal.stale_places.add(job.place)
            broker.journal.live_bytes[job.place] -= base_bytes(job)
            broker.journal.live_records[job.place] -= 1
            job.place = 0
            record_soon(broker, job)


def _collect_jobs(broker: Broker, runs: list[Run]) -> None:
    """Collect bases and states of dirty jobs. This is one loop for speed, because every job comes here."""
    bases = broker.journal.bases
    states = broker.journal.states
    place = broker.journal.place
    first_place = broker.journal.first_place
    live = broker.journal.live_bytes
    now_ms = broker.now_ms
    mine = broker.sets.mine
    me = broker.me.id
    pack = broker.sets.pack
    added = 0
    for job in broker.dirty:
        has_new_holders = job.dirt == NEW_HOLDERS
        job.dirt = 0
        state = job.state
        if state == QUEUED:
            flags = IS_QUEUED | WAS_QUEUED if job.was_queued else IS_QUEUED
            due_ms = -1
        elif state == ACTIVE:
            flags = WAS_QUEUED if job.was_queued else 0
            due_ms = job.requeue_at_ms
            if due_ms:
                due_ms = due_ms - now_ms if due_ms > now_ms else 0
            else:
                due_ms = -1
        elif state == ACKED:
            flags = IS_ACKED | WAS_QUEUED if job.was_queued else IS_ACKED
            if type(job.work) is Cancellation:
                flags |= IS_CANCELED
            due_ms = -1
        else:
            continue  # The job is over, or its producer has no promise yet.
        if job.is_delivered:
            flags |= IS_DELIVERED
        if job.is_leased_here:
            flags |= IS_LEASED
        if job.work is not None and type(job.work) is Handover:
            flags |= IS_GIVEN
        holders = job.holders
        if job.place >= first_place:
            packed = (me if holders is mine else pack(holders)) if has_new_holders else None
            if job.attributes is None:
                states.add_state(job, packed, flags, due_ms)
            else:
                states.add(_with_claim(broker, job, (job.id, state_of(job, flags, due_ms), packed)))
            continue
        body = job.body
        if type(body) is not bytes:
            lent = broker.spill.lent.get(job)
            if lent is None:
                # The journal was switched on a moment ago, and the job's body was not read for it yet.
                broker.spill.readings.append((job, record_read))
                continue
            body = lent
        queue = job.terms.queue
        job.place = place
        added += BASE_BYTES + len(queue) + len(body)
        packed = me if holders is mine else pack(holders)
        attributes = job.attributes
        topic = job.terms.topic
        if attributes is None and topic is None:
            bases.add_job(job, body, packed, flags, due_ms, now_ms)
            continue
        base = (job.id, header_of(job, now_ms), queue, body, packed, _pack_base(flags, due_ms))
        if topic is not None:
            added += topic_bytes(topic)
        if attributes is not None:
            added += attributes.packed_bytes
            bases.add(_with_part(broker, job, (*base, attributes.pack(topic))))
        elif topic is not None:
            bases.add((*base, pack_topic(topic)))
    broker.dirty = []
    if broker.spill.lent:
        broker.spill.lent = {}
    if added:
        live[place] = live.get(place, 0) + added
        broker.journal.live_records[place] = broker.journal.live_records.get(place, 0) + int(bases.count)
    if bases.count:
        runs.append(bases.take())
    if states.count:
        runs.append(states.take())


def _with_part(broker: Broker, job: Job, record: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a job's record with its changeable part, if it has one."""
    part = job.part
    return record if part is None else (*record, pack_part(broker, job, part))


def _with_claim(broker: Broker, job: Job, record: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a job's STATE with its changeable part and, after that, its newest claim. Spec EX6."""
    stamp = stamp_of(job)
    record = _with_part(broker, job, record)
    if stamp is None or not stamp.fence or job.part is None:
        return record
    return (*record, (stamp.fence, stamp.own_fence, stamp.holder))


def flags_of(job: Job) -> int:
    """Return the job's flags as one number. `_collect_jobs` repeats this code."""
    flags = WAS_QUEUED if job.was_queued else 0
    if job.state == QUEUED:
        flags |= IS_QUEUED
    elif job.state == ACKED:
        flags |= IS_ACKED
        if isinstance(job.work, Cancellation):
            flags |= IS_CANCELED
    if job.is_delivered:
        flags |= IS_DELIVERED
    if job.is_leased_here:
        flags |= IS_LEASED
    if isinstance(job.work, Handover):
        flags |= IS_GIVEN
    return flags


def base_bytes(job: Job) -> int:
    """Return the approximate size of the job's base in its segment, in bytes."""
    size = BASE_BYTES + len(job.terms.queue) + size_of(job.body)
    if job.terms.topic is not None:
        size += topic_bytes(job.terms.topic)
    return size if job.attributes is None else size + job.attributes.packed_bytes


def pause_of(broker: Broker, name: bytes) -> tuple[bytes, int, int, bytes, int]:
    """Return the record of a queue's pause: its flags here, and version and flags of the state set with BCAST."""
    queue = broker.queues.get(name)
    flags = queue.paused if queue is not None else 0
    known = broker.pauses.versions.get(name)
    return (name, flags, known[1], known[2], known[0]) if known is not None else (name, flags, 0, b"", 0)


# -- moving living records out of a segment -----------------------------------------------------------


def keep(broker: Broker, number: int, kind: int, item: Any, *, may_matter: bool) -> None:
    """Record the contents of a record again, as far as they are still needed, because its segment will be dropped.

    may_matter  for a GONE: whether there still are files that may have a base of this id
    """
    if kind == JOB:
        job = broker.find(item[ID_AT])
        if job is not None and job.place == number:
            rebase(broker, job)
            if type(job.body) is Spilled:
                broker.spill.lent[job] = item[BODY_AT]
    elif kind == STATE:
        job = broker.find(item[ID_AT])
        if job is not None and broker.journal.first_place <= job.place < number:
            record_soon(broker, job)
    elif kind == GONE_RECORD and may_matter:
        job = broker.find(item[ID_AT])
        if job is not None and job.place >= broker.journal.first_place and type(job.body) is Spilled:
            # The job came back, and its body is on disk. GONE and base are recorded when the body is read. Until then
            # the present base is valid.
            broker.spill.readings.append((job, partial(_gone_read, item)))
            return
        broker.outbox.gone.add_gone(item[ID_AT], item[SEGMENT_AT])
        if job is not None and job.place >= broker.journal.first_place:
            rebase(broker, job)  # The job came back meanwhile. Its base must follow the GONE.
    elif kind == PAUSE:
        broker.outbox.pauses[item[PAUSED_AT]] = None
    elif kind == TOKEN:
        broker.tokens.record_again(item[TOKEN_AT])
    elif kind == KEY:
        broker.producers.keys.record_again(item[ID_AT], number)
    elif kind == BATCH:
        broker.batches.record_again(item[BATCH_AT], item[BATCH_PART_AT], item[ENTRIES_AT])
    elif kind == RESULT:
        broker.results.record_again(item[ID_AT], number)


def _gone_read(item: Any, broker: Broker, job: Job, body: bytes | None) -> None:
    """Copy a GONE, and record the base of the job that came back after it, because its body has been read."""
    if not broker.is_journaling:
        return
    broker.outbox.gone.add_gone(item[ID_AT], item[SEGMENT_AT])
    known = broker.find(item[ID_AT])
    if known is not None and known.place >= broker.journal.first_place:
        rebase(broker, known)
        if known is job and body is not None:
            broker.spill.lent[job] = body


def record_read(broker: Broker, job: Job, body: bytes | None) -> None:
    """Record a job whose body was read from disk for this purpose. The body stays on disk."""
    if broker.is_journaling and body is not None and job.place < broker.journal.first_place and job.state != GONE:
        broker.spill.lent[job] = body
        record_soon(broker, job)


def rebase(broker: Broker, job: Job) -> None:
    """Write a new base of the job at the end of the turn, in the segment that is written then."""
    broker.outbox.moved[job] = None
