"""cluster_bus/outgoing.py: the messages of a turn are batched in order."""

from __future__ import annotations

from cluster_bus.messages import DELJOB, GOTJOB, PING
from cluster_bus.node import Node
from cluster_bus.outgoing import Outgoing

ONE, BOTH = (Node(b"1" * 20),), (Node(b"1" * 20), Node(b"2" * 20))


def test_consecutive_items_of_a_kind_for_the_same_nodes_are_one_run():
    outgoing = Outgoing()
    for job_id in (b"a", b"b", b"c"):
        outgoing.send(ONE, GOTJOB, job_id)
    assert outgoing.take() == [(ONE, GOTJOB, [b"a", b"b", b"c"])]


def test_another_kind_or_group_begins_a_run_and_order_is_kept():
    outgoing = Outgoing()
    outgoing.send(ONE, GOTJOB, b"a")
    outgoing.send(ONE, DELJOB, b"a")
    outgoing.send(BOTH, DELJOB, b"a")
    outgoing.send(ONE, DELJOB, b"b")
    assert [(nodes, kind) for nodes, kind, _ in outgoing.take()] == [
        (ONE, GOTJOB),
        (ONE, DELJOB),
        (BOTH, DELJOB),
        (ONE, DELJOB),
    ]


def test_a_new_turn_never_continues_a_run_that_was_taken():
    outgoing = Outgoing()
    outgoing.send(ONE, GOTJOB, b"a")
    taken = outgoing.take()
    outgoing.send(ONE, GOTJOB, b"b")
    assert taken == [(ONE, GOTJOB, [b"a"])]
    assert outgoing.take() == [(ONE, GOTJOB, [b"b"])]


def test_several_items_at_once_continue_a_run_or_begin_one():
    outgoing = Outgoing()
    items = [b"a", b"b"]
    outgoing.send_all(ONE, GOTJOB, items)
    outgoing.send_all(ONE, GOTJOB, [b"c"])
    outgoing.send(ONE, GOTJOB, b"d")
    outgoing.send_all(BOTH, GOTJOB, [b"e"])
    outgoing.send_all(ONE, DELJOB, [])
    assert outgoing.take() == [(ONE, GOTJOB, [b"a", b"b", b"c", b"d"]), (BOTH, GOTJOB, [b"e"])]
    assert items == [b"a", b"b"]


def test_a_node_is_left_out_of_messages_about_jobs():
    """The node runs as another process now. Heartbeats still reach it."""
    outgoing = Outgoing()
    outgoing.send(ONE, PING, b"hello")
    outgoing.send(ONE, GOTJOB, b"a")
    outgoing.send(BOTH, DELJOB, b"a")
    outgoing.leave_out(BOTH[0])
    assert outgoing.runs == [(ONE, PING, [b"hello"]), (ONE, GOTJOB, [b"a"]), (BOTH[1:], DELJOB, [b"a"])]
    outgoing.send(BOTH, DELJOB, b"b")
    assert outgoing.take()[-1] == (BOTH, DELJOB, [b"b"])


def test_an_item_that_is_sent_alone_is_a_run_of_its_own():
    outgoing = Outgoing()
    outgoing.send(ONE, GOTJOB, b"a")
    outgoing.send_alone(ONE, GOTJOB, b"b")
    outgoing.send(ONE, GOTJOB, b"c")
    assert [items for _, _, items in outgoing.take()] == [[b"a"], [b"b"], [b"c"]]


def test_a_node_that_ends_sends_nothing_more():
    """Spec O3."""
    outgoing = Outgoing()
    outgoing.send(ONE, GOTJOB, b"a")
    outgoing.shut()
    outgoing.send(ONE, GOTJOB, b"b")
    assert outgoing.take() == []
