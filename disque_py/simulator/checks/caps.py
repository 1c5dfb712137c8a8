"""Caps: `max-running` is not exceeded while nothing is wrong. Spec CP1, CP5.

The check counts the leases that run on all nodes, by the queue and the value of its cap. It counts only while all nodes
are linked, no fault lasts, and the cap is old enough that all nodes know it, and that leases of before are over.
"""

from __future__ import annotations

from typing import Final

from disque_py.core.job import ACTIVE
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.world.world import World

BOUND: Final = "a cap stays inside its bound"
# Leases of the time before a fault's end, or before a change of the cap, are over by then.
CALM_MS: Final = 20_000


class CapBook:
    """When caps were changed last, and the most leases that were seen to run."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        self.changed_ms = 0
        self.most = 0

    def look(self) -> None:
        """Count the leases that run; RuleBrokenError."""
        world = self._world
        running: dict[tuple[bytes, bytes], int] = {}
        limits: dict[bytes, int] = {}
        for machine in world.running():
            broker = machine.broker
            for name, limit in broker.caps.limits.items():
                limits[name] = max(limits.get(name, 0), limit.running)
            for shard in broker.shards:
                for job in shard.values():
                    name = job.terms.queue
                    if job.state == ACTIVE and job.is_leased_here and name in broker.caps.limits:
                        value = broker.caps.pair_of(job)[2]
                        if value is not None and job.requeue_at_ms > broker.now_ms:
                            running[name, value] = running.get((name, value), 0) + 1
        since_ms = max(self.changed_ms, self._oracle.unrest_ms) + CALM_MS
        is_calm = world.is_meshed() and not self._oracle.faults and world.now_ms > since_ms
        for (name, value), count in running.items():
            self.most = max(self.most, count)
            if is_calm and limits.get(name) and count > limits[name]:
                raise RuleBrokenError(BOUND, f"{count} of {limits[name]} leases run for {value!r} of {name!r}")
