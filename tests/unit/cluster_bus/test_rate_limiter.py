"""cluster_bus/rate_limiter.py: limits how often one source may act."""

from __future__ import annotations

from cluster_bus.rate_limiter import SOURCES_MAX, RateLimiter


def test_a_source_may_act_a_number_of_times_at_once_and_then_at_a_rate():
    limiter = RateLimiter(3, 2)
    assert [limiter.spend("a", 0) for _ in range(5)] == [True, True, True, False, False]
    assert [limiter.spend("a", 1000) for _ in range(3)] == [True, True, False]


def test_each_source_has_its_own_limit():
    limiter = RateLimiter(1, 1)
    assert limiter.spend("a", 0)
    assert limiter.spend("b", 0)
    assert not limiter.spend("a", 0)


def test_a_refusal_is_not_counted():
    limiter = RateLimiter(1, 1)
    assert limiter.spend("a", 0)
    assert not any(limiter.spend("a", ms) for ms in range(1, 1000))
    assert limiter.spend("a", 1000)


def test_the_memory_of_sources_is_bounded_and_idle_ones_are_forgotten_first():
    limiter = RateLimiter(2, 1)
    for number in range(SOURCES_MAX):
        limiter.spend(str(number), 0)
    limiter.spend("new", 1_000_000)
    assert len(limiter._spent) == 1
    for number in range(2 * SOURCES_MAX):
        limiter.spend(str(number), 1_000_000)
    assert len(limiter._spent) == SOURCES_MAX
