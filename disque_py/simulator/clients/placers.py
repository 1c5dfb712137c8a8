"""Placers: producers that ask for zones or for a quorum, and operators that rebalance queues, in any weather.

In plans without commands that make nodes forget jobs, each reply is compared with the copies that exist
(checks/zones.py). Spec ZN3, ZN4, ZN7, ZN8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.checks.zones import Asked
from disque_py.simulator.clients.connection import Request, words
from disque_py.simulator.clients.workload import BODIES, OLDER_NODE, RECONNECT_MS, Actor
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

EVERY_MS: Final = 80
OUTSTANDING_MAX: Final = 10
REBALANCE_SHARE: Final = 0.05
# Faults that make a node forget confirmed jobs although its process lives.
FORGETFUL: Final = frozenset(
    ("reset", "reset-amid", "flush", "memory", "forget", "lose", "wipe", "late", "reload", "disk", "leave")
)


class Placer(Actor):
    """A producer of jobs with ZONES and REPLICATE QUORUM."""

    REFUSALS = ("ERR ZONES", "ERR syntax error: REPLICATE QUORUM", OLDER_NODE, "ERR too many tasks")

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._is_strict = not any(fault.kind in FORGETFUL for fault in plan.faults)

    def act(self) -> int:
        """Add jobs, or ask for a rebalance."""
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if line.outstanding < OUTSTANDING_MAX:
            if self.rng.random() < REBALANCE_SHARE:
                ending = ["ASYNC"] if self.rng.random() < 0.5 else []
                request = words("QREBALANCE", self.rng.choice(self.queues), *ending)
                line.ask([(request, self._rebalanced, request)], self.travel())
            else:
                line.ask([self._addjob(line.machine)], self.travel())
        return 1 + int(self.rng.expovariate(self.load / EVERY_MS))

    def _addjob(self, machine: Machine) -> tuple[Request, Any, Asked]:
        rng = self.rng
        copies, zone_count = rng.choice(((0, 0), (0, 0), (2, 2), (3, 2), (3, 3)))
        options: tuple[str | int, ...] = (
            ("REPLICATE", copies, "ZONES", zone_count) if copies else ("REPLICATE", "QUORUM")
        )
        retry_s = rng.choice((1, 2, 5))
        queue = rng.choice(self.queues)
        promise = self.oracle.add(
            queue, rng.choice(BODIES), retry_s * 1000, 3_600_000, max(1, copies), self.world.now_ms
        )
        promise.asked = machine
        request = words(
            "ADDJOB", queue, promise.body(), rng.choice((0, 500, 2_000)), "RETRY", retry_s, "TTL", 3_600, *options
        )
        return request, self._answered, Asked(machine, promise, zone_count)

    def _answered(self, reply: Any, asked: Asked) -> None:
        if not isinstance(reply, bytes):
            return
        promise = asked.promise
        self.oracle.answered(promise, reply, self.world.now_ms)
        if promise.asked is not None:
            promise.asked.check_added(reply, promise.copies)
        if self._is_strict:
            asked.check(self.world, reply)

    def _rebalanced(self, reply: Any, request: Request) -> None:
        if isinstance(reply, list):
            found = dict(zip(reply[::2], reply[1::2], strict=True))
            if found[b"jobs"] < 0 or found[b"failed"] < 0:
                raise RuleBrokenError("operators are answered", f"{reply!r} for {request!r}")
