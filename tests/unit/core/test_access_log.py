"""Refusals, and addresses that guess."""

from __future__ import annotations

from disque_py.core import access_log
from disque_py.core.access_log import ADDRESSES_MAX, ENTRIES_MAX, AccessLog


def test_equal_refusals_within_a_minute_are_one_entry():
    """Spec US9."""
    log = AccessLog()
    for wall_ms in (0, 60_000, 130_000):
        log.add("command", b"ping", b"ann", "id=1", wall_ms)
    assert [(entry.count, entry.created_ms) for entry in log.entries] == [(1, 130_000), (2, 0)]


def test_the_log_is_bounded():
    log = AccessLog()
    for number in range(ENTRIES_MAX + 5):
        log.add("key", b"%d" % number, b"ann", "", 0)
    assert (len(log.entries), log.entries[0].number) == (ENTRIES_MAX, ENTRIES_MAX + 4)


def test_five_failures_in_a_minute_are_guessing():
    """Spec US9."""
    log = AccessLog()
    for now_ms in (0, 20_000, 40_000, 50_000):
        log.failed("a", now_ms)
    assert not log.is_guessing("a", 50_000)
    log.failed("a", 59_999)
    assert log.is_guessing("a", 59_999)
    assert not log.is_guessing("a", 60_000)
    assert not log.is_guessing("b", 59_999)


def test_addresses_are_bounded_and_the_oldest_goes_first():
    log = AccessLog()
    for number in range(ADDRESSES_MAX + 1):
        log.failed(str(number), number)
    assert len(log.failures) == ADDRESSES_MAX
    assert "0" not in log.failures


def test_the_refusals_in_the_audit_log_are_limited_per_span():
    log = AccessLog()
    taken = [log.takes_line(0) for _ in range(access_log.LINES_MAX + 2)]
    assert (sum(taken), log.suppressed) == (access_log.LINES_MAX, 2)
    assert log.takes_line(access_log.LINES_MS)
