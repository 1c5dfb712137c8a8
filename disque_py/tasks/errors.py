"""The errors of tasks, for programs that wait for results.

    TaskError
    ├── TaskFailedError         the task raised, and has no attempts left
    ├── TaskCanceledError       the task was canceled
    ├── TaskExpiredError        its TTL was over before it was done
    ├── TaskGoneError           no node knows it: its result is no longer kept, or it never existed
    ├── UnknownTaskError        the worker's program has no task of this name
    └── SerializerError         an argument, a result or a body can't be written or read

The errors of the broker itself are those of the client library (`DisqueError`). Arguments that do not fit a task's
signature raise TypeError, as a call does.
"""

from __future__ import annotations


class TaskError(Exception):
    """Any error of the task API."""


class TaskFailedError(TaskError):
    """The task raised an exception and has no attempts left.

    type_name   the type of that exception, such as `ValueError` or `shop.errors.NoStockError`; "" if the worker died
    message     its text
    traceback   the calls that led to it, the innermost first, one per line; as many as fit into a reason (1024 bytes)
    """

    def __init__(self, type_name: str, message: str, traceback: str = "") -> None:
        words = ": ".join(word for word in (type_name, message) if word)
        super().__init__(f"{words}\n{traceback}" if traceback else words)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback


class TaskCanceledError(TaskError):
    """The task was canceled before it was done."""


class TaskExpiredError(TaskError):
    """The task's TTL was over before it was done."""


class TaskGoneError(TaskError):
    """No node knows the task. Its result is no longer kept, or the task never existed."""


class UnknownTaskError(TaskError):
    """The worker's program has no task of this name."""


class SerializerError(TaskError, ValueError):
    """A value can't be written as bytes, or bytes can't be read."""
