"""Token buckets."""

from __future__ import annotations

from disque_py.gateway.rates import BUCKETS_MAX, LOGIN_FAILURES, LoginFailures, Rates


def test_a_second_holds_as_many_requests_as_the_rate():
    rates = Rates(3)
    assert [rates.take("a", 0.0) for _ in range(4)] == [True, True, True, False]


def test_a_bucket_fills_steadily():
    rates = Rates(2)
    assert rates.take("a", 0.0, 2)
    assert not rates.take("a", 0.4)
    assert rates.take("a", 0.6)


def test_callers_have_buckets_of_their_own():
    rates = Rates(1)
    assert rates.take("a", 0.0)
    assert rates.take("b", 0.0)


def test_a_rate_of_0_means_no_limit():
    rates = Rates(0)
    assert all(rates.take("a", 0.0) for _ in range(1000))


def test_full_buckets_are_dropped_when_there_are_many():
    rates = Rates(1000)
    for number in range(BUCKETS_MAX + 10):
        rates.take(str(number), float(number))
    assert len(rates._buckets) <= BUCKETS_MAX


def test_an_address_is_blocked_after_five_failed_logins_and_not_for_ever():
    failures = LoginFailures()
    for _ in range(LOGIN_FAILURES):
        assert not failures.is_blocked("a", 0.0)
        failures.failed("a", 0.0)
    assert failures.is_blocked("a", 0.0)
    assert not failures.is_blocked("b", 0.0)
    assert not failures.is_blocked("a", 13.0)
