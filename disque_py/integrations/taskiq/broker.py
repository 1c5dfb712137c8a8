"""The broker of Taskiq: a message is a job.

* The labels `delay` (seconds) and `priority` (larger first) become the job's delay and priority, and `queue_name` its
  queue.
* A worker waits in GETJOB. It fetches as many messages as it finishes in a short time (pace.py).
* A thread extends the leases of all jobs that this process has (leases.py), even while a task blocks the loop.
* Taskiq decides when a message is acknowledged. If Taskiq drops a message without an acknowledgement, as with manual
  acknowledgements or after an error in a middleware, its lease runs out and the message comes again.
* Acks are sent together, because a command for each ack costs the worker and the node more than the task's other
  commands. An ack after the end of a task (`when_saved`) returns immediately. It is sent within ACK_S: immediately if
  the worker has no other task, and always before the next GETJOB. Taskiq waits for any other ack, because the task may
  rely on it. Acks of one turn of the event loop share a command. A job under a claim is acknowledged alone, with its
  fence.
* While no node can be used, a worker continues its tasks, and keeps their acknowledgements.
* Jobs of a schedule have the same body. Their task ids consist of the schedule and the tick, so each has its own
  result.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqMiddleware, TaskiqResult

from disque_py.client import AsyncDisque, DisqueError, Job
from disque_py.client.commands import add_job
from disque_py.client.processes import ProcessClient
from disque_py.client.request import Request
from disque_py.client.templates import AddTemplate, template_of
from disque_py.integrations.leases import LEASE_S, LeaseKeeper
from disque_py.integrations.pace import COUNT_MAX, Pace
from disque_py.integrations.patience import apersist, is_outage, once

# The TTL of a message without a delay. Its lease can be extended for half of this time.
TTL_S: Final = 30 * 86_400
# One step of the label `priority` weighs more than any creation time in milliseconds.
PRIORITY_STEP: Final = 10**13
# The most commands of plain messages that are kept, by queue.
TEMPLATES_MAX: Final = 1_000
# An ack that Taskiq does not wait for is sent within this time.
ACK_S: Final = 0.005
# The time that a stopping worker waits for its last acks.
LAST_ACKS_S: Final = 2.0

# The pause after a connection error. The client has used its own patience before.
PAUSE_S: Final = 0.5

# The beginning of the task id in a schedule's body. The tick is appended to it.
TICKING: Final = "schedule:"
TICK: Final = "x-disque-tick"

# META costs the nodes a quarter more for each message, so it is left out if the body begins with the task id.
SHOWN_TASK: Final = re.compile(rb'\{"task_id": ?"([\w.:-]+)"', re.ASCII).match

# A job that is done, and the future of a caller that waits for its acknowledgement.
Ack: TypeAlias = "tuple[Job, asyncio.Future[None] | None]"

_log = logging.getLogger(__name__)


def add_options(labels: dict[str, Any], lease: timedelta) -> dict[str, Any]:
    """Return the options of ADDJOB for these labels."""
    delay_ms = round(1000 * float(labels.get("delay") or 0))
    # A lease can be extended in the first half of a TTL only, so the delay counts twice.
    options: dict[str, Any] = {"retry": lease, "ttl": TTL_S - 2 * (-delay_ms // 1000)}
    if delay_ms > 0:
        options["delay"] = timedelta(milliseconds=delay_ms)
    if labels.get("priority") is not None:
        options["priority"] = int(1000 * time.time()) - int(labels["priority"]) * PRIORITY_STEP
    return options


def shown_task(body: bytes) -> str | None:
    """Return the task id at the beginning of Taskiq's JSON; None for another format or an unusual id."""
    found = SHOWN_TASK(body)
    return None if found is None else found[1].decode("ascii")


def shows_task(message: BrokerMessage) -> bool:
    """Return whether workers can read the task id from the body. If not, the message needs META."""
    return shown_task(message.message) == str(message.task_id)


