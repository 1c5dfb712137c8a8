"""The operations of this API on a broker, as values.

Handles, groups and apps have blocking calls and calls for asyncio, and there are two brokers: a cluster, and the one in
memory (memory.py). So each operation is a value. A cluster executes its request, and the memory reads its fields. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from disque_py.client import commands, flow_commands
from disque_py.client.flow_commands import BatchInfo, JobEnd
from disque_py.client.request import Request
from disque_py.client.results import JobInfo, QueueSettings
from disque_py.client.spans import Span
from disque_py.tasks.messages import Message

T = TypeVar("T")

# The time for which a value that is too long for a result is kept.
LONG_VALUE_TTL: Final = timedelta(days=1)


class Operation(Protocol[T]):
    """An operation with an answer of this type."""

    def request(self) -> Request[T]:
        """Return the command of the client library."""


@dataclass(frozen=True, slots=True)
class Add:
    """Add a task → the id of its job."""

    message: Message

    def request(self) -> Request[str]:
        """Return ADDJOB."""
        message = self.message
        return commands.add_job(message.queue, message.body, **message.options)


@dataclass(frozen=True, slots=True)
class Ends:
    """Wait for the ends of jobs → the end of each, or its status at the time-out."""

    job_ids: tuple[str, ...]
    timeout: Span | None

    def request(self) -> Request[list[JobEnd]]:
        """Return WAITJOB."""
        return flow_commands.wait_jobs(*self.job_ids, timeout=self.timeout)


@dataclass(frozen=True, slots=True)
class Show:
    """Look at a job → its description; None if no node knows it."""

    job_id: str

    def request(self) -> Request[JobInfo | None]:
        """Return SHOW CLUSTER."""
        return commands.show(self.job_id, cluster=True)


@dataclass(frozen=True, slots=True)
class SettingsOf:
    """Look at the settings of a queue → the settings; None if nothing was ever set."""

    queue: str

    def request(self) -> Request[QueueSettings | None]:
        """Return QUEUE GET."""
        return commands.queue_settings(self.queue)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a job → the number of canceled jobs: one or none."""

    job_id: str

    def request(self) -> Request[int]:
        """Return CANCELJOB."""
        return commands.cancel(self.job_id)


@dataclass(frozen=True, slots=True)
class KeepValue:
    """Keep a value that is too long for a result, as a job that no worker gets → its id."""

    queue: str
    data: bytes

    def request(self) -> Request[str]:
        """Return ADDJOB with a delay that is as long as its TTL."""
        delay = LONG_VALUE_TTL - timedelta(seconds=1)
        return commands.add_job(f"{self.queue}.results", self.data, ttl=LONG_VALUE_TTL, delay=delay, retry_unsafe=True)


@dataclass(frozen=True, slots=True)
class CloseBatch:
    """Close a batch → OK. With a message, its task runs when the batch is done."""

    name: str
    callback: Message | None

    def request(self) -> Request[str]:
        """Return BATCH CLOSE."""
        callback = None if self.callback is None else (self.callback.queue, self.callback.body)
        return flow_commands.close_batch(self.name, callback)


@dataclass(frozen=True, slots=True)
class BatchState:
    """Look at a batch → its counts; None if there is no such batch."""

    name: str

    def request(self) -> Request[BatchInfo | None]:
        """Return BATCH SHOW."""
        return flow_commands.batch_info(self.name)


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """Wait for the end of a batch → its counts; None if it was deleted meanwhile."""

    name: str
    timeout: Span | None

    def request(self) -> Request[BatchInfo | None]:
        """Return BATCH WAIT."""
        return flow_commands.wait_batch(self.name, self.timeout)


class Broker(Protocol):
    """A broker of tasks: a cluster, or the memory.

    is_live   whether tasks may end while a program waits
    """

    is_live: bool

    def run(self, operation: Operation[T]) -> T:
        """Run an operation. Raises the errors of the client library."""

    def run_many(self, operations: list[Operation[T]]) -> list[T]:
        """Run many operations in few writes. Raises BatchError if one of them failed."""

    async def run_async(self, operation: Operation[T]) -> T:
        """Run an operation."""

    async def run_many_async(self, operations: list[Operation[T]]) -> list[T]:
        """Run many operations in few writes."""
