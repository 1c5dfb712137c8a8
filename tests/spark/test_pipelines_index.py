"""pipelines/index.py and recency.py against a real cluster: the index agrees with the broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid

import pytest

from disque_py.client import Disque
from disque_py.spark.pipelines import index, recency
from disque_py.spark.query import questions
from disque_py.spark.query.tables import open_index
from runs import places as all_read
from runs import wait_readable
from servers import Cluster
from spark_stub import StubCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("nodes"), 2, ["--events", "yes"]) as nodes:
        yield nodes


def places(cluster) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)


def test_events_and_broker_agree_after_a_node_was_killed(spark, cluster, tmp_path):
    with Disque(*places(cluster).split(",")) as disque:
        disque.add_jobs("work", [f"job {number}" for number in range(200)], replicate=2)
        for job in disque.get_jobs("work", count=120):
            disque.ack(job)
    victim = cluster.servers[1]
    wait_readable(*cluster.servers)
    index.run(spark, places(cluster), str(tmp_path), trigger=None).awaitTermination()
    victim.kill()
    victim.restart()
    cluster.wait_whole()
    wait_readable(*cluster.servers)
    index.run(spark, places(cluster), str(tmp_path), trigger=None).awaitTermination()
    with open_index(str(tmp_path)) as db:
        states = dict(questions.ask(db, "SELECT to_state, count(*) FROM current GROUP BY 1").rows)
        twice = questions.ask(db, "SELECT node, log, seq FROM history GROUP BY ALL HAVING count(*) > 1").rows
    assert (states["completed"], sum(states.values()), twice) == (120, 200, [])


def test_an_index_that_lacks_an_unreachable_node_ends_with_an_error(tmp_path):
    """The events of the other nodes are indexed. The command finds a Java itself."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    with StubCluster(2) as stubs:
        for node in stubs.nodes:
            node.events(5)
        stubs.nodes[1].stop()
        words = ["index", "--once", "--nodes", stubs.servers, "--path", str(tmp_path / "index")]
        words += ["--metrics-file", str(tmp_path / "metrics")]
        done = subprocess.run(
            [sys.executable, "-m", "disque_py.spark.pipelines", *words],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"disque-events: warning: node {stubs.nodes[1].id} can't be reached" in done.stderr
    assert "disque-pipeline: 1 nodes could not be read from" in done.stderr
    assert 'nodes_away{query="index"} 1' in (tmp_path / "metrics").read_text()
    assert [node for node, _, _ in all_read(tmp_path)] == [stubs.nodes[0].id] * 5


def test_a_pipeline_that_fails_in_spark_prints_one_sentence(tmp_path):
    """Spark logs the same error with a Java trace first. Here the checkpoint's position is beyond the log's end."""
    checkpoint = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    with StubCluster() as stubs:
        (node,) = stubs.nodes
        node.events(5)
        begin = {node.id: {"log": node.log, "next": 50}}
        state = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
        lines = ["v1", json.dumps(state), json.dumps({"nodes": begin, "from": begin})]
        (checkpoint / "offsets" / "0").write_text("\n".join(lines))
        words = ["index", "--once", "--nodes", stubs.servers, "--path", str(tmp_path / "index"), "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "disque_py.spark.pipelines", *words, "--checkpoint", str(checkpoint)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"disque-pipeline: disque-events: node {node.id}: log {node.log} ends before 5" in done.stderr
    assert not [line for line in done.stderr.splitlines() if " ERROR " in line or line.startswith("\tat ")]


def test_recency_reads_jobs_as_changes(spark, cluster, tmp_path):
    for number, (op, key, member) in enumerate(
        [("add", "u", "a"), ("add", "u", "b"), ("upload", "", "a"), ("add", "u", "c"), ("remove", "u", "c")]
    ):
        meta = ["META", "op", op, "META", "key", key, "META", "member", member, "META", "at", str(1_000 + number)]
        cluster.servers[number % 2].command("ADDJOB", "changes", "x", 5000, *meta)
    # An invalid time must not end the query: the job's creation time counts.
    meta = ["META", "op", "add", "META", "key", "v", "META", "member", "a", "META", "at", "soon"]
    cluster.servers[0].command("ADDJOB", "changes", "x", 5000, *meta)
    wait_readable(*cluster.servers)
    recency.run(spark, places(cluster), str(tmp_path), trigger=None).awaitTermination()
    assert recency.latest(str(tmp_path), "u", 10) == [("a", 1_002), ("b", 1_001)]
    ((member, at_ms),) = recency.latest(str(tmp_path), "v", 10)
    assert (member, at_ms > 1_600_000_000_000) == ("a", True)
