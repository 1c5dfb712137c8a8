"""Random days in the life of a small cluster, from a seed: work, faults, then calm; and what must hold throughout.

Safety is checked while the weather lasts, liveness after it has cleared. The judge knows what clients saw, nothing else.
"""

from __future__ import annotations

from random import Random
from typing import Any

from disque_py.core.broker import SHARDS
from disque_py.core.job import JOB_BYTES, QUEUED
from disque_py.core.queue import QUEUE_BYTES
from world import Talker, World

QUEUES = ("q", "r")


class Judge:
    """What clients saw of each job."""

    def __init__(self) -> None:
        self.added: dict[bytes, dict[str, Any]] = {}
        self.delivered: dict[bytes, int] = {}
        self.acked: dict[bytes, int] = {}
        self.after_ack = 0


class Day:
    """One seed: a world, its clients, its faults."""

    def __init__(self, seed: int, *, nodes: str = "abc", faults: bool = True, crashes: bool = False) -> None:
        self.rng = Random(seed)
        self.world = World(nodes, seed, delay_ms=self.rng.choice((1, 1, 3, 10)), cluster_node_timeout=2_000)
        self.judge = Judge()
        self.faults = faults
        self.crashes = crashes
        self.crashed = 0
        self.consumers: list[Talker] = []
        self.numbers = 0

    def play(self, steps: int = 150) -> None:
        """Work and weather, then calm, then the verdict."""
        self.world.join()
        for _ in range(steps):
            self.act()
            self.world.run(self.rng.choice((0, 1, 5, 20, 100, 400)))
            self.collect()
            for name, member in self.world.members.items():
                if member.is_up:
                    check_books(self.world[name])
        self.calm()

    def act(self) -> None:
        """One thing somebody does."""
        rng = self.rng
        names = [name for name, member in self.world.members.items() if member.is_up]
        name = rng.choice(names)
        deed = rng.random()
        if deed < 0.40:
            self.add(name)
        elif deed < 0.70:
            talker = self.world.client(name)
            self.consumers.append(talker)
            talker.say("GETJOB", "TIMEOUT", rng.choice((50, 500, 3000)), "COUNT", rng.choice((1, 1, 5)), "FROM", *QUEUES)
        elif deed < 0.80:
            ids = [job_id for job_id in self.judge.delivered if job_id not in self.judge.acked]
            if ids:
                self.world.client(name).say(rng.choice(("NACK", "WORKING", "ENQUEUE", "DEQUEUE")), rng.choice(ids))
        elif deed < 0.84:
            self.world.client(name).say("PAUSE", rng.choice(QUEUES), rng.choice(("in", "out", "none", "none")), "BCAST")
        elif self.faults:
            self.weather(names)

    def weather(self, names: list[str]) -> None:
        rng = self.rng
        kind = rng.random()
        world = self.world
        if kind < 0.35 and len(names) > 1:
            left, right = rng.sample(list(world.members), 2)
            if world.members[left].is_up and world.members[right].is_up:
                world.cut(left, right, both=rng.random() < 0.7)
        elif kind < 0.70:
            world.heal()
        elif kind < 0.85 and self.crashes and len(names) > 2:
            world.crash(rng.choice(names))
            self.crashed += 1
        else:
            for name, member in world.members.items():
                if not member.is_up:
                    world.restart(name)
                    break

    def add(self, name: str) -> None:
        rng = self.rng
        self.numbers += 1
        words: list[Any] = ["ADDJOB", rng.choice(QUEUES), f"body {self.numbers}", rng.choice((0, 100, 1000))]
        retry = rng.choice((0, 1, 2, 5))
        words += ["RETRY", retry, "TTL", 3600]
        if retry:
            words += ["REPLICATE", rng.choice((1, 2, 3))]
        if rng.random() < 0.15:
            words += ["DELAY", rng.choice((1, 2))]
        if rng.random() < 0.1:
            words.append("ASYNC")
        talker = self.world.client(name)
        talker.wanted = {"retry": retry, "body": f"body {self.numbers}".encode(), "node": name}
        talker.say(*words)

    def collect(self) -> None:
        """Read what clients were answered."""
        for talker in list(self.world.talkers):
            replies, talker.replies = talker.replies, []
            for reply in replies:
                if isinstance(reply, bytes) and reply.startswith(b"D-"):
                    self.judge.added[reply] = talker.wanted
                elif isinstance(reply, list):
                    for _, job_id, body in reply:
                        self.deliver(job_id, body)
            if replies:
                talker.hang_up()
                self.world.talkers.remove(talker)

    def deliver(self, job_id: bytes, body: bytes) -> None:
        judge = self.judge
        count = judge.delivered[job_id] = judge.delivered.get(job_id, 0) + 1
        at_most_once = int(job_id[-1:], 16) % 2 == 0
        assert not (at_most_once and count > 1), f"at-most-once job {job_id!r} delivered twice"
        if job_id in judge.added:
            assert judge.added[job_id]["body"] == body
        if job_id in judge.acked:
            judge.after_ack += 1
        names = [name for name, member in self.world.members.items() if member.is_up]
        if self.rng.random() < 0.85:
            judge.acked[job_id] = self.world.now_ms
            self.world.client(self.rng.choice(names)).say("ACKJOB", job_id)

    def calm(self) -> None:
        """Everything heals; consumers take what there is; all that is acknowledged vanishes, all else is delivered."""
        world = self.world
        world.heal()
        for name, member in world.members.items():
            if not member.is_up:
                world.restart(name)
        world.until(
            lambda: all(len(m.membership.linked) == len(world.members) - 1 for m in world.members.values()), 60_000
        )
        world.run(4_000)
        for name in world.members:
            for queue in QUEUES:
                world.client(name).say("PAUSE", queue, "none")
        for _ in range(120):
            for name in world.members:
                talker = world.client(name)
                talker.say("GETJOB", "TIMEOUT", "400", "COUNT", "50", "FROM", *QUEUES)
            world.run(500)
            self.settle_all()
            if not any(self.left_on(name) for name in world.members):
                break
        left = {
            name: [tell(world[name], job) for job in jobs] for name in world.members if (jobs := self.left_on(name))
        }
        assert not left, f"jobs that never went: {left}"
        if not self.crashed:
            missing = [
                job_id for job_id, wanted in self.judge.added.items()
                if job_id not in self.judge.delivered and wanted["retry"]
            ]
            assert not missing, f"never delivered: {missing}"

    def left_on(self, name: str) -> list[Any]:
        """Jobs that should go; a delivered at-most-once job that nobody acknowledges stays until its TTL."""
        jobs = [job for shard in self.world[name].shards for job in shard.values()]
        return [job for job in jobs if job.retry_ms or not job.is_delivered]

    def settle_all(self) -> None:
        for talker in list(self.world.talkers):
            replies, talker.replies = talker.replies, []
            for reply in replies:
                if isinstance(reply, list):
                    for _, job_id, body in reply:
                        judge = self.judge
                        count = judge.delivered[job_id] = judge.delivered.get(job_id, 0) + 1
                        assert not (int(job_id[-1:], 16) % 2 == 0 and count > 1), f"{job_id!r} twice"
                        if job_id in judge.acked:
                            judge.after_ack += 1
                        judge.acked[job_id] = self.world.now_ms
                        talker.say("ACKJOB", job_id)
                elif isinstance(reply, bytes) and reply.startswith(b"D-"):
                    self.judge.added[reply] = talker.wanted


