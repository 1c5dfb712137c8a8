"""The system's clock."""

from __future__ import annotations

import time

from disque_py.server.clock import SystemClock


def test_time_is_whole_milliseconds_and_never_goes_back():
    """Spec T1."""
    clock = SystemClock()
    moments = [clock.now_ms() for _ in range(100)]
    assert moments == sorted(moments)
    assert all(type(moment) is int for moment in moments)


def test_the_wall_clock_is_unix_time():
    assert abs(SystemClock().wall_ms() - time.time() * 1000) < 5_000


def test_the_stopwatch_measures_nanoseconds():
    clock = SystemClock()
    begin = clock.stopwatch_ns()
    time.sleep(0.002)
    assert 1_500_000 < clock.stopwatch_ns() - begin < 5_000_000_000
