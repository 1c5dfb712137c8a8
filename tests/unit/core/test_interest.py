"""core/interest.py: which nodes have waiting clients, and a hint when there are jobs for them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokers import ask, make_client, make_cluster
from cluster_bus.messages import HINT, INTEREST, NEEDJOBS
from copies import advance, hold_queued, say, sent, sent_of
from disque_py.core import interest, reset
from disque_py.core.handover import exchange
from disque_py.core.interest import DECREASE_MS, GONE, HINT_MS, LINGER_MS
from disque_py.core.pulls import ANSWERS_HINT
from disque_py.node import dispatch
from world import World


def wait(broker, queue="q", **fields):
    client = make_client(broker)
    words = ("TIMEOUT", fields["timeout_ms"]) if fields else ()
    assert ask(broker, client, "GETJOB", *words, "FROM", queue) == b""
    dispatch.settle(broker)
    return client


def told(broker):
    """(queue, value) of every INTEREST since the last look."""
    return [item for _, item in sent_of(broker, INTEREST)]


# -- telling ------------------------------------------------------------------------------------------------


def test_a_waiting_client_is_told_to_all_in_the_same_turn():
    """Spec I1."""
    broker, b, c = make_cluster(2)
    wait(broker)
    assert sent_of(broker, INTEREST) == [((b, c), (b"q", 1))]
    wait(broker)
    assert told(broker) == [(b"q", 2)]


def test_many_changes_of_one_turn_are_one_message():
    broker, *_ = make_cluster(1)
    for _ in range(10):
        ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    dispatch.settle(broker)
    assert told(broker) == [(b"q", 10)]


def test_a_consumer_that_comes_back_at_once_costs_no_message():
    broker, *_ = make_cluster(1)
    client = wait(broker)
    told(broker)
    for number in range(20):
        hold_queued(broker, number=number)
        advance(broker, 5)
        assert client.out.pop()
        ask(broker, client, "GETJOB", "FROM", "q")
        advance(broker, 5)
    assert told(broker) == []


def test_a_client_that_stops_waiting_is_interested_for_another_second():
    broker, *_ = make_cluster(1)
    client = wait(broker)
    told(broker)
    dispatch.disconnect(broker, client)
    dispatch.settle(broker)
    advance(broker, DECREASE_MS - 1)
    assert told(broker) == []
    advance(broker, 20)
    assert told(broker) == [(b"q", 0)]
    advance(broker, LINGER_MS + 100)
    assert told(broker) == [(b"q", GONE)]
    assert broker.consumers.told_interest == {}


def test_a_poll_with_nohang_counts_as_having_waited():
    broker, *_ = make_cluster(1)
    ask(broker, make_client(broker), "GETJOB", "NOHANG", "FROM", "q")
    dispatch.settle(broker)
    assert told(broker) == [(b"q", 0)]
    advance(broker, 2200)
    assert told(broker) == [(b"q", GONE)]


@pytest.mark.parametrize("direction", ["in", "out", "all"])
def test_a_paused_queue_withdraws_its_interest_at_once(direction):
    """Spec I3."""
    broker, *_ = make_cluster(1)
    wait(broker)
    told(broker)
    client = make_client(broker)
    ask(broker, client, "PAUSE", "q", direction)
    dispatch.settle(broker)
    assert told(broker) == [(b"q", GONE)]
    ask(broker, client, "PAUSE", "q", "none")
    dispatch.settle(broker)
    assert told(broker) == [(b"q", 1)]


def test_a_leaving_node_asks_for_no_jobs():
    broker, *_ = make_cluster(1)
    wait(broker)
    told(broker)
    ask(broker, make_client(broker), "CLUSTER", "LEAVING", "yes")
    dispatch.settle(broker)
    advance(broker, 100)
    assert told(broker) == [(b"q", GONE)]


def test_a_new_link_is_told_everything_and_earlier_values_are_void():
    broker, b, _ = make_cluster(2)
    wait(broker, "q")
    wait(broker, "r")
    told(broker)
    dispatch.link_up(broker, b)
    assert sent_of(broker, INTEREST) == [((b,), (b"", interest.RESET)), ((b,), (b"q", 1)), ((b,), (b"r", 1))]


def test_a_timer_of_a_flushed_queue_does_not_affect_the_new_one():
    """A consumer waited a moment ago, the node is flushed, and the consumer waits again."""
    broker, *_ = make_cluster(1)
    client = wait(broker, timeout_ms=10)
    advance(broker, 100)
    assert client.out.pop() == b"*-1\r\n"
    reset.flush(broker)
    sent(broker)
    ask(broker, client, "GETJOB", "FROM", "q")
    advance(broker, 3000)
    assert told(broker) == [(b"q", 1)]


def test_a_queue_with_an_interest_that_others_know_is_not_dropped():
    broker, *_ = make_cluster(1)
    wait(broker)
    advance(broker, 400_000)
    assert b"q" in broker.queues


# -- being told -----------------------------------------------------------------------------------------------


def test_interest_is_remembered_per_node_and_queue():
    broker, b, c = make_cluster(2)
    queue = broker.queue(b"q")
    say(broker, b, INTEREST, (b"q", 2), (b"r", 1))
    say(broker, c, INTEREST, (b"q", 0))
    assert queue.interested == {b: 2, c: 0}
    assert broker.queue(b"r").interested == {b: 1}
    say(broker, b, INTEREST, (b"q", GONE), (b"never", GONE))
    assert queue.interested == {c: 0}


@pytest.mark.parametrize("how", ["reset", "link lost", "new run", "forgotten"])
def test_the_interest_of_a_node_ends_with_its_link(how):
    broker, b, c = make_cluster(2)
    queue = broker.queue(b"q")
    for node in (b, c):
        say(broker, node, INTEREST, (b"q", 1), (b"r", 1))
    if how == "reset":
        say(broker, b, INTEREST, (b"", interest.RESET), (b"s", 1))
    else:
        {"link lost": dispatch.incoming_lost, "new run": dispatch.new_run, "forgotten": dispatch.forgotten}[how](
            broker, b
        )
    assert queue.interested == {c: 1}
    assert broker.consumers.interest[b"r"] == {c: 1}
    assert exchange(b).interest == ({b"s": 1} if how == "reset" else {})


def test_interest_that_is_over_leaves_no_trace():
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"q", 1))
    say(broker, b, INTEREST, (b"q", GONE))
    assert broker.consumers.interest == {}


def test_interest_in_a_queue_that_is_dropped_later_leaves_no_trace():
    """Remote calls have a queue name per reply, and each would stay for ever."""
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"reply-1", 1))
    queue = broker.queue(b"reply-1")
    say(broker, b, INTEREST, (b"reply-1", GONE))
    broker.drop_queue(queue)
    assert broker.consumers.interest == {}


@pytest.mark.plain
def test_the_memory_of_one_nodes_interest_is_bounded(monkeypatch):
    monkeypatch.setattr(interest, "ENTRIES_PER_LINK_MAX", 10)
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, *[(b"%d" % number, 1) for number in range(20)], (b"3", 7))
    assert len(exchange(b).interest) == 10
    assert broker.consumers.interest[b"3"] == {b: 7}
    assert broker.stats.reject_reasons == {"interest in too many queues": 10}


# -- hints ------------------------------------------------------------------------------------------------


def hints(broker):
    """(receiver, item) of every HINT since the last look."""
    dispatch.settle(broker)
    return [(nodes[0], item) for nodes, item in sent_of(broker, HINT)]


def test_a_job_that_comes_is_hinted_at_in_the_same_turn():
    """Spec I4."""
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"q", 1))
    hold_queued(broker)
    assert hints(broker) == [(b, (b"q", 1))]


def test_interest_that_comes_is_answered_with_a_hint():
    broker, b = make_cluster(1)
    hold_queued(broker)
    assert hints(broker) == []
    say(broker, b, INTEREST, (b"q", 1))
    assert hints(broker) == [(b, (b"q", 1))]


@pytest.mark.parametrize("reason", ["clients here", "paused", "no link"])
def test_no_hint_is_owed_for_these_reasons(reason):
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"q", 1))
    client = make_client(broker)
    if reason == "clients here":
        ask(broker, client, "GETJOB", "FROM", "q")
    elif reason == "paused":
        ask(broker, client, "PAUSE", "q", "out")
    elif reason == "no link":
        b.is_linked = False
    hold_queued(broker)
    assert hints(broker) == []


def test_a_node_whose_clients_waited_a_moment_ago_gets_a_hint_only_if_none_waits_now():
    """Such clients poll, or are busy with a job."""
    broker, b, c = make_cluster(2)
    say(broker, b, INTEREST, (b"q", 0))
    say(broker, c, INTEREST, (b"q", 1))
    for number in range(6):
        hold_queued(broker, number=number)
        assert [node for node, _ in hints(broker)] == [c]
        say(broker, c, NEEDJOBS, (b"q", 1, ANSWERS_HINT))


def test_a_node_whose_clients_poll_is_hinted_at_ten_times_a_second_at_most():
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"q", 0))
    for number in range(100):
        hold_queued(broker, number=number)
    moments = []
    for _ in range(1000):
        if hints(broker):
            moments.append(broker.now_ms)
            say(broker, b, NEEDJOBS, (b"q", 1, ANSWERS_HINT))
        advance(broker, 1)
        moments += [broker.now_ms for _ in sent_of(broker, HINT)]
    assert 8 <= len(moments) <= 11


def test_the_only_node_is_hinted_at_more_slowly_when_it_does_not_answer():
    """Its link may just be a long one."""
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"q", 1))
    hold_queued(broker)
    hints(broker)
    moments = [broker.now_ms]
    for _ in range(700):
        advance(broker, 1)
        moments += [broker.now_ms for _ in sent_of(broker, HINT)]
    gaps = [after - before for before, after in pairwise(moments)]
    assert HINT_MS <= gaps[0] < gaps[-1] <= 400
    assert gaps == sorted(gaps)


def test_the_end_of_a_pause_owes_a_hint():
    broker, b = make_cluster(1)
    client = make_client(broker)
    ask(broker, client, "PAUSE", "q", "out")
    say(broker, b, INTEREST, (b"q", 1))
    hold_queued(broker)
    assert hints(broker) == []
    ask(broker, client, "PAUSE", "q", "none")
    assert len(hints(broker)) == 1


def test_when_the_last_local_client_goes_a_hint_is_owed():
    broker, b = make_cluster(1)
    queue = broker.queue(b"q")
    client = wait(broker)
    say(broker, b, INTEREST, (b"q", 1))
    hold_queued(broker)
    queue.paused = 0
    dispatch.disconnect(broker, client)
    assert [node for node, _ in hints(broker)] == [b]


def test_one_hint_at_a_time_and_the_next_node_after_ten_milliseconds():
    """Spec I5."""
    broker, b, c = make_cluster(2)
    for node in (b, c):
        say(broker, node, INTEREST, (b"q", 1))
    hold_queued(broker)
    ((first, _),) = hints(broker)
    assert hints(broker) == []
    advance(broker, HINT_MS - 1)
    assert hints(broker) == []
    advance(broker, 2)
    ((second, _),) = hints(broker)
    assert {first, second} == {b, c}


def test_an_unanswered_hint_stays_owed_in_turn():
    broker, b, c = make_cluster(2)
    for node in (b, c):
        say(broker, node, INTEREST, (b"q", 1))
    hold_queued(broker)
    asked = []
    for _ in range(120):
        advance(broker, 1)
        asked += [node for node, _ in hints(broker)]
    assert 10 <= len(asked) <= 13
    assert all(one is not other for one, other in pairwise(asked))


def test_a_hint_stays_owed_when_another_queue_is_hinted_at_meanwhile():
    broker, b, c = make_cluster(2)
    for node in (b, c):
        say(broker, node, INTEREST, (b"q", 1))
    say(broker, c, INTEREST, (b"other", 1))
    hold_queued(broker, number=1)
    hints(broker)
    advance(broker, 3)
    hold_queued(broker, number=2, queue=b"other")
    assert [item[0] for _, item in hints(broker)] == [b"other"]
    advance(broker, 9)
    assert [item[0] for _, item in hints(broker)] == [b"q"]


def test_the_node_with_the_fewest_hints_per_waiting_client_is_next():
    """Many fast clients on one node must not starve those of another."""
    broker, b, c = make_cluster(2)
    say(broker, b, INTEREST, (b"q", 30))
    say(broker, c, INTEREST, (b"q", 10))
    counts = {b: 0, c: 0}
    for number in range(400):
        hold_queued(broker, number=number)
        ((node, _),) = hints(broker)
        counts[node] += 1
        say(broker, node, NEEDJOBS, (b"q", 1, ANSWERS_HINT))
    assert abs(counts[b] - 300) <= 5


def test_after_an_answered_pull_the_next_hint_is_sent():
    broker, b = make_cluster(1)
    say(broker, b, INTEREST, (b"q", 5))
    for number in range(10):
        hold_queued(broker, number=number)
    hints(broker)
    say(broker, b, NEEDJOBS, (b"q", 1, ANSWERS_HINT))
    assert hints(broker) == [(b, (b"q", 9))]


def test_a_hint_is_answered_with_a_pull_where_clients_wait():
    broker, b = make_cluster(1)
    wait(broker)
    sent(broker)
    say(broker, b, HINT, (b"q", 3))
    ((receivers, (name, count, flags)),) = sent_of(broker, NEEDJOBS)
    assert (receivers, name, flags) == ((b,), b"q", ANSWERS_HINT)
    assert 1 <= count <= 5


@pytest.mark.parametrize("reason", ["no client waited lately", "unknown", "paused", "leaving"])
def test_a_hint_is_not_answered(reason):
    broker, b = make_cluster(1)
    if reason != "unknown":
        client = wait(broker)
        if reason == "no client waited lately":
            dispatch.disconnect(broker, client)
            advance(broker, LINGER_MS)
        elif reason == "paused":
            broker.queues[b"q"].paused = 1
        else:
            broker.membership.set_leaving(True)
    sent(broker)
    say(broker, b, HINT, (b"q", 3))
    assert sent_of(broker, NEEDJOBS) == []


def test_a_node_that_becomes_interested_later_does_not_get_all_hints():
    """Those that the others got before do not count. Spec I5."""
    broker, b, c = make_cluster(2)
    hold_queued(broker)
    queue = broker.queues[b"q"]
    queue.hints[b] = 1_000
    say(broker, b, INTEREST, (b"q", 1))
    say(broker, c, INTEREST, (b"q", 1))
    dispatch.settle(broker)
    assert [nodes for nodes, _ in sent_of(broker, HINT)] == [(c,)]
    assert queue.hints == {b: 1_000, c: 1_001}


# -- stories ------------------------------------------------------------------------------------------------


def test_a_silent_cluster_sends_no_messages():
    """Apart from heartbeats, an idle cluster with waiting clients sends only the fallback."""
    world = World("abc")
    world.join()
    for name in "abc":
        world.client(name).say("GETJOB", "FROM", f"queue of {name}")
    world.run(2_000)
    heard = []
    world.traffic.tap = lambda sender, receiver, runs: heard.append((sender, receiver, runs))
    world.run(25_000)
    assert heard == []


def test_interest_survives_a_broken_link():
    world = World("ab")
    world.join()
    consumer = world.client("b")
    consumer.say("GETJOB", "FROM", "q")
    world.run(100)
    world.cut("a", "b")
    world.run(500)
    world.heal()
    world.until(world.is_meshed)
    world.run(100)
    world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.run(50)
    assert len(consumer.replies) == 1
