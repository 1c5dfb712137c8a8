"""event_log.py: EVENTS INFO, READ and SEEK as a reader sees them."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="the extra disque-py[spark] is not installed")

from disque_py.client import Address, ReplyError
from disque_py.spark.event_log import LogState, NoLogError, Slice, log_state, read_slice, seek
from disque_py.spark.nodes import ClusterError, Nodes
from disque_py.spark.options import Options, cluster_options
from spark_stub import StubCluster


@pytest.fixture
def asked():
    with StubCluster() as cluster:
        known = Nodes(
            cluster_options(Options("disque-events", {"bootstrapServers": cluster.servers}, ["bootstrapServers"]))
        )
        yield cluster.nodes[0], known, Address("127.0.0.1", cluster.nodes[0].port)
        known.close()


def test_the_state_of_a_log_is_read(asked):
    node, known, address = asked
    node.events(3)
    node.trim(1)
    assert log_state(known, address) == LogState("log1a", 1, 3, sum(map(len, node.lines)))


def test_a_slice_is_whole_lines_from_a_number_on(asked):
    node, known, address = asked
    node.events(5)
    assert read_slice(known, address, "log1a", 2, 2, 1 << 20) == Slice(b"".join(node.lines[2:4]), 4)


def test_trimmed_events_and_unknown_logs_are_reported_not_raised(asked):
    node, known, address = asked
    node.events(5)
    node.trim(3)
    assert read_slice(known, address, "log1a", 0, 9, 1 << 20) == Slice(b"", 0, trimmed_to=3)
    assert read_slice(known, address, "another", 0, 9, 1 << 20) == Slice(b"", 0, is_log_known=False)


def test_a_time_becomes_an_event_number(asked):
    node, known, address = asked
    node.events(5)
    assert seek(known, address, 1_700_000_000_011) == 2


def test_a_node_without_a_log_says_what_to_configure(asked):
    node, known, address = asked

    def refuse(argv):
        return b"-ERR unknown command 'EVENTS'\r\n"

    node.on_events = refuse
    with pytest.raises(ClusterError, match="set `events yes`"):
        log_state(known, address)
    with pytest.raises(ReplyError):
        seek(known, address, 1)


def test_a_user_without_the_right_to_events_is_not_sent_to_the_configuration_of_the_node(asked):
    node, known, address = asked
    node.on_events = lambda _: b"-NOPERM this user has no permissions to run the 'events' command\r\n"
    with pytest.raises(ClusterError, match="give the user the right to EVENTS") as refused:
        log_state(known, address)
    assert not isinstance(refused.value, NoLogError)  # A node without a log counts as away.
