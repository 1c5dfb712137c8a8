"""core/changeable.py: the changeable part of a job as data, and policies of back-off."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.core.changeable import Changeable, backoff_ms, read_backoff, unpack

MAX_MS = 1 << 40


def full():
    """A part with every field."""
    part = Changeable(60_000, 3, b"fixed:1:2")
    part.number, part.node, part.start, part.ended, part.error = 7, b"n" * 20, 2, 4, b"broken"
    part.is_errored = part.is_dead_letter = True
    part.history = (b"q", b"broken", 3, 1_700_000_000_000, 1, 4)
    return part


def test_a_part_comes_out_of_its_field_as_it_was():
    """Spec Y2, Y3. Later positions are ignored."""
    part = full()
    field = part.pack(b"dead", 5, 1_000, 0)
    assert unpack((*field, "news")).pack(b"dead", 5, 1_000, 0) == field


def test_the_limit_applies_to_the_deliveries_of_the_current_set():
    """Spec Y4."""
    part = Changeable(1_000, 2)
    assert [part.is_spent(attempt) for attempt in (0, 1, 2, 3)] == [False, False, True, True]
    part.start = 2
    assert [part.attempts_left(attempt) for attempt in (2, 3, 4)] == [2, 1, 0]
    assert Changeable(1_000).attempts_left(9) is None
    assert not Changeable(1_000).is_spent(9)


def test_a_dead_letter_shows_its_history_as_pairs():
    """Spec Y7."""
    assert full().pairs()[::2] == (
        b"x-disque-from", b"x-disque-error", b"x-disque-attempts", b"x-disque-time", b"x-disque-count",
    )  # fmt: skip
    assert Changeable(1_000).pairs() == ()


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (b"fixed:0:0", b"fixed:0:0"), (b"LINEAR:010:20", b"linear:10:20"), (b"exponential:1:2:0", b"exponential:1:2"),
        (b"exponential:1:2:99", b"exponential:1:2:99"), (b"fixed:1", b""), (b"fixed:2:1", b""), (b"fixed:1:2:101", b""),
        (b"fixed:1:9999999999999", b""), (b"fixed:-1:2", b""), (b"", b""),
    ],
)  # fmt: skip
def test_policies_are_kept_in_their_shortest_form(text, short):
    """Spec Y6. An impossible one is empty."""
    assert read_backoff(text, MAX_MS) == short


@pytest.mark.parametrize(
    ("policy", "spans"),
    [(b"fixed:100:900", (100, 100, 100)), (b"linear:100:250", (100, 200, 250)),
     (b"exponential:100:900", (100, 200, 400))],
)  # fmt: skip
def test_a_policy_says_how_long_a_nack_delays(policy, spans):
    """Spec Y6. Jitter only shortens."""
    rng = Random(1)
    assert tuple(backoff_ms(policy, spent, rng) for spent in (1, 2, 3)) == spans
    assert backoff_ms(policy, 10_000, rng) <= 900
    assert all(50 <= backoff_ms(policy + b":50", 1, rng) <= 100 for _ in range(50))
    assert backoff_ms(b"", 3, rng) == 0
