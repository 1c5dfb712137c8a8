"""The context of a running task, for its own code: `current()`.

    @app.task
    def resize(photo: str) -> None:
        current().progress(40, "thumbnails")

The context is not an argument of the task, so the task's signature has only its own arguments. It is a context
variable, which asyncio and the threads of the worker pass on. If a task is called directly, as a function, its context
reports to no broker. So unit tests need no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from disque_py.client.results import checked_percent


def _not_canceled() -> bool:
    return False


def _not_told(percent: int, note: str) -> None:
    """Report to no broker."""


@dataclass(frozen=True, slots=True)
class Context:
    """One run of a task.

    task      its name; "" outside of a run
    job_id    the id of its job; "" without a broker
    queue     the queue that it came from
    attempt   the number of this delivery, from 1
    meta      the metadata of its job; `x-disque-tick` is the planned time of a schedule, in Unix milliseconds
    """

    task: str = ""
    job_id: str = ""
    queue: str = ""
    attempt: int = 1
    meta: Mapping[str, str] = field(default_factory=dict)
    tell: Callable[[int, str], None] = field(default=_not_told, repr=False)
    asks_canceled: Callable[[], bool] = field(default=_not_canceled, repr=False)

    def progress(self, percent: int, note: str = "") -> None:
        """Report how far the task is: 0 to 100, and a note of at most 256 bytes. It returns immediately.

        Raises ValueError for a percentage that is not whole or out of range, and for a note that is too long or no
        UTF-8.
        """
        self.tell(checked_percent(percent, note), note)

    @property
    def is_canceled(self) -> bool:
        """Whether the task was canceled. A task in a thread should check this; a coroutine is interrupted."""
        return self.asks_canceled()


_NONE: Final = Context()
_current: Final[ContextVar[Context]] = ContextVar("disque_task", default=_NONE)


def current() -> Context:
    """Return the context of the running task. Outside a task it is a context that reports to no broker."""
    return _current.get()


@contextmanager
def running(context: Context) -> Iterator[None]:
    """Make this the current context."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
