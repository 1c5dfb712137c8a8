"""Simulation: a plan is played, and broken rules are reported."""

from __future__ import annotations

import gc

import pytest

from disque_py.core import lifecycle
from disque_py.simulator.plan import draw
from disque_py.simulator.simulation import Simulation, simulate
from disque_py.simulator.world.machine import Machine
from simulated import small_plan


def test_a_plan_comes_to_its_end():
    """Without faults there is no failure, and jobs were done."""
    result = simulate(small_plan(5, duration_ms=1_000))
    assert result.failure is None, result.failure
    assert result.figures["acked"] > 0
    assert result.figures["faults"] == result.figures["deaths"] == 0


def test_the_same_plan_has_the_same_trace_and_figures_twice():
    """A transcript makes no difference."""
    plan = small_plan(9, weather="kills", duration_ms=1_000)
    one, other = simulate(plan), simulate(plan, is_read=True)
    assert (one.digest, one.figures) == (other.digest, other.figures)
    assert simulate(small_plan(10, weather="kills", duration_ms=1_000)).digest != one.digest


@pytest.mark.plain
def test_a_broken_rule_is_reported_with_its_transcript(monkeypatch):
    """The defect: a node forgets a job instead of keeping it under its lease."""
    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    result = simulate(small_plan(5, duration_ms=1_000), is_read=True)
    assert result.failure is not None
    assert result.failure.at_ms > 0
    assert result.failure.transcript


@pytest.mark.plain
def test_an_exception_of_the_server_is_a_failure_with_its_place(monkeypatch):
    """The failure has the module and the line of the exception."""

    def lease(broker, job):
        raise ZeroDivisionError("by a test")

    monkeypatch.setattr(lifecycle, "lease", lease)
    failure = simulate(small_plan(5, duration_ms=1_000)).failure
    assert failure is not None
    assert failure.rule == "ZeroDivisionError"
    assert "by a test in test_simulation.py" in failure.detail


@pytest.mark.plain
def test_nodes_are_checked_after_each_death():
    """There are two more looks, before and after the liveness phase."""
    seed = next(seed for seed in range(100) if len(small_plan(seed, weather="kills", duration_ms=2_000).faults) > 2)
    simulation = Simulation(small_plan(seed, weather="kills", duration_ms=2_000))
    looks = []
    simulation.look = lambda: looks.append(simulation.world.now_ms)
    simulation.play()
    assert simulation.deaths > 0
    assert len(looks) >= simulation.deaths + 2


@pytest.mark.parametrize("weather", ["fair", "disks"])
def test_a_world_with_journals_is_replayed(weather):
    """Memory is compared with the jobs that a restart would read."""
    seed = next(seed for seed in range(100) if "always" in small_plan(seed, weather=weather).journals[:1])
    result = simulate(small_plan(seed, weather=weather, duration_ms=1_500))
    assert result.failure is None, result.failure
    assert result.figures["replays"] > 0


def test_a_world_is_freed_when_its_plan_is_over():
    """A compiled job has no header for the garbage collector, so cycles that go through a job have to be cut."""
    before = count_machines()
    for seed in (11, 13):
        simulate(draw(seed, 10_000))
    assert count_machines() <= before


def count_machines() -> int:
    """Return the number of machines in memory. Other tests may have left some."""
    gc.collect()
    return sum(type(each) is Machine for each in gc.get_objects())
