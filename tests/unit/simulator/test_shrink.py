"""Shrinking: smaller and smaller plans, as long as the same rule breaks."""

from __future__ import annotations

from disque_py.simulator.plan import Plan, draw
from disque_py.simulator.shrink import Shrinking
from disque_py.simulator.simulation import Failure, Result


def result(plan: Plan, rule: str | None) -> Result:
    failure = None if rule is None else Failure(rule, "it broke", 4_000)
    return Result(plan, "", failure, {})


def test_the_parts_that_the_failure_needs_are_found():
    """In this test they are faults 3 and 7 together, client 1, three nodes, and one second of weather."""
    plan = draw(31, 60_000, weather="kills")
    tried = []

    def play(tried_plan: Plan) -> Result:
        tried.append(tried_plan)
        numbers = {fault.number for fault in tried_plan.faults}
        clients = {client.number for client in tried_plan.clients}
        breaks = {3, 7} <= numbers and 1 in clients and tried_plan.nodes >= 3
        return result(tried_plan, "no job is lost" if breaks else None)

    assert len(plan.faults) > 10
    best = Shrinking(result(plan, "no job is lost"), play=play).run().plan
    assert [fault.number for fault in best.faults] == [3, 7]
    assert [client.number for client in best.clients] == [1]
    assert best.nodes == 3
    assert len(tried) <= 120


def test_another_failure_on_the_way_is_not_the_one_looked_for():
    """Otherwise the plan would shrink to an unrelated failure."""
    plan = draw(31, 60_000, weather="kills")
    best = Shrinking(result(plan, "no job is lost"), play=lambda smaller: result(smaller, "at most once")).run()
    assert best.plan == plan


def test_the_number_of_runs_is_bounded():
    """A run may take seconds."""
    plan, runs = draw(31, 60_000, weather="kills"), []

    def play(smaller: Plan) -> Result:
        runs.append(smaller)
        return result(smaller, "no job is lost")

    Shrinking(result(plan, "no job is lost"), 5, play).run()
    assert len(runs) == 5
