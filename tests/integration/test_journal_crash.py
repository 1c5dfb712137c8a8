"""Nodes are killed under load, and keep all acknowledged jobs. journal_rounds.py does the same for longer."""

from __future__ import annotations

import pytest

from journal_rounds import NODE_OPTIONS, Oracle, play_round
from servers import Cluster

LOAD_SECONDS = 0.6
DOWN_SECONDS = 0.2


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes with `appendfsync always`, and the knowledge of their jobs. Each test continues the one before."""
    options = (*NODE_OPTIONS, "--appendfsync", "always")
    with Cluster(tmp_path_factory.mktemp("three"), 3, options) as cluster:
        yield cluster, Oracle()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_acknowledged_is_lost_when_nodes_are_killed_at_once(three, count):
    """One node, two nodes, and all nodes are killed; the last is like a power cut of the whole cluster."""
    cluster, oracle = three
    added = len(oracle.added)
    play_round(cluster, oracle, cluster.servers[:count], load_seconds=LOAD_SECONDS, down_seconds=DOWN_SECONDS)
    assert len(oracle.added) > added + 100
    assert not any("Traceback" in server.output() for server in cluster.servers)


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_a_killed_process_loses_nothing_acknowledged_with_any_policy(tmp_path, policy):
    """Records are written (perhaps not synced) before the reply. Acknowledged jobs stay acknowledged."""
    with Cluster(tmp_path, 1, (*NODE_OPTIONS, "--appendfsync", policy)) as cluster:
        oracle = Oracle()
        play_round(cluster, oracle, cluster.servers, load_seconds=LOAD_SECONDS, down_seconds=DOWN_SECONDS)
        assert oracle.again == set()
