"""The client library against three real nodes. Some nodes leave, and some are killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from itertools import pairwise

import pytest

from disque_py.client import (
    AsyncDisque,
    Backoff,
    BadIdError,
    Disque,
    DisqueError,
    MaxLenError,
    NoJobError,
    NoReplError,
    PausedError,
    Worker,
)
from disque_py.loopback_ports import free_port

# Longer than the slowest delivery in a cluster, because these tests are about the client.
PATIENT_MS = 45_000
UNKNOWN = "D-ffffffff-" + "x" * 24 + "-05a1"


class RealNode:
    """One server process."""

    def __init__(self, home):
        self.home = home
        self.port = free_port()
        self.bus_port = free_port()
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "disque_py.server.main", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--cluster-port", str(self.bus_port), "--dir", str(self.home), "--loglevel", "warning"]
        with (self.home / "printed").open("ab") as printed:
            self.process = subprocess.Popen(command, stdout=printed, stderr=printed)

    def kill(self):
        self.process.kill()
        self.process.wait()


class ThreeNodes:
    """A cluster. The clients that `clients()` makes know all nodes."""

    def __init__(self, folder):
        self.nodes = [RealNode(folder(f"node-{letter}")) for letter in "abc"]

    def join(self):
        with Disque(self.nodes[0].address, discover=False, patience=30) as first:
            for other in self.nodes[1:]:
                Disque(other.address, patience=30).connect().close()
                first.cluster_meet("127.0.0.1", other.port, other.bus_port)
        for node in self.nodes:
            with Disque(node.address, discover=False) as client:
                wait_until(lambda client=client: is_joined(client))

    @property
    def addresses(self):
        return [node.address for node in self.nodes]

    def close(self):
        for node in self.nodes:
            node.kill()


def is_joined(client):
    """Return whether a node knows three nodes without faults."""
    nodes = client.hello().nodes
    return len(nodes) == 3 and all(node.priority == 1 for node in nodes)


def wait_until(is_true, limit_s=30.0):
    until = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.05)


@contextmanager
def three_nodes(folder):
    nodes = ThreeNodes(folder)
    try:
        nodes.join()
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes for tests without faults."""
    with three_nodes(tmp_path_factory.mktemp) as nodes:
        yield nodes


@pytest.fixture
def fragile(tmp_path_factory):
    """Three nodes for one test with faults."""
    with three_nodes(tmp_path_factory.mktemp) as nodes:
        yield nodes


@pytest.fixture
def client(cluster):
    with Disque(cluster.addresses[0], discover=False) as disque:
        yield disque


def test_a_job_goes_through_all_its_states(client):
    """Added, seen, fetched, prolonged, put back, fetched again with its counter, acknowledged, gone."""
    job_id = client.add_job("way", "body", retry=30, replicate=2)
    info = client.show(job_id)
    assert (info.state, info.queue, info.retry, info.body) == ("queued", "way", 30, b"body")
    assert [job.id for job in client.qpeek("way", 5)] == [job_id]
    job = client.get_job("way", timeout_ms=5_000)
    assert (job.id, job.body) == (job_id, b"body")
    assert client.working(job) == 30
    assert client.nack(job) == 1
    (again,) = client.get_jobs("way", count=10, timeout_ms=5_000, withcounters=True)
    assert (again.id, again.nacks, again.additional_deliveries) == (job_id, 1, 0)
    assert client.ack(again) == 1
    wait_until(lambda: client.show(job_id) is None)


def test_refusals_have_types(client):
    """The errors have the texts of the node."""
    with pytest.raises(BadIdError):
        client.ack("nonsense")
    with pytest.raises(NoJobError):
        client.working(UNKNOWN)
    with pytest.raises(NoReplError):
        client.add_job("refused", "", replicate=9)
    client.add_job("full", "")
    with pytest.raises(MaxLenError):
        client.add_job("full", "", maxlen=1)
    assert client.pause("stopped", "in") == "in"
    with pytest.raises(PausedError):
        client.add_job("stopped", "")
    assert client.pause("stopped", "none") == "none"
    assert client.pause("stopped") == "none"


def test_nodes_describe_themselves(client):
    """The answers are typed."""
    me = client.cluster_myid()
    assert client.hello().id == me
    assert {node.id for node in client.cluster_nodes()} == {node.id for node in client.hello().nodes}
    assert client.cluster_info()["cluster_known_nodes"] == 3
    assert client.info("server")["tcp_port"] == int(client.config_get("port")["port"])
    assert client.ping() == "PONG"
    assert abs(client.time()[0] - time.time()) < 60
    assert client.cluster_leaving() is False


