"""Versions of the bus: refuse new options until every node understands them.

If an option is stored with a job or is cluster-wide state, a node with an older version of the bus would lose it. So
the option is refused while such a node is known. The commands of the original Disque work meanwhile, so a cluster can
be upgraded node by node. A node that was never linked since this one started does not count, because its version is not
known. Spec Y1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.core.errors import CommandError

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.core.broker import Broker

# Versions of the bus. This one added attempts, back-off, cancellation, the changeable part of a job and queue settings.
ATTEMPTS: Final = 2
# This version added the repair of lost copies. Nodes with older versions are not asked and get no new copies.
REPAIR: Final = 3
# This version added extras of jobs, and shared state besides queue settings.
FLOWS: Final = 4
# This version added one message for all jobs of a fan-out (shared_copies.py).
SHARED_COPIES: Final = 5


def older_node(broker: Broker, version: int) -> Node | None:
    """Return a known node that understands only versions below this one; None if there is none."""
    eldest = broker.cluster.eldest
    return eldest if eldest is not None and eldest.spoken < version else None


def refuse_older(broker: Broker, version: int = ATTEMPTS) -> None:
    """Raise CommandError if a known node does not understand this version, so that a command must be refused."""
    node = older_node(broker, version)
    if node is not None:
        raise CommandError(f"ERR not while node {node.name.decode()} runs an older version")
