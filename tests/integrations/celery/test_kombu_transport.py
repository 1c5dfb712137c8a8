"""The transport with kombu alone, against a real node."""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
import time

import pytest

kombu = pytest.importorskip("kombu", reason="the extra celery is not installed")

import disque_py.integrations.kombu  # noqa: E402, F401
from disque_py.testing import cluster  # noqa: E402
from waits import eventually  # noqa: E402


@pytest.fixture
def connection(shared_node):
    with kombu.Connection(shared_node.url, transport_options={"visibility_timeout": 2}) as made:
        yield made


@pytest.fixture
def queue(connection, request):
    simple = connection.SimpleQueue(request.node.name)
    yield simple
    simple.close()


def drained(connection, consumer, count, seconds=60):
    """Return the bodies of a number of messages."""
    found = []
    consumer.register_callback(lambda body, message: (found.append(body), message.ack()))
    with consumer:
        until = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < until:
            connection.drain_events(timeout=seconds)
    return found


def test_a_message_is_delivered_and_acknowledged(shared_node, connection, queue, request):
    queue.put({"a": 1})
    message = queue.get(timeout=60)
    assert (message.payload, message.delivery_info["redelivered"]) == ({"a": 1}, False)
    message.ack()
    connection.close()
    with shared_node.client() as client:
        assert client.qlen(request.node.name, cluster=True) == 0


def test_bodies_of_bytes_and_compressed_bodies_arrive(queue):
    queue.put(b"\x00\xff", serializer=None, headers={"n": 1})
    message = queue.get(timeout=60)
    assert (message.body, message.headers["n"]) == (b"\x00\xff", 1)
    message.ack()
    queue.put({"long": "x" * 10_000}, compression="zlib")
    assert len(queue.get(timeout=60).payload["long"]) == 10_000


def test_a_requeued_message_is_marked_and_waits_the_second_time(queue):
    queue.put("again")
    queue.get(timeout=60).requeue()
    second = queue.get(timeout=60)
    assert second.delivery_info["redelivered"]
    began = time.monotonic()
    second.requeue()
    queue.get(timeout=60).ack()
    assert time.monotonic() - began > 0.8


def test_a_rejected_message_is_errored(shared_node, queue, request):
    queue.put("no")
    queue.get(timeout=60).reject()
    with shared_node.client() as client:
        eventually(lambda: client.qlen(request.node.name, status="errored"))


def test_an_unsettled_message_keeps_its_lease_and_goes_back_with_its_connection(shared_node, queue, request):
    queue.put("held")
    queue.get(timeout=60)
    with kombu.Connection(shared_node.url) as other, other.SimpleQueue(request.node.name) as second:
        with pytest.raises(second.Empty):
            second.get(timeout=4)  # Twice the lease.
        queue.channel.connection.client.close()
        assert second.get(timeout=60).payload == "held"


def test_a_fanout_exchange_reaches_queues_of_other_programs(shared_node, connection):
    news = kombu.Exchange("news", "fanout")
    with kombu.Connection(shared_node.url) as one, kombu.Connection(shared_node.url) as two:
        first = one.Consumer([kombu.Queue("news.1", news, auto_delete=True)])
        second = two.Consumer([kombu.Queue("news.2", news, auto_delete=True)])
        connection.Producer().publish("hello", exchange=news, declare=[news])
        assert (drained(one, first, 1), drained(two, second, 1)) == (["hello"], ["hello"])
    with shared_node.client() as client:
        assert [each for each in client.topics() if each.queue.startswith("news.")] == []


def test_a_topic_exchange_matches_the_routing_keys_of_other_programs(shared_node, connection):
    weather = kombu.Exchange("weather", "topic")
    with kombu.Connection(shared_node.url) as other:
        consumer = other.Consumer([kombu.Queue("weather.1", weather, routing_key="eu.#", auto_delete=True)])
        for key in ("us.ny", "eu.fr.paris"):
            connection.Producer().publish(key, exchange=weather, routing_key=key, declare=[weather])
        assert drained(other, consumer, 1) == ["eu.fr.paris"]
        with pytest.raises(socket.timeout):
            other.drain_events(timeout=0.2)


@pytest.mark.parametrize(("kind", "key"), [("fanout", "other"), ("topic", "eu.fr")])
def test_a_program_need_not_declare_an_exchange_that_others_have(shared_node, connection, kind, key):
    """As Celery, when it sends a task to a Broadcast queue."""
    exchange = kombu.Exchange(f"undeclared-{kind}", kind)
    with kombu.Connection(shared_node.url) as other:
        consumer = other.Consumer([kombu.Queue(f"{kind}.1", exchange, routing_key="eu.#", auto_delete=True)])
        connection.Producer().publish("to all", exchange=exchange.name, routing_key=key)
        assert drained(other, consumer, 1) == ["to all"]


