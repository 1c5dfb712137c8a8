"""The worker and its cluster: attempts, reasons, dead letters and cancellation, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import timedelta

from disque_py.client import AsyncDisque, Fail, Retry, Worker


def client_of(server):
    return AsyncDisque(f"127.0.0.1:{server.port}", discover=False)


async def until(condition, limit_s=20.0):
    deadline = time.monotonic() + limit_s
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def run(story, *servers, **settings):
    """Run a scenario with a worker on the first server, and clients of all servers."""

    async def play():
        clients = [client_of(server) for server in servers]
        worker = Worker(clients[0], ["q"], settings.pop("handler"), **settings)
        serving = asyncio.ensure_future(worker.serve())
        try:
            await story(*clients)
        finally:
            worker.stop()
            await serving
            for client in clients:
                await client.close()

    asyncio.run(play())


def test_a_job_without_attempts_left_is_a_dead_letter_with_its_reason(make_server):
    """Spec Y7. The delays come from the queue's settings."""
    moments = []

    async def handle(job):
        moments.append(time.monotonic())
        raise ValueError("no address")

    async def story(client):
        await client.set_queue("q", attempts=3, backoff="fixed:200:200", dead_letter="failed")
        await client.add_job("q", "body")

        async def is_moved():
            return await client.qlen("failed") == 1

        await until(is_moved)
        (dead,) = await client.qpeek("failed", 1, withmeta=True)
        assert dead.meta["x-disque-error"] == "ValueError: no address"
        assert dead.meta["x-disque-attempts"] == "3"

    run(story, make_server().start(), handler=handle)
    assert len(moments) == 3
    assert min(later - earlier for earlier, later in itertools.pairwise(moments)) > 0.15


def test_a_handler_decides_about_its_job(make_server):
    """Retry comes again after its delay, Fail never. `wait` sees the end."""

    async def handle(job):
        if job.text == "later" and job.attempt == 1:
            raise Retry(timedelta(milliseconds=300), "busy")
        if job.text == "never":
            return Fail("no address")
        return None

    async def story(client):
        began = time.monotonic()
        later, never = await client.add_job("q", "later"), await client.add_job("q", "never")
        failed = await client.wait(never, timeout=10)
        assert (failed.status, failed.error) == ("errored", "no address")
        assert (await client.wait(later, timeout=10)).status in ("gone", "completed")
        assert time.monotonic() - began > 0.3

    run(story, make_server().start(), handler=handle)


def test_a_job_is_canceled_at_another_node_while_it_runs(make_cluster):
    """Spec Y8: WORKING tells the worker."""
    cluster = make_cluster(2)
    ended = []

    async def handle(job):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(job.is_canceled)

    async def story(client, other):
        job_id = await client.add_job("q", "body", replicate=2)

        async def is_running():
            shown = await client.show(job_id)
            return shown is not None and shown.status == "running"

        async def has_ended():
            return bool(ended)

        await until(is_running)
        assert await other.cancel(job_id) == 1
        await until(has_ended)

    run(story, cluster[0], cluster[1], handler=handle, cancel_poll_s=0.2)
    assert ended == [True]


def test_a_worker_that_stops_gives_its_jobs_back(make_server):
    """Another worker may take them immediately. The delivery counts."""
    began = []

    async def handle(job):
        began.append(job)
        await asyncio.sleep(60)

    async def story(client):
        await client.add_job("q", "body")

        async def has_begun():
            return bool(began)

        await until(has_begun)

    server = make_server().start()
    run(story, server, handler=handle, grace_s=0.01)

    async def look():
        async with client_of(server) as client:
            (job,) = await client.get_jobs("q", timeout_ms=2000, withlease=True)
            return job.attempt, (await client.show(job)).error

    assert asyncio.run(look()) == (2, "the worker stopped")


def test_a_result_that_the_node_refuses_is_a_failure(make_server):
    """Spec RW1. An ack without the result would hide it. Shorter results of the same worker still count."""

    async def handle(job):
        return job.body * 1000

    async def story(client):
        long, short = await client.add_job("q", "body" * 20), await client.add_job("q", "b")
        ended = await client.wait(long, timeout=20)
        assert (ended.status, ended.reason) == ("errored", "the result is longer than result-max-bytes")
        assert (await client.wait(short, timeout=20)).result == b"b" * 1000

    run(story, make_server("--result-max-bytes", 1024).start(), handler=handle, results=True)
