"""Shares: the part that one node has in the answer to QLEN, QPEEK, QDEPTH, QSTAT and SHOW.

Each share is made of plain values, so that it can travel (core/gathering.py). With CLUSTER a node adds its own share to
those of the linked nodes. The functions named `…_of` check a share that another node sent; a ValueError closes that
node's link. `SUBJECTS` has the names under which nodes ask for shares. Such a name, and the order of values in a share,
never change their meaning: older and newer nodes ask each other. A share may get further values at its end.
Spec Z1, Z2, Z3.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import merge
from itertools import islice
from typing import Any, Final

import hiredis

from disque_py.commands import batches
from disque_py.commands.showing import described
from disque_py.core import census, electing, exclusive, filters, locking, pulls, spilling, tasks
from disque_py.core.broker import Broker
from disque_py.core.delivery import REPLY_BYTES_MAX
from disque_py.core.filters import PAIRS_MAX, Filter, Group, values_of
from disque_py.core.gathering import MakeShare, Share
from disque_py.core.ids import ID_BYTES, is_valid_id
from disque_py.core.job import ACKED, GONE, QUEUED, Job
from disque_py.core.priority_queue import key_of
from disque_py.core.spilled import size_of
from disque_py.event_format import JOB_STATUSES

PENDING: Final = b"pending"
STATUSES: Final = tuple([status.encode() for status in JOB_STATUSES])
# The statuses for which all jobs are walked. A node keeps no job of the others.
WALKED: Final[dict[bytes, census.Predicate]] = {
    b"invisible": census.is_invisible,
    b"running": census.is_running,
    b"errored": census.is_errored,
}

# Bytes of a job in QPEEK besides queue name and body. They limit the number of jobs in a share.
ENTRY_BYTES: Final = 70
JOBS_MAX: Final = REPLY_BYTES_MAX // ENTRY_BYTES + 1
# Values in a share of QPEEK: a frame with far more is refused (decode_limit.py). A job has its array and five values in
# it, and those of its metadata.
VALUES_MAX: Final = 30_000
VALUES_PER_JOB: Final = 6
# A share that travels is an array of parts, because a message has no array of more than 4096 elements.
PART_ITEMS: Final = 1_000
# QDEPTH: values in a share that travels, and groups of jobs looked at per part.
DEPTH_VALUES_MAX: Final = 10_000
DEPTH_PART: Final = 2_500
# The values or jobs that are gathered before they are sorted.
FRESH_MAX: Final = 1_000
# QPEEK: jobs looked at per part.
PEEK_PART: Final = 1_000
COUNT_MAX: Final = (1 << 63) - 1

SUBJECT_QLEN: Final = b"qlen"
SUBJECT_QPEEK: Final = b"qpeek"
SUBJECT_QDEPTH: Final = b"qdepth"
SUBJECT_QSTAT: Final = b"qstat"
SUBJECT_SHOW: Final = b"show"

# SHOW: how much a node knows of a job. The node with the highest rank answers, and among equals one on which the job is
# invisible, then the lowest id.
RANK_DUMMY: Final = 0
RANK_COPY: Final = 1
RANK_QUEUED: Final = 2
RANK_RUNNING: Final = 3
RANK_DONE: Final = 4


def pack_where(where: Filter | None) -> list[bytes]:
    """Return the pairs of a filter as words of a question."""
    if where is None:
        return []
    return [word for at in range(len(where.names)) for word in (where.names[at], where.values[at])]


def _where_of(words: Any) -> Filter | None:
    if type(words) not in (list, tuple) or len(words) % 2 or len(words) > 2 * PAIRS_MAX:
        raise ValueError("pairs that are none")
    if not all(type(word) is bytes for word in words):
        raise ValueError("pairs that are no bytes")
    if not words:
        return None
    pairs: dict[bytes, bytes] = dict(zip(words[::2], words[1::2], strict=True))
    if len(pairs) < len(words) // 2:
        raise ValueError("a name twice")
    return Filter(pairs)


def _bytes_of(value: Any) -> bytes:
    if type(value) is not bytes:
        raise ValueError("no bytes where bytes were expected")
    return bytes(value)


def _number_of(value: Any, low: int = 0, high: int = COUNT_MAX) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError("no number where a number was expected")
    return int(value)


def _list_of(value: Any, length_min: int = 0) -> list[Any]:
    if type(value) not in (list, tuple) or len(value) < length_min:
        raise ValueError("no array where an array was expected")
    return list(value)


def _parted(items: list[Any]) -> list[list[Any]]:
    return [items[at : at + PART_ITEMS] for at in range(0, len(items), PART_ITEMS)]


# -- QLEN -------------------------------------------------------------------------------------------


def group_of(broker: Broker, name: bytes, where: Filter) -> Group | None:
    """Return the pending jobs that a filter takes, after its index was built."""
    queue = broker.queues.get(name)
    return None if queue is None or queue.filters is None else queue.filters.group(where)


def length(broker: Broker, name: bytes, where: Filter | None, status: bytes) -> Generator[None, None, int]:
    """Return the number of a queue's jobs with this status that count here."""
    if status == PENDING:
        if where is None:
            queue = broker.queues.get(name)
            return 0 if queue is None else queue.pending
        yield from filters.built(broker, (name,), where)
        group = group_of(broker, name, where)
        return 0 if group is None else group.length
    counts = WALKED.get(status)
    if counts is None:
        return 0
    if where is None:
        figures = yield from census.taken(broker, name)
        if status == b"errored":
            return figures.errored
        return figures.running if status == b"running" else figures.invisible
    found: list[int] = [0]

    def look(job: Job) -> None:
        found[0] += 1

    yield from census.walk(broker, name, counts, where, look)
    return found[0]


