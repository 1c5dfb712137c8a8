"""adding.py: every row gets its reply, from one node or another."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark import adding
from disque_py.spark.adding import Adder, RefusedError, Tally
from disque_py.spark.job_columns import ADD_OPTIONS, add_words
from disque_py.spark.nodes import ClusterError
from disque_py.spark.options import Options, cluster_options
from spark_stub import StubCluster


def add(cluster: StubCluster, count: int, on_error: str = "fail", queues: tuple[str, ...] = ("q",)) -> Tally:
    words = add_words(Options("disque", {}, ADD_OPTIONS))
    reach = cluster_options(Options("disque", {"bootstrapServers": cluster.servers}, ["bootstrapServers"]))
    rows = {"body": [str(number) for number in range(count)], "queue": [queues[n % len(queues)] for n in range(count)]}
    return Adder(reach, words, on_error).add_all([pa.record_batch(rows)])


def add_columns(cluster: StubCluster, columns: dict, on_error: str = "fail", **options: str) -> Tally:
    words = add_words(Options("disque", options, ADD_OPTIONS))
    reach = cluster_options(Options("disque", {"bootstrapServers": cluster.servers}, ["bootstrapServers"]))
    return Adder(reach, words, on_error).add_all([pa.record_batch(columns)])


def bodies_of(cluster: StubCluster) -> list[bytes]:
    return [argv[2] for node in cluster.nodes for argv in node.added]


def bodies(cluster: StubCluster) -> list[int]:
    return [int(argv[2]) for node in cluster.nodes for argv in node.added]


def test_all_rows_are_added_in_their_order():
    with StubCluster() as cluster:
        tally = add(cluster, 3000)
        assert bodies(cluster) == list(range(3000))
        assert (tally.rows, tally.added) == (3000, 3000)


def test_rows_without_a_reply_are_sent_again_when_a_connection_breaks():
    """A row without a reply may be sent twice, but is never left out."""
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.hang_up_after = 500
        add(cluster, 3000)
        assert set(bodies(cluster)) == set(range(3000))


def test_rows_go_to_another_node_when_one_stays_silent_for_longer_than_the_patience(monkeypatch):
    """For example, its process is stopped (SIGSTOP). A node may be silent for timeoutMs and disque.timeoutMs."""
    monkeypatch.setattr(adding, "PATIENCE_S", 0.2)
    numbers = iter([0])  # The silent node is the first choice.
    monkeypatch.setattr(adding.random, "choice", lambda places: places[next(numbers, 1)])
    with StubCluster(2) as cluster:
        silent, other = cluster.nodes
        goes_on = threading.Event()
        silent.on_addjob = lambda argv: b"+OK\r\n" if goes_on.wait(30) else b""
        given = {"bootstrapServers": other.place, "disque.timeoutMs": "300", "disque.connectTimeoutMs": "300"}
        reach = cluster_options(Options("disque", given, given))
        words = add_words(Options("disque", {"queue": "q", "timeoutMs": "100"}, ADD_OPTIONS))
        tally = Adder(reach, words, "fail").add_all([pa.record_batch({"body": ["a", "b"]})])
        goes_on.set()
        assert (tally.added, len(other.added)) == (2, 2)


def test_a_leaving_node_gets_no_more_rows_and_another_node_gets_the_rest():
    with StubCluster(2) as cluster:
        leaving = cluster.nodes[0]
        leaving.refuse[b"q"] = b"LEAVING this node is leaving"
        add(cluster, 100)
        assert sorted(bodies(cluster)) == list(range(100))
        assert leaving.added == []


def test_a_refused_row_fails_the_task_with_node_queue_and_reason():
    with StubCluster() as cluster:
        cluster.nodes[0].refuse[b"b"] = b"OOM no memory"
        with pytest.raises(RefusedError, match=rf"{cluster.nodes[0].port} refused 5 of 10 rows, .* 'b' with: OOM"):
            add(cluster, 10, queues=("a", "b"))


def test_the_error_names_the_queue_of_the_option():
    with StubCluster() as cluster:
        cluster.nodes[0].refuse[b"q"] = b"OOM no memory"
        with pytest.raises(RefusedError, match="the first for queue 'q' with: OOM"):
            add_columns(cluster, {"body": ["a"]}, queue="q")


def test_refused_rows_are_counted_by_code_and_returned_with_route():
    with StubCluster() as cluster:
        cluster.nodes[0].refuse[b"b"] = b"PAUSED not now"
        assert add(cluster, 10, "skip", ("a", "b")).refused == {"PAUSED": 5}
        routed = add(cluster, 10, "route", ("a", "b")).routed[0].to_pylist()
        assert [row["body"] for row in routed] == ["1", "3", "5", "7", "9"]
        assert routed[0] | {"body": ""} == {"body": "", "queue": "b", "code": "PAUSED", "reason": "PAUSED not now"}


META = pa.map_(pa.string(), pa.string())
HOLES = {
    "body": ["a", None, "c", "d"],
    "queue": ["q", "q", None, "q"],
    "meta": pa.array([[("k", "v")], None, [], [("k", "v"), ("l", None)]], META),
}
REASONS = ["the column body is null", "the column queue is null", "a value in the column meta is null"]


def test_rows_with_nulls_fail_the_task_before_one_of_their_batch_is_added():
    with StubCluster() as cluster:
        with pytest.raises(RefusedError, match=r"3 of 4 rows .* the first one: the column body is null"):
            add_columns(cluster, HOLES)
        assert bodies_of(cluster) == []


def test_rows_with_nulls_are_skipped_or_routed_as_other_bad_rows_are():
    with StubCluster() as cluster:
        tally = add_columns(cluster, HOLES, "skip")
        assert (tally.rows, tally.added, tally.refused) == (4, 1, {"NULL": 3})
        tally = add_columns(cluster, HOLES, "route")
        assert bodies_of(cluster) == [b"a", b"a"]
        routed = [row for batch in tally.routed for row in batch.to_pylist()]
        assert [(row["code"], row["reason"]) for row in routed] == [("NULL", reason) for reason in REASONS]


def test_a_null_in_the_column_queue_is_ignored_when_the_option_queue_is_set():
    with StubCluster() as cluster:
        assert add_columns(cluster, {"body": ["a"], "queue": pa.array([None], pa.string())}, queue="q").added == 1


def test_rows_that_no_node_accepts_fail_the_task_after_a_while(monkeypatch):
    monkeypatch.setattr(adding, "PATIENCE_S", 0.3)
    with StubCluster() as cluster:
        cluster.nodes[0].stop()
        with pytest.raises(ClusterError, match="no node took 10 rows"):
            add(cluster, 10)


def test_a_cluster_of_leaving_nodes_is_asked_a_few_times_a_second(monkeypatch):
    monkeypatch.setattr(adding, "PATIENCE_S", 0.5)
    with StubCluster() as cluster:
        node, asked = cluster.nodes[0], []
        monkeypatch.setattr(node, "on_addjob", lambda argv: asked.append(argv) or b"-LEAVING this node is leaving\r\n")
        with pytest.raises(ClusterError, match=r"no node took 10 rows .*every node is leaving or loading"):
            add(cluster, 10)
        assert len(asked) <= 50
