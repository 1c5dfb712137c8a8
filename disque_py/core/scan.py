"""JSCAN and QSCAN: walk over jobs and queues with a cursor.

A job's position consists of eight characters of its id, the first two of which are its shard. The cursor is the next
position. So a job that exists during the whole walk is returned exactly once, even if other jobs come and go meanwhile.
A queue's position is its serial number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator
from typing import Final

from disque_py.core.broker import SHARDS, Broker
from disque_py.core.census import is_delayed_elsewhere
from disque_py.core.events import status_of
from disque_py.core.job import ACKED, GONE, QUEUED, Cancellation, Job
from disque_py.core.pulls import import_rate
from disque_py.core.queue import Queue
from disque_py.event_format import CANCELED, COMPLETED, INVISIBLE, PENDING

# One call visits at most this many shards or queues per job or queue of COUNT (spec R11).
VISITS_PER_COUNT: Final = 10
PLACES_PER_SHARD: Final = 1 << 36
LOOKED_PER_PART: Final = 500


def place_of(job_id: bytes) -> int:
    """Return the job's position in the walk: 48 bits of its random characters."""
    place = 0
    for char in job_id[12:20]:
        place = place << 6 | char & 63
    return place


class JobFilter:
    """The jobs that a walk returns.

    is_visible   returns whether the client may use a name
    counts       returns whether a job counts on this node with the wanted status (spec Z2)
    """

    __slots__ = ("counts", "is_visible", "queue", "states", "statuses", "where")

    def __init__(
        self,
        queue: bytes | None = None,
        states: tuple[int, ...] = (),
        statuses: tuple[int, ...] = (),
        where: tuple[tuple[bytes, bytes], ...] = (),
        is_visible: Callable[[bytes], bool] | None = None,
        counts: Callable[[Broker, Job], bool] | None = None,
    ) -> None:
        self.is_visible = is_visible
        self.counts = counts
        self.queue = queue
        self.statuses = tuple(dict.fromkeys(statuses))
        self.where = where
        self.states = tuple(dict.fromkeys(states))  # A client may repeat a state; it is compared only once per job.

    def takes(self, broker: Broker, job: Job) -> bool:
        """Return whether the walk returns the job. Records without holders (dummy acks) are never returned."""
        if not job.holders:
            return False
        if self.queue is not None and job.terms.queue != self.queue:
            return False
        if self.is_visible is not None and not self.is_visible(job.terms.queue):
            return False
        if self.states and job.state not in self.states:
            return False
        if self.counts is not None:
            if not self.counts(broker, job):
                return False
        elif self.statuses and shown_status(broker, job) not in self.statuses:
            return False
        if not self.where:
            return True
        meta = job.meta
        pairs = dict(zip(meta[::2], meta[1::2], strict=True))
        return not any(pairs.get(name) != value for name, value in self.where)


def shown_status(broker: Broker, job: Job) -> int:
    """Return the status of a job, as users see it.

    An acknowledged job has ended, although the status that this node has noted may be older. Of a copy whose job waits
    for its DELAY on another node, the status says pending, and only the copy's timer shows that the job is invisible.
    """
    if job.state == ACKED:
        return CANCELED if isinstance(job.work, Cancellation) else COMPLETED
    status = status_of(job)
    if status == PENDING and job.state != QUEUED and is_delayed_elsewhere(broker, job):
        return INVISIBLE
    return status


def scan_jobs(
    broker: Broker, cursor: int, count: int, wanted: JobFilter
) -> Generator[None, None, tuple[int, list[Job]]]:
    """Return about `count` matching jobs from `cursor` on, and the next cursor (0: the walk is over).

    With a negative count, walk to the end. Yield after every LOOKED_PER_PART jobs or so. Jobs that are removed before
    this returns are left out.
    """
    found: list[Job] = []
    shard, offset = divmod(cursor, PLACES_PER_SHARD)
    visits = looked = 0
    while shard < SHARDS:
        jobs = broker.shards[shard]
        if jobs:
            visits += 1
            looked += len(jobs)
            placed = sorted((place_of(job_id), job_id) for job_id in jobs)
            start = bisect_left(placed, (shard * PLACES_PER_SHARD + offset, b""))
            for at in range(start, len(placed)):
                place, job_id = placed[at]
                if 0 <= count <= len(found) and found and place != placed[at - 1][0]:
                    return place, _still_there(found)
                job = jobs[job_id]
                if wanted.takes(broker, job):
                    found.append(job)
        shard = broker.next_shard(shard + 1)
        offset = 0
        if count >= 0 and (len(found) >= count or visits > count * VISITS_PER_COUNT):
            break
        if looked >= LOOKED_PER_PART:
            looked = 0
            yield
    return (shard * PLACES_PER_SHARD if shard < SHARDS else 0), _still_there(found)


def _still_there(jobs: list[Job]) -> list[Job]:
    return [job for job in jobs if job.state != GONE]


class QueueFilter:
    """The queues that a walk returns. A limit of -1 is not applied."""

    __slots__ = ("import_rate_min", "is_visible", "length_max", "length_min")

    def __init__(
        self,
        length_min: int = -1,
        length_max: int = -1,
        import_rate_min: int = -1,
        is_visible: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.is_visible = is_visible
        self.length_min = length_min
        self.length_max = length_max
        self.import_rate_min = import_rate_min

    def takes(self, queue: Queue, import_rate: int) -> bool:
        """Return whether the walk returns the queue."""
        return (
            (self.length_min == -1 or queue.pending >= self.length_min)
            and (self.length_max == -1 or queue.pending <= self.length_max)
            and (self.import_rate_min == -1 or import_rate >= self.import_rate_min)
            and (self.is_visible is None or self.is_visible(queue.name))
        )


def scan_queues(
    broker: Broker, cursor: int, count: int, wanted: QueueFilter
) -> Generator[None, None, tuple[int, list[Queue]]]:
    """Return about `count` matching queues from serial `cursor` on, and the next cursor (0: the walk is over).

    With a negative count, walk to the end. Otherwise visit at most VISITS_PER_COUNT times as many queues. Yield after
    every LOOKED_PER_PART queues.
    """
    found: list[Queue] = []
    looked = 0
    at = bisect_left(broker.queue_order, cursor, key=_serial)
    while at < len(broker.queue_order):
        queue = broker.queue_order[at]
        if count >= 0 and looked and (len(found) >= count or looked >= count * VISITS_PER_COUNT):
            return queue.serial, found
        looked += 1
        if not queue.is_dropped and wanted.takes(queue, import_rate(broker, queue)):
            found.append(queue)
        at += 1
        if looked % LOOKED_PER_PART == 0:
            yield
            at = bisect_left(broker.queue_order, queue.serial + 1, key=_serial)
    return 0, found


def _serial(queue: Queue) -> int:
    return queue.serial
