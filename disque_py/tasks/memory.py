"""The broker in memory: tasks in tests, without nodes.

    with app.in_memory() as memory:
        assert add.add(20, 22).wait() == 42

A task runs immediately, in `add`. With `at_once=False` it waits in a list until `run_all`. Arguments and results pass
through the serializer, so a test finds values that the serializer does not support. Attempts follow each other without
a pause. Delays are ignored, but a test can read them in the message. Keys, groups and callbacks work as with nodes.
There is no clock, so there are no TTLs, windows and schedules.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from disque_py.client.errors import BatchClosedError, ReplyError
from disque_py.client.flow_commands import OVER, BatchInfo, EndStatus, JobEnd
from disque_py.client.results import JobInfo
from disque_py.client.verdict import Fail, Retry
from disque_py.tasks.context import Context
from disque_py.tasks.messages import Message, failure_text, read_body
from disque_py.tasks.operations import (
    Add,
    BatchEnd,
    BatchState,
    Broker,
    Cancel,
    CloseBatch,
    Ends,
    KeepValue,
    Operation,
    Show,
)
from disque_py.tasks.options import ATTEMPTS
from disque_py.tasks.runner import Program, Runner

T = TypeVar("T")

# The number of attempts for `attempts=None`, which leaves it to the settings of the queue. There are none here.
ATTEMPTS_MAX: Final = 100


@dataclass(slots=True)
class Kept:
    """A task in memory.

    message   the message that was added
    status    its status, as in WAITJOB
    error     the exception of its last attempt
    """

    id: str
    message: Message
    status: EndStatus = "pending"
    result: bytes | None = None
    error: BaseException | None = None
    reason: str | None = None
    attempt: int = 0
    progress: tuple[int, str] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is over, or errored."""
        return self.status in OVER


@dataclass(slots=True)
class Counted:
    """A group in memory."""

    job_ids: list[str] = field(default_factory=list)
    is_closed: bool = False
    callback: Message | None = None
    callback_id: str | None = None


