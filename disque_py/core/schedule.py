"""Timers of jobs and clients, functions to call later, and long walks.

A timer must cost little to set, less to cancel, and nothing to keep, because most jobs are acknowledged long before
their timers are due. A `Timetable` keeps its items in buckets of GRAIN_MS, in the order in which they came. The buckets
are dicts, because the order of a set differs between runs of one seed. To cancel a timer is one deletion.

Shortly before a bucket is due, its items are spread over buckets of one millisecond, the *front*. So items are late by
a millisecond at most. Items that are cancelled earlier never need a bucket of one millisecond.

Jobs have a horizon: only timers due within HORIZON_MS are in the table. A sweep over all jobs every SWEEP_MS finds the
other timers when they come near, such as a TTL of a day or a RETRY of five minutes (timers.py). So ten million jobs
that wait for a day cost one look each every hundred seconds, and no memory. A job that is done before its RETRY never
has an entry.

A *walk* is work that is too long for a turn, and for which no client of this node waits. Examples are to fill an index,
to free memory, or to count for another node. All walks of a node alternate, and together they do WALKED_PER_MS parts
per millisecond. So more walks take longer, and do not make turns longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from disque_py.core.job import Job

GRAIN_SHIFT: Final = 4
GRAIN_MS: Final = 1 << GRAIN_SHIFT
# A bucket that begins within this span is spread over milliseconds. The broker looks more often (HOUSEKEEPING_MS).
FRONT_MS: Final = 256
# Shorter than the default RETRY of 300 s with its leads, so a job that is acknowledged earlier needs no timer at all.
HORIZON_MS: Final = 240_000
SWEEP_MS: Final = 100_000
LINE_GRAIN_MS: Final = 1 << 5
# Parts of walks per millisecond. A part is about half a millisecond of work.
WALKED_PER_MS: Final = 2


class Timed(Protocol):
    """An item of a timetable. It is hashable by identity, and has the moment of its entry (0: no entry)."""

    awake_at_ms: int


T = TypeVar("T", bound=Timed)


class Timetable(Generic[T]):
    """Items by the moment when they are due. They are never early, and at most a millisecond late.

    coarse_ms   how far the clock's readings may be behind the true time. A moment is computed from one reading and
                compared with another, so items wait this much longer (spec T6)
    """

    __slots__ = ("_buckets", "_front", "_front_end_ms", "_keys", "_known", "_moments", "_visits", "coarse_ms", "now_ms")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[T, None]] = {}
        self._keys: list[int] = []
        self._known: set[int] = set()  # The members of _keys, each once.
        # The items that are due before _front_end_ms, by the millisecond, and a heap of these moments.
        self._front: dict[int, dict[T, None]] = {}
        self._moments: list[int] = []
        self._front_end_ms = 0
        self._visits: Iterator[T] = iter(())
        self.now_ms = 0
        self.coarse_ms = 0

    def set(self, item: T, at_ms: int) -> None:
        """Set or replace the entry of an item, which is due at `at_ms`. With 0, remove the entry."""
        awake_at_ms = item.awake_at_ms
        if awake_at_ms:
            if awake_at_ms == at_ms:
                return
            self._take_out(item, awake_at_ms)
        if not at_ms:
            item.awake_at_ms = 0
            return
        if at_ms <= self.now_ms:
            at_ms = self.now_ms + 1  # An overdue item is due in the next moment, never in one that is being visited.
        item.awake_at_ms = at_ms
        self._put(item, at_ms)

    def _put(self, item: T, at_ms: int) -> None:
        if at_ms < self._front_end_ms:
            self._put_in_front(item, at_ms)
            return
        key = at_ms >> GRAIN_SHIFT
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = {item: None}
            if key not in self._known:
                self._known.add(key)
                heappush(self._keys, key)
        else:
            bucket[item] = None

    def _put_in_front(self, item: T, at_ms: int) -> None:
        bucket = self._front.get(at_ms)
        if bucket is None:
            self._front[at_ms] = {item: None}
            heappush(self._moments, at_ms)
        else:
            bucket[item] = None

    def cancel(self, item: T) -> None:
        """Remove the item's entry."""
        awake_at_ms = item.awake_at_ms
        if awake_at_ms:
            self._take_out(item, awake_at_ms)
            item.awake_at_ms = 0

    def _take_out(self, item: T, awake_at_ms: int) -> None:
        if awake_at_ms < self._front_end_ms:
            del self._front[awake_at_ms][item]  # The moment stays in its heap until it is over.
            return
        key = awake_at_ms >> GRAIN_SHIFT
        bucket = self._buckets[key]
        del bucket[item]
        if not bucket:
            del self._buckets[key]  # A dict does not shrink, so a bucket that is used again is made again.

    def due(self, count_max: int) -> Iterator[T]:
        """Yield up to `count_max` due items, earliest first. Each one is removed from the table before it is yielded.

        The next call continues where this one stopped.
        """
        for _ in range(count_max):
            item = next(self._visits, None)
            if item is None:
                self._visits = self._visit_due()
                item = next(self._visits, None)
                if item is None:
                    return
            yield item

    def _visit_due(self) -> Iterator[T]:
        moments = self._moments
        while True:
            if not moments and not self._advance(self.now_ms):
                return
            moment = moments[0]
            if moment > self.now_ms - self.coarse_ms:
                return
            bucket = self._front[moment]
            if not bucket:
                heappop(moments)
                del self._front[moment]
                continue
            for item in list(bucket):
                if item in bucket:  # An item that was yielded before it may have cancelled it.
                    del bucket[item]
                    item.awake_at_ms = 0
                    yield item

    def _advance(self, until_ms: int) -> bool:
        """Spread the next bucket over the empty front, if the bucket begins by `until_ms`. Return whether it does."""
        keys = self._keys
        while keys:
            key = keys[0]
            if key << GRAIN_SHIFT > until_ms and key in self._buckets:
                return False
            self._known.discard(heappop(keys))
            bucket = self._buckets.pop(key, None)
            if bucket is not None:
                self._front_end_ms = (key + 1) << GRAIN_SHIFT
                for item in bucket:
                    self._put_in_front(item, item.awake_at_ms)
                return True
        return False

    def next_ms(self) -> int | None:
        """Return when the next item is due; None if there is none. If that is far, the moment may be a little early."""
        moments = self._moments
        while True:
            while moments and not self._front[moments[0]]:
                del self._front[heappop(moments)]
            if moments:
                return moments[0] + self.coarse_ms
            if not self._advance(self.now_ms + FRONT_MS):
                return self._keys[0] << GRAIN_SHIFT if self._keys else None

    def count(self) -> int:
        """Return the number of items that have an entry."""
        return sum(len(bucket) for bucket in [*self._buckets.values(), *self._front.values()])

    def clear(self) -> None:
        """Forget all entries, because their items are gone."""
        self._buckets.clear()
        self._keys.clear()
        self._known.clear()
        self._front.clear()
        self._moments.clear()
        self._visits = iter(())


