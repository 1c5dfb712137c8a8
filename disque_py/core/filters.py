"""Filters: the ready jobs of one queue that carry certain metadata, and the clients that wait for such jobs.

`GETJOB … WHERE name value` takes the best job that carries all pairs. For each combination of names that clients use, a
queue has one index. An index sorts jobs into groups, one for each combination of values. So a million workers that each
ask for their own value share one index, and a job that lacks one of the names takes no room in it.

The first use of a combination builds its index in parts, while other clients are served. Walks (schedule.py) build the
indexes that only other nodes need, and free the memory of dropped indexes. Each job that becomes ready, or no longer
is, updates all indexes (`added`, `left`). An index that was not used for INDEX_IDLE_MS is dropped. Its entries count in
`used_memory`. For each name in the queue's setting `index` there is an index from the start, which is not dropped.

There may be a million groups, so no function walks over all of them in one go. Indexes keep sums. A queue knows which
groups have both clients and jobs (`held`), and of which groups other nodes were told (`told`).

Clients that wait with a filter are in the line of their group, not in that of the queue. A push marks only the groups
to which the job belongs. So its cost does not depend on the number of filters. Spec W1, W2, W3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from disque_py.core.errors import CommandError
from disque_py.core.job import QUEUED, Job
from disque_py.core.priority_queue import Key
from disque_py.core.sorted_jobs import SortedJobs

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.queue import Queue

PAIRS_MAX: Final = 8
# Combinations of names for which a queue may have indexes at the same time.
INDEXES_MAX: Final = 64
INDEX_BYTES: Final = 600
# Groups for which clients of one node may wait. Other nodes keep at most this number per node.
LINES_MAX: Final = 100_000
# An index without clients is dropped when it has not been used for this span.
INDEX_IDLE_MS: Final = 60_000
# Jobs looked at per part while an index is built. A queue of at most this length is indexed in one go.
LOOKED_PER_PART: Final = 2_000
# Groups that are freed, or made for other nodes, per part.
GROUPS_PER_PART: Final = 500
# To free a list of up to 512 jobs (sorted_jobs.py) costs as much as to free this number of groups.
GROUPS_PER_LIST: Final = 50
# To make an index, and to make an entry of it, cost as much as to look at this number of jobs.
LOOKED_PER_QUEUE: Final = 20
LOOKED_PER_ENTRY: Final = 5
FILLED_AT_ONCE: Final = 100
# Measured memory of an entry of an index, and of a group without the bytes of its values.
ENTRY_BYTES: Final = 24
GROUP_BYTES: Final = 850

# Most groups have no at-most-once job. Their `once` is this shared object, to which no job is ever added.
NO_JOBS: Final = SortedJobs()

# Instead of a number of waiting clients: no client waits, nor did one a moment ago.
GONE: Final = -1

Names = tuple[bytes, ...]
Values = tuple[bytes, ...]


class Filter:
    """The pairs of a GETJOB's WHERE, sorted by name. A name and its value have the same position."""

    __slots__ = ("names", "values")

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        self.names: Names = tuple(sorted(pairs))
        self.values: Values = tuple([pairs[name] for name in self.names])

    def takes(self, job: Job) -> bool:
        """Return whether the job carries all pairs."""
        return values_of(job, self.names) == self.values


def values_of(job: Job, names: Names) -> Values | None:
    """Return the job's values of these names; None if it lacks one of them."""
    attributes = job.attributes
    if attributes is None:
        return None
    meta = job.meta
    found: list[bytes] = []
    for name in names:
        for at in range(0, len(meta), 2):
            if meta[at] == name:
                found.append(meta[at + 1])
                break
        else:
            return None
    return tuple(found)


class Demand:
    """The state of a group that only exists while clients of any node want its jobs (filter_interest.py).

    interested      node -> (number of its clients that wait for such jobs, number of them that take RETRY 0)
    told, told_plain   the same numbers of this node, as other nodes were told
    asked_ms        when a client of this node last stopped waiting, or asked in vain
    is_timed        whether a timer will tell a lower number soon
    hints           node -> number of hints that it was sent
    hint_node, hint_until_ms   the node that got the last hint, and until when we wait for its answer
    hint_repeats    how many hints in a row that node got
    """

    __slots__ = (
        "asked_ms",
        "hint_node",
        "hint_repeats",
        "hint_until_ms",
        "hints",
        "interested",
        "is_timed",
        "told",
        "told_plain",
    )

    def __init__(self) -> None:
        self.interested: dict[Node, tuple[int, int]] = {}
        self.told = GONE
        self.told_plain = GONE
        self.asked_ms = 0
        self.is_timed = False
        self.hints: dict[Node, int] = {}
        self.hint_node: Node | None = None
        self.hint_until_ms = 0
        self.hint_repeats = 0


