"""Consuming: messages as long as there is credit, and their settlements, in one stream.

The first request names the queue. Each request may add credit and settle messages. The stream waits for messages while
there is credit. At its end, whatever ends it, messages that were not settled go back to the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from disque_py.client import DisqueError
from disque_py.client.put_back import REASON
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.rpc.calls import Caller

AT_ONCE: Final = 100
CREDIT_MAX: Final = 10_000
WAIT_MS: Final = 5_000
PUT_BACK_S: Final = 5.0

Part = tuple[list[dict[str, Any]], list[str]]


class Consumption:
    """One consumer's stream."""

    def __init__(self, caller: Caller, requests: AsyncIterator[Any]) -> None:
        self._caller = caller
        self._requests = requests
        self._credit = 0
        self._has_credit = asyncio.Event()
        self._held: dict[str, int | None] = {}
        self._out: asyncio.Queue[Part | BaseException | None] = asyncio.Queue(2)
        self._tasks: list[asyncio.Task[None]] = []

    async def parts(self) -> AsyncIterator[Part]:
        """Yield messages and ids of settled ones. Raises RefusedError."""
        first = await anext(aiter(self._requests), None)
        if first is None:
            return
        if not first.HasField("start"):
            raise RefusedError("ERR", "the first request must have start")
        self._tasks = [asyncio.create_task(self._guarded(self._take(first.start)))]
        self._tasks.append(asyncio.create_task(self._guarded(self._listen(first))))
        while (part := await self._out.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part

    async def close(self) -> None:
        """Put back the messages that were not settled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._held:
            with contextlib.suppress(DisqueError, TimeoutError):
                async with asyncio.timeout(PUT_BACK_S):
                    await self._caller.principal.client.nack(*self._held, delay=0, reason=REASON)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            await self._out.put(error)
        else:
            await self._out.put(None)

    async def _listen(self, first: Any) -> None:
        await self._hear(first)
        async for request in self._requests:
            await self._hear(request)

    async def _hear(self, request: Any) -> None:
        if request.credit < 0:
            raise RefusedError("ERR", "credit must be 0 or more")
        self._credit = min(CREDIT_MAX, self._credit + request.credit)
        if self._credit:
            self._has_credit.set()
        # All at once, so that the commands share round trips.
        found = await asyncio.gather(*map(self._settle, request.settlements), return_exceptions=True)
        settled = [each for each in found if isinstance(each, str)]
        if settled:
            await self._out.put(([], settled))
        for each in found:
            if isinstance(each, BaseException):
                raise each

    async def _settle(self, settlement: Any) -> str:
        if settlement.id not in self._held:
            raise RefusedError("ERR", f"this stream does not hold {settlement.id[:64]}")
        attempt = self._held.pop(settlement.id)
        try:
            await self._ask(settlement, attempt)
        except BaseException:
            self._held[settlement.id] = attempt
            raise
        return str(settlement.id)

    async def _ask(self, settlement: Any, attempt: int | None) -> None:
        args: dict[str, Any] = {"id": settlement.id, "attempt": attempt}
        name = "complete"
        if settlement.failed:
            name = "fail"
            args |= {"reason": settlement.reason}
            args["delay_ms"] = settlement.delay_ms if settlement.HasField("delay_ms") else None
        try:
            await self._caller.ask(name, **args)
        except RefusedError as error:
            if error.code != "STALE":  # Its lease was over: another consumer has it.
                raise

    async def _take(self, start: Any) -> None:
        lease_ms = start.lease_ms if start.HasField("lease_ms") else None
        wait_ms = min(WAIT_MS, self._caller.service.settings.wait_max_ms)
        while True:
            await self._has_credit.wait()
            found = await self._caller.ask(
                "dequeue",
                queue=start.queue,
                max=min(self._credit, AT_ONCE),
                wait_ms=wait_ms,
                lease_ms=lease_ms,
                where=dict(start.where),
            )
            jobs = found["jobs"]
            self._held |= {job["id"]: job.get("attempt") for job in jobs}
            self._credit -= len(jobs)
            if not self._credit:
                self._has_credit.clear()
            if jobs:
                await self._out.put((jobs, []))
