"""Faults: the effect of each kind, and its end."""

from __future__ import annotations

import pytest

from disque_py.simulator.clients.connection import words
from disque_py.simulator.faults.weather import Weather
from disque_py.simulator.plan import WEATHER, Fault
from simulated import ask, asker, small_plan, strike, weathered

KINDS = sorted({fault for faults in WEATHER.values() for fault in faults})


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_strikes_and_is_over(kind):
    """Afterwards the cluster is whole again, with all nodes except those that left for good."""
    weather = weathered()
    world = weather.world
    ask(world, "a", "ADDJOB", "q0", "x", 0, "REPLICATE", 2)
    asker(world, "b")
    strike(weather, kind)
    assert len(weather.done) == 1
    world.run(300)
    weather.end()
    world.until(world.is_meshed, 30_000)
    assert not world.cuts.loud
    assert not world.cuts.silent
    assert len(world.running()) >= 3


def test_a_fault_that_cannot_be_done_is_left_out():
    """For example, a single node can't leave its cluster."""
    weather = weathered("a")
    for kind in ("leave", "reset", "forget", "halves", "one-way", "ring"):
        strike(weather, kind)
    assert weather.done == []


def test_faults_happen_at_their_moments_and_end_after_their_spans():
    """The plan lists the faults with their times."""
    weather = weathered("ab")
    weather.targets.plan = small_plan(1, weather="kills", duration_ms=10)
    object.__setattr__(weather.targets.plan, "faults", (Fault(0, 100, "kill", 200, (0, 0, 0, 0)),))
    weather.begin()
    weather.world.run(90)
    assert len(weather.targets.up()) == 2
    weather.world.run(20)
    assert len(weather.targets.up()) == 1
    weather.world.run(200)
    assert len(weather.targets.up()) == 2


def test_when_all_faults_are_over_no_new_one_begins():
    """The liveness phase has begun."""
    weather = weathered("ab")
    weather.end()
    strike(weather, "kill")
    assert weather.done == []
    assert isinstance(weather, Weather)


def test_nodes_that_were_told_to_forget_each_other_are_torn_until_the_mesh_is_whole():
    """Two nodes may miss a link only for a reason that a fault has given, and only until that is mended."""
    weather = weathered("abc")
    world = weather.world
    assert weather.targets.is_whole()
    strike(weather, "forget", span_ms=100_000, picks=(0, 0, 0, 0))
    world.run(100)
    assert list(weather.targets.torn) == [("b", "a"), ("c", "a")]
    assert weather.targets.is_whole()
    weather.targets.torn.clear()
    assert not weather.targets.is_whole()
    weather.targets.tear(world.machines["b"], "a", "")
    weather.targets.tear(world.machines["c"], "a", "")
    weather.targets.meet_torn()
    world.until(world.is_meshed, 5_000)
    weather.targets.note_whole()
    assert weather.targets.torn == {}


def test_the_reason_why_a_node_that_is_down_was_torn_apart_is_remembered():
    """The mesh of the other nodes is whole without it."""
    weather = weathered("abc")
    weather.targets.tear(weather.world.machines["b"], "", "was reset")
    weather.world.crash("b")
    weather.world.run(3_000)
    weather.targets.note_whole()
    assert list(weather.targets.torn) == [("b", "")]


def test_a_node_is_reset_when_it_is_in_the_middle_of_something():
    """In this test a client waits at the node. When the fault is over, the node meets the others again."""
    weather = weathered("abc")
    world = weather.world
    strike(weather, "reset-amid", span_ms=1_000, picks=(0, 1, 3, 0))
    world.run(100)
    assert len(world["b"].cluster.nodes) == 3
    asker(world, "b").send([words("GETJOB", "FROM", "q0")])
    world.run(100)
    assert len(world["b"].cluster.nodes) == 1
    world.run(1_000)
    world.until(world.is_meshed, 10_000)


def test_replies_that_come_while_a_fault_begins_are_judged_with_it():
    """Seed 14996: a reset answers waiting clients immediately."""
    weather = weathered("abc")
    faults = []
    ask_node = weather.targets.ask

    def ask_and_look(*words):
        faults.append(weather.targets.oracle.faults)
        ask_node(*words)

    weather.targets.ask = ask_and_look
    strike(weather, "reset", span_ms=1_000, picks=(0, 1, 0, 0))
    assert faults[0] == 1
