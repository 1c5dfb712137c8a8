"""The runner: the handler of a worker, which turns a job into a call, and its return value into a result.

A coroutine function runs in the event loop. A plain function runs in a thread with the context variables of the call.
Functions in threads can't be interrupted. After a cancellation the runner waits for the function's end, so there are
never more functions than threads.

A failure becomes `Retry` or `Fail` of the client library, with type, message and traceback as its reason. The broker
then counts attempts and waits. An unknown task name is a failure, too, because the worker of a newer program may know
the name at the next attempt.

The same runner serves the broker in memory (memory.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from disque_py.client.results import Job
from disque_py.client.spans import float_seconds
from disque_py.client.verdict import Fail, Retry
from disque_py.tasks.context import Context, running
from disque_py.tasks.errors import SerializerError, UnknownTaskError
from disque_py.tasks.messages import ELSEWHERE, INLINE, INLINE_BYTES, failure_text, own_calls, read_body
from disque_py.tasks.middleware import Middleware
from disque_py.tasks.operations import Broker, KeepValue
from disque_py.tasks.serializers import Serializer
from disque_py.tasks.task import BaseTask

_log: Final = logging.getLogger("disque_py.tasks")


class Program(Protocol):
    """The parts of an app that its worker needs."""

    @property
    def tasks(self) -> dict[str, BaseTask[..., Any]]:
        """The tasks by name."""

    @property
    def serializer(self) -> Serializer:
        """The serializer of bodies and results."""

    @property
    def middleware(self) -> Sequence[Middleware]:
        """Code around all tasks, the outermost first."""


class Runner:
    """Runs calls of an app's tasks.

    threads   the threads for plain functions; None: these run in the thread of the event loop
    """

    def __init__(self, program: Program, broker: Broker, threads: Executor | None) -> None:
        self._program = program
        self._broker = broker
        self._threads = threads
        self.busy_threads = 0

    async def handle(self, job: Job) -> bytes | None:
        """Run the call of a job → its result. Raises Retry or Fail for a failure."""
        meta = job.meta or {}
        context = Context(
            job_id=job.id,
            queue=job.queue,
            attempt=job.delivery_count or 1,
            meta=meta,
            tell=job.progress,
            asks_canceled=lambda: job.is_canceled,
        )
        try:
            return await self.run(job.body, context)
        except BaseException as error:  # Also SystemExit, and errors of extensions. They would end the worker.
            if isinstance(error, (Retry, Fail, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)):
                raise
            task = self._task_of(job.body)
            name = "?" if task is None else task.name
            cause = (type(error), error, own_calls(error))
            _log.warning("task %s (%s) failed, attempt %d", name, job.id, context.attempt, exc_info=cause)
            raise self.verdict(task, error) from error

    def verdict(self, task: BaseTask[..., Any] | None, error: BaseException) -> Retry | Fail:
        """Return the decision about a failure: another attempt, or none."""
        if task is not None and isinstance(error, task.running.fail_on):
            return Fail(failure_text(error))
        return Retry(reason=failure_text(error))

    async def run(self, body: bytes, context: Context) -> bytes | None:
        """Run the call in a body → its result, in the form for the acknowledgement. Raises the errors of the task."""
        name, args, kwargs = read_body(self._program.serializer, body)
        task = self._program.tasks.get(name)
        if task is None:
            raise UnknownTaskError(f"this worker has no task {name!r}")
        task.bind(tuple(args), kwargs)
        context = replace(context, task=name)
        proceed: Callable[[], Awaitable[Any]] = partial(self._call, task, args, kwargs, context)
        for middleware in reversed(self._program.middleware):
            proceed = partial(middleware.running, context, proceed)
        with running(context):
            value = await proceed()
        if task.running.results is False or (value is None and not task.keeps_none):
            return None
        data = self._program.serializer.dumps(value)
        if len(data) <= INLINE_BYTES:
            return INLINE + data
        return ELSEWHERE + (await self._broker.run_async(KeepValue(context.queue or task.queue, data))).encode()

    def _task_of(self, body: bytes) -> BaseTask[..., Any] | None:
        try:
            return self._program.tasks.get(read_body(self._program.serializer, body)[0])
        except SerializerError:
            return None

    async def _call(self, task: BaseTask[..., Any], args: list[Any], kwargs: dict[str, Any], context: Context) -> Any:
        if task.is_async:
            limit = task.running.timeout
            async with nullcontext() if limit is None else asyncio.timeout(float_seconds("timeout", limit)):
                return await task.function(*args, **kwargs)
        call = partial(task.function, *args, **kwargs)
        value = call() if self._threads is None else await self._in_thread(call, context)
        return await value if inspect.isawaitable(value) else value  # A plain function may wrap a coroutine function.

    async def _in_thread(self, call: Callable[[], Any], context: Context) -> Any:
        variables = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._threads, variables.run, _without_stop, call)
        self.busy_threads += 1
        future.add_done_callback(self._thread_ended)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                # A cancellation of the job does not end its thread. Any other cancellation ends the worker. It is the
                # second one of this task if the job was canceled before.
                task = asyncio.current_task()
                is_second = task is not None and task.cancelling() > 1
                if future.done() or not context.is_canceled or is_second:
                    raise

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self.busy_threads -= 1
        if not future.cancelled():
            future.exception()  # Read it, so that no loop reports it later as unread.


def _without_stop(call: Callable[[], Any]) -> Any:
    """Call a function in a thread. Replace the errors that would end the worker there.

    A future can't hold StopIteration. KeyboardInterrupt in a thread is no Ctrl-C, because only the main thread gets
    signals, and GeneratorExit closes no coroutine.
    """
    try:
        return call()
    except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
        failure = RuntimeError(f"the task raised {type(error).__name__}")
        raise failure.with_traceback(error.__traceback__) from error  # The reason of the failure names these calls.
