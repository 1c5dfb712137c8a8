"""Movers: operators who promote, reschedule, move, redrive and purge jobs, in any weather (spec MV1 to MV8).

A *mover* promotes, reschedules and moves any job, and moves jobs between the queues of all clients. It purges and
redrives only in two queues of its own, which it fills itself, because the rules about other jobs don't allow for purged
ones. One of these queues is the dead-letter queue of the other. A separate consumer gives up the mover's own jobs.

The oracle counts the commands that may have moved, ended or renewed a job. The audit of events checks that without
faults a job moves at most once per command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.event_format import JOB_STATUSES
from disque_py.simulator.clients.attempts import BACKOFFS, Quitter
from disque_py.simulator.clients.connection import Request, words
from disque_py.simulator.clients.workload import BODIES, EXPECTED_ERRORS, RECONNECT_MS
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle, Promise
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.world import World

# The mover's own queues. The dead letters of the first go to the second.
OWN: Final = (b"m0", b"m1")
EVERY_MS: Final = 150
OUTSTANDING_MAX: Final = 8
# Without faults, a task may begin this much later on the last node.
UNDER_WAY_MS: Final = 5_000
STATUSES: Final = (JOB_STATUSES[0], JOB_STATUSES[1], JOB_STATUSES[-1])
TASKS: Final = (b"QPURGE", b"QMOVE", b"QREDRIVE")


class Mover(Quitter):
    """An operator that changes its own jobs and those of other clients."""

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._all = self.queues
        self.queues = list(OWN)
        self._mine: list[Promise] = []
        self._has_set = False
        self._has_purged = False
        oracle.movable = frozenset((*self._all, *OWN))

    def act(self) -> int:
        """Act as an operator, or as a consumer of its own jobs."""
        if self.rng.random() < 0.4:
            return super().act()
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if line.outstanding < OUTSTANDING_MAX:
            if not self._has_set:
                self._has_set = True
                line.ask([(words("QUEUE", "SET", OWN[0], "dead-letter", OWN[1]), self.nothing, OWN)], self.travel())
            request = self._command()
            line.ask([(request, self._answered, request)], self.travel())
        return 1 + int(self.rng.expovariate(self.load / EVERY_MS))

    def _command(self) -> Request:
        rng = self.rng
        dice = rng.random()
        if dice < 0.35 or not self.oracle.promises:
            return self._addjob()
        if dice < 0.45:
            chosen = [promise.id for promise in rng.choices(self.oracle.promises, k=3) if promise.id]
            return words("PROMOTE", *chosen) if chosen else words("PING")
        if dice < 0.55:
            promise = rng.choice(self.oracle.promises)
            how = rng.choice((("DELAYMS", 300), ("DELAY", 0), ("PRIORITY", rng.randrange(1 << 41)), ("DELAYMS", 2_000)))
            if not promise.id:
                return words("PING")
            promise.is_reordered |= how[0] == "PRIORITY"
            return words("RESCHEDULE", promise.id, *how)
        if dice < 0.57:
            return words("QTASK", "LIST")
        if dice < 0.6:
            return self._movejob()
        return self._task(dice)

    def _movejob(self) -> Request:
        rng = self.rng
        promise = rng.choice(self.oracle.promises)
        # Its own jobs stay in its own queues, because other jobs must not be purged.
        target = rng.choice(OWN if promise in self._mine else self._all)
        if not promise.id:
            return words("PING")
        promise.moves += 1
        return words("MOVEJOB", promise.id, "TO", target)

    def _addjob(self) -> Request:
        rng = self.rng
        queue, retry_s, copies = rng.choice(OWN), rng.choice((1, 1, 2)), rng.choice((1, 2, 2, 3))
        options: list[str | int] = ["RETRY", retry_s, "REPLICATE", copies, "TTL", 3_600]
        options += rng.choice(((), ("ATTEMPTS", 1), ("ATTEMPTS", 2), ("DELAY", 1), ("DELAY", 30)))
        policy = rng.choice(BACKOFFS)
        options += ["BACKOFF", policy] if policy else []
        promise = self.oracle.add(queue, rng.choice(BODIES), retry_s * 1000, 3_600_000, copies, self.world.now_ms)
        promise.asked = self.line.machine if self.line is not None else None
        self._mine.append(promise)
        promise.renewed = promise.moves
        promise.is_limited = "ATTEMPTS" in options
        if self._has_purged:
            self._purged(promise)  # Some nodes may begin their part of the task late.
        return words("ADDJOB", queue, promise.body(), 1_000, *options)

    def _purged(self, promise: Promise) -> None:
        self.oracle.acknowledging(promise, self.world.now_ms)
        promise.cancels += 1

    def _moving(self) -> None:
        """Note that a command that moves jobs is about to be sent. Jobs added a little later may be moved, too."""
        self.oracle.moves_under_way += 1
        self.world.later(UNDER_WAY_MS, self._moved)

    def _moved(self) -> None:
        self.oracle.moves_under_way -= 1

    def _task(self, dice: float) -> Request:
        rng = self.rng
        how = rng.choice(((), (), ("LIMIT", rng.randrange(1, 20)), ("RATE", 200, "LIMIT", 30)))
        ending = ["ASYNC"] if rng.random() < 0.3 else []
        if dice < 0.67:
            self._has_purged = True
            for promise in self._mine:
                self._purged(promise)
            return words("QPURGE", rng.choice(OWN), "STATUS", rng.choice(STATUSES), *ending)
        if dice < 0.8:
            self._moving()
            for promise in self._mine:
                promise.renewed += 1
                promise.moves += 1
            to = ["TO", rng.choice(OWN)] if rng.random() < 0.3 else []
            return words("QREDRIVE", rng.choice(OWN), *to, *how, *ending)
        are_own = rng.random() < 0.5
        source, target = OWN if are_own else (rng.choice(self._all), rng.choice(self._all))
        if source == target:
            return words("PING")
        self._moving()
        for promise in self._mine if are_own else self.oracle.promises:
            promise.moves += 1
        status = ["STATUS", rng.choice(STATUSES)] if rng.random() < 0.3 else []
        return words("QMOVE", source, target, *status, *how, *ending)

    def _answered(self, reply: Any, request: Request) -> None:
        command = request[0]
        if isinstance(reply, Exception):
            is_good = str(reply).startswith(EXPECTED_ERRORS)
        elif command == b"ADDJOB":
            promise = self.oracle.promises[int(request[2].partition(b" ")[0])]
            self.oracle.answered(promise, reply, self.world.now_ms)
            is_good = True
        elif command in TASKS and isinstance(reply, list):
            found = dict(zip(reply[::2], reply[1::2], strict=True))
            missing = found[b"nodes-missing"]
            is_good = found[b"jobs"] >= 0 <= found[b"failed"] and len(set(missing)) == len(missing)
        elif command == b"PROMOTE":
            is_good = 0 <= reply < len(request)
        elif command in (b"RESCHEDULE", b"MOVEJOB"):
            is_good = reply in (0, 1)
        else:
            is_good = True
        if not is_good:
            raise RuleBrokenError("operators are answered", f"{reply!r} for {request!r}")
