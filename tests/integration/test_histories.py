"""The check of recorded histories (histories.py) finds violations."""

from __future__ import annotations

from histories import Held, overlaps


def test_a_history_with_an_overlap_or_a_wrong_fence_is_found():
    assert overlaps([Held(b"u", 1, 0, 1), Held(b"u", 2, 1, 2), Held(b"v", 1, 0, 2)]) == []
    assert overlaps([Held(b"u", 1, 0, 1.1), Held(b"u", 2, 1, 2)]) != []
    assert overlaps([Held(b"u", 2, 0, 1), Held(b"u", 1, 1, 2)]) != []
