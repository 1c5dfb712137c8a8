"""What must hold on every day of weather.py: what clients saw of each job, and the books of each node.

The judge knows what clients were answered, and how many processes died when; nothing of how it came to pass.
"""

from __future__ import annotations

from typing import Any

from disque_py.core.broker import Broker
from disque_py.core.job import ACKED, ACTIVE, JOB_BYTES, QUEUED, WAIT_REPL, Handover, Job
from disque_py.core.queue import QUEUE_BYTES


class Judge:
    """What clients saw.

    added       id -> what the producer wanted, and when it was answered
    delivered   id -> how often
    acked       id -> when ACKJOB was sent
    confirmed   id -> when ACKJOB was answered
    after_ack   deliveries after that
    deaths      moments at which a process died with what it knew
    exits       moments at which a node began to leave
    """

    def __init__(self) -> None:
        self.added: dict[bytes, dict[str, Any]] = {}
        self.delivered: dict[bytes, int] = {}
        self.acked: dict[bytes, int] = {}
        self.confirmed: dict[bytes, int] = {}
        self.after_ack = 0
        self.errors: dict[str, int] = {}
        self.deaths: list[int] = []
        self.exits: list[int] = []

    def deliver(self, job_id: bytes, body: bytes, at_ms: int) -> None:
        """A consumer got this job."""
        count = self.delivered[job_id] = self.delivered.get(job_id, 0) + 1
        assert count == 1 or is_retried(job_id), f"at-most-once job {job_id!r} delivered twice"
        wanted = self.added.get(job_id)
        if wanted is not None:
            assert wanted["body"] == body
            assert at_ms <= wanted["dies_ms"], f"{job_id!r} delivered {at_ms - wanted['dies_ms']} ms after its TTL"
        if at_ms > self.confirmed.get(job_id, at_ms):
            self.after_ack += 1

    def may_be_lost(self, wanted: dict[str, Any]) -> bool:
        """Whether as many processes died since as copies were promised, or its life is short."""
        deaths = sum(at_ms >= wanted["at_ms"] for at_ms in self.deaths)
        if deaths:  # A leaving node gave its copies away, perhaps to one that died then.
            deaths += sum(at_ms >= wanted["at_ms"] for at_ms in self.exits)
        return deaths >= wanted["replicate"] or bool(wanted["is_short"])

    def missing(self, *, retried: bool) -> list[bytes]:
        """Jobs that were promised and never delivered."""
        return [
            job_id
            for job_id, wanted in self.added.items()
            if job_id not in self.delivered and bool(wanted["retry"]) == retried and not self.may_be_lost(wanted)
        ]


def is_retried(job_id: bytes) -> bool:
    """At least once, says the id."""
    return int(job_id[36:], 16) % 2 == 1


def all_jobs(broker: Broker) -> list[Job]:
    """Every record of a node."""
    return [job for shard in broker.shards if shard for job in shard.values()]


def check_books(broker: Broker, jobs: list[Job]) -> None:
    """Counters and memory equal a recount."""
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
    assert not set(queued) - set(broker.queues)
    assert broker.acked_count == sum(job.state == ACKED for job in jobs)
    assert broker.once_delivered_count == sum(
        job.retry_ms == 0 and job.is_delivered and job.state != ACKED for job in jobs
    )
    assert broker.blocked_count == sum(
        (1 if client.waiting == 2 else 0) + len(client.waiting_jobs) for client in broker.clients.values()
    )
    assert set(broker.waiting_repl) == {job for job in jobs if job.state == WAIT_REPL}
    for job in jobs:
        if isinstance(job.work, Handover):
            pending = job.work.node.core.pending.get(job.work.number)
            assert pending is not None, f"{job!r} waits for an answer that nobody waits for"
            assert job in pending.jobs
        elif job.state == ACTIVE and job.retry_ms:
            assert job.requeue_at_ms, f"{job!r} has no timer"


def check_once(jobs: list[Job]) -> None:
    """An at-most-once job that may still be delivered is so on one node only."""
    found: dict[bytes, int] = {}
    for job in jobs:
        if not job.retry_ms and job.queue and not job.is_delivered and job.state in (QUEUED, ACTIVE):
            if not isinstance(job.work, Handover):
                found[job.id] = found.get(job.id, 0) + 1
    assert not [job_id for job_id, count in found.items() if count > 1], "an at-most-once job waits twice"


def check_rest(brokers: list[Broker]) -> None:
    """When all is quiet nothing is left of it: no timers run for jobs that are gone, nobody waits for anybody."""
    for broker in brokers:
        assert not broker.announcements
        assert not broker.deferred
        for node in broker.cluster.nodes.values():
            if node.core is not None:
                assert not node.core.pending, f"hand-overs to {node!r} were never answered"


def tell(broker: Broker, job: Job) -> str:
    """A job, for a person who looks for what went wrong."""
    due = job.requeue_at_ms and job.requeue_at_ms - broker.now_ms
    return (
        f"{job!r} retry {job.retry_ms} due {due} awake {job.awake_at_ms and job.awake_at_ms - broker.now_ms}"
        f" holders {sorted(node.host for node in job.holders)} attempt {job.attempt} work {job.work}"
        f" leased {job.is_leased_here} delivered {job.is_delivered} queued {job.was_queued}"
    )
