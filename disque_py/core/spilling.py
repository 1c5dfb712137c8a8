"""Spilling: move bodies to disk when memory gets scarce, and back when they are needed.

Above 60 % of maxmemory, bodies that will not be needed soon are written to disk: those of jobs far from the head of
their queue, of copies and of delayed jobs. The job stays in memory, with a `Spilled` in place of its body. Order,
timers, acks and holders do not depend on the body, so nothing else about the job changes. A body is replaced only after
it is written, and only if its job has not changed meanwhile. Percentages of maxmemory count only bytes in memory.

Bodies are read ahead: if jobs are fetched from a queue, the bodies of its next jobs are read back. If the body of a
queue's head is on disk, the queue is *stalled* (lifecycle.fetch). It looks empty until the body is back, so the order
of delivery does not change. A GETJOB on a stalled queue waits, as do commands that show bodies (`borrowed`).

Producers may be faster than the disk. At 100 %, their commands wait until bodies have left memory (`makes_room`), as
long as the disk makes progress. They get -OOM if it makes none, or if no body is left that may leave memory.

A body can't be read if the disk fails (EIO), if the file is gone, or if its content is wrong. Then the node takes the
body from the journal, if there is one (storage/body_recovery.py). If the journal does not have it either, the job is
lost on this node: it is forgotten, counted and logged, and never delivered in part. If other nodes hold copies, their
retry timers queue the job again, as after a crash.

The core does not know where and how bodies are stored (storage/spill_service.py, persistence/spill.py). Spec M6.
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

# When memory is nearly full, the number of jobs whose bodies are read ahead is divided by this.
SCARCE: Final = 32
# A queue that was used within this time keeps its head in memory at the level KEEP_USED.
USED_MS: Final = 10_000
# After a round that found no body, the walk rests for a millisecond per this many jobs, and at least for REST_MS_MIN.
RESTED_JOBS_PER_MS: Final = 100
REST_MS_MIN: Final = 1_000
# The rest ends early if bodies take up this fraction of maxmemory more, for example because they were read back for
# delivery.
RESTED_SHARE: Final = 16
# One choice examines at most this many jobs, which takes about a millisecond. Most of them may be unsuitable.
LOOKS_MAX: Final = 2_000
# New jobs are listed in chunks of this many. If there are many chunks, finished jobs are removed from them.
CHUNK: Final = 4_096
# A walk needs at least this many bytes of bodies in memory, or this fraction of maxmemory if that is less.
BODIES_MIN: Final = 1 << 20
BODIES_SHARE: Final = 64

# A producer waits for room as long as the last body left memory within this time.
WAIT_MS: Final = 2_000

# (queue, position) -> the key of the job there. Each is looked up once per choice.
Near = dict[tuple[Queue, int], tuple[int, int] | None]

# Eviction levels: which queues keep the bodies of their next jobs in memory.
KEEP_HEADS: Final = 0  # All queues.
KEEP_USED: Final = 1  # Queues that are in use.
KEEP_NOTHING: Final = 2  # None.


def excess(broker: Broker) -> int:
    """Return the bytes above the mark, without those that are being written already."""
    return broker.used_memory - broker.spill.writing_bytes - broker.spill.above


def is_behind(broker: Broker) -> bool:
    """Return whether memory is above 75 % and bodies are leaving it, so that work such as loading should wait."""
    spill = broker.spill
    return (
        broker.used_memory > broker.memory.limits[0]
        and spill.is_on
        and not spill.trouble
        and (bool(spill.writing) or not _is_resting(broker))
        and bodies_in_memory(broker) + spill.writing_bytes >= worth_seeking(broker)
    )


def makes_room(broker: Broker) -> bool:
    """Return whether bodies that are being written will soon make room, so that a producer can wait for it."""
    spill = broker.spill
    return bool(spill.writing) and is_behind(broker) and broker.now_ms - spill.wrote_ms < WAIT_MS


def wait_for_room(broker: Broker, client: Client) -> None:
    """Suspend a running client while `makes_room`. A client that waits for copies is checked again after that wait."""
    if client.waiting == RUNNING:
        client.waiting = WAITS_FOR_ROOM
        broker.spill.blocked_producers[client] = None


def let_in(broker: Broker) -> None:
    """Resume the clients that wait for room, if there is room or none is to be expected."""
    spill = broker.spill
    if broker.used_memory <= broker.memory.limits[1] or not makes_room(broker):
        for client in spill.blocked_producers:
            client.waiting = RUNNING
            broker.outbox.clients[client] = None
        spill.blocked_producers = {}


# -- to disk ----------------------------------------------------------------------------------------


def take_fresh(broker: Broker, bytes_max: int) -> list[Job]:
    """Return the newest of the listed jobs, with about `bytes_max` bytes of bodies, in order of age.

    The newest jobs are the last to be delivered. Their memory was also allocated last. The process can return such
    memory to the system, because a heap shrinks from its end.
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
    """Split the list of new jobs into chunks. If there are many chunks, remove finished jobs from one of them."""
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
    """Walk over all jobs in search of bodies that are worth spilling, and return a part of such jobs.

    After a round that finds no body, the next round evicts more aggressively. After the last level, the walk rests.
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
    """End a round of the walk. Return whether the walk should rest."""
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
    """Return whether the walk rests, because it recently found no body and few bodies have been added since."""
    spill = broker.spill
    return broker.now_ms < spill.rest_until_ms and bodies_in_memory(broker) < spill.rest_bytes


def bodies_in_memory(broker: Broker) -> int:
    """Return about how many bytes of bodies are in memory, without those that are being written."""
    jobs = JOB_BYTES * broker.job_count + SPILLED_BYTES * broker.memory.spilled_count
    return broker.used_memory - jobs - broker.spill.writing_bytes


def worth_seeking(broker: Broker) -> int:
    """Return how many bytes of bodies must be in memory for a walk to be worth it."""
    return min(BODIES_MIN, broker.settings.maxmemory // BODIES_SHARE)


def may_go(broker: Broker, job: Job, eviction_level: int, near: Near) -> bool:
    """Return whether the job's body may and should leave memory."""
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
        return False  # The journal needs the body until the job's base is recorded.
    return job not in broker.spill.writing


