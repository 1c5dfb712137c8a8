"""Spilling: bodies leave memory when it gets scarce, and come back when they are needed.

Above 60 % of maxmemory, bodies that will not be wanted soon go to disk: those of jobs far from the head of their queue,
of copies and of delayed jobs. The job stays, with a `Spilled` in place of its body. Order, timers, acks and holders
never look at a body, so nothing else about the job changes. A body is replaced only when it is written, and only if its
job has not changed meanwhile. Percentages of maxmemory count the bytes left in memory.

Bodies come back ahead of time: a queue from which jobs are fetched has its next ones read. If the body of a head is on
disk, the queue is *stalled* (lifecycle.fetch). It looks empty until the body is back, so the order stays. A GETJOB that
meets a stalled queue waits for it, as do commands that show bodies (`borrowed`).

Producers may be faster than the disk. At 100 % their commands wait until bodies are out (`makes_room`), as long as the
disk makes progress. They get -OOM when it doesn't, or when no body is left that may go.

A body can't be read when the disk fails (EIO), when the file is gone, or when it has other content. Then the body is
taken from the journal, if there is one (storage/body_recovery.py). If it isn't there either, it is lost to this node,
and never delivered in part: the job is forgotten here, counted and logged. If other nodes hold copies, their retry
brings the job back, as after a crash.

The core does not know where bodies are written to, or how (storage/spill_service.py, persistence/spill.py).
Spec M6.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Final

from disque_py import event_format
from disque_py.core import events, lifecycle, replication
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.client import RUNNING, WAITS_FOR_ROOM, Client
from disque_py.core.job import ACTIVE, GONE, JOB_BYTES, QUEUED, Job
from disque_py.core.queue import Queue
from disque_py.core.spilled import SPILLED_BYTES, Spilled, released
from disque_py.log_lines import tell

# This much of the bodies read ahead at the head of a queue stays when memory is nearly full.
SCARCE: Final = 32
# A queue that was used this lately keeps its head when others don't.
USED_MS: Final = 10_000
# A walk that found no body pauses for as long as the jobs it has seen would need at this rate.
RESTED_JOBS_PER_MS: Final = 100
REST_MS_MIN: Final = 1_000
# It goes on earlier when bodies take up this much more of maxmemory: bodies read back for delivery are in no list.
RESTED_SHARE: Final = 16
# Jobs looked at per choice, at most: about a millisecond. Most of them may be over, or not worth spilling.
LOOKS_MAX: Final = 2_000
# New jobs are noted in chunks of this many; chunks are cleared of jobs that are over when there are many.
CHUNK: Final = 4_096
# Fewer bytes of bodies than this are not worth looking for.
BODIES_MIN: Final = 1 << 20
BODIES_SHARE: Final = 64

# A producer waits for room as long as a body has left memory this lately.
WAIT_MS: Final = 2_000

# (queue, position) -> the key of the job there: looked up once per choice.
Near = dict[tuple[Queue, int], tuple[int, int] | None]

# How much of a queue's head stays: all of it; that of queues in use; nothing.
KEEP_HEADS: Final = 0
KEEP_USED: Final = 1
KEEP_NOTHING: Final = 2


def excess(broker: Broker) -> int:
    """Return the bytes above the mark that are not being written already."""
    return broker.used_memory - broker.spill.writing_bytes - broker.spill.above


def is_behind(broker: Broker) -> bool:
    """Whether memory is above 75 % and bodies are on their way out: work that can wait (loading) should wait."""
    spill = broker.spill
    return (
        broker.used_memory > broker.memory.limits[0]
        and spill.is_on
        and not spill.trouble
        and (bool(spill.writing) or not _is_resting(broker))
        and bodies_in_memory(broker) + spill.writing_bytes >= worth_seeking(broker)
    )


def makes_room(broker: Broker) -> bool:
    """Whether memory is full only until bodies are out that are on their way: a producer can wait for that."""
    spill = broker.spill
    return bool(spill.writing) and is_behind(broker) and broker.now_ms - spill.wrote_ms < WAIT_MS


def wait_for_room(broker: Broker, client: Client) -> None:
    """Keep the client's next request while `makes_room`. Requests that wait for copies come here again anyway."""
    if client.waiting == RUNNING:
        client.waiting = WAITS_FOR_ROOM
        broker.spill.blocked_producers[client] = None


def let_in(broker: Broker) -> None:
    """Let clients that wait for room go on, when there is some, or none to be expected."""
    spill = broker.spill
    if broker.used_memory <= broker.memory.limits[1] or not makes_room(broker):
        for client in spill.blocked_producers:
            client.waiting = RUNNING
            broker.outbox.clients[client] = None
        spill.blocked_producers = {}


# -- out --------------------------------------------------------------------------------------------


