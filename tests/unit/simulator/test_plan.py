"""Plan: the decisions of a seed before the run, and reduced plans."""

from __future__ import annotations

import pytest

from disque_py.core.grants import IDLE_MS
from disque_py.simulator.plan import (
    BY_NAME,
    EVENT_FAULTS,
    FORGETFUL_IDLE_MS,
    JOURNAL_FAULTS,
    LOST_FAULTS,
    NAMES,
    NODES_MAX,
    WEATHER,
    Keep,
    draw,
)
from disque_py.simulator.simulation import Simulation
from disque_py.simulator.world.codecs import NEW, OLD, PREVIOUS
from simulated import weathered


def test_a_seed_draws_the_same_plan_always():
    """A plan is data, so plans can be compared."""
    assert draw(7, 10_000) == draw(7, 10_000)
    assert draw(7, 10_000) != draw(8, 10_000)


def test_plans_cover_all_sizes_weathers_and_policies():
    """There are one to nine nodes, every kind of weather alone, journals with every policy, and both bus versions."""
    plans = [draw(seed, 2_000) for seed in range(400)]
    assert {plan.nodes for plan in plans} == {1, 2, 3, 4, 5, 6, 7, NODES_MAX}
    assert {plan.weather[0] for plan in plans if len(plan.weather) == 1} == set(WEATHER) - set(BY_NAME)
    assert {policy for plan in plans for policy in plan.journals} == {"", "always", "everysec", "no"}
    assert {version for plan in plans for version in plan.versions} == {PREVIOUS, OLD, NEW}


def test_every_fault_of_the_weather_can_be_done():
    """There is a method for each kind."""
    kinds = {*(fault for faults in WEATHER.values() for fault in faults), *EVENT_FAULTS, *JOURNAL_FAULTS, "reset-amid"}
    kinds |= set(LOST_FAULTS)
    assert kinds <= set(weathered("ab").kinds)


def test_weather_may_be_asked_for():
    """Then the plan has only that kind, and at least three nodes."""
    plan = draw(3, 20_000, weather="halves")
    assert plan.weather == ("halves",)
    assert plan.nodes >= 3
    assert {fault.kind for fault in plan.faults} - {*EVENT_FAULTS, *JOURNAL_FAULTS, "reset-amid"} == {"halves"}


def test_the_kept_parts_of_a_plan_keep_their_numbers():
    """The remaining clients and faults are the same as in the whole plan."""
    plan = draw(12, 20_000, weather="kills")
    keep = Keep(nodes=2, clients=(1,), faults=(0, 2), until_ms=19_000)
    kept = plan.kept(keep)
    assert (kept.nodes, kept.duration_ms, kept.keep) == (2, 19_000, keep)
    assert [client.number for client in kept.clients] == [1]
    assert kept.faults == (plan.faults[0], plan.faults[2])
    assert plan.kept(Keep()) == plan


@pytest.mark.parametrize(
    "text", ["", "nodes=3", "clients=0,4 faults=2,5 until=4210", "clients=0-3,7", "clients=none faults=none"]
)
def test_keep_can_be_written_and_read(text):
    """The command that replays a failure contains it."""
    assert str(Keep.read(text)) == text


def test_an_invalid_keep_is_refused():
    """The error names the wrong word."""
    with pytest.raises(ValueError, match="'node=3'"):
        Keep.read("node=3")


def test_there_are_names_for_all_nodes_that_may_join():
    """Each name is a letter."""
    assert len(NAMES) == 26


def test_several_kinds_of_weather_may_be_asked_for():
    """They are separated by +."""
    assert draw(3, 20_000, weather="disks+power").weather == ("disks", "power")


def test_some_plans_have_what_takes_minutes_or_comes_in_bursts():
    """Examples are long RETRYs, endless waits, bursts of acks, early rewrites, and faults of operators."""
    plans = [draw(seed, 10_000) for seed in range(200)]
    clients = {client.kind for plan in plans for client in plan.clients}
    faults = {fault.kind for plan in plans for fault in plan.faults}
    assert {"patient consumer", "hoarder"} <= clients
    assert {*JOURNAL_FAULTS, "reset-amid"} <= faults
    assert {plan.is_long for plan in plans} == {True, False}
    assert len({plan.rewrite_bytes for plan in plans}) > 1


def test_clocks_drift_as_far_as_allowed_where_that_is_asked_for():
    """Spec CL8: `claim-drift-max` is one per cent between two clocks."""
    plan = draw(1, 1_000, weather="drift")
    assert set(plan.drifts_ppm) == {-5_000, 5_000}
    assert plan.faults == draw(1, 1_000, weather="fair").faults


def test_voters_forget_keys_soon_where_that_is_asked_for():
    assert Simulation(draw(1, 1_000, weather="forgetful")).world["a"].claims.idle_ms == FORGETFUL_IDLE_MS
    assert Simulation(draw(1, 1_000, weather="clocks")).world["a"].claims.idle_ms == IDLE_MS
