"""core/pattern_interest.py: messages between nodes about patterns."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import HINT, PATTERN_INTEREST, PATTERN_QUEUE
from copies import advance, say, sent_of
from disque_py.core import interest, pattern_interest
from disque_py.core.patterns import NO_CLIENTS
from disque_py.node import dispatch


def start():
    broker = make_broker()
    return broker, add_node(broker, 2), make_client(broker)


def test_a_waiting_client_is_told_at_once_and_its_end_a_little_later():
    """Spec TP3."""
    broker, b, client = start()
    ask(broker, client, "GETJOB", "TIMEOUT", 20, "LEASE", 5, "FROMMATCH", "q*")
    dispatch.settle(broker)
    assert sent_of(broker, PATTERN_INTEREST) == [((b,), ((b"q*",), 1, -1, -1))]
    for _ in range(4):
        advance(broker, interest.LINGER_MS + 200)
    assert [item for _, item in sent_of(broker, PATTERN_INTEREST)][-1] == ((b"q*",), *NO_CLIENTS)


def test_a_new_link_is_told_everything():
    broker, b, client = start()
    ask(broker, client, "GETJOB", "FROMMATCH", "q*", "a*")
    dispatch.settle(broker)
    sent_of(broker, PATTERN_INTEREST)
    dispatch.link_up(broker, b)
    assert [item for _, item in sent_of(broker, PATTERN_INTEREST)] == [((b"a*", b"q*"), 1, 1, -1)]


def test_a_hint_is_owed_for_each_matching_queue_with_jobs_also_for_new_ones():
    broker, b, client = start()
    ask(broker, client, "ADDJOB", "q.a", "x", 0, "REPLICATE", 1)
    say(broker, b, PATTERN_INTEREST, ([b"q.*"], 1, 1, -1))
    advance(broker, 5)
    assert [item[0] for _, item in sent_of(broker, HINT)] == [b"q.a"]
    ask(broker, client, "ADDJOB", "q.b", "x", 0, "REPLICATE", 1)
    ask(broker, client, "ADDJOB", "other", "x", 0, "REPLICATE", 1)
    dispatch.settle(broker)
    assert [item[0] for _, item in sent_of(broker, HINT)] == [b"q.b"]


def test_a_node_whose_clients_have_a_filter_hears_the_names_of_queues():
    broker, b, client = start()
    ask(broker, client, "ADDJOB", "q.a", "x", 0, "REPLICATE", 1)
    say(broker, b, PATTERN_INTEREST, ([b"q.*"], -1, -1, 1))
    advance(broker, 5)
    ask(broker, client, "ADDJOB", "q.b", "x", 0, "REPLICATE", 1)
    dispatch.settle(broker)
    assert [item for _, item in sent_of(broker, PATTERN_QUEUE)] == [(b"q.a",), (b"q.b",)]
    assert sent_of(broker, HINT) == []


def test_interest_ends_with_the_link():
    broker, b, _ = start()
    say(broker, b, PATTERN_INTEREST, ([b"q.*"], 1, 1, -1))
    dispatch.incoming_lost(broker, b)
    assert not broker.patterns.groups[b"q.*",].interested


@pytest.mark.parametrize(
    "item",
    [
        ([], 1, 1, 1),
        ([b"x"] * 17, 1, 1, 1),
        (["x"], 1, 1, 1),
        ([b""], 1, 1, 1),
        ([b"b", b"a"], 1, 1, 1),
        ([b"a"], 1, "1", 1),
    ],
)
def test_a_malformed_pattern_closes_the_link(item):
    broker, b, _ = start()
    with pytest.raises(ValueError, match=r"pattern|interest"):
        pattern_interest.on_interest(broker, b, [item])
