"""simulator/checks/locks.py: a lock has one owner at a time, and its fences grow."""

from __future__ import annotations

import pytest

from disque_py.simulator.checks.locks import LockBook
from disque_py.simulator.oracle import RuleBrokenError


def book_with_owner():
    book = LockBook()
    book.acquired("l", "one", 5, 1_000, 1_010, 10_000)
    return book


def test_two_owners_of_a_lock_at_the_same_time_break_the_rule():
    """Spec CL8."""
    book = book_with_owner()
    with pytest.raises(RuleBrokenError, match="a lock has one owner"):
        book.acquired("l", "two", 6, 9_000, 9_010, 10_000)


def test_an_owner_after_its_lease_or_its_release_is_not_an_owner():
    book = book_with_owner()
    book.acquired("l", "two", 6, 10_990, 11_000, 10_000)
    book.releasing("l", "two", 6)
    book.extended("l", "two", 6, 11_900, 12_010, 10_000)  # It was under way before the release.
    book.acquired("l", "one", 7, 12_050, 12_060, 10_000)


def test_an_extension_that_meets_another_owner_breaks_the_rule():
    book = book_with_owner()
    book.acquired("l", "two", 6, 10_990, 11_000, 10_000)
    with pytest.raises(RuleBrokenError, match="a lock has one owner"):
        book.extended("l", "one", 5, 11_000, 11_010, 10_000)


def test_a_fence_that_falls_breaks_the_rule():
    """Spec CL10."""
    book = book_with_owner()
    with pytest.raises(RuleBrokenError, match="fences of a lock grow"):
        book.acquired("l", "two", 5, 30_000, 30_010, 10_000)


def test_a_fence_that_was_asked_for_before_may_be_lower():
    book = book_with_owner()
    book.releasing("l", "one", 5)
    book.acquired("l", "two", 4, 1_005, 1_020, 10)


def test_work_that_is_done_stays_done():
    """Spec CL9."""
    book = LockBook()
    book.ended("l", 995, 1_000, 5_000)
    book.acquired("l", "two", 6, 990, 1_010, 10)
    with pytest.raises(RuleBrokenError, match="not handed out again"):
        book.acquired("l", "one", 7, 1_100, 1_110, 10)


def test_the_first_answer_of_an_owner_keeps_to_its_limit():
    """Spec CL9."""
    book = LockBook()
    book.asking("l", "one")
    with pytest.raises(RuleBrokenError, match="no more often"):
        book.counted("l", "one", 3, 2)
    book.asking("l", "one")
    book.counted("l", "one", 3, 2)


def test_an_attempt_that_is_not_counted_breaks_the_rule():
    """Spec CL9."""
    book = LockBook()
    book.spent("l", 5, 1, 1_000, 1_010)
    book.spent("l", 5, 1, 1_100, 1_110)  # It was renewed.
    book.spent("l", 6, 2, 1_200, 1_210)
    with pytest.raises(RuleBrokenError, match="each time that a lock is handed out counts"):
        book.spent("l", 7, 2, 1_300, 1_310)


@pytest.mark.parametrize(("sent_ms", "now_ms"), [(1_005, 1_020), (2_990, 3_000)])
def test_attempts_that_cross_or_are_kept_no_longer_may_be_the_same(sent_ms, now_ms):
    """Spec CL9: the count is kept for `claim-lease-max`."""
    book = LockBook()
    book.spent("l", 5, 1, 1_000, 1_010)
    book.spent("l", 6, 1, sent_ms, now_ms)


def test_attempts_begin_anew_when_the_work_is_done():
    """Spec CL9."""
    book = LockBook()
    book.spent("l", 5, 3, 1_000, 1_010)
    book.releasing("l", "one", 5, now_ms=1_050, is_done=True)
    book.spent("l", 6, 1, 1_300, 1_310)
