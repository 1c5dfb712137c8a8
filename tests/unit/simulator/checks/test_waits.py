"""simulator/checks/waits.py: replies to WAITJOB are compared with the requests of clients."""

from __future__ import annotations

import pytest

from disque_py.simulator.checks.waits import HANGS, RESULTS, TRUTH, Asked, WaitBook
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from simulated import ask, joined


class Story:
    """Two nodes, and a job that b has."""

    def __init__(self):
        self.world = joined("ab")
        self.oracle = Oracle()
        self.book = WaitBook(self.world, self.oracle, 2_000)
        self.promise = self.oracle.add(b"q", 8, 60_000, 3_600_000, 1, self.world.now_ms)
        job_id = ask(self.world, "b", "ADDJOB", "q", self.promise.body(), 0, "RETRY", 60, "REPLICATE", 1)
        self.oracle.answered(self.promise, job_id, self.world.now_ms)

    def asked(self, timeout_ms=0):
        return Asked(self.world.machines["a"], [self.promise.id], timeout_ms, is_any=False)

    def tell(self, status, result=None, *, timeout_ms=0, span_ms=10):
        asked = self.asked(timeout_ms)
        self.world.run(span_ms)
        self.book.answered(asked, [[self.promise.id, status, result, None]])


@pytest.fixture
def story():
    return Story()


@pytest.mark.parametrize("status", [b"completed", b"canceled", b"errored", b"expired"])
def test_an_end_that_no_client_caused_breaks_the_rule(story, status):
    """Spec RW5, RW9."""
    with pytest.raises(RuleBrokenError, match=TRUTH):
        story.tell(status)


def test_an_unknown_job_that_a_linked_node_has_breaks_the_rule(story):
    """Spec RW6, RW9. At a time-out it may be told."""
    story.tell(b"unknown", timeout_ms=100, span_ms=150)
    with pytest.raises(RuleBrokenError, match=TRUTH):
        story.tell(b"unknown")


def test_an_unknown_job_of_a_node_that_is_cut_off_breaks_the_rule(story):
    """Spec RW6: the wait has to go on."""
    story.world.cut("a", "b")
    story.world.run(10)
    story.oracle.unrest_ms = story.world.now_ms
    with pytest.raises(RuleBrokenError, match=TRUTH):
        story.tell(b"unknown")


def test_an_unknown_job_of_a_node_that_was_forgotten_breaks_no_rule(story):
    """Spec RW6."""
    story.oracle.unrest_ms = story.world.now_ms
    ask(story.world, "a", "CLUSTER", "FORGET", story.world.machines["b"].membership.table.me.name)
    story.tell(b"unknown")


def test_an_unknown_job_of_a_node_that_was_forgotten_and_met_again_breaks_no_rule(story):
    """Spec RW6: the status was decided in between (seed 6998)."""
    story.oracle.unrest_ms = story.world.now_ms
    asked = story.asked()
    machine, other = story.world.machines["a"], story.world.machines["b"]
    machine.forgot[other.membership.table.me.id] = story.world.now_ms
    story.world.run(10)
    story.book.answered(asked, [[story.promise.id, b"unknown", None, None]])


def test_an_unknown_job_of_a_node_that_was_not_reached_yet_breaks_no_rule(story):
    """Spec RW6: a newcomer may be given up again."""
    story.oracle.unrest_ms = story.world.now_ms
    machine, newcomer = story.world.machines["a"], story.world.machines["b"]
    machine.membership.table.find(newcomer.membership.table.me.id).is_newcomer = True
    story.tell(b"unknown")


def test_an_unknown_job_of_a_node_that_joined_after_the_question_breaks_no_rule(story):
    """Spec RW6: the job was unknown when the question came, and its answer waited for other jobs."""
    story.oracle.unrest_ms = story.world.now_ms
    machine, newcomer = story.world.machines["a"], story.world.machines["b"]
    node = machine.membership.table.find(newcomer.membership.table.me.id)
    node.is_newcomer = True
    asked = story.asked()
    node.is_newcomer = False
    story.book.answered(asked, [[story.promise.id, b"unknown", None, None]])


def test_a_job_with_attempts_may_be_errored(story):
    """Spec RW5."""
    story.promise.is_limited = True
    story.tell(b"errored")
    assert story.book.judged == 1


def test_a_wait_that_ends_without_an_end_breaks_the_rule(story):
    """Spec RW5."""
    story.tell(b"pending", timeout_ms=100, span_ms=150)
    with pytest.raises(RuleBrokenError, match=TRUTH):
        story.tell(b"pending", timeout_ms=100)


def test_a_result_that_no_worker_gave_breaks_the_rule(story):
    """Spec RW2."""
    story.oracle.acknowledging(story.promise, story.world.now_ms)
    story.book.finishing(story.promise.id, b"one")
    story.book.finishing(story.promise.id, b"two")
    story.world.run(2_000)
    story.tell(b"completed", b"one")
    with pytest.raises(RuleBrokenError, match=RESULTS):
        story.tell(b"completed", b"two")


def test_a_wait_that_goes_on_after_the_end_breaks_the_rule(story):
    """Spec RW9."""
    asked = story.asked()
    story.book.check_waiting(asked)
    story.oracle.acknowledging(story.promise, story.world.now_ms)
    story.oracle.acknowledged(story.promise, story.world.now_ms)
    story.world.run(5_000)
    with pytest.raises(RuleBrokenError, match=HANGS):
        story.book.check_waiting(asked)


def test_a_wait_that_goes_on_after_its_timeout_breaks_the_rule(story):
    """Spec RW8."""
    asked = story.asked(100)
    story.world.run(5_000)
    with pytest.raises(RuleBrokenError, match=HANGS):
        story.book.check_waiting(asked)


def test_an_end_without_the_result_that_a_node_has_breaks_the_rule(story):
    """Spec RW10: the exception is a job that was also acknowledged without a result."""
    story.oracle.acknowledging(story.promise, story.world.now_ms, has_result=True)
    story.book.finishing(story.promise.id, b"one")
    story.tell(b"completed")
    ask(story.world, "b", "ACKJOB", story.promise.id, "RESULT", "one")
    with pytest.raises(RuleBrokenError, match=RESULTS):
        story.tell(b"completed")
    story.oracle.acknowledging(story.promise, story.world.now_ms)
    story.tell(b"completed")
