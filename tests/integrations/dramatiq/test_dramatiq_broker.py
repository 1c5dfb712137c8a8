"""The broker of Dramatiq: messages are jobs, and each ends once."""

from __future__ import annotations

import threading
import time

import dramatiq
import pytest
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

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
    """No `.DQ` queue, and no second early."""
    ran = []
    actor = dramatiq.actor(lambda: ran.append(time.time()), actor_name="now")
    start()
    sent_at = time.time()
    message = actor.send_with_options(delay=700)
    assert client.show(message.options["disque_job_id"]).status == "invisible"
    assert broker.get_declared_delay_queues() == set()
    eventually(lambda: ran)
    assert ran[0] - sent_at >= 0.7


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


def test_a_job_that_is_no_message_is_errored(broker, start, client, name):
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
