"""Figures: sums per kind of weather, and the limits for shares."""

from __future__ import annotations

import pytest

from disque_py.simulator.figures import ACKED_MIN, COLUMNS, FAIR, MIXED, SEEDS_MIN, Figures


def run(acked: int, after_ack: int) -> dict[str, int]:
    return {
        "seeds": 1, "jobs": acked, "acked": acked, "after_ack": after_ack, "duplicates": 1, "messages": 10 * acked,
        "bytes": 1000 * acked, "mesh_ms": 200, "drain_ms": 300, "commands": 5, "timers": 5,
    }  # fmt: skip


def test_plans_with_one_kind_of_weather_are_added_up_by_it():
    """Plans with several kinds mean nothing for one kind."""
    figures = Figures()
    for weather in (("halves",), ("halves",), (), ("halves", "kills")):
        figures.add(weather, run(100, 1))
    assert {kind: sums["seeds"] for kind, sums in figures.by_weather.items()} == {"halves": 2, FAIR: 1, MIXED: 1}
    assert figures.total["acked"] == 400
    assert figures.events() == 4 * 1_010
    row = next(row for row in figures.rows() if row[0] == "halves")
    assert len(row) == len(COLUMNS)
    assert row[4:9] == ("1.00%", "4.1%", "1.00%", "10.0", "1000")


def test_too_many_deliveries_after_an_ack_are_an_excess():
    """The limit is the original's share. A few jobs or a few plans are not enough."""
    figures = Figures()
    figures.add(("kills",), run(ACKED_MIN // 2, ACKED_MIN // 20))
    assert figures.excesses() == []
    for _ in range(SEEDS_MIN - 2):
        figures.add(("kills",), run(ACKED_MIN, 0))
    assert figures.excesses() == []
    figures.add(("kills",), run(ACKED_MIN, ACKED_MIN // 10))
    assert len(figures.excesses()) == 2
    figures.add(("kills",), run(100 * ACKED_MIN, 0))
    assert figures.excesses() == []


@pytest.mark.parametrize("weather", [("restarts",), ("power",), ("forgetting",), ("kills", "clocks")])
def test_kinds_of_weather_without_figures_of_the_original_have_separate_limits(weather):
    """Mixtures count as one kind."""
    figures = Figures()
    for _ in range(SEEDS_MIN):
        figures.add(weather, run(1_000, 3))
    assert figures.excesses() == []
    figures.add(weather, run(1_000, 400))
    [excess] = figures.excesses()
    assert excess.startswith(weather[0] if len(weather) == 1 else MIXED)


def test_a_mixture_allows_what_the_worst_of_its_kinds_allows():
    """41 of 1,000 for halves, where a mixture without it has 20."""
    figures = Figures()
    for _ in range(SEEDS_MIN):
        figures.add(("clocks", "halves"), run(1_000, 40))
    assert figures.excesses() == []
    assert figures.limit_of(MIXED) == 41
    figures.add(("clocks", "kills"), run(10_000, 400))
    assert len(figures.excesses()) == 1


def test_kinds_of_weather_are_judged_together_where_there_are_few_seeds_of_each():
    """Each counts with its own limit: 3 of 1,000 for kills, 41 for halves."""
    figures = Figures()
    for _ in range(SEEDS_MIN // 2):
        figures.add(("kills",), run(1_000, 0))
        figures.add(("halves",), run(1_000, 43))
        figures.add(("clocks",), run(1_000, 1_000))
    assert figures.together() == (SEEDS_MIN, 10_000, 215, 220.0)
    assert figures.excesses() == []
    figures.add(("kills",), run(1_000, 8))
    assert figures.together().limit == 223
    [excess] = figures.excesses()
    assert excess.startswith("too many acknowledged jobs came again: 223 of 11,000 in the 11 seeds")
