"""disque_py/cli/bench/figures.py: statistics that can be checked by hand."""

from __future__ import annotations

import pytest

from disque_py.cli.bench.figures import Sample, lines_of, paired_ratios, percentile, spread, summary


def sample(contestant, run, rate, *, cell="p=1", generator=0.1):
    return Sample("ping", cell, contestant, run, {"rate": rate, "generator": generator})


@pytest.mark.parametrize(("percent", "value"), [(50, 500), (99, 990), (99.9, 999), (100, 1000), (0.01, 1)])
def test_a_percentile_is_the_nearest_rank(percent, value):
    """The values are 1 to 1000. 99.9 % is exactly the 999th value, in spite of floating-point errors."""
    assert percentile(range(1, 1001), percent) == value


def test_a_percentile_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


def test_the_spread_does_not_depend_on_the_order():
    assert spread([3.0, -1.0, 2.0]) == {"p50": 2.0, "p99": 3.0, "p99.9": 3.0, "min": -1.0, "max": 3.0}


def test_a_summary_is_the_median_with_the_range():
    found = summary([5.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.count) == (2.0, 1.0, 5.0, 3)


def test_ratios_are_taken_within_a_run():
    """Run 1 has no partner, and the partner of run 3 measured nothing. Neither counts."""
    assert paired_ratios({0: 10.0, 1: 7.0, 2: 30.0, 3: 1.0}, {0: 5.0, 2: 10.0, 3: 0.0}) == [2.0, 3.0]


def test_a_noisy_run_that_hits_both_leaves_the_ratio_alone():
    """The second run was ten times slower for both contestants. The median of the ratios does not change."""
    samples = [sample("a", 0, 100), sample("b", 0, 200), sample("a", 1, 10), sample("b", 1, 20)]
    ratio = next(line.ratio for line in lines_of(samples, {"ping": "rate"}, "a") if line.contestant == "b")
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def test_cells_are_not_mixed():
    found = lines_of([sample("a", 0, 1), sample("a", 0, 3, cell="p=16")], {"ping": "rate"}, "a")
    assert [(line.cell, line.metrics["rate"].median) for line in found] == [("p=1", 1), ("p=16", 3)]


def test_without_the_reference_there_is_no_ratio():
    assert [line.ratio for line in lines_of([sample("b", 0, 1)], {"ping": "rate"}, "a")] == [None]


@pytest.mark.parametrize(("share", "is_bound"), [(0.9, False), (0.91, True)])
def test_a_generator_that_needs_nearly_a_core_is_the_limit(share, is_bound):
    line = lines_of([sample("a", 0, 1, generator=0.2), sample("a", 1, 1, generator=share)], {"ping": "rate"}, "a")[0]
    assert line.is_generator_bound is is_bound