class Group:
    """The ready jobs of a queue with one combination of values, and the clients that wait for them.

    names, values   the pairs that its jobs carry
    retried, once   its jobs: at least once, at most once
    waiting         clients in the order of arrival; `picky` of them skip at-most-once jobs
    demand          clients of other nodes, and clients here of which other nodes are told; None: there are none
    place           its position in the index's list
    """

    __slots__ = ("demand", "names", "once", "picky", "place", "retried", "values", "waiting")

    def __init__(self, names: Names, values: Values) -> None:
        self.names = names
        self.values = values
        self.retried = SortedJobs()
        self.once = NO_JOBS
        self.waiting: dict[Client, None] = {}
        self.picky = 0
        self.demand: Demand | None = None
        self.place = 0

    @property
    def pairs(self) -> tuple[bytes, ...]:
        """Its names and values as messages carry them: name, value, name, value …"""
        return tuple([word for at in range(len(self.names)) for word in (self.names[at], self.values[at])])

    def add(self, job: Job) -> bool:
        """Add a job. Return whether it was not there."""
        if job.terms.retry_ms:
            return self.retried.add(job)
        if self.once is NO_JOBS:
            self.once = SortedJobs()
        return self.once.add(job)

    def remove(self, job: Job) -> bool:
        """Remove a job. Return whether it was there."""
        return (self.retried if job.terms.retry_ms else self.once).remove(job)

    @property
    def length(self) -> int:
        """The number of its ready jobs."""
        return self.retried.length + self.once.length

    def first(self, *, is_picky: bool) -> Job | None:
        """Return the job that is served next. A picky client takes no at-most-once job."""
        once = self.once.first_key()
        if once is None or is_picky:
            return self.retried.first()
        retried = self.retried.first_key()
        return self.once.first() if retried is None or once < retried else self.retried.first()

    def client_for(self) -> Client | None:
        """Return the client that has waited longest of those for which there is a job."""
        if self.retried.length:
            return next(iter(self.waiting), None)
        if self.once.length:
            return next((client for client in self.waiting if not client.options.is_picky), None)
        return None

    def first_lists(self, count: int) -> list[list[Job]]:
        """Return lists of its jobs, each in order. The first `count` jobs of the group are among them."""
        return [[job for _, job in islice(jobs.in_order(), count)] for jobs in (self.retried, self.once)]

    def last_lists(self, count: int) -> list[list[Job]]:
        """Return lists of its jobs, each from last to first. The last `count` jobs of the group are among them."""
        return [[job for _, job in islice(jobs.backwards(), count)] for jobs in (self.retried, self.once)]

    def oldest(self) -> Iterator[Job]:
        """Yield its jobs in the order in which they are served."""
        return map(_job_of, merge(self.retried.in_order(), self.once.in_order(), key=_key_of))

    def newest(self) -> Iterator[Job]:
        """Yield its jobs, last to first."""
        return map(_job_of, merge(self.retried.backwards(), self.once.backwards(), key=_key_of, reverse=True))


def _key_of(item: tuple[Key, Job]) -> Key:
    return item[0]


def _job_of(item: tuple[Key, Job]) -> Job:
    return item[1]


class Index:
    """The groups of one combination of names.

    groups       values -> their group
    listed       the same groups, for walks in parts; when a group is dropped, the last one moves to its position
    used_ms      when a client last used it
    build        the walk that fills it; None when it is complete
    is_building  whether a walk builds it, because no client of this node waits for that
    waiting      number of clients in its groups
    demands      number of groups that have a `demand`
    entries      number of jobs in its groups
    used_memory  its accounted bytes
    """

    __slots__ = (
        "build",
        "demands",
        "entries",
        "groups",
        "is_building",
        "listed",
        "names",
        "used_memory",
        "used_ms",
        "waiting",
    )

    def __init__(self, names: Names) -> None:
        self.names = names
        self.groups: dict[Values, Group] = {}
        self.listed: list[Group] = []
        self.used_ms = 0
        self.build: Iterator[None] | None = None
        self.is_building = False
        self.waiting = 0
        self.demands = 0
        self.entries = 0
        self.used_memory = INDEX_BYTES


