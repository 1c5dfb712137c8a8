"""Commands about the nodes of a cluster, as the node asked knows them. Pure."""

from __future__ import annotations

from disque_py.client import results
from disque_py.client.arguments import CLAIM_MS
from disque_py.client.protocol import text
from disque_py.client.request import Repeat, Request, words
from disque_py.client.results import ClusterNode, Hello, Voters
from disque_py.client.spans import whole


def hello() -> Request[Hello]:
    """HELLO → the node that answers, and the nodes that it knows."""
    return Request((b"HELLO",), results.hello)


def cluster_info() -> Request[dict[str, str | int | float]]:
    """CLUSTER INFO → the state of the cluster in fields, as the node asked sees it."""
    return Request((b"CLUSTER", b"INFO"), results.info)


def cluster_nodes() -> Request[list[ClusterNode]]:
    """CLUSTER NODES → every node that the asked one knows."""
    return Request((b"CLUSTER", b"NODES"), results.cluster_nodes)


def cluster_myid() -> Request[str]:
    """CLUSTER MYID → the node's id."""
    return Request((b"CLUSTER", b"MYID"), text)


def cluster_meet(host: str, port: int, bus_port: int | None = None) -> Request[str]:
    """CLUSTER MEET → OK; the nodes shake hands afterwards.

    host       address of the node to meet
    port       its client port
    bus_port   its bus port; by default 10000 above the client port
    """
    argv = words(b"CLUSTER", b"MEET", host, whole("port", port))
    return Request(argv if bus_port is None else (*argv, b"%d" % whole("bus_port", bus_port)), text, Repeat.NEVER)


def cluster_forget(node_id: str) -> Request[str]:
    """CLUSTER FORGET → OK, on the node asked only.

    node_id   the id of the node to forget, 40 characters
    """
    return Request(words(b"CLUSTER", b"FORGET", node_id), text, Repeat.NEVER)


def cluster_reset(*, hard: bool = False) -> Request[str]:
    """CLUSTER RESET → OK: the node forgets its nodes, jobs and queues.

    hard   True: it also forgets its own id. False by default
    """
    return Request((b"CLUSTER", b"RESET", b"HARD" if hard else b"SOFT"), text, Repeat.NEVER)


def cluster_leaving(leaving: bool | None = None) -> Request[bool]:
    """CLUSTER LEAVING → whether the node asked is leaving.

    leaving   True: the node begins to leave; False: it stays. None, the default, changes nothing
    """
    if leaving is None:
        return Request((b"CLUSTER", b"LEAVING"), lambda reply: bool(reply == b"yes"))
    answer = leaving
    return Request((b"CLUSTER", b"LEAVING", b"yes" if answer else b"no"), lambda _: answer, Repeat.NEVER)


def cluster_voters() -> Request[Voters]:
    """CLUSTER VOTERS → the nodes that grant claims, as the node asked knows them."""
    return Request((b"CLUSTER", b"VOTERS"), results.voters, wait_ms=CLAIM_MS)


def cluster_voters_init(*node_ids: str) -> Request[str]:
    """CLUSTER VOTERS INIT → OK: these nodes are the cluster's first voters.

    node_ids   ids of nodes, 40 characters each

    Raises UnreachableError if a node can't be asked, ReplyError if there are voters already.
    """
    return Request(words(b"CLUSTER", b"VOTERS", b"INIT", *node_ids), text, Repeat.NEVER, wait_ms=CLAIM_MS)


def cluster_saveconfig() -> Request[str]:
    """CLUSTER SAVECONFIG → OK: the nodes file is on disk."""
    return Request((b"CLUSTER", b"SAVECONFIG"), text, Repeat.NEVER)
