"""Producers and workers of queues whose jobs need a claim. Spec EX1 to EX9.

A *claim producer* sets up three queues: an exclusive one, one with `assign quorum`, and one with both. It adds jobs of
few values. Each queue requires META `user`, so some jobs without it must be refused (spec EX1, QS7). A *claim worker*
takes jobs from any node, works for a while, and ends each delivery in one of many ways: at the same node or at another
one, with its fence or without. It lets some leases run out. After some of these it sends a late ACKJOB with its fence.
checks/claims.py checks the replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from disque_py.simulator.checks.claims import ClaimBook
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.lockers import DRIFT_LEASE_MAX_S
from disque_py.simulator.clients.workload import LEASE_TOO_LONG, OLDER_NODE, Actor, Line
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import DRIFT

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

EXCLUSIVE: Final = "x0"
QUORUM: Final = "x1"
BOTH: Final = "x2"
SETTINGS: Final = {
    EXCLUSIVE: ("type", "exclusive", "exclusive-by", "user"),
    QUORUM: ("assign", "quorum", "require-meta", "user"),
    BOTH: ("type", "exclusive", "exclusive-by", "user", "assign", "quorum"),
}
USERS: Final = ("u0", "u0", "u1", "u2")
RETRIES_MS: Final = (400, 1_000, 2_500)
TTLS_MS: Final = (20_000, 20_000, 6_543)
# The share of jobs without META, which are refused.
NAMELESS_SHARE: Final = 0.04
NAMED_ONLY: Final = "a queue takes only jobs with the META that it requires"
LIMITS: Final = (0, 1, 2, 4)
EVERY_MS: Final = 60
# After such a reply to WORKING, a worker stops, and its claim may end. Spec EX5.
STOPS: Final = ("NOJOB", "CANCELED")
# Deliveries that a worker forgets and acknowledges late: their share, and the mean time after the lease.
LATE_SHARE: Final = 0.09
LATE_MS: Final = 400
# The share of late acknowledgements that go to any node. The share that wait until a later delivery is known, often
# until a cut is healed: how often they look, and how many times.
STRAY_SHARE: Final = 0.3
PATIENT_SHARE: Final = 0.6
LOOK_MS: Final = 150
LOOKS_MAX: Final = 60
# In plans with clock drift: the share of requests that a worker sends to another node.
HOP_SHARE: Final = 0.5
# Indexes in an entry of GETJOB WITHLEASE: queue, id, body, "lease-ms", ms, "attempt", number, "fence", number.
LEASE_AT: Final = 4
ATTEMPT_AT: Final = 6
FENCE_AT: Final = 8


class Work(NamedTuple):
    """A delivery that a worker has."""

    job_id: bytes
    fence: int
    attempt: int
    retry_ms: int


def knows(machine: Machine, name: str) -> bool:
    """Return whether a node has heard that jobs of this queue need a claim."""
    return name.encode() in machine.broker.queue_settings.exclusive


def requires_user(machine: Machine, name: str) -> bool:
    """Return whether a node has heard that jobs of this queue need META `user`."""
    rules = machine.broker.queue_settings.of(name.encode())
    return rules.exclusive_by == b"user" or b"user" in rules.require_meta


class ClaimProducer(Actor):
    """A producer that sets the queues up and adds jobs. All clients share `claims`."""

    REFUSALS: ClassVar[tuple[str, ...]] = (
        "ERR type needs voters",
        "ERR assign needs voters",
        "NOKEY",
        LEASE_TOO_LONG,
        OLDER_NODE,
    )

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self.claims = ClaimBook()
        self._missing = list(SETTINGS)

    def act(self) -> int:
        """Set a queue up, or add a job."""
        line = self.free_line()
        if isinstance(line, int):
            return line
        if self._missing:
            name = self._missing[0]
            line.ask([(words("QUEUE", "SET", name, "retention", 5, *SETTINGS[name]), self._set, name)], self.travel())
            return 200
        rng = self.rng
        name, user, limit = rng.choice(tuple(SETTINGS)), rng.choice(USERS), rng.choice(LIMITS)
        options: list[str | int] = ["RETRYMS", rng.choice(RETRIES_MS), "REPLICATE", rng.choice((1, 2, 2, 3))]
        options += ["TTLMS", rng.choice(TTLS_MS)]
        if rng.random() < NAMELESS_SHARE:
            about = (name, line.machine, requires_user(line.machine, name))
            request = words("ADDJOB", name, "nameless", 1_000, *options, "META", "x", "user")
            line.ask([(request, self._nameless, about)], self.travel())
            return EVERY_MS
        options += ["META", "user", user]
        options += ["ATTEMPTS", limit] if limit else []
        keys = tuple(f"{name}:{user}" for _ in range(name != QUORUM))
        known = (name, keys, limit if name != EXCLUSIVE else 0, line.machine, knows(line.machine, name))
        line.ask([(words("ADDJOB", name, "claimed", 1_000, *options), self._added, known)], self.travel())
        return 1 + int(rng.expovariate(1 / EVERY_MS))

    def _set(self, reply: Any, name: str) -> None:
        if reply == b"OK" and name in self._missing:
            self._missing.remove(name)

    def _added(self, reply: Any, about: tuple[str, tuple[str, ...], int, Machine, bool]) -> None:
        name, keys, limit, machine, was_known = about
        if isinstance(reply, Exception) and str(reply).startswith("NOKEY"):
            raise RuleBrokenError(NAMED_ONLY, f"{machine.name} refused a job of {name} that has the META: {reply}")
        # After a reset, a node has forgotten the settings and stamps no jobs. It may hear of them before it replies.
        if isinstance(reply, bytes) and was_known and knows(machine, name):
            own = (reply.decode(),) if name != EXCLUSIVE else ()
            self.claims.added(reply, keys or own, limit)

    def _nameless(self, reply: Any, about: tuple[str, Machine, bool]) -> None:
        name, machine, was_required = about
        # As in `_added`, the node may have forgotten the settings meanwhile.
        if isinstance(reply, bytes) and was_required and requires_user(machine, name):
            raise RuleBrokenError(NAMED_ONLY, f"{machine.name} took {reply!r} of {name}, which lacks it")


class ClaimWorker(Actor):
    """A worker that takes jobs under claims. All clients share `claims`."""

    REFUSALS: ClassVar[tuple[str, ...]] = (
        "NOQUORUM",
        "FENCED",
        "NOJOB",
        "TOOLATE",
        "CANCELED",
        LEASE_TOO_LONG,
        OLDER_NODE,
    )

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self.claims = ClaimBook()
        self._side: dict[str, Line] = {}
        self._takes_longest = DRIFT in plan.weather

    def act(self) -> int:
        """Fetch, if the last fetch is over."""
        line = self.free_line()
        if isinstance(line, int):
            return line
        rng = self.rng
        if self._takes_longest and rng.random() < HOP_SHARE:
            line.hang_up()
            return 1
        options: list[str | int] = ["WHERE", "user", rng.choice(USERS)] if rng.random() < 0.2 else []
        options += ["NOHANG"] if rng.random() < 0.3 else ["TIMEOUT", 400]
        options += ["LEASEMS", rng.choice(RETRIES_MS)] if rng.random() < 0.2 else []
        if self._takes_longest:
            options = ["TIMEOUT", 400, "LEASEMS", 1_000 * DRIFT_LEASE_MAX_S]
        request = words("GETJOB", *options, "COUNT", rng.choice((1, 2, 5)), "WITHLEASE", "FROM", *SETTINGS)
        line.ask([(request, self._got, (line.machine, self.world.now_ms))], self.travel())
        return 1 + int(rng.expovariate(1 / EVERY_MS))

    def _got(self, reply: Any, about: tuple[Machine, int]) -> None:
        if not isinstance(reply, list):
            return
        machine, sent_ms = about
        self.world.watcher.on_delivered(machine, reply)
        for entry in reply:
            work = Work(entry[1], entry[FENCE_AT], entry[ATTEMPT_AT], entry[LEASE_AT])
            self.claims.delivered(
                work.job_id,
                work.fence,
                work.attempt,
                work.retry_ms,
                sent_ms,
                self.world.now_ms,
                machine.name,
                machine.runs,
            )
            self.claims.look_at_nodes(work.job_id, work.fence, machine, self.world.running())
            self.world.later(1 + int(self.rng.expovariate(1 / 200)), self._decide, work, machine)

    def _decide(self, work: Work, machine: Machine) -> None:
        """End the delivery, extend it, or let it run out."""
        if self.is_over or self._takes_longest:
            return
        rng = self.rng
        dice = rng.random()
        if dice < 0.1:
            if dice < LATE_SHARE:
                self.claims.ending(work.job_id, work.fence)
                late_ms = work.retry_ms + 1 + int(rng.expovariate(1 / LATE_MS))
                looks = LOOKS_MAX if rng.random() < PATIENT_SHARE else 0
                node = self.pick(anywhere=True) if rng.random() < STRAY_SHARE else machine
                self.world.later(late_ms, self._come_late, work, node or machine, looks)
            return
        is_named = rng.random() < 0.6
        line = self._line_to(machine if rng.random() < 0.7 else None)
        if line is None:
            return
        fence: tuple[str | int, ...] = ("FENCE", work.fence) if is_named and work.fence else ()
        if dice < 0.35:
            request = words("WORKING", work.job_id, "LEASEMS", 800, *fence)
            line.ask([(request, self._extended, (work, bool(fence), self.world.now_ms))], self.travel())
            self.world.later(1 + int(rng.expovariate(1 / 300)), self._decide, work, machine)
            return
        self.claims.ending(work.job_id, work.fence)
        if not fence:
            self.claims.loosen(work.job_id)
        command = "NACK" if dice < 0.55 else "CANCELJOB" if dice < 0.6 else "ACKJOB"
        about = (work, command if fence else "", self.world.now_ms, line.machine, line.machine.runs)
        line.ask([(words(command, work.job_id, *fence), self._ended, about)], self.travel())

    def _come_late(self, work: Work, machine: Machine, looks: int = 0) -> None:
        """Acknowledge a delivery whose lease is over. A later delivery may run by now. Spec EX6.

        looks   how many times to wait for a later delivery that the node must know of
        """
        if self.is_over or not work.fence:
            return
        if looks and not self.claims.is_late(work.job_id, work.fence, machine, self.world.now_ms):
            self.world.later(LOOK_MS, self._come_late, work, machine, looks - 1)
            return
        line = self._line_to(machine)
        if line is not None:
            about = (work, "ACKJOB", self.world.now_ms, line.machine, line.machine.runs)
            line.ask([(words("ACKJOB", work.job_id, "FENCE", work.fence), self._ended, about)], self.travel())

    def _line_to(self, machine: Machine | None) -> Line | None:
        """Return a second connection, for requests that must not wait behind a GETJOB."""
        if machine is None or not machine.is_up:
            machine = self.pick(anywhere=True)
            if machine is None:
                return None
        line = self._side.get(machine.name)
        if line is None or not line.is_open:
            line = self._side[machine.name] = Line(self.world, self)
            self.world.connect(machine, line)
        return line

    def _extended(self, reply: Any, about: tuple[Work, bool, int]) -> None:
        work, is_named, sent_ms = about
        if isinstance(reply, int) and reply:
            self.claims.extended(work.job_id, work.fence, reply, sent_ms, self.world.now_ms, is_named=is_named)
        elif isinstance(reply, Exception) and str(reply).startswith(STOPS):
            self.claims.ending(work.job_id, work.fence)

    def _ended(self, reply: Any, about: tuple[Work, str, int, Machine, int]) -> None:
        work, fenced, sent_ms, machine, runs = about
        if not fenced:
            self.claims.loosed(work.job_id, self.world.now_ms)
        if reply == 1 and fenced == "ACKJOB":
            self.claims.acked(work.job_id, work.fence, sent_ms, machine, runs)
