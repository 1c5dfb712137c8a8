"""Timestone's load: its figures, and one second of a small load."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from load import LoadError, run_load
from nodes import Node
from timestone import ACK, DEQUEUE, ENQUEUE, FOUND, NOTHING, QUEUE, Filling, Requests, Spent, Tally, play, rows


@pytest.fixture
def node(tmp_path):
    """One node, running."""
    with Node(tmp_path / "node") as node:
        yield node


def test_one_of_25_polls_finds_a_job_and_for_each_there_is_an_enqueue():
    requests = Requests()
    kinds = Counter(requests.make(number)[0] for number in range(26_000))
    assert kinds == {NOTHING: 24_000, FOUND: 1_000, ENQUEUE: 1_000}


def test_a_latency_counts_from_the_planned_moment():
    """The request was sent half a second late, which is part of its latency."""
    tally = Tally()
    tally.sent(1.0, 1.5)
    tally.answered(NOTHING, 1.0, 1.75)
    assert tally.ordered(DEQUEUE) == [750.0]
    assert tally.late_p99_ms() == 500.0


def test_the_dequeues_are_polls_of_both_kinds():
    tally = Tally()
    tally.answered(FOUND, 0.0, 0.25)
    tally.answered(NOTHING, 0.0, 0.125)
    tally.answered(ENQUEUE, 0.0, 1.0)
    assert tally.ordered(DEQUEUE) == [125.0, 250.0]


def test_a_request_without_an_answer_counts_as_one_that_waited():
    tally = Tally()
    tally.abandoned(ENQUEUE, 1.0, 11.0)
    enqueues = next(row for row in rows(tally, Spent(300, 10.0, 1.0, 0.5)) if row.name == ENQUEUE)
    assert (enqueues.values["p99_ms"], enqueues.values["unanswered"]) == (10_000.0, 1)


@pytest.mark.parametrize(("sent_at", "is_limit"), [(1.1, False), (1.9, True)])
def test_the_generator_is_the_limit_if_it_sent_so_late_itself(sent_at, is_limit):
    """The answer came after a second. More than half of that is the generator's."""
    tally = Tally()
    tally.sent(1.0, sent_at)
    tally.answered(NOTHING, 1.0, 2.0)
    assert tally.is_generator_the_limit() is is_limit


def test_the_load_leaves_as_many_jobs_as_there_were(node):
    """Each job that is dequeued is acknowledged, and another one is added."""
    run_load([node.port], Filling(300), 2)
    tally = play(node.port, 20, 1.0)
    counts = [len(tally.ordered(kind)) for kind in (DEQUEUE, FOUND, ENQUEUE, ACK)]
    assert (counts, tally.unanswered) == ([500, 20, 20, 20], 0)
    assert node.command("QLEN", QUEUE) == node.registered_jobs() == 300


def test_a_stall_of_the_node_is_in_the_latencies_of_all_requests_that_were_due(node):
    """The node stops for half of the second. A generator that waits for replies would have sent only one request."""
    run_load([node.port], Filling(300), 2)
    node.pause()
    timer = threading.Timer(0.5, node.resume)
    timer.start()
    try:
        tally = play(node.port, 20, 1.0)
    finally:
        timer.join()
    assert sum(latency > 100 for latency in tally.ordered(DEQUEUE)) >= 150


def test_a_queue_that_is_empty_ends_the_load(node):
    with pytest.raises(LoadError, match="is empty"):
        play(node.port, 20, 1.0)
