"""Families: what the nodes said, as prometheus_client takes and writes it.

Samples come from the table alone. A figure that a node does not have is left out. Values are those of the scrape; no
value is kept between scrapes. This module needs the extra `[metrics]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from disque_py.client.results import ClusterNode
from disque_py.gateway.metrics.look import Look
from disque_py.gateway.metrics.table import (
    ANSWERED,
    CONSUMERS,
    INFO_METRICS,
    JOBS_IN,
    JOBS_OUT,
    LINK_UP,
    METRICS,
    NODE_INFO,
    OLDEST_AGE,
    OTHER,
    PAUSED,
    QUEUE_JOBS,
    QUEUES_OTHER,
    SCRAPE_SECONDS,
    UP,
    Metric,
    info_samples,
    label_value,
)
from disque_py.gateway.metrics.watching import Seen

# `pause` of QSTAT → directions. Queues that are not paused have no sample: they are nearly all.
PAUSED_DIRECTIONS: Final = {"in": ("in",), "out": ("out",), "all": ("in", "out")}


class SeenCollector:
    """A collector of the client library: yields the metrics of one scrape."""

    def __init__(self, nodes: Iterable[Seen]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every metric of the table that has a sample, in the table's order."""
        families = {metric.name: _family(metric) for metric in METRICS}
        for seen in self._nodes:
            name = str(seen.address)
            families[UP.name].add_metric((name,), float(seen.look is not None))
            if seen.look is not None:
                _add_look(families, name, seen.look)
        yield from (family for family in families.values() if family.samples)


def text_of(nodes: Iterable[Seen], accept: str) -> tuple[bytes, str]:
    """Return the text of a scrape and its content type: OpenMetrics where `accept`, the header, asks for it."""
    encode, content_type = choose_encoder(accept)
    return encode(SeenCollector(nodes)), content_type


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def _add_look(families: dict[str, Any], node: str, look: Look) -> None:
    families[SCRAPE_SECONDS.name].add_metric((node,), look.seconds)
    for command, is_answered in look.answered.items():
        families[ANSWERED.name].add_metric((node, command), float(is_answered))
    if look.hello is not None:
        words = (str(look.info.get("disque_version", "")), str(look.info.get("build", "")))
        families[NODE_INFO.name].add_metric((node, look.hello.id, *words), 1.0)
    for peer, is_linked in _peers(look.table):
        families[LINK_UP.name].add_metric((node, peer), float(is_linked))
    for metric in INFO_METRICS:
        family = families[metric.name]
        for labels, value in info_samples(metric, look.info):
            family.add_metric((node, *labels), value)
    _add_queues(families, node, look)


def _peers(table: Iterable[ClusterNode]) -> Iterator[tuple[str, bool]]:
    """Yield address and link of each peer, once. A node in handshake or without an address is left out."""
    told = set()
    for row in table:
        peer = f"[{row.host}]:{row.port}" if ":" in row.host else f"{row.host}:{row.port}"
        if row.host and not row.flags & {"myself", "handshake", "noaddr"} and peer not in told:
            told.add(peer)
            yield peer, row.linked


def _add_queues(families: dict[str, Any], node: str, look: Look) -> None:
    jobs = families[QUEUE_JOBS.name]
    for stat in look.stats:
        labels = (node, label_value(stat.name))
        jobs.add_metric((*labels, "pending"), stat.len)
        jobs.add_metric((*labels, "running"), stat.running)
        jobs.add_metric((*labels, "invisible"), stat.invisible)
        jobs.add_metric((*labels, "errored"), stat.errored)
        if stat.oldest_ms is not None:
            families[OLDEST_AGE.name].add_metric(labels, stat.oldest_ms / 1000)
        families[JOBS_IN.name].add_metric(labels, stat.jobs_in)
        families[JOBS_OUT.name].add_metric(labels, stat.jobs_out)
        families[CONSUMERS.name].add_metric(labels, stat.blocked)
        for direction in PAUSED_DIRECTIONS.get(stat.pause, ()):
            families[PAUSED.name].add_metric((*labels, direction), 1.0)
    queues, queued = look.info.get("registered_queues"), look.info.get("queued_jobs")
    if isinstance(queues, int) and isinstance(queued, int):
        # INFO came before QSTAT, so a queue of this moment could make the difference negative.
        families[QUEUES_OTHER.name].add_metric((node,), max(0, queues - len(look.stats)))
        if queues > len(look.stats):
            shown = sum(stat.len for stat in look.stats)
            jobs.add_metric((node, OTHER, "pending"), max(0, queued - shown))
