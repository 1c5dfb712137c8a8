"""disque_py/cli/bench/schedule.py: an open loop does not wait for the server."""

from __future__ import annotations

from disque_py.cli.bench.schedule import Schedule


def test_requests_are_evenly_spaced():
    schedule = Schedule(start=10.0, rate=4.0, count=3)
    assert [schedule.intended(number) for number in range(3)] == [10.0, 10.25, 10.5]


def test_nothing_is_due_before_its_time():
    schedule = Schedule(10.0, 4.0, 3)
    assert list(schedule.due(9.9)) == []
    assert list(schedule.due(10.0)) == [0]
    assert list(schedule.due(10.0)) == []
    assert schedule.wait(10.0) == 0.25


def test_requests_that_were_missed_are_due_at_once_and_keep_their_times():
    """After a stall of a second the fourth request is 0.25 s late, and the first a whole second."""
    schedule = Schedule(10.0, 4.0, 100)
    late = [11.0 - schedule.intended(number) for number in schedule.due(11.0)]
    assert late == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_after_the_last_request_there_is_nothing_to_wait_for():
    schedule = Schedule(10.0, 4.0, 2)
    assert list(schedule.due(99.0)) == [0, 1]
    assert schedule.wait(99.0) is None


def test_a_wait_is_never_negative():
    assert Schedule(10.0, 4.0, 2).wait(12.0) == 0.0
