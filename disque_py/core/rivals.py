"""Rivals: for one queue, the best jobs of other nodes as they told us, and our best job as we told them.

ordering.py has the rules. A queue gets this object with the first such word, so most queues have none.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import Node

# A job's place in the order of its queue: priority, creation time.
Place = tuple[int, int]

NOWHERE: Final[Place] = (-(1 << 63), 0)


class Rivals:
    """The order of one queue across nodes.

    best, best_node     the best job of another node as far as known, and that node; None: no job is known
    known               node -> its best job, as it told us
    told                node -> our best job, as we told it
    worse, highest      jobs delivered here since a better one was known elsewhere; the worst of them
    asked, asked_ms     the node that was asked for better jobs, until it has answered; when it was asked
    coming              jobs of its answer that are not here yet
    is_answered, answer   whether it has answered, and its best job after that
    batch               how many jobs to ask for
    limit               only jobs before this place were asked for
    held_ms             when jobs began to wait for better ones; 0: they don't
    doubted             nodes that are not believed for now -> the best job that they told of last
    quiet_until_ms      nodes are told nothing before
    is_timed            a look at what to tell is scheduled
    """

    __slots__ = (
        "answer",
        "asked",
        "asked_ms",
        "batch",
        "best",
        "best_node",
        "coming",
        "doubted",
        "held_ms",
        "highest",
        "is_answered",
        "is_timed",
        "known",
        "limit",
        "quiet_until_ms",
        "told",
        "worse",
    )

    def __init__(self) -> None:
        self.best: Place | None = None
        self.best_node: Node | None = None
        self.known: dict[Node, Place] = {}
        self.told: dict[Node, Place] = {}
        self.worse = 0
        self.highest = NOWHERE
        self.asked: Node | None = None
        self.asked_ms = 0
        self.coming = 0
        self.is_answered = False
        self.answer: Place | None = None
        self.batch = 0
        self.limit = NOWHERE
        self.held_ms = 0
        self.doubted: dict[Node, Place | None] = {}
        self.quiet_until_ms = 0
        self.is_timed = False

    def note(self, node: Node, best: Place | None) -> None:
        """Note a node's best job; None: it has none that matters."""
        if best is None:
            self.known.pop(node, None)
        else:
            self.known[node] = best
        self.best = None
        self.best_node = None
        for other, place in self.known.items():
            if self.best is None or place < self.best:
                self.best = place
                self.best_node = other
