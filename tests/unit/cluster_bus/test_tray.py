"""cluster_bus/tray.py: each notice for the log names the node that it is about."""

from __future__ import annotations

from cluster_bus.node import Node
from cluster_bus.tray import Tray


def test_a_new_tray_is_empty():
    tray = Tray()
    assert (tray.hang_ups, tray.dials, tray.new_runs, tray.link_events) == ({}, {}, [], [])
    assert (tray.forgotten, tray.address_changed, tray.notices) == ([], [], [])
    assert (tray.must_write, tray.must_save) == (False, False)


def test_a_notice_names_node_address_and_bus_port():
    tray = Tray()
    tray.note("node-joined", Node(b"a" * 20, "10.0.0.1", 7711, 17711))
    assert tray.notices == [("node-joined", {"node": "61" * 20, "address": "10.0.0.1:7711", "bus_port": 17711})]


def test_a_notice_has_a_reason_only_if_there_is_one():
    tray = Tray()
    tray.note("node-failed", Node(b"a" * 20), "a majority agrees")
    assert tray.notices[0][1]["reason"] == "a majority agrees"
