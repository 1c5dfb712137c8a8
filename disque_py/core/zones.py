"""Zones: the distance of nodes, the choice of nodes that spread copies best, and the majority of a data centre.

A zone is a pair of data centre and zone. Nodes without configured names share one zone. Membership knows where each
node is (cluster_bus/membership.py), and this module only compares these places. In a cluster with one zone, all nodes
are equally near, and this module changes no choice. Spec ZN2, ZN3, ZN4, ZN5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cluster_bus.node import HANDSHAKE, LEAVING, Node

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

Zone = tuple[str, str]

# Distances of two nodes.
SAME_ZONE: Final = 0
SAME_DATACENTER: Final = 1
REMOTE: Final = 2


def zone_of(node: Node) -> Zone:
    """Return the node's zone."""
    return node.datacenter, node.zone


def distance(one: Node, other: Node) -> int:
    """Return the distance of two nodes: SAME_ZONE, SAME_DATACENTER or REMOTE."""
    if one.datacenter != other.datacenter:
        return REMOTE
    return SAME_ZONE if one.zone == other.zone else SAME_DATACENTER


def count(nodes: Iterable[Node]) -> int:
    """Return the number of zones that these nodes are in."""
    return len({zone_of(node) for node in nodes})


def has_zones(broker: Broker) -> bool:
    """Return whether the usable nodes and this one are in more than one zone."""
    me = broker.me
    return any(node.zone != me.zone or node.datacenter != me.datacenter for node in broker.cluster.usable)


def spread(candidates: list[Node], wanted: int, held: Iterable[Node]) -> list[Node]:
    """Return up to `wanted` of the candidates. The first of each zone without a copy come first.

    held   nodes that have a copy
    """
    taken = {zone_of(node) for node in held}
    chosen: list[Node] = []
    others: list[Node] = []
    for node in candidates:
        zone = zone_of(node)
        if zone in taken:
            others.append(node)
        else:
            taken.add(zone)
            chosen.append(node)
    return (chosen + others)[:wanted]


def outside(candidates: list[Node], held: Iterable[Node]) -> list[Node]:
    """Return the candidates in zones that have no copy.

    held   nodes that have a copy
    """
    taken = {zone_of(node) for node in held}
    return [node for node in candidates if zone_of(node) not in taken]


# -- data centres -------------------------------------------------------------------------------------


def is_local(broker: Broker, node: Node) -> bool:
    """Return whether the node is known to be in this node's data centre."""
    return node is broker.me or (node.is_placed and node.datacenter == broker.me.datacenter)


def quorum(broker: Broker) -> int:
    """Return the number of nodes that make a majority of this data centre.

    Leaving nodes and nodes in handshake are not counted. Failed nodes are counted, and so are nodes whose data centre
    is not known.
    """
    here = broker.me.datacenter
    members = 0
    for node in broker.cluster.nodes.values():
        if node.flags & (LEAVING | HANDSHAKE) or node.is_newcomer:
            continue
        if node is broker.me or not node.is_placed or node.datacenter == here:
            members += 1
    return members // 2 + 1


def usable_here(broker: Broker) -> list[Node]:
    """Return the other usable nodes of this data centre."""
    return [node for node in broker.cluster.usable if is_local(broker, node)]


def one_elsewhere(broker: Broker, exclude: Iterable[Node] = ()) -> list[Node]:
    """Return one usable, linked node of each other data centre, at random."""
    passed = frozenset(exclude)
    found: dict[str, list[Node]] = {}
    for node in broker.cluster.usable:
        if node.is_linked and node.is_placed and node.datacenter != broker.me.datacenter and node not in passed:
            found.setdefault(node.datacenter, []).append(node)
    return [broker.rng.choice(nodes) for nodes in found.values()]
