"""core/fanout.py: the jobs of a topic, all or none. Conversations are in scenarios/test_topics.py."""

from __future__ import annotations

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import GOTJOB, REPLJOB
from copies import advance, say, sent_of
from disque_py.core.job import QUEUED, WAIT_REPL
from disque_py.core.job_snapshot import job_of, snapshot_of
from disque_py.node import dispatch
from journaled import JournaledNode


def start():
    broker = make_broker()
    dispatch.install(broker)
    broker.topics.update({b"t": {b"x": {}, b"y": {}}})
    return broker, add_node(broker, 2), make_client(broker)


def publish(broker, client, *words):
    ask(broker, client, "ADDJOB", "t", "body", 1_000, "REPLICATE", 2, *words)
    dispatch.settle(broker)
    return [item[0][0] for _, item in sent_of(broker, REPLJOB)]


def test_no_job_is_queued_before_all_have_their_copies():
    """Spec TP8, TP9."""
    broker, b, client = start()
    first, second = publish(broker, client)
    say(broker, b, GOTJOB, first)
    dispatch.settle(broker)
    assert [broker.find(job_id).state for job_id in (first, second)] == [WAIT_REPL, WAIT_REPL]
    assert not client.out
    say(broker, b, GOTJOB, second)
    dispatch.settle(broker)
    assert [broker.find(job_id).state for job_id in (first, second)] == [QUEUED, QUEUED]
    assert client.out == [b"+" + first + b"\r\n"]
    assert not broker.producers.fans
    assert broker.waits.blocked_count == 0


def test_a_job_that_is_held_asks_no_more_nodes_and_ends_with_the_time_of_all():
    broker, b, client = start()
    first, _ = publish(broker, client)
    say(broker, b, GOTJOB, first)
    add_node(broker, 3)
    advance(broker, 500)
    assert [item[0][0] == first for _, item in sent_of(broker, REPLJOB)] == [False]
    advance(broker, 600)
    dispatch.settle(broker)
    assert b"".join(client.out).startswith(b"-NOREPL Timeout")
    assert broker.job_count == 0
    assert broker.waits.blocked_count == 0


def test_keys_are_looked_up_one_queue_after_the_other():
    broker, _, client = start()
    assert publish(broker, client, "KEY", "k") == []
    assert len(broker.producers.searches) == 1


def test_replies_of_a_pipeline_keep_their_order():
    broker, b, client = start()
    first, second = publish(broker, client)
    ask(broker, client, "ADDJOB", "q", "alone", 0, "REPLICATE", 1)
    assert not client.out
    for job_id in (second, first):
        say(broker, b, GOTJOB, job_id)
    dispatch.settle(broker)
    assert [reply[:1] for reply in client.out] == [b"+", b"+"]
    assert client.out[0] == b"+" + first + b"\r\n"


def test_the_topic_of_a_job_survives_a_restart_a_copy_and_another_queue():
    """It is one of the terms that jobs share, and travels as an extra. Spec F11."""
    node = JournaledNode()
    node.settle()
    node.broker.topics[b"t"] = {b"q": {}}
    job_id = node.answer("ADDJOB", "t", "body", 0, "REPLICATE", 1)
    node.recount()
    node = node.restart()
    node.settle()
    node.recount()
    job = node.broker.find(job_id)
    copy = job_of(make_broker(), snapshot_of(node.broker, job))
    other = job.terms.of_queue(node.broker.terms, b"other")
    assert (job.terms.topic, copy.terms.topic, other.queue, other.topic) == (b"t", b"t", b"other", b"t")
    assert (job.attributes, copy.attributes) == (None, None)
