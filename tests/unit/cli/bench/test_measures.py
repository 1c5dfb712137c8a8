"""disque_py/cli/bench/measures.py: tests, cells, and sizes suitable for the machine."""

from __future__ import annotations

import os

import pytest

from disque_py.cli.bench.contestants import floor
from disque_py.cli.bench.dialects import BEANSTALKD, DISQUE, FLOOR, REDIS_LIST
from disque_py.cli.bench.load import Loaded
from disque_py.cli.bench.measures import MEASURES, TESTS, Plan, fitting, matrix, new_queue, values_of
from disque_py.cli.bench.processes import Running

GIB = 1 << 30


def test_every_test_is_measured_once():
    assert sorted(name for measure in MEASURES for name in measure.tests) == sorted(TESTS)


def test_the_matrix_has_every_pair():
    assert [cell.text for cell in matrix(Plan(pipelines=(1, 16), connections=(1, 50)))] == [
        "p=1 c=1", "p=16 c=1", "p=1 c=50", "p=16 c=50",
    ]  # fmt: skip


def test_cells_of_too_many_requests_at_once_are_left_out_and_reported():
    """Each connection finishes its batch, so such a cell would take minutes whatever its time limit."""
    plan, notes = fitting(Plan(), 100_000, 8 * GIB)
    assert "p=100 c=5000" not in [cell.text for cell in matrix(plan)]
    assert notes == ["Left out: p=100 c=5,000, which have more than 100,000 requests in flight."]


def test_federation_leaves_out_the_longest_pipelines():
    measure = next(measure for measure in MEASURES if measure.tests == ("federation",))
    assert [cell.text for cell in measure.cells(Plan())] == ["p=1", "p=4", "p=16"]


@pytest.mark.parametrize(
    ("test", "suits"),
    [("ping", [1, 1, 1, 1]), ("add", [1, 1, 1, 0]), ("timers", [1, 0, 1, 0]), ("queues", [1, 1, 0, 0]),
     ("replicate", [1, 0, 0, 0])],
)  # fmt: skip
def test_a_test_takes_the_contestants_that_can_do_it(test, suits):
    measure = next(measure for measure in MEASURES if test in measure.tests)
    assert [measure.suits(dialect) for dialect in (DISQUE, REDIS_LIST, BEANSTALKD, FLOOR)] == suits


def test_numbers_of_connections_that_the_system_forbids_are_left_out_and_reported():
    plan, notes = fitting(Plan(), file_limit=1024, memory=8 * GIB)
    assert plan.connections == (1, 50, 500)
    assert notes == ["Left out: 5,000 connections; the limit of open files is 1,024 (ulimit -n)."]


def test_a_backlog_fits_into_memory():
    plan, notes = fitting(Plan(connections=(1,), backlog=10_000_000), file_limit=-1, memory=GIB)
    assert 400_000 < plan.backlog < 800_000
    assert notes[0].startswith("A backlog of 10,000,000 jobs does not fit into memory; reduced to ")
    small = Plan(connections=(1, 50))
    assert fitting(small, 100_000, 8 * GIB) == (small, [])


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_cpu_time_is_given_per_hundred_thousand_requests():
    """Two seconds for 50,000 commands are shown as four seconds per 100,000."""
    running = Running(floor(), pids=[os.getpid()])
    loaded = Loaded(count=50_000, seconds=4.0, generator_cpu_s=1.0)
    found = values_of(running, loaded, running.cpu_s() - 2.0)
    assert found.pop("cpu") == pytest.approx(4.0, abs=0.5)
    assert found == {"rate": 12_500.0, "generator": 0.25, "count": 50_000.0}


def test_without_processes_there_is_no_cpu_time():
    assert "cpu" not in values_of(Running(floor()), Loaded(1, 1.0, 0.0), None)


def test_no_two_measurements_share_a_queue():
    assert new_queue() != new_queue()