def take_fresh(broker: Broker, bytes_max: int) -> list[Job]:
    """Return the newest of the jobs that are noted, about `bytes_max` of bodies, oldest first.

    The newest are the farthest from being wanted. The process can also give the memory back to the system that it
    allocated last, because a heap shrinks from its end.
    """
    spill = broker.spill
    fresh = spill.fresh
    size = 0
    found: list[Job] = []
    near: Near = {}
    looks = LOOKS_MAX
    while size < bytes_max and looks and (fresh or spill.older):
        looks -= 1
        if not fresh:
            fresh = spill.fresh = spill.older.pop()
        job = fresh.pop()
        if may_go(broker, job, KEEP_HEADS, near):
            found.append(job)
            size += len(job.body)
    found.reverse()
    return found


def tidy_fresh(broker: Broker) -> None:
    """Keep the list of new jobs in chunks; drop jobs that are over from one of them, if there are many."""
    spill = broker.spill
    if len(spill.fresh) >= CHUNK:
        spill.older.append(spill.fresh)
        spill.fresh = []
    older = spill.older
    if len(older) * CHUNK > broker.job_count + broker.job_count // 4 + CHUNK:
        at = spill.tidied = (spill.tidied + 1) % len(older)
        older[at] = [job for job in older[at] if type(job.body) is bytes and job.body and job.state != GONE]
        if not older[at]:
            del older[at]
        elif at and len(older[at]) + len(older[at - 1]) <= CHUNK:
            older[at - 1] += older.pop(at)


def seek(broker: Broker, bytes_max: int) -> list[Job]:
    """Walk over all jobs for bodies that are worth spilling. Each pass evicts more aggressively.

    A round that finds no body is followed by one that spares less, and at last by a rest.
    """
    spill = broker.spill
    if _is_resting(broker) or bodies_in_memory(broker) < worth_seeking(broker):
        return []
    found: list[Job] = []
    near: Near = {}
    size = 0
    looks = LOOKS_MAX
    while looks > 0 and size < bytes_max:
        shard = broker.shards[spill.shard]
        looks -= 1 + len(shard)
        eviction_level = spill.eviction_level
        for job in shard.values():
            if may_go(broker, job, eviction_level, near):
                found.append(job)
                size += len(job.body)
        spill.shard += 1
        if spill.shard == SHARDS:
            spill.shard = 0
            if _ends_round(broker, spill.round_bytes + size):
                break
            spill.round_bytes = -size  # The bytes found in the round before are added below.
    spill.round_bytes += size
    return found


