"""Durations of requests: a histogram by interface, operation and code.

prometheus_client's own histogram takes a dozen calls and two locks per request. Here a request costs one look-up and
one search among the buckets, in the event loop's thread. A scrape adds them up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

from disque_py.gateway.metrics.table import REQUEST_SECONDS

BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_BOUNDS: Final = (*map(str, BUCKETS), "+Inf")


class Durations:
    """The durations so far: interface, operation and code -> requests per bucket, and the sum of their seconds."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}

    def observe(self, interface: str, operation: str, code: str, seconds: float) -> None:
        """Count a request."""
        found = self._found.get((interface, operation, code))
        if found is None:
            found = self._found[interface, operation, code] = ([0] * len(_BOUNDS), [0.0])
        found[0][bisect_left(BUCKETS, seconds)] += 1
        found[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram, for a registry of prometheus_client."""
        family = HistogramMetricFamily(REQUEST_SECONDS.name, REQUEST_SECONDS.help, labels=REQUEST_SECONDS.labels)
        for labels, (counts, total) in list(self._found.items()):
            family.add_metric(labels, list(zip(_BOUNDS, accumulate(counts), strict=True)), total[0])
        yield family
