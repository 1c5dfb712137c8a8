"""Plans with clients of claims and locks only."""

from __future__ import annotations

from disque_py.simulator.claims_plans import KINDS, draw_claims
from disque_py.simulator.plan import WEATHER
from disque_py.simulator.simulation import simulate

CLIENTS = {"voter keeper", "locker", "claim producer", "claim worker"}


def test_a_seed_draws_the_same_plan_always():
    assert draw_claims(7, 10_000) == draw_claims(7, 10_000)
    assert draw_claims(7, 10_000) != draw_claims(8, 10_000)


def test_plans_have_clients_of_claims_and_locks_only():
    for seed in range(20):
        assert {client.kind for client in draw_claims(seed, 2_000).clients} == CLIENTS


def test_plans_cover_all_weather_that_matters_to_voters():
    """Partitions, pauses, clocks at the bound, restarts with and without memory (spec LK, simulator rule)."""
    plans = [draw_claims(seed, 2_000) for seed in range(300)]
    assert {kind for plan in plans for kind in plan.weather} == set(KINDS)
    assert {"halves", "pauses", "drift", "kills", "votes", "lost"} <= set(KINDS) <= set(WEATHER)
    assert min(plan.nodes for plan in plans) == 3


def test_weather_may_be_asked_for():
    assert draw_claims(3, 2_000, weather="votes+drift").weather == ("votes", "drift")


def test_such_a_plan_is_played():
    result = simulate(draw_claims(1, 2_000))
    assert result.failure is None
    assert result.figures["commands"] > 0