def test_queues_and_jobs_are_listed(client):
    """Page by page."""
    ids = client.add_jobs("listed", [b"%d" % number for number in range(300)], replicate=1)
    assert "listed" in list(client.qscan(count=10))
    assert set(client.jscan(queue="listed", states=["queued"], count=10)) == set(ids)
    assert {info.body for info in client.jscan_info(queue="listed")} == {b"%d" % number for number in range(300)}
    stat = client.qstat("listed")
    assert (stat.name, stat.len, stat.pause) == ("listed", 300, "none")
    assert client.qlen("listed") == 300


def test_threads_wait_for_jobs_of_other_threads(cluster):
    """A waiting GETJOB does not delay other commands."""
    with Disque(*cluster.addresses, pool_size=1) as disque:
        found = []
        waiting = [
            threading.Thread(target=lambda: found.append(disque.get_job("threads", timeout_ms=20_000)))
            for _ in range(3)
        ]
        for thread in waiting:
            thread.start()
        ids = [disque.add_job("threads", "", replicate=1) for _ in waiting]
        for thread in waiting:
            thread.join()
        assert sorted(job.id for job in found) == sorted(ids)
        assert disque.ack_jobs(found) == 3


def test_thousands_of_jobs_go_through_a_pipeline(cluster):
    """Added on one node, fetched and acknowledged on another."""

    async def run():
        async with (
            AsyncDisque(cluster.addresses[0], discover=False) as producer,
            AsyncDisque(cluster.addresses[1], discover=False) as consumer,
        ):
            ids = await producer.add_jobs("many", (b"x" * 100 for _ in range(2_000)), replicate=2)
            found = []
            while len(found) < 2_000:
                jobs = await consumer.get_jobs("many", count=100, timeout_ms=PATIENT_MS)
                assert jobs
                found += [job.id for job in jobs]
                await consumer.ack_jobs(jobs)
            return sorted(ids) == sorted(found)

    assert asyncio.run(run())


def test_a_cancelled_fetch_loses_nothing(cluster):
    """The next consumer gets every job, long before its RETRY."""

    async def run():
        async with AsyncDisque(cluster.addresses[0], discover=False) as disque:
            found = set()
            for number in range(50):
                fetch = asyncio.ensure_future(disque.get_job("cancelled"))
                await asyncio.sleep(0)
                adding = asyncio.ensure_future(disque.add_job("cancelled", f"{number}", replicate=1, retry=300))
                await asyncio.sleep(0.0002 * (number % 10))
                if fetch.done():
                    found.add((await fetch).body)
                fetch.cancel()
                await asyncio.wait([fetch, adding])
            while len(found) < 50:
                jobs = await disque.get_jobs("cancelled", count=50, timeout_ms=5_000)
                assert jobs, sorted(set(range(50)) - {int(body) for body in found})
                found |= {job.body for job in jobs}

    asyncio.run(run())


def test_a_worker_handles_every_job_once(cluster):
    """Two nodes feed the worker."""
    done = []

    async def handle(job):
        await asyncio.sleep(0.001)
        done.append(job.body)

    async def run():
        async with AsyncDisque(*cluster.addresses) as disque:
            for address in cluster.addresses[:2]:
                async with AsyncDisque(address, discover=False) as producer:
                    await producer.add_jobs("worked", [f"{address}/{number}" for number in range(300)])
            worker = Worker(disque, ["worked"], handle, concurrency=20)
            serving = asyncio.ensure_future(worker.serve())
            until = time.monotonic() + 60  # A generous limit, because other tests check a cluster's speed.
            while len(done) < 600 and time.monotonic() < until:
                await asyncio.sleep(0.02)
            worker.stop()
            await serving

    asyncio.run(run())
    assert len(done) == len(set(done)) == 600


def test_a_long_job_is_delivered_once(cluster):
    """RETRY 1 s, handled for 3: the heartbeat keeps it invisible, everywhere."""
    done = []

    async def handle(job):
        done.append(job.id)
        await asyncio.sleep(3)

    async def run():
        async with AsyncDisque(*cluster.addresses) as disque:
            await disque.add_job("long", "", retry=1)
            worker = Worker(disque, ["long"], handle)
            serving = asyncio.ensure_future(worker.serve())
            await asyncio.sleep(3.5)
            worker.stop()
            await serving

    asyncio.run(run())
    assert len(done) == 1


