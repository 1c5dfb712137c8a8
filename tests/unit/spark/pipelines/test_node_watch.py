"""pipelines/node_watch.py: a node that a pipeline can't read from is counted, and not forgotten until the end."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.events_planning import EventPlanner, event_options
from disque_py.spark.pipelines.node_watch import NodeWatch
from spark_stub import StubCluster


def watch_of(cluster: StubCluster, **given: float) -> NodeWatch:
    return NodeWatch(EventPlanner(event_options({"bootstrapServers": cluster.servers}, is_stream=True)), **given)


def test_a_node_that_was_away_once_is_reported_at_the_end():
    with StubCluster(2) as cluster:
        away = cluster.nodes[1]
        watch = watch_of(cluster)
        port, away.port = away.port, 1
        assert watch.look() == 1
        away.port = port
        assert watch.look() == 0
        watch.end()
        assert f"node {away.id}: 127.0.0.1:1: " in watch.sentence()


def test_the_last_check_is_at_the_end():
    with StubCluster(2) as cluster:
        watch = watch_of(cluster)
        assert (watch.look(), watch.sentence()) == (0, "")
        cluster.nodes[1].stop()
        watch.end()
        assert watch.sentence().startswith("1 nodes could not be read from")


def test_the_watch_checks_periodically_and_reports_how_many_nodes_are_away():
    with StubCluster(2) as cluster:
        watch, told, changed = watch_of(cluster, period_s=0.02), [], threading.Event()

        def tell(count: int) -> None:
            told.append(count)
            changed.set()

        watch.start(tell)
        assert changed.wait(10)
        cluster.nodes[1].stop()
        while 1 not in told:
            changed.clear()
            assert changed.wait(10)
        watch.end()
        assert set(told) == {0, 1}
