"""A network in memory for Memberships: virtual time, instant links, frames through the real codec."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from cluster_bus.codec import Decoder, encode_run, frame
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import HANDSHAKE, Node
from cluster_bus.outgoing import Outgoing

STEP_MS = 50
# A node that has met no other one.
STRANGER = Hello(b"s" * 20, b"run-one-", "", 7999, 17999)


class Peer:
    """A process: its membership, and the messages that it has sent."""

    def __init__(self, membership: Membership, host: str) -> None:
        self.membership = membership
        self.host = host
        self.notices: list[tuple[str, dict[str, str | int]]] = []
        self.link_events: list[tuple[str, bool]] = []
        self.new_runs: list[Node] = []
        self.saves = 0
        self.links: dict[Node, Link] = {}
        self.is_frozen = False


class Link(NamedTuple):
    """An established link: its target, and the result of its handshake."""

    target: Peer
    hello: Hello
    sender: Node | None


class Exchange:
    """Peers by (host, bus port). `cut` has the directed pairs of peers between which no message passes."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = Random(seed)
        self.now_ms = 1_000_000
        self.peers: dict[tuple[str, int], Peer] = {}
        self.cut: set[tuple[Peer, Peer]] = set()

    def start(
        self, port: int, *, node_id: bytes | None = None, host: str = "10.0.0.1", timeout_ms: int = 2000
    ) -> Membership:
        """Start a node. Its bus port is its port + 10000."""
        me = Node(node_id or self.rng.randbytes(20), port=port, bus_port=port + 10_000)
        membership = Membership(me, Outgoing(), Random(self.rng.random()), node_timeout_ms=timeout_ms)
        membership.table.now_ms, membership.table.wall_ms = self.now_ms, self.now_ms + 1_700_000_000_000
        self.peers[host, port + 10_000] = Peer(membership, host)
        return membership

    def start_joined(self, count: int, first_port: int = 7001) -> list[Membership]:
        """Start nodes that met the first one a second ago."""
        nodes = [self.start(first_port + at) for at in range(count)]
        for node in nodes[1:]:
            node.meet("10.0.0.1", first_port)
        self.run(1000)
        return nodes

    def peer(self, membership: Membership) -> Peer:
        return next(peer for peer in self.peers.values() if peer.membership is membership)

    def stop(self, membership: Membership) -> None:
        """Kill the process: its links break, its address refuses."""
        gone = self.peer(membership)
        self.peers = {address: peer for address, peer in self.peers.items() if peer is not gone}
        for peer in self.peers.values():
            for node in [node for node, link in peer.links.items() if link.target is gone]:
                del peer.links[node]
                peer.membership.link_down(node)

    def partition(self, one: list[Membership], other: list[Membership]) -> None:
        """Stop all messages between these groups, in both directions."""
        for left in one:
            for right in other:
                self.cut |= {(self.peer(left), self.peer(right)), (self.peer(right), self.peer(left))}

    def run(self, span_ms: int) -> None:
        """Let time pass, and deliver messages."""
        for _ in range(span_ms // STEP_MS):
            self.now_ms += STEP_MS
            for peer in list(self.peers.values()):
                membership = peer.membership
                membership.table.now_ms, membership.table.wall_ms = self.now_ms, self.now_ms + 1_700_000_000_000
                if self.now_ms >= membership.next_tick_ms() and not peer.is_frozen:
                    membership.tick()
            for _ in range(20):
                has_spoken = [self._turn(peer) for peer in list(self.peers.values()) if not peer.is_frozen]
                if not any(has_spoken):
                    break
            else:
                raise AssertionError("the nodes don't stop talking")

    def _turn(self, peer: Peer) -> bool:
        """Empty a peer's tray, and return whether there was anything in it."""
        membership = peer.membership
        runs, hang_ups, dials = membership.outgoing.take(), membership.tray.hang_ups, membership.tray.dials
        membership.tray.hang_ups, membership.tray.dials = {}, {}
        peer.notices += membership.tray.notices
        peer.new_runs += membership.tray.new_runs
        peer.link_events += [(node.name.decode(), is_up) for node, is_up in membership.tray.link_events]
        peer.saves += membership.tray.must_save
        membership.tray.notices, membership.tray.link_events, membership.tray.new_runs, membership.tray.must_save = (
            [],
            [],
            [],
            False,
        )
        for node in hang_ups:
            peer.links.pop(node, None)
        for nodes, kind, items in runs:
            data = frame(1, [encode_run(kind, items)])
            for node in nodes:
                self._deliver(peer, node, data)
        for node in dials:
            self._dial(peer, node)
        return bool(runs or hang_ups or dials)

    def _dial(self, peer: Peer, node: Node) -> None:
        target = self.peers.get((node.host, node.bus_port))
        if target is None or target.is_frozen or (peer, target) in self.cut or (target, peer) in self.cut:
            peer.membership.link_down(node)
            return
        hello = peer.membership.hello()
        sender = target.membership.accept(hello, peer.host, target.host)
        resolved = peer.membership.link_up(node, target.membership.hello(), target.host, peer.host)
        if resolved is not None:
            assert not resolved.flags & HANDSHAKE
            peer.links[resolved] = Link(target, hello, sender)

    def _deliver(self, peer: Peer, node: Node, data: bytes) -> None:
        link = peer.links.get(node)
        if link is None or link.target.is_frozen or (peer, link.target) in self.cut:
            return
        for run in Decoder().feed(data)[0]:
            link.target.membership.receive(link.sender, link.hello, peer.host, link.target.host, run[0], run[1:])


def is_whole(nodes: list[Membership]) -> bool:
    """Return whether every node knows exactly the others, has links to them, and may use them."""
    ids = sorted(node.table.me.id for node in nodes)
    return all(
        [other.id for other in node.table.usable] == [each for each in ids if each != node.table.me.id]
        and node.table.linked == node.table.usable
        and node.table.size == len(node.table.nodes) == len(nodes)
        for node in nodes
    )


def seen_by(node: Membership, other: Membership) -> Node:
    """Return the entry for the other node in this node's table."""
    return node.table.nodes[other.table.me.id]


def lone() -> Membership:
    """Return a node that knows no other one."""
    membership = Membership(Node(b"a" * 20, port=7001, bus_port=17001), Outgoing(), Random(1), node_timeout_ms=2000)
    membership.table.now_ms = 1_000_000
    return membership


def heartbeat_item(**fields: object) -> list[object]:
    """Return the item of a MEET, PING or PONG of the stranger."""
    return [{"host": "", "port": 7999, "bus_port": 17999, "flags": 0, "memory": 0, "version": ""} | fields, []]
