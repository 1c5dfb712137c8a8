"""Clients of attempts: producers that limit the deliveries of their jobs, and consumers that give up on jobs.

A *limited producer* adds jobs with ATTEMPTS and BACKOFF. A *quitter* is a consumer that uses the number of the
delivery. It acknowledges with ATTEMPT, gives jobs back with a delay or a reason, gives up with FINAL, and cancels at
any node. It sends some of these commands twice. The oracle compares deliveries with ATTEMPTS (oracle.py). The audit of
events counts the ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.clients.connection import Request, words
from disque_py.simulator.clients.workload import BODIES, Consumer, Line, Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.simulator.oracle import Promise
    from disque_py.simulator.world.machine import Machine

LIMITS: Final = (1, 1, 2, 3)
RETRIES_S: Final = (1, 1, 2, 3)
BACKOFFS: Final = ("", "", "fixed:300:300", "linear:100:900", "exponential:50:2000:50")
# Indexes in an entry of GETJOB WITHLEASE: queue, id, body, "lease-ms", ms, "attempt", number.
ATTEMPT_AT: Final = 6


class LimitedProducer(Producer):
    """A producer of jobs that may be delivered only a few times."""

    def _addjob(self, machine: Machine) -> tuple[Request, Callable[[Any, Any], None], Any]:
        rng = self.rng
        retry_s, copies, limit = rng.choice(RETRIES_S), rng.choice((1, 2, 2, 3)), rng.choice(LIMITS)
        queue, policy = rng.choice(self.queues), rng.choice(BACKOFFS)
        options: list[str | int] = ["RETRYMS", retry_s * 1000, "REPLICATE", copies, "ATTEMPTS", limit, "TTL", 3_600]
        options += ["BACKOFF", policy] if policy else []
        promise = self.oracle.add(queue, rng.choice(BODIES), retry_s * 1000, 3_600_000, copies, self.world.now_ms)
        promise.asked = machine
        promise.limit = limit
        promise.is_limited = True
        return words("ADDJOB", queue, promise.body(), 1_000, *options), self._answered, promise


class Quitter(Consumer):
    """A consumer that gives up on many of its jobs, in all possible ways."""

    def act(self) -> int:
        """Fetch, if the last fetch is over."""
        line = self.free_line()
        if isinstance(line, int):
            return line
        wanted = self.some_queues(4)
        request = words("GETJOB", "TIMEOUT", 300, "COUNT", self.rng.choice((1, 3, 10)), "WITHLEASE", "FROM", *wanted)
        line.since = line.machine.next_event()
        line.ask([(request, self._got, line)], self.travel())
        return 1 + int(self.rng.expovariate(self.load / 20))

    def _got(self, reply: Any, line: Line) -> None:
        if not isinstance(reply, list):
            return
        oracle, now_ms = self.oracle, self.world.now_ms
        got = [(oracle.deliver(entry[0], entry[1], entry[2], now_ms), entry[ATTEMPT_AT]) for entry in reply]
        line.machine.check_delivered(reply, line.since, [])
        for promise, attempt in got:
            self.world.later(1 + int(self.rng.expovariate(1 / 30)), self._decide, promise, attempt, line.machine)

    def _decide(self, promise: Promise, attempt: int, machine: Machine) -> None:
        """Decide about one job."""
        if self.is_over or not promise.retry_ms:
            return
        rng = self.rng
        dice = rng.random()
        where = None if rng.random() < 0.2 else machine
        if dice < 0.3:
            self._end(promise, where, "ACKJOB", promise.id, "ATTEMPT", attempt)
        elif dice < 0.4:
            self._end(promise, None, "CANCELJOB", promise.id)
        elif dice < 0.9:
            how = rng.choice((("REASON", "broken"), ("DELAYMS", 400), ("FINAL", "REASON", "no use"), ()))
            for _ in range(rng.choice((1, 1, 2))):
                promise.elsewhere += where is None
                self._free(promise, where, "NACK", promise.id, *how, "ATTEMPT", attempt)
        elif dice < 0.95:
            self._free(promise, where, "WORKING", promise.id, "LEASEMS", 1_500, "ATTEMPT", attempt)

    def _free(self, promise: Promise, machine: Machine | None, *command: str | bytes | int) -> None:
        line = self._hands.line_to(machine)
        if line is not None:
            self.oracle.freeing(promise)
            promise.nacks += command[0] == "NACK"
            line.ask([(words(*command), self._hands.said, promise)], self.travel())

    def _end(self, promise: Promise, machine: Machine | None, *command: str | bytes | int) -> None:
        line = self._hands.line_to(machine)
        if line is None:
            return
        self.oracle.acknowledging(promise, self.world.now_ms)
        if command[0] == "CANCELJOB":
            promise.cancels += 1
        line.ask([(words(*command), self._ended, promise)], self.travel())

    def _ended(self, reply: Any, promise: Promise) -> None:
        # The reply 0 proves nothing: it was an older delivery, or the job is over.
        if reply == 1:
            self.oracle.acknowledged(promise, self.world.now_ms)
