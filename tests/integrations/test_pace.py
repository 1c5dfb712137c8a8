"""The number of jobs that a worker fetches at once."""

from __future__ import annotations

from disque_py.integrations.pace import COUNT_MAX, COUNT_MIN, PACE_S, Pace


def finished(pace, jobs):
    """Finish a number of jobs."""
    for _ in range(jobs):
        pace.finish()


def test_a_worker_begins_with_few():
    assert Pace().count(1_000.0) == COUNT_MIN


def test_quick_jobs_are_fetched_as_fast_as_they_are_finished():
    pace = Pace()
    pace.count(5.0)
    finished(pace, 100)
    assert pace.count(5.0 + 2 * PACE_S) == 50


def test_slow_jobs_are_fetched_in_small_numbers():
    """A hundred tasks that end together after a minute are not quick."""
    pace = Pace()
    pace.count(5.0)
    finished(pace, 100)
    assert pace.count(65.0) == COUNT_MIN


def test_a_moment_is_too_short_to_be_counted():
    pace = Pace()
    pace.count(5.0)
    finished(pace, 100)
    assert pace.count(5.0 + PACE_S / 10) == COUNT_MIN


def test_the_largest_number_is_the_programs():
    assert Pace(1).count(5.0) == 1
    pace = Pace()
    pace.count(5.0)
    finished(pace, 100_000)
    assert pace.count(6.0) == COUNT_MAX
