"""Sets of nodes, interned.

A cluster has few different sets of holders and millions of jobs, so equal sets are one object. Values derived from a
set (its bytes on the wire, the others in a fixed order) are computed once. No code iterates over a set directly,
because the order would differ between two runs of one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from cluster_bus.node import FORGOTTEN, ID_BYTES, Node

NodeSet = frozenset[Node]
EMPTY: Final[NodeSet] = frozenset()

# Other nodes choose the sets that this node sees. Beyond this many sets, all are forgotten.
SETS_MAX: Final = 50_000
# They are also forgotten beyond this many members of all sets. A member takes some hundred bytes, with derived values.
MEMBERS_MAX: Final = 500_000
# A set of a thousand holders. No real REPLICATE is larger.
SET_BYTES_MAX: Final = 20_000


K = TypeVar("K")
V = TypeVar("V")


class _Memory(dict[K, V]):
    """A dict that computes missing values with `compute`. Finding a known value needs no Python call."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[K], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: K) -> V:
        value = self._compute(key)
        if len(self) > SETS_MAX:
            self.clear()
        self[key] = value
        return value


class NodeSets:
    """The sets of nodes that this broker has met.

    mine            the set of this node alone
    others(nodes)   all nodes but this one, in the order of their ids; equal sets give the same tuple object
                    (see cluster_bus/outgoing.py)
    only(node)      a tuple of this one node, the same object each time
    pack(nodes)     the sorted ids, joined, as NODES on the bus. Forgotten nodes are left out
    unpack(data)    the set of such bytes; ValueError if they are not a whole number of ids
    """

    def __init__(self, me: Node, intern: Callable[[bytes], Node]) -> None:
        self._me = me
        self._intern = intern
        self.mine: NodeSet = frozenset((me,))
        self._known: dict[NodeSet, NodeSet] = {}
        self._added: dict[tuple[NodeSet, Node], NodeSet] = {}
        self._united: dict[tuple[NodeSet, NodeSet], NodeSet] = {}
        self._others = _Memory(self._list_others)
        self._packed = _Memory(_pack)
        self._unpacked = _Memory(self._unpack)
        self.others: Callable[[NodeSet], tuple[Node, ...]] = self._others.__getitem__
        self.pack: Callable[[NodeSet], bytes] = self._packed.__getitem__
        self.unpack: Callable[[bytes], NodeSet] = self._unpacked.__getitem__
        self.only: Callable[[Node], tuple[Node, ...]] = _Memory(_alone).__getitem__
        self._member_count = 0
        # The last set that a node was added to: most jobs of a message have the same holders.
        self._last_set = self._last_sum = self.mine
        self._last_node = me
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all sets, because our own id has changed or there are too many."""
        for memory in (self._known, self._added, self._united, self._others, self._packed, self._unpacked):
            memory.clear()
        self._last_set = self._last_sum = self.mine
        self._last_node = self._me
        self._member_count = 0
        self._known[EMPTY] = EMPTY
        self._known[self.mine] = self.mine

    def forget_packed(self) -> None:
        """Compute packed sets again, because a forgotten node has returned and must be in them."""
        self._packed.clear()

    def of(self, nodes: Iterable[Node]) -> NodeSet:
        """Return the one object that represents this set."""
        found = frozenset(nodes)
        known = self._known.get(found)
        if known is None:
            if len(self._known) > SETS_MAX or self._member_count > MEMBERS_MAX:
                self.forget_all()
            self._member_count += len(found)
            known = self._known.setdefault(found, found)
        return known

    def add(self, nodes: NodeSet, node: Node) -> NodeSet:
        """Return `nodes` with `node`."""
        if nodes is self._last_set and node is self._last_node:
            return self._last_sum
        result = self._added.get((nodes, node))
        if result is None:
            if len(self._added) > SETS_MAX:
                self._added.clear()
            if node not in nodes:
                # A newcomer may mention a node that was in no job's holder set before.
                result = self.of((*nodes, self._intern(node.id)))
            else:
                result = nodes
            assert len(result) >= len(nodes)
            assert node in result
            self._added[(nodes, node)] = result
        self._last_set, self._last_node, self._last_sum = nodes, node, result
        return result

    def union(self, left: NodeSet, right: NodeSet) -> NodeSet:
        """Return the union of both sets."""
        if left is right or not right:
            return left
        result = self._united.get((left, right))
        if result is None:
            if len(self._united) > SETS_MAX:
                self._united.clear()
            result = self._united[(left, right)] = self.of(left | right)
            assert result >= left
            assert result >= right
        return result

    def _list_others(self, nodes: NodeSet) -> tuple[Node, ...]:
        others = sorted((node for node in nodes if node is not self._me), key=_node_id)
        return self.only(others[0]) if len(others) == 1 else tuple(others)

    def _unpack(self, data: bytes) -> NodeSet:
        if self._member_count > MEMBERS_MAX:
            self.forget_all()
        if type(data) is not bytes or len(data) % ID_BYTES or len(data) > SET_BYTES_MAX:
            raise ValueError("a set of nodes is not a multiple of 20 bytes")
        nodes = [self._intern(data[at : at + ID_BYTES]) for at in range(0, len(data), ID_BYTES)]
        self._member_count += len(nodes)  # The same set in another order is another key.
        return self.of(nodes)

    def names(self, nodes: Iterable[Node]) -> list[bytes]:
        """Return the sorted ids as clients see them."""
        return sorted(node.name for node in nodes)


def _alone(node: Node) -> tuple[Node, ...]:
    return (node,)


def _pack(nodes: NodeSet) -> bytes:
    return b"".join(sorted(node.id for node in nodes if not node.flags & FORGOTTEN))


def _node_id(node: Node) -> bytes:
    return node.id
