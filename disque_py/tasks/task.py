"""Tasks: functions that may also run elsewhere, and calls of them.

`task(…)` runs the function here. `task.add(…)` sends the call to the broker, after its arguments were checked against
the function's signature. Both take the parameters of the function, and type checkers see them (`ParamSpec`).
`task.options(…)` is the same task with other options. `task.call(…)` is a call as a value, for groups and for many
calls together.

`Task` is a plain function, which runs in a thread of the worker. `AsyncTask` is a coroutine function, which runs in the
worker's event loop.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from disque_py.client.spans import Span, float_seconds
from disque_py.tasks.handle import Handle
from disque_py.tasks.messages import Message, write_body
from disque_py.tasks.operations import Add
from disque_py.tasks.options import AddOptions, arguments, checked, merged

if TYPE_CHECKING:
    from disque_py.tasks.app import App

P = ParamSpec("P")
R = TypeVar("R")

# The queue of tasks that name none.
QUEUE: Final = "default"


@dataclass(frozen=True, slots=True)
class Running:
    """The settings of a task that only its worker needs.

    timeout   seconds after which a coroutine is interrupted, which is a failure; None: never
    results   whether the return value is kept; None: BaseTask.keeps_none decides about None, and others are kept
    unique    whether another call with the same arguments returns the first one's handle while that is not over
    fail_on   exceptions that end the task immediately, even if attempts are left
    """

    timeout: Span | None = None
    results: bool | None = None
    unique: bool = False
    fail_on: tuple[type[BaseException], ...] = ()


class BaseTask(Generic[P, R]):
    """A task of either kind.

    name       its name in the app
    function   the function itself
    app        its app
    keeps_none whether the result None is kept. Then a task that is over without a result has lost it. By default it is
               kept if the annotation of the function's result permits anything but None
    """

    def __init__(
        self, app: App, function: Callable[..., Any], name: str, options: AddOptions, running: Running
    ) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.running = running
        self._options = checked(options)
        self._signature = inspect.signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.keeps_none = _may_return(self._signature) if running.results is None else running.results
        if running.timeout is not None:
            if not self.is_async:
                raise ValueError(
                    "timeout: a plain function can't be interrupted in its thread; make it a coroutine function"
                )
            float_seconds("timeout", running.timeout)
        try:
            isinstance(None, running.fail_on)  # As at a failure.
        except TypeError:
            raise TypeError("fail_on must be a tuple of exceptions, such as (KeyError,)") from None
        # Without the function's own attributes: one of them may have the name of an attribute here.
        functools.update_wrapper(cast("Any", self), function, updated=())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def add(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Send a call to the broker → its handle. It blocks until the job and its copies exist.

        The arguments are those of the function. Raises TypeError for arguments that do not fit its signature,
        SerializerError for one that can't be written, and the errors of the client's `add_job`.

            handle = send_email.add("ada@example.com")
            handle.wait(timeout=10)
        """
        return Call(self, args, kwargs).add()

    async def add_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Send a call to the broker, as `add` does, without blocking the event loop."""
        return await Call(self, args, kwargs).add_async()

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return a call as a value. Raises TypeError for arguments that do not fit."""
        return Call(self, args, kwargs)

    def options(self, **options: Unpack[AddOptions]) -> Self:
        """Return this task with some other options.

        options   the options to change (AddOptions), such as `delay=30` or `queue="mail"`

        Raises TypeError for an unknown option, ValueError for an invalid one.

            send_email.options(delay=30).add("ada@example.com")
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._options = merged(self._options, checked(options))
        return other

    def handle(self, job_id: str) -> Handle[R]:
        """Return the handle of a call that was added before, by the id of its job."""
        return Handle(self.app, job_id, always_kept=self.keeps_none)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check arguments against the signature. Raises TypeError."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None

    def message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Message:
        """Return a call as a message for the broker."""
        app = self.app
        options = merged(app.options, self._options)
        body = write_body(app.serializer, self.name, args, kwargs)
        if self.running.unique and "key" not in options:
            options["key"] = f"{self.name}:{hashlib.sha256(body).hexdigest()[:32]}"
        message = Message(self.name, options.get("queue", QUEUE), body, arguments(options, datetime.now(UTC)))
        for middleware in app.middleware:
            middleware.adding(message)
        return message

    @property
    def queue(self) -> str:
        """The queue of this task."""
        return merged(self.app.options, self._options).get("queue", QUEUE)


class Task(BaseTask[P, R]):
    """A task whose function is a plain one. The worker runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here."""
        found: R = self.function(*args, **kwargs)
        return found


class AsyncTask(BaseTask[P, R]):
    """A task whose function is a coroutine function. The worker runs it in its event loop."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Return the coroutine of the function, which runs here."""
        found: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return found


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A call of a task that was not added yet; `task.call(…)` makes one.

    task     the task
    args     its arguments
    kwargs   its keyword arguments

    Raises TypeError for arguments that do not fit.
    """

    task: BaseTask[..., R]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task.bind(self.args, self.kwargs)

    def message(self) -> Message:
        """Return the call as a message for the broker."""
        return self.task.message(self.args, self.kwargs)

    def add(self) -> Handle[R]:
        """Send the call to the broker → its handle."""
        return self.task.handle(self.task.app.broker.run(Add(self.message())))

    async def add_async(self) -> Handle[R]:
        """Send the call to the broker → its handle, without blocking the event loop."""
        return self.task.handle(await self.task.app.broker.run_async(Add(self.message())))


def _may_return(signature: inspect.Signature) -> bool:
    """Return whether an annotation says that the function returns a value.

    A function without an annotation returns nothing, as far as is known. With `from __future__ import annotations` it
    is text.
    """
    return signature.return_annotation not in (inspect.Signature.empty, None, type(None), "None")