class Filters:
    """All indexes of one queue.

    indexes      names -> index
    due          groups whose clients may be served
    held         groups with both clients and jobs
    lines        groups with clients
    told         groups of whose clients other nodes were told
    waiting      number of clients that wait with a filter
    owing        whether hints about all groups are being planned: 0 no, 1 yes, 2 again from the start
    is_closed    whether other nodes are told of no clients here, for example because the queue is paused
    """

    __slots__ = (
        "broker",
        "due",
        "held",
        "indexes",
        "is_closed",
        "is_timed",
        "lines",
        "owing",
        "queue",
        "told",
        "waiting",
    )

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self.broker = broker
        self.queue = queue
        self.indexes: dict[Names, Index] = {}
        self.due: dict[Group, None] = {}
        self.held: dict[Group, None] = {}
        self.lines: dict[Group, None] = {}
        self.told: dict[Group, None] = {}
        self.waiting = 0
        self.is_closed = False
        self.is_timed = False
        self.owing = 0

    @property
    def is_told(self) -> bool:
        """Whether other nodes know of clients that wait here with a filter."""
        return bool(self.told)

    # -- called by the queue for each job ----------------------------------------------------------

    def added(self, job: Job) -> None:
        """Add a job that has just become ready to the groups that it belongs to."""
        for index in self.indexes.values():
            values = values_of(job, index.names)
            if values is not None:
                group = self._add(index, values, job)
                if group.waiting and not self.queue.is_stalled:
                    self.due[group] = None
                    self.broker.ready[self.queue] = None
                if group.demand is not None and group.demand.interested:
                    self.broker.consumers.filter_hints[group] = self.queue

    def left(self, job: Job) -> None:
        """Remove a job that is no longer ready."""
        for index in self.indexes.values():
            values = values_of(job, index.names)
            if values is None:
                continue
            group = index.groups.get(values)
            if group is not None and group.remove(job):
                index.entries -= 1
                self._account(index, -ENTRY_BYTES)
                if not group.length:
                    self.held.pop(group, None)
                    self._drop_if_empty(index, group)

    def _add(self, index: Index, values: Values, job: Job) -> Group:
        group = self._group(index, values)
        if group.add(job):
            index.entries += 1
            self._account(index, ENTRY_BYTES)
            if group.waiting:
                self.held[group] = None
            parking = self.queue.parking
            if parking is not None and parking.searches:
                parking.has_room_now(job)
        return group

    def _account(self, index: Index, size: int) -> None:
        index.used_memory += size
        self.broker.used_memory += size

    def _group(self, index: Index, values: Values) -> Group:
        group = index.groups.get(values)
        if group is None:
            group = index.groups[values] = Group(index.names, values)
            group.place = len(index.listed)
            index.listed.append(group)
            self._account(index, GROUP_BYTES + sum(map(len, values)))
        return group

    def drop_if_unused(self, group: Group) -> None:
        """Drop the group if it has no job and no client of any node waits for one."""
        index = self.indexes.get(group.names)
        if index is not None and index.groups.get(group.values) is group:
            self._drop_if_empty(index, group)

    def _drop_if_empty(self, index: Index, group: Group) -> None:
        if not group.waiting and not group.length and group.demand is None:
            del index.groups[group.values]
            last = index.listed.pop()
            if last is not group:
                index.listed[group.place] = last
                last.place = group.place
            self._account(index, -GROUP_BYTES - sum(map(len, group.values)))
            self.due.pop(group, None)
            if self.queue.parking is not None:
                self.queue.parking.searches.pop(group, None)

    def may_index(self, names: Names) -> bool:
        """Return whether these names are indexed or may be. To make room, drop an index with which no client waits."""
        if names in self.indexes or len(self.indexes) < INDEXES_MAX:
            return True
        idle = [index for index in self.indexes.values() if self._is_idle(index)]
        if not idle:
            return False
        self._drop(min(idle, key=_used_ms))
        return True

    def _is_idle(self, index: Index) -> bool:
        """Return whether no client waits with the index, and the queue's setting `index` does not name it."""
        names = index.names
        is_kept = len(names) == 1 and names[0] in self.broker.queue_settings.of(self.queue.name).index
        return not (index.waiting or index.demands or is_kept)

    def _drop(self, index: Index) -> None:
        del self.indexes[index.names]
        self.broker.used_memory -= index.used_memory
        index.build = None
        parking = self.queue.parking
        if parking is not None:
            for group in [group for group in parking.searches if group.names == index.names]:
                del parking.searches[group]
        self.broker.schedule.walk(_dismantled(index))

    # -- called for clients ---------------------------------------------------------------------------

    def index(self, names: Names) -> Index:
        """Return the index of these names. Create it if it is missing. It may still be incomplete (`build`)."""
        index = self.indexes.get(names)
        if index is None:
            index = self.indexes[names] = Index(names)
            self.broker.used_memory += index.used_memory
            index.build = self._built(index)
            if not self.is_timed:
                self.is_timed = True
                self.broker.schedule.call_at(self.broker.now_ms + INDEX_IDLE_MS, self._drop_idle)
        index.used_ms = self.broker.now_ms
        return index

    def group(self, wanted: Filter) -> Group | None:
        """Return the group of the filter; None if there is no such job and no client waits for one."""
        index = self.indexes.get(wanted.names)
        return None if index is None else index.groups.get(wanted.values)

    def wait(self, client: Client, wanted: Filter) -> None:
        """Let the client wait for jobs that match the filter."""
        index = self.index(wanted.names)
        group = self._group(index, wanted.values)
        if not group.waiting:
            self.broker.consumers.filter_lines += 1
            self.lines[group] = None
            if group.length:
                self.held[group] = None
        group.waiting[client] = None
        if index.build is not None and self.queue.pending:
            self.build_soon(index)  # Jobs came while the client's other queues were indexed.
        if client.options.is_picky:
            group.picky += 1
        index.waiting += 1
        self.waiting += 1
        self.broker.consumers.filter_due[group] = self.queue

    def stop_waiting(self, client: Client, wanted: Filter) -> None:
        """Take the client out of its line."""
        index = self.indexes[wanted.names]
        group = index.groups[wanted.values]
        del group.waiting[client]
        if client.options.is_picky:
            group.picky -= 1
        if not group.waiting:
            self.broker.consumers.filter_lines -= 1
            del self.lines[group]
            self.held.pop(group, None)
            self.broker.consumers.untold_filters.pop(group, None)
        index.waiting -= 1
        index.used_ms = self.broker.now_ms
        self.waiting -= 1
        if group.demand is not None:
            group.demand.asked_ms = self.broker.now_ms
            self.broker.consumers.filter_due[group] = self.queue
            if group.length and group.demand.interested:
                self.broker.consumers.filter_hints[group] = self.queue
        self._drop_if_empty(index, group)

    def asked(self, wanted: Filter) -> None:
        """Note that a client asked in vain and did not wait."""
        group = self._group(self.index(wanted.names), wanted.values)
        self.demand(group).asked_ms = self.broker.now_ms
        self.broker.consumers.filter_due[group] = self.queue

    def demand(self, group: Group) -> Demand:
        """Return the group's demand. Create it if it is missing. It keeps the group from being dropped."""
        if group.demand is None:
            group.demand = Demand()
            self.indexes[group.names].demands += 1
        return group.demand

    def end_demand(self, group: Group) -> None:
        """Forget a group's demand if it no longer has clients on any node."""
        demand = group.demand
        if demand is not None and not demand.interested and demand.told == GONE and not demand.is_timed:
            group.demand = None
            index = self.indexes.get(group.names)
            if index is not None:
                index.demands -= 1
            self.drop_if_unused(group)

    def group_of(self, pairs: tuple[bytes, ...]) -> Group:
        """Return the group of these pairs, which are sorted by name. Create it if it is missing."""
        return self._group(self.index(pairs[::2]), pairs[1::2])

    def build_soon(self, index: Index) -> None:
        """Build an index by a walk, because no client of this node waits for it."""
        if index.build is not None and not index.is_building:
            index.is_building = True
            self.broker.schedule.walk(self._build_parts(index))

    def _build_parts(self, index: Index) -> Iterator[None]:
        while (build := index.build) is not None and not self.queue.is_dropped:
            next(build, None)
            yield

    def dropped(self) -> None:
        """Give back all memory, because the queue is dropped."""
        for index in list(self.indexes.values()):
            self._drop(index)
        self.due = {}
        self.held = {}
        self.lines = {}
        self.told = {}

    def all_due(self) -> None:
        """Mark every group with clients and jobs, because something has kept its clients from being served."""
        self.due.update(self.held)

    def owe_hints(self) -> None:
        """Plan hints for other nodes about all groups, because jobs of the queue may leave again."""
        is_new, self.owing = not self.owing, 2
        if is_new:
            parts = self._owed()
            if next(parts, parts) is not parts:
                self.broker.schedule.walk(parts)

    def _owed(self) -> Iterator[None]:
        looked = 0
        while self.owing > 1:
            self.owing = 1
            for pairs in list(self.broker.consumers.filters.get(self.queue.name, ())):
                group = self.group_at(pairs)
                if group is not None and group.length:
                    self.broker.consumers.filter_hints[group] = self.queue
                looked += 1
                if looked >= LOOKED_PER_PART:
                    looked = 0
                    yield
                    if self.queue.is_dropped:
                        return
        self.owing = 0

    def group_at(self, pairs: tuple[bytes, ...]) -> Group | None:
        """Return the group of these pairs, which are sorted by name; None if there is none."""
        index = self.indexes.get(pairs[::2])
        return None if index is None else index.groups.get(pairs[1::2])

    # -- the life of an index ---------------------------------------------------------------------------

    def _built(self, index: Index) -> Iterator[None]:
        """Fill the index, one part per step. Meanwhile `added` and `left` update it when jobs come and go.

        A short queue is walked in one go. The jobs of a long queue are found by a walk over the broker's shards,
        because the order of the shards does not change when jobs come and go.
        """
        queue = self.queue
        looked = 0
        if queue.length <= LOOKED_PER_PART:
            lists = iter([list(queue.oldest())])
        else:
            lists = _jobs_of(self.broker)
        for jobs in lists:
            for at in range(0, len(jobs), FILLED_AT_ONCE):
                if looked >= LOOKED_PER_PART:
                    looked = 0
                    yield
                looked += self._fill(index, jobs[at : at + FILLED_AT_ONCE])
        index.build = None

    def _fill(self, index: Index, jobs: list[Job]) -> int:
        """Add those of the jobs that belong to the index. Return the cost, as a number of jobs looked at."""
        cost = len(jobs)
        name = self.queue.name
        for job in jobs:
            if job.attributes is not None and job.state == QUEUED and job.terms.queue == name:
                values = values_of(job, index.names)
                if values is not None:
                    cost += LOOKED_PER_ENTRY
                    group = self._add(index, values, job)
                    if group.waiting and not self.queue.is_stalled:
                        self.due[group] = None
                        self.broker.ready[self.queue] = None
                    if group.demand is not None and group.demand.interested:
                        self.broker.consumers.filter_hints[group] = self.queue
        return cost

    def _drop_idle(self) -> None:
        """Drop the indexes that no client has used for a while."""
        broker = self.broker
        self.is_timed = False
        if self.queue.is_dropped:
            return
        for index in list(self.indexes.values()):
            if broker.now_ms - index.used_ms >= INDEX_IDLE_MS and self._is_idle(index):
                self._drop(index)
        if self.indexes:
            self.is_timed = True
            broker.schedule.call_at(broker.now_ms + INDEX_IDLE_MS, self._drop_idle)
        else:
            self.queue.filters = None


