"""Ledger: what can be judged from replies alone."""

from __future__ import annotations

import pytest

from disque_py.core.ids import IdSource
from disque_py.simulator.ledger import HEARD_MS, TTL_SLACK_MS, Ledger, RuleBrokenError
from disque_py.simulator.world import World

HOUR_MS = 3_600_000


@pytest.fixture
def ledger():
    return Ledger()


@pytest.fixture
def ids():
    return IdSource(b"a" * 40, World("").stream("ids"))


def added(ledger, ids, *, retry_ms=1_000, ttl_ms=HOUR_MS, now_ms=1):
    """A job that was answered."""
    promise = ledger.add(b"q", 20, retry_ms, ttl_ms, 1, now_ms)
    ledger.answered(promise, ids.next(ttl_ms, retry_ms > 0), now_ms)
    return promise


def deliver(ledger, promise, now_ms=2):
    ledger.deliver(b"q", promise.id, promise.body(), now_ms)


def test_a_job_with_retry_may_come_twice_and_is_counted(ledger, ids):
    """At least once."""
    promise = added(ledger, ids)
    deliver(ledger, promise)
    deliver(ledger, promise)
    assert (ledger.delivered, ledger.duplicates, promise.delivered) == (2, 1, 2)


def test_a_job_without_retry_may_not(ledger, ids):
    """At most once."""
    promise = added(ledger, ids, retry_ms=0)
    deliver(ledger, promise)
    with pytest.raises(RuleBrokenError, match="at most once"):
        deliver(ledger, promise)


def test_nothing_comes_from_nowhere(ledger, ids):
    """A body that nobody added."""
    with pytest.raises(RuleBrokenError, match="nowhere"):
        ledger.deliver(b"q", ids.next(HOUR_MS, True), b"17 or so", 1)


@pytest.mark.parametrize(("queue", "change"), [(b"r", b""), (b"q", b"!")])
def test_a_job_arrives_as_it_was_added(ledger, ids, queue, change):
    """In its queue, with its body."""
    promise = added(ledger, ids)
    with pytest.raises(RuleBrokenError, match="as they were added"):
        ledger.deliver(queue, promise.id, promise.body() + change, 1)


def test_an_id_belongs_to_one_job_and_a_job_has_one_id(ledger, ids):
    """Whether it is told by an answer or by a delivery."""
    one = added(ledger, ids)
    other = ledger.add(b"q", 20, 1_000, HOUR_MS, 1, 1)
    with pytest.raises(RuleBrokenError, match="unique"):
        ledger.answered(other, one.id, 1)
    with pytest.raises(RuleBrokenError, match="unique"):
        ledger.deliver(b"q", ids.next(HOUR_MS, True), one.body(), 1)


def test_an_id_says_whether_the_job_is_retried(ledger, ids):
    """Its last digit is odd if so."""
    promise = ledger.add(b"q", 20, 0, HOUR_MS, 0, 1)
    with pytest.raises(RuleBrokenError, match="truth"):
        ledger.answered(promise, ids.next(HOUR_MS, True), 1)


def test_what_all_know_as_done_does_not_come_again(ledger, ids):
    """A delivery after an answered ACKJOB is counted; one after everybody had learnt of it is a failure."""
    promise = added(ledger, ids)
    ledger.acknowledging(promise, 2)
    ledger.acknowledged(promise, 3)
    deliver(ledger, promise)
    assert ledger.after_ack == 1
    promise.is_over = True
    with pytest.raises(RuleBrokenError, match="done is done"):
        deliver(ledger, promise)


def test_a_ttl_is_kept_but_for_what_a_network_may_hold_up(ledger, ids):
    """Every node counts it from receipt."""
    promise = added(ledger, ids, ttl_ms=5_000, now_ms=1_000)
    deliver(ledger, promise, 6_000 + TTL_SLACK_MS)
    with pytest.raises(RuleBrokenError, match="TTL"):
        deliver(ledger, promise, 6_100 + TTL_SLACK_MS)
    ledger.delays_ms = 500
    deliver(ledger, promise, 6_100 + TTL_SLACK_MS)


def test_in_good_weather_an_ack_is_heard_by_all_at_once(ledger, ids):
    """A job that comes long after its ACKJOB was answered had a copy that nobody told."""
    promise = added(ledger, ids)
    ledger.is_calm = True
    ledger.acknowledged(promise, 2_000)
    ledger.deliver(b"q", promise.id, promise.body(), 2_000 + HEARD_MS)
    with pytest.raises(RuleBrokenError, match="acks are heard"):
        ledger.deliver(b"q", promise.id, promise.body(), 2_001 + HEARD_MS)
