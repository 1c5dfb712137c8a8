"""Middleware: code around the adding and the running of all tasks of an app.

    class Timing(Middleware):
        async def running(self, context, proceed):
            began = time.monotonic()
            try:
                return await proceed()
            finally:
                print(context.task, time.monotonic() - began)

The first middleware of an app is the outermost. `adding` must be quick and must not block, because it is also called in
event loops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from disque_py.tasks.context import Context
from disque_py.tasks.messages import Message

Proceed: TypeAlias = "Callable[[], Awaitable[Any]]"


class Middleware:
    """Code around all tasks of an app. Override the methods that you need."""

    def adding(self, message: Message) -> None:
        """Handle a message before it is added; the method may change it. `add` raises any exception of this method."""

    async def running(self, context: Context, proceed: Proceed) -> Any:
        """Run a task: `await proceed()` returns its result, or raises its error. Return the result.

        An exception of this method is a failure of the task. This method runs in the worker's event loop, also if the
        task's function runs in a thread.
        """
        return await proceed()
