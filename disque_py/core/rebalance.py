"""The plan of a rebalance: how many queued jobs each node gives, and to which node.

The leader of the task (tasks.py) learns the length of the queue on each node that takes part, and whether that node
takes jobs. Then it plans once. In the plan, all nodes have equal parts. There are two exceptions. A node that takes no
jobs and has fewer than the equal part keeps what it has. If the jobs can't be divided evenly, the nodes that have the
most jobs get one more, so that the fewest jobs move. Spec ZN7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disque_py.core import zones

if TYPE_CHECKING:
    from cluster_bus.node import Node


class Balance:
    """The jobs that are still to be moved.

    surplus   node -> number of jobs that it still gives
    deficit   node -> number of jobs that it still gets
    """

    __slots__ = ("deficit", "surplus")

    def __init__(self, lengths: dict[Node, int], takers: list[Node]) -> None:
        parts = parts_of(lengths, takers)
        self.surplus = {node: lengths[node] - parts[node] for node in lengths if lengths[node] > parts[node]}
        self.deficit = {node: parts[node] - lengths[node] for node in lengths if lengths[node] < parts[node]}

    def receiver_of(self, giver: Node) -> Node | None:
        """Return the node that gets the giver's next jobs: the nearest node with a deficit. None if there is none."""
        found: Node | None = None
        for node, missing in self.deficit.items():
            if missing and (found is None or zones.distance(giver, node) < zones.distance(giver, found)):
                found = node
        return found

    def grant(self, giver: Node, receiver: Node, most: int) -> int:
        """Take up to `most` jobs out of the plan. Return their number."""
        count = min(most, self.surplus[giver], self.deficit[receiver])
        self.surplus[giver] -= count
        self.deficit[receiver] -= count
        return count


def parts_of(lengths: dict[Node, int], takers: list[Node]) -> dict[Node, int]:
    """Return the number of jobs that each node has at the end.

    lengths   node -> number of jobs that it has now
    takers    nodes that take jobs
    """
    open_nodes = list(lengths)
    parts: dict[Node, int] = {}
    while open_nodes:
        total = sum([lengths[node] for node in open_nodes])
        part, left = divmod(total, len(open_nodes))
        fixed = [node for node in open_nodes if node not in takers and lengths[node] <= part]
        if not fixed:
            most_first = sorted(open_nodes, key=lambda node: (-lengths[node], node.id))
            for place, node in enumerate(most_first):
                parts[node] = part + (place < left)
            break
        for node in fixed:
            parts[node] = lengths[node]
        open_nodes = [node for node in open_nodes if node not in fixed]
    return parts
