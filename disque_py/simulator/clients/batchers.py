"""Batchers: producers that add jobs to batches, close these, and ask for their counts. Spec BT1 to BT6.

All batchers add to the same few batches, at any node. One of them closes a batch, and repeats that at other nodes until
it gets a reply. checks/batches.py checks the replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.simulator.checks.batches import CALLED, LOOK_MS, BatchBook
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import BODIES, RECONNECT_MS, Actor, Line
from disque_py.simulator.oracle import Promise

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.world import World

CLOSE_AGAIN_MS: Final = 400
EVERY_MS: Final = 150
OPEN_MAX: Final = 2
OUTSTANDING_MAX: Final = 10
RETRIES_S: Final = (1, 1, 2, 3)


class Batcher(Actor):
    """One producer; `book` is shared by all."""

    REFUSALS: ClassVar[tuple[str, ...]] = ("CLOSED", "ERR no such batch", "ERR not while node")
    book: BatchBook

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._side: Line | None = None
        self._closing: dict[bytes, None] = {}
        self._count = 0

    def begin(self) -> None:
        """Start to act, and to check regularly."""
        super().begin()
        self.world.later(LOOK_MS, self._look)
        self.world.later(CLOSE_AGAIN_MS, self._close_again)

    def end(self) -> None:
        """Close all batches, so that they can end."""
        super().end()
        for name in self.book.open_names():
            self._close(name)

    def _look(self) -> None:
        self.book.look()
        self.world.later(LOOK_MS, self._look)

    def act(self) -> int:
        """Add some jobs, close a batch, or ask for one."""
        rng = self.rng
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if rng.random() < 0.1:
            line.hang_up()  # The next request may go to another node.
            return RECONNECT_MS
        if line.outstanding < OUTSTANDING_MAX:
            self._act(line)
        return 1 + int(rng.expovariate(self.load / EVERY_MS))

    def _act(self, line: Line) -> None:
        rng, now_ms = self.rng, self.world.now_ms
        names = self.book.open_names()
        dice = rng.random()
        if not names or (dice < 0.1 and len(names) < OPEN_MAX):
            self._count += 1
            self._add(line, b"batch %d of %d" % (self._count, self.number))
        elif dice < 0.7:
            is_open = rng.random() < 0.9  # A closed batch refuses jobs.
            name = rng.choice(names if is_open else list(self.book.by_name)[-4:])
            for _ in range(rng.choice((1, 1, 2, 4))):
                self._add(line, name)
        elif dice < 0.8:
            self._close(rng.choice(names))
        else:
            name = rng.choice(list(self.book.by_name)[-10:])
            request: list[bytes | str | int] = ["BATCH", "SHOW", name]
            if dice > 0.92:
                request = ["BATCH", "WAIT", name, "TIMEOUT", rng.choice((100, 1_000, 2_500))]
            line.ask([(words(*request), self._told, (name, now_ms))], self.travel())

    def _add(self, line: Line, name: bytes) -> None:
        rng = self.rng
        retry_s, copies = rng.choice(RETRIES_S), rng.choice((1, 2, 2, 3))
        queue = rng.choice(self.queues)
        options: list[str | int | bytes] = ["RETRY", retry_s, "REPLICATE", copies, "TTL", 3_600, "BATCH", name]
        options += ["DELAY", 1] if rng.random() < 0.1 else []
        promise = self.oracle.add(queue, rng.choice(BODIES), retry_s * 1000, 3_600_000, copies, self.world.now_ms)
        promise.asked = line.machine
        self.book.adding(name, promise)
        request = words("ADDJOB", queue, promise.body(), rng.choice((0, 300, 2_000)), *options)
        line.ask([(request, self._added, promise)], self.travel())

    def _added(self, reply: Any, promise: Promise) -> None:
        if isinstance(reply, Exception):
            self.book.refused(promise)
        elif isinstance(reply, bytes):
            self.oracle.answered(promise, reply, self.world.now_ms)
            if promise.asked is not None:
                promise.asked.check_added(reply, promise.copies)
            self.book.added(promise)

    def _told(self, reply: Any, about: tuple[bytes, int]) -> None:
        name, sent_ms = about
        self.book.told(name, reply, sent_ms)

    # -- the end of a batch ----------------------------------------------------------------------------

    def _close(self, name: bytes) -> None:
        """Close a batch. `_close_again` repeats that until there is a reply."""
        self._closing[name] = None
        self.book.closing(name)
        line = self._side
        if line is None or not line.is_open:
            machine = self.pick(anywhere=True)
            if machine is None:
                return
            line = self._side = Line(self.world, self)
            self.world.connect(machine, line)
        request = words("BATCH", "CLOSE", name, "CALLBACK", CALLED, b"callback of %b" % name)
        line.ask([(request, self._closed, name)], self.travel())

    def _closed(self, reply: Any, name: bytes) -> None:
        if reply == b"OK":
            self._closing.pop(name, None)
            self.book.closed(name)

    def _close_again(self) -> None:
        if self._side is not None and self._side.is_open and self._closing:
            if self._side.outstanding:
                self.world.later(CLOSE_AGAIN_MS, self._close_again)
                return
            self._side.hang_up()  # The node doesn't know the batch, or doesn't answer. Try any other node.
        for name in list(self._closing):
            if any(promise.answered_ms for promise in self.book.by_name[name].jobs):
                self._close(name)
        self.world.later(CLOSE_AGAIN_MS, self._close_again)
