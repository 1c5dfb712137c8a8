"""core/gathering.py: a question to all nodes, also to hostile ones."""

from __future__ import annotations

from typing import Any

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import ANSWER, QUESTION
from copies import advance, say, sent, sent_of
from disque_py.core import filters, gathering
from disque_py.core.schedule import WALKED_PER_MS
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError


def start(nodes=2):
    broker = make_broker()
    others = [add_node(broker, 2 + at) for at in range(nodes)]
    client = make_client(broker)
    sent(broker)
    return broker, client, others


def asked(broker):
    """Return the only question that was sent: (number, subject, words)."""
    (item,) = [item for _, kind, item in sent(broker) if kind == QUESTION]
    return item


def replies(broker, client):
    dispatch.tick(broker)
    data = b"".join(client.out)
    client.out.clear()
    return data


def test_the_client_is_answered_when_all_nodes_have_answered():
    """Spec Z1."""
    broker, client, (one, other) = start()
    assert ask(broker, client, "QLEN", "q", "CLUSTER") == b""
    number, subject, words = asked(broker)
    assert (subject, words) == (b"qlen", [b"q", [], b"pending"])
    say(broker, one, ANSWER, (number, gathering.ANSWERED, 3))
    assert replies(broker, client) == b""
    say(broker, other, ANSWER, (number, gathering.ANSWERED, 4))
    assert replies(broker, client) == b":7\r\n"
    assert not broker.gatherings.asked
    assert not broker.waits.stalled


def test_a_node_that_is_unable_is_not_waited_for():
    """Spec Z1."""
    broker, client, (one, other) = start()
    ask(broker, client, "QLEN", "q", "CLUSTER")
    number = asked(broker)[0]
    say(broker, one, ANSWER, (number, gathering.UNABLE, None))
    say(broker, other, ANSWER, (number, gathering.ANSWERED, 4))
    assert replies(broker, client) == b":4\r\n"


def test_late_and_repeated_answers_are_ignored():
    """Spec Z1."""
    broker, client, (one, other) = start()
    ask(broker, client, "QLEN", "q", "CLUSTER")
    number = asked(broker)[0]
    for _ in range(3):
        say(broker, one, ANSWER, (number, gathering.ANSWERED, 3))
    say(broker, other, ANSWER, (number + 7, gathering.ANSWERED, 100))
    assert replies(broker, client) == b""
    advance(broker, gathering.ASK_MS)
    assert b"".join(client.out) == b":3\r\n"
    say(broker, other, ANSWER, (number, gathering.ANSWERED, 4))


def test_without_other_nodes_the_answer_comes_at_once():
    broker, client, _ = start(0)
    assert ask(broker, client, "QLEN", "q", "CLUSTER") == b":0\r\n"


BAD_ANSWERS: list[tuple[tuple[str, ...], Any]] = [
    (("QLEN", "q", "CLUSTER"), -1),
    (("QLEN", "q", "CLUSTER"), 1 << 63),
    (("QLEN", "q", "CLUSTER"), True),
    (("QLEN", "q", "CLUSTER"), None),
    (("QPEEK", "q", "5", "CLUSTER"), 7),
    (("QPEEK", "q", "5", "CLUSTER"), [7]),
    (("QPEEK", "q", "5", "CLUSTER"), [[[b"no id", 1, 1, b"", []]]]),
    (("QDEPTH", "q", "BY", "t", "CLUSTER"), [0]),
    (("QDEPTH", "q", "BY", "t", "CLUSTER"), [0, [[[-5, b"x"]]]]),
    (("QSTAT", "q", "CLUSTER"), [1] * 12),
    (("QSTAT", "q", "CLUSTER"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3]),
    (("SHOW", "D-00010203-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", "CLUSTER"), [1, b"", b"+OK\r\n"]),
    (("SHOW", "D-00010203-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", "CLUSTER"), [1, b"", b"*2\r\n$1\r\na\r\n:1\r\n+more\r\n"]),
    (("SHOW", "D-00010203-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", "CLUSTER"), [1, b"", b"*2\r\n-ERR\r\n:1\r\n"]),
    (("SHOW", "D-00010203-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", "CLUSTER"), [1, b"", b"*9\r\n"]),
    (("SHOW", "D-00010203-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", "CLUSTER"), [1, b"", b"?"]),
    (("SHOW", "D-00010203-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", "CLUSTER"), [1, b"", b"*2\r\n$1\r\na\r\n*1\r\n*1\r\n:1\r\n"]),
]


@pytest.mark.parametrize(("words", "answer"), BAD_ANSWERS)
def test_an_answer_of_a_wrong_shape_closes_the_link(words, answer):
    """Spec Z1."""
    broker, client, (one, _) = start()
    ask(broker, client, *words)
    with pytest.raises(MalformedMessageError):
        say(broker, one, ANSWER, (asked(broker)[0], gathering.ANSWERED, answer))


