"""Reachability: without faults, a job soon reaches a client that waits for it, on any node.

One node has no clients and gets the jobs. Two nodes have waiting clients. One of these two is stopped before it can
answer a hint. The jobs that were offered to it must be offered to the other node (spec I5). They must not wait for the
broadcast that comes every 30 seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import Promise, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.simulation import Simulation

CLIENTS: Final = 3
LEAST_NODES: Final = 3
# Time for earlier work to end; then time for a few messages on the slowest links, and for the disks of journals.
SETTLE_MS: Final = 1_500
ARRIVED_MS: Final = 3_000
TIMEOUT_MS: Final = SETTLE_MS + ARRIVED_MS + 2_000
GAP_MS: Final = 150
QUEUE: Final = b"q0"


class Waiter(Connection):
    """A client with one GETJOB that waits for one job."""

    __slots__ = ("_simulation",)

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.world)
        self._simulation = simulation

    def wait(self) -> None:
        """Send the GETJOB."""
        self.send([words("GETJOB", "TIMEOUT", TIMEOUT_MS, "FROM", QUEUE)])

    def on_reply(self, reply: Any) -> None:
        """Acknowledge the job, if there was one."""
        if isinstance(reply, list):
            oracle, now_ms = self._simulation.oracle, self.world.now_ms
            self.world.watcher.on_delivered(self.machine, reply)
            for queue, job_id, body in reply:
                oracle.acknowledging(oracle.deliver(queue, job_id, body, now_ms), now_ms)
                self.send([words("ACKJOB", job_id)], 1)


def travel(simulation: Simulation) -> None:
    """Play the check, if there are enough nodes. Raises RuleBrokenError."""
    world = simulation.world
    machines = world.running()
    if len(machines) < LEAST_NODES:
        return
    source, stopped, awake = machines[0], machines[1], machines[-1]
    waiters = []
    for machine in (stopped, awake):
        for _ in range(CLIENTS):
            waiter = Waiter(simulation)
            world.connect(machine, waiter)
            waiter.wait()
            waiters.append(waiter)
    world.run(SETTLE_MS)
    stopped.stop()
    promises: list[Promise] = []
    for _ in range(CLIENTS):
        promise = simulation.oracle.add(QUEUE, 20, 60_000, 3_600_000, 1, world.now_ms)
        options = ("RETRY", 60, "TTL", 3_600, "REPLICATE", 1)
        simulation.targets.ask(source, "ADDJOB", QUEUE, promise.body(), 0, *options)
        promises.append(promise)
        world.run(GAP_MS)
    end_ms = world.now_ms + ARRIVED_MS
    while not all(promise.delivered for promise in promises):
        if world.now_ms >= end_ms:
            raise RuleBrokenError(
                "jobs come to waiting clients",
                f"not within {ARRIVED_MS} ms from {source.name} to {awake.name}, while {stopped.name} is stopped",
                *(promise.id for promise in promises if promise.id),
            )
        world.run(GAP_MS)
    world.run(GAP_MS)  # If a client hung up immediately, its last ACKJOB would be lost.
    stopped.go_on()
    for waiter in waiters:
        if waiter.is_open:
            waiter.hang_up()
