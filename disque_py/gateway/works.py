"""Works: changes of many single jobs, which a gateway makes itself with commands on their ids.

Nodes can change all jobs of a queue with a status and metadata (QPURGE, QMOVE, QREDRIVE). For filters that they don't
support, such as the reason of a failure, the gateway sends a command for each job. Such a work is shown among the
operations, with its progress, and can be stopped. It belongs to its gateway process, and ends with it. Finished changes
stay, and repeating a work is safe.
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

# Ids of works begin with this text. No node's id does.
PREFIX: Final = "gateway-"
RUNNING_MAX: Final = 16
KEPT_S: Final = 3600
KEPT_MAX: Final = 1000
# The most commands in flight.
AT_ONCE: Final = 20


@dataclass(slots=True)
class Work:
    """One work.

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
        """Return the work in the form of the nodes' bulk work, with its total."""
        shape = {name: getattr(self, name) for name in ("id", "command", "queue", "state", "jobs", "failed", "total")}
        return shape | {"nodes": None, "nodes_missing": [], "started_ms": self.started_ms}


class Works:
    """The works of a gateway: running ones, and those that ended in the last hour."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    def begin(self, command: str, queue: str, principal: str, parts: list[list[str]], change: Change) -> Work:
        """Begin to change jobs. Raises RefusedError.

        command, queue, principal   for the list of works
        parts                       ids of the jobs, in the parts that `change` takes
        """
        if sum(1 for work in self.known() if not work.ended) >= RUNNING_MAX:
            raise RefusedError("LIMIT", f"too many operations of this gateway are running (at most {RUNNING_MAX})")
        now_ms = int(time.time() * 1000)
        work = Work(PREFIX + secrets.token_hex(8), command, queue, principal, sum(map(len, parts)), now_ms)
        self._works[work.id] = work
        work.task = asyncio.create_task(self._run(work, iter(parts), change))
        work.task.add_done_callback(lambda _: self._ended(work))  # It is called even if the task never ran.
        return work

    def known(self) -> list[Work]:
        """Return the works that are remembered."""
        now = time.monotonic()
        over = [work for work in self._works.values() if work.ended]
        for work in over:
            if now - work.ended > KEPT_S or len(self._works) > KEPT_MAX:
                del self._works[work.id]
        return list(self._works.values())

    def find(self, work_id: str) -> Work | None:
        """Return a work; None if it is not known."""
        return self._works.get(work_id)

    @staticmethod
    def stop(work: Work) -> bool:
        """Stop a work. Return whether it was running."""
        if work.ended or work.task is None:
            return False
        work.state = "canceled"
        work.task.cancel()
        return True

    async def close(self) -> None:
        """Stop all works."""
        for work in self._works.values():
            if self.stop(work) and work.task is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await work.task

    @staticmethod
    def _ended(work: Work) -> None:
        work.ended = time.monotonic()
        if work.state == "running":
            work.state = "aborted"

    @staticmethod
    async def _run(work: Work, parts: Iterator[list[str]], change: Change) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(_change(work, parts, change))
            work.state = "done"
        except* ReplyError:
            work.state = "aborted"  # The caller may not do this any more.


async def _change(work: Work, parts: Iterator[list[str]], change: Change) -> None:
    for part in parts:
        try:
            changed = await change(part)
        except DisqueError as error:
            if isinstance(error, ReplyError) and error.code == "NOPERM":
                raise
            changed = 0
        work.jobs += changed
        work.failed += len(part) - changed
