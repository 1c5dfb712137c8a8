"""disque_py/cli/bench/proc.py: CPU time and memory of process trees."""

from __future__ import annotations

import os
import sys

import pytest

from disque_py.cli.bench.proc import (
    TICKS_PER_S,
    Stat,
    cpu_seconds,
    family,
    machine,
    memory_available,
    own_cpu_seconds,
    parse_stat,
    resident_bytes,
)

LINE = (
    "4711 (redis (x) server) S 12 4711 4711 0 -1 4194560 900 0 0 0 150 50 7 3 20 0 5 0 87 9999999 2048 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
)


def test_a_line_has_parent_ticks_and_pages():
    """User 150, system 50, and 7 and 3 for children that have ended. The process name contains parentheses."""
    assert parse_stat(LINE) == Stat(12, 200, 10, 2048)


def test_an_invalid_stat_line_is_an_error():
    with pytest.raises(ValueError, match="is not a line of /proc"):
        parse_stat("")


def test_a_family_is_the_roots_and_all_their_descendants():
    stats = {pid: Stat(parent, 1, 0, 1) for pid, parent in {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}.items()}
    assert family(stats, [10]) == {10, 11, 12}
    assert family(stats, [11, 12]) == {11, 12}


def test_roots_that_have_ended_have_no_family():
    assert family({}, [5]) == set()
    assert cpu_seconds([]) is None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_this_process_uses_time_and_memory():
    before = cpu_seconds([os.getpid()])
    assert sum(range(3_000_000)) > 0
    assert 0 <= before <= cpu_seconds([os.getpid()])
    assert resident_bytes([os.getpid()]) > 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="clocks of processes")
def test_a_process_has_a_clock_that_is_finer_than_ticks():
    """The ticks in this line belong to another process, so the result must come from the clock."""
    assert 0 < own_cpu_seconds(os.getpid(), parse_stat(LINE)) != 2.0


def test_without_a_fine_clock_ticks_are_used():
    assert own_cpu_seconds(2**22 + 1, parse_stat(LINE)) == 200 / TICKS_PER_S


def test_the_machine_is_described():
    assert machine().keys() >= {"processor", "cores", "memory", "load at the start"}
    assert memory_available() > 0