def _length_share(broker: Broker, words: list[Any]) -> Share:
    name, where, status = _bytes_of(words[0]), _where_of(words[1]), _bytes_of(words[2])
    return length(broker, name, where, status)


def length_of(answer: Any) -> int:
    """Return a node's number of jobs."""
    return _number_of(answer)


# -- QPEEK ------------------------------------------------------------------------------------------


def first_jobs(
    broker: Broker, name: bytes, count: int, where: Filter | None, status: bytes
) -> Generator[None, None, list[Job]]:
    """Return up to |count| jobs in queue order, and no more than fit into a reply; negative: from the end."""
    if status == PENDING:
        if where is not None:
            yield from filters.built(broker, (name,), where)
        found = yield from _first_of(_lists(broker, name, count, where), count, len(name))
        return [job for job in found if job.state != GONE and job.state != ACKED]
    counts = WALKED.get(status)
    if counts is None:
        return []
    first = FirstJobs(count)
    yield from census.walk(broker, name, counts, where, first.offer)
    still = [job for job in first.taken() if job.state != GONE and counts(broker, job)]
    if len(still) > PEEK_PART:
        yield
    return (yield from _first_of([still], count, len(name)))


class FirstJobs:
    """The first |count| of very many jobs, in queue order; with a negative count the last ones, from the end."""

    __slots__ = ("_best", "_fresh", "_is_backwards", "_most")

    def __init__(self, count: int) -> None:
        self._most = min(abs(count), JOBS_MAX)
        self._is_backwards = count < 0
        self._best: list[tuple[int, int, bytes, Job]] = []
        self._fresh: list[tuple[int, int, bytes, Job]] = []

    def offer(self, job: Job) -> None:
        """Look at one more."""
        self._fresh.append((*key_of(job), job))
        if len(self._fresh) >= FRESH_MAX:
            self._merge()

    def _merge(self) -> None:
        self._best += self._fresh
        self._best.sort(reverse=self._is_backwards)  # The keys differ, so no jobs are compared.
        del self._best[self._most :]
        self._fresh = []

    def taken(self) -> list[Job]:
        """Return them."""
        self._merge()
        return [item[3] for item in self._best]


def _lists(broker: Broker, name: bytes, count: int, where: Filter | None) -> list[list[Job]]:
    """Return lists of pending jobs, each in order; the jobs asked for are among them."""
    queue = broker.queues.get(name)
    if queue is None:
        return []
    most = min(abs(count), JOBS_MAX)
    if where is None:
        return queue.first_lists(most) if count > 0 else queue.last_lists(most)
    group = group_of(broker, name, where)
    if group is None:
        return []
    return group.first_lists(most) if count > 0 else group.last_lists(most)


