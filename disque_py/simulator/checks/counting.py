"""Counting: without faults, while jobs don't move, every node counts each job once (spec Z2).

Each node gets jobs, some with a DELAY, with copies on up to three nodes. A consumer takes some of them. Then every node
is asked for each status with CLUSTER. All must give the same figures, and no node may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Promise
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine

# No client of a plan uses this queue, so it has no other jobs.
QUEUE: Final = b"counted"
READY: Final = 4
DELAYED: Final = 2
TAKEN: Final = 3
DELAY_S: Final = 30
RETRY_S: Final = 90
# For messages on the slowest links, and the disks of nodes with journals.
SETTLE_MS: Final = 3_000
ANSWERS_MS: Final = 6_000
STEP_MS: Final = 20
DRAIN_MS: Final = 120_000
FETCH_MS: Final = 400
STATUSES: Final = (b"pending", b"running", b"invisible")


class Counter(Connection):
    """A client that takes jobs, asks for figures, and acknowledges jobs."""

    __slots__ = ("_simulation", "promises", "replies")

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.world)
        self._simulation = simulation
        self.promises: dict[bytes, Promise] = {}
        self.replies: list[Any] = []

    def take(self, count: int) -> None:
        """Ask for jobs."""
        self.send([words("GETJOB", "TIMEOUT", FETCH_MS, "COUNT", count, "FROM", QUEUE)])

    def on_reply(self, reply: Any) -> None:
        """Keep jobs, or any other reply."""
        if isinstance(reply, list) and reply and isinstance(reply[0], list):
            self.world.watcher.on_delivered(self.machine, reply)
            for queue, job_id, body in reply:
                self.promises[job_id] = self._simulation.oracle.deliver(queue, job_id, body, self.world.now_ms)
        else:
            self.replies.append(reply)

    def acknowledge(self) -> int:
        """Acknowledge all jobs, and return how many."""
        ids = list(self.promises)
        for job_id, promise in self.promises.items():
            self._simulation.oracle.acknowledging(promise, self.world.now_ms)
            self.send([words("ACKJOB", job_id)])
        self.promises = {}
        return len(ids)


def play(simulation: Simulation) -> None:
    """Play the check. Raises RuleBrokenError."""
    world = simulation.world
    machines = world.running()
    copies = min(3, len(machines))
    for machine in machines:
        for number in range(READY + DELAYED):
            promise = simulation.oracle.add(QUEUE, 20, RETRY_S * 1000, 3_600_000, copies, world.now_ms)
            options: tuple[str | int, ...] = ("RETRY", RETRY_S, "TTL", 3_600, "REPLICATE", copies)
            options += ("DELAY", DELAY_S) if number >= READY else ()
            simulation.targets.ask(machine, "ADDJOB", QUEUE, promise.body(), 0, *options)
    world.run(SETTLE_MS)
    counters = [Counter(simulation) for _ in machines]
    for counter, machine in zip(counters, machines, strict=True):
        world.connect(machine, counter)
    counters[0].take(TAKEN)
    world.run(SETTLE_MS)
    taken = len(counters[0].promises)
    expected = [READY * len(machines) - taken, taken, DELAYED * len(machines)]
    for counter, machine in zip(counters, machines, strict=True):
        _compare(simulation, counter, machine, expected, len(machines))
    due = sum(expected)
    end_ms = world.now_ms + DRAIN_MS
    while due > 0:
        if world.now_ms >= end_ms:
            raise RuleBrokenError("counted jobs are delivered", f"{due} were not")
        due -= sum(counter.acknowledge() for counter in counters)
        for counter in counters:
            counter.take(50)
        world.run(2 * FETCH_MS)
    world.run(SETTLE_MS)
    for counter in counters:
        if counter.is_open:
            counter.hang_up()


def _compare(simulation: Simulation, counter: Counter, machine: Machine, expected: list[int], nodes: int) -> None:
    counter.replies = []
    counter.send([words("QLEN", QUEUE, "STATUS", status, "CLUSTER") for status in STATUSES])
    counter.send([words("QSTAT", QUEUE, "CLUSTER")])
    world = simulation.world
    end_ms = world.now_ms + ANSWERS_MS
    while len(counter.replies) <= len(STATUSES):
        if world.now_ms >= end_ms:
            raise RuleBrokenError("linked nodes answer", f"{counter.replies} of {machine.name}")
        world.run(STEP_MS)
    *lengths, stat = counter.replies
    figures = dict(zip(stat[::2], stat[1::2], strict=True))
    told = [figures[name] for name in (b"len", b"running", b"invisible")]
    if lengths != expected or told != expected:
        raise RuleBrokenError("each job counts once", f"{lengths} and {told}, not {expected}, on {machine.name}")
    if figures[b"nodes"] != nodes or figures[b"nodes-missing"]:
        raise RuleBrokenError("linked nodes answer", f"{figures} on {machine.name}")
