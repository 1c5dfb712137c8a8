"""Behaviour that kombu's own tests require of each transport."""

from __future__ import annotations

import socket
import threading
import time

import pytest

kombu = pytest.importorskip("kombu", reason="the extra celery is not installed")

from kombu import pools  # noqa: E402

import disque_py.integrations.kombu  # noqa: E402, F401
from disque_py.client import Address  # noqa: E402
from waits import eventually  # noqa: E402

NOWHERE = "disque://127.0.0.1:1?patience=0"


@pytest.fixture
def connection(shared_node):
    with kombu.Connection(shared_node.url) as made:
        yield made


@pytest.fixture
def queue(name):
    return kombu.Queue(name, kombu.Exchange(f"{name}-x", "direct"), routing_key="k")


def bodies(connection, queue, count, **options):
    """Consume a number of messages of a queue, and return their bodies."""
    found = []

    def note(body, message):
        found.append(body)
        message.ack()

    with kombu.Consumer(connection, [queue], callbacks=[note], accept=["json", "text/plain"], **options):
        while len(found) < count:
            connection.drain_events(timeout=60)
    return found


def test_connections_connect_close_and_connect_again(connection):
    connection.connect()
    assert connection.connected
    connection.close()
    assert not connection.connected
    connection.connect()
    assert connection.connected


def test_no_node_is_an_error_of_each_way_to_connect():
    with pytest.raises(ConnectionError):
        kombu.Connection(NOWHERE).connect()
    with pytest.raises(kombu.exceptions.OperationalError):
        kombu.Connection(NOWHERE).ensure_connection(max_retries=1, interval_start=0)
    with pytest.raises(kombu.exceptions.OperationalError):
        kombu.Connection(NOWHERE).default_channel  # noqa: B018


def test_a_channel_is_opened_and_closed(connection):
    channel = connection.channel()
    assert channel.connection is connection.transport
    channel.close()
    assert channel.closed
    assert connection.default_channel is connection.default_channel


def test_a_message_goes_through_an_exchange_by_its_key(connection, queue):
    with connection.Producer() as producer:
        producer.publish({"a": 1}, exchange=queue.exchange, routing_key="k", declare=[queue], headers={"n": 1})
        producer.publish("lost", exchange=queue.exchange, routing_key="other")
    assert bodies(connection, queue, 1) == [{"a": 1}]


def test_an_empty_queue_has_no_message(connection, queue):
    with kombu.Consumer(connection, [queue], callbacks=[print]), pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.2)
    assert queue(connection.default_channel).get() is None


def test_messages_keep_their_order(connection, queue):
    for number in range(50):
        connection.Producer().publish(number, exchange=queue.exchange, routing_key="k", declare=[queue])
    assert bodies(connection, queue, 50) == list(range(50))


def test_simple_queues_and_buffers_return_their_messages(connection, name):
    with connection.SimpleQueue(name) as simple:
        simple.put({"n": 1})
        simple.get(timeout=60).ack()
        with pytest.raises(simple.Empty):
            simple.get_nowait()
    with connection.SimpleBuffer(f"{name}-buffer") as simple:
        simple.put({"n": 2})
        assert simple.get(timeout=60).payload == {"n": 2}


def test_an_expired_message_is_not_delivered(connection, queue):
    connection.Producer().publish("old", exchange=queue.exchange, routing_key="k", declare=[queue], expiration=0.5)
    time.sleep(1)
    connection.Producer().publish("new", exchange=queue.exchange, routing_key="k")
    assert bodies(connection, queue, 1) == ["new"]


def test_a_message_that_is_put_back_keeps_its_priority(connection, name):
    queue = kombu.Queue(name)
    for priority in (9, 0, 5):
        connection.Producer().publish(priority, routing_key=name, declare=[queue], priority=priority)
    queue(connection.default_channel).get().requeue()
    found = []

    def next_one():
        message = queue(connection.default_channel).get()
        if message is not None:
            message.ack()
            found.append(message.payload)
        return len(found) == 3

    eventually(next_one)
    assert found == [0, 5, 9]


def test_unsettled_messages_are_recovered(connection, name):
    queue = kombu.Queue(name)
    connection.Producer().publish("again", routing_key=name, declare=[queue])
    channel = connection.channel()
    assert queue(channel).get().payload == "again"
    channel.basic_recover(requeue=True)
    found = eventually(lambda: queue(connection.default_channel).get())
    assert found.payload == "again"
    found.ack()


def test_a_message_is_settled_once(connection, name):
    queue = kombu.Queue(name)
    connection.Producer().publish("x", routing_key=name, declare=[queue])
    message = eventually(lambda: queue(connection.default_channel).get())
    message.ack()
    with pytest.raises(message.MessageStateError):
        message.reject()


def test_a_canceled_consumer_gets_no_more(connection, queue):
    found = []
    consumer = kombu.Consumer(connection, [queue], callbacks=[lambda body, message: found.append(body)], no_ack=True)
    consumer.consume()
    consumer.cancel()
    connection.Producer().publish("x", exchange=queue.exchange, routing_key="k", declare=[queue])
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.3)
    assert found == []
    assert bodies(connection, queue, 1) == ["x"]


def test_a_consumer_without_acknowledgements_leaves_nothing(connection, queue, client, name):
    connection.Producer().publish("x", exchange=queue.exchange, routing_key="k", declare=[queue])
    found = []
    with kombu.Consumer(connection, [queue], callbacks=[lambda body, message: found.append(body)], no_ack=True):
        while not found:
            connection.drain_events(timeout=60)
    eventually(lambda: not client.qlen(name) and not client.qlen(name, status="running"))


def test_pools_are_shared_by_threads(connection, queue):
    """Each thread publishes through a producer of the pool."""
    queue(connection.default_channel).declare()

    def publish(number):
        with pools.producers[connection].acquire(block=True) as producer:
            producer.publish(number, exchange=queue.exchange, routing_key="k", declare=[queue])

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bodies(connection, queue, 12)) == list(range(12))


def test_a_connection_is_described_without_its_password():
    made = kombu.Connection("disque://ada:secret@10.0.0.1:7711;disque://10.0.0.2:7711")
    assert "secret" not in made.as_uri()
    assert "secret" not in repr(made)
    info = made.info()
    assert info.pop("password") == "secret"  # Celery takes this field out before it sends the others.
    assert "secret" not in repr(info)


def test_an_unreachable_cluster_of_several_urls_is_tried_again(connection):
    """kombu must not take the next URL apart, because it knows no options of URLs and forgets the scheme."""
    words = "disque://ada:se%2Fcret@127.0.0.1:1?patience=0.1&visibility_timeout=7;disque://127.0.0.1:2"
    made = kombu.Connection(words)
    with pytest.raises(kombu.exceptions.OperationalError, match=r"127\.0\.0\.1"):
        made.ensure_connection(max_retries=2, interval_start=0)
    other = made.clone().transport
    assert other.urls == made.transport.urls
    assert other.options.nodes == (Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    assert (other.options.settings["password"], other.options.lease.seconds) == ("se/cret", 7)


def test_a_clone_is_a_connection_of_its_own(connection):
    other = connection.clone()
    with other:
        other.connect()
        assert other.transport is not connection.transport
