"""Patterns of queue names: the clients of GETJOB … FROMMATCH, and the queues from which they may be served.

All clients with the same patterns share one *group*. A group knows its clients, the number of such clients on other
nodes, and the names of the matching queues that had a job when they were last visited. A waiting client is entered only
into its group, so waiting costs the same for any number of matching queues. Each queue knows its groups, so a job that
becomes ready finds their clients. Clients that also have a filter wait in each matching queue (filters.py), and in new
ones as they come.

A new group is compared with all queues, a part at a time. From then on, each new queue is compared only with groups
whose patterns begin like its name. A group that has no client on any node is dropped a minute after its last use.

pattern_interest.py tells other nodes about groups. Clients get their jobs from delivery.py and matching.py. Spec TP1,
TP2, TP3.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from disque_py.core.errors import CommandError
from disque_py.resp.glob import Glob

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.queue import Queue

PATTERNS_MAX: Final = 16
PATTERN_BYTES_MAX: Final = 1024
GROUPS_MAX: Final = 100_000
# The bytes of a group with its entries in tables, and of each queue that it lists, as measured.
GROUP_BYTES: Final = 2_000
LISTED_BYTES: Final = 110
GROUP_IDLE_MS: Final = 60_000
# The number of names that one part of a walk compares, which takes about half a millisecond.
COMPARED_PER_PART: Final = 250

# The most jobs of one queue that are asked for after a hint, and the most offers that are kept.
PULLED_MAX: Final = 100
OFFERS_MAX: Final = 1_000

# A client that asked within this time and did not wait is expected to ask again.
POLLED_MS: Final = 1_000

GONE: Final = -1
# Numbers of waiting clients: all without a filter, those of them that take at-most-once jobs, and those with a filter.
# As in INTEREST, 0 says that some waited recently, and GONE that none does.
Counts = tuple[int, int, int]
NO_CLIENTS: Final[Counts] = (GONE, GONE, GONE)


class PatternGroup:
    """Clients that wait with the same patterns, and the queues whose names match.

    words        the patterns, sorted
    waiting      clients without a filter, in order of arrival; `picky` of them skip at-most-once jobs
    filtered     clients with a filter
    interested   node -> the numbers of its clients with these patterns
    names        matching queues that had a job when they were last visited, sorted; `listed` has the same names
    told         the numbers of our clients, as last told to other nodes
    asked_ms     when a client that takes all jobs last asked and got none, or stopped waiting
    picky_ms, filtered_ms   the same for a picky client, and for a client with a filter
    elsewhere    matching queues of other nodes, while clients with a filter wait here
    offers       queue -> a node that has jobs of it and has not been asked for any
    pulled_ms, pulled   how many jobs were asked for in this millisecond, because of hints
    polled_ms    when a client without a filter last asked and did not wait
    used_ms      when a client last asked
    build        the walk that compares the group with all queues; None when it is complete
    """

    __slots__ = (
        "asked_ms",
        "build",
        "elsewhere",
        "filtered",
        "filtered_ms",
        "globs",
        "interested",
        "is_dropped",
        "is_timed",
        "listed",
        "names",
        "offers",
        "picky",
        "picky_ms",
        "polled_ms",
        "pulled",
        "pulled_ms",
        "told",
        "used_ms",
        "waiting",
        "words",
    )

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self.words = words
        self.globs = [Glob(word.decode("utf-8", "surrogateescape")) for word in words]
        self.waiting: dict[Client, None] = {}
        self.picky = 0
        self.filtered: dict[Client, None] = {}
        self.interested: dict[Node, Counts] = {}
        self.names: list[bytes] = []
        self.listed: dict[bytes, None] = {}
        self.elsewhere: dict[bytes, None] = {}
        self.offers: dict[bytes, Node] = {}
        self.pulled_ms = self.pulled = 0
        self.told = NO_CLIENTS
        self.asked_ms = self.picky_ms = self.filtered_ms = 0
        self.used_ms = self.polled_ms = 0
        self.build: Iterator[None] | None = None
        self.is_timed = False
        self.is_dropped = False

    def takes(self, name: bytes) -> bool:
        """Return whether a queue of this name matches one of the patterns."""
        text = name.decode("utf-8", "surrogateescape")
        return any(glob.matches(text) for glob in self.globs)

    @property
    def has_clients(self) -> bool:
        """Whether clients of any node wait or waited recently."""
        return bool(self.waiting or self.filtered or self.interested) or self.told != NO_CLIENTS


class Patterns:
    """All groups of one node.

    groups     patterns -> their group
    due        groups whose numbers of clients may have to be told to other nodes
    to_join    queues that have jobs now, here or on other nodes, and that clients with a filter may have to join
    found      (group, queue) where a matching queue has got a job; nodes whose clients have a filter are told
    """

    __slots__ = ("_broker", "_by_prefix", "_lengths", "due", "found", "groups", "to_join")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_prefix: dict[bytes, dict[PatternGroup, None]] = {}
        self._lengths: dict[int, int] = {}
        self.groups: dict[tuple[bytes, ...], PatternGroup] = {}
        self.due: dict[PatternGroup, None] = {}
        self.to_join: dict[Queue, None] = {}
        self.found: dict[tuple[PatternGroup, bytes], None] = {}

    def group(self, words: list[bytes] | tuple[bytes, ...]) -> PatternGroup:
        """Return the group of these patterns. A new group must still be compared with all queues (`build`).

        CommandError if there are too many groups.
        """
        key = tuple(sorted(set(words)))
        group = self.groups.get(key)
        broker = self._broker
        if group is None:
            if len(self.groups) >= GROUPS_MAX:
                raise CommandError(f"ERR too many patterns, at most {GROUPS_MAX}")
            group = self.groups[key] = PatternGroup(key)
            broker.used_memory += GROUP_BYTES + sum(map(len, key))
            for prefix in _prefixes(group):
                known = self._by_prefix.get(prefix)
                if known is None:
                    known = self._by_prefix[prefix] = {}
                    self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
                known[group] = None
            if broker.queues:
                group.build = self._compared(group)
            self._look_later(group)
        group.used_ms = broker.now_ms
        return group

    def matching(self, name: bytes) -> list[PatternGroup]:
        """Return the groups that a queue of this name belongs to."""
        found: dict[PatternGroup, None] = {}
        for length in self._lengths:
            if length <= len(name):
                for group in self._by_prefix.get(name[:length], ()):
                    if group not in found and group.takes(name):
                        found[group] = None
        return list(found)

    def queue_created(self, queue: Queue) -> None:
        """Assign a new queue to the groups whose patterns match it."""
        found = self.matching(queue.name)
        if found:
            queue.patterns = found

    def queue_dropped(self, queue: Queue) -> None:
        """Forget a queue that is dropped."""
        for group in queue.patterns or ():
            self.unlist(group, queue.name)
        self.to_join.pop(queue, None)

    def pushed(self, queue: Queue) -> None:
        """Note that a matching queue has a job."""
        broker = self._broker
        groups = queue.patterns
        assert groups is not None
        has_left = False
        for group in groups:
            if group.is_dropped:
                has_left = True
                continue
            if queue.name not in group.listed:
                self._list(group, queue)
            if group.waiting:
                broker.ready[queue] = None
            if group.interested:
                broker.consumers.hint_due[queue] = None
        if has_left:
            queue.patterns = [group for group in groups if not group.is_dropped] or None

    def is_wanted(self, name: bytes) -> bool:
        """Return whether clients here wait for jobs of a queue that is unknown here, or recently asked for some."""
        return any(group.told[0] >= 0 for group in self.matching(name))

    def asked_for(self, queue: Queue, node: Node) -> int:
        """Return how many jobs to ask of a node that has some. If 0, its offer is kept for the next client."""
        now_ms = self._broker.now_ms
        count = 0
        for group in queue.patterns or ():
            waiting = len(group.waiting)
            if group.pulled_ms != now_ms:
                group.pulled_ms, group.pulled = now_ms, 0
            if not waiting and group.polled_ms and now_ms - group.polled_ms < POLLED_MS:
                waiting = 1
            if group.pulled < waiting:
                count = max(count, min(PULLED_MAX, waiting - group.pulled))
                group.pulled += count
                group.offers.pop(queue.name, None)
            elif group.told[0] >= 0 and (queue.name in group.offers or len(group.offers) < OFFERS_MAX):
                group.offers[queue.name] = node
        return count

    def _list(self, group: PatternGroup, queue: Queue) -> None:
        name = queue.name
        group.listed[name] = None
        insort(group.names, name)
        self._broker.used_memory += LISTED_BYTES
        if group.filtered:
            self.to_join[queue] = None
        if group.interested:
            self.found[group, name] = None
            self._broker.consumers.hint_due[queue] = None

    def unlist(self, group: PatternGroup, name: bytes) -> None:
        """Forget a queue that has no job, until it gets one."""
        if name in group.listed:
            del group.listed[name]
            del group.names[bisect_left(group.names, name)]
            self._broker.used_memory -= LISTED_BYTES

    def clear_queues(self) -> None:
        """Forget all queues, because they are gone. The caller counts the memory again (reset.py)."""
        for group in self.groups.values():
            group.names = []
            group.listed = {}
            group.build = None
        self.to_join = {}
        self.found = {}

    def group_bytes(self) -> int:
        """Return the accounted bytes of all groups, when none of them lists a queue."""
        return sum([GROUP_BYTES + sum(map(len, words)) for words in self.groups])

    # -- the life of a group ------------------------------------------------------------------------

    def _compared(self, group: PatternGroup) -> Iterator[None]:
        """Compare a new group with all queues, a part per step. `queue_created` handles queues made meanwhile."""
        for compared, queue in enumerate(list(self._broker.queues.values()), 1):
            if compared % COMPARED_PER_PART == 0:
                yield
            if queue.is_dropped or group.is_dropped:
                continue
            groups = queue.patterns
            if groups is not None and group in groups:
                continue
            if group.takes(queue.name):
                groups = queue.patterns = [each for each in groups or () if not each.is_dropped]
                groups.append(group)
                if queue.length and queue.name not in group.listed:
                    self._list(group, queue)
        group.build = None

    def build_soon(self, group: PatternGroup) -> None:
        """Compare a group with all queues in the background, because no client of this node waits for it."""
        if group.build is not None:
            self._broker.schedule.walk(self._build_parts(group))

    def _build_parts(self, group: PatternGroup) -> Iterator[None]:
        while (build := group.build) is not None:
            next(build, None)
            yield

    def _look_later(self, group: PatternGroup) -> None:
        broker = self._broker
        broker.schedule.call_at(broker.now_ms + GROUP_IDLE_MS, partial(self._drop_if_idle, group))

    def _drop_if_idle(self, group: PatternGroup) -> None:
        broker = self._broker
        if group.has_clients or broker.now_ms - group.used_ms < GROUP_IDLE_MS:
            self._look_later(group)
            return
        group.is_dropped = True
        group.build = None
        broker.used_memory -= GROUP_BYTES + sum(map(len, group.words)) + LISTED_BYTES * len(group.names)
        group.names = []
        group.listed = {}
        del self.groups[group.words]
        self.due.pop(group, None)
        for prefix in _prefixes(group):
            known = self._by_prefix[prefix]
            del known[group]
            if not known:
                del self._by_prefix[prefix]
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]


def _prefixes(group: PatternGroup) -> dict[bytes, None]:
    return dict.fromkeys([glob.prefix.encode("utf-8", "surrogateescape") for glob in group.globs])


def has_client_for(queue: Queue) -> bool:
    """Return whether a client of this node waits in a group of the queue and takes one of the queue's ready jobs."""
    for group in queue.patterns or ():
        if group.waiting and (queue.retried_length or group.picky < len(group.waiting)):
            return True
    return False


def waiting_in(queue: Queue) -> tuple[int, int]:
    """Return how many clients of this node wait in the queue's groups without a filter: all, and the picky ones."""
    waiting = picky = 0
    for group in queue.patterns or ():
        waiting += len(group.waiting)
        picky += group.picky
    return waiting, picky


def demand_of(queue: Queue, interested: dict[Node, int]) -> dict[Node, int]:
    """Return node -> its clients that wait for the queue's jobs: those in `interested`, and those with patterns.

    The caller must not change the result.
    """
    groups = queue.patterns
    if groups is None:
        return interested
    found: dict[Node, int] | None = None
    for group in groups:
        for node, counts in group.interested.items():
            waiting = counts[0] if queue.retried_length else counts[1]
            if waiting >= 0:
                if found is None:
                    found = dict(interested)
                found[node] = max(0, found.get(node, 0)) + waiting
    return interested if found is None else found
