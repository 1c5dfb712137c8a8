"""core/rivals.py: the best job of other nodes."""

from __future__ import annotations

from brokers import add_node, make_broker
from disque_py.core.rivals import Rivals


def test_the_best_job_of_all_nodes_is_known():
    broker = make_broker()
    one, other = add_node(broker, 2), add_node(broker, 3)
    rivals = Rivals()
    rivals.note(one, (5, 1))
    rivals.note(other, (3, 9))
    assert (rivals.best, rivals.best_node) == ((3, 9), other)
    rivals.note(other, None)
    assert (rivals.best, rivals.best_node) == ((5, 1), one)
    rivals.note(one, None)
    assert (rivals.best, rivals.best_node) == (None, None)