class Line:
    """Ids of jobs that must be checked `span_ms` after they were added. Nearly always there is nothing to do by then.

    An entry here costs an append. A timer costs several times that, and as much again to cancel. An entry only says
    that the job, if it still exists, may need a check. Entries are never early, and late by up to LINE_GRAIN_MS. They
    do not wake the process.
    """

    __slots__ = ("_last_at_ms", "_last_now_ms", "_parts", "_tail", "span_ms")

    def __init__(self, span_ms: int) -> None:
        self.span_ms = span_ms
        self._parts: deque[tuple[int, list[bytes]]] = deque()
        self._tail: list[bytes] = []
        self._last_at_ms = 0
        self._last_now_ms = -1

    def add(self, job_id: bytes, now_ms: int) -> None:
        """Have this job checked in `span_ms`."""
        if now_ms != self._last_now_ms:
            self._last_now_ms = now_ms
            at_ms = (now_ms + self.span_ms | LINE_GRAIN_MS - 1) + 1
            if at_ms != self._last_at_ms:
                self._last_at_ms = at_ms
                self._tail = []
                self._parts.append((at_ms, self._tail))
        self._tail.append(job_id)

    def due(self, now_ms: int, count_max: int) -> list[bytes]:
        """Return up to `count_max` due ids. The next call returns the rest."""
        found: list[bytes] = []
        parts = self._parts
        while parts and parts[0][0] <= now_ms and len(found) < count_max:
            ids = parts[0][1]
            left = count_max - len(found)
            found += ids[-left:]  # The order within LINE_GRAIN_MS does not matter, and the end is cheap to remove.
            del ids[-left:]
            if not ids:
                parts.popleft()
        if not parts:
            self._forget_last()
        return found

    def ids(self) -> Iterator[bytes]:
        """Yield all ids, whether they are due or not."""
        for _, ids in self._parts:
            yield from ids

    def __bool__(self) -> bool:
        return bool(self._parts)

    def clear(self) -> None:
        """Forget all entries."""
        self._parts.clear()
        self._forget_last()

    def _forget_last(self) -> None:
        self._last_at_ms = 0
        self._last_now_ms = -1


