"""core/producer_waits.py: replies to waiting producers keep the order of the requests."""

from __future__ import annotations

from brokers import ask, make_client, make_cluster
from copies import add_waiting, confirm, queue_of
from disque_py.core.client import RUNNING


def test_replies_keep_the_order_of_requests():
    """The second job has its copies first, and its answer waits."""
    broker, b, c = make_cluster()
    producer, first = add_waiting(broker)
    _, second = add_waiting(broker, producer=producer)
    confirm(broker, second, b, c)
    assert producer.out == []
    confirm(broker, first, b, c)
    assert producer.out == [b"+%b\r\n" % first.id, b"+%b\r\n" % second.id]
    assert not producer.slots


def test_a_producer_with_replies_off_gets_no_reply_but_goes_on():
    broker, b, c = make_cluster()
    producer = make_client(broker)
    ask(broker, producer, "CLIENT", "REPLY", "OFF")
    _, job = add_waiting(broker, producer=producer)
    confirm(broker, job, b, c)
    assert (producer.out, producer.waiting) == ([], RUNNING)
    assert queue_of(broker) == [job.id]
