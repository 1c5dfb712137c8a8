"""commands/scanning.py: JSCAN and QSCAN as clients write them."""

from __future__ import annotations

import hiredis
import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from copies import hold, hold_queued
from disque_py.node import dispatch


def ask_in_parts(broker, client, *words):
    """Send a scan, which may take several turns, and return its reply."""
    reader = hiredis.Reader()
    reader.feed(ask(broker, client, *words))
    while (reply := reader.gets()) is False:
        assert client.waiting
        dispatch.tick(broker)
        reader.feed(b"".join(client.out))
        client.out.clear()
    return reply


def start(jobs=0):
    broker = make_broker()
    return broker, make_client(broker), [hold_queued(broker, number=number) for number in range(jobs)]


@pytest.mark.parametrize("command", ["JSCAN", "QSCAN"])
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("x",), "ERR invalid cursor or option name"),
        (("COUNT",), "ERR invalid cursor or option name"),
        (("0", "0"), "ERR syntax error"),
        (("COUNT", "x"), "ERR value is not an integer or out of range"),
        (("0", "COUNT"), "ERR syntax error"),
    ],
)
def test_a_scan_with_wrong_words_is_refused(command, words, text):
    broker, client, _ = start()
    assert ask(broker, client, command, *words) == b"-%b\r\n" % text.encode()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("STATE", "nosuch"), "ERR Invalid job state name"),
        (("REPLY", "nosuch"), "ERR Invalid REPLY type, try ID or ALL"),
        (("STATE",), "ERR invalid cursor or option name"),
        (("MINLEN", "1"), "ERR invalid cursor or option name"),
    ],
)
def test_jscan_refuses_unknown_states_and_replies(words, text):
    broker, client, _ = start()
    assert ask(broker, client, "JSCAN", *words) == b"-%b\r\n" % text.encode()


@pytest.mark.parametrize("option", ["MINLEN", "MAXLEN", "IMPORTRATE"])
def test_qscan_needs_numbers(option):
    broker, client, _ = start()
    assert ask(broker, client, "QSCAN", option, "x") == b"-ERR value is not an integer or out of range\r\n"


def test_ids_are_simple_strings_and_the_cursor_is_bulk():
    broker, client, (job,) = start(1)
    assert ask(broker, client, "JSCAN") == b"*2\r\n$1\r\n0\r\n*1\r\n+%b\r\n" % job.id


def test_reply_all_is_what_show_says():
    broker, client, (job,) = start(1)
    assert ask_parsed(broker, client, "JSCAN", "REPLY", "ALL") == [b"0", [ask_parsed(broker, client, "SHOW", job.id)]]


def test_words_come_in_any_order_and_case():
    broker, client, jobs = start(3)
    active = hold(broker, number=50)
    cursor, found = ask_parsed(
        broker, client, "jscan", "state", "QUEUED", "Count", 10, "0", "queue", "q", "reply", "id"
    )
    assert (cursor, sorted(found)) == (b"0", sorted(job.id for job in jobs))
    _, found = ask_parsed(broker, client, "JSCAN", "STATE", "active", "STATE", "acked")
    assert found == [active.id]


@pytest.mark.parametrize("command", ["JSCAN", "QSCAN"])
def test_a_walk_by_cursor_returns_everything(command):
    broker, client, jobs = start(25)
    for number in range(24):
        broker.queue(b"q%d" % number)
    cursor, found, calls = b"", [], 0
    while cursor != b"0":
        cursor, part = ask_parsed(broker, client, command, cursor, "COUNT", 4)
        found += part
        calls += 1
    assert calls >= 6
    assert sorted(found) == sorted([job.id for job in jobs] if command == "JSCAN" else broker.queues)


@pytest.mark.parametrize("command", ["JSCAN", "QSCAN"])
def test_busyloop_walks_at_once(command):
    broker, client, _ = start(1200)
    for number in range(1199):
        broker.queue(b"q%d" % number)
    cursor, found = ask_in_parts(broker, client, command, "COUNT", 1, "BUSYLOOP")
    assert (cursor, len(found)) == (b"0", 1200)


@pytest.mark.parametrize("command", ["JSCAN", "QSCAN"])
@pytest.mark.parametrize("cursor", [b"-1", b"18446744073709551615"])
def test_a_cursor_behind_the_end_ends_the_scan(command, cursor):
    broker, client, _ = start(3)
    assert ask_parsed(broker, client, command, cursor) == [b"0", []]


def test_qscan_filters_by_length():
    broker, client, _ = start(3)
    hold_queued(broker, number=50, queue=b"r")
    broker.queue(b"empty")
    for words, expected in (
        (("MINLEN", 1), [b"q", b"r"]),
        (("MINLEN", 2), [b"q"]),
        (("MAXLEN", 1), [b"empty", b"r"]),
        (("MINLEN", 1, "MAXLEN", 1), [b"r"]),
        (("MINLEN", -1, "MAXLEN", -1), [b"empty", b"q", b"r"]),
        (("IMPORTRATE", 1), []),
    ):
        assert sorted(ask_parsed(broker, client, "QSCAN", *words)[1]) == expected


def test_count_is_a_target_for_queues_that_match():
    """A filter that few queues match must not need a call for every few queues. JSCAN has the same rule (spec R11)."""
    broker, client, _ = start()
    for number in range(40):
        broker.queue(b"empty %d" % number)
    hold_queued(broker, number=1)
    assert ask_parsed(broker, client, "QSCAN", "COUNT", 10, "MINLEN", 1)[1] == [b"q"]
