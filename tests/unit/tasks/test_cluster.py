"""The clients of an app."""

from __future__ import annotations

import asyncio
import gc
import weakref

from client_node import Node
from disque_py.tasks.cluster import ClusterBroker


def test_a_closed_event_loop_leaves_no_client_behind():
    """A program may call `asyncio.run` for each task that it adds."""
    with Node(answers={"CLIENT": b"+OK\r\n"}) as node:
        broker = ClusterBroker(f"disque://{node.address}", "tasks")

        async def used():
            client = broker.async_client()
            assert client is broker.async_client()
            await client.ping()
            await client.close()  # It still refers to its loop.
            return weakref.ref(client)

        first, second = asyncio.run(used()), asyncio.run(used())
        gc.collect()
        assert first() is None
        assert second() is not None
