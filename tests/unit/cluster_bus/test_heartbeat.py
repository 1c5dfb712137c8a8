"""cluster_bus/heartbeat.py: the content of a heartbeat, and the choice of nodes in its gossip."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cluster_bus import heartbeat
from cluster_bus.codec import Decoder, FrameError, encode_run, frame
from cluster_bus.messages import PING
from cluster_bus.node import FAIL, HANDSHAKE, LEAVING, MYSELF, NOADDR, PFAIL, Node


def node(name: int, flags: int = 0, *, is_linked: bool = True) -> Node:
    made = Node(bytes([name]) * 20, "10.0.0.1", 7000 + name, 17000 + name, flags)
    made.is_linked = is_linked
    return made


def over_the_wire(item: Any) -> Any:
    ((run,),) = Decoder().feed(frame(1, [encode_run(PING, [item])]))
    return run[1]


def test_a_heartbeat_comes_back_unchanged():
    me, other = node(1, MYSELF | LEAVING), node(2, PFAIL)
    me.version, me.memory_level = "0.1", 2
    item = over_the_wire((heartbeat.header_map(me, "example.org"), [heartbeat.entry(other, 50)]))
    header, entries = heartbeat.read(item)
    assert header == heartbeat.Header("example.org", 7001, 17001, LEAVING, 2, "0.1")
    assert entries == [heartbeat.Entry(other.id, "10.0.0.1", 7002, 17002, PFAIL)]


def test_a_header_tells_of_a_failing_disk_only_then():
    """Nodes of older releases send nothing, and have room."""
    me = node(1)
    assert "disk" not in heartbeat.header_map(me, "")
    me.is_disk_failing = True
    header, _ = heartbeat.read(over_the_wire((heartbeat.header_map(me, ""), [])))
    assert header.is_disk_failing


def test_a_header_names_the_tls_port_only_if_there_is_one():
    """Nodes without TLS send the same bytes as before. A value that is not a port is ignored."""
    me = node(1)
    assert "tls_port" not in heartbeat.header_map(me, "")
    me.tls_port = 7801
    item = heartbeat.header_map(me, "")
    assert heartbeat.read(over_the_wire((item, [])))[0].tls_port == 7801
    assert heartbeat.read(over_the_wire((item | {"tls_port": -1}, [])))[0].tls_port == 0


def test_a_header_names_the_place_of_its_node_and_nothing_that_is_no_name():
    """Spec ZN1."""
    me = node(1)
    me.datacenter, me.zone = "eu", "rack 1"
    item = heartbeat.header_map(me, "")
    assert heartbeat.read(over_the_wire((item, [])))[0][7:9] == ("eu", "rack 1")
    for wrong in (7, "x" * 65, "a\nb", b"eu"):
        assert heartbeat.read(over_the_wire((item | {"zone": wrong}, [])))[0].zone == ""


def test_gossip_tells_ages_not_moments():
    other = node(2)
    assert heartbeat.entry(other, 5_000)[5:] == (-1, -1)
    other.ping_sent_ms, other.pong_received_ms = 4_000, 3_000
    assert heartbeat.entry(other, 5_000)[5:] == (1_000, 2_000)


def test_of_a_senders_own_flags_only_leaving_counts():
    item = over_the_wire((heartbeat.header_map(node(1), "") | {"flags": 0xFFFF}, []))
    assert heartbeat.read(item)[0].flags == LEAVING


def test_later_fields_and_positions_are_ignored():
    header = heartbeat.header_map(node(1), "") | {"colour": "b"}
    item = over_the_wire((header, [(*heartbeat.entry(node(2), 1), "more")], "and more"))
    assert heartbeat.read(item)[1][0].port == 7002


HEADER = heartbeat.header_map(node(1), "")


@pytest.mark.parametrize(
    "item",
    [
        7,
        [],
        [HEADER],
        [[], []],
        [HEADER, {}],
        [HEADER | {"port": "7001"}, []],
        [HEADER | {"bus_port": 70000}, []],
        [HEADER | {"host": "a b"}, []],
        [HEADER | {"flags": None}, []],
        [HEADER | {"memory": "low"}, []],
        [HEADER, [7]],
        [HEADER, [[]]],
        [HEADER, [[b"short", "h", 1, 1, 0, -1, -1]]],
        [HEADER, [[b"i" * 20, "h", 1, 1, 0, -1]]],
    ],
)
def test_a_malformed_heartbeat_is_a_frame_error(item: Any):
    with pytest.raises(FrameError, match="bad heartbeat"):
        heartbeat.read(item)


def test_invalid_levels_and_versions_are_limited():
    header = HEADER | {"memory": 99, "version": "v" * 500}
    read = heartbeat.read([header, []])[0]
    assert read.memory_level == heartbeat.MEMORY_LEVEL_MAX
    assert len(read.software) == 64
    assert heartbeat.read([HEADER | {"version": "a\nb"}, []])[0].software == ""


def test_no_node_gossips_about_itself_the_receiver_or_nodes_that_cannot_be_dialed():
    receiver = node(2)
    table = [node(1, MYSELF), receiver, node(3, HANDSHAKE), node(4, NOADDR), node(5, is_linked=False), node(6)]
    assert [each.port for each in heartbeat.choose(table, receiver, Random(1), is_greeting=True)] == [7006]


def test_failing_nodes_come_first_though_unlinked():
    table = [node(1, MYSELF), *[node(name) for name in range(2, 30)], node(30, FAIL, is_linked=False)]
    chosen = heartbeat.choose(table, table[1], Random(1))
    assert len(chosen) == 3
    assert chosen[0].port == 7030


def test_a_heartbeat_gossips_about_a_tenth_a_greeting_about_all_nodes():
    """Spec N2."""
    table = [node(1, MYSELF), *[node(name) for name in range(2, 61)]]
    assert len(heartbeat.choose(table, table[1], Random(1))) == 6
    assert len(heartbeat.choose(table, table[1], Random(1), is_greeting=True)) == 58


def test_many_failing_nodes_share_the_room():
    table = [node(1, MYSELF), *[node(name, FAIL) for name in range(2, 61)]]
    assert len(heartbeat.choose(table, table[1], Random(1))) == 6