class DisqueBroker(AsyncBroker):
    """A broker of Taskiq.

    url           the client's URL, `disque://host:port,host:port/?option=value`; by default disque://127.0.0.1:7711
    queue_name    queue of messages without the label `queue_name`, "taskiq" by default
    queues        further queues from which workers take messages, after the first; none by default
    lease         seconds after which the messages of a dead worker come back, 60 by default. Tasks may take longer
    fetch_count   the most messages that a worker fetches with one command, 100 by default. It begins with 10
    replicate     number of copies of each message; by default the node chooses
    publish_once   True: send a message again if its answer is lost, without making a second job. It costs a round trip
                   between the nodes. False by default: the error is raised
    """

    def __init__(
        self,
        url: str = "disque://127.0.0.1:7711",
        *,
        queue_name: str = "taskiq",
        queues: Sequence[str] = (),
        lease: float = LEASE_S,
        fetch_count: int = COUNT_MAX,
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
        self._pace = Pace(fetch_count)
        self.replicate = replicate
        self.publish_once = publish_once
        self._templates: dict[str, AddTemplate] = {}
        self._client: AsyncDisque | None = None
        self._extender = ProcessClient(url, "taskiq-leases")
        self.leases = LeaseKeeper(self._extender, lease)
        self.held: dict[str, Job] = {}
        self._acks: list[Ack] = []
        self._flushes: list[asyncio.Handle] = []
        self._is_flushed_soon = False
        self._has_more = False
        self._given_back: set[str] = set()
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
        """Put back messages that are not done, and close the connections."""
        self._is_closing = True
        await super().shutdown()
        await self._send_last_acks()
        held, self.held = list(self.held.values()), {}
        self._given_back.update(job.id for job in held)
        with suppress(DisqueError):
            await self._put_back(held)
        self.leases.close()
        self._extender.close()
        if self._client is not None:
            await self._client.close()
            self._client = None
        self._is_closing = False

    async def _send_last_acks(self) -> None:
        """Send all acks, also those of tasks that end while others are on their way. It takes LAST_ACKS_S at most."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_ACKS_S
        self._flush()
        while self._sending and (left_s := until - loop.time()) > 0:
            await asyncio.wait(self._sending, timeout=left_s)
            self._flush()

    async def startup(self) -> None:
        """Start the broker, also after a shutdown."""
        self._given_back.clear()
        await super().startup()

    async def kick(self, message: BrokerMessage) -> None:
        """Add a message. Raises the client library's errors; Taskiq raises SendTaskError for them."""
        request = self._request(message)
        await apersist(lambda: self.client.run(request))

    def _request(self, message: BrokerMessage) -> Request[str]:
        labels = message.labels
        queue = labels.get("queue_name") or self.queue_name
        if labels.get("priority") is None and not labels.get("delay") and not self.publish_once:
            meta = (b"META", b"task", message.task_id.encode())
            return self._template(queue).one(message.message, () if shows_task(message) else meta)
        words = add_options(labels, self.leases.lease)
        words.update(replicate=self.replicate, meta=None if shows_task(message) else {"task": message.task_id})
        if self.publish_once:
            words |= once()
        return add_job(queue, message.message, **words)

    def _template(self, queue: str) -> AddTemplate:
        """Return the command for plain messages. All plain messages of a queue have the same options."""
        found = self._templates.get(queue)
        if found is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            options = add_options({}, self.leases.lease)
            found = self._templates[queue] = template_of(queue, replicate=self.replicate, **options)
        return found

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield messages. When the generator is closed, it puts back messages that it has fetched but not yielded."""
        fetched: list[Job] = []
        try:
            while True:
                fetched = await self._fetch()
                self.leases.add(*fetched)
                fetched.reverse()
                while fetched:
                    job = fetched.pop()
                    self._has_more = bool(fetched)
                    yield self._message(job)
        finally:
            with suppress(DisqueError):
                await self._put_back(fetched)

    async def _fetch(self) -> list[Job]:
        is_told = False
        while True:
            self._flush()  # A cap of the queue counts running leases, so these must end first.
            count = self._pace.count(asyncio.get_running_loop().time())
            try:
                return await self.client.get_jobs(
                    *self.queues, count=count, withlease=True, withmeta=True, lease=self.leases.lease
                )
            except DisqueError as error:  # The error would end the worker and its running tasks.
                if not is_told:
                    _log.warning("no messages can be fetched: %s", error)
                is_told = True
            await asyncio.sleep(PAUSE_S)

    def _message(self, job: Job) -> AckableMessage:
        meta = job.meta or {}
        data = job.body
        task_id = meta.get("task") or shown_task(data) or job.id
        if TICK in meta and task_id.startswith(TICKING):
            message = self.formatter.loads(data)
            message.task_id = task_id = f"{task_id.removeprefix(TICKING)}:{meta[TICK]}"
            data = self.formatter.dumps(message).message
        self.held[task_id] = job
        return AckableMessage(data=data, ack=_Acknowledge(self, task_id, job))

    async def _put_back(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.leases.remove(job)
        if jobs:
            await self.client.put_back(jobs)

    # Acks.

    def _ack(self, task_id: str, job: Job) -> asyncio.Future[None] | None:
        """Acknowledge a job soon → a future if Taskiq must wait for it."""
        if job.id in self._given_back:
            return None  # The shutdown has interrupted its task, and another worker runs it.
        loop = asyncio.get_running_loop()
        is_over = self.leases.is_ending(job)
        done = None if is_over else loop.create_future()
        self._acks.append((job, done))
        self._pace.finish()
        self._let_go(task_id, job)
        if not is_over or not (self.held or self._has_more):
            if not self._is_flushed_soon:
                self._is_flushed_soon = True
                self._flushes.append(loop.call_soon(self._flush))
        elif not self._flushes:
            self._flushes.append(loop.call_later(ACK_S, self._flush))
        return done

    def _let_go(self, task_id: str, job: Job) -> None:
        if self.held.get(task_id) is job:
            del self.held[task_id]

    def _drop(self, task_id: str, job: Job) -> None:
        """Handle a message that Taskiq has dropped without an acknowledgement."""
        self.leases.remove(job)
        self._let_go(task_id, job)

    def _flush(self) -> None:
        for flush in self._flushes:
            flush.cancel()
        self._flushes.clear()
        self._is_flushed_soon = False
        acks, self._acks = self._acks, []
        plain = [ack for ack in acks if not ack[0].fence]
        for group in ([plain] if plain else []) + [[ack] for ack in acks if ack[0].fence]:
            task = asyncio.get_running_loop().create_task(self._send_acks(group))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_acks(self, acks: list[Ack]) -> None:
        try:
            await self._ack_jobs([job for job, _ in acks])
        except BaseException as error:
            for _, done in acks:
                if done is not None and not done.done():
                    done.set_exception(error)
            if not isinstance(error, Exception):
                raise
            if any(done is None for _, done in acks):
                _log.error("finished messages could not be acknowledged, and may come again: %s", error)
        else:
            for _, done in acks:
                if done is not None and not done.done():
                    done.set_result(None)
        finally:
            for job, _ in acks:
                self.leases.remove(job)

    async def _ack_jobs(self, jobs: list[Job]) -> None:
        is_told = False
        while True:
            try:
                await self.client.ack_jobs(jobs)
                return
            except DisqueError as error:  # Their leases are extended, so the tasks don't run twice.
                if self._is_closing or not is_outage(error):
                    raise
                if not is_told:
                    _log.warning("acknowledgements are delayed: %s", error)
                is_told = True
            await asyncio.sleep(PAUSE_S)


class _Acknowledge:
    """The acknowledgement of one delivery, as Taskiq calls it.

    Taskiq silently drops a message if a middleware or a label causes an error. Then its lease is no longer extended.
    """

    __slots__ = ("_broker", "_is_acked", "_job", "_task_id")

    def __init__(self, broker: DisqueBroker, task_id: str, job: Job) -> None:
        self._broker = broker
        self._task_id = task_id
        self._job = job
        self._is_acked = False

    def __call__(self) -> asyncio.Future[None] | None:
        """Acknowledge the delivery."""
        self._is_acked = True
        return self._broker._ack(self._task_id, self._job)

    def __del__(self) -> None:
        if not self._is_acked:
            self._broker._drop(self._task_id, self._job)


class _Ends(TaskiqMiddleware):
    """The number of each delivery, and the ends of tasks."""

    def __init__(self, broker: DisqueBroker) -> None:
        super().__init__()
        self._disque = broker

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Put the number of this delivery into the label `delivery_count`."""
        job = self._disque.held.get(message.task_id)
        if job is not None:
            message.labels["delivery_count"] = job.delivery_count
        return message

    def post_execute(self, message: TaskiqMessage, result: TaskiqResult) -> None:
        """Extend the lease only once more, because the acknowledgement follows soon."""
        job = self._disque.held.get(message.task_id)
        if job is not None:
            self._disque.leases.remove_later(job)
