"""Caps: limits on deliveries per time (`rate`) and on running leases (`max-running`), as one node counts them.

A queue's `rate` and `max-running` apply to the whole cluster. With `rate-by` and `max-running-by` they apply to each
value of a META name separately. A delivery takes a *slot* of each cap. A slot of `rate` becomes free when the period of
the cap is over. A slot of `max-running` becomes free when the lease ends.

One node, the *coordinator*, gives out the slots (capping.py). Other nodes ask it for a *grant*, which is a number of
slots for one pair of values. Every node tells all others which slots it uses, so any node could become the coordinator.

`admit` checks each fetched job. It passes a job for which there is a slot. It sets aside any other job under its pair
of values (parking.py), so that jobs with other values do not wait for it. A job that passed keeps its slot for up to
ADMITTED_MS before its delivery, because a claim may have to be granted first.

This module does the arithmetic of slots. It sends no messages. Spec CP1, CP2, CP3.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.job import Job
    from disque_py.core.queue import Queue

# The parts of a window. So a slot of `rate` may become free late, by up to a sixteenth of the period.
PARTS: Final = 16
# The most parts, with those that other nodes tell of.
PARTS_MAX: Final = 64
# A job that has a slot must be delivered within this span, or the slot is given back.
ADMITTED_MS: Final = 1_500
# A grant that no consumer uses is given back after this span.
HELD_MS: Final = 300
# A client that asked for several jobs and got fewer is expected to ask again within this span.
DEMAND_MS: Final = 1_000
NO_VALUE: Final = b""
UNLIMITED: Final = 1 << 60
# The first bytes of each name under which jobs are aside for caps. No claim key begins with them.
ASIDE_PREFIX: Final = b"\0cap\0"

# Queue, and a value of META.
Key = tuple[bytes, bytes]
# Queue, value of `rate-by`, value of `max-running-by`. None means that this cap does not count the job.
Pair = tuple[bytes, bytes | None, bytes | None]


class Limit(NamedTuple):
    """The caps of a queue.

    rate, rate_ms   at most `rate` deliveries per `rate_ms`; a `rate` of 0: any number
    rate_by         the name in META by whose values deliveries are counted; empty: all of the queue count together
    running         the most leases that may run at a time; 0: any number
    running_by      the name in META by whose values leases are counted; empty: all of the queue count together
    """

    rate: int
    rate_ms: int
    rate_by: bytes
    running: int
    running_by: bytes

    @property
    def is_by_value(self) -> bool:
        """Whether jobs of the queue may have different pairs of values."""
        return bool((self.rate and self.rate_by) or (self.running and self.running_by))


class Window:
    """The deliveries of the last `span_ms`, in parts. A part counts until its last delivery is older than `span_ms`."""

    __slots__ = ("_parts", "total")

    def __init__(self) -> None:
        # First and last moment, count.
        self._parts: deque[list[int]] = deque()
        self.total = 0

    def add(self, now_ms: int, count: int, span_ms: int) -> None:
        """Count deliveries that happen now."""
        parts = self._parts
        if parts and now_ms - parts[-1][0] < span_ms // PARTS:
            parts[-1][1] = now_ms
            parts[-1][2] += count
        else:
            parts.append([now_ms, now_ms, count])
        self.total += count

    def used(self, now_ms: int, span_ms: int) -> int:
        """Return how many deliveries count now."""
        parts = self._parts
        while parts and parts[0][1] + span_ms < now_ms:
            self.total -= parts.popleft()[2]
        return self.total

    def since(self, now_ms: int, span_ms: int) -> list[tuple[int, int]]:
        """Return for each part how many deliveries there were in it and after it, and its last moment; newest first."""
        found: list[tuple[int, int]] = []
        if self.used(now_ms, span_ms):
            total = 0
            for part in reversed(self._parts):
                total += part[2]
                found.append((total, part[1]))
        return found

    def add_known(self, at_ms: int, count: int, span_ms: int) -> None:
        """Count deliveries of which another node knows: at least `count` since `at_ms`, which is not in the future.

        The same delivery may have an earlier moment here, because messages take time, and it is in a part that ends
        elsewhere. So those of two parts before that moment are compared, too.
        """
        parts = self._parts
        since_ms = at_ms - 2 * span_ms // PARTS
        more = count - sum([part[2] for part in parts if part[1] >= since_ms])
        if more <= 0:
            return
        at = len(parts)
        while at and parts[at - 1][1] > at_ms:
            at -= 1
        if at == len(parts):
            self.add(at_ms, more, span_ms)
            return
        if len(parts) >= PARTS_MAX:
            parts[at][2] += more  # They count a little longer.
        else:
            parts.insert(at, [at_ms, at_ms, more])
        self.total += more

    def free_at_ms(self, span_ms: int) -> int:
        """Return the moment at which the oldest part stops counting; 0 if there is none."""
        return self._parts[0][1] + span_ms + 1 if self._parts else 0


class Use:
    """The slots of `max-running` that one process of a node uses under one key.

    until_ms   when the last of its leases ends, as far as we know; the slots of a lost node count until then
    """

    __slots__ = ("count", "node", "run", "until_ms")

    def __init__(self, node: Node, run: bytes) -> None:
        self.node = node
        self.run = run
        self.count = 0
        self.until_ms = 0


class Grant:
    """Slots that the coordinator gave out, and that are neither used nor given back yet.

    number   of the grant; 0: this node is the coordinator and gave the slots to itself
    left     how many slots are not used yet
    """

    __slots__ = ("left", "node", "number", "pair", "until_ms")

    def __init__(self, node: Node, number: int, pair: Pair, left: int, until_ms: int) -> None:
        self.node = node
        self.number = number
        self.pair = pair
        self.left = left
        self.until_ms = until_ms


class Caps:
    """The caps of all queues, and the slots that this node knows of.

    limits       queue -> its caps; while it is empty, only `uses` and `running` are used, for leases of removed caps
    windows      queue -> value -> deliveries in the whole cluster during the last period of the cap
    uses         key -> (node id, process) -> its slots of `max-running`
    running      job of which a lease runs that this node gave or extended -> key
    admitted     job -> its pair, the grant whose slot it has, and until when it has the slot
    grants       pair -> grants of this node that have slots left
    asked        pair -> when the coordinator was last asked for slots
    aside        queue -> pairs whose jobs are aside here
    demands      queue -> number of jobs that the last GETJOB asked for, and its time
    idle         pair -> when its jobs are offered to all nodes again, unless a client of this node asks earlier

    Work for the end of the turn (capping.py)
      to_ask       pair -> number of slots to ask for, and milliseconds of a lease
      told_rates   key -> number of deliveries here that other nodes must still be told
      told_uses    keys whose number of leases here changed
      settled      number of a grant -> how many of its slots were used or given back
      freed        (whether it is of `max-running`, key) that may have free slots

    The coordinator
      coordinator  the node that gives out slots; None: not known yet
      ready_ms     when this node may begin to give out slots, if it is the coordinator
      followers    nodes that have named us as their coordinator
      share        number of nodes on our side, and of known nodes; it decides which part of a cap we may give out
      given        number -> grant to another node
      number       of the last grant
      reserved     (whether it is of `max-running`, key) -> slots of grants and admitted jobs that are not used yet
      waits        (whether it is of `max-running`, key) -> (node, pair) -> number of slots that the node waits for, and
                   milliseconds of a lease; in the order in which the nodes asked
      woken        (False, key) -> the moment at which a slot of its rate becomes free, if a timer is set for it
    """

    def __init__(self, me: Node) -> None:
        self.me = me
        self.limits: dict[bytes, Limit] = {}
        self.windows: dict[bytes, dict[bytes, Window]] = {}
        self.uses: dict[Key, dict[tuple[bytes, bytes], Use]] = {}
        self.running: dict[Job, Key] = {}
        self.admitted: dict[Job, tuple[Pair, Grant, int]] = {}
        self.grants: dict[Pair, deque[Grant]] = {}
        self.asked: dict[Pair, int] = {}
        self.aside: dict[bytes, dict[Pair, None]] = {}
        self.demands: dict[bytes, tuple[int, int]] = {}
        self.idle: dict[Pair, int] = {}
        self.to_ask: dict[Pair, tuple[int, int]] = {}
        self.told_rates: dict[Key, int] = {}
        self.told_uses: dict[Key, None] = {}
        self.settled: dict[int, int] = {}
        self.freed: dict[tuple[bool, Key], None] = {}
        self.coordinator: Node | None = None
        self.ready_ms = 0
        self.followers: dict[Node, None] = {}
        self.share = (1, 1)
        self.given: dict[int, Grant] = {}
        self.number = 0
        self.reserved: dict[tuple[bool, Key], int] = {}
        self.waits: dict[tuple[bool, Key], dict[tuple[Node, Pair], tuple[int, int]]] = {}
        self.woken: dict[tuple[bool, Key], int] = {}

    @property
    def is_due(self) -> bool:
        """Whether there is work for the end of the turn."""
        return bool(self.to_ask or self.told_rates or self.told_uses or self.settled or self.freed)

    # -- values -----------------------------------------------------------------------------------------------------

    def pair_of(self, job: Job) -> Pair:
        """Return a job's queue, and the values under which the job counts."""
        name = job.terms.queue
        limit = self.limits[name]
        rate = _value_of(job, limit.rate_by) if limit.rate else None
        running = _value_of(job, limit.running_by) if limit.running and job.terms.retry_ms else None
        return name, rate, running

    def window(self, name: bytes, value: bytes) -> Window:
        """Return the window of a value. Create it if it is missing."""
        windows = self.windows.setdefault(name, {})
        found = windows.get(value)
        if found is None:
            found = windows[value] = Window()
        return found

    # -- room -------------------------------------------------------------------------------------------------------

    def room(self, pair: Pair, now_ms: int) -> int:
        """Return how many slots the coordinator may give out for a pair."""
        name, rate, running = pair
        limit = self.limits.get(name)
        if limit is None:
            return UNLIMITED
        room = UNLIMITED
        if rate is not None and limit.rate:
            window = self.windows.get(name, {}).get(rate)
            used = window.used(now_ms, limit.rate_ms) if window is not None else 0
            room = self._part(limit.rate) - used - self.reserved.get((False, (name, rate)), 0)
        if running is not None and limit.running:
            key = (name, running)
            left = self._part(limit.running) - self.used(key, now_ms) - self.reserved.get((True, key), 0)
            room = min(room, left)
        return max(0, room)

    def _part(self, limit: int) -> int:
        side, known = self.share
        return limit if 2 * side > known else limit * side // known

    def used(self, key: Key, now_ms: int) -> int:
        """Return how many leases run under a key, in the whole cluster."""
        uses = self.uses.get(key)
        if uses is None:
            return 0
        total = 0
        for owner, use in list(uses.items()):
            is_live = use.node is self.me or (use.node.is_linked and use.node.run == use.run)
            if is_live or use.until_ms > now_ms:
                total += use.count
            else:
                del uses[owner]
        if not uses:
            del self.uses[key]
        return total

    def rate_used(self, name: bytes, now_ms: int) -> int:
        """Return how many deliveries of a queue count against its `rate` now, over all values."""
        limit = self.limits.get(name)
        if limit is None:
            return 0
        return sum([window.used(now_ms, limit.rate_ms) for window in self.windows.get(name, {}).values()])

    def reserve(self, pair: Pair, count: int) -> None:
        """Count slots that were given out and are not used yet. With a negative count, they were used or given back."""
        name, rate, running = pair
        for is_running, value in ((False, rate), (True, running)):
            if value is not None:
                slot = (is_running, (name, value))
                left = self.reserved.get(slot, 0) + count
                if left > 0:
                    self.reserved[slot] = left
                else:
                    self.reserved.pop(slot, None)
                if count < 0:
                    self.freed[slot] = None

    # -- jobs -------------------------------------------------------------------------------------------------------

    def note_demand(self, queues: list[Queue], count: int, now_ms: int) -> None:
        """Note how many jobs of these queues a client asks for. It may get fewer, because slots are missing."""
        for queue in queues:
            if queue.name in self.limits:
                self.demands[queue.name] = (count, now_ms)

    def wanted(self, queue: Queue, now_ms: int) -> int:
        """Return how many slots of a queue the clients of this node can use."""
        count, at_ms = self.demands.get(queue.name, (1, now_ms))
        return max(1, count if at_ms + DEMAND_MS > now_ms else 1, len(queue.waiting))

    def admit(self, job: Job, now_ms: int, wanted: int) -> bool:
        """Return whether a fetched job may be delivered. If so, it has a slot now. If not, ask for slots."""
        if job in self.admitted:
            return True
        pair = self.pair_of(job)
        if pair[1] is None and pair[2] is None:
            return True
        grant = self._grant(pair, now_ms)
        if grant is None:
            self.idle.pop(pair, None)
            if pair not in self.asked:
                self.asked[pair] = now_ms
                self.to_ask[pair] = (wanted, job.terms.retry_ms)
            return False
        grant.left -= 1
        self.admitted[job] = (pair, grant, now_ms + ADMITTED_MS)
        return True

    def _grant(self, pair: Pair, now_ms: int) -> Grant | None:
        """Return a grant with a slot left. The coordinator gives itself one if there is room."""
        grants = self.grants.get(pair)
        while grants:
            if grants[0].left:
                return grants[0]
            grants.popleft()
        self.grants.pop(pair, None)
        if self.coordinator is not self.me or now_ms < self.ready_ms or self._is_waited_for(pair):
            return None
        if self.room(pair, now_ms) > 0:
            self.reserve(pair, 1)
            return Grant(self.me, 0, pair, 1, now_ms + HELD_MS)
        return None

    def _is_waited_for(self, pair: Pair) -> bool:
        """Return whether nodes wait for slots of one of these values. They are served first."""
        name, rate, running = pair
        waits = self.waits
        return bool(waits) and (
            (rate is not None and (False, (name, rate)) in waits)
            or (running is not None and (True, (name, running)) in waits)
        )

    def delivered(self, job: Job, now_ms: int, lease_ms: int) -> None:
        """Count a delivery, which uses slots."""
        known = self.admitted.pop(job, None)
        if known is not None:
            pair = known[0]
        elif job.terms.queue in self.limits:
            pair = self.pair_of(job)
        else:
            return
        name, rate, running = pair
        limit = self.limits.get(name)
        if rate is not None and limit is not None:
            self.window(name, rate).add(now_ms, 1, limit.rate_ms)
            key = (name, rate)
            self.told_rates[key] = self.told_rates.get(key, 0) + 1
        if running is not None:
            self.begin(job, (name, running), now_ms + lease_ms)
        if known is not None:
            self._settle(known[1])

    def extended(self, job: Job, until_ms: int) -> None:
        """Count a lease that this node extended for its worker. From then on, the node that delivered it need not."""
        name = job.terms.queue
        limit = self.limits.get(name)
        key = self.running.get(job)
        if key is not None:
            use = self.use(key, self.me, self.me.run)
            use.until_ms = max(use.until_ms, until_ms)
            self.told_uses[key] = None
        elif limit is not None and limit.running:
            _, _, running = self.pair_of(job)
            if running is not None:
                self.begin(job, (name, running), until_ms)

    def begin(self, job: Job, key: Key, until_ms: int) -> None:
        """Count a lease that runs."""
        if job in self.running:
            self.ended(job)
        self.running[job] = key
        use = self.use(key, self.me, self.me.run)
        use.count += 1
        use.until_ms = max(use.until_ms, until_ms)
        self.told_uses[key] = None

    def use(self, key: Key, node: Node, run: bytes) -> Use:
        """Return the slots of a process under a key. Create the entry if it is missing."""
        uses = self.uses.setdefault(key, {})
        owner = (node.id, run)
        found = uses.get(owner)
        if found is None:
            found = uses[owner] = Use(node, run)
        return found

    def ended(self, job: Job) -> None:
        """Note that a job's lease, if it had one, is over. Its slot is free."""
        key = self.running.pop(job, None)
        if key is None:
            return
        uses = self.uses.get(key)
        use = uses.get((self.me.id, self.me.run)) if uses is not None else None
        if uses is not None and use is not None:
            use.count -= 1
            if use.count <= 0:
                del uses[self.me.id, self.me.run]
                if not uses:
                    del self.uses[key]
        self.told_uses[key] = None
        self.freed[True, key] = None

    def give_back(self, job: Job) -> None:
        """Give back the slot of a job that was not delivered."""
        known = self.admitted.pop(job, None)
        if known is not None:
            self._settle(known[1])

    def _settle(self, grant: Grant) -> None:
        """Note that a slot of a grant was used or given back. It no longer counts as reserved."""
        if grant.node is self.me:
            self.reserve(grant.pair, -1)
        elif grant.node is self.coordinator:  # A former coordinator's number may be that of another grant here.
            self.settled[grant.number] = self.settled.get(grant.number, 0) + 1

    def return_all(self, grant: Grant) -> None:
        """Give back all slots of a grant that are left."""
        for _ in range(grant.left):
            self._settle(grant)
        grant.left = 0

    def expire(self, now_ms: int) -> None:
        """Give back slots that were not used in time."""
        for job in [job for job, known in self.admitted.items() if known[2] <= now_ms]:
            self.give_back(job)
        for pair, grants in list(self.grants.items()):
            while grants and (not grants[0].left or grants[0].until_ms <= now_ms):
                self.return_all(grants.popleft())
            if not grants:
                del self.grants[pair]

    def clear(self) -> None:
        """Forget all slots of this node, because its jobs are gone."""
        for job in list(self.running):
            self.ended(job)
        for job in list(self.admitted):
            self.give_back(job)
        self.aside.clear()
        self.demands.clear()
        self.idle.clear()
        self.asked.clear()
        self.to_ask.clear()


def aside_key(pair: Pair) -> bytes:
    """Return the name under which jobs of a pair are set aside in their queue."""
    _, rate, running = pair
    length = -1 if rate is None else len(rate)
    tail = b"" if running is None else b"=" + running
    return b"%b%d:%b%b" % (ASIDE_PREFIX, length, rate or b"", tail)


def _value_of(job: Job, name: bytes) -> bytes:
    """Return a job's value of a META name. All jobs without the name share one value."""
    if name:
        meta = job.meta
        for at in range(0, len(meta), 2):
            if meta[at] == name:
                return b"=" + meta[at + 1]
    return NO_VALUE
