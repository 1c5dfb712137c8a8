"""A cluster of nodes as the broker of an app: one client for threads, and one for each event loop.

The clients are made when they are first used. A forked child gets new clients. Tests run many event loops one after the
other, so each loop has a client. It exists until `close_async`, or until another loop begins after its own is closed.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from disque_py.client.aio import AsyncDisque
from disque_py.client.errors import BatchError, DisqueError
from disque_py.client.processes import ProcessClient
from disque_py.tasks.operations import Operation

T = TypeVar("T")


class ClusterBroker:
    """The nodes of a URL."""

    is_live = True

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self._name = name
        self._client = ProcessClient(url, name)
        self._clients: dict[asyncio.AbstractEventLoop, AsyncDisque] = {}

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, and wait for it."""
        return self._client().run(operation.request())

    def run_many(self, operations: list[Operation[T]]) -> list[T]:
        """Run many operations in one pipeline. Raises BatchError if one of them failed."""
        pipe = self._client().pipeline()
        for operation in operations:
            pipe.add(operation.request())
        return _values(pipe.execute())

    async def run_async(self, operation: Operation[T]) -> T:
        """Run an operation in the event loop."""
        return await self.async_client().run(operation.request())

    async def run_many_async(self, operations: list[Operation[T]]) -> list[T]:
        """Run many operations in one pipeline. Raises BatchError if one of them failed."""
        pipe = self.async_client().pipeline()
        for operation in operations:
            pipe.add(operation.request())
        return _values(await pipe.execute())

    def async_client(self) -> AsyncDisque:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # A client refers to its loop, so weak references would keep both. Other threads may add theirs meanwhile.
            for other in list(self._clients):
                if other.is_closed():
                    self._clients.pop(other, None)
            client = self._clients[loop] = AsyncDisque.from_url(self.url, name=self._name)
        return client

    def close(self) -> None:
        """Close the blocking client. The next call makes a new one."""
        self._client.close()

    async def close_async(self) -> None:
        """Close the client of the running event loop. The next call makes a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


def _values(outcomes: list[T]) -> list[T]:
    if any(isinstance(outcome, DisqueError) for outcome in outcomes):
        raise BatchError(outcomes)
    return outcomes
