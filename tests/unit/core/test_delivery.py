"""core/delivery.py: jobs are given to clients, immediately or when jobs come."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import NEEDJOBS
from copies import advance, hold, hold_queued, sent_of
from disque_py.core import delivery
from disque_py.core.client import RUNNING, WAITS_FOR_JOBS
from disque_py.core.job import ACTIVE
from disque_py.core.pulls import BROADCAST_MS
from disque_py.node import dispatch


def get(broker, client, *words):
    return ask_parsed(broker, client, "GETJOB", *words)


def fill(broker, queue, count, start=0, **fields):
    return [hold_queued(broker, queue=queue, number=start + number, **fields) for number in range(count)]


def wait(broker, *words, count=1):
    """Clients that wait in GETJOB."""
    clients = [make_client(broker) for _ in range(count)]
    for client in clients:
        assert ask(broker, client, "GETJOB", *words) == b""
    dispatch.settle(broker)
    return clients if count > 1 else clients[0]


def test_one_job_per_queue_and_pass_left_to_right():
    """Spec R10."""
    broker = make_broker()
    fill(broker, b"a", 4)
    fill(broker, b"b", 2, start=10)
    found = get(broker, make_client(broker), "COUNT", 5, "FROM", "a", "b")
    assert [entry[0] for entry in found] == [b"a", b"b", b"a", b"b", b"a"]


def test_a_queue_named_twice_gets_two_turns():
    broker = make_broker()
    fill(broker, b"a", 4)
    fill(broker, b"b", 4, start=10)
    found = get(broker, make_client(broker), "COUNT", 6, "FROM", "a", "a", "b")
    assert [entry[0] for entry in found] == [b"a", b"a", b"b", b"a", b"a", b"b"]


def test_an_entry_is_queue_id_and_body():
    broker = make_broker()
    (job,) = fill(broker, b"q", 1, body=b"\r\n\0")
    assert get(broker, make_client(broker), "FROM", "q") == [[b"q", job.id, b"\r\n\0"]]


def test_counters_come_on_demand():
    """Spec R6."""
    broker = make_broker()
    (job,) = fill(broker, b"q", 1)
    job.nacks, job.deliveries = 2, 3
    (entry,) = get(broker, make_client(broker), "WITHCOUNTERS", "FROM", "q")
    assert entry == [b"q", job.id, b"body", b"nacks", 2, b"additional-deliveries", 3]


def test_a_delivery_starts_the_lease():
    broker = make_broker()
    node = add_node(broker)
    job = hold_queued(broker, node, retry_s=30)
    get(broker, make_client(broker), "FROM", "q")
    assert (job.state, job.is_leased_here, job.attempt) == (ACTIVE, True, 1)
    assert job.requeue_at_ms == broker.now_ms + 30_000
    queue = broker.queues[b"q"]
    assert (queue.jobs_out, broker.stats.jobs_delivered) == (1, 1)


def test_a_huge_count_stops_at_a_megabyte():
    """At 1 MiB GETJOB stops collecting; the client asks again (spec B1)."""
    broker = make_broker()
    fill(broker, b"q", 20, body=b"x" * 100_000)
    assert len(get(broker, make_client(broker), "COUNT", 1000, "FROM", "q")) == 11


def test_a_huge_count_of_empty_jobs_stops_there_too():
    broker = make_broker()
    fill(broker, b"q" * 1000, 1500, body=b"")
    reply = ask(broker, make_client(broker), "GETJOB", "COUNT", 10_000, "FROM", "q" * 1000)
    assert len(reply) < delivery.REPLY_BYTES_MAX + 2000


def test_nothing_and_nohang_is_nil_and_makes_the_queue():
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "GETJOB", "NOHANG", "FROM", "q") == b"*-1\r\n"
    client.protocol = 3
    assert ask(broker, client, "GETJOB", "NOHANG", "FROM", "q") == b"_\r\n"
    assert b"q" in broker.queues


def test_waiting_clients_are_served_first_come_first_served_one_job_each():
    broker = make_broker()
    clients = wait(broker, "COUNT", 10, "FROM", "q", count=3)
    assert broker.waits.blocked_count == 3
    jobs = fill(broker, b"q", 2)
    dispatch.settle(broker)
    assert [jobs[at].id in b"".join(clients[at].out) for at in range(2)] == [True, True]
    assert clients[2].out == []
    assert all(client.out[0].startswith(b"*1\r\n*3\r\n") for client in clients[:2])
    assert (broker.waits.blocked_count, list(broker.queues[b"q"].waiting)) == (1, [clients[2]])


def test_counters_are_given_to_the_client_that_waited_for_them():
    broker = make_broker()
    client = wait(broker, "WITHCOUNTERS", "FROM", "q")
    fill(broker, b"q", 1)
    dispatch.settle(broker)
    assert client.out[0].startswith(b"*1\r\n*7\r\n")


def test_a_client_waits_in_several_queues_and_leaves_all_of_them():
    broker = make_broker()
    client = wait(broker, "FROM", "a", "b", "a")
    assert [queue.name for queue in client.queues] == [b"a", b"b"]
    fill(broker, b"b", 1)
    dispatch.settle(broker)
    assert client.waiting == RUNNING
    assert all(not queue.waiting for queue in broker.queues.values())
    fill(broker, b"a", 1, start=5)
    dispatch.settle(broker)
    assert len(client.out) == 1


def test_an_expired_job_wakes_no_client():
    broker = make_broker()
    fill(broker, b"q", 1, ttl_s=1)
    pass_time(broker, 1100)
    client = wait(broker, "FROM", "q")
    assert client.waiting == WAITS_FOR_JOBS
    assert broker.job_count == 0


@pytest.mark.parametrize("timeout_ms", [1, 100, 5000])
def test_a_time_out_is_kept_to_the_grain_of_the_clock(timeout_ms):
    """In the original, sixty waiting clients made timeouts a second late (spec Q26)."""
    broker = make_broker()
    clients = wait(broker, "TIMEOUT", timeout_ms, "FROM", "q", count=60)
    advance(broker, timeout_ms - 1)
    assert not any(client.out for client in clients)
    advance(broker, 18)
    assert all(client.out == [b"*-1\r\n"] for client in clients)
    assert (broker.waits.blocked_count, len(broker.queues[b"q"].waiting)) == (0, 0)


def test_a_client_that_was_served_does_not_time_out():
    broker = make_broker()
    client = wait(broker, "TIMEOUT", 100, "FROM", "q")
    fill(broker, b"q", 1)
    advance(broker, 500)
    assert len(client.out) == 1
    assert client.awake_at_ms == 0


def test_a_timeout_of_zero_waits_without_a_limit():
    broker = make_broker()
    client = wait(broker, "TIMEOUT", 0, "FROM", "q")
    advance(broker, 100_000)
    assert client.out == []


def test_a_client_that_hung_up_takes_no_job():
    broker = make_broker()
    gone, there = wait(broker, "TIMEOUT", 5000, "FROM", "q", count=2)
    dispatch.disconnect(broker, gone)
    (job,) = fill(broker, b"q", 1)
    dispatch.settle(broker)
    assert gone.out == []
    assert job.id in there.out[0]
    assert broker.waits.blocked_count == 0


def test_a_leaving_node_sends_waiting_clients_away():
    """Spec V6."""
    broker = make_broker()
    client = wait(broker, "FROM", "q")
    ask(broker, make_client(broker), "CLUSTER", "LEAVING", "yes")
    assert client.out == [b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"]
    other = make_client(broker)
    assert ask(broker, other, "GETJOB", "FROM", "q").startswith(b"-LEAVING")
    assert ask(broker, other, "GETJOB", "NOHANG", "FROM", "q") == b"*-1\r\n"


def test_a_leaving_node_sends_away_producers_that_wait_and_their_jobs():
    broker = make_broker()
    add_node(broker)
    producer = make_client(broker)
    ask(broker, producer, "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    delivery.send_away(broker)
    assert producer.out[0].startswith(b"-LEAVING")
    assert (broker.job_count, broker.waits.blocked_count) == (0, 0)


def test_a_client_with_replies_off_is_given_its_job_without_a_reply():
    """The client asked for that with CLIENT REPLY OFF."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "CLIENT", "REPLY", "OFF")
    ask(broker, client, "GETJOB", "FROM", "q")
    fill(broker, b"q", 1)
    dispatch.settle(broker)
    assert (client.out, client.waiting, broker.queues[b"q"].length) == ([], RUNNING, 0)