class Memory(Broker):
    """A broker in the memory of this process; `App.in_memory` makes it.

    at_once   whether tasks run when they are added
    tasks     all tasks that were added, in order
    """

    is_live = False

    def __init__(self, program: Program, *, at_once: bool) -> None:
        self.at_once = at_once
        self.tasks: list[Kept] = []
        self._waiting: deque[Kept] = deque()
        self._by_id: dict[str, Kept] = {}
        self._keys: dict[tuple[str, str], Kept] = {}
        self._groups: dict[str, Counted] = {}
        self._values: dict[str, bytes] = {}
        self._ids = itertools.count(1)
        self._program = program
        self._inline = Runner(program, self, None)

    # For tests.

    def run_all(self) -> int:
        """Run all waiting tasks, and the tasks that they add → number of tasks that ran."""
        count = 0
        while (kept := self._next()) is not None:
            _finish(self._play(kept))
            count += 1
        return count

    async def run_all_async(self) -> int:
        """Run all waiting tasks, as `run_all` does, in the running event loop."""
        count = 0
        while (kept := self._next()) is not None:
            await self._play(kept)
            count += 1
        return count

    def calls(self) -> list[tuple[str, list[Any], dict[str, Any]]]:
        """Return name, arguments and keyword arguments of all tasks that were added."""
        return [read_body(self._program.serializer, kept.message.body) for kept in self.tasks]

    # The broker.

    def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
        answer = self._answer(operation)
        if self.at_once:
            self.run_all()
        return cast("T", self._later(operation) if answer is None else answer)

    async def run_async(self, operation: Operation[T]) -> T:
        """Run an operation; coroutines run in this event loop."""
        answer = self._answer(operation)
        if self.at_once:
            await self.run_all_async()
        return cast("T", self._later(operation) if answer is None else answer)

    def run_many(self, operations: list[Operation[T]]) -> list[T]:
        """Run many operations."""
        return [self.run(operation) for operation in operations]

    async def run_many_async(self, operations: list[Operation[T]]) -> list[T]:
        """Run many operations."""
        return [await self.run_async(operation) for operation in operations]

    def _answer(self, operation: Operation[Any]) -> Any:
        """Execute an operation that changes something. None: the answer depends on tasks that may run first."""
        match operation:
            case Add(message):
                return self._add(message)
            case Cancel(job_id):
                kept = self._by_id.get(job_id)
                if kept is None or kept.is_over:
                    return 0
                kept.status = "canceled"
                self._end_groups()
                return 1
            case KeepValue(data=data):
                job_id = f"M-value-{next(self._ids)}"
                self._values[job_id] = data
                return job_id
            case CloseBatch(name, callback):
                group = self._group(name)
                if not group.is_closed:
                    group.is_closed, group.callback = True, callback
                self._end_groups()
                return "OK"
        return None

    def _later(self, operation: Operation[Any]) -> Any:
        match operation:
            case Ends(job_ids):
                return [self._end(job_id) for job_id in job_ids]
            case Show(job_id):
                return self._shown(job_id)
            case BatchEnd(name):
                return self._counts(name, self._group(name))
            case BatchState(name):
                return self._counts(name, self._groups[name]) if name in self._groups else None
        raise TypeError(f"not an operation: {operation!r}")

    def _add(self, message: Message) -> str:
        options = message.options
        place = (message.queue, options.get("key", ""))
        holder = self._keys.get(place) if place[1] else None
        is_free = options.get("replace") or (holder is not None and holder.is_over and "window" in options)
        if holder is not None and not is_free:
            return holder.id
        group = self._groups.setdefault(options["batch"], Counted()) if options.get("batch") else None
        if group is not None and group.is_closed:
            raise BatchClosedError("CLOSED The batch is closed")
        if holder is not None and holder.status == "pending":
            holder.status = "canceled"
        kept = Kept(f"M-{next(self._ids)}", message)
        self.tasks.append(kept)
        self._waiting.append(kept)
        self._by_id[kept.id] = kept
        if place[1]:
            self._keys[place] = kept
        if group is not None:
            group.job_ids.append(kept.id)
        return kept.id

    def _next(self) -> Kept | None:
        while self._waiting:
            kept = self._waiting.popleft()
            if kept.status == "pending":
                return kept
        return None

    async def _play(self, kept: Kept) -> None:
        """Run a task until it is over."""
        kept.status = "running"
        attempts = kept.message.options.get("attempts", ATTEMPTS) or ATTEMPTS_MAX
        while kept.status == "running":
            kept.attempt += 1
            context = Context(
                job_id=kept.id,
                queue=kept.message.queue,
                attempt=kept.attempt,
                meta=kept.message.options.get("meta", {}),
                tell=lambda percent, note: setattr(kept, "progress", (percent, note)),
                asks_canceled=lambda: kept.status == "canceled",
            )
            try:
                kept.result = await self._inline.run(kept.message.body, context)
            except (Exception, SystemExit) as error:  # As in a worker (runner.py).
                kept.error = error
                task = self._program.tasks.get(kept.message.task)
                verdict = error if isinstance(error, (Retry, Fail)) else self._inline.verdict(task, error)
                kept.reason = verdict.reason or failure_text(error)
                if isinstance(verdict, Fail) or kept.attempt >= attempts:
                    kept.status = "errored"
            else:
                kept.status = "completed"
        self._end_groups()

    def _end_groups(self) -> None:
        """Add the callbacks of the groups that are done by now."""
        for group in self._groups.values():
            if group.callback is not None and group.callback_id is None and self._is_done(group):
                group.callback_id = self._add(group.callback)

    def _is_done(self, group: Counted) -> bool:
        return group.is_closed and all(self._by_id[job_id].is_over for job_id in group.job_ids)

    def _group(self, name: str) -> Counted:
        if name not in self._groups:
            raise ReplyError("ERR no such batch")
        return self._groups[name]

    def _end(self, job_id: str) -> JobEnd:
        kept = self._by_id.get(job_id)
        if kept is None:
            return JobEnd(job_id, "unknown", None, None)
        return JobEnd(job_id, kept.status, kept.result, kept.reason if kept.status == "errored" else None)

    def _shown(self, job_id: str) -> JobInfo | None:
        body, kept = self._values.get(job_id), self._by_id.get(job_id)
        if body is None and kept is None:
            return None
        percent, note = kept.progress or (None, None) if kept is not None and kept.status == "running" else (None, None)
        return JobInfo(
            id=job_id,
            queue=None if kept is None else kept.message.queue,
            state="active",
            repl=1,
            ttl=0,
            ctime=0,
            delay=0,
            retry=0,
            nacks=0,
            additional_deliveries=0,
            nodes_delivered=[],
            nodes_confirmed=[],
            next_requeue_within=None,
            next_awake_within=None,
            body=kept.message.body if kept is not None else body,
            progress=percent,
            progress_text=note,
        )

    def _counts(self, name: str, group: Counted) -> BatchInfo:
        statuses = [self._by_id[job_id].status for job_id in group.job_ids]
        return BatchInfo(
            name=name,
            closed=group.is_closed,
            total=len(statuses),
            invisible_or_pending=statuses.count("pending"),
            running=statuses.count("running"),
            completed=statuses.count("completed"),
            canceled=statuses.count("canceled"),
            errored=statuses.count("errored"),
            expired=0,
            done=self._is_done(group),
            callback=group.callback_id,
        )


def _finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, in this thread, or in another one if an event loop is running here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(coroutine)
        return
    thread = threading.Thread(target=asyncio.run, args=(coroutine,), name="disque-tasks-in-memory")
    thread.start()
    thread.join()
