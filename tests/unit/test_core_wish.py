"""core/wish.py: what a GETJOB asks of its jobs."""

from __future__ import annotations

from disque_py.core.wish import COUNTERS, META, PLAIN, WITH_COUNTERS, wish_of


def test_the_usual_wishes_are_shared():
    assert wish_of(0, 0, b"") is PLAIN
    assert wish_of(COUNTERS, 0, b"") is WITH_COUNTERS
    assert wish_of(META, 0, b"") is not PLAIN


def test_a_lease_or_a_token_makes_picky():
    assert not wish_of(META, 0, b"").is_picky
    assert wish_of(0, 1000, b"").is_picky
    assert wish_of(0, 0, b"t").is_picky
