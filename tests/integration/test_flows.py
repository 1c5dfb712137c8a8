"""Results, progress, waiting and batches of the client library, against three real nodes."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from disque_py.client import AsyncDisque, Disque, EmptyBatchError, Worker
from servers import HOST, Cluster


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("flows"), 3) as cluster:
        yield cluster


def addresses(cluster):
    return [f"{HOST}:{server.port}" for server in cluster.servers]


def test_a_client_gets_the_result_of_a_job_from_another_node(three):
    """Spec RW1, RW5."""
    first, *_, last = addresses(three)
    with Disque(first) as producer, Disque(last) as waiter:
        job_id = producer.add_job("sums", "1+1")
        found = []
        thread = threading.Thread(target=lambda: found.append(waiter.wait(job_id, timeout=20)))
        thread.start()
        job = producer.get_job("sums")
        assert producer.progress(job, 50, "half") == "OK"
        assert producer.ack(job, result="2") == 1
        thread.join(20)
        assert (found[0].status, found[0].result) == ("completed", b"2")
        ends = waiter.wait_jobs(job_id, job_id, timeout=5)
        assert [(end.status, end.result, end.is_over) for end in ends] == [("completed", b"2", True)] * 2
        with pytest.raises(TimeoutError):
            waiter.wait(producer.add_job("sums", "2+2"), timeout=0.2)


def test_a_worker_returns_results_and_tells_progress(three):
    """Spec RW4."""

    async def run():
        async with AsyncDisque(*addresses(three)) as disque:

            async def handle(job):
                job.progress(10, "begun")
                await asyncio.sleep(0.3)
                return job.text.upper()

            worker = Worker(disque, ["words"], handle, results=True)
            serving = asyncio.ensure_future(worker.serve())
            job_id = await disque.add_job("words", "ada")
            shown = (None, None)
            for _ in range(50):
                info = await disque.show(job_id, cluster=True)
                shown = (info.progress, info.progress_text) if info is not None else shown
                if shown[0] is not None:
                    break
                await asyncio.sleep(0.01)
            found = await disque.wait(job_id, timeout=20)
            worker.stop()
            await serving
            return shown, found

    shown, found = asyncio.run(run())
    assert shown == (10, "begun")
    assert (found.status, found.result) == ("completed", b"ADA")


def test_a_batch_is_closed_by_its_block_and_done_with_its_jobs(three):
    """Spec BT4."""
    with Disque(*addresses(three)) as disque:
        with disque.batch("upload", callback=("mail", "ready")) as batch:
            for number in range(20):
                batch.add_job("resize", f"photo-{number}")
        assert batch.wait(timeout=0.2).done is False
        for job in disque.get_jobs("resize", count=20):
            disque.ack(job)
        while len(found := disque.get_jobs("resize", count=20, timeout_ms=500)):
            disque.ack_jobs(found)
        info = batch.wait(timeout=20)
        assert (info.done, info.total, info.completed, info.closed) == (True, 20, 20, True)
        mail = disque.get_job("mail", timeout_ms=20_000, withmeta=True)
        assert (mail.text, mail.meta) == ("ready", {"x-disque-batch": "upload"})
        until = time.monotonic() + 5
        while disque.batch_info("upload").callback != mail.id and time.monotonic() < until:
            time.sleep(0.05)
        assert disque.batch_info("upload").callback == mail.id
        assert disque.batches("up*") == ["upload"]
        assert disque.delete_batch("upload")
        assert disque.batch_info("upload") is None


def test_an_asyncio_batch_that_fails_stays_open(three):
    """Spec BT4."""

    async def fill(disque):
        async with disque.batch("broken") as batch:
            await batch.add_job("resize", "x")
            raise KeyError("x")

    async def run():
        async with AsyncDisque(*addresses(three)) as disque:
            with pytest.raises(KeyError):
                await fill(disque)
            return await disque.batch_info("broken")

    info = asyncio.run(run())
    assert (info.closed, info.total) == (False, 1)


def test_a_batch_whose_jobs_were_all_there_before_says_so(three):
    with Disque(*addresses(three)) as disque:
        first = disque.add_job("unique", "x", key="photo")
        with pytest.raises(EmptyBatchError) as caught, disque.batch("late", callback=("mail", "ready")) as batch:
            batch.add_job("unique", "x", key="photo")
        assert caught.value.job_ids == [first]
