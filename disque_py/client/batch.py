"""Batches as contexts: a `with` block adds jobs, and its end closes the batch.

    with client.batch("upload-77", callback=("mail", "upload 77 is ready")) as batch:
        for photo in photos:
            batch.add_job("resize", photo)
    print(batch.wait(timeout=60).completed)

A block that ends with an exception leaves the batch open, because the batch is not complete. A block that added no job
closes nothing.

An added job whose key is known is the first job of this key, and does not join the batch. If no job has joined, there
is no batch, and the end of the block raises EmptyBatchError.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Unpack

from disque_py.client import flow_commands
from disque_py.client.arguments import Body
from disque_py.client.errors import EmptyBatchError, ReplyError
from disque_py.client.flow_commands import BatchInfo
from disque_py.client.job_options import CopyOptions
from disque_py.client.spans import Milliseconds, Span

if TYPE_CHECKING:
    from disque_py.client.faces import AsyncCommands, BlockingCommands

Callback = tuple["str | bytes", Body]


# The reply to a command on a batch that no job has joined.
NO_BATCH: Final = "ERR no such batch"


def explained(error: ReplyError, name: str | bytes, job_ids: list[str]) -> EmptyBatchError | ReplyError:
    """Return the error of a command on a batch: EmptyBatchError if jobs were added, and none has joined the batch."""
    if error.text != NO_BATCH or not job_ids:
        return error
    return EmptyBatchError(name if isinstance(name, str) else name.decode("utf-8", "backslashreplace"), job_ids)


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
        self._was_closed = False

    def add_job(self, queue: str | bytes, body: Body, **options: Unpack[BatchJobOptions]) -> str:
        """Add a job to the batch → its id. Parameters, options and errors are those of the client's `add_job`."""
        job_id = self._client.add_job(queue, body, batch=self.name, **options)
        self.job_ids.append(job_id)
        return job_id

    def close(self) -> None:
        """Close the batch with its callback.

        Raises ReplyError if no job was ever added, EmptyBatchError if each one was there before under its key.
        """
        try:
            self._client.run(flow_commands.close_batch(self.name, self._callback))
        except ReplyError as error:
            raise explained(error, self.name, self.job_ids) from error
        self._was_closed = True

    def info(self) -> BatchInfo | None:
        """Return the number of jobs by status; None if there is no such batch. Raises the errors of every command."""
        return self._client.run(flow_commands.batch_info(self.name))

    def wait(self, timeout: Span | None = None) -> BatchInfo | None:
        """Wait until the batch is done, at most `timeout` seconds (a number or a timedelta); see `wait_batch`.

        Raises EmptyBatchError if each job was there before under its key.
        """
        try:
            return self._client.run(flow_commands.wait_batch(self.name, timeout))
        except ReplyError as error:
            if self._was_closed:  # There was a batch. It is not kept any more.
                raise
            raise explained(error, self.name, self.job_ids) from error

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
        self._was_closed = False

    async def add_job(self, queue: str | bytes, body: Body, **options: Unpack[BatchJobOptions]) -> str:
        """Add a job to the batch → its id. Parameters, options and errors are those of the client's `add_job`."""
        job_id = await self._client.add_job(queue, body, batch=self.name, **options)
        self.job_ids.append(job_id)
        return job_id

    async def close(self) -> None:
        """Close the batch with its callback.

        Raises ReplyError if no job was ever added, EmptyBatchError if each one was there before under its key.
        """
        try:
            await self._client.run(flow_commands.close_batch(self.name, self._callback))
        except ReplyError as error:
            raise explained(error, self.name, self.job_ids) from error
        self._was_closed = True

    async def info(self) -> BatchInfo | None:
        """Return the number of jobs by status; None if there is no such batch. Raises the errors of every command."""
        return await self._client.run(flow_commands.batch_info(self.name))

    async def wait(self, timeout: Span | None = None) -> BatchInfo | None:
        """Wait until the batch is done, at most `timeout` seconds (a number or a timedelta); see `wait_batch`.

        Raises EmptyBatchError if each job was there before under its key.
        """
        try:
            return await self._client.run(flow_commands.wait_batch(self.name, timeout))
        except ReplyError as error:
            if self._was_closed:  # There was a batch. It is not kept any more.
                raise
            raise explained(error, self.name, self.job_ids) from error

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.job_ids:
            await self.close()
