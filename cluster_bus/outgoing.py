"""The outgoing messages of a turn, batched into runs.

`send(nodes, kind, item)` and `send_all` are the only ways to produce a message. Consecutive items of one kind for the
same nodes form one run, which is encoded once however many nodes get it. The order of items towards any one node is the
order of the calls.

`nodes` is a tuple. Callers pass the *same* tuple object for the same group (Broker.others memoizes them), because a run
is continued only on identity, never by comparing contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster_bus.messages import DELJOB, FIRST_JOB_KIND, GOTACK, SETACK, SETTLED, TOOK
from cluster_bus.node import Node

Run = tuple[tuple[Node, ...], int, list[Any]]

# Acks, the ends of their collections, and answers to hand-overs: no client waits for one of these. Under load the
# driver keeps them for a moment, so that those of several turns share a frame (node/turn.py). Spec N11.
PATIENT: Final = frozenset((SETACK, GOTACK, DELJOB, TOOK, SETTLED))


class Outgoing:
    """The runs of the current turn, oldest first, behind those that an earlier turn left; the driver takes them.

    is_urgent                whether these runs must leave at the end of this turn
    watch                    told what is taken
    sent_count, sent_bytes   messages since the start, and the bytes of their frames
    """

    __slots__ = ("_is_shut", "_items", "_kind", "_nodes", "is_urgent", "runs", "sent_bytes", "sent_count", "watch")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.is_urgent = False
        self.sent_count = 0
        self.sent_bytes = 0
        self.watch: Callable[[list[Run]], None] | None = None
        self._is_shut = False
        self._nodes: tuple[Node, ...] | None = None
        self._kind = 0
        self._items: list[Any] = []

    def send(self, nodes: tuple[Node, ...], kind: int, item: Any) -> None:
        """Queue one item for each of `nodes`; those without a link are skipped when encoding."""
        if nodes is self._nodes and kind == self._kind:
            self._items.append(item)
        else:
            self._items = [item]
            self._nodes = nodes
            self._kind = kind
            self.runs.append((nodes, kind, self._items))
            if kind not in PATIENT:
                self.is_urgent = True

    def send_all(self, nodes: tuple[Node, ...], kind: int, items: list[Any]) -> None:
        """Queue several items of one kind for each of `nodes`; the list is not kept."""
        if nodes is self._nodes and kind == self._kind:
            self._items += items
        elif items:
            self._items = list(items)
            self._nodes = nodes
            self._kind = kind
            self.runs.append((nodes, kind, self._items))
            if kind not in PATIENT:
                self.is_urgent = True

    def send_alone(self, nodes: tuple[Node, ...], kind: int, item: Any) -> None:
        """Queue an item as a separate run, because several such items would make too long a frame."""
        self.runs.append((nodes, kind, [item]))
        self._nodes = None
        self.is_urgent = True

    def leave_out(self, node: Node) -> None:
        """Drop job messages for this node: they were meant for a process of it that is gone."""
        self.runs = without(self.runs, node)
        self._nodes = None

    def take(self) -> list[Run]:
        """Return the runs and start afresh."""
        runs = [] if self._is_shut else self.runs
        self.runs = []
        self.is_urgent = False
        self._nodes = None
        if self.watch is not None:
            self.watch(runs)
        return runs

    def shut(self) -> None:
        """Drop the messages of this turn and of all turns to come, because the node ends."""
        self._is_shut = True
        self.take()


def without(runs: list[Run], node: Node) -> list[Run]:
    """Return these runs without job messages for `node`."""
    left = []
    for run in runs:
        if run[1] >= FIRST_JOB_KIND and node in run[0]:
            run = (tuple([other for other in run[0] if other is not node]), run[1], run[2])
        if run[0]:
            left.append(run)
    return left