def _jobs_of(broker: Broker) -> Iterator[list[Job]]:
    for shard in broker.shards:
        yield list(shard.values())


def _dismantled(index: Index) -> Iterator[None]:
    """Free an index's memory, one part per step."""
    freed = 0
    while index.listed:
        group = index.listed.pop()
        del index.groups[group.values]
        for jobs in (group.retried, group.once):
            for _ in jobs.dismantle():
                freed += GROUPS_PER_LIST
                if freed >= GROUPS_PER_PART:
                    freed = 0
                    yield
        freed += 1
        if freed >= GROUPS_PER_PART:
            freed = 0
            yield


def filters_of(broker: Broker, queue: Queue) -> Filters:
    """Return the queue's indexes. Create the object if it is missing."""
    if queue.filters is None:
        queue.filters = Filters(broker, queue)
    return queue.filters


def _used_ms(index: Index) -> int:
    return index.used_ms


def _refuse_index(broker: Broker, queue: Queue, names: Names) -> None:
    """Raise CommandError if the queue can have no further index for these names."""
    if not filters_of(broker, queue).may_index(names):
        raise CommandError(f"ERR too many combinations of names in WHERE, at most {INDEXES_MAX} per queue")


def is_indexed(broker: Broker, name: bytes, wanted: Filter) -> bool:
    """Return whether the filter's jobs can be found now, without building an index. True for a queue without jobs."""
    queue = broker.queues.get(name)
    if queue is None:
        return True
    if queue.filters is None and not queue.length:
        return True
    _refuse_index(broker, queue, wanted.names)
    return filters_of(broker, queue).index(wanted.names).build is None


