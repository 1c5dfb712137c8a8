"""App: the tasks of a program, and the broker that they go to.

    app = App("disque://127.0.0.1:7711")

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    add.add(20, 22).wait(timeout=10)

The broker does the work: it keeps delays, counts attempts, waits between them, fires schedules, and tells results. The
app only turns calls into jobs. `disque-worker module:app` runs them (worker.py, command.py).
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
from disque_py.client.schedule_commands import Catchup, Overlap
from disque_py.client.spans import Seconds, Span
from disque_py.tasks.cluster import ClusterBroker
from disque_py.tasks.group import MANY, Group
from disque_py.tasks.handle import Handle
from disque_py.tasks.memory import Memory
from disque_py.tasks.middleware import Middleware
from disque_py.tasks.operations import Add, Broker
from disque_py.tasks.options import AddOptions, checked
from disque_py.tasks.schedules import Plan
from disque_py.tasks.serializers import JSONSerializer, Serializer
from disque_py.tasks.task import AsyncTask, BaseTask, Call, Running, Task

P = ParamSpec("P")
R = TypeVar("R")
TaskT = TypeVar("TaskT", bound="BaseTask[..., Any]")

# The nodes of an app that names none.
URL_VARIABLE: Final = "DISQUE_URL"
URL: Final = "disque://127.0.0.1:7711"


class TaskOptions(AddOptions, total=False):
    """Options of a task: those of a call, and these.

    name      its name in the app; by default that of the function
    timeout   seconds after which a coroutine is interrupted, which is a failure; by default never
    results   whether the return value is kept; by default it is unless it is None
    unique    a call with the same arguments as one that is not over is that one
    fail_on   exceptions that end the task at once, whatever attempts are left
    """

    name: str
    timeout: Span | None
    results: bool | None
    unique: bool
    fail_on: tuple[type[BaseException], ...]


class RunningOptions(TypedDict, total=False):
    """The part of TaskOptions that is no option of a call."""

    timeout: Span | None
    results: bool | None
    unique: bool
    fail_on: tuple[type[BaseException], ...]


class TaskDecorator(Protocol):
    """Makes a task of a function."""

    # A coroutine function is a function, too. The first form that fits counts.
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class ScheduleDecorator(Protocol):
    """Declares a schedule of a task; a function becomes a task first."""

    @overload
    def __call__(self, task: TaskT, /) -> TaskT: ...

    @overload
    def __call__(self, task: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """The tasks of a program.

    url          the nodes, as `disque://user:password@10.0.0.1:7711,10.0.0.2:7711/?option=value`; by default the
                 environment variable DISQUE_URL, else `disque://127.0.0.1:7711`
    name         name of the app: that of its connections, and the begin of its schedules' names; `tasks` by default
    serializer   writes and reads arguments and results; `JSONSerializer()` by default. All programs of an app need the
                 same
    middleware   code around all tasks, the outermost first; none by default
    lifespan     a function of the app that returns an asynchronous context; each worker process runs inside of it.
                 None by default
    options      options of all tasks (AddOptions), as `queue="shop"` or `attempts=10`

    The app itself is a context: `async with app:` closes its client at the end, `with app:` that for threads.

    Raises TypeError for an unknown option, ValueError for one that makes no sense.
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
        """The nodes. A worker with `--url` sets it."""
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

        options   those of TaskOptions

        Raises ValueError if another function has the name, or for an option that makes no sense; TypeError for an
        unknown option.
        """
        if function is None:
            return lambda function: self._make(function, options)
        return self._make(function, options)

    def _make(self, function: Callable[..., Any], options: TaskOptions) -> BaseTask[..., Any]:
        rest: dict[str, Any] = dict(options)
        name = rest.pop("name", None) or function.__name__
        running = Running(**{key: rest.pop(key) for key in RunningOptions.__annotations__ if key in rest})
        there = self.tasks.get(name)
        if there is not None and _place(there.function) != _place(function):
            raise ValueError(f"two tasks are called {name!r}: give one of them a name of its own")
        kind: type[BaseTask[..., Any]] = AsyncTask if inspect.iscoroutinefunction(function) else Task
        made = kind(self, function, name, cast("AddOptions", rest), running)
        self.tasks[name] = made
        return made

    def handle(self, job_id: str) -> Handle[Any]:
        """Return the handle of a task by the id of its job. `task.handle` does the same with a type."""
        return Handle(self, job_id)

    def add_many(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Add many calls in few writes → their handles, in the same order.

        calls   as `[resize.call(photo) for photo in photos]`

        Raises BatchError if some could not be added; it has the id or the error of each.
        """
        handles: list[Handle[R]] = []
        for at in range(0, len(calls), MANY):
            adds = [Add(call.message()) for call in calls[at : at + MANY]]
            handles += [Handle(self, job_id) for job_id in self.broker.run_many([*adds])]
        return handles

    async def add_many_async(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Add many calls in few writes, as `add_many` does, without blocking the event loop."""
        handles: list[Handle[R]] = []
        for at in range(0, len(calls), MANY):
            adds = [Add(call.message()) for call in calls[at : at + MANY]]
            handles += [Handle(self, job_id) for job_id in await self.broker.run_many_async([*adds])]
        return handles

    def group(self, name: str | None = None, *, callback: Call[Any] | None = None) -> Group:
        """Return a group of tasks, to be used as a context.

        name       name of its batch; by default one that no other has
        callback   a call that is added when all tasks of the group are over; None, the default: none. Its queue and
                   arguments count, and its other options are those of its queue
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
        """Call a task at the moments of a cron expression, as a decorator: `@app.schedule("*/5 * * * *")`.

        cron        five fields (minute hour day month weekday), or six with seconds in front; None: `every` is needed
        every       seconds between two calls, or a timedelta of at least a second; None, the default: `cron` is needed
        name        its name, behind that of the app; by default that of the task
        time_zone   IANA name of the zone of the expression; UTC by default
        catchup     the missed moments that get a call after all: "last", the default, "all" or "none"
        overlap     "skip": no call while the one before is not over; "allow" by default
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
                raise ValueError(f"two schedules are called {full_name!r}: give one of them a name of its own")
            self.schedules[full_name] = Plan(
                full_name, made, cron, every, time_zone, catchup, overlap, tuple(args), dict(kwargs or {})
            )
            return made

        return cast("ScheduleDecorator", declare)

    # The broker.

    @contextmanager
    def in_memory(self, *, at_once: bool = True) -> Iterator[Memory]:
        """Keep tasks in the memory of this process as long as the context lasts, for tests.

        at_once   tasks run when they are added, the default; False: they wait for `Memory.run_all`
        """
        before, self._memory = self._memory, Memory(self, at_once=at_once)
        try:
            yield self._memory
        finally:
            self._memory = before

    def async_client(self) -> AsyncDisque:
        """Return the app's client of the running event loop, for other commands than those of tasks."""
        return self._cluster.async_client()

    def close(self) -> None:
        """Close the client for threads. The next call makes another one."""
        self._cluster.close()

    async def close_async(self) -> None:
        """Close the client of the running event loop. The next call makes another one."""
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
    """Return where a function was written. A module that is loaded again declares its tasks again."""
    return function.__module__, function.__qualname__
