"""core/matching.py: jobs of every queue that matches, in turns. Conversations are in scenarios/test_patterns.py."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client, port_of
from cluster_bus.messages import FILTER_INTEREST, HINT, NEEDJOBS, PATTERN_INTEREST, PATTERN_QUEUE
from copies import say, sent_of
from disque_py.core import matching
from disque_py.node import dispatch


def start(*queues, jobs=3):
    broker = make_broker()
    client = make_client(broker)
    for name in queues:
        for number in range(jobs):
            ask(broker, client, "ADDJOB", name, f"{name}{number}", 0)
    return broker, client


def take(broker, client, *words):
    return [entry[2] for entry in ask_parsed(broker, client, "GETJOB", "NOHANG", *words) or []]


def test_queues_are_visited_in_turns_by_name():
    """Spec TP2."""
    broker, client = start("q.b", "q.a", "other", "q.c")
    assert take(broker, client, "COUNT", 4, "FROMMATCH", "q.*") == [b"q.a0", b"q.b0", b"q.c0", b"q.a1"]


def test_a_client_goes_on_behind_the_queue_that_it_was_served_from_last():
    broker, client = start("q.a", "q.b", "q.c")
    taken = [take(broker, client, "FROMMATCH", "q.*")[0] for _ in range(4)]
    assert taken == [b"q.a0", b"q.b0", b"q.c0", b"q.a1"]
    assert take(broker, make_client(broker), "FROMMATCH", "q.*") == [b"q.a2"]


def test_a_waiting_client_gets_a_job_of_a_queue_that_comes_later_and_no_queue_is_made():
    broker, client = start()
    ask(broker, client, "GETJOB", "FROMMATCH", "new.*", "x?")
    assert not broker.queues
    ask(broker, make_client(broker), "ADDJOB", "new.one", "hello", 0)
    dispatch.settle(broker)
    assert b"hello" in b"".join(client.out)
    assert client.served_from == b"new.one"
    assert client.group is None


def test_clients_by_name_and_by_pattern_are_served_first_come_first_served():
    broker, producer = start()
    clients = [make_client(broker) for _ in range(4)]
    for client, words in zip(clients, ("FROM q", "FROMMATCH q*", "FROM q", "FROMMATCH *"), strict=True):
        ask(broker, client, "GETJOB", *words.split())
    for number in range(3):
        ask(broker, producer, "ADDJOB", "q", f"body{number}", 0)
    dispatch.settle(broker)
    assert [b"body%d" % number in b"".join(client.out) for number, client in enumerate(clients)] == [True] * 3 + [False]


def test_a_client_with_lease_skips_at_most_once_jobs():
    broker, producer = start()
    picky, plain = make_client(broker), make_client(broker)
    ask(broker, picky, "GETJOB", "LEASE", 5, "FROMMATCH", "q*")
    ask(broker, plain, "GETJOB", "FROMMATCH", "q*")
    ask(broker, producer, "ADDJOB", "q", "once", 0, "RETRY", 0)
    dispatch.settle(broker)
    assert not picky.out
    assert b"once" in b"".join(plain.out)


def test_where_takes_jobs_of_all_matching_queues_and_waits_for_those_of_new_ones():
    broker, producer = start("q.a")
    ask(broker, producer, "ADDJOB", "q.b", "wanted", 0, "META", "t", "a")
    assert take(broker, producer, "WHERE", "t", "a", "FROMMATCH", "q.*") == [b"wanted"]
    waiting = make_client(broker)
    ask(broker, waiting, "GETJOB", "WHERE", "t", "a", "FROMMATCH", "q.*")
    ask(broker, producer, "ADDJOB", "q.new", "plain", 0)
    dispatch.settle(broker)
    assert not waiting.out
    ask(broker, producer, "ADDJOB", "q.new", "later", 0, "META", "t", "a")
    dispatch.settle(broker)
    assert b"later" in b"".join(waiting.out)


def test_a_paused_queue_is_skipped_until_its_pause_ends():
    broker, client = start("q.a", jobs=1)
    ask(broker, client, "PAUSE", "q.a", "out")
    assert take(broker, client, "FROMMATCH", "q*") == []
    waiting = make_client(broker)
    ask(broker, waiting, "GETJOB", "FROMMATCH", "q*")
    ask(broker, client, "PAUSE", "q.a", "none")
    dispatch.settle(broker)
    assert b"q.a0" in b"".join(waiting.out)


def test_a_token_repeats_the_answer():
    broker, client = start("q.a", "q.b")
    first = take(broker, client, "TOKEN", "t", "FROMMATCH", "q.*")
    assert take(broker, client, "TOKEN", "t", "FROMMATCH", "nothing") == first == [b"q.a0"]


def test_a_timeout_answers_nil_and_leaves_the_group():
    broker, client = start()
    ask(broker, client, "GETJOB", "TIMEOUT", 50, "FROMMATCH", "q*")
    dispatch.disconnect(broker, client)
    assert not broker.patterns.groups[b"q*",].waiting
    assert broker.waits.blocked_count == 0


def test_very_many_queues_that_give_nothing_are_looked_at_in_parts():
    broker, client = start(*[f"q{number}" for number in range(600)], jobs=1)
    for queue in broker.queues.values():
        queue.paused = 2
    broker.queues[b"q99"].paused = 0
    visit = matching.Visit(b"")
    group = broker.patterns.group([b"q*"])
    while group.build is not None:
        next(group.build, None)
    parts = 1
    while not matching.collect(broker, client, group, 1, client.options, visit):
        parts += 1
    assert parts == 3
    assert len(visit.entries) == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["FROMMATCH"], "ERR syntax error"),
        (["FROMMATCH", *["a"] * 17], "ERR at most 16 patterns"),
        (["FROMMATCH", ""], "ERR a pattern must have 1 to 1024 bytes"),
    ],
)
def test_wrong_patterns_are_refused(words, error):
    broker, client = start()
    assert error_of(broker, client, "GETJOB", "NOHANG", *words) == error


def test_from_match_is_the_queue_match():
    broker, client = start("MATCH", "ab")
    assert take(broker, client, "COUNT", 2, "FROM", "MATCH", "a*") == [b"MATCH0", b"MATCH1"]


def test_other_nodes_hear_of_the_pattern_and_their_hint_is_answered_with_a_pull():
    """Spec TP3."""
    broker, client = start()
    b = add_node(broker, 2)
    ask(broker, client, "GETJOB", "FROMMATCH", "q.*")
    dispatch.settle(broker)
    assert [item for _, item in sent_of(broker, PATTERN_INTEREST)] == [((b"q.*",), 1, 1, -1)]
    say(broker, b, HINT, (b"other", 5), (b"q.x", 5), (b"q.y", 5))
    assert [item[:2] for _, item in sent_of(broker, NEEDJOBS)] == [(b"q.x", 1)]
    assert b"other" not in broker.queues
    ask(broker, make_client(broker), "GETJOB", "FROMMATCH", "q.*")
    assert [item[:2] for _, item in sent_of(broker, NEEDJOBS)] == [(b"q.y", 1)]


def test_a_client_with_a_filter_waits_for_a_queue_that_another_node_names():
    broker, client = start()
    b = add_node(broker, 2)
    ask(broker, client, "GETJOB", "WHERE", "t", "a", "FROMMATCH", "q.*")
    dispatch.settle(broker)
    say(broker, b, PATTERN_QUEUE, (b"q.x",), (b"other",))
    dispatch.settle(broker)
    assert [item for _, item in sent_of(broker, FILTER_INTEREST)] == [(b"q.x", (b"t", b"a"), 1, 1)]
    assert b"other" not in broker.queues
    assert port_of(client) is not None