def test_a_direct_exchange_reaches_a_queue_that_only_the_consumer_declared(shared_node, connection):
    direct = kombu.Exchange("answers", "direct")
    connection.Producer().publish("early", exchange=direct, routing_key="k", declare=[direct])
    with kombu.Connection(shared_node.url) as other:
        consumer = other.Consumer([kombu.Queue("answers.k", direct, routing_key="k")])
        assert drained(other, consumer, 1) == ["early"]


def test_a_prefetch_limit_leaves_the_rest_to_other_consumers(shared_node, connection, request):
    name = request.node.name
    for number in range(4):
        connection.SimpleQueue(name).put(number)
    with kombu.Connection(shared_node.url) as one, kombu.Connection(shared_node.url) as two:
        found = []
        consumer = one.Consumer([kombu.Queue(name)], callbacks=[lambda body, message: found.append(body)])
        consumer.qos(prefetch_count=1)
        with consumer:
            one.drain_events(timeout=60)
            with pytest.raises(socket.timeout):
                one.drain_events(timeout=0.5)
        rest = [two.SimpleQueue(name).get(timeout=60).payload for _ in range(3)]
        assert (found, sorted(found + rest)) == ([0], [0, 1, 2, 3])


@pytest.mark.parametrize(("order", "first"), [("redis", 1), ("amqp", 8)])
def test_priorities_follow_the_chosen_order(shared_node, order, first):
    name = f"priorities-{order}"
    with kombu.Connection(shared_node.url, transport_options={"priority_order": order}) as connection:
        for priority in (8, 1):
            connection.Producer().publish(priority, routing_key=name, priority=priority)
        assert kombu.Queue(name)(connection.default_channel).get(no_ack=True).payload == first


def test_a_queue_is_counted_purged_and_deleted(connection, request):
    queue = kombu.Queue(request.node.name)(connection.default_channel)
    queue.declare()
    for number in range(3):
        connection.Producer().publish(number, routing_key=queue.name)
    assert queue.queue_declare(passive=True).message_count == 3
    assert queue.purge() == 3
    assert queue.get() is None
    queue.delete()


def test_several_urls_are_nodes_of_one_cluster():
    with cluster(3, cluster_node_timeout=1000) as nodes:
        url = ";".join(node.url for node in nodes)
        with kombu.Connection(url) as connection, connection.SimpleQueue("three") as queue:
            queue.put("before")
            queue.get(timeout=60).ack()
            nodes.kill(0)
            queue.put("after")
            assert queue.get(timeout=60).payload == "after"


def test_a_node_that_is_not_there_is_a_connection_error():
    connection = kombu.Connection("disque://127.0.0.1:1?patience=0")
    with pytest.raises(connection.connection_errors):
        connection.connect()


def test_a_program_with_many_open_files_receives_messages(shared_node):
    """select takes file numbers below 1024 only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2_048:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with kombu.Connection(shared_node.url) as connection:
            queue = connection.SimpleQueue("many-files")
            queue.put("hello")
            message = queue.get(timeout=60)
            message.ack()
            assert message.payload == "hello"
            with pytest.raises(queue.Empty):
                queue.get(timeout=0.1)
            queue.close()
    finally:
        for file in opened:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "body",
    [
        b'{"body":"y","properties":{"body_encoding":"rot13"}}',
        b'{"body":5,"properties":{"body_encoding":"base64"}}',
        b'{"body":"y","properties":{"delivery_info":[]}}',
        b'{"body":"y","properties":{"at":{"__type__":"datetime","__value__":5}}}',
        b"[" * 100_000,
    ],
    ids=lambda body: body[-30:].decode(),
)
def test_a_body_that_only_looks_like_a_message_arrives_as_bytes(shared_node, connection, queue, body):
    """An error would end the worker that gets the job, and then the next one."""
    with shared_node.client() as client:
        client.add_job(queue.queue.name, body)
    message = queue.get(timeout=60)
    assert (message.body, message.content_type) == (body, "application/data")
    message.reject()


def test_transports_can_be_looked_up_while_another_thread_makes_some(shared_node):
    first = kombu.Connection(shared_node.url).transport
    others = [kombu.Connection(shared_node.url).transport for _ in range(50)]
    is_over = threading.Event()

    def make():
        while not is_over.is_set():
            kombu.Connection(shared_node.url).transport.courier.close()

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=make)
    thread.start()
    try:
        sys.setswitchinterval(1e-5)
        assert all(len(first.siblings()) > len(others) for _ in range(2_000))
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        thread.join()
        for each in (first, *others):
            each.courier.close()