def _first_of(lists: list[list[Job]], count: int, name_bytes: int) -> Generator[None, None, list[Job]]:
    """Return up to |count| jobs of these lists, and no more than fit into a reply; negative: the lists go backwards."""
    jobs: list[Job] = []
    size = 0
    most = min(abs(count), JOBS_MAX)
    filled = [each for each in lists if each]
    ordered = iter(filled[0]) if len(filled) == 1 else merge(*filled, key=key_of, reverse=count < 0)
    for job in ordered:
        jobs.append(job)
        size += ENTRY_BYTES + name_bytes + size_of(job.body)
        if job.attributes is not None:
            size += job.attributes.packed_bytes
        if size >= REPLY_BYTES_MAX or len(jobs) == most:
            break
        if not len(jobs) % PEEK_PART:
            yield
    return jobs


class Peeked:
    """A job of a QPEEK, here or on another node."""

    __slots__ = ("body", "ctime", "id", "meta", "priority")

    def __init__(self, job_id: bytes, priority: int, ctime: int, body: bytes, meta: list[bytes]) -> None:
        self.id = job_id
        self.priority = priority
        self.ctime = ctime
        self.body = body
        self.meta = meta

    def place(self) -> tuple[int, int, bytes]:
        """Return its place in the order of the queue."""
        return (self.priority, self.ctime, self.id)


def _peek_share(broker: Broker, words: list[Any]) -> Share:
    name, where, status = _bytes_of(words[0]), _where_of(words[1]), _bytes_of(words[2])
    count = _number_of(words[3], -COUNT_MAX - 1)
    return _peeked(broker, name, where, status, count)


def _peeked(broker: Broker, name: bytes, where: Filter | None, status: bytes, count: int) -> Share:
    jobs = yield from first_jobs(broker, name, count, where, status)
    values = 0
    for at in range(len(jobs)):
        values += VALUES_PER_JOB + len(jobs[at].meta)
        if values >= VALUES_MAX:
            del jobs[at + 1 :]
            break
    bodies = yield from spilling.borrowed(broker, None, jobs)
    items = [[job.id, job.priority, job.ctime, bodies[job], list(job.meta)] for job in jobs if job in bodies]
    return _parted(items)


def peeked_of(answer: Any) -> list[Peeked]:
    """Return a node's jobs."""
    found: list[Peeked] = []
    for part in _list_of(answer):
        for item in _list_of(part):
            values = _list_of(item, 5)
            job_id, meta = _bytes_of(values[0]), _list_of(values[4])
            if len(job_id) != ID_BYTES or not is_valid_id(job_id) or not all(type(word) is bytes for word in meta):
                raise ValueError("a job that is none")
            priority = _number_of(values[1], -COUNT_MAX - 1)
            found.append(Peeked(job_id, priority, _number_of(values[2]), _bytes_of(values[3]), meta))
    return found


def best_of(shares: list[list[Peeked]], count: int, name_bytes: int) -> Generator[None, None, list[Peeked]]:
    """Return up to |count| jobs of all nodes, each once, in queue order or from its end.

    The list ends where the share of one node may have ended: behind that, jobs of this node could be missing.
    """
    for share in shares:
        share.sort(key=Peeked.place, reverse=count < 0)  # Already sorted, unless the other node is in error.
        if len(share) > PEEK_PART:
            yield
    found: list[Peeked] = []
    known: set[bytes] = set()
    size = values = 0
    for job in merge(*shares, key=Peeked.place, reverse=count < 0):
        if job.id in known:
            continue
        known.add(job.id)
        found.append(job)
        size += ENTRY_BYTES + name_bytes + len(job.body) + sum(map(len, job.meta))
        values += VALUES_PER_JOB + len(job.meta)
        if size >= REPLY_BYTES_MAX or values >= VALUES_MAX or len(found) == abs(count):
            break
        if not len(found) % PEEK_PART:
            yield
    return found


# -- QDEPTH -----------------------------------------------------------------------------------------


class Depths:
    """Numbers of jobs by a value: the largest first, as (number, value); `without`: jobs that lack the name."""

    __slots__ = ("best", "without")

    def __init__(self, best: list[tuple[int, bytes]], without: int) -> None:
        self.best = best
        self.without = without


def depths(broker: Broker, name: bytes, by: bytes, status: bytes, count: int) -> Generator[None, None, Depths]:
    """Return the `count` values that most jobs of a queue with this status have."""
    if status != PENDING:
        return (yield from _walked_depths(broker, name, by, status, count))
    where = Filter({by: b""})
    yield from filters.built(broker, (name,), where)
    queue = broker.queues.get(name)
    if queue is None or queue.filters is None:
        return Depths([], 0)
    index = queue.filters.index(where.names)
    without = queue.pending - index.entries
    largest = Largest(count)
    at = len(index.listed)
    while at > 0:
        # From the end: if a group is removed meanwhile, a group that was already looked at moves to its place.
        end, at = at, max(0, at - DEPTH_PART)
        largest.offer([(-group.length, group.values[0]) for group in index.listed[at:end] if group.length])
        if at:
            yield
    return Depths(largest.taken(), without)


