"""App: the tasks of a program, and the broker that runs them.

    app = App("disque://127.0.0.1:7711")

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    add.add(20, 22).wait(timeout=10)

The broker keeps delays, counts attempts, waits between them, fires schedules, and returns results. The app only turns
calls into jobs. `disque-worker module:app` runs them (worker.py, command.py).
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, cast, overload

from disque_py.client.aio import AsyncDisque
from disque_py.client.errors import BatchError
from disque_py.client.schedule_commands import Catchup, Overlap
from disque_py.client.spans import Seconds, Span
from disque_py.tasks.cluster import ClusterBroker
from disque_py.tasks.group import Group
from disque_py.tasks.handle import Handle
from disque_py.tasks.many import ManyAdds
from disque_py.tasks.memory import Memory
from disque_py.tasks.middleware import Middleware
from disque_py.tasks.operations import Broker
from disque_py.tasks.options import AddOptions, checked
from disque_py.tasks.schedules import Plan
from disque_py.tasks.serializers import JSONSerializer, Serializer
from disque_py.tasks.task import AsyncTask, BaseTask, Call, Running, Task

P = ParamSpec("P")
R = TypeVar("R")
TaskT = TypeVar("TaskT", bound="BaseTask[..., Any]")

# The environment variable with the URL of an app that has no `url`.
URL_VARIABLE: Final = "DISQUE_URL"
URL: Final = "disque://127.0.0.1:7711"


class TaskOptions(AddOptions, total=False):
    """Options of a task: those of a call (AddOptions), and these.

    name      its name in the app; by default that of the function
    timeout   seconds after which a coroutine is interrupted, which is a failure; by default never
    results   whether the return value is kept. By default it is kept, but None only if the function's annotation says
              that it returns a value
    unique    True: while a call is not over, another call with the same arguments returns the first one's handle. False
              by default
    fail_on   exceptions that end the task immediately, even if attempts are left; none by default
    """

    name: str
    timeout: Span | None
    results: bool | None
    unique: bool
    fail_on: tuple[type[BaseException], ...]


class RunningOptions(TypedDict, total=False):
    """The part of TaskOptions that is not an option of a call."""

    timeout: Span | None
    results: bool | None
    unique: bool
    fail_on: tuple[type[BaseException], ...]


class TaskDecorator(Protocol):
    """Makes a task of a function."""

    # A coroutine function is a function, too, so its form comes first.
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class ScheduleDecorator(Protocol):
    """Declares a schedule of a task. A plain function becomes a task first."""

    @overload
    def __call__(self, task: TaskT, /) -> TaskT: ...

    @overload
    def __call__(self, task: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """The tasks of a program.

    url          the nodes: `disque://user:password@10.0.0.1:7711,10.0.0.2:7711/?option=value`; by default the
                 environment variable DISQUE_URL, else `disque://127.0.0.1:7711`
    name         name of the app, which its connections have, and with which the names of its schedules begin; `tasks`
                 by default
    serializer   writes and reads arguments and results; `JSONSerializer()` by default. All programs of an app need the
                 same one
    middleware   code around all tasks, the outermost first; none by default
    lifespan     a function that takes the app and returns an asynchronous context; each worker process runs inside it.
                 None by default
    options      options of all tasks (AddOptions), such as `queue="shop"` or `attempts=10`

    The app is a context: `async with app:` closes its asyncio client at the end, and `with app:` its blocking client.

    Raises TypeError for an unknown option, ValueError for an invalid one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "tasks",
        serializer: Serializer | None = None,
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[App], AbstractAsyncContextManager[Any]] | None = None,
        **options: Unpack[AddOptions],
    ) -> None:
        self.name = name
        self.serializer: Serializer = serializer or JSONSerializer()
        self.middleware: Sequence[Middleware] = tuple(middleware)
        self.lifespan = lifespan
        self.options = checked(options)
        self.tasks: dict[str, BaseTask[..., Any]] = {}
        self.schedules: dict[str, Plan] = {}
        self._cluster = ClusterBroker(url or os.environ.get(URL_VARIABLE) or URL, name)
        self._memory: Memory | None = None

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self.tasks)} tasks>"

    @property
    def url(self) -> str:
        """The URL of the nodes. A worker with `--url` sets it."""
        return self._cluster.url

    @url.setter
    def url(self, url: str) -> None:
        self._cluster = ClusterBroker(url, self.name)

    @property
    def broker(self) -> Broker:
        """The broker in use: the nodes, or the memory of a test."""
        return self._cluster if self._memory is None else self._memory

    @property
    def queues(self) -> list[str]:
        """The queues of all tasks, in the order of their declaration."""
        return list(dict.fromkeys(task.queue for task in self.tasks.values()))

    # Tasks.

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Make a task of a function, as a decorator: `@app.task` or `@app.task(attempts=10)`.

        options   the options of TaskOptions

        Raises ValueError if another function has the name, or for an invalid option; TypeError for an unknown option.
        """
        if function is None:
            return lambda function: self._make(function, options)
        return self._make(function, options)

    def _make(self, function: Callable[..., Any], options: TaskOptions) -> BaseTask[..., Any]:
        if isinstance(function, Task | AsyncTask):  # A task of another app.
            function = function.function
        rest: dict[str, Any] = dict(options)
        name = rest.pop("name", None) or function.__name__
        running = Running(**{key: rest.pop(key) for key in RunningOptions.__annotations__ if key in rest})
        there = self.tasks.get(name)
        if there is not None and _place(there.function) != _place(function):
            raise ValueError(f"two tasks are called {name!r}: give one of them another name")
        kind: type[BaseTask[..., Any]] = AsyncTask if inspect.iscoroutinefunction(function) else Task
        made = kind(self, function, name, cast("AddOptions", rest), running)
        self.tasks[name] = made
        return made

    def handle(self, job_id: str) -> Handle[Any]:
        """Return the handle of a task by the id of its job. `task.handle` does the same with a type."""
        return Handle(self, job_id)

    def add_many(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Add many calls in few writes → their handles, in the same order.

        calls   the calls, such as `[resize.call(photo) for photo in photos]`

        Raises BatchError if some could not be added. The others were added: its `results` have the id or the error of
        each call.
        """
        many = ManyAdds(calls, Call.message)
        for adds in many.parts():
            try:
                many.add_outcomes(self.broker.run_many([*adds]))
            except BatchError as error:
                many.add_outcomes(error.results)
        many.check()
        return [call.task.handle(job_id) for call, job_id in many.added]

    async def add_many_async(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Add many calls in few writes, as `add_many` does, without blocking the event loop."""
        many = ManyAdds(calls, Call.message)
        for adds in many.parts():
            try:
                many.add_outcomes(await self.broker.run_many_async([*adds]))
            except BatchError as error:
                many.add_outcomes(error.results)
        many.check()
        return [call.task.handle(job_id) for call, job_id in many.added]

    def group(self, name: str | None = None, *, callback: Call[Any] | None = None) -> Group:
        """Return a group of tasks, for use in a `with` block.

        name       name of its batch; by default a unique name
        callback   a call that is added when all tasks of the group are over; None, the default: none. Only its queue
                   and its arguments are used; its other options are those of its queue

        Example: `with app.group(callback=report.call()) as group: group.add(resize, photo)`
        """
        return Group(self, name or f"{self.name}-{uuid.uuid4().hex}", callback)

    # Schedules.

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Seconds | None = None,
        name: str | None = None,
        time_zone: str = "UTC",
        catchup: Catchup = "last",
        overlap: Overlap = "allow",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> ScheduleDecorator:
        """Call a task at the times of a cron expression, as a decorator: `@app.schedule("*/5 * * * *")`.

        cron        five fields (minute hour day month weekday), or six with seconds first; None: `every` is needed
        every       seconds between two calls, or a timedelta of at least a second; None, the default: `cron` is needed
        name        its name, which follows that of the app; by default the name of the task
        time_zone   IANA name of the expression's time zone; UTC by default
        catchup     the missed times that get their call later: "last", the default, "all" or "none"
        overlap     "skip": no call while the previous one is not over; "allow" by default
        args        arguments of the calls; none by default
        kwargs      keyword arguments of the calls; none by default

        A function without `@app.task` becomes a task. A worker of the app installs the schedule when it starts. Raises
        ValueError for a name that is taken, TypeError for arguments that do not fit.
        """

        def declare(task: Any) -> Any:
            made: BaseTask[..., Any] = task if isinstance(task, BaseTask) else self._make(task, {})
            full_name = f"{self.name}:{name or made.name}"
            there = self.schedules.get(full_name)
            if there is not None and _place(there.task.function) != _place(made.function):
                raise ValueError(f"two schedules are called {full_name!r}: give one of them another name")
            self.schedules[full_name] = Plan(
                full_name, made, cron, every, time_zone, catchup, overlap, tuple(args), dict(kwargs or {})
            )
            return made

        return cast("ScheduleDecorator", declare)

    # The broker.

    @contextmanager
    def in_memory(self, *, at_once: bool = True) -> Iterator[Memory]:
        """Keep tasks in the memory of this process while the context lasts, for tests.

        at_once   True, the default: tasks run when they are added. False: they wait for `Memory.run_all`

        Example: `with app.in_memory(): assert add.add(20, 22).wait() == 42`
        """
        before, self._memory = self._memory, Memory(self, at_once=at_once)
        try:
            yield self._memory
        finally:
            self._memory = before

    def async_client(self) -> AsyncDisque:
        """Return the app's client in the running event loop, for commands that have nothing to do with tasks."""
        return self._cluster.async_client()

    def close(self) -> None:
        """Close the blocking client. The next call makes a new one."""
        self._cluster.close()

    async def close_async(self) -> None:
        """Close the client of the running event loop. The next call makes a new one."""
        await self._cluster.close_async()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()
        self.close()


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the place where a function is defined. A module that is loaded again declares its tasks again."""
    return function.__module__, function.__qualname__
