"""Oracle: the rules that need only requests and replies."""

from __future__ import annotations

import pytest

from disque_py.core.ids import IdSource
from disque_py.simulator.oracle import HEARD_MS, TTL_SLACK_MS, Oracle, RuleBrokenError
from disque_py.simulator.world.world import World

HOUR_MS = 3_600_000


@pytest.fixture
def oracle():
    return Oracle()


@pytest.fixture
def ids():
    return IdSource(b"a" * 40, World("").stream("ids"))


def added(oracle, ids, *, retry_ms=1_000, ttl_ms=HOUR_MS, now_ms=1):
    """Return a job whose ADDJOB was answered."""
    promise = oracle.add(b"q", 20, retry_ms, ttl_ms, 1, now_ms)
    oracle.answered(promise, ids.next(ttl_ms, retry_ms > 0), now_ms)
    return promise


def deliver(oracle, promise, now_ms=2):
    oracle.deliver(b"q", promise.id, promise.body(), now_ms)


def test_a_job_with_retry_may_come_twice_and_is_counted(oracle, ids):
    """It is at least once."""
    promise = added(oracle, ids)
    deliver(oracle, promise)
    deliver(oracle, promise)
    assert (oracle.delivered, oracle.duplicates, promise.delivered) == (2, 1, 2)


def test_a_job_without_retry_may_not_come_twice(oracle, ids):
    """It is at most once."""
    promise = added(oracle, ids, retry_ms=0)
    deliver(oracle, promise)
    with pytest.raises(RuleBrokenError, match="at most once"):
        deliver(oracle, promise)


def test_a_delivered_job_must_have_been_added(oracle, ids):
    """Here a body comes that no client added."""
    with pytest.raises(RuleBrokenError, match="nowhere"):
        oracle.deliver(b"q", ids.next(HOUR_MS, True), b"17 or so", 1)


@pytest.mark.parametrize(("queue", "change"), [(b"r", b""), (b"q", b"!")])
def test_a_job_arrives_as_it_was_added(oracle, ids, queue, change):
    """It comes from its queue, with its body."""
    promise = added(oracle, ids)
    with pytest.raises(RuleBrokenError, match="as they were added"):
        oracle.deliver(queue, promise.id, promise.body() + change, 1)


def test_an_id_belongs_to_one_job_and_a_job_has_one_id(oracle, ids):
    """The id may come in a reply to ADDJOB or in a delivery."""
    one = added(oracle, ids)
    other = oracle.add(b"q", 20, 1_000, HOUR_MS, 1, 1)
    with pytest.raises(RuleBrokenError, match="unique"):
        oracle.answered(other, one.id, 1)
    with pytest.raises(RuleBrokenError, match="unique"):
        oracle.deliver(b"q", ids.next(HOUR_MS, True), one.body(), 1)


def test_an_id_says_whether_the_job_is_retried(oracle, ids):
    """Then its last digit is odd."""
    promise = oracle.add(b"q", 20, 0, HOUR_MS, 0, 1)
    with pytest.raises(RuleBrokenError, match="truth"):
        oracle.answered(promise, ids.next(HOUR_MS, True), 1)


def test_a_job_that_all_know_as_done_does_not_come_again(oracle, ids):
    """A delivery after an answered ACKJOB is counted. A delivery after all nodes know of the ack is a failure."""
    promise = added(oracle, ids)
    oracle.acknowledging(promise, 2)
    oracle.acknowledged(promise, 3)
    deliver(oracle, promise)
    assert oracle.after_ack == 1
    promise.is_over = True
    with pytest.raises(RuleBrokenError, match="done is done"):
        deliver(oracle, promise)


def test_a_ttl_is_kept_but_for_what_a_network_may_hold_up(oracle, ids):
    """Every node counts the TTL from receipt."""
    promise = added(oracle, ids, ttl_ms=5_000, now_ms=1_000)
    deliver(oracle, promise, 6_000 + TTL_SLACK_MS)
    with pytest.raises(RuleBrokenError, match="TTL"):
        deliver(oracle, promise, 6_100 + TTL_SLACK_MS)
    oracle.delays_ms = 500
    deliver(oracle, promise, 6_100 + TTL_SLACK_MS)


def test_without_faults_all_nodes_hear_of_an_ack_at_once(oracle, ids):
    """If a job comes long after its ACKJOB was answered, a node with a copy was not told."""
    promise = added(oracle, ids)
    oracle.is_settled = True
    oracle.acknowledged(promise, 2_000)
    oracle.deliver(b"q", promise.id, promise.body(), 2_000 + HEARD_MS)
    with pytest.raises(RuleBrokenError, match="acks are heard"):
        oracle.deliver(b"q", promise.id, promise.body(), 2_001 + HEARD_MS)
    oracle.parted[promise.id] = None
    oracle.deliver(b"q", promise.id, promise.body(), 2_001 + HEARD_MS)


def limited(oracle, ids, limit=1, now_ms=1):
    """Return a job with few attempts."""
    promise = added(oracle, ids, now_ms=now_ms)
    promise.limit = limit
    return promise


def test_attempts_are_bounded_while_nothing_is_wrong(oracle, ids):
    """Spec Y4. ENQUEUE may begin a fresh set."""
    promise = limited(oracle, ids)
    promise.renewed = 1
    deliver(oracle, promise)
    deliver(oracle, promise)
    with pytest.raises(RuleBrokenError, match="attempts are bounded"):
        deliver(oracle, promise)


def test_a_holder_that_a_deletion_does_not_reach_may_use_all_attempts(oracle, ids):
    """Spec Y4."""
    promise = limited(oracle, ids)
    deliver(oracle, promise)
    oracle.acknowledging(promise, 2, is_deletion=True)
    deliver(oracle, promise)
    with pytest.raises(RuleBrokenError, match="attempts are bounded"):
        deliver(oracle, promise)


@pytest.mark.parametrize(("added_ms", "is_calm"), [(104, False), (106, True)])
def test_links_may_be_broken_for_a_while_after_a_fault(oracle, ids, added_ms, is_calm):
    oracle.unrest_ms, oracle.aftermath_ms = 100, 5
    assert oracle.is_calm_since(limited(oracle, ids, now_ms=added_ms)) == is_calm


def test_each_side_of_a_cut_may_spend_all_attempts(oracle, ids):
    """Spec Y4. Each crash may forget some attempts."""
    oracle.unrest_ms, oracle.sides, oracle.deaths = 5, 2, 1
    promise = limited(oracle, ids, limit=2)
    for _ in range(2 * 2 + 1 * 2):
        deliver(oracle, promise)
    with pytest.raises(RuleBrokenError, match="attempts are bounded"):
        deliver(oracle, promise)
