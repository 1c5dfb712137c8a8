"""core/node_sets.py: equal sets are one object, and derived values are computed once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bus.node import FORGOTTEN, Node
from disque_py.core import node_sets
from disque_py.core.node_sets import EMPTY, NodeSets

NODES = [Node(bytes([number]) * 20) for number in range(1, 7)]
ME = NODES[2]
KNOWN = {node.id: node for node in NODES}


def make_sets():
    known = dict(KNOWN)
    return NodeSets(ME, lambda node_id: known.setdefault(node_id, Node(node_id)))


replica_sets = st.lists(st.sampled_from(NODES), max_size=6)


@settings(max_examples=100, deadline=None)
@given(left=replica_sets, right=replica_sets, one=st.sampled_from(NODES))
def test_sets_are_sets_and_each_is_one_object(left, right, one):
    sets = make_sets()
    first, second = sets.of(left), sets.of(right)
    assert first == set(left)
    assert sets.of(reversed(left)) is first
    assert sets.union(first, second) is sets.of((*left, *right))
    assert sets.union(second, first) is sets.union(first, second)
    assert sets.add(first, one) is sets.of((*left, one))
    assert (first is sets.mine) == (set(left) == {ME})
    assert (first is EMPTY) == (not left)


@settings(max_examples=100, deadline=None)
@given(group=replica_sets)
def test_a_set_survives_conversion_to_bytes_and_back(group):
    sets = make_sets()
    nodes = sets.of(group)
    data = sets.pack(nodes)
    assert data == b"".join(sorted(node.id for node in set(group)))
    assert sets.unpack(data) is nodes
    assert make_sets().unpack(data) == nodes


@settings(max_examples=100, deadline=None)
@given(group=replica_sets)
def test_the_others_are_all_but_this_node_by_id_and_always_the_same_tuple(group):
    sets = make_sets()
    others = sets.others(sets.of(group))
    assert list(others) == sorted(set(group) - {ME}, key=lambda node: node.id)
    assert sets.others(sets.of(group)) is others
    if len(others) == 1:
        assert sets.only(others[0]) is others


def test_a_node_that_joins_a_set_is_named_by_it():
    """A newcomer may say that it holds a job; membership keeps nodes that jobs name."""
    named = []

    def intern(node_id):
        named.append(node_id)
        return KNOWN[node_id]

    sets = NodeSets(ME, intern)
    sets.add(sets.mine, NODES[0])
    assert named == [NODES[0].id]


def test_the_union_of_empty_sets_makes_no_new_object():
    sets = make_sets()
    assert sets.union(sets.mine, EMPTY) is sets.mine
    assert sets.union(EMPTY, sets.mine) is sets.mine
    assert sets.others(sets.mine) == ()


@pytest.mark.parametrize("size", [1, 19, 21, 39])
def test_bytes_that_are_not_a_whole_number_of_ids_are_refused(size):
    with pytest.raises(ValueError, match="multiple of 20"):
        make_sets().unpack(b"x" * size)


def test_ids_may_come_unsorted_and_twice():
    """A peer of another version packs as it likes."""
    sets = make_sets()
    assert sets.unpack(NODES[4].id + NODES[0].id + NODES[4].id) is sets.of((NODES[0], NODES[4]))


def test_a_forgotten_node_is_not_named_until_it_comes_back():
    """Others would wait for its confirmation."""
    gone = Node(b"\x09" * 20)
    sets = NodeSets(ME, lambda node_id: gone)
    nodes = sets.of((ME, gone))
    gone.flags |= FORGOTTEN
    assert sets.pack(nodes) == ME.id
    gone.flags = 0
    sets.forget_packed()
    assert sets.pack(nodes) == ME.id + gone.id


def test_names_are_sorted_as_clients_see_them():
    assert make_sets().names((NODES[1], NODES[0])) == [b"01" * 20, b"02" * 20]


@pytest.mark.plain
def test_memory_of_sets_is_bounded(monkeypatch):
    """Other nodes choose the sets that we see. Afterwards sets are made anew, equal to the old ones."""
    monkeypatch.setattr(node_sets, "SETS_MAX", 10)
    sets = make_sets()
    kept = sets.of(NODES[:2])
    for number in range(200):
        node_id = b"%020d" % number
        assert sets.unpack(node_id + ME.id) == {ME} | sets.unpack(node_id)
        sets.pack(sets.add(kept, NODES[number % 6]))
        sets.others(sets.union(kept, sets.unpack(node_id)))
    memories = (sets._known, sets._added, sets._united, sets._others, sets._packed, sets._unpacked)
    assert max(map(len, memories)) <= 12
    assert sets.of(NODES[:2]) == kept
    assert sets.of((ME,)) is sets.mine


@pytest.mark.plain
def test_few_large_sets_are_bounded_like_many_small_ones(monkeypatch):
    """Fifty thousand sets of a thousand nodes would be gigabytes. So would one of them, named in as many orders."""
    monkeypatch.setattr(node_sets, "MEMBERS_MAX", 1_000)
    sets = make_sets()
    ids = [b"%020d" % number for number in range(110)]
    for number in range(100):
        sets.unpack(b"".join(ids[:number] + ids[number + 10 :]))
        sets.unpack(b"".join(ids[number:] + ids[:number]))
        assert sum(map(len, sets._known)) <= 1_300
        assert sum(map(len, sets._unpacked)) <= 1_300 * 20


def test_the_bytes_of_sets_are_made_anew_when_the_id_of_the_node_changes():
    me = Node(b"\x01" * 20)
    sets = NodeSets(me, lambda node_id: me)
    assert sets.pack(sets.mine) == b"\x01" * 20
    me.id = b"\x02" * 20
    sets.forget_all()
    assert sets.pack(sets.mine) == b"\x02" * 20


def test_a_set_of_very_many_nodes_is_refused():
    with pytest.raises(ValueError, match="set of nodes"):
        make_sets().unpack(bytes(node_sets.SET_BYTES_MAX + 20))