def built(broker: Broker, names: Iterable[bytes], wanted: Filter) -> Iterator[None]:
    """Index these queues by the filter's names where that is missing, one part per step. Short queues share a part."""
    looked = 0
    for name in names:
        while (index := _unbuilt(broker, name, wanted)) is not None:
            build = index.build
            assert build is not None
            looked += min(LOOKED_PER_PART, (1 + LOOKED_PER_ENTRY) * broker.queues[name].length) + LOOKED_PER_QUEUE
            next(build, None)
            if looked >= LOOKED_PER_PART:
                looked = 0
                yield


def _unbuilt(broker: Broker, name: bytes, wanted: Filter) -> Index | None:
    """Return the queue's index for the filter if it is not complete; else None."""
    queue = broker.queues.get(name)
    if queue is None:
        return None
    _refuse_index(broker, queue, wanted.names)
    index = filters_of(broker, queue).index(wanted.names)
    return None if index.build is None else index


def index_from_start(broker: Broker, queue: Queue) -> None:
    """Index a queue by each name in its setting `index` (spec W2)."""
    for name in broker.queue_settings.of(queue.name).index:
        filters = filters_of(broker, queue)
        if (name,) not in filters.indexes and filters.may_index((name,)):
            filters.build_soon(filters.index((name,)))


