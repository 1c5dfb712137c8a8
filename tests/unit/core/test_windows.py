"""core/windows.py: how long the key of a job is used. Races of nodes are in scenarios/test_windows.py."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from copies import advance
from disque_py.core import moving, windows
from disque_py.core.job_snapshot import job_of, snapshot_of
from disque_py.node import dispatch


def start():
    broker = make_broker()
    return broker, make_client(broker)


def add(broker, client, *words):
    reply = ask(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k", *words)
    dispatch.settle(broker)
    reply += b"".join(client.out)
    client.out.clear()
    assert reply.startswith(b"+"), reply
    return reply[1:-2]


def shown(broker, client, job_id):
    words = ask_parsed(broker, client, "SHOW", job_id)
    return dict(zip((word.decode() for word in words[::2]), words[1::2], strict=True))


def take(broker, client):
    [[_, job_id, _]] = ask_parsed(broker, client, "GETJOB", "NOHANG", "FROM", "q")
    return job_id


@pytest.mark.parametrize("end", ["pending", "acked"])
def test_a_window_holds_in_any_status_and_a_repeat_does_not_extend_it(end):
    """Spec TP5."""
    broker, client = start()
    first = add(broker, client, "WINDOW", 10)
    if end == "acked":
        ask(broker, client, "ACKJOB", take(broker, client))
    advance(broker, 6_000)
    assert add(broker, client, "WINDOW", 10) == first
    advance(broker, 3_990)
    assert add(broker, client) == first
    advance(broker, 20)
    assert add(broker, client, "WINDOW", 10) != first


def test_window_0_lasts_until_the_job_is_over_or_errored():
    broker, client = start()
    first = add(broker, client, "WINDOW", 0)
    assert add(broker, client, "WINDOW", 0) == first
    ask(broker, client, "ACKJOB", take(broker, client))
    second = add(broker, client, "WINDOW", 0, "ATTEMPTS", 1)
    assert second != first
    ask(broker, client, "NACK", take(broker, client))
    assert add(broker, client) not in (first, second)


def test_window_0_ends_when_the_job_becomes_a_dead_letter():
    """Spec TP5: it does not wait in its queue or run any more, until it is redriven."""
    broker, client = start()
    ask(broker, client, "QUEUE", "SET", "q", "dead-letter", "dead")
    first = add(broker, client, "WINDOW", 0)
    ask(broker, client, "NACK", take(broker, client), "FINAL")
    assert ask(broker, client, "QLEN", "dead") == b":1\r\n"
    second = add(broker, client, "WINDOW", 0)
    assert second != first
    assert add(broker, client, "WINDOW", 0) == second
    ask(broker, client, "ACKJOB", take(broker, client))
    assert moving.redrive(broker, broker.find(first), b"")
    assert add(broker, client, "WINDOW", 0) == first


def test_a_window_longer_than_the_ttl_ends_with_the_ttl():
    broker, client = start()
    first = add(broker, client, "WINDOW", 1_000, "TTL", 20)
    advance(broker, 19_900)
    assert add(broker, client) == first
    advance(broker, 200)
    assert add(broker, client) != first


def test_another_end_of_life_moves_no_window():
    broker, client = start()
    job = broker.find(add(broker, client, "WINDOW", 10, "TTL", 100))
    windows.move_end(job, job.expire_at_ms + 50_000)
    assert windows.left_ms(job, broker.now_ms) == 10_000
    windows.move_end(job, broker.now_ms + 5_000)
    assert windows.left_ms(job, broker.now_ms) == 5_000


def test_the_time_left_travels_with_a_copy():
    broker, client = start()
    job_id = add(broker, client, "WINDOW", 10, "TTL", 100)
    advance(broker, 4_000)
    other = make_broker()
    other.now_ms += 123_456
    copy = job_of(other, snapshot_of(broker, broker.find(job_id)))
    assert windows.left_ms(copy, other.now_ms) == 6_000


def test_show_tells_the_time_left():
    broker, client = start()
    job_id = add(broker, client, "WINDOW", 10)
    advance(broker, 1_000)
    assert shown(broker, client, job_id)["key-window-ms"] == 9_000


def test_replace_takes_the_place_of_a_job_that_waits_for_its_delay():
    """Spec TP6."""
    broker, client = start()
    first = add(broker, client, "DELAY", 10, "REPLACE")
    advance(broker, 5_000)
    second = add(broker, client, "DELAY", 10, "REPLACE")
    assert second != first
    advance(broker, 1)
    old = shown(broker, client, first) if broker.find(first) is not None else None
    assert old is None or (old["status"], old["error"]) == (b"canceled", b"replaced by " + second)
    assert shown(broker, client, second)["key-window-ms"] in (9_999, 10_000)
    assert add(broker, client) == second
    advance(broker, 6_000)
    assert ask_parsed(broker, client, "GETJOB", "NOHANG", "FROM", "q") is None
    advance(broker, 4_100)
    assert take(broker, client) == second
    assert ask_parsed(broker, client, "GETJOB", "NOHANG", "FROM", "q") is None


def test_without_window_the_key_is_free_when_the_delay_is_over():
    broker, client = start()
    first = add(broker, client, "DELAY", 10, "REPLACE")
    advance(broker, 10_100)
    assert add(broker, client, "DELAY", 10, "REPLACE") != first
    assert take(broker, client) == first


@pytest.mark.parametrize(
    "words", [("PROMOTE",), ("RESCHEDULE", "DELAY", 0), ("RESCHEDULE", "DELAY", 5), ("RESCHEDULE", "DELAY", 60)]
)
def test_a_change_of_the_delay_does_not_move_the_end_of_the_window(words):
    """Spec TP6."""
    broker, client = start()
    first = add(broker, client, "DELAY", 10, "REPLACE")
    assert ask_parsed(broker, client, words[0], first, *words[1:]) == 1
    assert shown(broker, client, first)["key-window-ms"] == 10_000
    advance(broker, 9_900)
    assert add(broker, client) == first
    advance(broker, 200)
    assert add(broker, client, "DELAY", 10, "REPLACE") != first


def test_a_job_that_is_pending_or_running_or_over_is_not_replaced():
    broker, client = start()
    first = add(broker, client, "DELAY", 1, "WINDOW", 100, "REPLACE")
    advance(broker, 1_100)
    for step in (lambda: None, lambda: take(broker, client), lambda: ask(broker, client, "ACKJOB", first)):
        step()
        assert add(broker, client, "DELAY", 1, "REPLACE") == first


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("WINDOW", 5), "ERR WINDOW needs KEY"),
        (("DELAY", 5, "REPLACE"), "ERR REPLACE needs KEY and a DELAY"),
        (("KEY", "k", "REPLACE"), "ERR REPLACE needs KEY and a DELAY"),
        (("KEY", "k", "WINDOW", -1), "ERR WINDOW must be a number of seconds >= 0"),
        (("KEY", "k", "WINDOW", "x"), "ERR WINDOW must be a number of seconds >= 0"),
    ],
)
def test_wrong_windows_are_refused(words, text):
    broker, client = start()
    assert error_of(broker, client, "ADDJOB", "q", "x", 0, *words) == text


def test_windows_are_refused_while_an_older_node_is_known():
    broker, client = start()
    add_node(broker, 2, protocol=3)
    assert "older version" in error_of(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k", "WINDOW", 1)
