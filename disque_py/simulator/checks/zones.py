"""Zones: copies that a reply promises in zones or in a data centre, and a rebalance without faults.

`Asked` is the state at the moment of a producer's request. At the reply, these nodes count: nodes that have the job,
know it to be done, or have lost their memory since. For REPLICATE QUORUM they must include a majority of the data
centre, and for ZONES n nodes of n zones (spec ZN3, ZN4). `play` fills one node, sends a rebalance to any node, and
takes all jobs (spec ZN7, ZN8).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from cluster_bus.node import HANDSHAKE, LEAVING
from disque_py.core.versions import FLOWS, older_node
from disque_py.simulator.checks.moving import Play
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Promise
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

QUEUE: Final = b"spread"
JOBS: Final = 47
RETRY_S: Final = 90
SETTLE_MS: Final = 3_000
ROUNDS_MAX: Final = 30


def zone_of(machine: Machine) -> tuple[str, str]:
    """Return the zone of a node, from its settings."""
    return machine.settings.get("datacenter", ""), machine.settings.get("zone", "")


class Asked:
    """An ADDJOB that waits for its copies.

    zone_count   number of zones that must have a copy; 0: the copies are a quorum
    """

    __slots__ = ("machine", "promise", "quorum", "runs", "zone_count")

    def __init__(self, machine: Machine, promise: Promise, zone_count: int) -> None:
        self.machine = machine
        self.promise = promise
        self.zone_count = zone_count
        self.runs = {other.name: other.runs for other in machine.world.machines.values() if other.is_up}
        self.quorum = quorum_at(machine)

    def most_copies(self) -> int:
        """Return the number of nodes that may have to have the job. Without its zones or nodes it waits for ever."""
        there = [zone_of(other) for other in self.machine.world.running() if not other.broker.is_leaving]
        if self.zone_count:
            return self.promise.copies if len(set(there)) >= self.zone_count else sys.maxsize
        # FORGET makes the quorum of later requests smaller. This one waits for as many copies as it was told to.
        quorum = max(self.quorum, quorum_at(self.machine))
        here = zone_of(self.machine)[0]
        return quorum if sum(zone[0] == here for zone in there) >= quorum else sys.maxsize

    def check(self, world: World, job_id: bytes) -> None:
        """Count the copies at the reply. Raises RuleBrokenError."""
        if self.promise.acked_ms or self.promise.cancels:
            return  # A holder queued it meanwhile. Once a job is over, its producer gets the id, with any copies.
        holders = [machine for machine in world.machines.values() if self._may_have(machine, job_id)]
        if self.zone_count:
            found = {zone_of(machine) for machine in holders}
            if len(found) < self.zone_count:
                text = f"{self.promise}: copies in {sorted(found)}, not in {self.zone_count} zones"
                raise RuleBrokenError("ZONES n means n zones", text, job_id)
            return
        if not self.machine.is_up:
            return
        here = zone_of(self.machine)[0]
        local = [machine.name for machine in holders if zone_of(machine)[0] == here]
        needed = min(self.quorum, quorum_at(self.machine))
        if len(local) < needed:
            text = f"{self.promise}: copies on {local} of '{here}', not on {needed} nodes of it"
            raise RuleBrokenError("a minority answers no quorum", text, job_id)

    def _may_have(self, machine: Machine, job_id: bytes) -> bool:
        if not machine.is_up or self.runs.get(machine.name) != machine.runs:
            return True  # The node may have confirmed the copy before it lost its memory.
        return machine.broker.find(job_id) is not None or job_id in machine.broker.tombstones


def quorum_at(machine: Machine) -> int:
    """Return the size of a majority of the node's data centre, by its table and the nodes' true places."""
    if not machine.is_up:
        return 0
    here = zone_of(machine)[0]
    places = {
        other.membership.table.me.id: zone_of(other)[0] for other in machine.world.machines.values() if other.runs
    }
    known = [
        node
        for node in machine.membership.table.nodes.values()
        if not node.flags & (LEAVING | HANDSHAKE) and not node.is_newcomer and places.get(node.id) == here
    ]
    return len(known) // 2 + 1


def play(simulation: Simulation) -> None:
    """Fill one node, rebalance, and take all jobs. Raises RuleBrokenError."""
    world = simulation.world
    machines = world.running()
    if not any(client.kind == "placer" for client in simulation.plan.clients) or len(machines) < 2:
        return
    if any(machine.broker.memory_level > 1 for machine in machines):
        return
    if any(machine.broker.cluster.eldest is not None and older_node(machine.broker, FLOWS) for machine in machines):
        return  # The command is refused until all nodes are upgraded.
    scene = Play(simulation)
    first = machines[simulation.plan.seed % len(machines)]
    for _ in range(JOBS):
        promise = simulation.oracle.add(QUEUE, 20, RETRY_S * 1000, 3_600_000, 1, world.now_ms)
        head = ("RETRY", RETRY_S, "TTL", 3_600, "REPLICATE", min(2, len(machines)))
        simulation.targets.ask(first, "ADDJOB", QUEUE, promise.body(), 0, *head)
    world.run(SETTLE_MS)
    part, left = divmod(JOBS, len(machines))
    scene.do(JOBS - part - bool(left), "QREBALANCE", QUEUE)
    lengths = sorted(scene.each("QLEN", QUEUE))
    taken: list[bytes] = []
    jobs_of_each = scene.each("GETJOB", "NOHANG", "COUNT", JOBS, "FROM", QUEUE)
    for _ in range(ROUNDS_MAX):
        taken += [entry[1] for jobs in jobs_of_each for entry in jobs or ()]
        world.run(SETTLE_MS)
        if len(taken) >= JOBS:
            break
        # A GETJOB that finds too few jobs asks other nodes. Some jobs may still be in transit to an earlier node.
        jobs_of_each = [scene.ask_any("GETJOB", "TIMEOUT", SETTLE_MS, "COUNT", JOBS, "FROM", QUEUE)]
    if len(taken) != JOBS or len(set(taken)) != JOBS:
        text = f"{len(taken)} deliveries of {len(set(taken))} jobs; {JOBS} were added"
        raise RuleBrokenError("a rebalance delivers nothing twice", text)
    if lengths != sorted(part + (place < left) for place in range(len(machines))):
        raise RuleBrokenError("a rebalance makes equal parts", f"{lengths} of {JOBS} jobs")
    scene.ask_any("ACKJOB", *taken)
    world.run(SETTLE_MS)
    scene.end()
