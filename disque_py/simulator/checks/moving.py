"""Moving: without faults, while jobs don't move otherwise, tasks change exactly the jobs that they report (MV1 to MV6).

Each node gets jobs, some delayed, with copies on up to three nodes. Then one node after another is asked to promote
jobs, to give jobs up and redrive them, to move some and then all of them, and to purge them. After each command every
node must count the same jobs in the queues, and no node may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import QUEUED
from disque_py.simulator.checks.cluster_invariants import jobs_of
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Promise
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine

# No client of a plan uses these queues, so they have no other jobs.
SOURCE: Final = b"source"
TARGET: Final = b"target"
READY: Final = 3
DELAYED: Final = 2
RETRY_S: Final = 90
SETTLE_MS: Final = 3_000
ANSWERS_MS: Final = 20_000
STEP_MS: Final = 20
# Pending, invisible and errored jobs of SOURCE and of TARGET.
Figures = tuple[int, int, int, int, int, int]
STATUSES: Final = (b"pending", b"invisible", b"errored")


class Operator(Connection):
    """A client that sends one command after another."""

    __slots__ = ("replies",)

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.world)
        self.replies: list[Any] = []

    def on_reply(self, reply: Any) -> None:
        """Keep the reply."""
        self.replies.append(reply)


class Play:
    """The operators, one per node, and the jobs."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._machines = self._world.running()
        self._operators: list[Operator] = []
        self._turn = simulation.plan.seed
        for machine in self._machines:
            operator = Operator(simulation)
            self._world.connect(machine, operator)
            self._operators.append(operator)

    def ask(self, operator: Operator, *command: str | bytes | int) -> Any:
        """Send a command to one node, and wait for the reply."""
        operator.replies = []
        operator.send([words(*command)])
        end_ms = self._world.now_ms + ANSWERS_MS
        while not operator.replies:
            if self._world.now_ms >= end_ms:
                raise RuleBrokenError("operators are answered", f"not within {ANSWERS_MS} ms: {command}")
            self._world.run(STEP_MS)
        return operator.replies[0]

    def do(self, expected: Any, *command: str | bytes | int) -> None:
        """Send a command to the next node. Its reply, or the number of changed jobs, must be `expected`."""
        self._turn += 1
        reply = self.ask(self._operators[self._turn % len(self._operators)], *command)
        if isinstance(reply, list) and reply and reply[0] == b"task":
            found = dict(zip(reply[::2], reply[1::2], strict=True))
            if found[b"nodes"] != len(self._machines) or found[b"nodes-missing"] or found[b"failed"]:
                raise RuleBrokenError("tasks are whole in good weather", f"{found} for {command}")
            reply = found[b"jobs"]
        if reply != expected:
            raise RuleBrokenError("tasks count what they change", f"{reply!r}, not {expected!r}, for {command}")
        self._world.run(SETTLE_MS)

    def each(self, *command: str | bytes | int) -> list[Any]:
        """Send a command to all nodes."""
        return [self.ask(operator, *command) for operator in self._operators]

    def ask_any(self, *command: str | bytes | int) -> Any:
        """Send a command to the next node."""
        self._turn += 1
        return self.ask(self._operators[self._turn % len(self._operators)], *command)

    def end(self) -> None:
        """Hang up."""
        for operator in self._operators:
            operator.hang_up()

    def meet(self, expected: Figures) -> None:
        """Compare the figures of every node with these."""
        for operator in self._operators:
            told = [
                self.ask(operator, "QLEN", queue, "STATUS", status, "CLUSTER")
                for queue in (SOURCE, TARGET)
                for status in STATUSES
            ]
            if tuple(told) != expected:
                raise RuleBrokenError(
                    "tasks leave what they say", f"{told}, not {expected}, on {operator.machine.name}"
                )

    def add(self, machine: Machine, copies: int, *options: str | int) -> Promise:
        """Add a job at a node."""
        simulation = self._simulation
        promise = simulation.oracle.add(SOURCE, 20, RETRY_S * 1000, 3_600_000, copies, self._world.now_ms)
        head = ("RETRY", RETRY_S, "TTL", 3_600, "REPLICATE", copies)
        simulation.targets.ask(machine, "ADDJOB", SOURCE, promise.body(), 0, *head, *options)
        return promise

    def play(self) -> None:
        """Play all steps. Raises RuleBrokenError."""
        nodes = len(self._machines)
        copies = min(3, nodes)
        for machine in self._machines:
            for number in range(READY + DELAYED):
                self.add(machine, copies, *(("DELAY", 600) if number >= READY else ("PRIORITY", number)))
        self._world.run(SETTLE_MS)
        ready, delayed = READY * nodes, DELAYED * nodes
        if not self._agree():
            self.do(ready, "QPURGE", SOURCE)
            self.do(delayed, "QPURGE", SOURCE, "STATUS", "invisible")
            return
        self.meet((ready, delayed, 0, 0, 0, 0))
        hidden = [job_id for machine in self._machines for job_id in _delayed_of(machine)]
        self.do(len(hidden), "PROMOTE", *hidden)
        ready += delayed
        self.meet((ready, 0, 0, 0, 0, 0))
        self.do(1, "RESCHEDULE", hidden[0], "DELAY", 600)
        self.meet((ready - 1, 1, 0, 0, 0, 0))
        self.do(1, "RESCHEDULE", hidden[0], "DELAY", 0, "PRIORITY", -1)
        self.do(1, "QMOVE", SOURCE, TARGET, "LIMIT", 1)
        self.meet((ready - 1, 0, 0, 1, 0, 0))
        self._check_queue(hidden[0])
        self.do(1, "MOVEJOB", hidden[0], "TO", SOURCE)
        self.meet((ready, 0, 0, 0, 0, 0))
        self.do(1, "MOVEJOB", hidden[0], "TO", TARGET)
        self._check_queue(hidden[0])
        given_up = 0
        for operator in self._operators:
            got = self.ask(operator, "GETJOB", "NOHANG", "FROM", SOURCE)
            given_up += self.ask(operator, "NACK", got[0][1], "FINAL") if got else 0
        self._world.run(SETTLE_MS)
        self.meet((ready - 1 - given_up, 0, given_up, 1, 0, 0))
        self.do(given_up, "QREDRIVE", SOURCE)
        self.meet((ready - 1, 0, 0, 1, 0, 0))
        self.do(ready - 1, "QMOVE", SOURCE, TARGET)
        self.meet((0, 0, 0, ready, 0, 0))
        self.do(ready, "QPURGE", TARGET)
        self.meet((0, 0, 0, 0, 0, 0))
        self.end()

    def _agree(self) -> bool:
        """Return whether all holders of each job know the same holders. On slow links more nodes got copies.

        Until the holders agree, two of them may both believe to have the lowest id. Then an errored job counts on both
        (spec Z2).
        """
        sets: dict[bytes, set[bytes]] = {}
        for machine in self._machines:
            for job in jobs_of(machine.broker):
                if job.queue == SOURCE:
                    sets.setdefault(job.id, set()).add(machine.broker.sets.pack(job.holders))
        return all(len(known) == 1 for known in sets.values())

    def _check_queue(self, job_id: bytes) -> None:
        """Check that all holders that the acting node knows have the new queue. Other holders learn it when needed."""
        found = [(machine, machine.broker.find(job_id)) for machine in self._machines]
        aware = {node.id for _, job in found if job is not None and job.state == QUEUED for node in job.holders}
        for machine, job in found:
            if job is not None and job.queue != TARGET and machine.membership.table.me.id in aware:
                raise RuleBrokenError("holders know of a move", f"{job.queue!r} on {machine.name}", job_id)


def _delayed_of(machine: Machine) -> list[bytes]:
    """Return the ids of the delayed jobs that this node created."""
    broker = machine.broker
    return [
        job.id for job in jobs_of(broker) if job.queue == SOURCE and job.delay_ms and job.id[2:10] == broker.me.name[:8]
    ]


def play(simulation: Simulation) -> None:
    """Play the check. Raises RuleBrokenError."""
    Play(simulation).play()
