"""The broker of Taskiq: a message is a job.

* The labels `delay` (seconds) and `priority` (larger first) become the job's own, and `queue_name` its queue.
* A worker waits in GETJOB. Acks of one turn of the event loop leave in one command.
* A thread extends the leases of all jobs that this process holds (leases.py), also while a task blocks the loop.
* Taskiq decides when a message is acknowledged. If Taskiq drops a message that nothing acknowledged, as with manual
  acknowledgements or after an error in a middleware, its lease runs out and the message comes again.
* While no node can be used, a worker goes on with the tasks that it has, and keeps their acknowledgements.
* Jobs of a schedule share one body. Their task ids are made of the schedule and the tick, so each has its own result.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqMiddleware, TaskiqResult

from disque_py.client import AsyncDisque, DisqueError, Job
from disque_py.client.processes import ProcessClient
from disque_py.integrations.leases import LEASE_S, LeaseKeeper
from disque_py.integrations.patience import apersist, is_outage, once

# A message lives so long. Its lease can be extended for half of this time.
TTL_S: Final = 30 * 86_400
# The label `priority` comes before the time of creation in milliseconds.
PRIORITY_STEP: Final = 10**13
# Jobs that one GETJOB brings at most. More of them would wait here while other workers are free.
FETCH_COUNT: Final = 10

# The pause after an error of the connection; the client has tried for its own patience before.
PAUSE_S: Final = 0.5

# The task id of a schedule's body begins so, and its tick is appended.
TICKING: Final = "schedule:"
TICK: Final = "x-disque-tick"

_log = logging.getLogger(__name__)


def add_options(labels: dict[str, Any], lease: timedelta) -> dict[str, Any]:
    """Return the options of ADDJOB that labels ask for."""
    delay_ms = round(1000 * float(labels.get("delay") or 0))
    options: dict[str, Any] = {"retry": lease, "ttl": TTL_S - (-delay_ms // 1000)}
    if delay_ms > 0:
        options["delay"] = timedelta(milliseconds=delay_ms)
    if labels.get("priority") is not None:
        options["priority"] = int(1000 * time.time()) - int(labels["priority"]) * PRIORITY_STEP
    return options


class DisqueBroker(AsyncBroker):
    """A broker of Taskiq.

    url           `disque://host:port,host:port/?option=value`, as of the client
    queue_name    queue of messages without the label `queue_name`, "taskiq" by default
    queues        further queues that workers take messages from, after the first; none by default
    lease         seconds after which the messages of a dead worker come back, 60 by default. Tasks may take longer
    fetch_count   messages that a worker fetches at once at most, 10 by default
    replicate     number of copies of each message; by default the node chooses
    publish_once   send a message again when its answer was lost, and make one job of both. It costs a round trip
                  between the nodes; by default the error is raised
    """

    def __init__(
        self,
        url: str = "disque://127.0.0.1:7711",
        *,
        queue_name: str = "taskiq",
        queues: Sequence[str] = (),
        lease: float = LEASE_S,
        fetch_count: int = FETCH_COUNT,
        replicate: int | None = None,
        publish_once: bool = False,
        task_id_generator: Callable[[], str] | None = None,
    ) -> None:
        super().__init__()
        if task_id_generator is not None:
            self.id_generator = task_id_generator
        self.url = url
        self.queue_name = queue_name
        self.queues = (queue_name, *queues)
        self.fetch_count = fetch_count
        self.replicate = replicate
        self.publish_once = publish_once
        self._client: AsyncDisque | None = None
        self._extender = ProcessClient(url, "taskiq-leases")
        self.leases = LeaseKeeper(self._extender, lease)
        self.held: dict[str, Job] = {}
        self._acks: list[tuple[Job, asyncio.Future[None]]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.add_middlewares(_Ends(self))

    @property
    def client(self) -> AsyncDisque:
        """The client library's client of this broker."""
        if self._client is None:
            self._client = AsyncDisque.from_url(self.url, name="taskiq")
        return self._client

    async def shutdown(self) -> None:
        """Put back what is not done, and close the connections."""
        self._is_closing = True
        await super().shutdown()
        held, self.held = list(self.held.values()), {}
        with suppress(DisqueError):
            await self._put_back(held)
        self.leases.close()
        self._extender.close()
        if self._client is not None:
            await self._client.close()
            self._client = None
        self._is_closing = False

    async def kick(self, message: BrokerMessage) -> None:
        """Add a message. Raises the client library's errors; Taskiq raises SendTaskError for them."""
        words = add_options(message.labels, self.leases.lease)
        words.update(replicate=self.replicate, meta={"task": message.task_id})
        if self.publish_once:
            words |= once()
        queue = message.labels.get("queue_name") or self.queue_name
        await apersist(lambda: self.client.add_job(queue, message.message, **words))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield messages. Those that were fetched and not yielded go back when the generator is closed."""
        fetched: list[Job] = []
        try:
            while True:
                fetched = await self._fetch()
                self.leases.add(*fetched)
                fetched.reverse()
                while fetched:
                    yield self._message(fetched.pop())
        finally:
            with suppress(DisqueError):
                await self._put_back(fetched)

    async def _fetch(self) -> list[Job]:
        is_told = False
        while True:
            try:
                return await self.client.get_jobs(
                    *self.queues, count=self.fetch_count, withlease=True, withmeta=True, lease=self.leases.lease
                )
            except DisqueError as error:  # It would end the worker and the tasks that run.
                if not is_told:
                    _log.warning("no messages can be fetched: %s", error)
                is_told = True
            await asyncio.sleep(PAUSE_S)

    def _message(self, job: Job) -> AckableMessage:
        meta = job.meta or {}
        data, task_id = job.body, meta.get("task", job.id)
        if TICK in meta and task_id.startswith(TICKING):
            message = self.formatter.loads(data)
            message.task_id = task_id = f"{task_id.removeprefix(TICKING)}:{meta[TICK]}"
            data = self.formatter.dumps(message).message
        self.held[task_id] = job
        made = AckableMessage(data=data, ack=lambda: self._ack(task_id, job))
        # Taskiq drops the message without a word if a middleware or a label is in error.
        weakref.finalize(made, self.leases.remove, job).atexit = False
        return made

    async def _put_back(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.leases.remove(job)
        if jobs:
            await self.client.put_back(jobs)

    # Acks.

    def _ack(self, task_id: str, job: Job) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        done.add_done_callback(lambda _: self._settled(task_id, job))
        self._acks.append((job, done))
        if len(self._acks) == 1:
            loop.call_soon(self._flush)
        return done

    def _settled(self, task_id: str, job: Job) -> None:
        self.leases.remove(job)
        if self.held.get(task_id) is job:
            del self.held[task_id]

    def _flush(self) -> None:
        acks, self._acks = self._acks, []
        task = asyncio.get_running_loop().create_task(self._send_acks(acks))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_acks(self, acks: list[tuple[Job, asyncio.Future[None]]]) -> None:
        try:
            await self._ack_jobs([job for job, _ in acks])
        except BaseException as error:
            for _, done in acks:
                if not done.done():
                    done.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for _, done in acks:
                if not done.done():
                    done.set_result(None)

    async def _ack_jobs(self, jobs: list[Job]) -> None:
        is_told = False
        while True:
            try:
                await self.client.ack_jobs(jobs)
                return
            except DisqueError as error:  # The leases are being extended, so the tasks don't run twice.
                if self._is_closing or not is_outage(error):
                    raise
                if not is_told:
                    _log.warning("acknowledgements are delayed: %s", error)
                is_told = True
            await asyncio.sleep(PAUSE_S)


class _Ends(TaskiqMiddleware):
    """The number of each delivery, and the ends of tasks."""

    def __init__(self, broker: DisqueBroker) -> None:
        super().__init__()
        self._disque = broker

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Tell the task which delivery this is, in the label `delivery_count`."""
        job = self._disque.held.get(message.task_id)
        if job is not None:
            message.labels["delivery_count"] = job.delivery_count
        return message

    def post_execute(self, message: TaskiqMessage, result: TaskiqResult) -> None:
        """Extend the lease only for a while yet: whatever acknowledges the message does so soon."""
        job = self._disque.held.get(message.task_id)
        if job is not None:
            leases = self._disque.leases
            asyncio.get_running_loop().call_later(leases.lease.total_seconds(), leases.remove, job)