def on_settings(broker: Broker, name: bytes, fields: dict[bytes, bytes]) -> None:
    """Index a queue whose settings have changed. An index that they no longer name is dropped when it is idle."""
    queue = broker.queues.get(name)
    if queue is not None and b"index" in fields:
        index_from_start(broker, queue)


def adopt(broker: Broker, queue: Queue) -> None:
    """Give a new queue the interest of other nodes in its jobs."""
    wanted = broker.consumers.filters.get(queue.name)
    if not wanted:
        return
    parts = _adopted(broker, queue, wanted)
    if next(parts, parts) is not parts:
        broker.schedule.walk(parts)


def _adopted(
    broker: Broker, queue: Queue, wanted: dict[tuple[bytes, ...], dict[Node, tuple[int, int]]]
) -> Iterator[None]:
    filters = filters_of(broker, queue)
    looked = 0
    for pairs, nodes in list(wanted.items()):
        looked += 1
        if looked >= GROUPS_PER_PART:
            looked = 0
            yield
            if queue.is_dropped:
                return
            filters = filters_of(broker, queue)
        if wanted.get(pairs) is nodes and filters.may_index(pairs[::2]):
            want(broker, queue, pairs, nodes)


def want(broker: Broker, queue: Queue, pairs: tuple[bytes, ...], nodes: dict[Node, tuple[int, int]]) -> None:
    """Note which nodes have clients that wait for the jobs of a group."""
    filters = filters_of(broker, queue)
    group = filters.group_of(pairs)
    filters.demand(group).interested = nodes
    filters.build_soon(filters.indexes[group.names])
    if group.length:
        broker.consumers.filter_hints[group] = queue
