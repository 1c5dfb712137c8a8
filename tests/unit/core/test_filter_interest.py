"""core/filter_interest.py: messages about interest with a filter. Conversations are in scenarios/test_filters.py."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, error_of, make_broker, make_client, pass_time
from cluster_bus.messages import FILTER_HINT, FILTER_INTEREST, FILTER_NEED
from copies import advance, sent_of
from disque_py.core import filter_interest, filters, interest
from disque_py.core.filter_interest import TOLD_PER_TURN
from disque_py.core.filters import GONE
from disque_py.node import dispatch

PAIRS = (b"t", b"a")


def start():
    broker = make_broker()
    return broker, add_node(broker, 2), make_client(broker)


def test_a_waiting_client_is_told_in_the_same_turn_and_its_end_a_little_later():
    """Spec W5."""
    broker, b, client = start()
    ask(broker, client, "GETJOB", "TIMEOUT", 20, "WHERE", "t", "a", "FROM", "q")
    dispatch.settle(broker)
    assert sent_of(broker, FILTER_INTEREST) == [((b,), (b"q", PAIRS, 1, 1))]
    advance(broker, interest.LINGER_MS + 200)
    advance(broker, interest.LINGER_MS + 200)
    assert [item for _, item in sent_of(broker, FILTER_INTEREST)][-1] == (b"q", PAIRS, GONE, GONE)
    assert not broker.consumers.told_filters


def test_very_many_filters_are_told_of_in_parts():
    """A pause ends, and all clients that wait with filters are announced again."""
    broker, _, _ = start()
    for number in range(2 * TOLD_PER_TURN + 1):
        ask(broker, make_client(broker), "GETJOB", "WHERE", "t", number, "FROM", "q")
    told = []
    while not told or told[-1]:
        pass_time(broker, 1)
        dispatch.tick(broker)
        dispatch.settle(broker)
        told.append(len(sent_of(broker, FILTER_INTEREST)))
    assert told == [TOLD_PER_TURN, TOLD_PER_TURN, 1, 0]


def test_a_new_link_is_told_everything():
    broker, b, client = start()
    ask(broker, client, "GETJOB", "LEASE", 5, "WHERE", "t", "a", "FROM", "q")
    dispatch.settle(broker)
    sent_of(broker, FILTER_INTEREST)
    filter_interest.on_link_up(broker, b)
    assert sent_of(broker, FILTER_INTEREST) == [((b,), (b"q", PAIRS, 1, GONE))]


def tell_link(broker, b):
    """The filters that a new link is told of, turn by turn."""
    filter_interest.on_link_up(broker, b)
    told = [len(sent_of(broker, FILTER_INTEREST))]
    while told[-1]:
        advance(broker, 1)
        told.append(len(sent_of(broker, FILTER_INTEREST)))
    return told


def test_a_new_link_is_told_of_very_many_filters_in_parts():
    """Spec W5."""
    broker, b, _ = start()
    for number in range(2 * TOLD_PER_TURN + 1):
        ask(broker, make_client(broker), "GETJOB", "WHERE", "t", number, "FROM", "q")
    advance(broker, 10)
    sent_of(broker, FILTER_INTEREST)
    assert tell_link(broker, b) == [TOLD_PER_TURN, TOLD_PER_TURN, 1, 0]
    filter_interest.on_link_up(broker, b)
    b.is_linked = False
    advance(broker, 10)
    assert len(sent_of(broker, FILTER_INTEREST)) == TOLD_PER_TURN


def test_hints_for_the_filters_of_a_new_link_are_owed_in_parts():
    """Spec W6."""
    broker, b, producer = start()
    count = TOLD_PER_TURN + 1
    for number in range(count):
        ask(broker, producer, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "META", "t", number)
    filter_interest.on_interest(broker, b, [(b"q", (b"t", b"%d" % number), 1, 1) for number in range(count)])
    advance(broker, 1_000)
    broker.consumers.filter_hints.clear()
    filter_interest.on_link_up(broker, b)
    assert len(broker.consumers.filter_hints) == TOLD_PER_TURN
    advance(broker, 1)
    sent_of(broker, FILTER_HINT)
    assert not broker.consumers.filter_hints


@pytest.mark.parametrize(
    "item",
    [
        (b"q", (), 1, 1),
        (b"q", (b"t",), 1, 1),
        (b"q", ("t", "a"), 1, 1),
        (b"q", (b"t", b"a", b"t", b"b"), 1, 1),
        (b"q", (b"u", b"a", b"t", b"b"), 1, 1),
        (b"q", (b"t", b"x" * 70_000), 1, 1),
        (b"q", PAIRS, "1", 1),
        (1, PAIRS, 1, 1),
    ],
)
def test_a_malformed_filter_closes_the_link(item):
    broker, b, _ = start()
    with pytest.raises(ValueError, match=r"filter|interest"):
        filter_interest.on_interest(broker, b, [item])


@pytest.mark.plain
def test_interest_beyond_the_limit_of_a_link_is_not_kept(monkeypatch):
    monkeypatch.setattr(filter_interest, "ENTRIES_PER_LINK_MAX", 2)
    broker, b, _ = start()
    filter_interest.on_interest(broker, b, [(b"q", (b"t", b"%d" % n), 1, 1) for n in range(5)])
    assert len(broker.consumers.filters[b"q"]) == 2
    filter_interest.forget_node(broker, b)
    assert not broker.consumers.filters


@pytest.mark.plain
@pytest.mark.parametrize(("name", "most"), [("ENTRIES_PER_LINK_MAX", 2), ("NAME_BYTES_PER_LINK_MAX", 2 * 3)])
def test_a_filter_that_found_no_room_is_sent_when_there_is_room(monkeypatch, name, most):
    """Spec W5."""
    monkeypatch.setattr(filter_interest, name, most)
    broker, _, _ = start()
    clients = [make_client(broker) for _ in range(4)]
    for number, client in enumerate(clients):
        ask(broker, client, "GETJOB", "TIMEOUT", 20, "WHERE", "t", str(number), "FROM", "q")
    dispatch.settle(broker)
    assert [item[1] for _, item in sent_of(broker, FILTER_INTEREST)] == [(b"t", b"0"), (b"t", b"1")]
    dispatch.disconnect(broker, clients[2])
    assert [group.values for group in broker.consumers.untold_filters] == [(b"3",)]
    advance(broker, 25)
    for client in clients[3:]:
        ask(broker, client, "GETJOB", "WHERE", "t", "3", "FROM", "q")
    advance(broker, interest.LINGER_MS + 200)
    told = [item[1:3] for _, item in sent_of(broker, FILTER_INTEREST)]
    assert told[-1] == ((b"t", b"3"), 1)
    assert list(broker.consumers.untold_filters) == []


@pytest.mark.plain
def test_clients_that_do_not_wait_count_against_the_bound(monkeypatch):
    """Spec W5."""
    monkeypatch.setattr(filter_interest, "ENTRIES_PER_LINK_MAX", 3)
    broker, _, client = start()
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    for number in range(10):
        ask(broker, client, "GETJOB", "NOHANG", "WHERE", "t", str(number), "FROM", "q")
    dispatch.settle(broker)
    assert len(sent_of(broker, FILTER_INTEREST)) == 3
    assert len(broker.consumers.told_filters) == 3
    assert len(broker.queues[b"q"].filters.indexes[b"t",].groups) == 3
    advance(broker, 2 * interest.LINGER_MS)
    assert broker.consumers.told_filter_bytes == 0


@pytest.mark.plain
def test_more_filters_than_other_nodes_keep_are_refused(monkeypatch):
    monkeypatch.setattr(filters, "LINES_MAX", 1)
    broker, _, client = start()
    assert ask(broker, client, "GETJOB", "WHERE", "t", "a", "FROM", "q") == b""
    text = error_of(broker, make_client(broker), "GETJOB", "WHERE", "t", "b", "FROM", "q")
    assert text == "ERR too many waiting filters, at most 1"


def test_a_hint_is_owed_while_a_matching_job_is_here_and_answered_by_a_pull():
    """Spec W6."""
    broker, b, client = start()
    filter_interest.on_interest(broker, b, [(b"q", PAIRS, 1, 1)])
    ask(broker, client, "ADDJOB", "q", "x", 0, "META", "t", "z", "REPLICATE", 1)
    dispatch.settle(broker)
    assert sent_of(broker, FILTER_HINT) == []
    ask(broker, client, "ADDJOB", "q", "x", 0, "META", "t", "a", "REPLICATE", 1)
    dispatch.settle(broker)
    assert sent_of(broker, FILTER_HINT) == [((b,), (b"q", PAIRS, 1))]
    advance(broker, 4 * interest.HINT_ALONE_MS)
    assert sent_of(broker, FILTER_HINT) != []


def test_a_hint_for_clients_that_are_gone_is_not_answered():
    broker, b, client = start()
    filter_interest.on_hint(broker, b, [(b"q", PAIRS, 3)])
    assert sent_of(broker, FILTER_NEED) == []
    ask(broker, client, "GETJOB", "WHERE", "t", "a", "FROM", "q")
    filter_interest.on_hint(broker, b, [(b"q", PAIRS, 3)])
    assert [item[:3] for _, item in sent_of(broker, FILTER_NEED)] == [(b"q", PAIRS, 1)]
