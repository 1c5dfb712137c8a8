"""The rate limiter backend of Dramatiq: counters under locks.

Dramatiq's limiters, barriers and groups have named counters. All names that are equal up to an `@` form one *board*: a
job whose body has their values and expiry times. To change a board, a program takes its lock, reads the newest job,
adds the next job and acknowledges the old one. The priority of a job is minus the fence of the lock. Fences only grow,
so the newest job is first even if a program died in between.

A lock needs voters (docs/locks.md). On the side of a partition without their majority, counters fail with
NoQuorumError, because a limit must apply to the whole cluster. Waiting for a barrier uses a slot (result_slots.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from uuid import uuid4

from dramatiq.rate_limits.backend import RateLimiterBackend

from disque_py.client import Disque, LockHeldError
from disque_py.client.processes import ProcessClient
from disque_py.integrations.patience import persist
from disque_py.integrations.result_slots import ResultSlots

# The lease of a lock, which is held only for three commands. If the program dies, the lock is free after this time.
LOCK_MS: Final = 10_000
# A board is written within this time after its lock was taken, or not at all.
WRITE_MS: Final = 5_000
# The time that a limiter waits for others that use the same board.
WAIT_MS: Final = 30_000

# Values and expiry times (Unix milliseconds), by name.
Board = dict[str, list[int]]


class DisqueRateLimiterBackend(RateLimiterBackend):
    """A rate limiter backend of Dramatiq.

    url         URL of the nodes; by default disque://127.0.0.1:7711
    namespace   prefix of the names of queues and locks, "dramatiq-limits" by default
    """

    def __init__(self, *, url: str = "disque://127.0.0.1:7711", namespace: str = "dramatiq-limits") -> None:
        self._client = ProcessClient(url, "dramatiq-limits")
        self._namespace = namespace

    def close(self) -> None:
        """Close the connections of this process."""
        self._client.close()

    def add(self, key: str, value: int, ttl: int) -> bool:
        """Set a counter that does not exist → whether it was set. `ttl` is in milliseconds in all methods."""
        with self._board(key) as board:
            if key in board.values:
                return False
            board.set(key, value, ttl)
            return True

    def incr(self, key: str, amount: int, maximum: int, ttl: int) -> bool:
        """Add to a counter, unless the result would exceed `maximum` → whether it was changed."""
        with self._board(key) as board:
            value = board.get(key) + amount
            if value > maximum:
                return False
            board.set(key, value, ttl)
            return True

    def decr(self, key: str, amount: int, minimum: int, ttl: int) -> bool:
        """Subtract from a counter, unless the result would be below `minimum` → whether it was changed."""
        with self._board(key) as board:
            value = board.get(key) - amount
            if value < minimum:
                return False
            board.set(key, value, ttl)
            return True

    def incr_and_sum(self, key: str, keys: Callable[[], Iterable[str]], amount: int, maximum: int, ttl: int) -> bool:
        """Add to a counter, unless the sum of `keys()` would exceed `maximum` → whether it was changed."""
        names = {_board_of(name): name for name in (*keys(), key)}
        with ExitStack() as stack:
            boards = {name: stack.enter_context(self._board(names[name])) for name in sorted(names)}
            board = boards[_board_of(key)]
            total = amount + sum(boards[_board_of(name)].get(name) for name in keys() if _board_of(name) in boards)
            if board.get(key) + amount > maximum or total > maximum:
                return False
            board.set(key, board.get(key) + amount, ttl)
            return True

    def wait(self, key: str, timeout: int | None) -> bool:
        """Wait for an event → whether it came within `timeout` milliseconds; None: for ever."""
        return self._slots().wait(key, None if timeout is None else timeout / 1000) is not None

    def wait_notify(self, key: str, ttl: int) -> None:
        """Wake all programs that wait for an event."""
        self._slots().put(key, b"x", ttl)

    def _slots(self) -> ResultSlots:
        return ResultSlots(self._client(), f"{self._namespace}.events")

    @contextmanager
    def _board(self, key: str) -> Iterator[_Board]:
        client, name = self._client(), f"{self._namespace}.{_board_of(key)}"
        owner = uuid4().hex
        grant = client.acquire_lock(name, owner, LOCK_MS, timeout_ms=WAIT_MS)
        if grant is None:
            raise LockHeldError(f"other programs have held the lock {name} for {WAIT_MS // 1000} s")
        try:
            board = _Board(client, name, grant.fence, time.monotonic() + WRITE_MS / 1000)
            yield board
            board.write()
        finally:
            client.release_lock(name, owner, grant.fence)


def _board_of(key: str) -> str:
    return key.rpartition("@")[0] or key


class _Board:
    """The counters of one board while its lock is held."""

    def __init__(self, client: Disque, queue: str, fence: int, until: float) -> None:
        self._client = client
        self._queue = queue
        self._fence = fence
        self._until = until
        self._old = client.qpeek(queue, 100, cluster=True)
        now_ms = int(1000 * time.time())
        read: dict[str, Any] = json.loads(self._old[0].body) if self._old else {}
        self.values: Board = {name: pair for name, pair in read.items() if pair[1] > now_ms}
        self._is_changed = False

    def get(self, key: str) -> int:
        """Return a counter; 0 if there is none."""
        return self.values[key][0] if key in self.values else 0

    def set(self, key: str, value: int, ttl_ms: int) -> None:
        """Give a counter a value and a time to live."""
        self.values[key] = [value, int(1000 * time.time()) + ttl_ms]
        self._is_changed = True

    def write(self) -> None:
        """Add the changed board and acknowledge older ones. Raises TimeoutError if the lock may have ended."""
        if not self._is_changed:
            return
        if time.monotonic() > self._until:
            raise TimeoutError("the nodes were too slow: the lock may have ended")
        last_ms = max(pair[1] for pair in self.values.values()) - int(1000 * time.time())
        body = json.dumps(self.values)
        # Adding a board twice is harmless, because both jobs have the same content.
        words: dict[str, Any] = {"priority": -self._fence, "ttl": max(1, -(-last_ms // 1000)), "retry_unsafe": True}
        persist(lambda: self._client.add_job(self._queue, body, **words), self._until - time.monotonic())
        if self._old:
            self._client.ack(*self._old)
