"""/metrics of the gateway: real nodes change each metric, and nodes are lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from disque_py import testing
from disque_py.client import ReplyError
from disque_py.gateway.board import LOOK_S
from disque_py.gateway.metrics.table import EVENT_METRICS, METRICS, REQUEST_SECONDS
from gateways import add, until

KINDS = ("added", "delivered", "completed", "failed", "requeued", "expired", "errored", "canceled")


def samples(gateway):
    """Return name → the samples, as (labels, value)."""
    reply = gateway.get("/metrics")
    assert reply.status == 200
    found = {}
    for family in read_text(reply.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(gateway, name, **labels):
    """Return the sum of the samples with these labels, or None if there are none."""
    found = [number for pairs, number in samples(gateway).get(name, ()) if labels.items() <= pairs.items()]
    return sum(found) if found else None


def counters(gateway, queue):
    """Return the counters of a queue by their kinds."""
    return {kind: value(gateway, f"disque_jobs_{kind}_total", queue=queue) for kind in KINDS}


@pytest.fixture(scope="module")
def measured(nodes):
    """A gateway that has begun to read the events of its nodes."""
    from gateways import RunningGateway

    running = RunningGateway(nodes.url)
    with nodes.client() as client:
        wanted = set()

        def follows():
            """Return whether an event of each node was counted."""
            for node in nodes:
                with node.client() as near:
                    near.add_job(f"warm-{node.address}", b"", replicate=1)
                    wanted.add(f"warm-{node.address}")
            return all(value(running, "disque_jobs_added_total", queue=name) for name in wanted)

        assert until(follows, 20)
        assert client.ping()
    yield running
    running.close()


def test_every_transition_is_counted_and_copies_are_not(measured, nodes, queue):
    """Eight jobs with three copies each."""
    with nodes[0].client() as client:
        ids = [client.add_job(queue, b"", replicate=3, retry=60) for _ in range(4)]
        client.add_job(f"{queue}-ttl", b"", replicate=3, ttl=1)
        client.add_job(f"{queue}-late", b"", replicate=3, retry=1)
        client.add_job(f"{queue}-once", b"", replicate=3, attempts=1)
        client.get_job(f"{queue}-late")
        once = client.get_job(f"{queue}-once")
        client.nack(once)
        jobs = client.get_jobs(queue, count=3)
        client.ack(jobs[0])
        client.nack(jobs[1], delay=60)
        client.cancel(next(job_id for job_id in ids if job_id not in {job.id for job in jobs}))
    nothing = dict.fromkeys(KINDS, 0.0)
    wanted = nothing | {"added": 4, "delivered": 3, "completed": 1, "failed": 1, "canceled": 1}
    assert until(lambda: counters(measured, queue) == wanted, 15), counters(measured, queue)
    late = nothing | {"added": 1, "delivered": 1, "requeued": 1}
    assert until(lambda: counters(measured, f"{queue}-late") == late, 15), counters(measured, f"{queue}-late")
    assert until(lambda: value(measured, "disque_jobs_errored_total", queue=f"{queue}-once") == 1)
    assert until(lambda: value(measured, "disque_jobs_expired_total", queue=f"{queue}-ttl") == 1, 15)
    time.sleep(1.5)  # By now, the other holders have reported the expiry, too.
    assert value(measured, "disque_jobs_expired_total", queue=f"{queue}-ttl") == 1


def test_a_job_that_goes_through_two_nodes_counts_once(measured, nodes, queue):
    """The job is added on one node and fetched from another."""
    with nodes[0].client(discover=False) as producer, nodes[1].client(discover=False, follow=False) as consumer:
        producer.add_job(queue, b"", replicate=2)
        consumer.ack(consumer.get_job(queue, timeout_ms=10_000))
    assert until(lambda: value(measured, "disque_jobs_completed_total", queue=queue) == 1)
    found = counters(measured, queue)
    assert (found["added"], found["delivered"], found["failed"], found["requeued"]) == (1, 1, 0, 0)


def test_waiting_and_running_are_measured(measured, nodes, queue):
    with nodes[0].client(discover=False) as client:
        client.add_job(queue, b"")
        time.sleep(0.65)
        job = client.get_job(queue)
        time.sleep(0.35)  # Nodes round each moment to a millisecond.
        client.ack(job)
    assert until(lambda: value(measured, "disque_queue_run_seconds_count", queue=queue) == 1)
    assert 0.6 <= value(measured, "disque_queue_wait_seconds_sum", queue=queue) < 5
    assert 0.3 <= value(measured, "disque_queue_run_seconds_sum", queue=queue) < 5
    assert value(measured, "disque_queue_wait_seconds_bucket", queue=queue, le="0.5") == 0
    assert value(measured, "disque_queue_wait_seconds_bucket", queue=queue, le="+Inf") == 1


def test_requests_to_the_gateway_are_measured(measured, queue):
    add(measured, queue)
    measured.post(f"/v1/queues/{queue}/jobs", {"wrong": 1})
    labels = {"door": "http", "operation": "enqueue", "code": "OK"}
    assert value(measured, f"{REQUEST_SECONDS.name}_count", **labels) >= 1
    assert value(measured, f"{REQUEST_SECONDS.name}_bucket", **labels, le="+Inf") >= 1


def test_a_slow_reader_of_events_is_seen(measured, nodes, queue):
    reader = f"slow-{queue}"
    with nodes[0].client(discover=False) as client:
        log = client.events_info()
        for _ in range(4):
            client.add_job(queue, b"", replicate=1)
        client.events_read(log.log, log.next, count=1, block_ms=5_000, reader=reader)
        for _ in range(4):
            client.add_job(queue, b"", replicate=1)
    assert until(lambda: (value(measured, "disque_event_reader_lag_events", reader=reader) or 0) >= 4)


def test_the_readers_of_the_gateway_itself_have_names(measured, nodes):
    found = [labels["reader"] for labels, _ in samples(measured)["disque_event_reader_lag_events"]]
    assert len([name for name in found if name.endswith(f"-{measured.settings.listen.port}")]) == len(nodes)


def test_failures_of_replication_have_a_reason(measured, nodes, queue):
    """The reasons are: too few nodes, a stopped node that makes no copy in time, and a node whose queue is paused."""
    missing = value(measured, "disque_replication_failures_total", reason="nodes")
    with nodes[0].client(discover=False) as client, pytest.raises(ReplyError, match="NOREPL Not enough"):
        client.run(client_request(queue, 9))
    assert until(lambda: value(measured, "disque_replication_failures_total", reason="nodes") == missing + 1)
    before = value(measured, "disque_replication_failures_total", reason="timeout")
    refused = value(measured, "disque_replication_failures_total", reason="refused")
    os.kill(nodes[2].pid, signal.SIGSTOP)
    try:
        with nodes[0].client(discover=False) as client, pytest.raises(ReplyError, match="NOREPL"):
            client.run(client_request(queue, 3))
    finally:
        os.kill(nodes[2].pid, signal.SIGCONT)
    nodes.wait_whole()
    assert until(lambda: value(measured, "disque_replication_failures_total", reason="timeout") == before + 1)
    for node in (nodes[1], nodes[2]):
        with node.client(discover=False) as client:
            client.pause(queue, "in")
    with nodes[0].client(discover=False) as client, contextlib.suppress(ReplyError):
        client.run(client_request(queue, 3))
    assert until(lambda: value(measured, "disque_replication_failures_total", reason="refused") > refused)


def client_request(queue, copies):
    """Return an ADDJOB that waits for copies for half a second at most, and is not repeated."""
    from disque_py.client import commands

    request = commands.add_job(queue, b"", replicate=copies, timeout_ms=500)
    request.patience_s = 0.0
    return request


def test_both_formats_are_served(measured, queue):
    add(measured, queue)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    reply = measured.request("GET", "/metrics", headers=accept)
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in read_openmetrics(reply.text)}
    assert {"disque_up", "disque_jobs_added", REQUEST_SECONDS.name} <= names


def test_the_page_has_every_metric_of_the_table(make_gateway, queue):
    """Metrics that come from a prefix of INFO may be missing, if nothing of their kind has happened."""
    with testing.cluster(2, appendonly=True) as cluster, cluster.client() as client:
        gateway = make_gateway(cluster.url)
        gateway.get("/v1/nodes")
        gateway.get("/metrics")
        time.sleep(1)
        client.add_job(queue, b"")
        client.ack(client.get_job(queue))
        client.add_job(queue, b"")
        client.pause(queue, "in")
        check_every_metric(gateway)


def check_every_metric(gateway):
    """Wait until a page has each metric."""
    with_prefix = {metric.name for metric in METRICS if metric.prefix}
    wanted = {metric.name for metric in (*METRICS, *EVENT_METRICS, REQUEST_SECONDS)} - with_prefix

    def families():
        return {line.split()[2] for line in gateway.get("/metrics").text.splitlines() if line.startswith("# TYPE ")}

    assert until(lambda: wanted <= families()), wanted - families()


def test_promtool_reports_no_problem(measured, queue):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    add(measured, queue)
    text = measured.get("/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_queues_beyond_the_limit_are_counted_as_one(make_gateway):
    with testing.node() as node, node.client() as client:
        small = make_gateway(node.url, metrics_max_queues=2)
        assert until(lambda: "disque_event_reader_lag_events" in samples(small))
        for number in range(5):
            client.add_jobs(f"many{number}", [b"a", b"b"])
        client.get_job("many4")
        jobs = "disque_queue_jobs"
        assert until(lambda: value(small, jobs, queue="_other", state="pending") == 5)
        assert value(small, jobs, queue="_other", state="running") == 1
        assert len({labels["queue"] for labels, _ in samples(small)[jobs]}) == 3
        assert value(small, "disque_queues_other") == 3
        added = "disque_jobs_added_total"
        assert until(lambda: value(small, added) == 10)
        assert len({labels["queue"] for labels, _ in samples(small)[added]} - {"_other"}) <= 2


def test_reading_events_can_be_switched_off(make_gateway, nodes, queue):
    quiet = make_gateway(metrics_events="no")
    add(quiet, queue)
    assert value(quiet, "disque_jobs_added_total") is None
    assert value(quiet, "disque_node_jobs_added_total") >= 1


def test_lost_jobs_have_a_reason(make_gateway):
    """The node was killed between two flushes, so it is not certain that the job was not delivered."""
    with testing.node(appendonly=True, appendfsync="everysec") as node:
        gateway = make_gateway(node.url)
        with node.client() as client:
            client.add_job("once", b"", retry=0, replicate=1)
        time.sleep(1.5)
        node.kill()
        node.restart()
        lost = "disque_jobs_lost_total"
        assert until(lambda: value(gateway, lost, reason="restart") == 1, 20)


def test_jobs_of_a_leaving_node_have_a_reason(make_gateway):
    with testing.cluster(2) as cluster:
        gateway = make_gateway(cluster.url)
        with cluster[0].client(discover=False) as client:
            client.add_job("once", b"", retry=0, replicate=1)
            client.get_job("once")
            client.cluster_leaving(True)
        assert until(lambda: value(gateway, "disque_jobs_lost_total", reason="leaving") == 1, 20)


def test_records_that_a_power_cut_would_lose_have_an_age(make_gateway):
    with testing.node(appendonly=True, appendfsync="everysec") as node, node.client() as client:
        gateway = make_gateway(node.url)

        def is_seen():
            client.add_job("journaled", b"")
            return value(gateway, "disque_journal_unsynced_seconds") > 0

        assert until(is_seen)
        assert value(gateway, "disque_journal_unsynced_seconds") < 30


def test_a_dead_node_is_down_and_the_others_are_served(make_gateway):
    """After its restart the node is up, and its events are counted again."""
    with testing.cluster(3) as cluster:
        gateway = make_gateway(cluster.url)

        def ups():
            return sorted(number for _, number in samples(gateway)["disque_up"])

        assert until(lambda: ups() == [1, 1, 1], 20)
        cluster.kill(2)
        assert until(lambda: ups() == [0, 1, 1], 20)
        dead, alive = cluster[2].address, cluster[0].address
        assert value(gateway, "disque_up", node=dead) == 0
        assert until(lambda: value(gateway, "disque_link_up", node=alive, peer=dead) == 0, 20)
        assert value(gateway, "disque_uptime_seconds", node=dead) is None
        with cluster[0].client(discover=False) as client:
            client.add_job("after", b"", replicate=2)
        assert until(lambda: value(gateway, "disque_jobs_added_total", queue="after") == 1)
        assert until(lambda: value(gateway, "disque_queue_jobs", queue="after", state="pending") == 1)
        started = time.monotonic()
        samples(gateway)
        assert time.monotonic() - started < 3
        cluster.restart(2)
        assert until(lambda: ups() == [1, 1, 1], 20)
        with cluster[2].client(discover=False) as client:
            client.add_job("again", b"", replicate=1)
        assert until(lambda: value(gateway, "disque_jobs_added_total", queue="again") == 1, 20)


def test_a_stalled_node_does_not_hold_up_the_scrape(make_gateway):
    with testing.cluster(3) as cluster:
        gateway = make_gateway(cluster.url)
        assert until(lambda: [number for _, number in samples(gateway)["disque_up"]] == [1, 1, 1], 20)
        os.kill(cluster[1].pid, signal.SIGSTOP)
        try:
            longest = 0.0
            found = []
            while sorted(found) != [0, 1, 1]:  # For a moment, the page shows the state before the stop.
                started = time.monotonic()
                found = [number for _, number in samples(gateway)["disque_up"]]
                longest = max(longest, time.monotonic() - started)
            assert longest < LOOK_S + 3
        finally:
            os.kill(cluster[1].pid, signal.SIGCONT)
        assert until(lambda: [number for _, number in samples(gateway)["disque_up"]] == [1, 1, 1], 20)


def test_work_in_other_threads_holds_up_no_scrape(make_gateway):
    """Such work may wait for a node, or for an issuer of tokens."""
    gateway = make_gateway()
    ended = threading.Event()

    async def block():
        return [asyncio.create_task(asyncio.to_thread(ended.wait, 60)) for _ in range(64)]

    works = asyncio.run_coroutine_threadsafe(block(), gateway.loop).result()
    try:
        assert gateway.get("/metrics", timeout=10).status == 200
    finally:
        ended.set()
    assert until(lambda: all(work.done() for work in works))
