"""Replica sets: groups of nodes that get the copies of a new job. They are usable, linked, and in many zones.

Nodes without room are asked only if too few others are left (spec C6).

Every ADDJOB with REPLICATE needs such a group, and the set of its members and this node. In a small cluster there are
few groups. So they are computed once per state of the cluster, and each ADDJOB draws one at random. Only those groups
are drawn that cover the most zones (spec ZN2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Final

from cluster_bus.node import Node
from disque_py.core import zones
from disque_py.core.node_sets import EMPTY, NodeSet

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

# If there are more combinations than this, each draw chooses nodes without a table.
REPLICA_SETS_MAX: Final = 128


def choose(
    broker: Broker,
    count: int,
    exclude: NodeSet = EMPTY,
    *,
    held: Iterable[Node] = (),
    is_local: bool = False,
    must_spread: bool = False,
) -> tuple[Node, ...]:
    """Return up to `count` usable, linked nodes outside `exclude`, at random. Equal groups are the same tuple.

    held          nodes that have a copy; nodes in other zones are preferred
    is_local      choose only nodes of this data centre
    must_spread   choose only nodes in zones that have no copy
    """
    usable = [node for node in broker.cluster.usable if node.is_linked and node not in exclude]
    if is_local:
        usable = [node for node in usable if zones.is_local(broker, node)]
    if must_spread:
        usable = zones.outside(usable, held)
    usable = _roomy(broker, usable, count)
    if len(usable) > count:
        if zones.has_zones(broker):
            usable = zones.spread(broker.rng.sample(usable, len(usable)), count, held)
        else:
            usable = broker.rng.sample(usable, count)
    return broker.sets.others(broker.sets.of(usable))


class ReplicaSets:
    """The groups of nodes that may get a new job's copies, computed once per state of the cluster.

    is_local   use only nodes of this data centre
    """

    __slots__ = ("_count", "_epoch", "_groups", "_is_local")

    def __init__(self, *, is_local: bool = False) -> None:
        self._is_local = is_local
        self._epoch = -1
        self._count = -1
        self._groups: list[tuple[tuple[Node, ...], NodeSet]] = []

    def draw(self, broker: Broker, count: int) -> tuple[tuple[Node, ...], NodeSet]:
        """Return the receivers of a new job's copies, and the set of its holders: the receivers and this node."""
        if broker.cluster.epoch != self._epoch or count != self._count:
            self._list(broker, count)
        replica_sets = self._groups
        if len(replica_sets) == 1:
            return replica_sets[0]
        if replica_sets:
            return replica_sets[int(broker.rng.random() * len(replica_sets))]
        targets = choose(broker, count, held=(broker.me,), is_local=self._is_local)
        return targets, broker.sets.of((broker.me, *targets))

    def _list(self, broker: Broker, count: int) -> None:
        self._epoch = broker.cluster.epoch
        self._count = count
        usable = [node for node in broker.cluster.usable if node.is_linked]
        if self._is_local:
            usable = [node for node in usable if zones.is_local(broker, node)]
        usable = _roomy(broker, usable, count)
        sets = broker.sets
        self._groups = []
        if comb(len(usable), min(count, len(usable))) <= REPLICA_SETS_MAX:
            groups = list(combinations(usable, min(count, len(usable))))
            if zones.has_zones(broker):
                covered = [zones.count((broker.me, *nodes)) for nodes in groups]
                most = max(covered)
                groups = [nodes for nodes, zone_count in zip(groups, covered, strict=True) if zone_count == most]
            for nodes in groups:
                self._groups.append((sets.others(sets.of(nodes)), sets.of((broker.me, *nodes))))


def _roomy(broker: Broker, nodes: list[Node], count: int) -> list[Node]:
    """Return the nodes that have room for a copy; all of them if fewer than `count` have. Spec C6."""
    if not broker.cluster.full:
        return nodes
    roomy = [node for node in nodes if node.has_room]
    return roomy if len(roomy) >= count else nodes
