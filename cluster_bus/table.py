"""The table of nodes: who there is, one object per id, and the groups others keep asking for.

`nodes` is what CLUSTER NODES shows: ourselves, the nodes we know, and handshakes under a random
placeholder id. A node that left the table (FORGET, RESET) keeps its object, for jobs may name it; a
node somebody named but we never met has one too. Both come back into the table as the same object.

`usable` and `linked` are tuples sorted by id, the same object as long as the group is the same,
so they may serve as keys and as receivers of a run (outgoing.py). `epoch` grows whenever either
of them, or `size`, changes.

membership.py decides; this file only keeps the books.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import FAIL, FORGOTTEN, HANDSHAKE, LEAVING, MYSELF, PFAIL, UNKNOWN, Node

# None of these may be asked for copies (disque/cluster.md, section 1: reachable nodes). Whether a link
# is up does not matter: it will be again, or the node becomes suspected.
UNUSABLE: Final = MYSELF | HANDSHAKE | LEAVING | PFAIL | FAIL


# Ids that peers may make us remember, whoever they belong to.
NODES_MAX: Final = 20_000


class NodeTable:
    """The table; see the module.

    me       ourselves, flagged MYSELF
    nodes    id -> Node: ourselves first, then in order of arrival, handshakes included
    size     how many of them are not in handshake; what quorums are counted from
    usable   neither me nor in handshake, leaving, suspected or failed
    linked   our outgoing link to them is up
    epoch    grows with every change of the three above
    """

    def __init__(self, me: Node) -> None:
        me.flags |= MYSELF
        self.me = me
        self.nodes: dict[bytes, Node] = {me.id: me}
        self.size = 1
        self.usable: tuple[Node, ...] = ()
        self.linked: tuple[Node, ...] = ()
        self.epoch = 0
        self._interned: dict[bytes, Node] = {me.id: me}

    def intern(self, node_id: bytes) -> Node:
        """The one Node for this id (20 bytes): in the table, forgotten, or made now and flagged UNKNOWN."""
        node = self._interned.get(node_id)
        if node is None:
            if len(self._interned) >= NODES_MAX:
                raise ValueError("more nodes were named than any cluster has")
            node = self._interned[node_id] = Node(node_id, flags=UNKNOWN)
        return node

    def find(self, node_id: bytes) -> Node | None:
        """The node of the table with this id, other than ourselves and handshakes; None."""
        node = self.nodes.get(node_id)
        return None if node is None or node.flags & (MYSELF | HANDSHAKE) else node

    def find_handshake(self, host: str, port: int) -> Node | None:
        """The handshake with this address, None if there is none."""
        for node in self.nodes.values():
            if node.flags & HANDSHAKE and node.host == host and node.port == port:
                return node
        return None

    def refresh(self) -> None:
        """Recompute the groups after flags, links or members changed."""
        usable, linked, size = [], [], 0
        for node in self.nodes.values():
            flags = node.flags
            if flags & HANDSHAKE:
                continue
            size += 1
            if not flags & UNUSABLE:
                usable.append(node)
            if node.is_linked:
                linked.append(node)
        usable.sort(key=_node_id)
        linked.sort(key=_node_id)
        has_changed = size != self.size
        self.size = size
        if (new_usable := tuple(usable)) != self.usable:
            self.usable = new_usable
            has_changed = True
        if (new_linked := tuple(linked)) != self.linked:
            self.linked = new_linked
            has_changed = True
        if has_changed:
            self.epoch += 1

    def _enter(self, node: Node) -> None:
        """Put a node, or a handshake, into the table."""
        assert node.id not in self.nodes
        node.flags &= ~(UNKNOWN | FORGOTTEN)
        self.nodes[node.id] = node

    def _remove(self, node: Node) -> None:
        """Take it out; unless it was a mere handshake, its object stays, flagged FORGOTTEN."""
        del self.nodes[node.id]
        if not node.flags & HANDSHAKE:
            node.flags = FORGOTTEN

    def _rename_me(self, node_id: bytes) -> None:
        """Give ourselves another id, in place; only when nobody else is in the table."""
        assert len(self.nodes) == 1
        del self._interned[self.me.id]
        self.me.id = node_id
        self.me.name = node_id.hex().encode()
        self.nodes = {node_id: self.me}
        self._interned[node_id] = self.me


def _node_id(node: Node) -> bytes:
    return node.id
