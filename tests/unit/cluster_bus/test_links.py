"""cluster_bus/links.py: when to dial, when to hang up, and which address to believe."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from cluster_bus.handshake import Hello
from cluster_bus.links import DIAL_GAP_MS_MAX, DIAL_GAP_MS_MIN, PROVEN_LINK_MS, SAVE_GAP_MS, Links
from cluster_bus.node import NOADDR, Node
from cluster_bus.node_table import NodeTable
from cluster_bus.tray import Tray

HELLO = Hello(b"b" * 20, b"run-one-", "", 7712, 17712, "0.1")


class Side(NamedTuple):
    """The links of one node, with the objects around them."""

    links: Links
    table: NodeTable
    tray: Tray


def links_with_node(announced_host: str = "") -> tuple[Side, Node]:
    """Return the links of a node that knows one other."""
    table, tray = NodeTable(Node(b"a" * 20, port=7711, bus_port=17711)), Tray()
    table.now_ms = 1_000_000
    side = Side(Links(table, tray, Random(1), announced_host), table, tray)
    node = table.intern(HELLO.id)
    node.host, node.port, node.bus_port = "10.0.0.2", 7712, 17712
    table.enter(node)
    table.refresh()
    return side, node


def test_a_dial_stays_in_the_tray_until_the_driver_takes_it():
    side, node = links_with_node()
    side.links.dial(node)
    assert list(side.tray.dials) == [node]
    assert node.is_dialing


def test_a_node_without_address_is_not_dialed():
    side, node = links_with_node()
    node.flags |= NOADDR
    side.links.dial(node)
    assert not side.tray.dials
    assert not node.is_dialing


def test_a_link_and_its_end_are_events():
    side, node = links_with_node()
    side.links.mark_up(node, HELLO, 1)
    assert (node.is_linked, node.run, node.protocol, node.spoken, node.version) == (True, b"run-one-", 1, 1, "0.1")
    side.links.redial(node)
    assert side.tray.link_events == [(node, True), (node, False)]
    assert (list(side.tray.hang_ups), list(side.tray.dials)) == ([node], [node])
    assert not node.is_linked


def test_hanging_up_takes_back_a_dial_of_the_same_turn():
    side, node = links_with_node()
    side.links.dial(node)
    side.links.hang_up(node)
    assert not side.tray.dials


def test_pauses_between_attempts_double_up_to_a_second_with_jitter():
    side, node = links_with_node()
    for gap_ms in (100, 200, 400, 800, 1000, 1000):
        side.links.back_off(node)
        assert gap_ms <= node.dial_at_ms - side.table.now_ms <= gap_ms * 3 // 2
    assert node.dial_gap_ms == DIAL_GAP_MS_MAX


def test_a_link_that_lasted_begins_the_pauses_anew_one_closed_at_once_does_not():
    """A node that forgot this one accepts the link and closes it. That must not cause a busy loop."""
    side, node = links_with_node()
    node.dial_gap_ms = DIAL_GAP_MS_MAX
    side.links.mark_up(node, HELLO, 1)
    side.links.back_off(node)
    assert node.dial_at_ms - side.table.now_ms >= DIAL_GAP_MS_MAX
    side.links.mark_up(node, HELLO, 1)
    side.table.now_ms += PROVEN_LINK_MS
    side.links.back_off(node)
    assert DIAL_GAP_MS_MIN <= node.dial_at_ms - side.table.now_ms < 2 * DIAL_GAP_MS_MIN


def test_another_run_of_a_node_is_news_the_first_one_is_not():
    side, node = links_with_node()
    side.links.learn_run(node, b"run-one-")
    side.links.learn_run(node, b"run-one-")
    assert side.tray.new_runs == []
    side.links.learn_run(node, b"run-two-")
    assert side.tray.new_runs == [node]


def test_a_node_takes_its_own_address_from_a_meet_or_while_it_has_none():
    side, _ = links_with_node()
    side.links.learn_own_host("10.0.0.1", is_met=False)
    side.links.learn_own_host("10.0.0.9", is_met=False)
    assert side.table.me.host == "10.0.0.1"
    side.links.learn_own_host("10.0.0.9", is_met=True)
    assert side.table.me.host == "10.0.0.9"
    assert side.tray.must_save


def test_an_announced_address_is_never_replaced():
    side, _ = links_with_node("disque.example.org")
    side.links.learn_own_host("10.0.0.1", is_met=True)
    assert side.table.me.host == "disque.example.org"


def test_an_unlinked_node_is_dialed_where_its_connections_come_from():
    side, node = links_with_node()
    side.links.learn_address_heard(node, "", 7712, 17712, "10.0.0.3", HELLO.run)
    assert (node.host, list(side.tray.dials), side.tray.address_changed) == ("10.0.0.3", [node], [node])


def test_a_link_that_reaches_the_process_outweighs_where_its_connections_come_from():
    """Behind a NAT, the address of an incoming connection can't be dialed."""
    side, node = links_with_node()
    side.links.mark_up(node, HELLO, 1)
    side.links.learn_address_heard(node, "", 7712, 17712, "172.17.0.1", HELLO.run)
    assert node.host == "10.0.0.2"
    assert not side.tray.hang_ups


def test_the_address_that_a_node_says_of_itself_counts_though_the_link_is_kept():
    side, node = links_with_node()
    side.links.mark_up(node, HELLO, 1)
    side.links.learn_address_heard(node, "b.example.org", 7800, 17800, "172.17.0.1", HELLO.run)
    assert (node.host, node.port, node.bus_port) == ("b.example.org", 7800, 17800)
    assert node.is_linked


def test_a_new_process_elsewhere_is_dialed_instead_of_the_old_link():
    side, node = links_with_node()
    side.links.mark_up(node, HELLO, 1)
    side.links.learn_address_heard(node, "", 7800, 17800, "10.0.0.2", b"run-two-")
    assert (list(side.tray.hang_ups), list(side.tray.dials)) == ([node], [node])


def test_a_lost_address_comes_back_with_the_nodes_own_word():
    side, node = links_with_node()
    side.links.lose_address(node)
    assert node.flags & NOADDR
    assert (node.host, node.port) == ("", 0)
    side.links.learn_address_heard(node, "", 7712, 17712, "10.0.0.2", HELLO.run)
    assert not node.flags & NOADDR
    assert list(side.tray.dials) == [node]


def test_a_node_that_moves_all_the_time_is_not_dialed_all_the_time():
    """A node's report of its address costs little.

    A connection per report would let it cause any number of connections.
    """
    side, node = links_with_node()
    for port in range(7800, 7900):
        side.links.learn_address_heard(node, "", port, port, "10.0.0.2", b"run-two-")
    assert not side.tray.dials
    assert node.dial_at_ms == side.table.now_ms + DIAL_GAP_MS_MIN
    side.table.now_ms += DIAL_GAP_MS_MIN
    side.links.learn_address_heard(node, "", 7900, 7900, "10.0.0.2", b"run-two-")
    assert (list(side.tray.hang_ups), list(side.tray.dials)) == ([node], [node])


def test_changes_by_others_are_saved_at_once_and_then_now_and_then():
    side, _ = links_with_node()
    side.links.save_soon()
    assert side.tray.must_save
    side.tray.must_save = False
    side.links.save_soon()
    assert not side.tray.must_save
    assert side.links.is_unsaved
    side.table.now_ms += SAVE_GAP_MS
    side.links.save_soon()
    assert side.tray.must_save
    assert not side.links.is_unsaved
