"""The delay before a failed job runs again."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from disque_py.client import Backoff


@pytest.mark.parametrize(
    ("kind", "waits"), [("fixed", [1, 1, 1, 1]), ("linear", [1, 2, 3, 4]), ("exponential", [1, 2, 4, 5])]
)
def test_a_wait_grows_with_each_failure_up_to_the_cap(kind, waits):
    policy = Backoff(kind, cap_ms=timedelta(seconds=5), jitter_percent=0)
    assert [policy.wait_s(count, Random(1)) for count in (1, 2, 3, 4)] == waits
    assert Backoff().wait_s(10_000, Random(1)) <= 300


def test_jitter_shortens_a_wait_by_its_percentage_at_most():
    """Jitter keeps jobs that failed together from coming back together."""
    rng = Random(1)
    waits = [Backoff(jitter_percent=50).wait_s(1, rng) for _ in range(100)]
    assert 0.5 <= min(waits) < 0.6
    assert 0.9 < max(waits) <= 1.0


@pytest.mark.parametrize(
    "settings", [{"kind": "odd"}, {"base_ms": 0}, {"cap_ms": 1}, {"jitter_percent": 101}, {"base_ms": 0.5}]
)
def test_a_policy_that_makes_no_sense_is_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        Backoff(**settings)
