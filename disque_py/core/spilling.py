"""Spilling: bodies leave memory when it gets scarce, and are back when they are needed.

Above 60 % of maxmemory, bodies that nobody will want soon go to disk: those of jobs far from the head of their queue,
of copies and of delayed jobs. What stays is the job with a `Spilled` in place of its body; order, timers, acks and
holders never look at a body, so nothing else about it changes. A body is replaced only when it is written, and only
if its job is then still what it was. Percentages of maxmemory count what is left in memory.

The way back: a queue from which jobs are fetched has its next ones read ahead. Who finds a head whose body is out
*stalls* the queue (lifecycle.fetch): it is as if nothing were there until the body is, so the order stays. A GETJOB
that meets a stalled queue waits for it, as do commands that show bodies (`borrowed`).

A body that can't be read (EIO, the file is gone, not what was written) is lost to this node and never delivered in
part: the job is forgotten here, counted and logged. If others hold copies, their retry brings it back, as after a
crash. Where bodies are written to, and how, is no concern of the core (spill_desk.py, persistence/spill.py).
Source: semantics.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Final

from disque_py.core import replication
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.client import Client
from disque_py.core.job import ACTIVE, GONE, JOB_BYTES, QUEUED, Job
from disque_py.core.queue import Queue
from disque_py.core.spilled import SPILLED_BYTES, Spilled, released

# A smaller body is not worth a place on disk: what is won is little, and what it costs is the same.
BODY_BYTES_MIN: Final = 256
# What is kept in memory, and read ahead, at the head of a queue …
NEAR_JOBS: Final = 512
NEAR_BYTES: Final = 2 << 20
# … and when memory is nearly full.
NEAR_JOBS_SCARCE: Final = 16
NEAR_BYTES_SCARCE: Final = 64 << 10
# A queue that was used this lately keeps its head when others don't.
USED_MS: Final = 10_000
# The walk that found nothing pauses for as long as the jobs it has seen would need at this rate.
RESTED_JOBS_PER_MS: Final = 100
REST_MS_MIN: Final = 1_000
# Jobs remembered as new; more means that the disk is far behind, and the walk will find them.
FRESH_MAX: Final = 100_000
# Fewer bytes of bodies than this are not worth looking for.
BODIES_MIN: Final = 1 << 20

# How much of a queue's head stays: all of it; that of queues in use; nothing.
KEEP_HEADS: Final = 0
KEEP_USED: Final = 1
KEEP_NOTHING: Final = 2


def look(broker: Broker) -> None:
    """Whether memory is above the mark: then new jobs are remembered as candidates."""
    spill = broker.spill
    if broker.used_memory > spill.above:
        broker.is_spilling = True
    elif broker.is_spilling and broker.used_memory < spill.above // 10 * 9:
        broker.is_spilling = False
        spill.fresh = []
        spill.greed = KEEP_HEADS


def excess(broker: Broker) -> int:
    """Bytes above the mark that are not being written already."""
    return broker.used_memory - broker.spill.writing_bytes - broker.spill.above


def is_behind(broker: Broker) -> bool:
    """Memory is above 75 % and bodies are on their way out: who can wait (loading) should."""
    spill = broker.spill
    return (
        broker.used_memory > broker.memory_limits[0]
        and spill.is_on
        and not spill.trouble
        and (bool(spill.writing) or broker.now_ms >= spill.rest_until_ms)
        and bodies_in_memory(broker) + spill.writing_bytes >= BODIES_MIN
    )


# -- out --------------------------------------------------------------------------------------------


def take_fresh(broker: Broker, bytes_max: int) -> list[Job]:
    """Of the jobs that came lately the newest, about `bytes_max` of bodies, oldest first."""
    spill = broker.spill
    fresh = spill.fresh
    if len(fresh) > FRESH_MAX:
        del fresh[: -FRESH_MAX // 2]
    size = 0
    at = len(fresh)
    found: list[Job] = []
    while at and size < bytes_max:
        at -= 1
        job = fresh[at]
        if may_go(broker, job, KEEP_HEADS):
            found.append(job)
            size += len(job.body)
    del fresh[at:]
    found.reverse()
    return found


def seek(broker: Broker, bytes_max: int, looks: int) -> list[Job]:
    """The walk over all jobs for those that are worth it; it goes around with less and less regard.

    A round that finds nothing is followed by one that spares less, and at last by a rest.
    """
    spill = broker.spill
    if broker.now_ms < spill.rest_until_ms or bodies_in_memory(broker) < BODIES_MIN:
        return []
    found: list[Job] = []
    size = 0
    while looks > 0 and size < bytes_max:
        shard = broker.shards[spill.shard]
        looks -= 1 + len(shard)
        greed = spill.greed
        for job in shard.values():
            if may_go(broker, job, greed):
                found.append(job)
                size += len(job.body)
        spill.shard += 1
        if spill.shard == SHARDS:
            spill.shard = 0
            if _ends_round(broker, spill.round_bytes + size):
                break
            spill.round_bytes = -size  # What was found in the round before is added below.
    spill.round_bytes += size
    return found


def _ends_round(broker: Broker, found_bytes: int) -> bool:
    """A round is over; True if that is enough for now."""
    spill = broker.spill
    if found_bytes:
        return False
    most = KEEP_NOTHING if broker.memory_level >= 2 else KEEP_USED
    if spill.greed < most:
        spill.greed += 1
        return False
    spill.greed = KEEP_HEADS
    spill.rest_until_ms = broker.now_ms + max(REST_MS_MIN, broker.job_count // RESTED_JOBS_PER_MS)
    return True


def bodies_in_memory(broker: Broker) -> int:
    """About how many bytes of bodies there are that are not being written."""
    jobs = JOB_BYTES * broker.job_count + SPILLED_BYTES * broker.spilled_count
    return broker.used_memory - jobs - broker.spill.writing_bytes


def may_go(broker: Broker, job: Job, greed: int) -> bool:
    """Whether the job's body may and should leave memory."""
    body = job.body
    if type(body) is not bytes or len(body) < BODY_BYTES_MIN or job.work is not None:
        return False
    state = job.state
    if state == QUEUED:
        queue = broker.queues.get(job.queue)
        if queue is not None and greed < KEEP_NOTHING and is_near(broker, queue, job, len(body), greed):
            return False
    elif state != ACTIVE:
        return False
    if broker.is_journaling and job.place < broker.first_place and not broker.is_loading:
        return False  # Until its base is recorded the journal needs the body.
    return job not in broker.spill.writing


