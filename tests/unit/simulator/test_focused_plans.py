"""Plans with the clients of one part of the broker only."""

from __future__ import annotations

import pytest

from disque_py.simulator.clients.kinds import KINDS
from disque_py.simulator.focused_plans import FOCUSES, draw_focused
from disque_py.simulator.plan import WEATHER
from disque_py.simulator.simulation import simulate

each_focus = pytest.mark.parametrize("focus", FOCUSES)


@each_focus
def test_a_seed_draws_the_same_plan_always(focus):
    assert draw_focused(focus, 7, 10_000) == draw_focused(focus, 7, 10_000)
    assert draw_focused(focus, 7, 10_000) != draw_focused(focus, 8, 10_000)


@each_focus
def test_plans_cover_all_clients_and_all_weather_of_the_part_and_have_no_other(focus):
    plans = [draw_focused(focus, seed, 2_000) for seed in range(300)]
    assert {client.kind for plan in plans for client in plan.clients} == set(FOCUSES[focus].clients) <= set(KINDS)
    assert {kind for plan in plans for kind in plan.weather} == set(FOCUSES[focus].weather) <= set(WEATHER)


def test_claims_have_the_weather_that_their_rule_names():
    """Spec CL: partitions, pauses, clocks at the bound, restarts with and without memory."""
    assert {"halves", "pauses", "drift", "kills", "votes", "lost"} <= set(FOCUSES["claims"].weather)


def test_half_of_the_plans_for_claims_also_have_cuts_of_single_pairs():
    """Their numbers follow those of the other faults, so that a plan can be made smaller."""
    plans = [draw_focused("claims", seed, 2_000) for seed in range(100)]
    with_pairs = [plan for plan in plans if any(fault.kind == "pair" for fault in plan.faults)]
    assert 30 <= len(with_pairs) <= 70
    assert all(len({fault.number for fault in plan.faults}) == len(plan.faults) for plan in plans)


def test_weather_may_be_asked_for():
    assert draw_focused("claims", 3, 2_000, weather="votes+drift").weather == ("votes", "drift")


@each_focus
def test_such_a_plan_is_played(focus):
    result = simulate(draw_focused(focus, 1, 2_000))
    assert result.failure is None
    assert result.figures["commands"] > 0