def check_books(broker: Any) -> None:
    """Counters and memory equal a recount."""
    jobs = [job for at in range(SHARDS) for job in broker.shards[at].values()]
    assert broker.job_count == len(jobs)
    used = sum(JOB_BYTES + len(job.body) for job in jobs)
    used += sum(QUEUE_BYTES + len(name) for name in broker.queues)
    assert broker.used_memory == used
    queued: dict[bytes, int] = {}
    for job in jobs:
        if job.state == QUEUED:
            queued[job.queue] = queued.get(job.queue, 0) + 1
    for name, queue in broker.queues.items():
        assert queue.length == queued.get(name, 0), name
        assert sum(1 for _ in queue.oldest()) == queue.length
    assert broker.acked_count == sum(job.state == 3 for job in jobs)
    assert broker.once_delivered_count == sum(
        job.retry_ms == 0 and job.is_delivered and job.state != 3 for job in jobs
    )
    assert broker.blocked_count == sum(
        (1 if client.waiting == 2 else 0) + len(client.waiting_jobs) for client in broker.clients.values()
    )


def tell(broker: Any, job: Any) -> str:
    """A job, for a person who looks for what went wrong."""
    due = job.requeue_at_ms and job.requeue_at_ms - broker.now_ms
    return (
        f"{job!r} retry {job.retry_ms} due {due} awake {job.awake_at_ms and job.awake_at_ms - broker.now_ms}"
        f" holders {sorted(node.host for node in job.holders)} attempt {job.attempt} work {job.work}"
        f" leased {job.is_leased_here} delivered {job.is_delivered} queued {job.was_queued}"
    )
