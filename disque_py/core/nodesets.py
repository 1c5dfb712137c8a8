"""Sets of nodes, interned.

A cluster has few different sets of holders and millions of jobs, so equal sets are one object,
and what is derived from a set (its bytes on the wire, the others in a fixed order) is computed once.
Nothing iterates over a set directly: the order would differ between two runs of one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cluster_bus.node import FORGOTTEN, ID_BYTES, Node

NodeSet = frozenset[Node]
EMPTY: Final[NodeSet] = frozenset()

# Peers choose which sets we see; past this many the memory of them starts afresh.
SETS_MAX: Final = 50_000
# A set of a thousand holders; REPLICATE goes further only on paper.
SET_BYTES_MAX: Final = 20_000


class NodeSets:
    """The sets this broker has met; `me` is in `mine`, `intern` turns an id into its Node."""

    def __init__(self, me: Node, intern: Callable[[bytes], Node]) -> None:
        self._me = me
        self._intern = intern
        self.mine: NodeSet = frozenset((me,))
        self._known: dict[NodeSet, NodeSet] = {}
        self._added: dict[tuple[NodeSet, Node], NodeSet] = {}
        self._united: dict[tuple[NodeSet, NodeSet], NodeSet] = {}
        self._others: dict[NodeSet, tuple[Node, ...]] = {}
        self._packed: dict[NodeSet, bytes] = {}
        self._unpacked: dict[bytes, NodeSet] = {}
        self._single: dict[Node, tuple[Node, ...]] = {}
        self.forget_all()

    def forget_all(self) -> None:
        """Start afresh: our own id changed, or there are too many."""
        for memory in (self._known, self._added, self._united, self._others, self._packed, self._unpacked):
            memory.clear()
        self._known[EMPTY] = EMPTY
        self._known[self.mine] = self.mine

    def forget_packed(self) -> None:
        """A node came back that had been forgotten: sets have to name it again."""
        self._packed.clear()

    def of(self, nodes: Iterable[Node]) -> NodeSet:
        """The one object for this set."""
        found = frozenset(nodes)
        known = self._known.get(found)
        if known is None:
            if len(self._known) > SETS_MAX:
                self.forget_all()
            known = self._known.setdefault(found, found)
        return known

    def add(self, nodes: NodeSet, node: Node) -> NodeSet:
        """`nodes` and `node`."""
        result = self._added.get((nodes, node))
        if result is None:
            if len(self._added) > SETS_MAX:
                self._added.clear()
            result = self._added[(nodes, node)] = nodes if node in nodes else self.of((*nodes, node))
        return result

    def union(self, left: NodeSet, right: NodeSet) -> NodeSet:
        """Everything in one or the other."""
        if left is right or not right:
            return left
        result = self._united.get((left, right))
        if result is None:
            if len(self._united) > SETS_MAX:
                self._united.clear()
            result = self._united[(left, right)] = self.of(left | right)
        return result

    def others(self, nodes: NodeSet) -> tuple[Node, ...]:
        """All but us, by id; always the same tuple for the same set (see cluster_bus/outgoing.py)."""
        result = self._others.get(nodes)
        if result is None:
            if len(self._others) > SETS_MAX:
                self._others.clear()
            others = sorted((node for node in nodes if node is not self._me), key=_node_id)
            result = self._single.setdefault(others[0], (others[0],)) if len(others) == 1 else tuple(others)
            self._others[nodes] = result
        return result

    def only(self, node: Node) -> tuple[Node, ...]:
        """The tuple of this one node, the same object each time."""
        single = self._single.get(node)
        if single is None:
            single = self._single[node] = (node,)
        return single

    def pack(self, nodes: NodeSet) -> bytes:
        """The ids, sorted and joined: NODES on the bus. A forgotten node is named to nobody."""
        result = self._packed.get(nodes)
        if result is None:
            if len(self._packed) > SETS_MAX:
                self._packed.clear()
            result = self._packed[nodes] = b"".join(sorted(node.id for node in nodes if not node.flags & FORGOTTEN))
        return result

    def unpack(self, data: bytes) -> NodeSet:
        """NODES from the bus; ValueError if it is not a whole number of ids."""
        result = self._unpacked.get(data)
        if result is None:
            if len(self._unpacked) > SETS_MAX:
                self._unpacked.clear()
            if type(data) is not bytes or len(data) % ID_BYTES or len(data) > SET_BYTES_MAX:
                raise ValueError("a set of nodes is not a multiple of 20 bytes")
            nodes = [self._intern(data[at : at + ID_BYTES]) for at in range(0, len(data), ID_BYTES)]
            result = self._unpacked[data] = self.of(nodes)
        return result

    def names(self, nodes: Iterable[Node]) -> list[bytes]:
        """Ids as clients see them, sorted."""
        return sorted(node.name for node in nodes)


def _node_id(node: Node) -> bytes:
    return node.id
