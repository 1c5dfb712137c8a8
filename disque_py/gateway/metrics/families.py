"""Families: the lines of a scrape, from the looks at the nodes.

Samples come only from the table. A figure that a node does not have is left out. Values are those of the scrape; none
is kept between scrapes. This module needs the extra `[metrics]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from disque_py.client.results import ClusterNode, QueueStat
from disque_py.gateway.metrics.exposition import Page, escaped, line
from disque_py.gateway.metrics.look import Look
from disque_py.gateway.metrics.selection import Selection
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
)
from disque_py.gateway.metrics.watching import Seen

# `pause` of QSTAT → directions. Queues that are not paused, which are nearly all, have no sample.
PAUSED_DIRECTIONS: Final = {"in": ("in",), "out": ("out",), "all": ("in", "out")}

Lines = dict[str, list[str]]


def text_of(nodes: Iterable[Seen], accept: str) -> tuple[bytes, str]:
    """Return the text of a scrape and its content type: OpenMetrics if the header `accept` asks for it."""
    page = Page(accept)
    add_nodes(page, nodes)
    return page.text(), page.content_type


def add_nodes(page: Page, nodes: Iterable[Seen], selection: Selection | None = None) -> None:
    """Add every metric of the table that has a sample, in the table's order.

    selection   chooses the queues with labels if the looks have other queues, too; None, the default: all have labels
    """
    lines: Lines = {metric.name: [] for metric in METRICS}
    for seen in nodes:
        name = str(seen.address)
        _add(lines, UP, (name,), float(seen.look is not None))
        if seen.look is not None:
            _add_look(lines, name, seen.look, selection)
    for metric in METRICS:
        page.add(metric, lines[metric.name])


def _add(lines: Lines, metric: Metric, labels: tuple[str, ...], value: float) -> None:
    lines[metric.name].append(line(metric, labels, value))


def _add_look(lines: Lines, node: str, look: Look, selection: Selection | None) -> None:
    _add(lines, SCRAPE_SECONDS, (node,), look.seconds)
    for command, is_answered in look.answered.items():
        _add(lines, ANSWERED, (node, command), float(is_answered))
    if look.hello is not None:
        words = (str(look.info.get("disque_version", "")), str(look.info.get("build", "")))
        _add(lines, NODE_INFO, (node, look.hello.id, *words), 1.0)
    for peer, is_linked in _peers(look.table):
        _add(lines, LINK_UP, (node, peer), float(is_linked))
    for metric in INFO_METRICS:
        for labels, value in info_samples(metric, look.info):
            _add(lines, metric, (node, *labels), value)
    shown, others = look.stats, []
    if selection is not None:
        chosen = frozenset(selection.choose(node, [stat.name for stat in look.stats]))
        shown = [stat for stat in look.stats if stat.name in chosen]
        others = [stat for stat in look.stats if stat.name not in chosen]
    _add_queues(lines, node, shown)
    _add_other(lines, node, look.info, shown, others)


def _peers(table: Iterable[ClusterNode]) -> Iterator[tuple[str, bool]]:
    """Yield address and link of each peer, once. A node in handshake or without an address is left out."""
    told = set()
    for row in table:
        peer = f"[{row.host}]:{row.port}" if ":" in row.host else f"{row.host}:{row.port}"
        if row.host and not row.flags & {"myself", "handshake", "noaddr"} and peer not in told:
            told.add(peer)
            yield peer, row.linked


def _add_queues(lines: Lines, node: str, stats: list[QueueStat]) -> None:
    """Add the lines of all queues. In a large cluster these are nearly all lines, so this code is fast."""
    start = f'{{node="{escaped(node)}",queue="'
    jobs, ages = lines[QUEUE_JOBS.name].append, lines[OLDEST_AGE.name].append
    came, went, waiting = lines[JOBS_IN.name].append, lines[JOBS_OUT.name].append, lines[CONSUMERS.name].append
    for stat in stats:
        labels = f'{start}{escaped(stat.name)}"'
        jobs(
            f'{QUEUE_JOBS.name}{labels},state="pending"}} {stat.len}\n'
            f'{QUEUE_JOBS.name}{labels},state="running"}} {stat.running}\n'
            f'{QUEUE_JOBS.name}{labels},state="invisible"}} {stat.invisible}\n'
            f'{QUEUE_JOBS.name}{labels},state="errored"}} {stat.errored}\n'
        )
        if stat.oldest_ms is not None:
            ages(f"{OLDEST_AGE.name}{labels}}} {stat.oldest_ms / 1000}\n")
        came(f"{JOBS_IN.name}{labels}}} {stat.jobs_in}\n")
        went(f"{JOBS_OUT.name}{labels}}} {stat.jobs_out}\n")
        waiting(f"{CONSUMERS.name}{labels}}} {stat.blocked}\n")
        for direction in PAUSED_DIRECTIONS.get(stat.pause, ()):
            _add(lines, PAUSED, (node, stat.name, direction), 1)


def _add_other(
    lines: Lines, node: str, info: dict[str, str | int | float], shown: list[QueueStat], others: list[QueueStat]
) -> None:
    """Add the sums of the queues without labels. Pending jobs of queues that no look has are taken from INFO."""
    if others:
        _add(lines, QUEUE_JOBS, (node, OTHER, "running"), sum(stat.running for stat in others))
        _add(lines, QUEUE_JOBS, (node, OTHER, "invisible"), sum(stat.invisible for stat in others))
        _add(lines, QUEUE_JOBS, (node, OTHER, "errored"), sum(stat.errored for stat in others))
    queues, queued = info.get("registered_queues"), info.get("queued_jobs")
    if isinstance(queues, int) and isinstance(queued, int):
        # INFO came before QSTAT, so a queue that was created in between could make the difference negative.
        _add(lines, QUEUES_OTHER, (node,), max(0, queues - len(shown)))
        if queues > len(shown):
            _add(lines, QUEUE_JOBS, (node, OTHER, "pending"), max(0, queued - sum(stat.len for stat in shown)))
