"""The result backend of Taskiq: one slot per task (result_slots.py), and the newest progress of each.

The progress of a task is the newest job of the queue `<queue>.progress.<task id>`. A queue without jobs costs nothing,
and the jobs expire with their TTL.
"""

from __future__ import annotations

from typing import Any, Final

from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError
from taskiq.serializers import JSONSerializer, PickleSerializer

from disque_py.client import AsyncDisque
from disque_py.integrations.result_slots import AsyncResultSlots

# The time for which results and progress are kept: the default of the setting `result-retention`.
RESULT_TTL_S: Final = 3600


class DisqueResultBackend(AsyncResultBackend):
    """A result backend of Taskiq. The first result of a task counts.

    url          the client's URL, `disque://host:port,host:port/?option=value`; by default disque://127.0.0.1:7711
    queue_name   queue of the results, "taskiq-results" by default
    result_ttl   seconds for which results and progress are kept, 3600 by default
    serializer   Taskiq's serializer of results; JSON by default
    """

    def __init__(
        self,
        url: str = "disque://127.0.0.1:7711",
        *,
        queue_name: str = "taskiq-results",
        result_ttl: int = RESULT_TTL_S,
        serializer: TaskiqSerializer | None = None,
    ) -> None:
        self.url = url
        self.queue_name = queue_name
        self.result_ttl = result_ttl
        self.serializer = serializer or JSONSerializer()
        self._mode = "python" if isinstance(self.serializer, PickleSerializer) else "json"
        self._client: AsyncDisque | None = None
        self._found: AsyncResultSlots | None = None

    @property
    def client(self) -> AsyncDisque:
        """The client library's client of this backend."""
        if self._client is None:
            self._client = AsyncDisque.from_url(self.url, name="taskiq-results")
        return self._client

    @property
    def _slots(self) -> AsyncResultSlots:
        if self._found is None:
            self._found = AsyncResultSlots(self.client, self.queue_name)
        return self._found

    async def shutdown(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
        self._client = self._found = None
        await super().shutdown()

    async def set_result(self, task_id: str, result: TaskiqResult) -> None:
        """Store the result of a task. An earlier result stays."""
        data = self.serializer.dumpb(result.model_dump(mode=self._mode))
        await self._slots.put(task_id, data, 1000 * self.result_ttl)

    async def is_result_ready(self, task_id: str) -> bool:
        """Return whether the task has a result."""
        return await self._slots.get(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult:
        """Return the result of a task. Raises ResultGetError if there is none."""
        return self._read(await self._slots.get(task_id))

    async def wait_result(self, task_id: str, timeout: float | None = None) -> TaskiqResult:
        """Return the result of a task as soon as there is one. This method does not poll, unlike `task.wait_result`.

        task_id   the task's id
        timeout   seconds to wait; None, the default: for ever

        Raises ResultGetError if there is no result in time.
        """
        return self._read(await self._slots.wait(task_id, timeout))

    def _read(self, data: bytes | None) -> TaskiqResult:
        if data is None:
            raise ResultGetError
        return TaskiqResult.model_validate(self.serializer.loadb(data))

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store the progress of a task. It replaces older progress."""
        queue = self._progress_queue(task_id)
        older = await self.client.qpeek(queue, 10, cluster=True)
        data = self.serializer.dumpb(progress.model_dump(mode=self._mode))
        await self.client.add_job(queue, data, ttl=self.result_ttl, retry_unsafe=True)
        await self.client.ack_jobs(older)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return the progress of a task; None if it has reported none."""
        newest = await self.client.qpeek(self._progress_queue(task_id), -1, cluster=True)
        return TaskProgress.model_validate(self.serializer.loadb(newest[0].body)) if newest else None

    def _progress_queue(self, task_id: str) -> str:
        return f"{self.queue_name}.progress.{task_id}"
