"""Zones: too few copies at a reply break a rule, and so does a job that comes twice after a rebalance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core import task_jobs
from disque_py.simulator.checks import zones
from disque_py.simulator.checks.zones import Asked, quorum_at
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation
from simulated import small_plan

PLACES = (("", "a"), ("", "b"), ("west", "a"))
NODES = 3


@pytest.fixture
def simulation():
    plan = small_plan(3, weather="fair", duration_ms=1, clients=())
    simulation = Simulation(replace(plan, nodes=3, places=PLACES, clients=(ClientPlan(0, "placer"),)))
    simulation.world.join(30_000)
    return simulation


def add(simulation, *options):
    """Add a job at the first node, and return it with the state at the request."""
    machine = simulation.world.machines["a"]
    promise = simulation.oracle.add(b"q", 20, 1000, 60_000, 1, simulation.world.now_ms)
    simulation.targets.ask(machine, "ADDJOB", "q", promise.body(), 0, *options)
    simulation.world.run(100)
    ((job_id, _),) = [(job.id, job) for shard in machine.broker.shards for job in shard.values()]
    return machine, promise, job_id


def test_one_copy_is_neither_a_quorum_nor_in_two_zones(simulation):
    """Spec ZN3, ZN4."""
    machine, promise, job_id = add(simulation, "REPLICATE", 1)
    assert quorum_at(machine) == 2
    with pytest.raises(RuleBrokenError, match="a minority answers no quorum"):
        Asked(machine, promise, 0).check(simulation.world, job_id)
    with pytest.raises(RuleBrokenError, match="ZONES n means n zones"):
        Asked(machine, promise, 2).check(simulation.world, job_id)


def test_a_job_that_was_delivered_counts_copies_until_it_is_over(simulation):
    """Once a job is over, its producer gets the id, with any number of copies. Spec ZN4."""
    machine, promise, job_id = add(simulation, "REPLICATE", 1)
    promise.delivered = 1
    asked = Asked(machine, promise, 0)
    with pytest.raises(RuleBrokenError, match="a minority answers no quorum"):
        asked.check(simulation.world, job_id)
    simulation.oracle.acknowledging(promise, simulation.world.now_ms)
    asked.check(simulation.world, job_id)


def test_a_quorum_is_judged_by_the_data_centre(simulation):
    """Spec ZN4."""
    machine, promise, job_id = add(simulation, "REPLICATE", "QUORUM")
    Asked(machine, promise, 0).check(simulation.world, job_id)
    Asked(machine, promise, 3).check(simulation.world, job_id)


def test_a_question_says_how_many_nodes_it_may_need(simulation):
    """A request for three zones waits for ever if one of three nodes leaves. Spec ZN3, ZN4."""
    machine, promise, _ = add(simulation, "REPLICATE", 1)
    quorum, zones_asked = Asked(machine, promise, 0), Asked(machine, promise, 3)
    assert (quorum.most_copies(), zones_asked.most_copies()) == (2, promise.copies)
    simulation.targets.ask(simulation.world.machines["b"], "CLUSTER", "LEAVING", "yes")
    simulation.world.run(100)
    assert zones_asked.most_copies() > NODES


def test_a_quorum_waits_for_nodes_of_its_data_centre(simulation):
    """There are two nodes, but one of them is in the other data centre. Spec ZN3."""
    machine, promise, _ = add(simulation, "REPLICATE", 1)
    asked = Asked(machine, promise, 0)
    assert asked.most_copies() == 2
    simulation.targets.ask(simulation.world.machines["b"], "CLUSTER", "LEAVING", "yes")
    simulation.world.run(100)
    assert asked.most_copies() > NODES


def test_a_rebalance_in_good_weather_breaks_no_rule(simulation):
    """Spec ZN7, ZN8."""
    zones.play(simulation)
    assert all(not machine.broker.queues[zones.QUEUE].length for machine in simulation.world.running())


@pytest.mark.plain
def test_unequal_parts_break_the_rule(simulation, monkeypatch):
    """Spec ZN7."""
    monkeypatch.setattr(task_jobs, "takes_jobs", lambda broker, _: broker.me.id < b"c")
    with pytest.raises(RuleBrokenError, match=r"tasks count what they change|a rebalance makes equal parts"):
        zones.play(simulation)
