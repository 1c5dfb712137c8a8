"""The broker of Dramatiq: messages are jobs, and each ends once."""

from __future__ import annotations

import threading
import time

import dramatiq
import pytest
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from disque_py import testing
from disque_py.client import OutOfMemoryError
from disque_py.integrations.dramatiq import DisqueBroker
from waits import eventually


def test_each_message_runs_once(broker, start):
    ran = []
    actor = dramatiq.actor(ran.append, actor_name="append")
    for number in range(200):
        actor.send(number)
    start()
    broker.join("default", timeout=60_000)
    assert sorted(ran) == list(range(200))


def test_a_delay_is_the_jobs_own(broker, start, client):
    """There is no `.DQ` queue, and the message does not run early."""
    ran = []
    actor = dramatiq.actor(lambda: ran.append(time.time()), actor_name="now")
    start()
    sent_at = time.time()
    message = actor.send_with_options(delay=700)
    assert client.show(message.options["disque_job_id"]).status == "invisible"
    assert broker.get_declared_delay_queues() == set()
    eventually(lambda: ran)
    assert ran[0] - sent_at >= 0.7


def test_the_lease_of_a_message_with_a_long_delay_can_be_extended(broker, client):
    """Nodes extend leases in the first half of a TTL only."""
    message = dramatiq.actor(print).send_with_options(delay=100 * 86_400_000)
    job = client.show(message.options["disque_job_id"])
    assert job.ttl / 2 >= job.delay + 14 * 86_400


def test_a_higher_broker_priority_runs_first(broker, start):
    ran = []
    actor = dramatiq.actor(ran.append, actor_name="append")
    for priority in (0, 5, 9):
        actor.send_with_options(args=(priority,), broker_priority=priority)
    start(threads=1)
    broker.join("default", timeout=60_000)
    assert ran == [9, 5, 0]


def test_a_message_that_fails_is_tried_again_and_then_errored(broker, start, client, name):
    tries = []

    @dramatiq.actor(max_retries=1, min_backoff=50, max_backoff=100)
    def fail():
        tries.append(1)
        raise RuntimeError("no ink")

    fail.send()
    start()
    eventually(lambda: client.qlen(f"{name}.default", status="errored") == 1)
    assert len(tries) == 2
    job = client.qpeek(f"{name}.default", 1, status="errored")[0]
    assert client.show(job.id).error == "RuntimeError: no ink"


@pytest.mark.parametrize("follows", ["retry", "pipe"])
def test_a_message_comes_again_if_the_one_that_follows_it_cannot_be_added(broker, start, client, follows):
    """Dramatiq's worker only logs the error. The first message would be acknowledged, and the work lost."""
    ran, next_ran = [], []
    last = dramatiq.actor(next_ran.append, actor_name="last")

    @dramatiq.actor(min_backoff=50, max_backoff=100)
    def first(number):
        ran.append(number)
        if len(ran) == 1:
            client.execute("CONFIG", "SET", "maxmemory", "1")
        if follows == "retry" and len(ran) < 3:
            raise RuntimeError("no ink")
        return number

    try:
        first.send(5) if follows == "retry" else (first.message(5) | last.message()).run()
        start()
        eventually(lambda: ran)
        time.sleep(0.5)
        client.execute("CONFIG", "SET", "maxmemory", "0")
        eventually(lambda: len(ran) == 3 if follows == "retry" else next_ran == [5])
    finally:
        client.execute("CONFIG", "SET", "maxmemory", "0")
    broker.join("default", timeout=60_000)


