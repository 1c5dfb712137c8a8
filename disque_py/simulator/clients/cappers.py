"""Cappers: operators who set `max-running` and `rate` of queues, and remove them again. Spec CP1 to CP5.

One of the queues has plain jobs. In plans with claims, the queues of claim workers get caps, too: per value for which
their jobs need a claim, or for the whole queue. This tests that a slot is taken before a claim, and returned when the
claim fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.checks.caps import CapBook
from disque_py.simulator.clients.claimers import SETTINGS
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
NAMES_BY: Final = ("", "", "user", "carrier")
END: Final = ("max-running", 0, "rate", "none", "max-running-by", "", "rate-by", "")
# Clients that repeat a TOKEN, which is no delivery.
REPEATING: Final = ("fetcher", "filtered consumer")


class Capper(Actor):
    """One operator, who uses any node. All share `book`."""

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        kinds = [each.kind for each in plan.clients]
        self.book = CapBook(world, oracle, counts_rate=not any(kind in REPEATING for kind in kinds))
        self.is_set = False
        self._names: list[bytes | str] = [self.queues[0], *(SETTINGS if "claim worker" in kinds else ())]

    def act(self) -> int:
        """Count leases, and sometimes change the cap."""
        self.book.look()
        if self.is_set and self.rng.random() > CHANGE_SHARE:
            return LOOK_MS
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if not line.outstanding:
            self.is_set = True
            rng = self.rng
            settings = ("max-running", rng.choice(RUNNING), "rate", rng.choice(RATES))
            self._set(rng.choice(self._names), *settings, "max-running-by", rng.choice(NAMES_BY))
        return LOOK_MS

    def end(self) -> None:
        """Remove the caps, so that all work can end."""
        super().end()
        self._clear()

    def _clear(self) -> None:
        machines = self.world.running()
        if not any(machine.broker.caps.limits for machine in machines) and self.world.is_meshed():
            return
        if self.reach() is not None:
            for name in self._names:
                self._set(name, *END)
        self.world.later(CLEAR_MS, self._clear)

    def _set(self, name: bytes | str, *settings: str | int) -> None:
        assert self.line is not None
        self.book.changed_ms = self.world.now_ms
        request = words("QUEUE", "SET", name, *settings)
        self.line.ask([(request, self._answered, settings)], self.travel())

    def _answered(self, reply: Any, settings: tuple[str | int, ...]) -> None:
        """Note that the cap changed at this time, too: nodes may have learned of it until now."""
        self.book.changed_ms = self.world.now_ms
