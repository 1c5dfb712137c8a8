"""Scripted nodes for workers: they hand out jobs, and give failed jobs out again."""

from __future__ import annotations

import asyncio
import time

from client_node import SILENCE, Node, bulk
from disque_py.client import AsyncDisque, Backoff, Worker, WorkerHooks

QUICK = Backoff("fixed", base_ms=100, jitter_percent=0)


class Queue(Node):
    """A scripted node that hands out `count` jobs once, in batches of the requested size. Then it is silent."""

    def __init__(self, count, **answers):
        self.ids = [f"D-aaaaaaaa-{number:024d}-05a1" for number in range(count)]
        self.rest = list(self.ids)
        self.portions = []
        super().__init__("a", {"GETJOB": self.get, "ACKJOB": b":1\r\n", "NACK": b":1\r\n", **answers})

    def get(self, words):
        count = int(words[words.index(b"COUNT") + 1]) if b"COUNT" in words else 1
        taken, self.rest = self.rest[:count], self.rest[count:]
        if not taken:
            return SILENCE
        self.portions.append(len(taken))
        entries = (b"*3\r\n" + bulk("q") + bulk(job_id) + bulk(job_id[-7:-5]) for job_id in taken)
        return b"*%d\r\n" % len(taken) + b"".join(entries)

    def ids_of(self, name):
        """Return all ids that came with commands of that name, sorted."""
        return sorted(word.decode() for words in self.named(name) for word in words[1:])


class Failing(Node):
    """A scripted node with one job. A job that is put back comes again, with a higher NACK count."""

    def __init__(self, job_id="D-aaaaaaaa-000000000000000000000000-05a1", when_empty=b"*-1\r\n", **answers):
        self.job_id = job_id
        self.when_empty = when_empty
        self.nacks = 0
        self.is_queued = True
        self.fetched_at = []
        given = {"GETJOB": self.get, "NACK": self.nack, "ACKJOB": b":1\r\n", "WORKING": b":300\r\n"}
        super().__init__("a", {**given, **answers})

    def get(self, words):
        until = time.monotonic() + 0.01
        while not self.is_queued and time.monotonic() < until:
            time.sleep(0.001)
        if not self.is_queued:
            return self.when_empty
        self.is_queued = False
        self.fetched_at.append(time.monotonic())
        counters = bulk("nacks") + b":%d\r\n" % self.nacks + bulk("additional-deliveries") + b":0\r\n"
        return b"*1\r\n*7\r\n" + bulk("q") + bulk(self.job_id) + bulk(b"body") + counters

    def nack(self, words):
        self.nacks += 1
        self.is_queued = True
        return b":1\r\n"


class Modern(Failing):
    """A node that numbers each delivery, and accepts ATTEMPT, REASON, DELAY and FINAL."""

    def __init__(self, lease_ms=300_000, **answers):
        self.lease_ms = lease_ms
        given = {"SHOW": b"$-1\r\n", "QUEUE": b"*-1\r\n", **answers}
        super().__init__(**given)

    def get(self, words):
        if not self.is_queued:
            return super().get(words)
        self.is_queued = False
        self.fetched_at.append(time.monotonic())
        lease = bulk("lease-ms") + b":%d\r\n" % self.lease_ms + bulk("attempt") + b":%d\r\n" % (self.nacks + 1)
        return b"*1\r\n*7\r\n" + bulk("q") + bulk(self.job_id) + bulk(b"body") + lease


class RecordingHooks(WorkerHooks):
    """Hooks that record a worker's notifications."""

    def __init__(self):
        self.lines = []

    def on_start(self, job):
        self.lines.append("start")

    def on_success(self, job, seconds):
        self.lines.append("success")

    def on_failure(self, job, error, seconds):
        self.lines.append(f"failure {error}")

    def on_trouble(self, error):
        self.lines.append(type(error).__name__)


def work(node, handler, *, until, client=None, **settings):
    """Serve until a condition holds, then stop."""

    async def run():
        async with AsyncDisque(node.address, **(client or {})) as disque:
            worker = Worker(disque, ["q"], handler, **settings)
            serving = asyncio.ensure_future(worker.serve())
            limit = asyncio.get_running_loop().time() + 5
            while not until() and not serving.done():
                assert asyncio.get_running_loop().time() < limit
                await asyncio.sleep(0.01)
            worker.stop()
            await serving

    asyncio.run(run())


async def nothing(job):
    await asyncio.sleep(0)


async def fail(job):
    raise ValueError(f"delivery {job.delivery_count}")