def is_near(broker: Broker, queue: Queue, job: Job, size: int, greed: int) -> bool:
    """Whether a job is so near the head of its queue that it will be wanted soon."""
    if greed == KEEP_USED and not queue.waiting and broker.now_ms - queue.active_ms > USED_MS:
        return False
    near = NEAR_BYTES // size
    if near > NEAR_JOBS:
        near = NEAR_JOBS
    return queue.length <= near or job.ctime <= queue.ctime_at(near)


def gone(broker: Broker, job: Job, body: bytes, place: Spilled) -> bool:
    """The body was written to `place`; False if the job has changed meanwhile, and the place is not needed."""
    spill = broker.spill
    spill.writing.pop(job, None)
    if job.body is not body or job.work is not None or job.state not in (ACTIVE, QUEUED):
        return False
    job.body = place
    size = len(body)
    broker.used_memory -= size - SPILLED_BYTES
    broker.spilled_count += 1
    spill.bytes_on_disk += size
    spill.written += 1
    return True


# -- back -------------------------------------------------------------------------------------------


def read_ahead(broker: Broker) -> None:
    """Ask for what is next in the queues from which jobs are fetched."""
    spill = broker.spill
    heads, spill.heads = spill.heads, {}
    is_scarce = broker.memory_level >= 2
    jobs_max = NEAR_JOBS_SCARCE if is_scarce else NEAR_JOBS
    bytes_max = NEAR_BYTES_SCARCE if is_scarce else NEAR_BYTES
    for queue in heads:
        size = count = 0
        is_first_out = False
        for job in islice(queue.oldest(), jobs_max):
            body = job.body
            if type(body) is Spilled:
                if not count:
                    is_first_out = True
                recall(broker, job)
                size += body.size
            else:
                size += len(body)
            count += 1
            if size >= bytes_max:
                break
        queue.ahead = count
        if queue.is_stalled and not is_first_out:
            go_on(broker, queue)


