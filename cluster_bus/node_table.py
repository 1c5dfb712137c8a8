"""The table of nodes: one object per id, and the groups of nodes that other modules often need.

`nodes` is the content of CLUSTER NODES: ourselves, the nodes we know, and handshakes under a random placeholder id. A
node that left the table (FORGET, RESET) keeps its object, for jobs may name it. A node that others named but we never
met has one too. Both come back into the table as the same object.

`usable`, `linked` and `full` are tuples sorted by id. They are the same object as long as the group is the same. So
they may serve as keys and as receivers of a run (outgoing.py). `epoch` grows with every change of them, of `size` or
`counted`, and when a node announces another place.

`counted` is the number of other nodes that neither leave nor have failed. With a majority in sight, ourselves included,
it counts only those in sight. A node is in sight if it is not suspected and is linked, or without a link for only a
moment. If even those in sight that have room are a majority, it counts only them. A minority counts the missing ones as
well, so that it refuses jobs instead of promising fewer copies (docs/design/0004-linked-nodes-count.md).

A *newcomer* introduced itself, and we have not reached it yet. It is in the table, because we listen to it. It is
neither counted nor used, because any peer can claim any id.

membership.py makes the decisions; this module only keeps the data.
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import FAIL, FORGOTTEN, HANDSHAKE, LEAVING, MYSELF, PFAIL, UNKNOWN, Node

# Nodes with one of these flags are not asked for copies (spec N1: reachable nodes). The state of the link does not
# matter: the link comes back, or the node becomes suspected.
UNUSABLE: Final = MYSELF | HANDSHAKE | LEAVING | PFAIL | FAIL

# Nodes with one of these flags do not count for copies (spec C1).
UNCOUNTED: Final = MYSELF | LEAVING | FAIL

# The most ids that peers may make us remember, whether or not such nodes exist.
NODES_MAX: Final = 20_000


class NodeTable:
    """The table; see the module.

    me       ourselves, flagged MYSELF
    nodes    id -> Node: ourselves first, then in order of arrival, handshakes included
    size     how many of them are neither in handshake nor newcomers; what quorums are counted from
    usable   neither me nor in handshake, newcomers, leaving, suspected or failed
    linked   our outgoing link to them is up
    full     other nodes that have no room for copies (node.py, `has_room`)
    counted  how many other nodes the default number of copies counts
    epoch    grows with every change of the five above, and of the place of a node
    eldest   the node that speaks the lowest bus version, of those that were linked; None: none was
    now_ms, wall_ms   set by the driver at the start of a turn
    newcomers    said MEET and were not reached yet -> their flags before: UNKNOWN if jobs name them since, 0 if no
                 other node ever told us of them
    has_forgotten   a node has the flag FORGOTTEN, or had it
    """

    def __init__(self, me: Node) -> None:
        me.flags |= MYSELF
        self.me = me
        self.nodes: dict[bytes, Node] = {me.id: me}
        self.size = 1
        self.usable: tuple[Node, ...] = ()
        self.linked: tuple[Node, ...] = ()
        self.full: tuple[Node, ...] = ()
        self.counted = 0
        self.epoch = 0
        self.eldest: Node | None = None
        self.now_ms = 0
        self.wall_ms = 0
        self.newcomers: dict[Node, int] = {}
        self.has_forgotten = False
        self._handshakes: dict[tuple[str, int], Node] = {}  # by address
        self._interned: dict[bytes, Node] = {me.id: me}

    def intern(self, node_id: bytes) -> Node:
        """Return the one Node for this id (20 bytes): in the table, forgotten, or made now and flagged UNKNOWN.

        The caller has a job that names it. So the object stays even if it is a newcomer that is given up later.
        """
        node = self._interned.get(node_id)
        if node is None:
            if len(self._interned) >= NODES_MAX:
                raise ValueError("more nodes were named than any cluster has")
            node = self.object_of(node_id)
        elif node.is_newcomer and not self.newcomers[node]:
            self.newcomers[node] = UNKNOWN
        return node

    def find(self, node_id: bytes) -> Node | None:
        """Return the node of the table with this id, other than ourselves and handshakes; None."""
        node = self.nodes.get(node_id)
        return None if node is None or node.flags & (MYSELF | HANDSHAKE) else node

    def known(self, node_id: bytes) -> Node | None:
        """Return the object of this id, in the table or not; None if there is none."""
        return self._interned.get(node_id)

    def known_nodes(self) -> list[Node]:
        """Return all nodes that have an object, also forgotten ones and those that were only named."""
        return list(self._interned.values())

    def find_handshake(self, host: str, port: int) -> Node | None:
        """Return the handshake with this address, None if there is none."""
        return self._handshakes.get((host, port))

    @property
    def handshake_count(self) -> int:
        """Return how many handshakes are in flight."""
        return len(self._handshakes)

    def refresh(self) -> None:
        """Recompute the groups after flags, links or members changed."""
        usable, linked, full, size = [], [], [], 0
        known = seen = in_sight = roomy = in_sight_roomy = 0
        eldest: Node | None = None
        for node in self.nodes.values():
            flags = node.flags
            if flags & HANDSHAKE or node.is_newcomer:
                continue
            size += 1
            if node.spoken and (eldest is None or node.spoken < eldest.spoken):
                eldest = node
            if not flags & UNUSABLE:
                usable.append(node)
            if node.is_linked:
                linked.append(node)
            is_seen = not (flags & (PFAIL | FAIL) or node.is_missed)
            has_room = node.has_room
            if not has_room and not flags & MYSELF:
                full.append(node)
            if is_seen:
                in_sight += 1  # We are never missed.
                in_sight_roomy += has_room
            if not flags & UNCOUNTED:
                known += 1
                if is_seen:
                    seen += 1
                    roomy += has_room
        usable.sort(key=_node_id)
        linked.sort(key=_node_id)
        full.sort(key=_node_id)
        self.eldest = eldest
        has_changed = size != self.size
        self.size = size
        counted = known
        if 2 * in_sight_roomy > size:
            counted = roomy
        elif 2 * in_sight > size:
            counted = seen
        if counted != self.counted:
            self.counted = counted
            has_changed = True
        if (new_usable := tuple(usable)) != self.usable:
            self.usable = new_usable
            has_changed = True
        if (new_linked := tuple(linked)) != self.linked:
            self.linked = new_linked
            has_changed = True
        if (new_full := tuple(full)) != self.full:
            self.full = new_full
            has_changed = True
        if has_changed:
            self.epoch += 1

    @property
    def lost_count(self) -> int:
        """Return how many nodes are suspected or have failed."""
        return sum(1 for node in self.nodes.values() if node.flags & (PFAIL | FAIL) and not node.flags & HANDSHAKE)

    @property
    def has_majority(self) -> bool:
        """Whether at most half of the cluster is suspected or failed, as seen from here.

        Leaving nodes answer, so they count as well. Exactly half is enough: of two nodes neither is the minority.
        """
        return 2 * self.lost_count <= self.size

    def enter(self, node: Node) -> None:
        """Put a node, or a handshake, into the table."""
        assert node.id not in self.nodes
        node.flags &= ~(UNKNOWN | FORGOTTEN)
        self.nodes[node.id] = node
        if node.flags & HANDSHAKE:
            self._handshakes[node.host, node.port] = node

    def remove(self, node: Node) -> None:
        """Take a node out. Unless it was a mere handshake, its object stays, flagged FORGOTTEN.

        A newcomer gets back the flags that it had before. So a peer that only claims an id changes nothing about the
        node that jobs name by that id. If no other node ever named it, its object is dropped, so strangers can't fill
        the memory with ids.
        """
        del self.nodes[node.id]
        if node.flags & HANDSHAKE:
            self._handshakes.pop((node.host, node.port), None)
            return
        flags_before = self.end_newcomer(node)
        node.flags = flags_before or FORGOTTEN
        self.has_forgotten = self.has_forgotten or flags_before is None
        if flags_before == 0:
            del self._interned[node.id]

    def mark_forgotten(self, node_id: bytes) -> Node:
        """Flag a node that is not in the table FORGOTTEN, because jobs may name it. Return its object."""
        node = self.object_of(node_id)
        node.flags = FORGOTTEN
        self.has_forgotten = True
        return node

    def begin_newcomer(self, node_id: bytes) -> Node:
        """Return the node of this id, which introduced itself; the caller enters it."""
        known = self._interned.get(node_id)
        node = self.object_of(node_id)
        node.is_newcomer = True
        self.newcomers[node] = 0 if known is None else known.flags
        return node

    def end_newcomer(self, node: Node) -> int | None:
        """End a newcomer's probation: return its flags before it introduced itself, None if it was no newcomer."""
        node.is_newcomer = False
        return self.newcomers.pop(node, None)

    def object_of(self, node_id: bytes) -> Node:
        """Return the one Node for this id, made now if need be. No limit applies, for the node itself proved the id."""
        node = self._interned.get(node_id)
        if node is None:
            node = self._interned[node_id] = Node(node_id, flags=UNKNOWN)
        return node

    def rename_me(self, node_id: bytes) -> None:
        """Give ourselves another id, in place; only when the table has no other node."""
        assert len(self.nodes) == 1
        del self._interned[self.me.id]
        self.me.id = node_id
        self.me.name = node_id.hex().encode()
        self.nodes = {node_id: self.me}
        self._interned[node_id] = self.me


def _node_id(node: Node) -> bytes:
    return node.id
