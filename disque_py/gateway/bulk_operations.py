"""Bulk operations: changes of many single jobs, which a gateway makes itself with commands on their ids.

Nodes can change all jobs of a queue with a status and metadata (QPURGE, QMOVE, QREDRIVE). For filters that they don't
support, such as the reason of a failure, the gateway sends a command for each job. Such a bulk operation is shown with
those of the nodes, with its progress, and can be stopped. It belongs to its gateway process, and ends with it.
Finished changes stay, and it is safe to repeat a bulk operation.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from disque_py.client import DisqueError, ReplyError
from disque_py.gateway.problems import RefusedError

# A function that changes jobs, and returns how many it changed.
Change = Callable[[list[str]], Awaitable[int]]

# Ids of bulk operations begin with this text. No node's id does.
PREFIX: Final = "gateway-"
RUNNING_MAX: Final = 16
KEPT_S: Final = 3600
KEPT_MAX: Final = 1000
# The most commands in flight.
AT_ONCE: Final = 20


@dataclass(slots=True)
class BulkOperation:
    """One bulk operation.

    state       `running`, `done`, `canceled` or `aborted`, as for a node's task
    jobs        number of jobs that were changed
    failed      number of jobs that were left out: over, with a worker, or refused
    total       number of all its jobs
    principal   name of its caller
    ended       monotonic seconds of its end; 0: it is running
    """

    id: str
    command: str
    queue: str
    principal: str
    total: int
    started_ms: int
    state: str = "running"
    jobs: int = 0
    failed: int = 0
    ended: float = 0.0
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def shape(self) -> dict[str, Any]:
        """Return the operation in the form of the nodes' tasks, with its total."""
        shape = {name: getattr(self, name) for name in ("id", "command", "queue", "state", "jobs", "failed", "total")}
        return shape | {"nodes": None, "nodes_missing": [], "started_ms": self.started_ms}


class BulkOperations:
    """The bulk operations of a gateway: running ones, and those that ended in the last hour."""

    def __init__(self) -> None:
        self._operations: dict[str, BulkOperation] = {}

    def begin(self, command: str, queue: str, principal: str, parts: list[list[str]], change: Change) -> BulkOperation:
        """Begin to change jobs. Raises RefusedError.

        command, queue, principal   for the list of operations
        parts                       ids of the jobs, in the parts that `change` takes
        """
        if sum(1 for bulk in self.known() if not bulk.ended) >= RUNNING_MAX:
            raise RefusedError("LIMIT", f"too many operations of this gateway are running (at most {RUNNING_MAX})")
        now_ms = int(time.time() * 1000)
        bulk = BulkOperation(PREFIX + secrets.token_hex(8), command, queue, principal, sum(map(len, parts)), now_ms)
        self._operations[bulk.id] = bulk
        bulk.task = asyncio.create_task(self._run(bulk, iter(parts), change))
        bulk.task.add_done_callback(lambda _: self._ended(bulk))  # It is called even if the task never ran.
        return bulk

    def known(self) -> list[BulkOperation]:
        """Return the bulk operations that are remembered."""
        now = time.monotonic()
        over = [bulk for bulk in self._operations.values() if bulk.ended]
        for bulk in over:
            if now - bulk.ended > KEPT_S or len(self._operations) > KEPT_MAX:
                del self._operations[bulk.id]
        return list(self._operations.values())

    def find(self, operation_id: str) -> BulkOperation | None:
        """Return a bulk operation; None if it is not known."""
        return self._operations.get(operation_id)

    @staticmethod
    def stop(bulk: BulkOperation) -> bool:
        """Stop a bulk operation. Return whether it was running."""
        if bulk.ended or bulk.task is None:
            return False
        bulk.state = "canceled"
        bulk.task.cancel()
        return True

    async def close(self) -> None:
        """Stop all bulk operations."""
        for bulk in self._operations.values():
            if self.stop(bulk) and bulk.task is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await bulk.task

    @staticmethod
    def _ended(bulk: BulkOperation) -> None:
        bulk.ended = time.monotonic()
        if bulk.state == "running":
            bulk.state = "aborted"

    @staticmethod
    async def _run(bulk: BulkOperation, parts: Iterator[list[str]], change: Change) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(_change(bulk, parts, change))
            bulk.state = "done"
        except* ReplyError:
            bulk.state = "aborted"  # The caller may not do this any more.


async def _change(bulk: BulkOperation, parts: Iterator[list[str]], change: Change) -> None:
    for part in parts:
        try:
            changed = await change(part)
        except DisqueError as error:
            if isinstance(error, ReplyError) and error.code == "NOPERM":
                raise
            changed = 0
        bulk.jobs += changed
        bulk.failed += len(part) - changed
