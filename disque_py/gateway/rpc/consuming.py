"""Consuming: one stream has messages, as long as there is credit, and their settlements.

The first request names the queue. Each request may add credit and settle messages. The stream waits for messages while
there is credit. When it ends, for any reason, messages that were not settled go back to the queue.

Settlements that arrive while others are in flight are sent together, in one pipeline. So a consumer may settle each
message in a separate request without a round trip to the nodes for each. All messages come from the queue of the
stream, so the consumer needs the role on that queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

from disque_py.client import DisqueError, Job, commands
from disque_py.client.request import Request
from disque_py.gateway.actions.calls import Call
from disque_py.gateway.actions.jobs import fail_request, sent, taken
from disque_py.gateway.operations import BY_NAME, QUEUE
from disque_py.gateway.problems import RefusedError, refusal_of
from disque_py.gateway.rpc.calls import Caller

# The most messages of one GETJOB, and of one command that puts messages back.
AT_ONCE: Final = 100
CREDIT_MAX: Final = 10_000
WAIT_MS: Final = 5_000
PUT_BACK_S: Final = 5.0
SETTLING: Final = {name: replace(BY_NAME[name], scope="queue", arguments=(QUEUE,)) for name in ("complete", "fail")}
# The lease of the message is over, and another consumer has the message.
OVER: Final = ("STALE", "FENCED")

Part = tuple[list[Job], list[str]]


# A message without its body, and the consumer's settlement.
Settlement = tuple[Job, Any]


class Consumption:
    """One consumer's stream."""

    def __init__(self, caller: Caller, requests: AsyncIterator[Any]) -> None:
        self._caller = caller
        self._requests = requests
        self._queue = ""
        self._credit = 0
        self._has_credit = asyncio.Event()
        self._held: dict[str, Job] = {}
        self._due: list[Settlement] = []
        self._has_due = asyncio.Event()
        self._wrong: RefusedError | None = None
        self._has_ended = False
        self._out: asyncio.Queue[Part | BaseException | None] = asyncio.Queue(2)
        self._tasks: list[asyncio.Task[None]] = []

    async def parts(self) -> AsyncIterator[Part]:
        """Yield messages and ids of settled ones. Raises RefusedError."""
        first = await anext(aiter(self._requests), None)
        if first is None:
            return
        if not first.HasField("start"):
            raise RefusedError("ERR", "the first request must have start")
        self._queue = first.start.queue
        for work in (self._take(first.start), self._listen(first), self._settle_all()):
            self._tasks.append(asyncio.create_task(self._guarded(work)))
        while (part := await self._out.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part

    async def close(self) -> None:
        """Put back the messages that were not settled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        held = [*self._held.values(), *(each for each, _ in self._due)]
        if held:
            # Each job names its delivery. If its lease is over and another consumer has it, that consumer keeps it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PUT_BACK_S):
                    # Each job needs a command, and thousands at a time would hold up the other callers.
                    for start in range(0, len(held), AT_ONCE):
                        with contextlib.suppress(DisqueError):
                            await self._caller.principal.client.put_back(held[start : start + AT_ONCE])

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            await self._out.put(error)

    # -- the consumer's requests ---------------------------------------------------------------------

    async def _listen(self, first: Any) -> None:
        self._hear(first)
        async for request in self._requests:
            self._hear(request)
        self._has_ended = True
        self._has_due.set()

    def _hear(self, request: Any) -> None:
        if request.credit < 0:
            self._wrong = RefusedError("ERR", "credit must be 0 or more")
            self._has_due.set()
            return
        self._credit = min(CREDIT_MAX, self._credit + request.credit)
        if self._credit:
            self._has_credit.set()
        for settlement in request.settlements:
            held = self._held.pop(settlement.id, None)
            if held is None:
                self._wrong = RefusedError("ERR", f"this stream does not have the message {settlement.id[:64]}")
            else:
                self._due.append((held, settlement))
        if request.settlements:
            self._has_due.set()

    # -- settlements ---------------------------------------------------------------------------------

    async def _settle_all(self) -> None:
        """Settle messages until the stream ends. The last settlements come before its end."""
        while True:
            await self._has_due.wait()
            self._has_due.clear()
            due = self._due
            if due:
                await self._settle(due)
            if self._wrong is not None:
                raise self._wrong
            if self._has_ended and not self._due:
                await self._out.put(None)
                return

    async def _settle(self, due: list[Settlement]) -> None:
        """Settle messages. Messages that can't be settled go back at the end of the stream."""
        self._due = []
        settled: list[str] = []
        try:
            for name in SETTLING:
                chosen = [each for each in due if each[1].failed == (name == "fail")]
                if chosen:
                    await self._send(name, chosen, settled)
        finally:
            done = set(settled)
            self._held |= {held.id: held for held, _ in due if held.id not in done}
        await self._out.put(([], settled))

    async def _send(self, name: str, due: list[Settlement], settled: list[str]) -> None:
        """Send the commands in one pipeline, and note the ids of settled messages. Raises RefusedError."""
        requests = [self._request(held, settlement) for held, settlement in due]

        async def work(call: Call) -> list[Any]:
            return await sent(call, requests)

        found = await self._caller.ask_by(SETTLING[name], work, queue=self._queue)
        wrong: RefusedError | None = None
        for (held, settlement), outcome in zip(due, found, strict=True):
            if isinstance(outcome, Exception):
                refused = refusal_of(outcome)
                if refused.code not in OVER:
                    wrong = refused
                    continue
            elif not outcome and settlement.failed:
                await self._fail_elsewhere(held, settlement)
            settled.append(held.id)
        if wrong is not None:
            raise wrong

    def _request(self, held: Job, settlement: Any) -> Request[int]:
        if settlement.failed:
            args = self._caller.call("fail", self._failure(held, settlement)).args
            request = fail_request(args | {"fence": held.fence})
        else:
            request = commands.ack(held.id, attempt=held.attempt, fence=held.fence)
        request.node = held.node
        return request

    async def _fail_elsewhere(self, held: Job, settlement: Any) -> None:
        """Give a message back on another node, because the node that delivered it does not know it any more."""
        try:
            await self._caller.ask("fail", **self._failure(held, settlement))
        except RefusedError as error:
            if error.code not in OVER:
                raise

    @staticmethod
    def _failure(held: Job, settlement: Any) -> dict[str, Any]:
        delay_ms = settlement.delay_ms if settlement.HasField("delay_ms") else None
        return {"id": held.id, "attempt": held.attempt, "reason": settlement.reason, "delay_ms": delay_ms}

    # -- messages ------------------------------------------------------------------------------------

    async def _take(self, start: Any) -> None:
        lease_ms = start.lease_ms if start.HasField("lease_ms") else None
        wait_ms = min(WAIT_MS, self._caller.service.settings.wait_max_ms)
        where = dict(start.where)
        while True:
            await self._has_credit.wait()
            found = await self._caller.ask_by(
                BY_NAME["dequeue"],
                taken,
                queue=start.queue,
                max=min(self._credit, AT_ONCE),
                wait_ms=wait_ms,
                lease_ms=lease_ms,
                where=where,
            )
            self._held |= {job.id: replace(job, body=b"", meta=None) for job in found}
            self._credit -= len(found)
            if not self._credit:
                self._has_credit.clear()
            if found:
                await self._out.put((found, []))
