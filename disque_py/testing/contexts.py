"""The contexts that a test uses: nodes run inside, and are removed afterwards.

An exception that leaves the context gets the end of each node's log as a note, which test runners print.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from disque_py.testing.directives import Value
from disque_py.testing.group import Cluster
from disque_py.testing.process import Node


@contextmanager
def node(**directives: Value) -> Iterator[Node]:
    """Run a node while the context lasts. The node is ready when the block begins.

    directives   the node's directives, with underscores: `maxmemory="10mb"`, `appendonly=True`. A list becomes several
                 words

    Raises NodeError with the log if the node does not start, and TypeError for a directive that a test can't set
    (`port`, `bind`, `dir`, `logfile`, `daemonize`).

        with disque_py.testing.node(appendonly=True) as node, node.client() as disque:
            disque.add_job("mail", b"Dear Ada, ...")
    """
    made = Node(directives)
    try:
        made.start()
        yield made
    except BaseException as error:  # Every exception gets the logs, also pytest's skips and interrupts.
        _add_logs(error, made)
        raise
    finally:
        made.close()


@contextmanager
def cluster(nodes: int = 3, **directives: Value) -> Iterator[Cluster]:
    """Run several linked nodes while the context lasts.

    nodes        the number of nodes, by default 3
    directives   the directives of each node, as for `node`

    Raises NodeError with the logs if a node does not start or the nodes don't find each other.

        with disque_py.testing.cluster(nodes=3) as cluster, cluster.client() as disque:
            job_id = disque.add_job("mail", b"Dear Ada, ...", replicate=3)
            cluster.kill(1)
    """
    made = Cluster(nodes, directives)
    try:
        made.start()
        yield made
    except BaseException as error:  # As in `node`.
        _add_logs(error, *made)
        raise
    finally:
        made.close()


@asynccontextmanager
async def async_node(**directives: Value) -> AsyncIterator[Node]:
    """Run a node as `node` does, without blocking the event loop at its start and end.

    directives   as for `node`

    The methods of the node block. Use `await asyncio.to_thread(node.restart)` if the event loop must not stop. Raises
    NodeError and TypeError.
    """
    made = Node(directives)
    async with _running(made, [made]):
        yield made


@asynccontextmanager
async def async_cluster(nodes: int = 3, **directives: Value) -> AsyncIterator[Cluster]:
    """Run several linked nodes as `cluster` does, without blocking the event loop at their start and end.

    nodes        the number of nodes, by default 3
    directives   as for `node`

    The methods of the cluster and its nodes block. Use `await asyncio.to_thread(cluster.restart, 1)` if the event loop
    must not stop. Raises NodeError and TypeError.
    """
    made = Cluster(nodes, directives)
    async with _running(made, made.nodes):
        yield made


@asynccontextmanager
async def _running(made: Node | Cluster, nodes: Sequence[Node]) -> AsyncIterator[None]:
    """Start nodes in a thread, and end them in one."""
    import asyncio  # pytest loads this package even if no test needs it.

    starting = asyncio.ensure_future(asyncio.to_thread(made.start))
    try:
        # If the task is cancelled here, the thread must not go on and start nodes.
        await asyncio.shield(starting)
        yield
    except BaseException as error:  # Also when the task is cancelled.
        await asyncio.wait([starting])
        starting.exception()  # Mark it as retrieved.
        _add_logs(error, *nodes)
        raise
    finally:
        await asyncio.to_thread(made.close)


def _add_logs(error: BaseException, *nodes: Node) -> None:
    """Add the end of each node's log to an error."""
    for each in nodes:
        if each.log and each.log_tail not in str(error):
            error.add_note(each.log_tail)
