"""Faults of logs of events: the node goes on, and what is readable stays."""

from __future__ import annotations

import pytest

from disque_py.event_keeper import OFF, ON
from disque_py.simulator.checkers import Losses
from disque_py.simulator.event_faults import TROUBLES
from disque_py.simulator.faults import Weather
from disque_py.simulator.ledger import Ledger
from disque_py.simulator.plan import Fault
from disque_py.simulator.world import World
from simulated import ask, small_plan


@pytest.fixture
def weather():
    world = World("a", events=True)
    world.run(100)
    ledger = Ledger()
    return Weather(world, small_plan(1, nodes=1), ledger, Losses(ledger))


@pytest.fixture
def annals(weather):
    return weather.world.machines["a"].annals


def test_events_are_switched_off_and_on(weather, annals):
    """The next log is another one."""
    first = annals.current
    _, end = weather.do_events_off(Fault(0, 0, "events-off", 100, (0, 0, 0, 0)))
    weather.world.run(100)
    assert (annals.keeper.state, annals.was_off) == (OFF, True)
    end()
    weather.world.run(100)
    assert (annals.keeper.state, annals.was_off) == (ON, False)
    assert annals.current is not first


def test_limits_come_and_go(weather, annals):
    _, end = weather.do_events_limit(Fault(0, 0, "events-limit", 100, (0, 1, 0, 0)))
    assert annals.keeper.log.bytes_max == 60_000
    end()
    assert annals.keeper.log.bytes_max == weather.plan.events_bytes


@pytest.mark.parametrize("trouble", range(len(TROUBLES)))
def test_a_disk_in_trouble_stops_nobody(weather, annals, trouble):
    """ADDJOB is answered in time, and when all is well again there is a log, within the time that one may take."""
    _, end = weather.do_events_disk(Fault(0, 0, "events-disk", 100, (0, trouble, 2, 0)))
    for _ in range(6):
        assert ask(weather.world, "a", "ADDJOB", "q", "x" * 1_000, 0, within_ms=8_000).startswith(b"D-")
        weather.world.run(400)
    end()
    weather.world.run(40_000)
    assert annals.keeper.state == ON


def test_nodes_without_events_are_left_alone(weather):
    weather.world.machines["a"].annals = None
    fault = Fault(0, 0, "events-disk", 100, (0, 0, 0, 0))
    assert weather.do_events_off(fault) is weather.do_events_limit(fault) is weather.do_events_disk(fault) is None
