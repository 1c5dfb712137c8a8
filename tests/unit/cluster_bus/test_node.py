"""cluster_bus/node.py: one object per node, identified by the node's id."""

from __future__ import annotations

from cluster_bus.node import FAIL, FORGOTTEN, LEAVING, MYSELF, NOADDR, PFAIL, Node


def test_clients_see_the_id_as_forty_hex_digits():
    assert Node(bytes(range(20))).name == b"000102030405060708090a0b0c0d0e0f10111213"


def test_two_nodes_are_equal_only_if_they_are_one():
    assert Node(b"n" * 20) != Node(b"n" * 20)


def test_flags_are_printed_in_the_order_of_cluster_nodes():
    assert (
        Node(b"n" * 20, flags=LEAVING | NOADDR | FAIL | PFAIL | MYSELF).flag_text()
        == "myself,fail?,fail,noaddr,leaving"
    )


def test_a_node_without_flags_to_show_says_so():
    assert Node(b"n" * 20, flags=FORGOTTEN).flag_text() == "noflags"


def test_a_node_shows_its_short_name_address_and_flags():
    assert repr(Node(b"n" * 20, "10.0.0.1", 7711, flags=FAIL)) == "<Node 6e6e6e6e 10.0.0.1:7711 fail>"
