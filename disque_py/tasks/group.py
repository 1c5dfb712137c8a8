"""Groups: tasks that are counted together, and a task that runs when all of them are over.

    with app.group(callback=report.call("2026-11")) as group:
        for photo in photos:
            group.add(resize, photo)
    group.wait(timeout=60).completed

A group is a batch of the broker (docs/batches.md). The end of the block closes it, and only a closed group can be done.
A block that ends with an exception leaves the group open, because the group is not complete. A group without tasks is
never created, and its callback does not run. A unique task that was there before does not join the group. If this is
true for all tasks, the end of the block raises EmptyBatchError.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from disque_py.client.batch import explained
from disque_py.client.errors import BatchError, DisqueError, ReplyError
from disque_py.client.flow_commands import BatchInfo
from disque_py.client.spans import Span
from disque_py.tasks.handle import Handle
from disque_py.tasks.many import ManyAdds
from disque_py.tasks.messages import Message
from disque_py.tasks.operations import Add, BatchEnd, BatchState, CloseBatch
from disque_py.tasks.task import BaseTask, Call

if TYPE_CHECKING:
    from disque_py.tasks.app import App

P = ParamSpec("P")
R = TypeVar("R")


class Group:
    """A group of tasks, for use in a `with` or `async with` block.

    name       name of its batch
    handles    the handles of the tasks that were added here, in order
    """

    def __init__(self, app: App, name: str, callback: Call[Any] | None) -> None:
        self.name = name
        self.handles: list[Handle[Any]] = []
        self._app = app
        self._callback = callback
        self._was_closed = False

    def add(self, task: BaseTask[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a task to the group → its handle. The arguments are the task and the arguments of its function."""
        call = Call(task, args, kwargs)
        return self._added([(call, self._app.broker.run(Add(self._message(call))))])[0]

    async def add_async(self, task: BaseTask[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a task to the group → its handle, without blocking the event loop."""
        call = Call(task, args, kwargs)
        return self._added([(call, await self._app.broker.run_async(Add(self._message(call))))])[0]

    def add_many(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Add many calls in few writes → their handles, in the same order.

        Raises BatchError if some failed. `handles` of the group have those that were added.
        """
        many = ManyAdds(calls, self._message)
        for adds in many.parts():
            try:
                many.add_outcomes(self._app.broker.run_many([*adds]))
            except BatchError as error:
                many.add_outcomes(error.results)
        return self._added_many(many)

    async def add_many_async(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Add many calls in few writes → their handles, without blocking the event loop."""
        many = ManyAdds(calls, self._message)
        for adds in many.parts():
            try:
                many.add_outcomes(await self._app.broker.run_many_async([*adds]))
            except BatchError as error:
                many.add_outcomes(error.results)
        return self._added_many(many)

    def close(self) -> None:
        """Close the group, so that it takes no more tasks. The end of the `with` block calls this.

        Raises EmptyBatchError if each task was there before, as a unique task. Then wait for the `handles`.
        """
        try:
            self._app.broker.run(self._closing())
        except ReplyError as error:
            raise self._explained(error) from error
        self._was_closed = True

    async def close_async(self) -> None:
        """Close the group, as `close` does."""
        try:
            await self._app.broker.run_async(self._closing())
        except ReplyError as error:
            raise self._explained(error) from error
        self._was_closed = True

    def info(self) -> BatchInfo | None:
        """Return the number of tasks by status; None if there is no such group."""
        return self._app.broker.run(BatchState(self.name))

    async def info_async(self) -> BatchInfo | None:
        """Return the number of tasks by status, as `info` does."""
        return await self._app.broker.run_async(BatchState(self.name))

    def wait(self, timeout: Span | None = None) -> BatchInfo:
        """Wait until all tasks are over → the number of tasks by status. Errors of tasks are counted, not raised.

        timeout   seconds to wait, or a timedelta; None, the default: for ever

        Raises TimeoutError if they are not over in time, ReplyError if there is no such group, EmptyBatchError if each
        task was there before, as a unique task.
        """
        try:
            return self._done(self._app.broker.run(BatchEnd(self.name, timeout)))
        except ReplyError as error:
            raise self._explained(error) from error

    async def wait_async(self, timeout: Span | None = None) -> BatchInfo:
        """Wait until all tasks are over, as `wait` does."""
        try:
            return self._done(await self._app.broker.run_async(BatchEnd(self.name, timeout)))
        except ReplyError as error:
            raise self._explained(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.handles:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.handles:
            await self.close_async()

    def _message(self, call: Call[Any]) -> Message:
        message = call.message()
        message.options["batch"] = self.name
        return message

    def _added(self, added: list[tuple[Call[Any], str]]) -> list[Handle[Any]]:
        found = [call.task.handle(job_id) for call, job_id in added]
        self.handles += found
        return found

    def _added_many(self, many: ManyAdds) -> list[Handle[Any]]:
        handles = self._added(many.added)
        many.check()
        return handles

    def _explained(self, error: ReplyError) -> DisqueError:
        """Return the error of a command on the group's batch."""
        if self._was_closed:  # There was a batch. It is not kept any more.
            return error
        return explained(error, self.name, [handle.id for handle in self.handles])

    def _closing(self) -> CloseBatch:
        return CloseBatch(self.name, None if self._callback is None else self._callback.message())

    def _done(self, info: BatchInfo | None) -> BatchInfo:
        if info is None or not info.done:
            state = "was deleted" if info is None else "is not done"
            raise TimeoutError(f"group {self.name} {state}")
        return info
