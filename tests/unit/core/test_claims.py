"""core/claims.py: the state of a node as voter and claimant."""

from __future__ import annotations

from brokers import add_node, make_broker
from cluster_bus.messages import VOTERS
from copies import sent
from disque_py.core.claims import Claims, note_change, send, voters_in_reach


def test_numbers_of_messages_are_never_used_twice():
    claims, next_process = Claims(b"\0\0\0\0\0\1run"), Claims(b"\0\0\0\0\0\2run")
    first = claims.next_number()
    assert claims.next_number() == first + 1
    assert next_process.next_number() > first + 1_000


def test_a_message_to_this_node_waits_for_the_end_of_the_turn():
    broker = make_broker()
    send(broker, broker.me, VOTERS, (1,))
    assert broker.claims.local == [(VOTERS, (1,))]
    assert broker.claims.is_due
    assert sent(broker) == []


def test_a_message_to_a_node_without_a_link_is_lost():
    broker = make_broker()
    send(broker, add_node(broker, 2, is_linked=False), VOTERS, (1,))
    send(broker, add_node(broker, 3), VOTERS, (2,))
    assert [item for _, _, item in sent(broker)] == [(2,)]


def test_a_change_is_written_at_the_end_of_the_turn():
    broker = make_broker()
    note_change(broker, 3, b"k")
    assert broker.claims.is_due
    assert list(broker.claims.unsaved) == [(3, b"k")]


def test_only_linked_voters_are_in_reach():
    broker = make_broker()
    linked, cut = add_node(broker, 2), add_node(broker, 3, is_linked=False)
    ids = dict.fromkeys([linked.id, cut.id, broker.me.id, b"x" * 20], b"")
    assert voters_in_reach(broker, ids) == [linked, broker.me]
