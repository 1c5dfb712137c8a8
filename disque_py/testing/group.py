"""Several nodes of a test, linked to a cluster.

Every node gets a CLUSTER MEET for all others, so that no link waits for gossip.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Unpack

from disque_py.loopback_ports import HOST
from disque_py.testing.directives import Value
from disque_py.testing.process import LOOK_AGAIN_SECONDS, Node, NodeError, login

if TYPE_CHECKING:
    from disque_py.client import AsyncDisque, ClientSettings, Disque

WHOLE_SECONDS: Final = 20.0
# A node with one of these flags is not usable.
BAD_FLAGS: Final = frozenset({"fail", "fail?", "handshake", "noaddr"})


class Cluster:
    """The nodes of a test, linked. `disque_py.testing.cluster` makes one and starts it.

    nodes   its nodes, running or not; `cluster[i]` and `for node in cluster` work, too
    """

    def __init__(self, count: int, directives: Mapping[str, Value]) -> None:
        if count < 1:
            raise ValueError(f"a cluster has at least one node, not {count}")
        self.nodes: list[Node] = []
        try:
            for _ in range(count):
                self.nodes.append(Node(directives))
        except BaseException:  # An interrupt, too, must leave no directory behind.
            self.close()
            raise

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def url(self) -> str:
        """The cluster's URL for clients: all nodes, with the password if there is one."""
        return f"disque://{login(self.nodes[0].password)}{','.join(node.address for node in self.nodes)}"

    def client(self, **settings: Unpack[ClientSettings]) -> Disque:
        """Return a new blocking client of the cluster. Close it, or use it as a context.

        settings   the settings of a client, for example `decode="utf-8"`
        """
        from disque_py.client import Disque

        return Disque.from_url(self.url, **settings)

    def async_client(self, **settings: Unpack[ClientSettings]) -> AsyncDisque:
        """Return a new asyncio client of the cluster. Close it, or use it as a context.

        settings   the settings of a client, for example `decode="utf-8"`
        """
        from disque_py.client import AsyncDisque

        return AsyncDisque.from_url(self.url, **settings)

    def start(self) -> None:
        """Start all nodes and link them. Raises NodeError."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_started()
        from disque_py.client import commands

        for node in self.nodes:
            with node.connect() as connection:
                for other in self.nodes:
                    if other is not node:
                        connection.run(commands.cluster_meet(HOST, other.port))
        self.wait_whole()

    def kill(self, index: int) -> None:
        """Kill a node by its index, as in a crash."""
        self.nodes[index].kill()

    def stop(self, index: int) -> None:
        """Stop a node by its index, in an orderly way. Raises NodeError."""
        self.nodes[index].stop()

    def restart(self, index: int) -> None:
        """Start a node again by its index, and wait until all running nodes are linked. Raises NodeError."""
        self.nodes[index].restart()
        self.wait_whole()

    def wait_whole(self, seconds: float = WHOLE_SECONDS) -> None:
        """Wait until every running node is linked with every other running node.

        seconds   the limit in seconds, by default 20. Raises NodeError with the logs after it
        """
        deadline = time.monotonic() + seconds
        while not self._is_whole():
            if time.monotonic() > deadline:
                logs = "\n".join(node.log_tail for node in self.nodes)
                raise NodeError(f"the nodes were not linked within {seconds:g} s\n{logs}")
            time.sleep(LOOK_AGAIN_SECONDS)

    def close(self) -> None:
        """End all nodes and remove their folders."""
        for node in self.nodes:
            node.close()

    def _is_whole(self) -> bool:
        running = [node for node in self.nodes if node.is_running]
        return all(_links(node) >= {other.port for other in running} for node in running)


def _links(node: Node) -> set[int]:
    """Return the ports of the usable nodes that this one is linked with, including its own."""
    from disque_py.client import DisqueError, commands

    with suppress(DisqueError), node.connect() as connection:
        rows = connection.run(commands.cluster_nodes())
        good = [row for row in rows if row.linked and not row.flags & BAD_FLAGS]
        return {row.port for row in good} | {node.port}
    return set()
