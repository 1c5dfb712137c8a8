"""core/pulls.py: jobs travel to consumers, as many as they need."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokers import add_node, ask, make_client, pass_time
from cluster_bus.messages import (
    HINT,
    INTEREST,
    NEEDJOBS,
    REFUSED_LEAVING,
    TOOK,
    YOURJOBS,
)
from copies import advance, hold_queued, make_id, queue_of, say, sent, sent_of, snapshot
from disque_py.core import pulls
from disque_py.core.handover import REFUSED_MS
from disque_py.core.pulls import ANSWERS_HINT, REST_MS, STANDING
from disque_py.core.rivals import Standing
from disque_py.node import dispatch
from handovers import fill, make_pair, pull, take
from world import World


@pytest.mark.parametrize(
    ("length", "asked", "given"), [(1, 5, 1), (2, 5, 1), (3, 5, 1), (9, 5, 4), (10, 5, 5), (300, 1000, 100), (8, 0, 1)]
)
def test_a_pull_gets_the_jobs_it_asks_for_but_at_most_half_the_queue(length, asked, given):
    """It asks for at most a hundred at once: a larger count crashed the original (spec Q16)."""
    broker, node = make_pair()
    jobs = fill(broker, length)
    ids, _ = pull(broker, node, asked)
    assert ids == [job.id for job in jobs[:given]]
    assert broker.queues[b"q"].length == length - given


def test_a_batch_is_bounded_in_bytes():
    broker, node = make_pair()
    fill(broker, 20, body=b"x" * 100_000)
    assert len(pull(broker, node, 10)[0]) == 3


def test_no_job_of_a_queue_is_offered_for_a_second_to_a_node_that_refused_it():
    broker, node = make_pair()
    broker.consumers.interest[b"q"] = {node: 5}
    fill(broker, 5)
    dispatch.settle(broker)
    pull(broker, node, 1, flags=pulls.ANSWERS_HINT)
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    sent(broker)
    advance(broker, REFUSED_MS - 10)
    assert sent_of(broker, HINT) == []
    advance(broker, 30)
    assert {nodes for nodes, _ in sent_of(broker, HINT)} == {(node,)}


@pytest.mark.parametrize("reason", ["paused", "empty", "unknown", "unlinked", "imports"])
def test_a_pull_gets_no_jobs_for_these_reasons(reason):
    broker, node = make_pair()
    if reason != "unknown":
        fill(broker, 0 if reason == "empty" else 5)
    if reason == "paused":
        ask(broker, make_client(broker), "PAUSE", "q", "out")
    elif reason == "unlinked":
        node.is_linked = False
    elif reason == "imports":
        pulls.imported(broker, broker.queues[b"q"], node)
    assert pull(broker, node) == ([], 0)


def test_a_pull_that_answers_a_hint_is_served_whatever_the_import_rate():
    broker, node = make_pair()
    fill(broker, 5)
    pulls.imported(broker, broker.queues[b"q"], node)
    assert len(pull(broker, node, 2, flags=pulls.ANSWERS_HINT)[0]) == 2


def test_a_job_just_imported_is_not_passed_on():
    """Two hungry nodes must not hand it to each other for ever. Spec I7."""
    broker, node = make_pair()
    other = add_node(broker, 3)
    say(broker, node, YOURJOBS, (1, 0, [snapshot(broker, node)]))
    assert pull(broker, other, flags=pulls.ANSWERS_HINT) == ([], 0)
    assert queue_of(broker) == [make_id()]
    pass_time(broker, REST_MS)
    assert pull(broker, other, flags=pulls.ANSWERS_HINT)[0] == [make_id()]


def test_a_hint_is_sent_for_a_job_that_may_be_given_away_again():
    broker, node = make_pair()
    other = add_node(broker, 3)
    broker.consumers.interest[b"q"] = {other: 1}
    say(broker, node, YOURJOBS, (1, 0, [snapshot(broker, node)]))
    pull(broker, other, flags=pulls.ANSWERS_HINT)
    dispatch.settle(broker)
    sent(broker)
    advance(broker, REST_MS + 20)
    assert (other,) in [nodes for nodes, _ in sent_of(broker, HINT)]


# -- the import rate -----------------------------------------------------------------------------------------


def test_one_first_job_reads_as_twenty_per_second():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    assert pulls.import_rate(broker, queue) == 0
    pulls.imported(broker, queue, node)
    assert pulls.import_rate(broker, queue) == 20


def test_the_rate_is_that_of_the_last_two_buckets():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    for _ in range(30):
        pulls.imported(broker, queue, node)
        pass_time(broker, 100)
    assert 9 <= pulls.import_rate(broker, queue) <= 11


def test_after_five_seconds_of_silence_the_rate_is_zero():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    pulls.imported(broker, queue, node)
    pass_time(broker, pulls.RATE_WINDOW_MS)
    assert pulls.import_rate(broker, queue) > 0
    pass_time(broker, 1)
    assert pulls.import_rate(broker, queue) == 0


# -- asking --------------------------------------------------------------------------------------------------


def wait(broker):
    client = make_client(broker)
    assert ask(broker, client, "GETJOB", "FROM", "q") == b""
    return client


def test_nodes_that_lately_had_jobs_are_asked_first_with_growing_gaps():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    pulls.imported(broker, queue, node)
    queue.broadcast_at_ms = broker.now_ms
    moments = []
    for _ in range(1000):
        pulls.ask_sources(broker, queue, is_urgent=False)
        if sent_of(broker, NEEDJOBS):
            moments.append(broker.now_ms)
        pass_time(broker, 1)
    gaps = [after - before for before, after in pairwise(moments)]
    assert gaps == [50, 100, 200, 400]


def test_an_imported_job_makes_the_gap_short_again():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    queue.adhoc_attempts = 6
    pulls.imported(broker, queue, node)
    assert queue.adhoc_attempts == 0


def test_a_node_without_jobs_for_five_seconds_is_not_a_source():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    pulls.imported(broker, queue, node)
    pass_time(broker, pulls.RESPONDER_MS + 1)
    pulls.ask_sources(broker, queue, is_urgent=True)
    assert sent_of(broker, NEEDJOBS) == []
    assert queue.sources == {}


def test_a_queue_that_ran_dry_under_load_asks_at_once():
    broker, node = make_pair()
    take(broker, node, snapshot(broker, node))
    sent(broker)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert sent_of(broker, NEEDJOBS) == []  # A single job is no stream.
    queue = broker.queue(b"q")
    for _ in range(pulls.IMPORTS_MIN):
        pulls.imported(broker, queue, node)
    pass_time(broker, 10)
    take(broker, node, snapshot(broker, node, number=1))
    sent(broker)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert sent_of(broker, NEEDJOBS)[0][1] == (b"q", 100, STANDING)


# -- asking ahead ----------------------------------------------------------------------------------------------


def stream(broker, node, count=100, queue=b"q"):
    """Other nodes hand us jobs of the queue, and a client fetches them."""
    for _ in range(count):
        pulls.imported(broker, broker.queue(queue), node)
    broker.queue(queue).served_ms = broker.now_ms


def test_a_standing_pull_gets_jobs_as_they_come_without_a_hint():
    """Spec I10."""
    broker, node = make_pair()
    broker.consumers.interest[b"q"] = {node: 0}
    broker.queue(b"q")
    assert pull(broker, node, 3, flags=STANDING) == ([], 0)
    given = []
    for number in range(4):
        given.append(hold_queued(broker, number=number).id)
        dispatch.settle(broker)
    handed = [snapshot[0] for _, (_, _, snapshots) in sent_of(broker, YOURJOBS) for snapshot in snapshots]
    assert handed == given[:3]


def test_a_standing_pull_answers_a_hint_that_was_ignored_before():
    """No client needed jobs when the hint came. Spec I10."""
    broker, node = make_pair()
    broker.consumers.interest[b"q"] = {node: 0}
    fill(broker, 2)
    dispatch.settle(broker)
    assert len(sent_of(broker, HINT)) == 1
    pull(broker, node, 3, flags=STANDING)
    dispatch.settle(broker)
    assert len(sent_of(broker, YOURJOBS)) == 1


def test_while_the_journal_is_read_a_standing_pull_gets_nothing_and_no_hint_goes():
    """No record would say that the node has the jobs. Spec J7."""
    broker, node = make_pair()
    broker.consumers.interest[b"q"] = {node: 0}
    broker.queue(b"q")
    pull(broker, node, 3, flags=STANDING)
    broker.is_loading = True
    fill(broker, 2)
    dispatch.settle(broker)
    assert sent(broker) == []
    broker.is_loading = False
    dispatch.settle(broker)
    assert len(sent_of(broker, YOURJOBS)) == 1


@pytest.mark.parametrize("end", ["a second", "no interest", "lost link"])
def test_a_standing_pull_ends(end):
    """Spec I10."""
    broker, node = make_pair()
    say(broker, node, INTEREST, (b"q", 1))
    broker.queue(b"q")
    pull(broker, node, 3, flags=STANDING)
    if end == "a second":
        pass_time(broker, pulls.STANDING_MS)
    elif end == "no interest":
        say(broker, node, INTEREST, (b"q", -1))
    else:
        dispatch.incoming_lost(broker, node)
    hold_queued(broker)
    dispatch.settle(broker)
    assert sent_of(broker, YOURJOBS) == []


def test_a_standing_pull_takes_the_whole_queue_of_a_node_without_consumers():
    """Spec I10."""
    broker, node = make_pair()
    broker.consumers.interest[b"q"] = {node: 1}
    fill(broker, 8)
    pull(broker, node, 8, flags=STANDING)
    dispatch.settle(broker)
    assert broker.queues[b"q"].length == 0


def test_a_standing_pull_gets_half_of_a_queue_that_has_other_consumers():
    """Spec I10."""
    broker, node = make_pair()
    broker.consumers.interest[b"q"] = {node: 1, add_node(broker, 3): 1}
    fill(broker, 8)
    standing = Standing(100, broker.now_ms)
    assert pulls.give_ahead(broker, node, broker.queues[b"q"], standing) == 4
    assert standing.left == 96


def test_a_standing_pull_is_renewed_when_half_of_it_has_come_and_consumers_go_on():
    """Spec I10."""
    broker, node = make_pair()
    stream(broker, node)
    queue = broker.queues[b"q"]
    pulls.ask_sources(broker, queue, is_urgent=True)
    sent(broker)
    moments = []
    for number in range(100):
        stream(broker, node, 1)
        dispatch.settle(broker)
        if sent_of(broker, NEEDJOBS):
            moments.append(number + 1)
    assert moments == [50, 100]


def test_a_standing_pull_is_not_renewed_while_jobs_are_here():
    """Spec I10."""
    broker, node = make_pair()
    stream(broker, node)
    pulls.ask_sources(broker, broker.queues[b"q"], is_urgent=True)
    fill(broker, 60)
    stream(broker, node, 60)
    sent(broker)
    dispatch.settle(broker)
    assert sent_of(broker, NEEDJOBS) == []


def test_a_hint_is_answered_ahead_of_need_while_jobs_come_and_go():
    """No client waits at this moment. Spec I10."""
    broker, node = make_pair()
    stream(broker, node)
    say(broker, node, HINT, (b"q", 5))
    assert [item for _, item in sent_of(broker, NEEDJOBS)] == [(b"q", 100, ANSWERS_HINT | STANDING)]


def test_how_much_is_asked_for_is_the_share_of_the_rate_between_5_and_100():
    """Spec I9."""
    broker, node = make_pair()
    queue = broker.queue(b"q")
    assert pulls.ask_count(broker, queue) == 5
    for _ in range(100):
        pulls.imported(broker, queue, node)
    pass_time(broker, 1000)
    assert pulls.ask_count(broker, queue) == 100
    pulls.imported(broker, queue, add_node(broker, 3))
    assert 45 <= pulls.ask_count(broker, queue) <= 55


@pytest.mark.parametrize("reason", ["leaving", "paused"])
def test_a_node_that_would_not_take_jobs_asks_for_none(reason):
    broker, node = make_pair()
    queue = broker.queue(b"q")
    pulls.imported(broker, queue, node)
    if reason == "leaving":
        broker.membership.set_leaving(True)
    else:
        queue.paused = 1
    queue.waiting[make_client(broker)] = None
    pulls.ask_sources(broker, queue, is_urgent=True)
    pulls.ask_all_nodes(broker, queue)
    assert sent_of(broker, NEEDJOBS) == []


def test_all_nodes_are_asked_when_the_first_client_waits():
    """Spec I8."""
    broker, node = make_pair()
    wait(broker)
    assert sent_of(broker, NEEDJOBS) == [((node,), (b"q", 1, 0))]
    wait(broker)
    assert sent_of(broker, NEEDJOBS) == []


# -- stories -------------------------------------------------------------------------------------------------


def test_a_job_finds_the_consumer_on_another_node_in_three_hops():
    world = World("abc")
    world.join()
    consumer = world.client("c")
    consumer.say("GETJOB", "FROM", "q")
    world.run(60_000)
    started_ms = world.now_ms
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.until(lambda: bool(consumer.replies), 1000)
    assert consumer.replies == [[[b"q", job_id, b"body"]]]
    assert world.now_ms - started_ms <= 5
