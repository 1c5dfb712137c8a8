"""Real nodes for the tests of programs that use disque-py.

    with disque_py.testing.node() as node, node.client() as disque:
        disque.add_job("mail", b"Dear Ada, ...")

    with disque_py.testing.cluster(nodes=3) as cluster:
        cluster.kill(1)

`node` and `cluster` are contexts; `async_node` and `async_cluster` are the same for asyncio. The nodes are processes on
free ports of this machine. Each has a temporary directory. Processes and directories are removed at the end, also if
the test process is killed. plugin.py has fixtures for pytest. docs/testing.md is the guide.

This package imports the client library, and nothing of the server. process.py starts the server, and child.py runs it.
"""

from disque_py.testing.contexts import async_cluster, async_node, cluster, node
from disque_py.testing.group import Cluster
from disque_py.testing.process import Node, NodeError

__all__ = ["Cluster", "Node", "NodeError", "async_cluster", "async_node", "cluster", "node"]
