"""core/settings_exchange.py: which nodes have confirmed which settings."""

from __future__ import annotations

from cluster_bus.node import Node
from disque_py.core.queue_settings import QueueState
from disque_py.core.settings_exchange import Exchange

A, B = Node(b"a" * 20), Node(b"b" * 20)


def state_of(number):
    state = QueueState()
    state.number = number
    return state


def test_a_node_that_has_all_settings_has_each_state_up_to_then():
    exchange = Exchange()
    exchange.confirmed[A] = 5
    assert exchange.has_confirmed(state_of(5), A)
    assert not exchange.has_confirmed(state_of(6), A)
    assert not exchange.has_confirmed(state_of(5), B)


def test_a_doubt_voids_all_that_a_node_has_confirmed():
    exchange = Exchange()
    state = state_of(7)
    exchange.confirmed[A] = 5
    state.confirmed[A] = state.confirmed[B] = 0
    exchange.doubt(A)
    assert not exchange.has_confirmed(state_of(5), A)
    assert [exchange.has_confirmed(state, node) for node in (A, B)] == [False, True]


def test_no_node_is_waited_for_once_all_are_forgotten():
    exchange = Exchange()
    exchange.asking[A] = None
    exchange.wait_until_ms = 9
    exchange.forget_nodes()
    assert (exchange.asking, exchange.wait_until_ms) == ({}, 0)
