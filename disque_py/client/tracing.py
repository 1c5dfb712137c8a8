"""The interface between the client and a tracing library.

A client calls its `tracing`, if it has one, around every command. The library sees the commands before they leave, and
may add words to them, such as the trace context of a job. It also sees the answers or the error. A worker asks the
library for a context around each handler. OpenTelemetry uses this interface (disque_py.integrations.otel).

The attribute `tracing` of the classes `Disque` and `AsyncDisque` is None; set it on the class or on one object. Without
tracing, a command costs one more comparison. The module imports no tracing library.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from disque_py.client.request import Request
from disque_py.client.results import Job
from disque_py.client.templates import Adding

T = TypeVar("T")


class Observation(Protocol):
    """One call of the client, as a tracing library sees it. Exactly one of its methods is called, once."""

    def ended(self, value: Any) -> None:
        """Take the answer: the value of a command, or the values and errors of several."""

    def failed(self, error: BaseException) -> None:
        """Take the error with which the call ends."""


class Processing(Protocol):
    """One run of a handler, as a tracing library sees it."""

    def failed(self, error: BaseException) -> None:
        """Note that the handler did not succeed, although it raised nothing: it returned `Retry` or `Fail`."""


class Tracing(Protocol):
    """A tracing library, for any number of clients, threads and tasks. No method raises."""

    def one(self, request: Request[T]) -> tuple[Request[T], Observation | None]:
        """Return the command to send, and its observation; None for a command that is not traced."""

    def many(self, requests: Sequence[Request[Any]]) -> tuple[Sequence[Request[Any]], Observation | None]:
        """Return the commands of a pipeline to send, and the observation of all together."""

    def adding(self, adding: Adding) -> Observation:
        """Return the observation of an `add_jobs`, whose jobs may get words by `adding.extend`."""

    def processing(self, job: Job) -> AbstractContextManager[Processing]:
        """Return a context for the handler of a job. An exception that leaves it is the handler's failure."""


def observed(observation: Observation | None, work: Callable[[], T]) -> T:
    """Do the work of a call, and report its end to the observation. Raises the errors of the work."""
    if observation is None:
        return work()
    try:
        value = work()
    except BaseException as error:
        observation.failed(error)
        raise
    observation.ended(value)
    return value


async def async_observed(observation: Observation | None, work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a call, and report its end to the observation. Raises the errors of the work."""
    if observation is None:
        return await work
    try:
        value = await work
    except BaseException as error:
        observation.failed(error)
        raise
    observation.ended(value)
    return value
