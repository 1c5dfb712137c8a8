"""Waiters: clients that wait for the ends of jobs, at any node, and workers that give results. Spec RW1 to RW9.

A waiter adds jobs to a queue that only waiters use, and works on them. It reports its progress, and acknowledges with a
result, some jobs twice. It waits for jobs of all clients, with and without a timeout, for all of them or for any one.
checks/waits.py checks the replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.simulator.checks.waits import QUEUE, Asked, WaitBook
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import BODIES, Actor, Line

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle, Promise
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

EVERY_MS: Final = 60
LOOK_MS: Final = 100
RETRIES_S: Final = (1, 2, 3)
TIMEOUTS_MS: Final = (0, 0, 100, 1_000, 2_500)
# Jobs that were added some time ago have ended, and are soon unknown.
RECENT: Final = 60


class Waiter(Actor):
    """A client that adds jobs, works on them, and waits. All of them share `book`."""

    REFUSALS: ClassVar[tuple[str, ...]] = ("ERR not while node", "CANCELED")
    book: WaitBook

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._work_line: Line | None = None
        self._wait_line: Line | None = None
        self._asked: Asked | None = None
        self._count = 0

    def act(self) -> int:
        """Add a job, fetch one, or wait."""
        rng = self.rng
        dice = rng.random()
        if dice < 0.35:
            self._add()
        elif dice < 0.65:
            self._fetch()
        else:
            self._wait()
        return 1 + int(rng.expovariate(self.load / EVERY_MS))

    def _add(self) -> None:
        rng = self.rng
        line = self.reach()
        if line is None or line.outstanding:
            return
        if rng.random() < 0.2:
            line.hang_up()  # The next one goes to any node.
            return
        retry_s, copies = rng.choice(RETRIES_S), rng.choice((1, 2, 2, 3))
        promise = self.oracle.add(QUEUE, rng.choice(BODIES), retry_s * 1000, 3_600_000, copies, self.world.now_ms)
        promise.asked = line.machine
        options = ("RETRY", retry_s, "REPLICATE", copies, "TTL", 3_600)
        request = words("ADDJOB", QUEUE, promise.body(), rng.choice((0, 300, 2_000)), *options)
        line.ask([(request, self._added, promise)], self.travel())

    def _added(self, reply: Any, promise: Promise) -> None:
        if isinstance(reply, bytes):
            self.oracle.answered(promise, reply, self.world.now_ms)
            if promise.asked is not None:
                promise.asked.check_added(reply, promise.copies)

    # -- work ------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        line = self._work_line = self._line(self._work_line)
        if line is None or line.outstanding:
            return
        if self.rng.random() < 0.1:
            line.hang_up()
            return
        line.since = line.machine.next_event()
        request = words("GETJOB", "TIMEOUT", 200, "COUNT", self.rng.choice((1, 3)), "FROM", QUEUE)
        line.ask([(request, self._got, line)], self.travel())

    def _line(self, line: Line | None) -> Line | None:
        """Return this connection, or one to another node; None if no node answers."""
        if line is not None and line.is_open:
            return line
        machine = self.pick(anywhere=True)
        if machine is None:
            return None
        line = Line(self.world, self)
        self.world.connect(machine, line)
        return line

    def _got(self, reply: Any, line: Line) -> None:
        if not isinstance(reply, list):
            return
        now_ms = self.world.now_ms
        promises = [self.oracle.deliver(entry[0], entry[1], entry[2], now_ms) for entry in reply]
        line.machine.check_delivered(reply, line.since, [])
        for promise in promises:
            self.world.later(1 + int(self.rng.expovariate(1 / 50)), self._finish, promise, line.machine)

    def _finish(self, promise: Promise, machine: Machine) -> None:
        """Acknowledge a job with a result, report progress, or leave the job."""
        rng = self.rng
        line = self._work_line = self._line(self._work_line)
        if self.is_over or line is None:
            return
        dice = rng.random()
        if dice < 0.1:
            return
        if dice < 0.3:
            line.ask([(words("PROGRESS", promise.id, rng.randrange(101), "some"), self.nothing, "PROGRESS")], 1)
            self.world.later(1 + int(rng.expovariate(1 / 100)), self._finish, promise, machine)
            return
        self._acknowledge(promise, line)
        other = self.line
        if dice < 0.5 and other is not None and other.is_open:
            self._acknowledge(promise, other)  # Again, with another result, perhaps at another node.

    def _acknowledge(self, promise: Promise, line: Line) -> None:
        self._count += 1
        result = b"%d of %d for %d" % (self._count, self.number, promise.number)
        self.book.finishing(promise.id, result)
        self.oracle.acknowledging(promise, self.world.now_ms, has_result=True)
        counts = not line.broker.is_leaving and bool(line.broker.cluster.linked)
        request = words("ACKJOB", promise.id, "RESULT", result)
        line.ask([(request, self._acked, (promise, line, counts))], self.travel())

    def _acked(self, reply: Any, about: tuple[Promise, Line, bool]) -> None:
        promise, line, counts = about
        if isinstance(reply, int):
            line.machine.check_acked([promise.id])
            if counts:
                self.oracle.acknowledged(promise, self.world.now_ms, line.machine)

    # -- waits -----------------------------------------------------------------------------------------

    def _wait(self) -> None:
        rng = self.rng
        line = self._wait_line = self._line(self._wait_line)
        if line is None:
            return
        line.is_patient = True
        if line.outstanding:
            if rng.random() < 0.05:
                line.hang_up()
            return
        if rng.random() < 0.2:
            line.hang_up()  # The next one goes to any node.
            return
        promises = [promise for promise in self.oracle.promises[-RECENT:] if promise.id]
        if not promises:
            return
        some = rng.sample(promises, min(len(promises), rng.choice((1, 1, 2, 4))))
        ids = list(dict.fromkeys(promise.id for promise in some))
        timeout_ms = rng.choice(TIMEOUTS_MS)
        if not all(promise.retry_ms for promise in some):
            timeout_ms = max(timeout_ms, 100)  # A job that is delivered once and never acknowledged ends with its TTL.
        asked = Asked(line.machine, ids, timeout_ms, is_any=rng.random() < 0.3)
        self._asked = asked
        line.ask([(asked.request(), self._told, asked)], self.travel())

    def _told(self, reply: Any, asked: Asked) -> None:
        if self._asked is asked:
            self._asked = None
        self.book.answered(asked, reply)

    def begin(self) -> None:
        """Start to act, and to check regularly."""
        super().begin()
        self.world.later(LOOK_MS, self._look)

    def _look(self) -> None:
        """Check that the current wait should not be over yet."""
        line = self._wait_line
        if self._asked is not None and line is not None and line.is_open and line.outstanding:
            self.book.check_waiting(self._asked)
        self.world.later(LOOK_MS, self._look)
