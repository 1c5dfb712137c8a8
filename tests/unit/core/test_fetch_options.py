"""core/fetch_options.py: the options of a GETJOB for its jobs."""

from __future__ import annotations

from disque_py.core.fetch_options import COUNTERS, META, PLAIN, WITH_COUNTERS, fetch_options


def test_the_usual_wishes_are_shared():
    assert fetch_options(0, 0, b"") is PLAIN
    assert fetch_options(COUNTERS, 0, b"") is WITH_COUNTERS
    assert fetch_options(META, 0, b"") is not PLAIN


def test_a_lease_or_a_token_makes_picky():
    assert not fetch_options(META, 0, b"").is_picky
    assert fetch_options(0, 1000, b"").is_picky
    assert fetch_options(0, 0, b"t").is_picky
