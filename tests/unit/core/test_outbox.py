"""core/outbox.py: the output of the core for the outside."""

from __future__ import annotations

from brokers import make_broker
from cluster_bus.messages import GOTJOB
from cluster_bus.outgoing import Outgoing
from disque_py.core.outbox import Outbox


def test_a_new_outbox_is_empty():
    outbox = Outbox(Outgoing())
    assert (outbox.gone.count, outbox.pauses, outbox.is_void) == (0, {}, False)
    assert (outbox.messages.runs, outbox.clients) == ([], {})


def test_sent_messages_are_in_the_outbox():
    broker = make_broker()
    nodes = (broker.me,)
    broker.outbox.send(nodes, GOTJOB, b"id")
    broker.send(nodes, GOTJOB, b"id2")
    assert broker.outbox.messages.take() == [(nodes, GOTJOB, [b"id", b"id2"])]
