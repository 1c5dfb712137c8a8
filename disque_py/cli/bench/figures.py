"""Statistics of samples: percentiles, medians with ranges, and ratios of pairs.

A sample is one measurement of one contestant in one run. The contestants of a run are measured one after the other, so
that disturbances of the machine affect all of them. A ratio is computed within each run first, and the summary is over
these ratios. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# If the generator needs more than this part of a core, the generator is the limit.
GENERATOR_LIMIT: Final = 0.9


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: the test, its cell (such as "p=16 c=50"), the contestant, the run, and the values by metric."""

    test: str
    cell: str
    contestant: str
    run: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """The median of a metric over the runs, with the lowest and the highest value."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Line:
    """All figures of one contestant in one cell: summaries by metric, and the ratio to the reference."""

    test: str
    cell: str
    contestant: str
    metrics: Mapping[str, Summary]
    ratio: Summary | None = field(default=None)

    @property
    def is_generator_bound(self) -> bool:
        """Whether the generator needed nearly a whole core, so that the server may be faster than shown."""
        share = self.metrics.get("generator")
        return share is not None and share.high > GENERATOR_LIMIT


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of the ordered values don't exceed. Raises ValueError without any."""
    if not ordered:
        raise ValueError("a percentile needs at least one value")
    # Rounded first: 1000 * 99.9 / 100 is a little more than 999.
    rank = math.ceil(round(len(ordered) * percent / 100, 6))
    return ordered[min(len(ordered), max(1, rank)) - 1]


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return p50, p99, p99.9 and the extremes of unordered values, by the names of metrics."""
    ordered = sorted(values)
    return {
        "p50": percentile(ordered, 50),
        "p99": percentile(ordered, 99),
        "p99.9": percentile(ordered, 99.9),
        "min": ordered[0],
        "max": ordered[-1],
    }


def summary(values: Sequence[float]) -> Summary:
    """Return median and range of at least one value."""
    return Summary(statistics.median(values), min(values), max(values), len(values))


def paired_ratios(values: Mapping[int, float], reference: Mapping[int, float]) -> list[float]:
    """Return value / reference for every run that has both, in the order of the runs."""
    return [values[run] / reference[run] for run in sorted(values) if reference.get(run)]


def lines_of(samples: Sequence[Sample], primary: Mapping[str, str], reference: str) -> list[Line]:
    """Return one line per test, cell and contestant, in the order of their first samples.

    primary     the metric of each test for which ratios are computed
    reference   the contestant to which the ratios refer
    """
    groups: dict[tuple[str, str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.test, sample.cell, sample.contestant), []).append(sample)
    lines = []
    for (test, cell, contestant), group in groups.items():
        names = dict.fromkeys(name for sample in group for name in sample.values)
        metrics = {name: summary([s.values[name] for s in group if name in s.values]) for name in names}
        ratios = paired_ratios(
            by_run(group, primary[test]), by_run(groups.get((test, cell, reference), ()), primary[test])
        )
        lines.append(Line(test, cell, contestant, metrics, summary(ratios) if ratios else None))
    return lines


def by_run(samples: Iterable[Sample], metric: str) -> dict[int, float]:
    """Return the values of a metric by run."""
    return {sample.run: sample.values[metric] for sample in samples if metric in sample.values}