@pytest.mark.parametrize(
    "item",
    [
        (b"1", b"qlen", []),
        (1, "qlen", []),
        (1, b"q" * 33, []),
        (1, b"qlen", b"q"),
        (1, b"qlen", []),
        (1, b"qlen", [1, [], b"pending"]),
        (1, b"qlen", [b"q", [b"odd"], b"pending"]),
        (1, b"qlen", [b"q", [b"a", b"1", b"a", b"2"], b"pending"]),
        (1, b"qlen", [b"q", [b"a", b"1"] * 9, b"pending"]),
        (1, b"qpeek", [b"q", [], b"pending", 1 << 64]),
        (1, b"qdepth", [b"q", None, b"pending"]),
        (1, b"show", [b"no id"]),
        (1, b"show", [None]),
    ],
)
def test_a_question_of_a_wrong_shape_closes_the_link(item):
    """Spec Z1."""
    broker, _, (one, _) = start()
    with pytest.raises(MalformedMessageError):
        say(broker, one, QUESTION, item)
    assert not broker.gatherings.shares


def test_a_subject_of_a_newer_node_is_answered_with_unable():
    """Spec Z1."""
    broker, _, (one, _) = start()
    say(broker, one, QUESTION, (5, b"new", [], b"more"))
    assert sent(broker) == [((one,), ANSWER, (5, gathering.UNABLE, None))]


def test_a_node_that_reads_its_journal_says_so():
    """Spec Z1."""
    broker, _, (one, _) = start()
    broker.is_loading = True
    say(broker, one, QUESTION, (5, b"qlen", [b"q", [], b"pending"]))
    assert sent(broker) == [((one,), ANSWER, (5, gathering.UNABLE, None))]


def endless(broker, words):
    while True:
        yield


def count_parts(broker, done):
    """Install a subject whose endless shares note the millisecond of each part."""

    def share(broker, words):
        while True:
            done.append(broker.now_ms)
            yield

    broker.gatherings.subjects = {b"endless": share}


def test_many_askers_get_no_more_parts_per_millisecond_than_one():
    """Spec Z6."""
    broker, _, (one, other) = start()
    done: list[int] = []
    count_parts(broker, done)
    for number in range(200):
        for node in (one, other):
            say(broker, node, QUESTION, (number, b"endless", []))
    assert len(done) == gathering.BEGUN_PER_MS
    done.clear()
    advance(broker, 100)
    assert max(done.count(at_ms) for at_ms in done) == WALKED_PER_MS


def test_an_answer_is_a_run_of_its_own():
    """Spec Z6."""
    broker, _, (one, _) = start()
    for number in range(3):
        say(broker, one, QUESTION, (number, b"qlen", [b"q", [], b"pending"]))
    runs = [run for run in broker.outbox.messages.take() if run[1] == ANSWER]
    assert [items for _, _, items in runs] == [[(number, gathering.ANSWERED, 0)] for number in range(3)]


def test_a_share_that_a_node_cannot_make_is_answered_with_unable():
    """Spec Z1: the queue has as many indexes as it may."""
    broker, client, (one, _) = start()
    for number in range(filters.INDEXES_MAX):
        ask(broker, make_client(broker), "GETJOB", "WHERE", f"n{number}", "x", "FROM", "q")
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    sent(broker)
    say(broker, one, QUESTION, (5, b"qdepth", [b"q", b"more", b"pending"]))
    assert sent_of(broker, ANSWER) == [((one,), (5, gathering.UNABLE, None))]


def test_shares_are_limited_per_node_and_dropped_when_the_asker_is_gone():
    """Spec Z1."""
    broker, _, (one, _) = start()
    broker.gatherings.subjects = {b"endless": endless}
    for number in range(gathering.SHARES_OF_NODE_MAX + 1):
        say(broker, one, QUESTION, (number, b"endless", []))
    assert sent(broker) == [((one,), ANSWER, (gathering.SHARES_OF_NODE_MAX, gathering.UNABLE, None))]
    advance(broker, gathering.ASK_MS + gathering.SHARES_OF_NODE_MAX)
    assert not broker.gatherings.shares
    assert sent(broker) == []


def slow(broker, words):
    yield
    return 1


def test_the_answer_for_a_process_that_is_gone_is_not_sent_to_the_next_one():
    """Its next process has questions of its own with the same numbers."""
    broker, _, (one, _) = start()
    broker.gatherings.subjects = {b"slow": slow}
    say(broker, one, QUESTION, (1, b"slow", []))
    one.run = b"another!"
    advance(broker, 50)
    assert sent(broker) == []
    assert not broker.gatherings.shares