def _ends_round(broker: Broker, found_bytes: int) -> bool:
    """End a round; return True if that is enough for now."""
    spill = broker.spill
    if found_bytes:
        return False
    most = KEEP_NOTHING if broker.memory_level >= 2 else KEEP_USED
    if spill.eviction_level < most:
        spill.eviction_level += 1
        return False
    spill.eviction_level = KEEP_HEADS
    spill.rest_until_ms = broker.now_ms + max(REST_MS_MIN, broker.job_count // RESTED_JOBS_PER_MS)
    spill.rest_bytes = bodies_in_memory(broker) + broker.settings.maxmemory // RESTED_SHARE
    return True


def _is_resting(broker: Broker) -> bool:
    """Whether the walk found no body lately, and few more can be found since."""
    spill = broker.spill
    return broker.now_ms < spill.rest_until_ms and bodies_in_memory(broker) < spill.rest_bytes


def bodies_in_memory(broker: Broker) -> int:
    """Return about how many bytes of bodies are in memory and are not being written."""
    jobs = JOB_BYTES * broker.job_count + SPILLED_BYTES * broker.memory.spilled_count
    return broker.used_memory - jobs - broker.spill.writing_bytes


def worth_seeking(broker: Broker) -> int:
    """Return how many bytes of bodies must be in memory for a walk to be worth it."""
    return min(BODIES_MIN, broker.settings.maxmemory // BODIES_SHARE)


def may_go(broker: Broker, job: Job, eviction_level: int, near: Near) -> bool:
    """Whether the job's body may and should leave memory."""
    body = job.body
    if type(body) is not bytes or len(body) < broker.spill.body_bytes_min or job.work is not None:
        return False
    state = job.state
    if state == QUEUED:
        queue = broker.queues.get(job.terms.queue)
        if queue is not None and eviction_level < KEEP_NOTHING and is_near(broker, queue, job, eviction_level, near):
            return False
    elif state != ACTIVE:
        return False
    if broker.is_journaling and job.place < broker.journal.first_place and not broker.is_loading:
        return False  # Until its base is recorded the journal needs the body.
    return job not in broker.spill.writing


def is_near(broker: Broker, queue: Queue, job: Job, eviction_level: int, near: Near) -> bool:
    """Whether a job is so near the head of its queue that it will be wanted soon. `near` remembers the keys there."""
    if eviction_level == KEEP_USED and not queue.has_clients and broker.now_ms - queue.active_ms > USED_MS:
        return False
    position = min(broker.spill.near_bytes // len(job.body), broker.spill.near_jobs)
    if queue.length <= position:
        return True
    place = (queue, position)
    limit = near[place] if place in near else near.setdefault(place, queue.key_at(position))
    return limit is None or (job.priority, job.ctime) <= limit


def gone(broker: Broker, job: Job, body: bytes, place: Spilled) -> bool:
    """Replace the body, which was written to `place`; False if the job has changed and needs no place."""
    spill = broker.spill
    spill.writing.pop(job, None)
    if job.body is not body or job.work is not None or job.state not in (ACTIVE, QUEUED):
        return False
    job.body = place
    size = len(body)
    broker.used_memory -= size - SPILLED_BYTES
    broker.memory.spilled_count += 1
    spill.bytes_on_disk += size
    spill.wrote_ms = broker.now_ms
    spill.written += 1
    spill.written_bytes += size
    return True


# -- back -------------------------------------------------------------------------------------------


def read_ahead(broker: Broker) -> None:
    """Ask for the bodies of the next jobs in the queues from which jobs are fetched."""
    spill = broker.spill
    heads, spill.heads = spill.heads, {}
    share = SCARCE if broker.memory_level >= 2 else 1
    jobs_max = max(1, spill.near_jobs // share)
    bytes_max = spill.near_bytes // share
    for queue, missing in heads.items():
        if missing is not None:
            if type(missing.body) is Spilled:
                recall(broker, missing)
            else:
                lifecycle.go_on(broker, queue)
        count = 0
        # A consumer that skips at-most-once jobs has another head.
        for order in (queue.retried.jobs(), queue.oldest()) if queue.once_length else (queue.oldest(),):
            size = count = 0
            for job in islice(order, jobs_max):
                body = job.body
                if type(body) is Spilled:
                    recall(broker, job)
                    size += body.size
                else:
                    size += len(body)
                count += 1
                if size >= bytes_max:
                    break
        queue.ahead = count


def recall(broker: Broker, job: Job) -> None:
    """Read the body back into memory soon."""
    spill = broker.spill
    if job not in spill.reading:
        spill.reading[job] = None
        spill.readings.append((job, attach))


def attach(broker: Broker, job: Job, body: bytes | None) -> None:
    """Give a job its body, and go on with the work that waited for it. (None: the job is gone.)"""
    broker.spill.reading.pop(job, None)
    if body is not None:
        _put_back(broker, job, body)
    queue = broker.queues.get(job.terms.queue)
    if queue is not None and queue.is_stalled:
        lifecycle.go_on(broker, queue)


def rescued(broker: Broker, job: Job, body: bytes) -> None:
    """Keep a body in memory that was read from the journal, because its place on disk does not have it."""
    broker.spill.rescued += 1
    _put_back(broker, job, body)


def _put_back(broker: Broker, job: Job, body: bytes) -> None:
    place = job.body
    if type(place) is Spilled:
        size = released(broker, place)
        job.body = body
        broker.used_memory += size - SPILLED_BYTES


def when_back(broker: Broker, job: Job, then: Callable[[], None]) -> None:
    """Read the body back and call `then`; not if it can't be read, because then the job is gone."""

    def hear(broker: Broker, job: Job, body: bytes | None) -> None:
        attach(broker, job, body)
        if body is not None and job.state != GONE:
            then()

    broker.spill.readings.append((job, hear))


def borrowed(broker: Broker, client: Client | None, jobs: Iterable[Job]) -> Generator[None, None, dict[Job, bytes]]:
    """Read bodies for a command to show, while its client waits; they stay on disk. Lost ones are missing.

    Without a client the caller looks again after a while (gathering.py).
    """
    bodies: dict[Job, bytes] = {}
    waiting: dict[Job, None] = {}

    def hear(broker: Broker, job: Job, body: bytes | None) -> None:
        if body is not None:
            bodies[job] = body
        waiting.pop(job, None)
        broker.waits.stalled.clear()

    for job in jobs:
        body = job.body
        if type(body) is Spilled:
            waiting[job] = None
            broker.spill.readings.append((job, hear))
        elif type(body) is bytes:
            bodies[job] = body
    while waiting:
        if client is not None:
            broker.waits.stalled[client] = None
        yield
    return bodies


def lost(broker: Broker, job: Job, reason: str) -> None:
    """Forget a job whose body can't be had from anywhere: it is lost to this node (see the module)."""
    spill = broker.spill
    spill.lost += 1
    where = (
        "its other holders will queue it"
        if job.terms.retry_ms and job.holders is not broker.sets.mine
        else "it is lost"
    )
    tell(broker.host, "spill-lost", job=job.id.decode("ascii", "replace"), reason=reason, consequence=where)
    events.ended(broker, job, event_format.LOST, "its body can't be read")
    replication.remove(broker, job)


def forget_all(broker: Broker) -> None:
    """Forget all places, because every job was forgotten at once (reset.py)."""
    spill = broker.spill
    readings = spill.readings + [(each.job, each.reader) for each in spill.unread]
    spill.is_void = True
    broker.memory.spilled_count = spill.bytes_on_disk = spill.writing_bytes = 0
    spill.writing, spill.reading, spill.lent, spill.heads = {}, {}, {}, {}
    spill.released, spill.fresh, spill.older, spill.readings, spill.unread = [], [], [], [], {}
    for job, reader in readings:
        reader(broker, job, None)
    broker.waits.stalled.clear()
