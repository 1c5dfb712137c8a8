"""Batches as contexts: a `with` block adds jobs, and its end closes the batch.

    with client.batch("upload-77", callback=("mail", "upload 77 is ready")) as batch:
        for photo in photos:
            batch.add_job("resize", photo)
    print(batch.wait(timeout=60).completed)

A block that ends with an exception leaves the batch open, because the batch is not complete. A block that added no job
closes nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from disque_py.client import flow_commands
from disque_py.client.arguments import Body
from disque_py.client.flow_commands import BatchInfo
from disque_py.client.job_options import CopyOptions
from disque_py.client.spans import Milliseconds, Span

if TYPE_CHECKING:
    from disque_py.client.faces import AsyncCommands, BlockingCommands

Callback = tuple["str | bytes", Body]


class BatchJobOptions(CopyOptions, total=False):
    """The options of a job of a batch: those of the client's `add_job`, except `batch`."""

    timeout_ms: Milliseconds
    retry_unsafe: bool | None


class Batch:
    """A batch of the blocking client.

    name       its name
    job_ids    the jobs that were added here, in their order
    """

    def __init__(self, client: BlockingCommands, name: str | bytes, callback: Callback | None) -> None:
        self.name = name
        self.job_ids: list[str] = []
        self._client = client
        self._callback = callback

    def add_job(self, queue: str | bytes, body: Body, **options: Unpack[BatchJobOptions]) -> str:
        """Add a job to the batch → its id. Parameters, options and errors are those of the client's `add_job`."""
        job_id = self._client.add_job(queue, body, batch=self.name, **options)
        self.job_ids.append(job_id)
        return job_id

    def close(self) -> None:
        """Close the batch with its callback. Raises ReplyError if no job was ever added."""
        self._client.run(flow_commands.close_batch(self.name, self._callback))

    def info(self) -> BatchInfo | None:
        """Return the number of jobs by status; None if there is no such batch. Raises the errors of every command."""
        return self._client.run(flow_commands.batch_info(self.name))

    def wait(self, timeout: Span | None = None) -> BatchInfo | None:
        """Wait until the batch is done, at most `timeout` seconds (a number or a timedelta); see `wait_batch`."""
        return self._client.run(flow_commands.wait_batch(self.name, timeout))

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.job_ids:
            self.close()


class AsyncBatch:
    """A batch of the asyncio client.

    name       its name
    job_ids    the jobs that were added here, in the order of the answers
    """

    def __init__(self, client: AsyncCommands, name: str | bytes, callback: Callback | None) -> None:
        self.name = name
        self.job_ids: list[str] = []
        self._client = client
        self._callback = callback

    async def add_job(self, queue: str | bytes, body: Body, **options: Unpack[BatchJobOptions]) -> str:
        """Add a job to the batch → its id. Parameters, options and errors are those of the client's `add_job`."""
        job_id = await self._client.add_job(queue, body, batch=self.name, **options)
        self.job_ids.append(job_id)
        return job_id

    async def close(self) -> None:
        """Close the batch with its callback. Raises ReplyError if no job was ever added."""
        await self._client.run(flow_commands.close_batch(self.name, self._callback))

    async def info(self) -> BatchInfo | None:
        """Return the number of jobs by status; None if there is no such batch. Raises the errors of every command."""
        return await self._client.run(flow_commands.batch_info(self.name))

    async def wait(self, timeout: Span | None = None) -> BatchInfo | None:
        """Wait until the batch is done, at most `timeout` seconds (a number or a timedelta); see `wait_batch`."""
        return await self._client.run(flow_commands.wait_batch(self.name, timeout))

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.job_ids:
            await self.close()
