"""commands/queues.py: QLEN, QPEEK, QSTAT, PAUSE."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from copies import deliver, hold, hold_queued
from disque_py.core import pulls
from disque_py.core.delivery import REPLY_BYTES_MAX

QSTAT_NAMES = (
    b"name", b"len", b"age", b"idle", b"blocked", b"import-from", b"import-rate", b"jobs-in", b"jobs-out", b"pause",
    b"waiting-elsewhere", b"oldest-ms", b"invisible", b"running", b"errored", b"claims", b"tasks",
    b"without-key", b"rate-used",
)  # fmt: skip


def start(count=0):
    broker = make_broker()
    return broker, make_client(broker), [hold_queued(broker, number=number) for number in range(count)]


def qstat(broker, client, name="q"):
    values = ask_parsed(broker, client, "QSTAT", name)
    return dict(zip(values[::2], values[1::2], strict=True))


def test_qlen_counts_ready_jobs():
    broker, client, _ = start(3)
    deliver(broker)
    hold(broker, number=50)
    assert ask(broker, client, "QLEN", "q") == b":2\r\n"
    assert ask(broker, client, "QLEN", "missing") == b":0\r\n"
    assert list(broker.queues) == [b"q"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [0]), (2, [0, 1]), (10, [0, 1, 2]), (-1, [2]), (-2, [2, 1]), (-10, [2, 1, 0]), (0, []), ("", [])],
)
def test_qpeek_shows_the_oldest_or_the_newest(count, expected):
    broker, client, jobs = start(3)
    found = ask_parsed(broker, client, "QPEEK", "q", count)
    assert found == [[b"q", jobs[at].id, b"body"] for at in expected]
    assert broker.queues[b"q"].length == 3


def test_qpeek_of_a_missing_queue_is_empty_and_makes_none():
    broker, client, _ = start()
    assert ask(broker, client, "QPEEK", "q", 5) == b"*0\r\n"
    assert broker.queues == {}


def test_qpeek_works_during_a_pause():
    broker, client, _ = start(1)
    ask(broker, client, "PAUSE", "q", "all")
    assert len(ask_parsed(broker, client, "QPEEK", "q", 5)) == 1


@pytest.mark.parametrize("count", ["x", "1.0", "9223372036854775808"])
def test_qpeek_needs_a_number(count):
    broker, client, _ = start()
    assert ask(broker, client, "QPEEK", "q", count) == b"-ERR value is not an integer or out of range\r\n"


@pytest.mark.parametrize("sign", [1, -1])
def test_qpeek_stops_at_a_megabyte(sign):
    broker, client, _ = start()
    for number in range(20):
        hold_queued(broker, number=number, body=b"x" * 100_000)
    assert len(ask(broker, client, "QPEEK", "q", sign * 10**12)) < REPLY_BYTES_MAX + 101_000


def test_qstat_has_the_original_fields_in_their_order_and_new_ones_behind():
    broker, client, _ = start(2)
    node = add_node(broker)
    broker.queues[b"q"].interested[node] = 3
    deliver(broker)
    broker.queues[b"q"].jobs_out += 1
    pass_time(broker, 2500)
    pulls.imported(broker, broker.queues[b"q"], node)
    stat = qstat(broker, client)
    assert tuple(stat) == QSTAT_NAMES
    assert list(stat.values()) == [b"q", 1, 2, 2, 0, [node.name], 20, 2, 1, b"none", 3, 2500, 0, 1, 0, 0, 0, 0, 0]


def test_qstat_counts_the_clients_that_wait_here():
    broker, client, _ = start()
    for _ in range(3):
        ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    stat = qstat(broker, client)
    assert (stat[b"len"], stat[b"blocked"]) == (0, 3)


def test_waiting_does_not_make_a_queue_less_idle_but_a_fetch_does():
    broker, client, _ = start(1)
    pass_time(broker, 5000)
    ask(broker, make_client(broker), "GETJOB", "FROM", "other", "q")
    assert qstat(broker, client)[b"idle"] == 0
    pass_time(broker, 5000)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert qstat(broker, client)[b"idle"] == 5


def test_a_source_is_shown_for_five_seconds():
    broker, client, _ = start()
    node = add_node(broker)
    pulls.imported(broker, broker.queue(b"q"), node)
    pass_time(broker, 5001)
    stat = qstat(broker, client)
    assert (stat[b"import-from"], stat[b"import-rate"]) == ([], 0)


def test_qstat_of_a_missing_queue_is_a_nil_array():
    broker, client, _ = start()
    assert ask(broker, client, "QSTAT", "q") == b"*-1\r\n"
    client.protocol = 3
    assert ask(broker, client, "QSTAT", "q") == b"_\r\n"


@pytest.mark.parametrize(
    ("words", "reply"),
    [(("in",), "in"), (("out",), "out"), (("all",), "all"), (("none",), "none"), (("in", "out"), "all"),
     (("in", "none"), "none"), (("none", "out"), "out"), (("OUT", "In"), "all"), (("all", "none", "in"), "in"),
     (("state",), "none"), (("state", "in"), "in")],
)  # fmt: skip
def test_options_of_one_pause_are_combined_from_left_to_right(words, reply):
    broker, client, _ = start()
    assert ask(broker, client, "PAUSE", "q", *words) == b"+%b\r\n" % reply.encode()
    assert (b"q" in broker.queues) is (reply != "none")


def test_a_pause_replaces_the_one_before():
    broker, client, _ = start()
    ask(broker, client, "PAUSE", "q", "out")
    assert ask(broker, client, "PAUSE", "q", "in") == b"+in\r\n"
    assert ask(broker, client, "PAUSE", "q", "state") == b"+in\r\n"
    assert qstat(broker, client)[b"pause"] == b"in"


@pytest.mark.parametrize("words", [("in", "nosuch"), ("nosuch",), ("",)])
def test_a_wrong_argument_changes_nothing(words):
    broker, client, _ = start()
    assert ask(broker, client, "PAUSE", "q", *words) == b"-ERR syntax error\r\n"
    assert broker.queues == {}
