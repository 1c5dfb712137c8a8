"""core/reset.py: a node is emptied in one step."""

from __future__ import annotations

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import INTEREST
from copies import advance
from disque_py.core import reset
from disque_py.node import dispatch


def filled_broker(count=50):
    broker = make_broker()
    client = make_client(broker)
    for number in range(count):
        ask(broker, client, "ADDJOB", b"q%d" % (number % 3), "body", 0)
    return broker, client


def test_a_flushed_node_is_empty_and_uses_no_memory():
    broker, client = filled_broker()
    assert reset.flush(broker) == 50
    assert (broker.job_count, broker.used_memory, broker.queues, broker.schedule.next_ms()) == (0, 0, {}, None)
    assert ask_parsed(broker, client, "QSCAN") == [b"0", []]


def test_a_flushed_node_goes_on_working():
    """Timers, queues and the walk over them start afresh."""
    broker, client = filled_broker()
    reset.flush(broker)
    ask(broker, client, "ADDJOB", "q1", "after", 0)
    pass_time(broker, 1000)
    dispatch.tick(broker)
    assert ask_parsed(broker, client, "GETJOB", "FROM", "q1")[0][2] == b"after"


def test_a_flushed_node_goes_on_counting_the_shared_state_of_batches():
    """Spec BT3: ids go with the jobs, and names stay."""
    broker, client = filled_broker()
    ask(broker, client, "ADDJOB", "q1", "x", 0, "BATCH", "b")
    advance(broker, 10)
    reset.flush(broker)
    assert broker.used_memory == broker.batches.size > 0


def test_a_large_index_is_freed_in_parts():
    broker, _ = filled_broker()
    shards = [{b"%d" % job: None for job in range(1_500)} for _ in range(4)]
    reset._free(broker, shards)
    assert len(shards) == 2
    pass_time(broker, reset.SLICE_EVERY_MS)
    dispatch.tick(broker)
    assert shards == []


def test_a_waiting_producer_hears_that_its_job_was_removed():
    broker = make_broker()
    add_node(broker)
    producer = make_client(broker)
    assert ask(broker, producer, "ADDJOB", "q", "body", 0, "REPLICATE", 2) == b""
    reset.flush(broker)
    assert b"".join(producer.out).startswith(b"-NOREPL job removed (expired?)")
    assert broker.waits.blocked_count == 0


def test_a_waiting_consumer_gets_nothing_and_other_nodes_hear_that_it_no_longer_waits():
    broker = make_broker()
    add_node(broker)
    consumer = make_client(broker)
    assert ask(broker, consumer, "GETJOB", "FROM", "q") == b""
    dispatch.settle(broker)
    broker.outbox.messages.take()
    reset.flush(broker)
    assert consumer.out == [b"*-1\r\n"]
    assert [(kind, items) for _, kind, items in broker.outbox.messages.take()] == [(INTEREST, [(b"q", -1)])]


def test_the_answer_to_a_hand_over_of_a_flushed_job_is_ignored():
    broker = make_broker()
    node = add_node(broker)
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    from disque_py.core import handover, pulls

    pulls.give(broker, node, broker.queues[b"q"], 1)
    reset.flush(broker)
    handover.on_took(broker, node, [(1, b"\x00")])
    assert broker.job_count == 0


def test_pauses_are_forgotten_too():
    broker, client = filled_broker()
    ask(broker, client, "PAUSE", "q1", "in", "bcast")
    reset.flush(broker)
    assert ask(broker, client, "PAUSE", "q1", "state") == b"+none\r\n"
    assert broker.pauses.versions == {}
