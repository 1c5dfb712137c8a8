"""nodes.py: the nodes of the cluster, and one connection to each."""

from __future__ import annotations

import pytest

from disque_py.client import Address, NotConnectedError, ReplyError
from disque_py.spark.nodes import ClusterError, Nodes
from disque_py.spark.options import Options, cluster_options
from spark_stub import StubCluster

OPEN: list[Nodes] = []


@pytest.fixture(autouse=True)
def closed():
    """Connections are closed when the test is over."""
    yield
    while OPEN:
        OPEN.pop().close()


def nodes(servers: str, **more: str) -> Nodes:
    given = {"bootstrapServers": servers, **{name.replace("__", "."): value for name, value in more.items()}}
    OPEN.append(Nodes(cluster_options(Options("disque", given, given))))
    return OPEN[-1]


def test_any_node_names_all_nodes():
    with StubCluster(3) as cluster:
        found = nodes(cluster.nodes[2].place).discover()
        assert {node: place.address.port for node, place in found.items()} == {
            node.id: node.port for node in cluster.nodes
        }


def test_a_node_that_knows_no_other_node_is_not_taken_for_the_cluster():
    """It has left, or lost its directory. The list of bootstrap servers still begins with it."""
    with StubCluster(3) as cluster, StubCluster(1) as left:
        left.nodes[0].id = "f" * 40
        known = nodes(f"{left.servers},{cluster.servers}")
        assert set(known.discover()) == {node.id for node in cluster.nodes}
        for node in cluster.nodes:
            node.stop()
        known.close()
        assert set(known.discover()) == {left.nodes[0].id}
        known.close()


def test_a_dead_bootstrap_server_is_skipped_and_if_all_are_dead_the_error_names_them():
    with StubCluster(2) as cluster:
        cluster.nodes[0].stop()
        known = nodes(cluster.servers)
        assert len(known.discover()) == 2
        cluster.nodes[1].stop()
        known.close()
        with pytest.raises(ClusterError, match=rf"no node of bootstrapServers .*{cluster.nodes[1].port}"):
            known.discover()


def test_a_wrong_password_is_one_sentence_that_names_node_and_option():
    with StubCluster() as cluster:
        cluster.nodes[0].password = b"secret"
        with pytest.raises(
            ClusterError, match=rf"{cluster.nodes[0].port} needs a valid password.*set the option disque.password"
        ):
            nodes(cluster.servers, disque__password="wrong").discover()
        assert nodes(cluster.servers, disque__password="secret").discover()


def test_a_node_that_failed_is_not_tried_again_for_a_while():
    known = nodes("127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(NotConnectedError):
            known.ask(Address("127.0.0.1", 1), b"PING")
    assert list(known._resting) == [Address("127.0.0.1", 1)]


def test_connections_to_addresses_that_nodes_have_left_are_closed():
    with StubCluster(2) as cluster, StubCluster(1) as elsewhere:
        known = nodes(cluster.nodes[0].place)
        moved = cluster.nodes[1]
        before = known.discover()[moved.id].address
        assert known.ask(before, b"PING") == b"PONG"
        moved.port = elsewhere.nodes[0].port
        assert known.discover()[moved.id].address.port == moved.port
        assert list(known._connections) == [Address("127.0.0.1", cluster.nodes[0].port)]


def test_a_kept_connection_that_broke_is_replaced_and_refusals_are_raised():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        known = nodes(cluster.servers)
        address = known.discover()[node.id].address
        node.hang_up_after = 0
        assert known.ask(address, b"PING") == b"PONG"
        node.refuse[b"q"] = b"PAUSED not now"
        with pytest.raises(ReplyError, match="PAUSED"):
            known.ask(address, b"ADDJOB", b"q", b"", b"0")


def test_a_node_that_loads_its_journal_counts_as_away():
    """A query goes on without it, instead of ending when a node was restarted."""
    with StubCluster(2) as cluster:
        loading, other = cluster.nodes
        known = nodes(cluster.servers)
        address = known.discover()[loading.id].address
        loading.is_loading = True
        with pytest.raises(NotConnectedError, match="LOADING"):
            known.ask(address, b"QLEN", b"q")
        assert set(known.discover()) == {loading.id, other.id}
        assert set(nodes(cluster.servers).discover()) == {loading.id, other.id}
