"""Commands about the nodes of a cluster, as the node asked knows them. Pure.

Each node has its own table of nodes, so two nodes may answer differently. A command that changes the table changes that
of the node asked. So after a lost answer the client never sends it again to another node (`Repeat.NEVER`).
"""

from __future__ import annotations

from disque_py.client import results
from disque_py.client.arguments import CLAIM_MS
from disque_py.client.protocol import text
from disque_py.client.request import Repeat, Request, words
from disque_py.client.results import ClusterNode, Hello, Voters
from disque_py.client.spans import whole


def hello() -> Request[Hello]:
    """Ask a node for its id and for the nodes that it knows (HELLO) → a `Hello`."""
    return Request((b"HELLO",), results.hello)


def cluster_info() -> Request[dict[str, str | int | float]]:
    """Ask a node for the state of the cluster (CLUSTER INFO) → its fields by name."""
    return Request((b"CLUSTER", b"INFO"), results.info)


def cluster_nodes() -> Request[list[ClusterNode]]:
    """List the nodes that the node asked knows (CLUSTER NODES) → a `ClusterNode` for each."""
    return Request((b"CLUSTER", b"NODES"), results.cluster_nodes)


def cluster_myid() -> Request[str]:
    """Ask a node for its id (CLUSTER MYID) → the id."""
    return Request((b"CLUSTER", b"MYID"), text)


def cluster_meet(host: str, port: int, bus_port: int | None = None) -> Request[str]:
    """Join another node to this one's cluster (CLUSTER MEET) → OK. The nodes shake hands afterwards.

    host       address of the node to meet
    port       its client port
    bus_port   its bus port; by default 10000 above the client port
    """
    argv = words(b"CLUSTER", b"MEET", host, whole("port", port))
    return Request(argv if bus_port is None else (*argv, b"%d" % whole("bus_port", bus_port)), text, Repeat.NEVER)


def cluster_forget(node_id: str) -> Request[str]:
    """Make the node asked, and no other, forget a node (CLUSTER FORGET) → OK.

    node_id   the id of the node to forget, 40 characters
    """
    return Request(words(b"CLUSTER", b"FORGET", node_id), text, Repeat.NEVER)


def cluster_reset(*, hard: bool = False) -> Request[str]:
    """Make a node forget all other nodes, its jobs and its queues (CLUSTER RESET) → OK.

    hard   True: it also forgets its own id. False by default
    """
    return Request((b"CLUSTER", b"RESET", b"HARD" if hard else b"SOFT"), text, Repeat.NEVER)


def cluster_leaving(leaving: bool | None = None) -> Request[bool]:
    """Set or read whether the node asked is leaving (CLUSTER LEAVING) → whether it is.

    leaving   True: the node begins to leave; False: it stays. None, the default, changes nothing
    """
    if leaving is None:
        return Request((b"CLUSTER", b"LEAVING"), lambda reply: bool(reply == b"yes"))
    answer = leaving
    return Request((b"CLUSTER", b"LEAVING", b"yes" if answer else b"no"), lambda _: answer, Repeat.NEVER)


def cluster_voters() -> Request[Voters]:
    """List the nodes that grant claims (CLUSTER VOTERS) → `Voters`, as the node asked knows them."""
    return Request((b"CLUSTER", b"VOTERS"), results.voters, wait_ms=CLAIM_MS)


def cluster_voters_init(*node_ids: str) -> Request[str]:
    """Make these nodes the cluster's first voters (CLUSTER VOTERS INIT) → OK.

    node_ids   ids of nodes, 40 characters each

    Raises UnreachableError if a node can't be asked, ReplyError if there are voters already.
    """
    return Request(words(b"CLUSTER", b"VOTERS", b"INIT", *node_ids), text, Repeat.NEVER, wait_ms=CLAIM_MS)


def cluster_saveconfig() -> Request[str]:
    """Write the nodes file of the node asked to its disk (CLUSTER SAVECONFIG) → OK."""
    return Request((b"CLUSTER", b"SAVECONFIG"), text, Repeat.NEVER)
