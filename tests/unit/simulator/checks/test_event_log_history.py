"""Written: the world's record of a log, and the events that a crash may take."""

from __future__ import annotations

import pytest

from disque_py.event_format import ACKED, ADDED, DELIVERED, STARTED
from disque_py.simulator.checks.event_log_history import Written
from disque_py.simulator.oracle import RuleBrokenError

MS = 1_700_000_000_000
ADDED_J = (ADDED, b"D-j", 5_000_000, b"q", 3)
ACKED_J = (ACKED, b"D-j", 4, 2, 17, 1, 0, 0, 5_000_000, b"q", 3)


@pytest.fixture
def written():
    log = Written("id", 1)
    log.append(1, [(STARTED, {"reason": "memory lost"}), ADDED_J], 100, MS)
    log.append(3, [ACKED_J], 150, MS + 5)
    return log


def test_events_of_a_job_are_found_by_their_code(written):
    assert written.last_of(b"D-j", (ADDED,)) == 2
    assert written.last_of(b"D-j", (ADDED, ACKED)) == 3
    assert written.last_of(b"D-k", (ADDED,)) == 0
    assert written.end_of(2) == 100


def test_a_reply_belongs_to_one_delivery_although_there_were_more_before_it_left(written):
    """The attempt names the delivery. Without one, it is the first delivery since the request."""
    for attempt in (1, 2, 3):
        written.append(written.next_seq, [(DELIVERED, b"D-j", 2, 0, attempt, 0, 0, 5_000_000, b"q", 3)], 200, MS)
    assert [written.delivery_of(b"D-j", 0, attempt) for attempt in (1, 2, 3, 4)] == [4, 5, 6, 6]
    assert [written.delivery_of(b"D-j", since, 0) for since in (4, 5, 7)] == [4, 5, 6]
    assert written.delivery_of(b"D-k", 0, 0) == 0


def test_a_gap_breaks_a_rule(written):
    with pytest.raises(RuleBrokenError, match="without gaps"):
        written.append(5, [ACKED_J], 200, MS)


def test_events_that_were_not_safe_may_go(written):
    """Another event gets the number, and the job's index forgets the lost event."""
    assert written.cut(3) == 1
    assert (written.next_seq, written.last_of(b"D-j", (ACKED,))) == (3, 0)
    assert list(written.lost_of) == [b"D-j"], "a journal may know of it all the same (seed 5297)"


def test_events_that_were_safe_or_read_may_not_go(written):
    written.safe = 3
    with pytest.raises(RuleBrokenError, match="events stay"):
        written.cut(2)
    written.safe, written.told = 1, 4
    with pytest.raises(RuleBrokenError, match="events stay"):
        written.cut(3)
    with pytest.raises(RuleBrokenError, match="come from somewhere"):
        written.cut(9)


def test_a_line_is_what_was_written_and_stays_what_it_was(written):
    line = written._lines.of(2, MS, [ADDED_J])[0].encode()
    written.check_line(2, line)
    with pytest.raises(RuleBrokenError, match="a number means one event"):
        written.check_line(2, line.replace(b'"q"', b'"p"'))
    with pytest.raises(RuleBrokenError, match="read as they were written"):
        written.check_line(3, line)
    with pytest.raises(RuleBrokenError, match="come from somewhere"):
        written.check_line(4, line)