class Schedule(Timetable[Job]):
    """The timetable of jobs with its horizon, tasks to call at a moment, and walks that are done in parts."""

    __slots__ = ("_sequence", "_tasks", "_walks", "horizon_ms")

    def __init__(self) -> None:
        super().__init__()
        self._tasks: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._walks: deque[Iterator[None]] = deque()
        self.horizon_ms = HORIZON_MS

    def begin(self, now_ms: int) -> None:
        """Move the horizon, because time has moved. The sweep handles timers beyond it."""
        self.now_ms = now_ms
        self.horizon_ms = now_ms + HORIZON_MS

    def set(self, item: Job, at_ms: int) -> None:
        """Set or replace the job's timer, which is due at `at_ms`. With 0 or a moment beyond the horizon, remove it."""
        awake_at_ms = item.awake_at_ms
        if awake_at_ms:
            if awake_at_ms == at_ms:
                return
            self._take_out(item, awake_at_ms)
        if not at_ms or at_ms > self.horizon_ms:
            item.awake_at_ms = 0
            return
        if at_ms <= self.now_ms:
            at_ms = self.now_ms + 1
        item.awake_at_ms = at_ms
        self._put(item, at_ms)

    def call_at(self, at_ms: int, task: Callable[[], None]) -> None:
        """Call `task` at `at_ms`. This can't be cancelled, so the task itself must check whether it still matters."""
        self._sequence += 1
        heappush(self._tasks, (at_ms, self._sequence, task))

    def walk(self, parts: Iterator[None]) -> None:
        """Do the parts of this walk from the next millisecond on, alternating with other walks. It must not raise."""
        if not self._walks:
            self.call_at(self.now_ms + 1, self._go_on)
        self._walks.append(parts)

    def _go_on(self) -> None:
        walks = self._walks
        for _ in range(min(WALKED_PER_MS, len(walks))):
            parts = walks[0]
            is_over = next(parts, walks) is walks
            walks.popleft()  # Only now, because `walk` must not find an empty line when this part starts another walk.
            if not is_over:
                walks.append(parts)
        if walks:
            self.call_at(self.now_ms + 1, self._go_on)

    @property
    def task_count(self) -> int:
        """The number of tasks that wait for their moment."""
        return len(self._tasks)

    def due_tasks(self, count_max: int) -> Iterator[Callable[[], None]]:
        """Yield up to `count_max` tasks that are due."""
        tasks = self._tasks
        while count_max and tasks and tasks[0][0] <= self.now_ms:
            count_max -= 1
            yield heappop(tasks)[2]

    def next_ms(self) -> int | None:
        """Return when the next job or task is due, or None if there is none."""
        at_ms = super().next_ms()
        if self._tasks and (at_ms is None or self._tasks[0][0] < at_ms):
            return self._tasks[0][0]
        return at_ms