def test_a_failed_message_that_a_node_refuses_to_set_aside_comes_again(broker, client):
    """Dramatiq does not try again. If the worker kept the message, it would soon have no room for others."""
    broker.declare_queue("default")
    broker.enqueue(dramatiq.Message("default", "unknown", (), {}, {}))
    consumer = broker.consume("default", prefetch=1, timeout=60_000)
    message = next(consumer)
    client.execute("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(OutOfMemoryError):
            consumer.nack(message)
    finally:
        client.execute("CONFIG", "SET", "maxmemory", "0")
    assert not broker.leases.holds(message.job)
    assert next(consumer).redelivered


def test_failed_messages_go_to_the_dead_letter_queue_that_the_queue_names(broker, start, client, name):
    client.set_queue(f"{name}.default", dead_letter=f"{name}.dead")

    @dramatiq.actor(max_retries=0)
    def fail():
        raise RuntimeError("no ink")

    fail.send()
    start()
    eventually(lambda: client.qlen(f"{name}.dead") == 1)


def test_a_message_for_an_unknown_actor_is_errored(broker, start, client, name):
    broker.declare_queue("default")
    broker.enqueue(dramatiq.Message("default", "unknown", (), {}, {}))
    start()
    eventually(lambda: client.qlen(f"{name}.default", status="errored") == 1)


def test_a_job_without_a_valid_message_is_errored(broker, start, client, name):
    broker.declare_queue("default")
    client.add_job(f"{name}.default", b"no message")
    start()
    eventually(lambda: client.qlen(f"{name}.default", status="errored") == 1)


def test_a_message_beyond_its_age_fails_and_is_kept(broker, start, client, name):
    actor = dramatiq.actor(lambda: None, actor_name="nothing", max_age=100)
    actor.send()
    time.sleep(0.2)
    start()
    eventually(lambda: client.qlen(f"{name}.default", status="errored") == 1)


def test_messages_that_were_not_begun_go_back_when_a_worker_stops(broker, start, client, name):
    begun, may_end = threading.Event(), threading.Event()

    @dramatiq.actor
    def slow():
        begun.set()
        may_end.wait(60)

    for _ in range(4):
        slow.send()
    worker = start(threads=1)
    begun.wait(60)
    threading.Timer(1, may_end.set).start()
    worker.stop(60_000)
    assert client.qlen(f"{name}.default") == 3


@pytest.fixture
def fetch(broker):
    """A function that sends messages and fetches them with one consumer. It returns the consumer and the messages."""

    def fetch(count, prefetch=16):
        actor = dramatiq.actor(lambda: None, actor_name="nothing")
        for _ in range(count):
            actor.send()
        consumer = broker.consume("default", prefetch=prefetch, timeout=60_000)
        return consumer, [next(consumer) for _ in range(min(count, prefetch))]

    return fetch


def test_messages_of_a_busy_queue_are_acknowledged_before_the_next_fetch(fetch, calls, client):
    consumer, messages = fetch(12, prefetch=8)
    before = calls("ackjob")
    for message in messages[:3]:
        consumer.ack(message)
    assert calls("ackjob") == before
    assert next(consumer) is not None
    assert calls("ackjob") == before + 1
    consumer.close()
    assert [client.show(message.job) for message in messages[:3]] == [None] * 3


def test_the_last_message_of_a_worker_is_acknowledged_at_once(fetch, calls):
    consumer, (first, second) = fetch(2)
    before = calls("ackjob")
    consumer.ack(first)
    assert calls("ackjob") == before
    consumer.ack(second)
    assert calls("ackjob") == before + 1
    consumer.close()


def test_messages_of_an_idle_queue_are_acknowledged_at_once(fetch, calls):
    """The consumer's next GETJOB may wait for long, so the acknowledgement must not wait for that."""
    consumer, messages = fetch(1)
    dramatiq.get_broker().get_actor("nothing").send()
    messages.append(next(consumer))
    before = calls("ackjob")
    consumer.ack(messages[0])
    assert calls("ackjob") == before + 1
    consumer.ack(messages[1])
    consumer.close()


def test_a_consumer_that_closes_sends_its_acknowledgements(fetch, broker, client, name):
    consumer, messages = fetch(2)
    consumer.ack(messages[0])
    consumer.close()
    assert client.qlen(f"{name}.default", status="running") == 1
    assert not broker.leases.holds(messages[0].job)


def test_a_message_under_a_claim_is_acknowledged_with_its_fence(fetch, calls, client, name):
    client.set_queue(f"{name}.default", assign="quorum")
    consumer, messages = fetch(2)
    assert all(message.job.fence for message in messages)
    before = calls("ackjob")
    consumer.ack(messages[0])
    assert calls("ackjob") == before + 1
    consumer.ack(messages[1])
    consumer.close()


def test_acknowledgements_outlive_an_outage():
    """An acknowledgement that could not be sent is kept, and sent when the node is back."""
    with testing.node(appendonly=True) as node:
        broker = DisqueBroker(url=f"{node.url}/?patience=0")
        broker.declare_queue("default")
        for _ in range(2):
            broker.enqueue(dramatiq.Message("default", "nothing", (), {}, {}))
        consumer = broker.consume("default", prefetch=4, timeout=60_000)
        first, second = next(consumer), next(consumer)
        consumer.ack(first)
        node.kill()
        with pytest.raises(ConnectionClosed):
            consumer.ack(second)
        assert broker.leases.holds(first.job)
        node.restart()
        broker.acks.flush()
        with node.client() as client:
            assert [client.show(message.job.id) for message in (first, second)] == [None] * 2
        broker.close()


def test_a_canceled_message_never_runs(broker, start):
    ran = []
    actor = dramatiq.actor(ran.append, actor_name="append")
    message = actor.send(1)
    assert broker.cancel(message) is True
    start()
    broker.join("default", timeout=60_000)
    assert ran == []


def test_a_running_message_is_interrupted_when_it_is_canceled(broker, start, client, name):
    begun, ended = threading.Event(), threading.Event()

    @dramatiq.actor
    def endless():
        begun.set()
        try:
            while True:
                time.sleep(0.05)
        finally:
            ended.set()

    message = endless.send()
    start()
    assert begun.wait(60)
    broker.cancel(message)
    assert ended.wait(60)
    broker.join("default", timeout=60_000)


def test_flush_drops_waiting_delayed_and_failed_messages(broker, client, name):
    actor = dramatiq.actor(lambda: None, actor_name="nothing")
    actor.send()
    actor.send_with_options(delay=60_000)
    with pytest.raises(QueueJoinTimeout):
        broker.join("default", timeout=50)
    broker.flush_all()
    broker.join("default", timeout=60_000)


def test_a_queue_must_be_declared(broker):
    with pytest.raises(QueueNotFound):
        broker.consume("unknown")
    with pytest.raises(QueueNotFound):
        broker.enqueue(dramatiq.Message("unknown", "unknown", (), {}, {}))


def test_no_node_is_a_connection_error_of_dramatiq(unused_port):
    broker = DisqueBroker(url=f"disque://127.0.0.1:{unused_port}/?patience=0")
    broker.declare_queue("default")
    with pytest.raises(ConnectionClosed):
        broker.enqueue(dramatiq.Message("default", "unknown", (), {}, {}))


@pytest.fixture
def unused_port():
    from disque_py.loopback_ports import free_port

    return free_port()


def test_a_consumer_that_closes_in_an_outage_keeps_no_message(name):
    """Otherwise their leases would be extended when a node is back, and no worker would get them."""
    with testing.node() as node:
        broker = DisqueBroker(url=node.url, namespace=name)
        broker.declare_queue("default")
        for number in range(2):
            broker.enqueue(dramatiq.Message("default", "actor", (number,), {}, {}))
        consumer = broker.consume("default", prefetch=2, timeout=60_000)
        broker.acks.add(next(consumer).job)
        fetched = consumer._fetched[0]
        node.kill()
        consumer.close()
        assert not broker.leases.holds(fetched)
        broker.close()


@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_a_message_that_a_later_worker_has_leaves_its_place(broker, client, name, settle):
    """The queue gives each delivery a claim, and the first worker stood still for longer than its lease."""
    broker.declare_queue("default")
    client.set_queue(f"{name}.default", assign="quorum")
    message = dramatiq.Message("default", "f", (), {}, {})
    broker.enqueue(message)
    consumer = broker.consume("default", prefetch=1, timeout=60_000)
    first = next(consumer)
    broker.leases.remove(first.job)
    second = client.get_job(f"{name}.default", withlease=True, lease=60, timeout_ms=60_000)
    assert second.fence > first.job.fence > 0
    broker.leases.add(first.job)
    getattr(consumer, settle)(first)
    assert not broker.leases.holds(first.job)
    broker.enqueue(message.copy())
    assert next(consumer) is not None