def recall(broker: Broker, job: Job) -> None:
    """Have the body back in memory soon."""
    spill = broker.spill
    if job not in spill.reading:
        spill.reading[job] = None
        spill.readings.append((job, attach))


def attach(broker: Broker, job: Job, body: bytes | None) -> None:
    """A body that was asked for is here, or (None) its job is gone: what waited for it goes on."""
    broker.spill.reading.pop(job, None)
    place = job.body
    if body is not None and type(place) is Spilled:
        size = released(broker, place)
        job.body = body
        broker.used_memory += size - SPILLED_BYTES
    queue = broker.queues.get(job.queue)
    if queue is not None and queue.is_stalled:
        go_on(broker, queue)


def go_on(broker: Broker, queue: Queue) -> None:
    """The head of a stalled queue is in memory, or another job is the head: who waits for it is served."""
    queue.is_stalled = False
    broker.stalled.clear()
    if queue.waiting:
        broker.ready[queue] = None
    if queue.interested:
        broker.hint_due[queue] = None


def when_back(broker: Broker, job: Job, then: Callable[[], None]) -> None:
    """Have the body back, and call `then`; not if it can't be read, for then the job is gone."""

    def hear(broker: Broker, job: Job, body: bytes | None) -> None:
        attach(broker, job, body)
        if body is not None and job.state != GONE:
            then()

    broker.spill.readings.append((job, hear))


def borrowed(broker: Broker, client: Client, jobs: Iterable[Job]) -> Generator[None, None, dict[Job, bytes]]:
    """Bodies of jobs for a command to show, while its client waits; they stay where they are. Lost ones are missing."""
    bodies: dict[Job, bytes] = {}
    waiting: dict[Job, None] = {}

    def hear(broker: Broker, job: Job, body: bytes | None) -> None:
        if body is not None:
            bodies[job] = body
        waiting.pop(job, None)
        broker.stalled.clear()

    for job in jobs:
        body = job.body
        if type(body) is Spilled:
            waiting[job] = None
            broker.spill.readings.append((job, hear))
        elif type(body) is bytes:
            bodies[job] = body
    while waiting:
        broker.stalled[client] = None
        yield
    return bodies


def lost(broker: Broker, job: Job, reason: str) -> None:
    """The body can't be read: the job is lost to this node (see the module)."""
    spill = broker.spill
    spill.lost += 1
    where = "its other holders will queue it" if job.retry_ms and job.holders is not broker.sets.mine else "it is lost"
    broker.host.log("warning", f"The body of job {job.id.decode('ascii', 'replace')} can't be read: {reason}; {where}")
    replication.remove(broker, job)


def forget_all(broker: Broker) -> None:
    """Every job was forgotten at once (reset.py)."""
    spill = broker.spill
    readings = spill.readings
    spill.is_void = True
    broker.spilled_count = spill.bytes_on_disk = spill.writing_bytes = 0
    spill.writing, spill.reading, spill.lent, spill.heads = {}, {}, {}, {}
    spill.released, spill.fresh, spill.readings = [], [], []
    for job, reader in readings:
        reader(broker, job, None)
    broker.stalled.clear()
