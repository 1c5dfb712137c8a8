"""Versions of the bus: words that wait until every node understands them.

A word that travels with a job, or that is cluster-wide state, would be lost on a node that speaks an older version of
the bus. So it is refused while such a node is known. Commands of Disque go on meanwhile, so a cluster can be upgraded
node by node. A node that was never linked since this one started does not count, because its version is not known.
Spec Y1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.core.errors import CommandError

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker

# The version of the bus that brought attempts, back-off, cancellation, the changeable part of a job and queue settings.
ATTEMPTS: Final = 2
# The version that brought the repair of lost copies. Nodes of older ones are neither asked nor given a new copy.
REPAIR: Final = 3
# The version that brought extras of jobs, and shared state besides queue settings.
FLOWS: Final = 4
# The version that brought one message for all jobs of a fan-out (shared_copies.py).
SHARED_COPIES: Final = 5


def older_node(broker: Broker, version: int) -> Node | None:
    """Return a known node that speaks only versions below this one; None if there is none."""
    eldest = broker.cluster.eldest
    return eldest if eldest is not None and eldest.spoken < version else None


def refuse_older(broker: Broker, version: int = ATTEMPTS) -> None:
    """Refuse a command whose words a known node does not understand. CommandError."""
    node = older_node(broker, version)
    if node is not None:
        raise CommandError(f"ERR not while node {node.name.decode()} runs an older version")