def _walked_depths(broker: Broker, name: bytes, by: bytes, status: bytes, count: int) -> Generator[None, None, Depths]:
    counts = WALKED.get(status)
    if counts is None:
        return Depths([], 0)
    numbers: dict[bytes, int] = {}
    without: list[int] = [0]
    names = (by,)

    def look(job: Job) -> None:
        values = values_of(job, names)
        if values is None:
            without[0] += 1
        else:
            numbers[values[0]] = numbers.get(values[0], 0) + 1

    yield from census.walk(broker, name, counts, None, look)
    best = yield from _largest(numbers, count)
    return Depths(best, without[0])


class Largest:
    """The `count` largest of very many numbers, each with a value: (-number, value), the smallest first."""

    __slots__ = ("_best", "_count", "_fresh")

    def __init__(self, count: int) -> None:
        self._count = count
        self._best: list[tuple[int, bytes]] = []
        self._fresh: list[tuple[int, bytes]] = []

    def offer(self, items: list[tuple[int, bytes]]) -> None:
        """Look at some more."""
        best = self._best
        if len(best) == self._count:
            last = best[-1]
            items = [item for item in items if item < last]
        self._fresh += items
        if len(self._fresh) >= FRESH_MAX:
            self._merge()

    def _merge(self) -> None:
        self._best += self._fresh  # A sorted list and some more: sorting costs little more than the new ones.
        self._best.sort()
        del self._best[self._count :]
        self._fresh = []

    def taken(self) -> list[tuple[int, bytes]]:
        """Return them as (number, value), the largest first, and each value once."""
        self._merge()
        found: dict[bytes, int] = {}
        for number, value in self._best:
            found.setdefault(value, -number)
        return [(number, value) for value, number in found.items()]


def _largest(numbers: dict[bytes, int], count: int) -> Generator[None, None, list[tuple[int, bytes]]]:
    largest = Largest(count)
    items = iter(numbers.items())
    while part := list(islice(items, DEPTH_PART)):
        largest.offer([(-number, value) for value, number in part])
        if len(part) == DEPTH_PART:
            yield
    return largest.taken()


def _depth_share(broker: Broker, words: list[Any]) -> Share:
    name, by, status = _bytes_of(words[0]), _bytes_of(words[1]), _bytes_of(words[2])
    return _counted_depths(broker, name, by, status)


def _counted_depths(broker: Broker, name: bytes, by: bytes, status: bytes) -> Share:
    found = yield from depths(broker, name, by, status, DEPTH_VALUES_MAX)
    items: list[Any] = []
    size = 0
    for number, value in found.best:
        size += ENTRY_BYTES + len(value)
        if size > REPLY_BYTES_MAX and items:
            break
        items.append([number, value])
        if not len(items) % DEPTH_PART:
            yield
    return [found.without, _parted(items)]


def depths_of(answer: Any) -> Depths:
    """Return a node's numbers of jobs by value."""
    values = _list_of(answer, 2)
    best: list[tuple[int, bytes]] = []
    for part in _list_of(values[1]):
        for item in _list_of(part):
            if type(item) not in (list, tuple) or len(item) < 2:
                raise ValueError("no pair where a pair was expected")
            best.append((_number_of(item[0]), _bytes_of(item[1])))
    return Depths(best, _number_of(values[0]))


def sum_of_depths(shares: list[Depths], count: int) -> Generator[None, None, Depths]:
    """Return the sums of all nodes, the `count` largest values."""
    numbers: dict[bytes, int] = {}
    for share in shares:
        for at in range(0, len(share.best), DEPTH_PART):
            for number, value in share.best[at : at + DEPTH_PART]:
                numbers[value] = numbers.get(value, 0) + number
            if at + DEPTH_PART <= len(share.best):
                yield
    best = yield from _largest(numbers, count)
    return Depths(best, sum([share.without for share in shares]))


# -- QSTAT ------------------------------------------------------------------------------------------


