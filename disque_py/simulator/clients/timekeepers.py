"""Timekeepers: operators who set schedules, pause, resume, run and delete them. Spec SD4 to SD10.

Jobs of the schedules go to a separate queue, where they end by their TTL. checks/ticks.py checks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.simulator.checks.ticks import TickBook
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import OLDER_NODE, RECONNECT_MS, Actor

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.world import World

NAMES: Final = ("s0", "s1", "s2")
RULES: Final = (("EVERY", "1s"), ("EVERY", "1500ms"), ("CRON", "* * * * * *"), ("CRON", "*/2 * * * * *"))
CATCHUPS: Final = ("none", "last", "all")
LOOK_MS: Final = 100
CLEAR_MS: Final = 500
QUEUE: Final = "ticks"


class Timekeeper(Actor):
    """One operator, who uses any node."""

    REFUSALS: ClassVar[tuple[str, ...]] = ("ERR no such schedule", OLDER_NODE, "NOREPL")

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self.book = TickBook(world, oracle)

    def act(self) -> int:
        """Look at all jobs, and sometimes change a schedule."""
        self.book.look()
        rng = self.rng
        if rng.random() > 0.15:
            return LOOK_MS
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if line.outstanding:
            return LOOK_MS
        name = rng.choice(NAMES)
        dice = rng.random()
        request: tuple[str | int, ...] = ("SCHEDULE", "NEXT", name, "COUNT", 3)
        if dice < 0.35:
            ttl = ("TTL", 6) if dice < 0.2 else ("TTLMS", 6_000)
            options = (*ttl, "RETRY", 2, "REPLICATE", rng.choice((1, 1, 2)))
            catchup = rng.choice(CATCHUPS)
            request = ("SCHEDULE", "SET", name, *rng.choice(RULES), "CATCHUP", catchup, "QUEUE", QUEUE, *options)
        elif dice < 0.8:
            request = ("SCHEDULE", rng.choice(("PAUSE", "RESUME", "RESUME", "GET", "GET", "DEL")), name)
        line.ask([(words(*request), self._answered, request)], self.travel())
        return LOOK_MS

    def end(self) -> None:
        """Stop acting, and delete the schedules on all nodes, so that their jobs can end."""
        super().end()
        self.world.later(LOOK_MS, self._clear)

    def _clear(self) -> None:
        machines = self.world.running()
        if not any(machine.broker.recurring.known for machine in machines) and self.world.is_meshed():
            return
        line = self.reach()
        if line is not None and not line.outstanding:
            requests: list[tuple[str | int, ...]] = [("SCHEDULE", "DEL", name) for name in NAMES]
            line.ask([(words(*request), self._answered, request) for request in requests], 1)
        self.world.later(CLEAR_MS, self._clear)

    def _answered(self, reply: Any, request: tuple[str | int, ...]) -> None:
        """Check the form of a reply."""
        if reply is None or isinstance(reply, Exception):
            return
        kind = {"SET": bytes, "NEXT": list, "GET": list}.get(str(request[1]), int)
        assert isinstance(reply, kind), (request, reply)
