"""The task that runs, for its own code: `current()`.

    @app.task
    def resize(photo: str) -> None:
        current().progress(40, "thumbnails")

A task takes no argument for this, so its signature is its own. The context is a context variable, which asyncio and the
threads of the worker carry along. A task that is called directly, as a function, has a context that reports to no
broker. So it needs no special case in a unit test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final


def _not_canceled() -> bool:
    return False


def _not_told(percent: int, note: str) -> None:
    """Tell no broker."""


@dataclass(frozen=True, slots=True)
class Context:
    """The run of a task.

    task      its name; "" outside of a run
    job_id    the id of its job; "" without a broker
    queue     the queue that it came from
    attempt   the number of this delivery, from 1
    meta      the metadata of its job; `x-disque-tick` is the planned moment of a schedule, in Unix milliseconds
    """

    task: str = ""
    job_id: str = ""
    queue: str = ""
    attempt: int = 1
    meta: Mapping[str, str] = field(default_factory=dict)
    tell: Callable[[int, str], None] = field(default=_not_told, repr=False)
    asks_canceled: Callable[[], bool] = field(default=_not_canceled, repr=False)

    def progress(self, percent: int, note: str = "") -> None:
        """Tell how far the task is: 0 to 100, and a note of at most 256 bytes. It returns at once."""
        self.tell(percent, note)

    @property
    def is_canceled(self) -> bool:
        """Whether the task was canceled. A task in a thread looks from time to time; a coroutine is interrupted."""
        return self.asks_canceled()


_NONE: Final = Context()
_current: Final[ContextVar[Context]] = ContextVar("disque_task", default=_NONE)


def current() -> Context:
    """Return the context of the task that runs here. Outside of a run it is one that reports to no broker."""
    return _current.get()


@contextmanager
def running(context: Context) -> Iterator[None]:
    """Make this the current context."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
