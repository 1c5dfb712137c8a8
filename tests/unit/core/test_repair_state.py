"""core/repair_state.py: the state of repairs."""

from __future__ import annotations

from brokers import add_node, make_broker
from cluster_bus.node import Node
from copies import hold
from disque_py.core.repair_state import Repairs, Turn, Walk

A, B = Node(b"a" * 20), Node(b"b" * 20)


def test_a_walk_looks_at_each_shard_once_per_node():
    """Also for a node that is added in the middle: the walk goes around."""
    walk = Walk()
    walk.add(A, 3)
    assert walk.passed() == []
    walk.add(B, 3)
    assert [walk.passed() for _ in range(3)] == [[], [A], [B]]
    assert not walk.left


def test_a_walk_names_the_sets_of_its_nodes():
    walk = Walk()
    walk.add(A, 1)
    assert walk.names(frozenset((A, B)))
    assert not walk.names(frozenset((B,)))
    walk.add(B, 2)
    assert walk.names(frozenset((B,)))
    walk.passed()
    assert not walk.names(frozenset((A,)))


def test_nothing_is_left_of_jobs_that_are_forgotten():
    """DEBUG FLUSHALL."""
    broker = make_broker()
    node = add_node(broker)
    job = hold(broker, node)
    repairs = Repairs()
    repairs.turns[job] = Turn(0)
    repairs.named[job] = (node,)
    repairs.to_go_on[job] = repairs.to_ask[job] = None
    repairs.noted.append((job, node, -1))
    repairs.forget_jobs()
    assert not any((repairs.turns, repairs.named, repairs.to_go_on, repairs.to_ask, repairs.noted))
    assert not repairs.is_walking
