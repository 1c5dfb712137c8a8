"""commands/topics.py: TOPIC, and ADDJOB to a topic, on one node. Conversations are in scenarios/test_topics.py."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from disque_py.core import topics
from disque_py.node import dispatch


def start(*bindings):
    broker = make_broker()
    dispatch.install(broker)
    client = make_client(broker)
    for words in bindings:
        bind(broker, client, *words.split())
    return broker, client


def said(broker, client, *words):
    reply = ask(broker, client, *words)
    for _ in range(3):
        dispatch.settle(broker)
    reply += b"".join(client.out)
    client.out.clear()
    return reply


def bind(broker, client, *words):
    assert said(broker, client, "TOPIC", "BIND", *words) == b"+OK\r\n"


def queued(broker):
    return {name: queue.length for name, queue in sorted(broker.queues.items())}


def shown(broker, client, job_id):
    words = ask_parsed(broker, client, "SHOW", job_id)
    return dict(zip((word.decode() for word in words[::2]), words[1::2], strict=True))


def test_a_job_goes_into_every_bound_queue_whose_filter_takes_it():
    """Spec TP7, TP8."""
    broker, client = start("t b", "t a", "t eu WHERE region eu", "other x")
    first = ask_parsed(broker, client, "ADDJOB", "t", "body", 0, "META", "region", "us")
    assert queued(broker) == {b"a": 1, b"b": 1}
    assert shown(broker, client, first)["queue"] == b"a"
    assert shown(broker, client, first)["topic"] == b"t"
    ask(broker, client, "ADDJOB", "t", "body", 0, "META", "region", "eu")
    assert queued(broker) == {b"a": 2, b"b": 2, b"eu": 1}


def test_publish_tells_all_jobs_sorted_by_queue():
    broker, client = start("t b", "t a")
    jobs = ask_parsed(broker, client, "TOPIC", "PUBLISH", "t", "x", 0)
    assert [queue for queue, _ in jobs] == [b"a", b"b"]
    assert len({job_id for _, job_id in jobs}) == 2
    assert all(broker.find(job_id) is not None for _, job_id in jobs)


def test_a_job_that_no_filter_takes_is_refused():
    broker, client = start("t a WHERE x 1")
    assert error_of(broker, client, "ADDJOB", "t", "b", 0) == "NOROUTE No queue bound to the topic takes this job"
    assert ask_parsed(broker, client, "TOPIC", "PUBLISH", "t", "b", 0) == []
    assert error_of(broker, client, "TOPIC", "PUBLISH", "t", "b", 0, "NOPE") == "ERR syntax error"
    assert error_of(broker, client, "TOPIC", "PUBLISH", "u", "b", 0) == "ERR no such topic"


def test_a_queue_with_the_topics_name_refuses_no_job_of_the_topic():
    """Spec TP7: its pause and settings do not reach the topic. A job that no filter takes makes no batch, either."""
    broker, client = start("t a WHERE x 1")
    said(broker, client, "QUEUE", "SET", "t", "maxsize", 1, "require-meta", "m", "lease", "1h")
    ask(broker, client, "PAUSE", "t", "in")
    for words in ((), ("BATCH", "b"), ("REPLICATE", 9), ("KEY", "k", "BATCH", "b")):
        assert error_of(broker, client, "ADDJOB", "t", "body", 0, *words).startswith("NOROUTE ")
        assert ask_parsed(broker, client, "TOPIC", "PUBLISH", "t", "body", 0, *words) == []
    assert said(broker, client, "BATCH", "LIST") == b"*0\r\n"


def test_bindings_are_listed_and_removed():
    broker, client = start("t b WHERE x 1", "t a", "s q")
    assert ask_parsed(broker, client, "TOPIC", "LIST") == [
        [b"s", b"q", []], [b"t", b"a", []], [b"t", b"b", [b"x", b"1"]],
    ]  # fmt: skip
    assert ask_parsed(broker, client, "TOPIC", "LIST", "s*") == [[b"s", b"q", []]]
    assert said(broker, client, "TOPIC", "UNBIND", "s", "q") == b":1\r\n"
    assert said(broker, client, "TOPIC", "UNBIND", "s", "q") == b":0\r\n"
    assert list(broker.topics) == [b"t"]


def test_an_existing_binding_gets_the_new_filter():
    broker, _ = start("t a WHERE x 1", "t a WHERE y 2 WHERE z 3")
    assert broker.topics == {b"t": {b"a": {b"y": b"2", b"z": b"3"}}}


def test_a_bound_queue_that_is_a_topic_itself_is_a_plain_queue_here():
    broker, client = start("t u", "u v")
    ask(broker, client, "ADDJOB", "t", "x", 0)
    assert queued(broker) == {b"u": 1}


def test_jobs_that_were_there_before_stay():
    broker, client = start()
    ask(broker, client, "ADDJOB", "t", "old", 0)
    bind(broker, client, "t", "a")
    ask(broker, client, "ADDJOB", "t", "new", 0)
    assert queued(broker) == {b"a": 1, b"t": 1}


@pytest.mark.parametrize(
    ("setting", "words", "text"),
    [
        ("maxsize 1", (), "TOOBIG Body is longer than the queue's maxsize: b"),
        ("require-meta m", (), "NOKEY The queue requires META 'm': b"),
        ("maxlen 1", (), "MAXLEN Queue is already longer than the specified MAXLEN count: b"),
        (None, (), "PAUSED Queue paused in input, try later: b"),
        (None, ("KEY", "k"), "PAUSED Queue paused in input, try later: b"),
        ("maxsize 1", ("KEY", "k"), "TOOBIG Body is longer than the queue's maxsize: b"),
    ],
)
def test_a_refusal_of_one_queue_refuses_all_and_names_the_queue(setting, words, text):
    """Spec TP9."""
    broker, client = start("t a", "t b", "t c")
    if setting is None:
        ask(broker, client, "PAUSE", "b", "in")
    else:
        if setting.startswith("maxlen"):
            ask(broker, client, "ADDJOB", "b", "x", 0)
        said(broker, client, "QUEUE", "SET", "b", *setting.split())
    count = broker.job_count
    assert said(broker, client, "ADDJOB", "t", "body", 0, *words).decode() == f"-{text}\r\n"
    assert broker.job_count == count
    assert not broker.producers.fans
    assert not client.waiting_jobs
    assert broker.waits.blocked_count == 0
    assert broker.producers.keys.jobs == {}


@pytest.mark.parametrize("words", [(), ("KEY", "k"), ("RETRY", 0)])
def test_a_refused_fan_out_makes_no_batch(words):
    """Spec BT1, TP9: a batch comes into being with its first job."""
    broker, client = start("t a", "t b")
    ask(broker, client, "PAUSE", "b", "in")
    publish = ("TOPIC", "PUBLISH", "t", "x", 0, "BATCH", "one", *words)
    assert said(broker, client, *publish) == b"-PAUSED Queue paused in input, try later: b\r\n"
    assert said(broker, client, "BATCH", "LIST") == b"*0\r\n"
    ask(broker, client, "PAUSE", "b", "none")
    assert said(broker, client, *publish).startswith(b"*2")
    assert said(broker, client, "BATCH", "LIST") == b"*1\r\n$3\r\none\r\n"


def test_settings_of_each_queue_fill_in_what_the_producer_left_out():
    broker, client = start("t a", "t b")
    said(broker, client, "QUEUE", "SET", "b", "delay", "5")
    for queue, job_id in ask_parsed(broker, client, "TOPIC", "PUBLISH", "t", "x", 0):
        assert broker.find(job_id).delay_ms == (5_000 if queue == b"b" else 0)


def test_a_key_holds_per_queue_and_a_repeat_makes_missing_jobs():
    broker, client = start("t a", "t b")
    first = said(broker, client, "TOPIC", "PUBLISH", "t", "x", 0, "KEY", "k")
    assert said(broker, client, "TOPIC", "PUBLISH", "t", "x", 0, "KEY", "k") == first
    bind(broker, client, "t", "c")
    more = said(broker, client, "TOPIC", "PUBLISH", "t", "x", 0, "KEY", "k")
    assert more.startswith(b"*3")
    assert queued(broker) == {b"a": 1, b"b": 1, b"c": 1}


def test_at_most_once_and_async_work_as_for_one_job_each():
    broker, client = start("t a", "t b")
    ask(broker, client, "ADDJOB", "t", "x", 0, "RETRY", 0)
    ask(broker, client, "ADDJOB", "t", "x", 0, "ASYNC")
    assert [queue.once_length for queue in broker.queues.values()] == [1, 1]
    assert queued(broker) == {b"a": 2, b"b": 2}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("BIND", "t"), "ERR syntax error: 't'"),
        (("NOPE",), "ERR syntax error: 'NOPE'"),
        (("BIND", "t", "q", "IF", "a", "b"), "ERR syntax error: 'IF'"),
        (("BIND", "t", "q", "WHERE", "a"), "ERR syntax error: WHERE needs a name and a value"),
        (("BIND", "", "q"), "ERR the name of a topic must have 1 to 1024 bytes"),
    ],
)
def test_wrong_arguments_are_refused(words, text):
    broker, client = start()
    assert error_of(broker, client, "TOPIC", *words) == text


def test_a_topic_has_a_limit_of_queues():
    broker, client = start("t a")
    broker.topics[b"t"].update({b"%d" % number: {} for number in range(topics.QUEUES_MAX - 1)})
    assert error_of(broker, client, "TOPIC", "BIND", "t", "more") == "ERR a topic has at most 1000 queues"
    bind(broker, client, "t", "a")


def test_topics_are_refused_while_an_older_node_is_known():
    broker, client = start("t a")
    add_node(broker, 2, protocol=3)
    for words in (("TOPIC", "BIND", "t", "q"), ("TOPIC", "UNBIND", "t", "a"), ("ADDJOB", "t", "x", 0)):
        assert "older version" in error_of(broker, client, *words)


def test_a_client_that_goes_leaves_nothing():
    broker, _ = start("t a", "t b")
    add_node(broker, 2)
    for words in ((), ("KEY", "k")):
        producer = make_client(broker)
        ask(broker, producer, "ADDJOB", "t", "x", 0, "REPLICATE", 2, *words)
        dispatch.settle(broker)
        dispatch.disconnect(broker, producer)
        dispatch.settle(broker)
        dispatch.settle(broker)
    assert broker.job_count == 0
    assert not broker.producers.fans
    assert broker.waits.blocked_count == 0
    assert not broker.producers.searches
