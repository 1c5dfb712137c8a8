"""Publishers, which bind queues to a topic and publish, and the rule for deliveries.

Each job of a publication has its own promise, with the body of the first one. If there was no fault since the
publication, none of its jobs may be delivered while another one still waits for its copies. If the publication was
refused, no job of it may be delivered at all. Spec TP8, TP9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import BODIES, OLDER_NODE, OUTSTANDING_MAX, RECONNECT_MS, Actor
from disque_py.simulator.oracle import Promise, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

ALL_OR_NOTHING: Final = "a fan-out is all or nothing"
RETRIES_S: Final = (0, 2, 4)
BIND_SHARE: Final = 0.02


class Publisher(Actor):
    """A publisher to one topic. Its first act binds all queues of the plan to the topic."""

    REFUSALS: ClassVar[tuple[str, ...]] = (OLDER_NODE, "ERR no such topic")

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self._topic = f"topic {client.number}"
        self._bound = [b"q%d" % number for number in range(min(4, plan.queues))]
        self._is_bound = False
        oracle.check_delivered = self._check

    def act(self) -> int:
        """Send some publications."""
        rng = self.rng
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if not self._is_bound or rng.random() < BIND_SHARE:
            for queue in self._bound:
                line.ask([(words("TOPIC", "BIND", self._topic, queue), self._said, queue)], self.travel())
        elif line.outstanding < OUTSTANDING_MAX:
            for _ in range(rng.choice((1, 1, 3))):
                self._publish(line.machine)
        if rng.random() < 0.05 and line.is_open:
            line.hang_up()
        return 1 + int(rng.expovariate(self.load / 120))

    def _said(self, reply: Any, queue: bytes) -> None:
        self._is_bound = self._is_bound or (reply == b"OK" and queue == self._bound[-1])

    def _publish(self, machine: Machine) -> None:
        rng = self.rng
        retry_s = rng.choice(RETRIES_S)
        copies = rng.choice((1, 2, 2, 3)) if retry_s else 0
        size = rng.choice(BODIES)
        jobs = [
            self.oracle.add(queue, size, retry_s * 1000, 3_600_000, copies, self.world.now_ms) for queue in self._bound
        ]
        for job in jobs:
            job.origin = jobs[0]
            job.asked = machine
        jobs[0].fan = {job.queue: job for job in jobs}
        options: list[str | int] = ["RETRY", retry_s]
        options += ["REPLICATE", copies] if copies else []
        timeout_ms = rng.choice((0, 300, 2_000))
        request = words("TOPIC", "PUBLISH", self._topic, jobs[0].body(), timeout_ms, *options)
        assert self.line is not None
        self.line.ask([(request, self._published, jobs)], self.travel())

    def _published(self, reply: Any, jobs: list[Promise]) -> None:
        if not isinstance(reply, list):
            for job in jobs:
                job.is_refused = isinstance(reply, Exception)
            return
        made: dict[bytes, bytes] = dict(reply)
        for job in jobs:
            if job.queue not in made:
                if self.oracle.is_calm_since(job) and self._is_bound:
                    raise RuleBrokenError(ALL_OR_NOTHING, f"{job.queue!r} is not among {sorted(made)}")
                continue
            if job.asked is not None:
                job.asked.check_added(made[job.queue], job.copies)
            self.oracle.answered(job, made[job.queue], self.world.now_ms)

    def _check(self, promise: Promise) -> None:
        """Check the delivery of a job. Raises RuleBrokenError."""
        origin = promise.origin
        if origin is None or not self.oracle.is_calm_since(promise):
            return
        if promise.is_refused:
            raise RuleBrokenError(ALL_OR_NOTHING, f"{promise} came, but its publication was refused", promise.id)
        head = b"%d " % origin.number
        for machine in self.world.running():
            for job in machine.broker.copies.waiting_repl:
                if type(job.body) is bytes and job.body.startswith(head):
                    raise RuleBrokenError(
                        ALL_OR_NOTHING, f"{promise} came before {job.id!r} had its copies", promise.id
                    )
