"""Cappers: operators who set `max-running` and `rate` of a queue, and take them away again. Spec CP1 to CP5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.checks.caps import CapBook
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import RECONNECT_MS, Actor

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.world import World

LOOK_MS: Final = 20
CLEAR_MS: Final = 500
CHANGE_SHARE: Final = 0.002
RUNNING: Final = (1, 2, 5)
RATES: Final = ("none", "none", "50/1s", "200/2s")
END: Final = ("max-running", 0, "rate", "none")


class Capper(Actor):
    """One operator, on any node."""

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self.book = CapBook(world, oracle)
        self.is_set = False

    def act(self) -> int:
        """Count leases, and now and then change the cap."""
        self.book.look()
        if self.is_set and self.rng.random() > CHANGE_SHARE:
            return LOOK_MS
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if not line.outstanding:
            self.is_set = True
            self._set("max-running", self.rng.choice(RUNNING), "rate", self.rng.choice(RATES))
        return LOOK_MS

    def end(self) -> None:
        """Take the caps away, so that the work comes to an end."""
        super().end()
        self._clear()

    def _clear(self) -> None:
        machines = self.world.running()
        if not any(machine.broker.caps.limits for machine in machines) and self.world.is_meshed():
            return
        if self.reach() is not None:
            self._set(*END)
        self.world.later(CLEAR_MS, self._clear)

    def _set(self, *settings: str | int) -> None:
        assert self.line is not None
        self.book.changed_ms = self.world.now_ms
        request = words("QUEUE", "SET", self.queues[0], *settings)
        self.line.ask([(request, self._answered, settings)], self.travel())

    def _answered(self, reply: Any, settings: tuple[str | int, ...]) -> None:
        """Note that the cap changed at this time, too: nodes heard of it up to now."""
        self.book.changed_ms = self.world.now_ms
