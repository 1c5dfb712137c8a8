"""core/rebalance.py: equal parts, and the fewest moves."""

from __future__ import annotations

from cluster_bus.node import Node
from disque_py.core.rebalance import Balance, parts_of


def nodes(*places):
    return [Node(bytes([number]) * 20) for number, _ in enumerate(places, 1)]


def planned(lengths, takers=None):
    made = nodes(*lengths)
    chosen = made if takers is None else [made[at] for at in takers]
    parts = parts_of(dict(zip(made, lengths, strict=True)), chosen)
    return [parts[node] for node in made]


def test_parts_are_equal_to_one_job_and_the_rest_stays_where_most_is():
    """Spec ZN7."""
    assert planned((0, 0, 10)) == [3, 3, 4]
    assert planned((5, 0, 6, 0)) == [3, 3, 3, 2]
    assert planned((0, 0, 0)) == [0, 0, 0]


def test_a_node_that_takes_none_keeps_its_jobs_or_the_common_part():
    """Spec ZN7."""
    assert planned((0, 30, 0), takers=(1, 2)) == [0, 15, 15]
    assert planned((2, 30, 1), takers=(1, 2)) == [2, 16, 15]
    assert planned((30, 0, 0), takers=(1, 2)) == [10, 10, 10]
    assert planned((4, 8), takers=()) == [4, 8]


def test_a_giver_serves_the_nearest_node_that_lacks_jobs():
    """Spec ZN7."""
    giver, far, near = nodes(1, 2, 3)
    far.datacenter = "west"
    balance = Balance({giver: 9, far: 0, near: 0}, [giver, far, near])
    assert balance.receiver_of(giver) is near
    assert [balance.grant(giver, near, 2), balance.grant(giver, near, 9)] == [2, 1]
    assert balance.receiver_of(giver) is far
    assert balance.grant(giver, far, 9) == 3
    assert balance.receiver_of(giver) is None
