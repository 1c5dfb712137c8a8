"""The asyncio iterator over jobs that `AsyncDisque.jobs` returns.

A GETJOB may bring more jobs than its caller uses. An iterator ends early if its loop was left, its task was cancelled
or its client is closed. Then it puts the remaining jobs back immediately; otherwise they would wait for their RETRY. A
task of the client does this, and `AsyncDisque.close` waits for it. An async generator would do it too late, in the
loop's finalizers. The iterator knows no connection; the client passes it functions that fetch jobs and put them back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Self

from disque_py.client.request import Request
from disque_py.client.results import Job


class JobStream(AsyncIterator[Job]):
    """An asynchronous iterator over jobs, which fetches more jobs when it has none left.

    `aclose` ends it. Leaving a loop over it ends it too, if nothing else refers to it.
    """

    def __init__(
        self,
        request: Request[list[Job]],
        fetch: Callable[[Request[list[Job]]], Awaitable[list[Job]]],
        give_back: Callable[[Collection[Job]], None],
    ) -> None:
        self._request = request
        self._fetch = fetch
        self._give_back = give_back
        self._found: deque[Job] = deque()
        self._is_over = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Job:
        if not self._found and not self._is_over:
            self._loop = asyncio.get_running_loop()
            found = await self._fetch(self._request)
            self._found.extend(found)
            self._is_over = self._is_over or not found
        if self._is_over:
            self.give_back()  # It was closed while it fetched.
            raise StopAsyncIteration
        return self._found.popleft()

    async def aclose(self) -> None:
        """End the iterator and put back the jobs that it has fetched and not handed out."""
        self.give_back()

    def give_back(self) -> None:
        """End the iterator without waiting until the jobs are put back. Call it in the iterator's loop."""
        self._is_over = True
        if self._found:
            found, self._found = self._found, deque()
            self._give_back(found)

    def __del__(self) -> None:
        # This runs in any thread that collects garbage. Without a running loop nothing can be sent, and RETRY acts.
        loop, found = self._loop, self._found
        if found and loop is not None and loop.is_running():
            if _is_running_here(loop):
                self._give_back(found)
            else:
                loop.call_soon_threadsafe(self._give_back, found)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