def test_a_job_queued_and_gone_in_one_turn_wakes_no_client():
    broker = make_broker()
    client = wait(broker, "FROM", "q")
    (job,) = fill(broker, b"q", 1)
    ask(broker, make_client(broker), "DELJOB", job.id)
    dispatch.settle(broker)
    assert client.waiting == WAITS_FOR_JOBS


def test_where_clients_wait_all_nodes_are_asked_each_30_s():
    """This is the fallback for announced interest (spec I8), even for a client that waits for ever."""
    broker = make_broker()
    node = add_node(broker)
    wait(broker, "FROM", "q")
    assert sent_of(broker, NEEDJOBS) == [((node,), (b"q", 1, 0))]
    advance(broker, BROADCAST_MS - 1000)
    assert sent_of(broker, NEEDJOBS) == []
    advance(broker, 2000)
    assert sent_of(broker, NEEDJOBS) == [((node,), (b"q", 1, 0))]


def test_jobs_of_other_states_are_not_delivered():
    broker = make_broker()
    hold(broker)
    assert ask(broker, make_client(broker), "GETJOB", "NOHANG", "FROM", "q") == b"*-1\r\n"


def test_release_all_answers_every_client_with_nothing():
    broker = make_broker()
    clients = wait(broker, "FROM", "q", count=2)
    delivery.release_all(broker)
    assert [client.out for client in clients] == [[b"*-1\r\n"]] * 2
    assert broker.waits.blocked_count == 0
