"""core/replica_sets.py: nodes that new copies may go to."""

from __future__ import annotations

from collections import Counter

from brokers import add_node, make_broker
from cluster_bus.node import FAIL, LEAVING, PFAIL
from disque_py.core import replica_sets
from disque_py.core.replica_sets import ReplicaSets, choose


def make_cluster(count):
    broker = make_broker()
    return broker, [add_node(broker, number) for number in range(2, 2 + count)]


def test_only_usable_nodes_with_a_link_are_chosen():
    """Spec N1."""
    broker, nodes = make_cluster(5)
    for node, flag in zip(nodes, (PFAIL, FAIL, LEAVING), strict=False):
        node.flags |= flag
    nodes[3].is_linked = False
    broker.cluster.refresh()
    assert choose(broker, 5) == (nodes[4],)


def test_as_many_as_asked_for_and_none_that_is_excluded():
    broker, nodes = make_cluster(4)
    for _ in range(20):
        chosen = choose(broker, 2, frozenset(nodes[:2]))
        assert chosen == tuple(nodes[2:])
    assert len(choose(broker, 3)) == 3
    assert choose(broker, 0) == ()


def test_nodes_without_room_are_asked_only_if_too_few_others_are_left():
    """Spec C6."""
    broker, nodes = make_cluster(3)
    nodes[0].memory_level = 2
    broker.cluster.refresh()
    for _ in range(20):
        assert choose(broker, 2) == broker.copies.replica_sets.draw(broker, 2)[0] == tuple(nodes[1:])
    assert choose(broker, 3) == broker.copies.replica_sets.draw(broker, 3)[0] == tuple(nodes)


def test_the_same_group_is_the_same_tuple():
    """Messages of a turn then travel as one run (cluster_bus/outgoing.py)."""
    broker, _ = make_cluster(3)
    seen = {}
    for _ in range(50):
        group = choose(broker, 2)
        assert seen.setdefault(frozenset(group), group) is group
        drawn, _ = broker.copies.replica_sets.draw(broker, 2)
        assert seen.setdefault(frozenset(drawn), drawn) is drawn


def test_every_node_is_drawn_about_as_often():
    broker, nodes = make_cluster(4)
    counts = Counter(node for _ in range(2000) for node in broker.copies.replica_sets.draw(broker, 2)[0])
    assert set(counts) == set(nodes)
    assert all(850 < count < 1150 for count in counts.values())


def test_a_draw_names_the_holders_including_this_node():
    broker, nodes = make_cluster(2)
    targets, holders = broker.copies.replica_sets.draw(broker, 2)
    assert targets == tuple(nodes)
    assert holders is broker.sets.of((broker.me, *nodes))


def test_fewer_nodes_than_asked_for_are_all_of_them():
    broker, nodes = make_cluster(2)
    assert broker.copies.replica_sets.draw(broker, 5)[0] == tuple(nodes)
    lone = make_broker()
    assert lone.copies.replica_sets.draw(lone, 2) == ((), lone.sets.mine)


def test_a_change_of_the_cluster_counts_at_once():
    broker, nodes = make_cluster(2)
    broker.copies.replica_sets.draw(broker, 1)
    nodes[0].flags |= PFAIL
    broker.cluster.refresh()
    assert {broker.copies.replica_sets.draw(broker, 1)[0] for _ in range(20)} == {(nodes[1],)}
    new = add_node(broker, 9)
    assert {broker.copies.replica_sets.draw(broker, 1)[0] for _ in range(50)} == {(nodes[1],), (new,)}


def test_another_count_is_another_group():
    broker, _ = make_cluster(3)
    assert [len(broker.copies.replica_sets.draw(broker, count)[0]) for count in (1, 2, 1, 3)] == [1, 2, 1, 3]


def test_many_nodes_are_drawn_without_listing_all_groups(monkeypatch):
    monkeypatch.setattr(replica_sets, "REPLICA_SETS_MAX", 5)
    broker, nodes = make_cluster(6)
    drawn = ReplicaSets()
    found = [drawn.draw(broker, 3) for _ in range(100)]
    assert all(len(targets) == 3 and holders == {broker.me, *targets} for targets, holders in found)
    assert len({targets for targets, _ in found}) > 10
    assert {node for targets, _ in found for node in targets} == set(nodes)
