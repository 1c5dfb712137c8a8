"""The figures of streaming queries for Prometheus, as a collector for prometheus_client.

The listener (progress.py) keeps the figures. The collector reads them at each scrape, so no figure is stored twice.
Unknown figures are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
QUERY: Final = "query"
HELP: Final = {
    "disque_pipeline_rows_total": ("counter", "Rows that the query has read since it was started."),
    "disque_pipeline_batches_total": ("counter", "Batches since the query was started."),
    "disque_pipeline_batch": ("gauge", "Number of the last batch."),
    "disque_pipeline_batch_ms": ("gauge", "Milliseconds that the last batch took."),
    "disque_pipeline_lag_events": ("gauge", "Events in the logs beyond the end of the last batch."),
    "disque_pipeline_lag_seconds": ("gauge", "Age of the newest indexed event; 0 when no event waits."),
    "disque_pipeline_lost_events": ("gauge", "Events that were gone before they were read, and were skipped."),
    "disque_pipeline_lost_logs": (
        "gauge",
        "Logs that were replaced before they were read to their end, or that were cut short.",
    ),
    "disque_pipeline_nodes_away": ("gauge", "Nodes of the cluster that can't be read from."),
    "disque_pipeline_merge_ms": ("gauge", "Milliseconds of the last merge into the table of newest events."),
    "disque_pipeline_jobs": ("gauge", "Jobs that the last batch has changed."),
}


class ProgressCollector:
    """A collector that yields the figures of all queries.

    queries   a query's name → its figures by their Prometheus names
    """

    def __init__(self, queries: Mapping[str, Mapping[str, float]]) -> None:
        self._queries = queries

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield a metric with a sample per query, for each figure that some query has."""
        for name, (kind, text) in HELP.items():
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            metric = family(name, text, labels=(QUERY,))
            for query, figures in sorted(self._queries.items()):
                if name in figures:
                    metric.add_metric((query,), figures[name])
            if metric.samples:
                yield metric


def prometheus_of(queries: Mapping[str, Mapping[str, float]]) -> bytes:
    """Return the figures of all queries in Prometheus's text format. `queries` maps a query's name to its figures."""
    registry = CollectorRegistry()
    registry.register(ProgressCollector(queries))
    return bytes(generate_latest(registry))
