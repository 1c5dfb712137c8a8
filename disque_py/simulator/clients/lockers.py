"""Lockers, which own, extend and release locks, and the operator who sets the voters. Spec CL1 to CL10.

A *locker* asks any node for one of a few locks. If no reply comes, it repeats the request at another node, with the
same owner name. It extends some locks at other nodes, lets some run out, and releases others, some as done.
checks/locks.py checks the replies.

The *keeper of voters* makes the first list, sets a short `claim-lease-max`, and adds and removes voters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.core import electing
from disque_py.simulator.checks.locks import LockBook
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import LEASE_TOO_LONG, RECONNECT_MS, Actor, Line
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import DRIFT

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

LOCKS: Final = ("l0", "l0", "l1", "l1", "l2", "l3", "l4")
LEASES_MS: Final = (50, 300, 1_000, 3_000, 8_000)
TIMEOUTS_MS: Final = (0, 0, 200, 2_000)
LIMITS: Final = (0, 0, 0, 2, 5)
DONE_MS: Final = (100, 1_000)
EVERY_MS: Final = 120
ANEW_SHARE: Final = 0.4
# The time after which an owner without a reply asks again, often at another node, during the first request.
PATIENCES_MS: Final = (50, 300, 1_200, 3_500)
LEASE_MAX_S: Final = (3, 3, 5, 8)
DRIFT_LEASE_MAX_S: Final = 2
CHANGE_EVERY_MS: Final = 1_500
# A change of voters has so many ballots of two votes each, then waits for its list to take effect. Plus a second.
SLOWEST_MS: Final = electing.BALLOTS_MAX * (2 * electing.VOTE_MS + electing.PAUSE_MS[1]) + electing.EFFECT_MS + 1_000
# A node's id, and the end of an error about it.
IS_VOTER: Final = tuple([f"ERR {digit}" for digit in "0123456789abcdef"])
VOTERS: Final = (1, 2, 3, 3, 3, 4, 5)


class Locker(Actor):
    """One owner. All of them share `book`."""

    REFUSALS: ClassVar[tuple[str, ...]] = (
        "NOQUORUM",
        "LOCKDONE",
        "LOCKSPENT",
        "FENCED",
        LEASE_TOO_LONG,
    )

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self.book = LockBook()
        self.owner = f"locker {client.number}"
        self._lives = 0
        self._busy_until_ms = 0
        self._fence = 0
        self._lock = ""

    def act(self) -> int:
        """Acquire a lock, or go on with the lock that this owner has."""
        if self.world.now_ms < self._busy_until_ms:
            return 20
        if self.line is not None and self.line.outstanding:
            self.line = None  # The next request may go to another node while this one is under way.
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if self.rng.random() < 0.3 and line.is_open:
            line.hang_up()  # The next request may go to another node.
            line = self.reach()
            if line is None:
                return RECONNECT_MS
        self._busy_until_ms = self.world.now_ms + self.rng.choice(PATIENCES_MS)
        if self._fence and self.rng.random() < 0.7:
            self._go_on(line)
        else:
            self._acquire(line)
        return 1 + int(self.rng.expovariate(1 / EVERY_MS))

    def on_lost(self, line: Line) -> None:
        """Ask another node soon."""
        self._busy_until_ms = self.world.now_ms + self.rng.randrange(50)

    def _acquire(self, line: Line) -> None:
        rng = self.rng
        if not self._fence or rng.random() < 0.5:
            self._lock, self._fence = rng.choice(LOCKS), 0
            if rng.random() < ANEW_SHARE:  # A new process of the worker has another name.
                self._lives += 1
                self.owner = f"locker {self.number}.{self._lives}"
        lease_ms, limit = rng.choice(LEASES_MS), rng.choice(LIMITS)
        options: list[str | int] = ["ATTEMPTS", limit] if limit else []
        timeout_ms = rng.choice(TIMEOUTS_MS)
        options += ["TIMEOUT", timeout_ms] if timeout_ms else []
        request = words("LOCK", "ACQUIRE", self._lock, self.owner, lease_ms, *options)
        about = (self._lock, self.owner, self.world.now_ms, lease_ms, limit)
        self.book.asking(self._lock, self.owner)
        line.ask([(request, self._acquired, about)], self.travel())

    def _acquired(self, reply: Any, about: tuple[str, str, int, int, int]) -> None:
        self._busy_until_ms = 0
        lock, owner, sent_ms, lease_ms, limit = about
        if reply is None or isinstance(reply, Exception):
            if (lock, owner) == (self._lock, self.owner):
                self._fence = 0
            return
        if not isinstance(reply, list):
            raise RuleBrokenError("no odd errors", f"{reply!r} for LOCK ACQUIRE")
        fence, attempt, _ = reply
        self.book.counted(lock, owner, attempt, limit)
        self.book.spent(lock, fence, attempt, sent_ms, self.world.now_ms)
        self.book.acquired(lock, owner, fence, sent_ms, self.world.now_ms, lease_ms)
        if (lock, owner) == (self._lock, self.owner):
            self._fence = fence

    def _go_on(self, line: Line) -> None:
        """Extend the lock, or release it."""
        rng = self.rng
        lock, fence = self._lock, self._fence
        if rng.random() < 0.6:
            about = (lock, self.owner, self.world.now_ms, rng.choice(LEASES_MS), fence)
            request = words("LOCK", "EXTEND", lock, self.owner, fence, about[3])
            line.ask([(request, self._extended, about)], self.travel())
            return
        done_ms = rng.choice(DONE_MS) if rng.random() < 0.2 else 0
        options = ("DONE", done_ms) if done_ms else ()
        self.book.releasing(lock, self.owner, fence, now_ms=self.world.now_ms, is_done=done_ms > 0)
        self._fence = 0
        request = words("LOCK", "RELEASE", lock, self.owner, fence, *options)
        line.ask([(request, self._released, (lock, done_ms, self.world.now_ms))], self.travel())

    def _extended(self, reply: Any, about: tuple[str, str, int, int, int]) -> None:
        self._busy_until_ms = 0
        lock, owner, sent_ms, lease_ms, fence = about
        if isinstance(reply, int):
            self.book.extended(lock, owner, fence, sent_ms, self.world.now_ms, lease_ms)
        elif not isinstance(reply, Exception):
            raise RuleBrokenError("no odd errors", f"{reply!r} for LOCK EXTEND")
        elif (lock, owner) == (self._lock, self.owner):
            self._fence = 0

    def _released(self, reply: Any, about: tuple[str, int, int]) -> None:
        self._busy_until_ms = 0
        lock, done_ms, sent_ms = about
        if reply == 1 and done_ms:
            self.book.ended(lock, sent_ms, self.world.now_ms, done_ms)
        elif not isinstance(reply, int) and not isinstance(reply, Exception):
            raise RuleBrokenError("no odd errors", f"{reply!r} for LOCK RELEASE")


class VoterKeeper(Actor):
    """The operator of the voters.

    The first list is the same in every INIT, because an INIT without a reply may have succeeded. Two first lists would
    be a conflict (spec CL4, CL7).
    """

    REFUSALS: ClassVar[tuple[str, ...]] = (
        "NOQUORUM",
        "BUSY",
        "ERR there are voters",
        "ERR Unknown node",
        "ERR the last voter",
        *IS_VOTER,
    )

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._count = min(self.rng.choice(VOTERS), plan.nodes)
        self._has_voters = False
        self._first: list[bytes] = []
        self._keeps_leases_short = DRIFT in plan.weather

    def act(self) -> int:
        """Send the next command, to any node."""
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        line.slowest_ms = SLOWEST_MS
        if line.outstanding:
            return 50
        if self._keeps_leases_short and self._has_short_leases():
            return CHANGE_EVERY_MS
        line.ask([(words("CLUSTER", "VOTERS", *self._words()), self._answered, None)], self.travel())
        return 1 + int(self.rng.expovariate(1 / CHANGE_EVERY_MS)) if self._has_voters else 100

    def _words(self) -> list[str | bytes | int]:
        rng = self.rng
        known = [self._name(machine) for machine in self.world.machines.values() if machine.is_up]
        if not self._has_voters:
            self._first = self._first or known[: self._count]
            return ["INIT", *self._first]
        if self._keeps_leases_short:
            return ["LEASEMAX", DRIFT_LEASE_MAX_S]
        dice = rng.random()
        if dice < 0.3 or not known:
            return ["LEASEMAX", rng.choice(LEASE_MAX_S)]
        return ["ADD" if dice < 0.65 else "REMOVE", rng.choice(known)]

    def _has_short_leases(self) -> bool:
        lists = [machine.broker.claims.memory.list for machine in self.world.machines.values() if machine.is_up]
        return any(known is not None and known.lease_max_ms == 1_000 * DRIFT_LEASE_MAX_S for known in lists)

    def _name(self, machine: Machine) -> bytes:
        return machine.membership.table.me.id.hex().encode()

    def _answered(self, reply: Any, about: Any) -> None:
        if reply == b"OK" or str(reply).startswith("ERR there are voters"):
            self._has_voters = True
        elif str(reply).startswith("ERR Unknown node"):
            self._first = []  # A node has another id since.
        elif not isinstance(reply, Exception):
            raise RuleBrokenError("no odd errors", f"{reply!r} for CLUSTER VOTERS")
