"""cluster_bus/node_table.py: one object per id. A group remains the same object while its members are the same."""

from __future__ import annotations

import pytest

from cluster_bus.node import FAIL, FORGOTTEN, HANDSHAKE, LEAVING, MYSELF, PFAIL, UNKNOWN, Node
from cluster_bus.node_table import NODES_MAX, NodeTable


def table_of(*names: int) -> NodeTable:
    table = NodeTable(Node(b"\x00" * 20))
    for name in names:
        table.enter(table.intern(bytes([name]) * 20))
    table.refresh()
    return table


def test_this_node_is_in_the_table_with_its_flag():
    table = table_of()
    assert table.nodes == {table.me.id: table.me}
    assert table.me.flags == MYSELF
    assert table.size == 1


def test_an_id_is_always_the_same_object():
    table = table_of(5)
    stranger = table.intern(b"s" * 20)
    assert stranger.flags == UNKNOWN
    assert table.intern(b"s" * 20) is stranger
    assert table.intern(b"\x05" * 20) is table.nodes[b"\x05" * 20]
    assert table.intern(table.me.id) is table.me
    assert b"s" * 20 not in table.nodes


def test_a_node_that_left_comes_back_as_the_same_object():
    table = table_of(5)
    node = table.nodes[b"\x05" * 20]
    table.remove(node)
    assert node.flags == FORGOTTEN
    table.enter(table.intern(node.id))
    assert table.nodes[node.id] is node
    assert not node.flags


def test_groups_are_sorted_by_id_and_the_same_tuple_while_nothing_changes():
    table = table_of(9, 3, 7)
    usable, epoch = table.usable, table.epoch
    assert [node.id[0] for node in usable] == [3, 7, 9]
    table.refresh()
    assert table.usable is usable
    assert table.epoch == epoch


@pytest.mark.parametrize(
    ("others", "missed", "counted"),
    [
        (2, 0, 2),
        (2, 1, 1),
        (2, 2, 2),  # This node is alone of three. It counts all nodes, so it refuses commands.
        (1, 1, 1),  # Half of the nodes is not a majority.
        (3, 1, 2),
        (3, 2, 3),
        (4, 2, 2),
        (4, 3, 4),
    ],
)
def test_nodes_out_of_sight_do_not_count_for_copies_while_a_majority_is_in_sight(others, missed, counted):
    table = table_of(*range(1, 1 + others))
    epoch = table.epoch
    for number in range(1, 1 + missed):
        table.nodes[bytes([number]) * 20].is_missed = True
    table.refresh()
    assert table.counted == counted
    assert (table.epoch > epoch) == (counted < others)


@pytest.mark.parametrize(
    ("others", "full", "missed", "counted"),
    [
        (2, 1, 0, 1),
        (2, 2, 0, 2),  # Two of three have no room. Jobs are refused, rather than kept on one node.
        (1, 1, 0, 1),
        (4, 2, 0, 2),
        (4, 1, 1, 2),
        (4, 2, 1, 3),  # Only two of five have room.
    ],
)
def test_nodes_without_room_do_not_count_for_copies_while_a_majority_has_room(others, full, missed, counted):
    """Spec C1."""
    table = table_of(*range(1, 1 + others))
    for number in range(1, 1 + full):
        table.nodes[bytes([number]) * 20].is_disk_failing = True
    for number in range(1 + full, 1 + full + missed):
        table.nodes[bytes([number]) * 20].is_missed = True
    table.refresh()
    assert table.counted == counted
    assert len(table.full) == full


@pytest.mark.parametrize(
    ("level", "is_disk_failing", "has_room"), [(1, False, True), (2, False, False), (0, True, False)]
)
def test_a_node_above_95_percent_or_with_a_failing_disk_has_no_room(level, is_disk_failing, has_room):
    """Spec C1, M2, P5."""
    node = Node(b"a" * 20)
    node.memory_level, node.is_disk_failing = level, is_disk_failing
    assert node.has_room is has_room


@pytest.mark.parametrize("flag", [PFAIL, FAIL, LEAVING])
def test_failing_and_leaving_nodes_are_counted_but_not_used(flag: int):
    table = table_of(3, 7)
    epoch = table.epoch
    table.nodes[b"\x03" * 20].flags |= flag
    table.refresh()
    assert [node.id[0] for node in table.usable] == [7]
    assert table.size == 3
    assert table.epoch == epoch + 1


def test_handshakes_are_in_the_table_and_in_no_group():
    table = table_of(3)
    table.enter(Node(b"h" * 20, "10.0.0.9", 7711, 17711, HANDSHAKE))
    table.refresh()
    assert (table.size, len(table.nodes), len(table.usable)) == (2, 3, 1)
    assert table.find(b"h" * 20) is None
    assert table.find_handshake("10.0.0.9", 7711) is not None
    assert table.find_handshake("10.0.0.9", 7712) is None


def test_linked_follows_the_links():
    table = table_of(3, 7)
    table.nodes[b"\x07" * 20].is_linked = True
    table.refresh()
    assert [node.id[0] for node in table.linked] == [7]


def test_a_node_may_change_its_own_id():
    table = table_of()
    me = table.me
    table.rename_me(b"n" * 20)
    assert me.name == b"6e" * 20
    assert table.nodes == {b"n" * 20: me}
    assert table.intern(b"n" * 20) is me
    assert table.intern(b"\x00" * 20) is not me


def test_ids_that_others_name_are_remembered_up_to_a_bound():
    """A peer must not be able to fill the node's memory with nodes that don't exist."""
    table = table_of()
    for number in range(NODES_MAX - 1):
        table.intern(number.to_bytes(20, "big") if number else b"\xff" * 20)
    with pytest.raises(ValueError, match="more nodes"):
        table.intern(b"\xfe" * 20)
