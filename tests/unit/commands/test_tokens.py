"""commands/tokens.py, and the extensions of GETJOB and WORKING: LEASE, TOKEN, WITHLEASE, seconds."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import INTEREST, LEASED, NEEDJOBS
from copies import advance, hold_queued, queue_of, say, sent_of
from disque_py.core.pulls import ANSWERS_HINT, RETRIED_ONLY
from disque_py.node import dispatch


def start(count=3, **fields):
    broker = make_broker()
    client = make_client(broker)
    for number in range(count):
        hold_queued(broker, number=number, **fields)
    return broker, client


def get(broker, client, *words):
    return ask_parsed(broker, client, "GETJOB", "NOHANG", *words, "FROM", "q")


def test_a_token_is_answered_with_the_same_jobs_again_whatever_else_is_asked():
    """Spec G1."""
    broker, client = start()
    first = get(broker, client, "COUNT", 2, "TOKEN", "t")
    assert get(broker, client, "COUNT", 1, "TOKEN", "t", "LEASE", 7) == first
    assert ask_parsed(broker, client, "GETJOB", "TOKEN", "t", "FROM", "elsewhere") == first
    assert len(get(broker, client, "TOKEN", "u")) == 1
    assert broker.stats.jobs_delivered == 3


def test_jobs_that_are_no_longer_leased_are_not_answered_again():
    broker, client = start()
    first, second = get(broker, client, "COUNT", 2, "TOKEN", "t")
    ask(broker, client, "ACKJOB", first[1])
    assert get(broker, client, "TOKEN", "t") == [second]


def test_an_empty_answer_is_not_remembered():
    broker, client = start(0)
    assert get(broker, client, "TOKEN", "t") is None
    job = hold_queued(broker, number=1)
    assert get(broker, client, "TOKEN", "t")[0][1] == job.id


def test_acktoken_acknowledges_all_of_several_deliveries_once():
    """Spec G3."""
    broker, client = start()
    get(broker, client, "COUNT", 2, "TOKEN", "t")
    get(broker, client, "TOKEN", "u")
    assert ask_parsed(broker, client, "ACKTOKEN", "t", "u", "unknown") == 3
    assert ask_parsed(broker, client, "ACKTOKEN", "t", "u", "unknown") == 0
    assert broker.job_count == 0


def test_nacktoken_gives_all_back():
    broker, client = start()
    got = get(broker, client, "COUNT", 3, "TOKEN", "t")
    assert ask_parsed(broker, client, "NACKTOKEN", "t") == 3
    assert ask_parsed(broker, client, "NACKTOKEN", "t") == 0
    assert queue_of(broker) == [entry[1] for entry in got]
    assert all(broker.find(entry[1]).nacks == 1 for entry in got)


def test_extendtoken_has_the_leases_last_from_now():
    broker, client = start(2, retry_s=10)
    got = get(broker, client, "COUNT", 2, "TOKEN", "t")
    pass_time(broker, 8_000)
    assert ask_parsed(broker, client, "EXTENDTOKEN", "t", 20) == 2
    assert broker.find(got[0][1]).requeue_at_ms == broker.now_ms + 20_000
    advance(broker, 19_000)
    assert ask_parsed(broker, client, "EXTENDTOKEN", "t", 1) == 2
    advance(broker, 1_500)
    assert ask_parsed(broker, client, "EXTENDTOKEN", "t", 1) == 0


def test_a_delivery_is_not_extended_when_half_of_the_ttl_is_over():
    broker, client = start(1, ttl_s=100, retry_s=80)
    get(broker, client, "TOKEN", "t")
    pass_time(broker, 51_000)
    assert ask_parsed(broker, client, "EXTENDTOKEN", "t", 20) == 0


def test_many_jobs_of_a_token_are_done_in_parts():
    broker, client = start(700)
    broker.settings.maxclients = 1
    got = []
    while len(got) < 700:
        got += get(broker, client, "COUNT", 100, "TOKEN", b"t%d" % len(got))
        broker.tokens.add(b"all", broker.find(got[-1][1]))
    for entry in got:
        broker.tokens.add(b"all", broker.find(entry[1]))
    assert ask(broker, client, "ACKTOKEN", "all") == b""
    advance(broker, 200)
    assert b"".join(client.out) == b":700\r\n"


def test_a_lease_is_for_one_delivery():
    broker, client = start(1, retry_s=300)
    (entry,) = get(broker, client, "LEASE", 2, "WITHLEASE")
    assert entry[3:] == [b"lease-ms", 2_000, b"attempt", 1, b"fence", 0]
    advance(broker, 2_100)
    (entry,) = get(broker, client, "WITHLEASE")
    assert entry[3:] == [b"lease-ms", 300_000, b"attempt", 2, b"fence", 0]


def test_other_holders_are_told_how_long_a_lease_is():
    broker = make_broker()
    client, node = make_client(broker), add_node(broker)
    hold_queued(broker, node, retry_s=300)
    get(broker, client, "LEASE", 2)
    assert [item[1] for _, item in sent_of(broker, LEASED)] == [2_000]


def test_working_may_say_for_how_long():
    broker, client = start(1, retry_s=30)
    (entry,) = get(broker, client)
    assert ask_parsed(broker, client, "WORKING", entry[1], 100) == 100
    assert broker.find(entry[1]).requeue_at_ms == broker.now_ms + 100_000
    assert ask_parsed(broker, client, "WORKING", entry[1]) == 30


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("GETJOB", "LEASE", 0, "FROM", "q"), "LEASE must be a number of seconds > 0"),
        (("GETJOB", "LEASE", "FROM", "q"), "LEASE must be"),
        (("GETJOB", "TOKEN", "", "FROM", "q"), "TOKEN must have 1 to 256 bytes"),
        (("GETJOB", "TOKEN", "x" * 257, "FROM", "q"), "TOKEN must have"),
        (("EXTENDTOKEN", "t", -1), "EXTENDTOKEN must be a number of seconds > 0"),
        (("WORKING", "D-00010203-" + 24 * "x" + "-0001", "soon"), "WORKING must be given a number of seconds"),
        (("WORKING", "D-00010203-" + 24 * "x" + "-0001", 1, 2), "syntax error"),
    ],
)
def test_impossible_arguments_are_refused(words, text):
    broker, client = start(1)
    assert text in str(ask_parsed(broker, client, *words))
    assert len(queue_of(broker)) == 1


@pytest.mark.parametrize("words", [("TOKEN", "t"), ("LEASE", 5)])
def test_at_most_once_jobs_are_skipped_and_stay_in_their_queue(words):
    """Spec O7."""
    broker, client = start(3, retry_s=0)
    again = hold_queued(broker, number=9)
    assert [entry[1] for entry in get(broker, client, "COUNT", 9, *words)] == [again.id]
    assert len(queue_of(broker)) == 3
    assert get(broker, client, words[0], "7") is None


def test_skipping_at_most_once_jobs_costs_nothing_per_job():
    """At-most-once jobs are in a separate priority queue, so none of them is examined."""
    broker, client = start(50, retry_s=0)
    queue = broker.queues[b"q"]
    get(broker, client, "TOKEN", "t")
    assert len(queue.once.head) == 0


def test_a_waiting_client_waits_for_jobs_that_it_takes():
    broker, client = start(0)
    ask(broker, client, "GETJOB", "TOKEN", "t", "FROM", "q")
    hold_queued(broker, retry_s=0, number=1)
    dispatch.settle(broker)
    assert client.out == []
    plain = make_client(broker)
    assert ask_parsed(broker, plain, "GETJOB", "FROM", "q")[0][1] != b""
    hold_queued(broker, number=2)
    dispatch.settle(broker)
    assert len(client.out) == 1
    assert broker.queues[b"q"].picky == 0


def test_a_client_that_takes_every_job_gets_the_one_that_others_skip():
    broker, client = start(0)
    plain = make_client(broker)
    ask(broker, client, "GETJOB", "TOKEN", "t", "FROM", "q")
    ask(broker, plain, "GETJOB", "FROM", "q")
    hold_queued(broker, retry_s=0, number=1)
    hold_queued(broker, number=2)
    dispatch.settle(broker)
    assert (len(client.out), len(plain.out)) == (1, 1)


def test_other_nodes_are_told_which_jobs_the_clients_take():
    """Spec I2."""
    broker = make_broker()
    client, node = make_client(broker), add_node(broker)
    ask(broker, client, "GETJOB", "TOKEN", "t", "FROM", "q")
    dispatch.settle(broker)
    assert sent_of(broker, INTEREST) == [((node,), (b"q", 1, -1))]
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    dispatch.settle(broker)
    assert sent_of(broker, INTEREST) == [((node,), (b"q", 2, 1))]


def test_a_pull_of_picky_clients_gets_what_they_take():
    """Spec I6."""
    broker = make_broker()
    node = add_node(broker)
    hold_queued(broker, retry_s=0, number=1)
    job = hold_queued(broker, number=2)
    say(broker, node, NEEDJOBS, (b"q", 5, ANSWERS_HINT | RETRIED_ONLY))
    assert (job.state, len(queue_of(broker))) == (1, 1)


def test_no_hint_goes_to_a_node_whose_clients_would_not_take_the_jobs():
    broker = make_broker()
    node = add_node(broker)
    say(broker, node, INTEREST, (b"q", 1, -1))
    hold_queued(broker, retry_s=0, number=1)
    dispatch.settle(broker)
    assert broker.stats.hints_sent == 0
    hold_queued(broker, number=2)
    dispatch.settle(broker)
    assert broker.stats.hints_sent == 1


def test_two_connections_with_one_token_get_the_same_jobs():
    broker, client = start(0)
    other = make_client(broker)
    for each in (client, other):
        ask(broker, each, "GETJOB", "TOKEN", "t", "FROM", "q")
    hold_queued(broker, number=1)
    hold_queued(broker, number=2)
    dispatch.settle(broker)
    assert client.out == other.out != []
    assert (len(queue_of(broker)), broker.tokens.waits, broker.waits.blocked_count) == (1, {}, 0)
