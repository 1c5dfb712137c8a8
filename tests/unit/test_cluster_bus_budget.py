"""cluster_bus/budget.py: how often a source may do something."""

from __future__ import annotations

from cluster_bus.budget import SOURCES_MAX, Budget


def test_so_many_at_once_then_so_many_a_second():
    budget = Budget(3, 2)
    assert [budget.spend("a", 0) for _ in range(5)] == [True, True, True, False, False]
    assert [budget.spend("a", 1000) for _ in range(3)] == [True, True, False]


def test_sources_have_budgets_of_their_own():
    budget = Budget(1, 1)
    assert budget.spend("a", 0)
    assert budget.spend("b", 0)
    assert not budget.spend("a", 0)


def test_what_is_refused_costs_nothing():
    budget = Budget(1, 1)
    assert budget.spend("a", 0)
    assert not any(budget.spend("a", ms) for ms in range(1, 1000))
    assert budget.spend("a", 1000)


def test_only_so_many_sources_are_remembered_those_with_a_full_budget_first_forgotten():
    budget = Budget(2, 1)
    for number in range(SOURCES_MAX):
        budget.spend(str(number), 0)
    budget.spend("new", 1_000_000)
    assert len(budget._spent) == 1
    for number in range(2 * SOURCES_MAX):
        budget.spend(str(number), 1_000_000)
    assert len(budget._spent) == SOURCES_MAX
