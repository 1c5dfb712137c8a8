"""The schedule source of Taskiq: the cluster keeps the schedules, and adds the messages itself.

* `cron` and `interval` become schedules of the cluster (docs/schedules.md), named `<prefix><schedule id>`.
* `time` becomes a job with a delay. Its KEY is the schedule's name.

No scheduler process is needed. If one runs, it lists these schedules, and sends nothing for them.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskiq import ScheduledTask, ScheduleSource, TaskiqMessage
from taskiq.exceptions import ScheduledTaskCancelledError
from taskiq.labels import prepare_label

from disque_py.client import ScheduleInfo
from disque_py.integrations.taskiq.broker import TICKING, DisqueBroker, add_options

# The most messages with a `time` that `get_schedules` lists.
LISTED_MAX: Final = 1_000


class DisqueScheduleSource(ScheduleSource):
    """A schedule source of Taskiq.

    broker   the broker whose queue and nodes the schedules use
    prefix   beginning of the names of the schedules in the cluster, "taskiq:" by default
    """

    def __init__(self, broker: DisqueBroker, *, prefix: str = "taskiq:") -> None:
        self.broker = broker
        self.prefix = prefix

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Install a schedule in the cluster. A schedule with the same id is replaced.

        `cron_offset` may be the IANA name of a time zone. Raises ValueError for a span of time, which the cluster does
        not support, and ReplyError for an expression that it refuses.
        """
        name, labels = self._name(schedule.schedule_id), schedule.labels
        queue = labels.get("queue_name") or self.broker.queue_name
        task_id = schedule.task_id or TICKING + schedule.schedule_id
        if schedule.time is not None:
            await self._add_once(schedule, name, queue)
            return
        if isinstance(schedule.cron_offset, timedelta):
            raise ValueError("cron_offset must be the name of a time zone: the cluster supports no span of time")
        options = add_options({**labels, "priority": None}, self.broker.leases.lease)
        every = schedule.interval
        await self.broker.client.schedule(
            name,
            queue,
            self._body(schedule, task_id),
            cron=schedule.cron,
            every=every,
            time_zone=schedule.cron_offset,
            replicate=self.broker.replicate,
            meta={"task": task_id},
            **options,
        )

    async def _add_once(self, schedule: ScheduledTask, name: str, queue: str) -> None:
        moment = schedule.time
        assert moment is not None
        at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        delay_s = max(0.0, at.timestamp() - time.time())
        task_id = schedule.task_id or schedule.schedule_id
        await self.broker.client.add_job(
            queue,
            self._body(schedule, task_id),
            key=name,
            replicate=self.broker.replicate,
            meta={"task": task_id, "schedule": schedule.schedule_id, "at": at.isoformat()},
            **add_options({**schedule.labels, "delay": delay_s}, self.broker.leases.lease),
        )

    def _body(self, schedule: ScheduledTask, task_id: str) -> bytes:
        labels = {name: prepare_label(value) for name, value in schedule.labels.items()}
        labels.setdefault("schedule_id", prepare_label(schedule.schedule_id))
        message = TaskiqMessage(
            task_id=task_id,
            task_name=schedule.task_name,
            labels={name: value for name, (value, _) in labels.items()},
            labels_types={name: kind for name, (_, kind) in labels.items()},
            args=schedule.args,
            kwargs=schedule.kwargs,
        )
        body: bytes = self.broker.formatter.dumps(message).message
        return body

    async def delete_schedule(self, schedule_id: str) -> None:
        """Remove a schedule. Messages that it has added stay. A message whose `time` has not come yet is canceled."""
        client, name = self.broker.client, self._name(schedule_id)
        if await client.delete_schedule(name):
            return
        for queue in self.broker.queues:
            job_id = (await client.job_ids(queue, [name]))[0]
            if job_id is not None:
                await client.cancel(job_id)

    async def get_schedules(self) -> list[ScheduledTask]:
        """Return the schedules of this source that the cluster has."""
        client = self.broker.client
        names = [name for name in await client.schedules() if name.startswith(self.prefix)]
        infos = [await client.schedule_info(name) for name in names]
        found = [self._read(info) for info in infos if info is not None]
        for queue in self.broker.queues:
            for job in await client.qpeek(queue, LISTED_MAX, status="invisible", withmeta=True, cluster=True):
                meta = job.meta or {}
                if "schedule" in meta:
                    moment = datetime.fromisoformat(meta["at"])
                    found.append(self._task(meta["schedule"], job.body, time=moment))
        return found

    def _read(self, info: ScheduleInfo) -> ScheduledTask:
        schedule_id = info.name.removeprefix(self.prefix)
        zone = info.time_zone if info.time_zone != "UTC" else None
        return self._task(schedule_id, info.body, cron=info.cron, interval=info.every, cron_offset=zone)

    def _task(self, schedule_id: str, body: bytes, **moments: Any) -> ScheduledTask:
        message = self.broker.formatter.loads(body)
        message.parse_labels()
        return ScheduledTask(
            task_name=message.task_name,
            labels=message.labels,
            args=message.args,
            kwargs=message.kwargs,
            schedule_id=schedule_id,
            **{name: value for name, value in moments.items() if value is not None},
        )

    def pre_send(self, task: ScheduledTask) -> None:
        """Keep a scheduler process from sending a message, because the cluster sends it."""
        raise ScheduledTaskCancelledError

    def _name(self, schedule_id: str) -> str:
        return self.prefix + schedule_id
