"""Explicit pipelines: commands that are collected and sent together, each with its own result.

    async with client.pipeline() as pipe:
        first = pipe.add_job("mail", b"...")
        length = pipe.qlen("mail")
    print(first.value, length.value)

The end of the block executes the collected commands, and raises BatchError if a command failed. `execute()` does the
same without raising, and returns values and errors in order. All commands go over one connection, so one node executes
them in order. If the connection breaks, commands without an answer get an error, unless they may be repeated
(retry.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from disque_py.client.address import Address
from disque_py.client.errors import BatchError, DisqueError
from disque_py.client.faces import PipelineCommands, Result
from disque_py.client.protocol import Reply
from disque_py.client.request import Lane, Repeat, Request
from disque_py.client.results import Decode

T = TypeVar("T")

# Lanes from light to heavy. A heavier lane carries lighter commands too.
_WEIGHT = {Lane.PLAIN: 0, Lane.ADDS: 1, Lane.OWN: 2}


class Collected(PipelineCommands):
    """The collected commands, and the results that wait for them."""

    def __init__(self) -> None:
        self._requests: list[Request[Any]] = []
        self._results: list[Result[Any]] = []

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request[T]) -> Result[T]:
        """Add one command to the pipeline."""
        result: Result[T] = Result()
        self._requests.append(request)
        self._results.append(result)
        return result

    def _take(self) -> tuple[list[Request[Any]], list[Result[Any]]]:
        taken = self._requests, self._results
        self._requests, self._results = [], []
        return taken


class AsyncPipeline(Collected):
    """A pipeline of an AsyncDisque; `send` is the client's way to execute many commands."""

    def __init__(self, send: Callable[[Sequence[Request[Any]]], Awaitable[list[Any]]]) -> None:
        super().__init__()
        self._send = send

    async def execute(self) -> list[Any]:
        """Execute the collected commands → per command its value or its DisqueError, in order.

        Raises ValueError when commands name different nodes, AuthError for a wrong password.
        """
        requests, results = self._take()
        if not requests:
            return []
        return settle(results, await self._send(requests))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            raise_failures(await self.execute())


class Pipeline(Collected):
    """A pipeline of a Disque; `send` is the client's way to execute many commands."""

    def __init__(self, send: Callable[[Sequence[Request[Any]]], list[Any]]) -> None:
        super().__init__()
        self._send = send

    def execute(self) -> list[Any]:
        """Execute the collected commands → per command its value or its DisqueError, in order.

        Raises ValueError when commands name different nodes, AuthError for a wrong password.
        """
        requests, results = self._take()
        if not requests:
            return []
        return settle(results, self._send(requests))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            raise_failures(self.execute())


def settle(results: Sequence[Result[Any]], outcomes: list[Any]) -> list[Any]:
    """Give every result its outcome."""
    for result, outcome in zip(results, outcomes, strict=True):
        result.settle(outcome)
    return outcomes


def raise_failures(outcomes: Sequence[Any]) -> None:
    """Raise BatchError if one of the outcomes is an error."""
    if any(isinstance(outcome, DisqueError) for outcome in outcomes):
        raise BatchError(outcomes)


def envelope(requests: Sequence[Request[Any]]) -> Request[Any]:
    """Return one request that represents all of these in the choice of a connection.

    It has the heaviest lane, the longest wait and the longest silence. It goes to the node that one of them must go to,
    or that all of them ask for. Raises ValueError if two must go to different nodes: the second would be executed on
    the wrong node.
    """
    nodes = {request.node for request in requests if request.is_pinned} or {request.node for request in requests}
    silences = [request.silence_s for request in requests if request.silence_s is not None]
    waits = [request.wait_ms for request in requests if request.wait_ms is not None]
    is_pinned = any(request.is_pinned for request in requests)
    if is_pinned and len(nodes) > 1:
        raise ValueError(f"a pipeline goes to one node, and its commands name {' and '.join(sorted(map(str, nodes)))}")
    wait_ms = None if not waits else 0 if 0 in waits else max(waits)
    return Request(
        (),
        lambda reply: reply,
        Repeat.SAFE,
        max((request.lane for request in requests), key=_WEIGHT.__getitem__),
        wait_ms,
        node=nodes.pop() if len(nodes) == 1 else None,
        is_pinned=is_pinned,
        is_consumers=all(request.is_consumers for request in requests),
        silence_s=None if len(silences) < len(requests) else max(silences, default=None),
    )


def read_all(
    requests: Sequence[Request[Any]], replies: Sequence[Reply], node: Address | None, decode: Decode
) -> list[Any]:
    """Return replies as values, with errors in their places."""
    outcomes: list[Any] = []
    for request, reply in zip(requests, replies, strict=True):
        is_error = isinstance(reply, Exception)
        outcomes.append(reply if is_error else request.value(reply, node, decode))
    return outcomes
