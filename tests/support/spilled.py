"""A node that spills, for tests: real driver, spill service and store, on a folder in memory, no threads.

`SpillingNode` is a JournaledNode (with or without its journal) whose bodies leave memory early. `bodies` has all added
bodies, by id. `check` compares them with memory and files, and every sum with the sum of its parts.
"""

from __future__ import annotations

from random import Random
from typing import Any

from disque_py.core.job import ACKED, JOB_BYTES, Job
from disque_py.core.queue import QUEUE_BYTES
from disque_py.core.spilled import Spilled
from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.spill_service import SpillService
from journaled import JournaledNode, JournalHost
from persistence.spill import HEAD, file_name

BODY_BYTES = 400


class SpillHost(JournalHost):
    """JournalHost with a spill service."""

    service: SpillService

    def apply_setting(self, name: str) -> None:
        if name == "maxmemory-spill":
            self.service.switch()
        else:
            super().apply_setting(name)


class SpillingNode(JournaledNode):
    """One process. The settings are those of JournaledNode, by default without a journal."""

    def __init__(
        self, folder: SimFolder | None = None, *, bodies: dict[bytes, bytes] | None = None, **settings: Any
    ) -> None:
        settings = {"appendonly": False, "maxmemory": 30_000, "maxmemory_spill": True} | settings
        super().__init__(folder, **settings)
        self.bodies = bodies if bodies is not None else {}
        self.spill_folder = SimFolder(Random(11))
        self.spill_disk = InlineDisk(self.spill_folder)
        host = SpillHost()
        host.journal_service = self.journal_service
        self.broker.host = host
        self.service = host.service = self.driver.spill = SpillService(
            self.broker, self.spill_disk, self.driver.begin, self.driver.wake, self.log.append, file_bytes=4_000
        )
        spill = self.broker.spill
        spill.body_bytes_min, spill.near_jobs, spill.near_bytes = 100, 2, 1_000
        self._turn(self.service.open)
        if self.broker.is_loading:
            while self.work_spill():
                pass
        else:
            self.settle()

    def work(self, lane: int | None = None) -> bool:
        return super().work(lane) or self.work_spill()

    def work_spill(self) -> bool:
        """Let the spill disk do one piece of work."""
        if not self.spill_disk.run_one():
            return False
        self.end_turn()
        return True

    def add(self, queue: str = "q", body: bytes | None = None, *options: str | int) -> bytes:
        """Add a job with ADDJOB, and return its id."""
        body = body if body is not None else b"%06d" % len(self.bodies) + b"x" * (BODY_BYTES - 6)
        job_id = self.answer("ADDJOB", queue, body, 0, "REPLICATE", 1, *(options or ("RETRY", 3600)))
        if isinstance(job_id, str):
            job_id = job_id.encode()
        assert isinstance(job_id, bytes), job_id
        self.bodies[job_id] = body
        return job_id

    def fill(self, count: int, queue: str = "q", *options: str | int) -> list[bytes]:
        """Add `count` jobs, and let the disk keep up."""
        ids = []
        for _ in range(count):
            ids.append(self.add(queue, None, *options))
            self.settle()
        return ids

    def job(self, job_id: bytes) -> Job:
        """Return a job that this node has."""
        found = self.broker.find(job_id)
        assert found is not None
        return found

    def out(self) -> list[bytes]:
        """Return the ids of jobs whose bodies are on disk, in order of creation."""
        jobs = [job for shard in self.broker.shards for job in shard.values() if type(job.body) is Spilled]
        return [job.id for job in sorted(jobs, key=lambda job: job.ctime)]

    def check(self) -> None:
        """Check that every body is in memory or on disk, unchanged, and that every sum is right."""
        jobs = [job for shard in self.broker.shards for job in shard.values()]
        if self.broker.is_journaling:
            self.recount()
        used = sum(JOB_BYTES + len(job.body) for job in jobs) + sum(
            QUEUE_BYTES + len(name) for name in self.broker.queues
        )
        assert self.broker.used_memory == used
        spill = self.broker.spill
        live: dict[int, int] = {}
        count = size = 0
        for job in jobs:
            body = job.body
            if type(body) is Spilled:
                assert job.state != ACKED
                count += 1
                size += body.size
                live[body.file] = live.get(body.file, 0) + body.size + HEAD.size
                file = self.spill_folder._files[file_name(body.file)].content
                body = bytes(file[body.offset + HEAD.size : body.offset + HEAD.size + body.size])
            if job.id in self.bodies and job.state != ACKED:
                assert body == self.bodies[job.id]
        assert (self.broker.memory.spilled_count, spill.bytes_on_disk) == (count, size)
        if not self.spill_disk.waiting and not spill.released:
            assert {number: file.live for number, file in self.service.store.files.items() if file.live} == live
            assert self.service.store.live == sum(live.values())
            assert spill.writing == {} == spill.reading
            assert spill.writing_bytes == 0
        assert self.service.store.size == sum(file.size for file in self.service.store.files.values())

    def restart(self, *, away_ms: int = 0, **settings: Any) -> SpillingNode:
        self.folder.close()
        node = SpillingNode(
            self.folder,
            bodies=self.bodies,
            now_ms=self.ms + away_ms,
            wall_ms=self.wall + away_ms,
            segment_bytes=self.segment_bytes,
            deliveries=self.deliveries,
            node_id=self.node_id,
            run=self.run + 1,
            **(self.settings | settings),
        )
        node.settle()
        return node


def take_all(node: SpillingNode, queue: str = "q") -> list:
    """Return all jobs of a queue, in the order of delivery."""
    found = []
    while got := node.answer("GETJOB", "NOHANG", "COUNT", 1000, "FROM", queue):
        found += got
    return found
