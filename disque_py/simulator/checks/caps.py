"""Caps: neither `max-running` nor `rate` is exceeded while there is no fault. Spec CP1, CP3, CP5.

The check counts the leases that run on all nodes, by queue and by the value of its cap, and the deliveries in the last
span of a rate. It counts only leases and deliveries that began while all nodes were linked, no fault lasted, and all
nodes must have known the cap. Earlier leases may still run, because a change of a cap ends no lease (spec CP2). A lease
that was over when WORKING extended it is not counted, because it takes a slot even if none is free (spec CP1).

In a lasting partition, all sides together stay below one and a half times the cap, if all nodes know the same nodes.
This is checked from two node timeouts after the beginning of the partition on.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from disque_py.core.caps import Limit
from disque_py.core.job import ACTIVE
from disque_py.simulator.checks.cluster_invariants import jobs_of
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.world.world import World

BOUND: Final = "a cap stays inside its bound"
PARTS: Final = "the sides of a partition share a cap"
# After this time, all nodes know a cap that was set, and follow one coordinator after a fault.
CALM_MS: Final = 3_000


class Lease(NamedTuple):
    """A running lease.

    began_ms   when it was first seen
    until_ms   node and process -> its end there, by the clock of the node
    """

    began_ms: int
    until_ms: dict[tuple[str, int], int]


class CapBook:
    """The last change of a cap, the running leases, and the deliveries. All cappers share one book.

    changed_ms   when a cap was last changed
    most         the largest number of leases that were seen to run under one value
    counts_rate  whether each reply is a delivery; false if clients repeat a TOKEN, which is no delivery
    """

    def __init__(self, world: World, oracle: Oracle, *, counts_rate: bool = False) -> None:
        self._world = world
        self._oracle = oracle
        self.changed_ms = 0
        self.most = 0
        self.counts_rate = counts_rate
        # Job and attempt -> its lease; leases that were over once. They may run again.
        self._leases: dict[tuple[bytes, int], Lease] = {}
        self._ended: set[tuple[bytes, int]] = set()
        # Queue -> moments of deliveries.
        self._delivered: dict[bytes, deque[int]] = {}
        # Whether all nodes were linked at each look since this moment.
        self._whole_ms = 0

    def look(self) -> None:
        """Count the leases that run. Raises RuleBrokenError."""
        world = self._world
        if self._oracle.faults or not world.is_meshed():
            self._whole_ms = world.now_ms
        since_ms, steady_ms = self._since_ms(), self._steady_ms()
        parts: dict[tuple[bytes, bytes], int] = {}
        running: dict[tuple[bytes, bytes], int] = {}
        limits = self._limits()
        for began_ms, keys in self._running():
            for key in keys:
                running[key] = running.get(key, 0) + (began_ms > since_ms)
                parts[key] = parts.get(key, 0) + (began_ms > steady_ms)
        for (name, value), count in running.items():
            self.most = max(self.most, count)
            limit = limits.get(name)
            if limit is not None and 0 < limit.running < count:
                raise RuleBrokenError(BOUND, f"{count} of {limit.running} leases run for {value!r} of {name!r}")
        for (name, value), count in parts.items():
            limit = limits.get(name)
            if limit is not None and 0 < limit.running * 3 < count * 2 and self._is_agreed():
                raise RuleBrokenError(PARTS, f"{count} leases of {limit.running} run for {value!r} of {name!r}")

    def _running(self) -> list[tuple[int, dict[tuple[bytes, bytes], None]]]:
        """Return when each lease began, and the queue and the value under which it counts.

        A lease that was over when WORKING extended it is left out.
        """
        found: dict[tuple[bytes, int], dict[tuple[str, int], int]] = {}
        keys: dict[tuple[bytes, int], dict[tuple[bytes, bytes], None]] = {}
        clocks: dict[tuple[str, int], int] = {}
        machines = self._world.running()
        is_capped = any(machine.broker.caps.limits for machine in machines)
        for machine in machines:
            broker, process = machine.broker, (machine.name, machine.runs)
            clocks[process] = broker.now_ms
            for job in jobs_of(broker) if is_capped else ():
                if job.state == ACTIVE and job.is_leased_here and job.requeue_at_ms > broker.now_ms:
                    delivery = (job.id, job.attempt)
                    found.setdefault(delivery, {})[process] = job.requeue_at_ms
                    values = keys.setdefault(delivery, {})
                    name = job.terms.queue
                    value = broker.caps.pair_of(job)[2] if name in broker.caps.limits else None
                    if value is not None:
                        values[name, value] = None
        for delivery, lease in self._leases.items():
            # Between two looks, WORKING may have come before or after the end of the lease.
            if not any(clocks.get(process, until_ms) < until_ms for process, until_ms in lease.until_ms.items()):
                self._ended.add(delivery)
        self._ended.update(self._leases.keys() - found.keys())
        leases, self._leases = self._leases, {}
        for delivery, until_ms in found.items():
            began_ms = leases[delivery].began_ms if delivery in leases else self._world.now_ms
            self._leases[delivery] = Lease(began_ms, until_ms)
        return [(self._leases[each].began_ms, keys[each]) for each in found if each not in self._ended]

    def _is_agreed(self) -> bool:
        """Return whether all nodes know the same nodes: the share of a side depends on their number."""
        return len({frozenset(machine.membership.table.nodes) for machine in self._world.running()}) == 1

    def delivered(self, entries: list[Any]) -> None:
        """Note jobs that consumers got. Raises RuleBrokenError if they are too many in the span of a rate."""
        if not self.counts_rate or not entries:
            return
        now_ms, since_ms = self._world.now_ms, self._since_ms()
        limits = self._limits()
        for entry in entries:
            limit = limits.get(entry[0])
            if limit is None or not limit.rate or limit.rate_by:
                continue
            moments = self._delivered.setdefault(entry[0], deque())
            moments.append(now_ms)
            # The clocks of nodes drift.
            while moments[0] < max(since_ms, now_ms - limit.rate_ms * 9 // 10):
                moments.popleft()
                if not moments:
                    break
            if len(moments) > 2 * limit.rate:
                raise RuleBrokenError(BOUND, f"{len(moments)} deliveries of {entry[0]!r} in {limit.rate_ms} ms")

    def _since_ms(self) -> int:
        """Return since when there was no fault, and no change of a cap."""
        unrest_ms = self._oracle.unrest_ms + self._oracle.aftermath_ms if self._oracle.unrest_ms else 0
        return max(self.changed_ms, unrest_ms, self._whole_ms) + CALM_MS

    def _steady_ms(self) -> int:
        """Return since when no fault began or ended, and nodes have noticed the faults that last."""
        return max(self.changed_ms, self._oracle.unrest_ms + self._oracle.aftermath_ms) + CALM_MS

    def _limits(self) -> dict[bytes, Limit]:
        """Return the caps that nodes know. While there is no fault they are the same on all nodes."""
        found: dict[bytes, Limit] = {}
        for machine in self._world.running():
            found.update(machine.broker.caps.limits)
        return found
