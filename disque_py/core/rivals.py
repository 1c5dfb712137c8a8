"""Rivals: for one queue, the best jobs that other nodes have announced, and the one that we have announced to them.

ordering.py has the rules. A queue gets this object with the first announcement, so most queues have none.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import Node

# A job's place in the order of its queue: priority, creation time.
Place = tuple[int, int]

NOWHERE: Final[Place] = (-(1 << 63), 0)


class Standing:
    """A standing pull, as either end knows it (pulls.py).

    left       the number of jobs that are still to come
    half       the asker renews the pull when this many are left
    asked_ms   when the question was sent or received; monotonic
    is_picky   whether at-most-once jobs are not wanted
    """

    __slots__ = ("asked_ms", "half", "is_picky", "left")

    def __init__(self, count: int, now_ms: int, *, is_picky: bool = False) -> None:
        self.left = count
        self.half = count // 2
        self.asked_ms = now_ms
        self.is_picky = is_picky


class Rivals:
    """The order of one queue across nodes.

    best, best_node     the best known job of another node, and that node; None: no job is known
    known               node -> its best job, as it announced it
    told                node -> our best job, as we announced it to that node
    worse, highest      how many jobs were delivered here while another node had a better one; the worst of them
    asked, asked_ms     the node that was asked for better jobs, until it has answered; when it was asked
    coming              the number of jobs of its answer that are not here yet
    is_answered, answer   whether it has answered, and its best job after that
    batch               how many jobs to ask for
    limit               the question is for jobs before this place
    held_ms             when jobs began to wait for better ones; 0: they don't wait
    doubted             node whose announcements are ignored at present -> the last job that it announced
    quiet_until_ms      nothing is announced before this
    is_timed            whether a check for a job to announce is scheduled
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
        """Note a node's best job, or None if it has none that matters."""
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