def test_a_job_that_always_fails_rests_and_is_given_up(cluster):
    """RETRY 1 s, rests of half a second: the worker keeps it invisible, and the cluster counts its deliveries."""
    tried, buried = [], []

    async def fail(job):
        tried.append(time.monotonic())
        raise ValueError(job.meta)

    async def bury(job, error):
        buried.append((job.delivery_count, error.args[0]))

    async def run():
        async with AsyncDisque(*cluster.addresses) as disque:
            job_id = await disque.add_job("failing", "", retry=1, meta={"a": "b"})
            policy = Backoff("fixed", base_ms=500, jitter_percent=0)
            worker = Worker(
                disque,
                ["failing"],
                fail,
                backoff=policy,
                max_attempts=3,
                on_give_up=bury,
                withmeta=True,
            )
            serving = asyncio.ensure_future(worker.serve())
            until = time.monotonic() + 30
            while not buried and time.monotonic() < until:
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.5)
            worker.stop()
            await serving
            assert await disque.show(job_id) is None

    asyncio.run(run())
    assert buried == [(3, {"a": "b"})]
    assert len(tried) == 3
    assert all(later - earlier > 0.45 for earlier, later in pairwise(tried))


def test_jobs_that_an_iterator_does_not_hand_out_go_to_other_consumers(client):
    """They go back immediately, at every node."""
    client.add_jobs("batch", [b"%d" % number for number in range(10)], retry=300)
    first = next(iter(client.jobs("batch", count=10, idle_ms=5_000)))
    rest = []
    until = time.monotonic() + 10
    while len(rest) < 9 and time.monotonic() < until:
        rest += client.get_jobs("batch", count=10, timeout_ms=1_000)
    assert len({first.id, *(job.id for job in rest)}) == 10


def test_a_consumer_moves_to_the_node_that_makes_its_jobs(cluster):
    """Spec X4."""

    async def run():
        async with (
            AsyncDisque(cluster.addresses[0], discover=False) as producer,
            AsyncDisque(cluster.addresses[1]) as consumer,
        ):
            await producer.add_jobs("fed", [b"x"] * 400, replicate=1)
            found = 0
            while found < 400:
                jobs = await consumer.get_jobs("fed", count=50, timeout_ms=PATIENT_MS)
                assert jobs
                found += len(jobs)
                await consumer.ack_jobs(jobs)
            return str(consumer.node), str(consumer.consumer_node)

    assert asyncio.run(run()) == (cluster.addresses[1], cluster.addresses[0])


def test_producers_and_consumers_survive_a_killed_node(fragile):
    """Every job whose producer got an id arrives. Callers get only errors of type DisqueError."""
    added, found, errors = set(), set(), []

    async def produce(disque, number):
        for index in range(100):
            body = b"%d/%d" % (number, index)
            try:
                await disque.add_job("killed", body, replicate=2, retry=2, retry_unsafe=True)
                added.add(body)
            except DisqueError as error:
                errors.append(error)
            await asyncio.sleep(0.005)

    async def handle(job):
        found.add(job.body)

    async def run():
        async with AsyncDisque(*fragile.addresses, timeout=2) as disque:
            worker = Worker(disque, ["killed"], handle)
            serving = asyncio.ensure_future(worker.serve())
            producing = [asyncio.ensure_future(produce(disque, number)) for number in range(4)]
            await asyncio.sleep(0.3)
            next(node for node in fragile.nodes if node.address == str(disque.node)).kill()
            await asyncio.gather(*producing)
            until = time.monotonic() + 60
            while not added <= found and time.monotonic() < until:
                await asyncio.sleep(0.05)
            worker.stop()
            await serving

    asyncio.run(run())
    assert len(added) + len(errors) == 400
    assert len(added) > 350
    assert added <= found


def test_clients_change_nodes_when_a_node_is_leaving(fragile):
    """No client gets an error, not even one that waits."""
    with Disque(*fragile.addresses) as disque:
        address = str(disque.node)
        found = []
        waiting = threading.Thread(target=lambda: found.append(disque.get_job("left", timeout_ms=20_000)))
        waiting.start()
        time.sleep(0.3)
        with Disque(address, discover=False) as admin:
            assert admin.cluster_leaving(True) is True
        wait_until(lambda: str(disque.node) not in ("None", address))
        disque.add_job("left", "x", replicate=1)
        waiting.join(20)
        assert found[0].body == b"x"
        assert str(disque.node) != address
