"""Faults of logs of events: the node goes on, and readable events stay."""

from __future__ import annotations

import pytest

from disque_py.simulator.checks.cluster_invariants import Losses
from disque_py.simulator.faults.event_logs import TROUBLES
from disque_py.simulator.faults.weather import Weather
from disque_py.simulator.oracle import Oracle
from disque_py.simulator.plan import EVENT_FAULTS, Fault
from disque_py.simulator.world.world import World
from disque_py.storage.event_log_service import OFF, ON
from simulated import ask, small_plan


@pytest.fixture
def weather():
    world = World("a", events=True)
    world.run(100)
    oracle = Oracle()
    return Weather(world, small_plan(1, nodes=1), oracle, Losses(oracle))


@pytest.fixture
def event_logs(weather):
    return weather.world.machines["a"].event_logs


def test_events_are_switched_off_and_on(weather, event_logs):
    """The next log has another id."""
    first = event_logs.current
    _, end = weather.kinds["events-off"](Fault(0, 0, "events-off", 100, (0, 0, 0, 0)))
    weather.world.run(100)
    assert (event_logs.service.state, event_logs.was_off) == (OFF, True)
    end()
    weather.world.run(100)
    assert (event_logs.service.state, event_logs.was_off) == (ON, False)
    assert event_logs.current is not first


def test_limits_are_set_and_lifted(weather, event_logs):
    _, end = weather.kinds["events-limit"](Fault(0, 0, "events-limit", 100, (0, 1, 0, 0)))
    assert event_logs.service.log.bytes_max == 60_000
    end()
    assert event_logs.service.log.bytes_max == weather.targets.plan.events_bytes


@pytest.mark.parametrize("trouble", range(len(TROUBLES)))
def test_a_failing_disk_stops_no_node(weather, event_logs, trouble):
    """ADDJOB gets its reply in time. After the fault there is a log again, within the time that a log may take."""
    _, end = weather.kinds["events-disk"](Fault(0, 0, "events-disk", 100, (0, trouble, 2, 0)))
    for _ in range(6):
        assert ask(weather.world, "a", "ADDJOB", "q", "x" * 1_000, 0, within_ms=8_000).startswith(b"D-")
        weather.world.run(400)
    end()
    weather.world.run(40_000)
    assert event_logs.service.state == ON


def test_nodes_without_events_are_left_alone(weather):
    weather.world.machines["a"].event_logs = None
    fault = Fault(0, 0, "events-disk", 100, (0, 0, 0, 0))
    assert [weather.kinds[kind](fault) for kind in EVENT_FAULTS] == [None] * 3
