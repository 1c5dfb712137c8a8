"""Handles: a task that was added, its result, its progress, and its end.

    handle = add.add(20, 22)
    handle.wait(timeout=10)              # 42, in programs with threads
    await handle.result(timeout=10)      # 42, with asyncio

The node tells the end as soon as there is one (WAITJOB), so a handle asks nothing again and again. The type of the
result is the return type of the task's function. A handle holds no connection; its id is all of its state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from disque_py.client.flow_commands import JobEnd
from disque_py.client.results import JobInfo
from disque_py.client.spans import Span
from disque_py.tasks.errors import TaskCanceledError, TaskError, TaskExpiredError, TaskGoneError
from disque_py.tasks.messages import ELSEWHERE, INLINE, read_failure
from disque_py.tasks.operations import Broker, Cancel, Ends, Show
from disque_py.tasks.serializers import Serializer

R = TypeVar("R")

# A job that moved to a dead letter queue says so in its metadata.
DEAD_FROM: Final = "x-disque-from"
DEAD_ERROR: Final = "x-disque-error"


class Home(Protocol):
    """The app of a handle, as far as a handle needs it."""

    @property
    def broker(self) -> Broker:
        """The broker in use."""

    @property
    def serializer(self) -> Serializer:
        """The serializer of results."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is: 0 to 100, and its note."""

    percent: int
    note: str = ""


class Handle(Generic[R]):
    """A task that was added.

    id   the id of its job
    """

    __slots__ = ("_home", "id")

    def __init__(self, home: Home, job_id: str) -> None:
        self.id = job_id
        self._home = home

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def wait(self, timeout: Span | None = None) -> R:
        """Wait for the task, and return its result.

        timeout   seconds to wait, with a fraction, or a timedelta; None, the default: for ever

        Raises TimeoutError if it is not over in time, TaskFailedError, TaskCanceledError, TaskExpiredError,
        TaskGoneError, and the errors of the client library.
        """
        broker = self._home.broker
        end = broker.run(Ends((self.id,), timeout))[0]
        if not end.is_over:
            raise _not_over(end, broker.run(Show(self.id)))
        elsewhere = _elsewhere(end)
        return self._value(end, None if elsewhere is None else broker.run(Show(elsewhere)))

    async def result(self, timeout: Span | None = None) -> R:
        """Wait for the task, and return its result, as `wait` does."""
        broker = self._home.broker
        end = (await broker.run_async(Ends((self.id,), timeout)))[0]
        if not end.is_over:
            raise _not_over(end, await broker.run_async(Show(self.id)))
        elsewhere = _elsewhere(end)
        return self._value(end, None if elsewhere is None else await broker.run_async(Show(elsewhere)))

    def status(self) -> str:
        """Return `invisible`, `pending`, `running`, `completed`, `canceled`, `errored`, `expired` or `unknown`."""
        return self._home.broker.run(Ends((self.id,), 0.001))[0].status

    async def status_async(self) -> str:
        """Return the status, as `status` does."""
        return (await self._home.broker.run_async(Ends((self.id,), 0.001)))[0].status

    def progress(self) -> Progress | None:
        """Return how far the task is; None before it told any progress, and after its end."""
        return progress_of(self._home.broker.run(Show(self.id)))

    async def progress_async(self) -> Progress | None:
        """Return how far the task is, as `progress` does."""
        return progress_of(await self._home.broker.run_async(Show(self.id)))

    def updates(self, every: Span = 1.0) -> Iterator[Progress]:
        """Return an iterator over the task's progress, until the task is over. Equal ones are told once.

        every   seconds after which it asks again, 1 by default; nodes tell each other progress that often. The end of
                the task is told at once

        Raises the errors of the client library, and none of the task. `wait` has the result afterwards.
        """
        broker, last = self._home.broker, None
        while True:
            told = progress_of(broker.run(Show(self.id)))
            if told is not None and told != last:
                yield told
                last = told
            if broker.run(Ends((self.id,), every))[0].is_over:
                return

    async def updates_async(self, every: Span = 1.0) -> AsyncIterator[Progress]:
        """Return an asynchronous iterator over the task's progress, as `updates` does."""
        broker, last = self._home.broker, None
        while True:
            told = progress_of(await broker.run_async(Show(self.id)))
            if told is not None and told != last:
                yield told
                last = told
            if (await broker.run_async(Ends((self.id,), every)))[0].is_over:
                return

    def cancel(self) -> bool:
        """Cancel the task → whether it was known and not over. One that runs hears of it within some seconds."""
        return self._home.broker.run(Cancel(self.id)) > 0

    async def cancel_async(self) -> bool:
        """Cancel the task, as `cancel` does."""
        return await self._home.broker.run_async(Cancel(self.id)) > 0

    def _value(self, end: JobEnd, elsewhere: JobInfo | None) -> R:
        return cast("R", value_of(end, elsewhere, self._home.serializer))


def value_of(end: JobEnd, elsewhere: JobInfo | None, serializer: Serializer) -> Any:
    """Return the result of a task that is over. Raises its error."""
    if end.status == "errored":
        raise read_failure(end.error)
    if end.status == "canceled":
        raise TaskCanceledError(f"task {end.id} was canceled")
    if end.status == "expired":
        raise TaskExpiredError(f"the life of task {end.id} was over before it was done")
    if end.status != "completed":
        raise TaskGoneError(f"no node knows task {end.id}, or its result any more")
    if end.result is None:
        return None
    if _elsewhere(end) is not None:
        if elsewhere is None or elsewhere.body is None:
            raise TaskGoneError(f"the result of task {end.id} is not kept any more")
        return serializer.loads(elsewhere.body)
    if not end.result.startswith(INLINE):
        raise TaskError(f"job {end.id} was acknowledged with a result that is no task's")
    return serializer.loads(end.result[1:])


def _elsewhere(end: JobEnd) -> str | None:
    """Return the id of the job that has the result; None if the result is here, or there is none."""
    if end.status == "completed" and end.result is not None and end.result.startswith(ELSEWHERE):
        return end.result[1:].decode("ascii", "replace")
    return None


def _not_over(end: JobEnd, shown: JobInfo | None) -> Exception:
    """Return the error of a wait in vain. A dead letter is not over for the node, but it is for the program."""
    meta = (shown.meta if shown is not None else None) or {}
    if DEAD_FROM in meta:
        return read_failure(meta.get(DEAD_ERROR))
    return TimeoutError(f"task {end.id} is not over: {end.status}")


def progress_of(shown: JobInfo | None) -> Progress | None:
    """Return the progress that SHOW tells; None without any."""
    percent = None if shown is None else shown.more.get("progress")
    if shown is None or not isinstance(percent, int):
        return None
    return Progress(percent, str(shown.more.get("progress-text") or ""))