class Stat:
    """The figures of QSTAT, of one node or of all.

    is_known    the queue exists
    rate_used   deliveries of the last time, if the queue has a `rate`: of all nodes, as far as they told
    oldest_ms   age of the oldest pending job; -1: there is none
    """

    __slots__ = (
        "age_s",
        "blocked",
        "claims",
        "errored",
        "idle_s",
        "import_rate",
        "invisible",
        "is_known",
        "jobs_in",
        "jobs_out",
        "length",
        "oldest_ms",
        "paused",
        "rate_used",
        "running",
        "sources",
        "tasks",
        "waiting_elsewhere",
        "without_key",
    )

    def __init__(self) -> None:
        self.is_known = False
        self.length = 0
        self.age_s = 0
        self.idle_s = 0
        self.blocked = 0
        self.sources: list[bytes] = []
        self.import_rate = 0
        self.jobs_in = 0
        self.jobs_out = 0
        self.paused = 0
        self.waiting_elsewhere = 0
        self.oldest_ms = -1
        self.invisible = 0
        self.running = 0
        self.errored = 0
        self.tasks = 0
        self.rate_used = 0
        self.claims = 0
        self.without_key = 0


def stat(broker: Broker, name: bytes, is_recent_enough: bool = False) -> Generator[None, None, Stat]:
    """Return the figures of a queue on this node. `is_recent_enough`: see census.taken."""
    figures = yield from census.taken(broker, name, is_recent_enough)
    found = Stat()
    found.invisible = figures.invisible
    found.running = figures.running
    found.errored = figures.errored
    found.tasks = tasks.count_of(broker, name)
    found.rate_used = broker.caps.rate_used(name, broker.now_ms)
    found.claims = exclusive.count_of(broker, name)
    found.without_key = figures.without_key
    queue = broker.queues.get(name)
    if queue is None:
        return found
    now_ms = broker.now_ms
    found.is_known = True
    found.length = queue.pending
    found.age_s = max(0, (now_ms - queue.created_ms) // 1000)
    found.idle_s = max(0, (now_ms - queue.active_ms) // 1000)
    found.blocked = len(queue.waiting) + (queue.filters.waiting if queue.filters is not None else 0)
    sources = [node for node, last_ms in queue.sources.items() if now_ms - last_ms <= pulls.RESPONDER_MS]
    found.sources = list(broker.sets.names(sources))
    found.import_rate = pulls.import_rate(broker, queue)
    found.jobs_in = queue.jobs_in
    found.jobs_out = queue.jobs_out
    found.paused = queue.paused
    found.waiting_elsewhere = sum([max(0, count) for count in queue.interested.values()])
    if figures.ready_ms and queue.pending:
        found.oldest_ms = max(0, broker.wall_ms - figures.ready_ms)
    return found


def _stat_share(broker: Broker, words: list[Any]) -> Share:
    return _figures(broker, _bytes_of(words[0]))


def _figures(broker: Broker, name: bytes) -> Share:
    found = yield from stat(broker, name)
    return [
        int(found.is_known),
        found.length,
        found.age_s,
        found.idle_s,
        found.blocked,
        found.sources,
        found.import_rate,
        found.jobs_in,
        found.jobs_out,
        found.paused,
        found.oldest_ms,
        found.invisible,
        found.running,
        found.errored,
        found.tasks,
        found.rate_used,
        found.claims,
        found.without_key,
    ]


def stat_of(answer: Any) -> Stat:
    """Return a node's figures of a queue."""
    values = _list_of(answer, 14)
    found = Stat()
    found.is_known = _number_of(values[0], 0, 1) == 1
    found.length = _number_of(values[1])
    found.age_s = _number_of(values[2])
    found.idle_s = _number_of(values[3])
    found.blocked = _number_of(values[4])
    found.sources = [_bytes_of(source) for source in _list_of(values[5])]
    found.import_rate = _number_of(values[6])
    found.jobs_in = _number_of(values[7])
    found.jobs_out = _number_of(values[8])
    found.paused = _number_of(values[9], 0, 3)
    found.oldest_ms = _number_of(values[10], -1)
    found.invisible = _number_of(values[11])
    found.running = _number_of(values[12])
    found.errored = _number_of(values[13])
    found.tasks = _number_of(values[14]) if len(values) > 14 else 0
    found.rate_used = _number_of(values[15]) if len(values) > 15 else 0
    found.claims = _number_of(values[16]) if len(values) > 16 else 0
    found.without_key = _number_of(values[17]) if len(values) > 17 else 0
    return found


def sum_of_stats(shares: list[Stat]) -> Stat:
    """Return the figures of all nodes as one: sums, the highest ages, the lowest idle time, a pause on any node."""
    total = Stat()
    for share in shares:
        total.invisible += share.invisible
        total.running += share.running
        total.errored += share.errored
        total.tasks += share.tasks
        total.rate_used = max(total.rate_used, share.rate_used)  # Each node knows of all deliveries.
        total.claims += share.claims
        total.without_key += share.without_key
        if not share.is_known:
            continue
        total.idle_s = min(total.idle_s, share.idle_s) if total.is_known else share.idle_s
        total.is_known = True
        total.length += share.length
        total.age_s = max(total.age_s, share.age_s)
        total.blocked += share.blocked
        total.sources = sorted({*total.sources, *share.sources})
        total.import_rate += share.import_rate
        total.jobs_in += share.jobs_in
        total.jobs_out += share.jobs_out
        total.paused |= share.paused
        total.oldest_ms = max(total.oldest_ms, share.oldest_ms)
    return total


# -- SHOW -------------------------------------------------------------------------------------------


class Shown:
    """A job as one node shows it: the node's rank, its id, and the values of SHOW; no values: it knows no job."""

    __slots__ = ("node_id", "rank", "values")

    def __init__(self, rank: int, node_id: bytes, values: list[Any] | None) -> None:
        self.rank = rank
        self.node_id = node_id
        self.values = values


def _rank(broker: Broker, job: Job) -> int:
    if job.state == ACKED:
        return RANK_DONE if job.holders else RANK_DUMMY
    if census.is_running(broker, job):
        return RANK_RUNNING
    return RANK_QUEUED if job.state == QUEUED else RANK_COPY


def _show_share(broker: Broker, words: list[Any]) -> Share:
    job_id = _bytes_of(words[0])
    if not is_valid_id(job_id):
        raise ValueError("an id that is none")
    return _described(broker, job_id)


def _described(broker: Broker, job_id: bytes) -> Share:
    job = broker.find(job_id)
    if job is None:
        return None
    bodies = yield from spilling.borrowed(broker, None, (job,))
    if broker.find(job_id) is not job:
        return None
    return [_rank(broker, job), broker.me.id, described(broker, 2, job, bodies.get(job, b""))]


def shown_of(answer: Any) -> Shown:
    """Return a job as a node shows it. Its values are encoded again, so no node writes into a client's stream."""
    if answer is None:
        return Shown(-1, b"", None)
    values = _list_of(answer, 3)
    reader = hiredis.Reader()
    reader.feed(_bytes_of(values[2]))
    try:
        pairs = reader.gets()
    except hiredis.ProtocolError as broken:
        raise ValueError("a reply that is none") from broken
    if type(pairs) is not list or len(pairs) % 2 or reader.has_data():
        raise ValueError("a reply that is no array of pairs")
    for value in pairs:
        for inner in value if type(value) is list else (value,):
            if inner is not None and type(inner) not in (bytes, int):
                raise ValueError("a value that SHOW never has")
    return Shown(_number_of(values[0]), _bytes_of(values[1]), pairs)


def best_shown(shares: list[Shown]) -> list[Any] | None:
    """Return the values of the node that knows most of the job, None if no node knows it."""
    known = [share for share in shares if share.values is not None]
    if not known:
        return None
    return min(known, key=_order_of).values


def _order_of(share: Shown) -> tuple[int, bool, bytes]:
    """Only the node that got a DEQUEUE, or a NACK in a pause, knows that the job is invisible. Spec Z4."""
    values = share.values or []
    is_invisible = any(values[at : at + 2] == [b"status", b"invisible"] for at in range(0, len(values), 2))
    return (-share.rank, not is_invisible, share.node_id)


SUBJECTS: Final[dict[bytes, MakeShare]] = {
    SUBJECT_QLEN: _length_share,
    SUBJECT_QPEEK: _peek_share,
    SUBJECT_QDEPTH: _depth_share,
    SUBJECT_QSTAT: _stat_share,
    SUBJECT_SHOW: _show_share,
    electing.SUBJECT_VOTER: electing.share,
    locking.SUBJECT_LOCKS: locking.share,
    batches.SUBJECT_BATCH: batches.share,
}
