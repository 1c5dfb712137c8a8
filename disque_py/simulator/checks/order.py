"""Order: at most 64 worse jobs per node overtake a job that has been ready for a second (spec F8).

`OrderChecker` looks at all queues ten times a second, and at each delivery. `play` makes a situation for it, without
faults: one node has urgent jobs and no clients, and the others have worse jobs and clients that keep asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import QUEUED
from disque_py.core.pulls import place_of
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.core.rivals import Place
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

OVERTAKEN_MAX: Final = 64
READY_MS: Final = 1_000
LOOK_MS: Final = 100
QUEUE: Final = b"q0"
URGENT_JOBS: Final = 40
WORSE_JOBS: Final = 250
# A consumer of each node fetches jobs one by one, with this pause.
GAP_MS: Final = 8
PLAY_MS: Final = 3_000


class Ready:
    """A job that has waited on a node since a moment. `by` counts the worse jobs that each node delivered since."""

    __slots__ = ("by", "machine", "place", "since_ms")

    def __init__(self, machine: Machine, place: Place, since_ms: int) -> None:
        self.machine = machine
        self.place = place
        self.since_ms = since_ms
        self.by: dict[str, int] = {}


class OrderChecker:
    """The checker of the order. `most` is the highest count so far."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ready: dict[bytes, Ready] = {}
        self.most = 0

    def look(self) -> None:
        """Note which jobs wait, and where."""
        ready: dict[bytes, Ready] = {}
        for machine in self._world.running():
            if QUEUE in machine.broker.caps.limits:
                continue  # A cap holds its jobs back.
            queue = machine.broker.queues.get(QUEUE)
            for job in queue.oldest() if queue is not None else ():
                known = self.ready.get(job.id)
                is_same = known is not None and known.machine is machine
                ready[job.id] = known if known and is_same else Ready(machine, place_of(job), self._world.now_ms)
        self.ready = ready

    def delivered(self, machine: Machine, job_id: bytes) -> None:
        """Note that a consumer of this node got a job. Raises RuleBrokenError."""
        mine = self.ready.pop(job_id, None)
        if mine is None:
            return
        for other_id, other in self.ready.items():
            if other.place < mine.place and self._world.now_ms - other.since_ms >= READY_MS and _waits(other, other_id):
                count = other.by[machine.name] = other.by.get(machine.name, 0) + 1
                self.most = max(self.most, count)
                if count > OVERTAKEN_MAX:
                    raise RuleBrokenError(
                        "better jobs are not overtaken for long",
                        f"{machine.name} delivered {count} jobs that are worse than one that waits on"
                        f" {other.machine.name} since {self._world.now_ms - other.since_ms} ms",
                        other_id,
                    )


def _waits(ready: Ready, job_id: bytes) -> bool:
    job = ready.machine.broker.find(job_id)
    return job is not None and job.state == QUEUED


class Eager(Connection):
    """A client that fetches and acknowledges one job after another."""

    __slots__ = ("_checker", "_simulation", "is_over")

    def __init__(self, simulation: Simulation, checker: OrderChecker) -> None:
        super().__init__(simulation.world)
        self._simulation = simulation
        self._checker = checker
        self.is_over = False

    def fetch(self) -> None:
        """Ask for the next job."""
        if self.is_open and not self.is_over:
            self.send([words("GETJOB", "TIMEOUT", 10 * GAP_MS, "FROM", QUEUE)])

    def on_reply(self, reply: Any) -> None:
        """Acknowledge the job, and ask for the next one a moment later."""
        if isinstance(reply, list):
            oracle, now_ms = self._simulation.oracle, self.world.now_ms
            self.world.watcher.on_delivered(self.machine, reply)
            for queue, job_id, body in reply:
                self._checker.delivered(self.machine, job_id)
                oracle.acknowledging(oracle.deliver(queue, job_id, body, now_ms), now_ms)
                self.send([words("ACKJOB", job_id)], 1)
        if not isinstance(reply, int):
            self.world.later(GAP_MS, self.fetch)


def play(simulation: Simulation) -> OrderChecker | None:
    """Play the check, if there are enough nodes. Raises RuleBrokenError."""
    world = simulation.world
    machines = world.running()
    if len(machines) < 2:
        return None
    world.run(READY_MS)  # Clients that drained the cluster before may still wait for jobs.
    for machine in machines:
        is_urgent = machine is machines[0]
        for number in range(URGENT_JOBS if is_urgent else WORSE_JOBS):
            promise = simulation.oracle.add(QUEUE, 20, 60_000, 3_600_000, 1, world.now_ms)
            options = ("RETRY", 60, "TTL", 3_600, "REPLICATE", 1, "PRIORITY", number % 7 if is_urgent else 10)
            simulation.targets.ask(machine, "ADDJOB", QUEUE, promise.body(), 0, *options)
    world.run(LOOK_MS)
    checker = OrderChecker(world)
    clients = []
    for machine in machines[1:]:
        client = Eager(simulation, checker)
        world.connect(machine, client)
        client.fetch()
        clients.append(client)
    end_ms = world.now_ms + PLAY_MS
    while world.now_ms < end_ms:
        checker.look()
        world.run(LOOK_MS)
    for client in clients:
        client.is_over = True
    world.run(READY_MS)  # If a client hung up immediately, its last ACKJOB would be lost.
    for client in clients:
        if client.is_open:
            client.hang_up()
    return checker
