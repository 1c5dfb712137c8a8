"""commands/adding.py: PRIORITY, META and KEY of ADDJOB."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from journaled import JournaledNode


def start(**settings):
    broker = make_broker(**settings)
    return broker, make_client(broker)


def add(broker, client, *words, body="body"):
    return ask_parsed(broker, client, "ADDJOB", "q", body, 0, *words)


def get(broker, client, *words):
    return ask_parsed(broker, client, "GETJOB", "NOHANG", *words, "FROM", "q")


def test_a_lower_priority_is_served_first_whatever_came_first():
    broker, client = start()
    for priority in (5, -(1 << 63), 3, (1 << 63) - 1):
        add(broker, client, "PRIORITY", priority, body=priority)
    add(broker, client, body="plain")
    bodies = [entry[2] for entry in get(broker, client, "COUNT", 9)]
    assert bodies == [b"-9223372036854775808", b"3", b"5", b"plain", b"9223372036854775807"]


def test_without_priority_it_is_the_creation_time_in_milliseconds():
    broker, client = start()
    plain = add(broker, client)
    add(broker, client, "PRIORITY", broker.wall_ms + 1, body="later")
    add(broker, client, "PRIORITY", broker.wall_ms - 1, body="sooner")
    shown = ask_parsed(broker, client, "SHOW", plain)
    assert shown[shown.index(b"priority") + 1] == broker.wall_ms
    assert [entry[2] for entry in get(broker, client, "COUNT", 9)] == [b"sooner", b"body", b"later"]


def test_a_job_that_comes_back_has_its_priority():
    broker, client = start()
    add(broker, client, "PRIORITY", 9)
    first = add(broker, client, "PRIORITY", 1)
    assert get(broker, client)[0][1] == first
    ask(broker, client, "NACK", first)
    assert get(broker, client)[0][1] == first


def test_pairs_are_shown_and_come_with_the_job_if_wanted():
    broker, client = start()
    job_id = add(broker, client, "META", "colour", "red", "RETRY", 5, "META", "size", "")
    shown = ask_parsed(broker, client, "SHOW", job_id)
    assert shown[shown.index(b"meta") + 1] == [b"colour", b"red", b"size", b""]
    (entry,) = get(broker, client, "WITHMETA", "WITHCOUNTERS")
    assert entry[3:] == [
        b"nacks", 0, b"additional-deliveries", 0, b"meta", [b"colour", b"red", b"size", b""],
    ]  # fmt: skip


def test_jscan_shows_them_too():
    broker, client = start()
    add(broker, client, "META", "a", "b")
    (shown,) = ask_parsed(broker, client, "JSCAN", "REPLY", "all")[1]
    assert shown[-4:] == [b"priority", broker.wall_ms, b"meta", [b"a", b"b"]]


def test_options_may_stand_in_any_order():
    broker, client = start()
    job_id = add(broker, client, "PRIORITY", 4, "RETRY", 7, "KEY", "k", "TTL", 70, "META", "a", "b", "DELAY", 3)
    job = broker.find(job_id)
    assert (job.priority, job.retry_ms, job.meta, job.delay_ms) == (4, 7_000, (b"a", b"b"), 3_000)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("PRIORITY", "high"), "PRIORITY must be a 64-bit integer"),
        (("PRIORITY", ""), "PRIORITY must be"),
        (("PRIORITY", 1 << 63), "PRIORITY must be"),
        (("PRIORITY",), "syntax error"),
        (("META", "a"), "META needs a name and a value"),
        (("META", "", "b"), "META needs a name that is not empty"),
        (("META", "a", "b", "META", "a", "c"), "same name twice"),
        (("META", "a", "x" * 70_000), "META: at most 65536 bytes"),
        (("KEY", ""), "KEY must have 1 to 1024 bytes"),
        (("KEY", "x" * 1025), "KEY must have"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_done(words, text):
    broker, client = start()
    assert text in str(add(broker, client, *words))
    assert broker.job_count == 0


def test_so_many_pairs_and_no_more():
    broker, client = start(job_meta_max_pairs=1)
    assert "at most 1 pairs per job (job-meta-max-pairs)" in str(
        add(broker, client, "META", "a", "b", "META", "c", "d")
    )
    assert add(broker, client, "META", "a", "b").startswith(b"D-")


def test_memory_is_accounted_for_and_given_back():
    broker, client = start()
    add(broker, client, "META", "a", "x" * 1000, "PRIORITY", 3, "RETRY", 0)
    assert broker.used_memory > 1_500
    (entry,) = get(broker, client)
    ask(broker, client, "ACKJOB", entry[1])
    broker.drop_queue(broker.queues[b"q"])
    assert broker.used_memory == 0


def test_priority_and_pairs_survive_a_crash():
    node = JournaledNode()
    node.settle()
    for priority in (9, 1, 5):
        node.ask("ADDJOB", "q", "body", 0, "PRIORITY", priority, "META", "p", priority)
        node.settle()
    node = node.restart()
    node.ask("GETJOB", "COUNT", 9, "WITHMETA", "FROM", "q")
    node.settle()
    (entries,) = node.taken()
    assert [entry[4] for entry in entries] == [[b"p", b"1"], [b"p", b"5"], [b"p", b"9"]]
    assert all(used >= 0 for used in node.broker.live_bytes.values())
