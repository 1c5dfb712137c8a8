"""A look: the figures of one node at one moment.

A look uses only commands that don't wait, or that work in parts of less than a millisecond: INFO, HELLO, CLUSTER NODES,
CLUSTER INFO, QSCAN in pages, and QSTAT … RECENT for the queues with labels, in small pipelines. A look at a thousand
queues costs one walk over the node's jobs (spec Z3). A look never uses the option CLUSTER, because then every node
would work for each of the others.

An answer to INFO shows that the node is up. Any other command may be refused, by an older node or for lack of
permission. Then its figures are missing, and `answered` records that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from disque_py.client import Hello, QueueStat, ReplyError, commands
from disque_py.client.one_node import OneNode
from disque_py.client.request import Request
from disque_py.client.results import ClusterNode

T = TypeVar("T")
# A function that chooses the queues to show from all names of the node.
Choose = Callable[[list[str]], list[str]]

NAMES_PER_PAGE: Final = 1_000
# The most pages of names: 100,000 queues. Other queues are counted, but never shown.
PAGES_MAX: Final = 100
# QSTATs in one pipeline. They take about a millisecond of the node's time.
STATS_PER_PIPELINE: Final = 50


@dataclass(slots=True)
class Look:
    """One node's answers.

    info       fields of INFO
    hello      the answer to HELLO; None if it was refused
    table      lines of CLUSTER NODES
    cluster    fields of CLUSTER INFO
    stats      figures of the queues that are shown
    answered   command → whether the node answered it
    seconds    duration of the look
    """

    info: dict[str, str | int | float] = field(default_factory=dict)
    hello: Hello | None = None
    table: list[ClusterNode] = field(default_factory=list)
    cluster: dict[str, str | int | float] = field(default_factory=dict)
    stats: list[QueueStat] = field(default_factory=list)
    answered: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0


def look_at(node: OneNode, choose: Choose) -> Look:
    """Ask a node. Raises the ReplyError of INFO, ConnectionLostError or ProtocolError."""
    started = time.monotonic()
    look = Look(info=node.run(commands.info()), answered={"INFO": True})
    look.hello = _asked(node, look, "HELLO", commands.hello())
    look.table = _asked(node, look, "CLUSTER NODES", commands.cluster_nodes()) or []
    look.cluster = _cluster_info(node)
    names = _names(node, look)
    shown = choose(names)
    if names:
        look.stats = _stats(node, look, shown)
    look.seconds = time.monotonic() - started
    return look


def _cluster_info(node: OneNode) -> dict[str, str | int | float]:
    """Return the fields of CLUSTER INFO: zone and leaving. No metric needs them, so a refusal is ignored."""
    try:
        return node.run(commands.cluster_info())
    except ReplyError:
        return {}


def _asked(node: OneNode, look: Look, name: str, request: Request[T]) -> T | None:
    """Return the answer to a command; None if the node refuses it."""
    try:
        found = node.run(request)
    except ReplyError:
        look.answered[name] = False
        return None
    look.answered[name] = True
    return found


def _names(node: OneNode, look: Look) -> list[str]:
    names: list[str] = []
    cursor = 0
    for _ in range(PAGES_MAX):
        page = _asked(node, look, "QSCAN", commands.qscan_page(cursor, count=NAMES_PER_PAGE))
        if page is None:
            break
        cursor = page[0]
        names += page[1]
        if cursor == 0:
            break
    return names


def _stats(node: OneNode, look: Look, names: list[str]) -> list[QueueStat]:
    found: list[QueueStat] = []
    look.answered["QSTAT"] = True
    for at in range(0, len(names), STATS_PER_PIPELINE):
        some = names[at : at + STATS_PER_PIPELINE]
        requests: list[Request[Any]] = [commands.qstat(name, recent=True) for name in some]
        answers = node.run_many(requests)
        found += [answer for answer in answers if isinstance(answer, QueueStat)]
        if any(isinstance(answer, ReplyError) for answer in answers):
            look.answered["QSTAT"] = False
            break
    return found
