"""core/fanout.py: the jobs of a topic, all or none. Conversations are in scenarios/test_topics.py."""

from __future__ import annotations

import hiredis
import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import GOTJOB, GOTMANY, LEFT, REFUSED, REFUSED_PAUSED, REPLJOB, REPLMANY
from copies import advance, pack, say, sent, sent_of
from disque_py.core.job import QUEUED, WAIT_REPL
from disque_py.core.job_snapshot import job_of, snapshot_of
from disque_py.core.shared_copies import split_ids
from disque_py.node import dispatch
from disque_py.simulator.clients.connection import words
from journaled import JournaledNode
from simulated import ask as tell
from simulated import asker, joined


def start():
    broker = make_broker()
    dispatch.install(broker)
    broker.topics.update({b"t": {b"x": {}, b"y": {}}})
    return broker, add_node(broker, 2), make_client(broker)


def publish(broker, client, *words):
    ask(broker, client, "ADDJOB", "t", "body", 1_000, "REPLICATE", 2, *words)
    dispatch.settle(broker)
    ids = []
    for _, kind, item in sent(broker):
        if kind == REPLMANY:
            ids += split_ids(item[0])
        elif kind == REPLJOB:
            ids.append(item[0][0])
    return ids


def test_jobs_that_are_made_together_go_in_one_message_and_are_confirmed_in_one():
    """Spec TP10."""
    broker, b, client = start()
    ask(broker, client, "ADDJOB", "t", "body", 0, "META", "k", "v", "REPLICATE", 2)
    ((_, item),) = sent_of(broker, REPLMANY)
    first, second = split_ids(item[0])
    assert item[2:4] == ([b"x", b"y"], b"body")
    assert broker.find(first).work is broker.find(second).work
    assert broker.waits.blocked_count == 1
    say(broker, b, GOTMANY, item[0])
    dispatch.settle(broker)
    assert [broker.find(job_id).state for job_id in (first, second)] == [QUEUED, QUEUED]
    assert [broker.find(job_id).attributes.meta for job_id in (first, second)] == [(b"k", b"v")] * 2
    assert client.out == [b"+" + first + b"\r\n"]
    assert not broker.producers.together
    assert broker.waits.blocked_count == 0


def test_a_refusal_of_one_job_parts_the_others_from_it():
    """Spec TP10."""
    broker, b, client = start()
    first, second = publish(broker, client)
    c = add_node(broker, 3)
    say(broker, b, REFUSED, (second, REFUSED_PAUSED))
    assert [(nodes, item[0][0]) for nodes, item in sent_of(broker, REPLJOB)] == [((c,), second)]
    say(broker, c, GOTJOB, second)
    say(broker, b, GOTMANY, first + second)
    dispatch.settle(broker)
    assert [broker.find(job_id).state for job_id in (first, second)] == [QUEUED, QUEUED]
    assert client.out == [b"+" + first + b"\r\n"]
    assert broker.waits.blocked_count == 0


def test_jobs_whose_queue_has_settings_are_copied_one_by_one():
    """They may differ in more than their ids. Spec TP10."""
    broker, _, client = start()
    ask(broker, client, "QUEUE", "SET", "y", "lease", 60)
    advance(broker, 1_000)
    client.out.clear()
    sent(broker)
    ask(broker, client, "ADDJOB", "t", "body", 0, "REPLICATE", 2)
    kinds = [kind for _, kind, _ in sent(broker)]
    assert REPLMANY not in kinds
    assert kinds.count(REPLJOB) == 2


def test_a_paused_queue_refuses_jobs_that_would_be_made_together():
    broker, _, client = start()
    ask(broker, client, "ADDJOB", "y", "body", 0, "REPLICATE", 1)
    ask(broker, client, "PAUSE", "y", "in")
    client.out.clear()
    assert (
        ask(broker, client, "ADDJOB", "t", "body", 0, "REPLICATE", 2)
        == b"-PAUSED Queue paused in input, try later: y\r\n"
    )
    assert broker.job_count == 1


def test_a_client_that_goes_takes_jobs_that_were_made_together_with_it():
    broker, _, client = start()
    publish(broker, client)
    dispatch.disconnect(broker, client)
    dispatch.settle(broker)
    assert (broker.job_count, broker.waits.blocked_count) == (0, 0)
    assert not broker.producers.fans
    assert not broker.producers.together


def test_publications_of_a_pipeline_do_not_wait_for_each_other():
    broker, b, client = start()
    for _ in range(2):
        ask(broker, client, "TOPIC", "PUBLISH", "t", "body", 0, "REPLICATE", 2)
    early, late = [item[0] for _, item in sent_of(broker, REPLMANY)]
    for ids in (late, early):
        assert not client.out
        say(broker, b, GOTMANY, ids)
        dispatch.settle(broker)
    assert [early[:40] in client.out[0], late[:40] in client.out[1]] == [True, True]


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


def test_a_job_that_is_held_keeps_its_copies_when_one_moves():
    """Spec C5: the node that took the copy counts instead of the leaver."""
    broker, b, client = start()
    first, second = publish(broker, client)
    c = add_node(broker, 3)
    say(broker, b, GOTJOB, first)
    say(broker, b, LEFT, (first, b.id, c.id, pack(broker.me, b, c), 0))
    say(broker, b, GOTJOB, second)
    dispatch.settle(broker)
    assert client.out == [b"+" + first + b"\r\n"]


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


@pytest.mark.parametrize("key", [(), ("KEY", "k")])
def test_a_batch_that_is_closed_meanwhile_refuses_the_whole_fan_out(key):
    """Spec BT1, TP9: the jobs join their batch in the turn in which they become ready."""
    world = joined("abc", delay_ms=(20, 20))
    for queue in ("q1", "q2"):
        tell(world, "a", "TOPIC", "BIND", "t", queue)
    tell(world, "a", "ADDJOB", "q", "x", 0, "BATCH", "b")
    client = asker(world, "a")
    client.send([words("ADDJOB", "t", "x", 0, "REPLICATE", 3, "BATCH", "b", *key)])
    world.run(10)
    tell(world, "a", "BATCH", "CLOSE", "b")
    world.run(2_000)
    assert [str(reply) for reply in client.replies] == ["CLOSED The batch is closed"]
    assert [tell(world, name, "QLEN", queue) for name in "abc" for queue in ("q1", "q2")] == [0] * 6


def begin_batch(name, wait_ms):
    """A client that adds jobs of a new batch to a topic or a queue. Messages take 20 ms."""
    world = joined("abc", delay_ms=(20, 20))
    world.run(500)
    for queue in ("q1", "q2"):
        tell(world, "a", "TOPIC", "BIND", "t", queue)
    client = asker(world, "a")
    client.send([words("ADDJOB", name, "x", 0, "REPLICATE", 1, "BATCH", "b")])
    world.run(wait_ms)
    assert not client.replies
    return world, client


def test_a_fan_out_whose_client_has_gone_is_forgotten():
    """No keeper has confirmed its jobs yet."""
    world, client = begin_batch("t", 0)
    fans = world["a"].producers.fans
    world.until(lambda: bool(fans) and all(fan.is_going for fan in fans.values()))
    client.hang_up()
    world.run(10_000)
    assert fans == {}


@pytest.mark.parametrize("name", ["q1", "t"])
def test_a_producer_hears_that_its_jobs_of_a_batch_were_flushed(name):
    """Spec BT1."""
    world, client = begin_batch(name, 3)
    asker(world, "a").send([words("DEBUG", "FLUSHALL")])
    world.run(5_000)
    ((reply),) = client.replies
    assert isinstance(reply, hiredis.ReplyError)