def is_near(broker: Broker, queue: Queue, job: Job, eviction_level: int, near: Near) -> bool:
    """Return whether a job is near the head of its queue, and so is delivered soon. `near` caches the limits."""
    if eviction_level == KEEP_USED and not queue.has_clients and broker.now_ms - queue.active_ms > USED_MS:
        return False
    position = min(broker.spill.near_bytes // len(job.body), broker.spill.near_jobs)
    if queue.length <= position:
        return True
    place = (queue, position)
    limit = near[place] if place in near else near.setdefault(place, queue.key_at(position))
    return limit is None or (job.priority, job.ctime) <= limit


def gone(broker: Broker, job: Job, body: bytes, place: Spilled) -> bool:
    """Replace a body that was written to `place`. Return False if the job has changed, so that `place` is not used."""
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
    return True


# -- from disk --------------------------------------------------------------------------------------


def read_ahead(broker: Broker) -> None:
    """Ask for the bodies of the next jobs of those queues from which jobs are fetched."""
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
                lifecycle.end_stall(broker, queue)
        count = 0
        # For a consumer that skips at-most-once jobs, another job is the head.
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
    """Have the body read back into memory."""
    spill = broker.spill
    if job not in spill.reading:
        spill.reading[job] = None
        spill.readings.append((job, attach))


def attach(broker: Broker, job: Job, body: bytes | None) -> None:
    """Give a job its body, and end the stall of its queue.

    body   None if it could not be read, in which case the job is gone
    """
    broker.spill.reading.pop(job, None)
    if body is not None:
        _put_back(broker, job, body)
    queue = broker.queues.get(job.terms.queue)
    if queue is not None and queue.is_stalled:
        lifecycle.end_stall(broker, queue)


def rescued(broker: Broker, job: Job, body: bytes) -> None:
    """Keep a body in memory that was read from the journal, because its spill file does not have it."""
    broker.spill.rescued += 1
    _put_back(broker, job, body)


def _put_back(broker: Broker, job: Job, body: bytes) -> None:
    place = job.body
    if type(place) is Spilled:
        size = released(broker, place)
        job.body = body
        broker.used_memory += size - SPILLED_BYTES


def when_back(broker: Broker, job: Job, then: Callable[[], None]) -> None:
    """Have the body read back, then call `then`. It is not called if the body can't be read: the job is gone then."""

    def hear(broker: Broker, job: Job, body: bytes | None) -> None:
        attach(broker, job, body)
        if body is not None and job.state != GONE:
            then()

    broker.spill.readings.append((job, hear))


def borrowed(broker: Broker, client: Client | None, jobs: Iterable[Job]) -> Generator[None, None, dict[Job, bytes]]:
    """Read bodies that a command shows, while its client waits. They stay on disk. The result lacks lost bodies.

    Without a client, the caller polls this generator (gathering.py).
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
    """Forget a job whose body can be read neither from its spill file nor from the journal (see the module)."""
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
    """Forget all places on disk, because all jobs were forgotten (reset.py)."""
    spill = broker.spill
    readings = spill.readings + [(each.job, each.reader) for each in spill.unread]
    spill.is_void = True
    broker.memory.spilled_count = spill.bytes_on_disk = spill.writing_bytes = 0
    spill.writing, spill.reading, spill.lent, spill.heads = {}, {}, {}, {}
    spill.released, spill.fresh, spill.older, spill.readings, spill.unread = [], [], [], [], {}
    for job, reader in readings:
        reader(broker, job, None)
    broker.waits.stalled.clear()
