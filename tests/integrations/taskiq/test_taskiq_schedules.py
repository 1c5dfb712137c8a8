"""The schedule source of Taskiq: the cluster adds the messages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from taskiq import ScheduledTask, TaskiqScheduler
from taskiq.scheduler.scheduled_task import CronSpec

from disque_py.integrations.taskiq import DisqueScheduleSource


@pytest.fixture
def source(broker, name):
    """A source whose schedules have names that no other test uses."""
    return DisqueScheduleSource(broker, prefix=f"{name}:")


@pytest.fixture
def note(broker):
    """A task that returns its number."""

    @broker.task(task_name="note")
    async def note(number: int) -> int:
        return number

    return note


def test_each_tick_runs_once_with_a_task_id_of_its_own(broker, source, note, work):
    working, _ = work
    ran = []

    @broker.task(task_name="tick")
    async def tick(number: int) -> None:
        ran.append(number)

    async def main():
        created = await tick.schedule_by_interval(source, 1, 7)
        seen = set()
        async with working(broker):
            while len(ran) < 2:
                seen |= set(broker.held)
                await asyncio.sleep(0.001)
            await source.delete_schedule(created.schedule_id)
        assert ran[:2] == [7, 7]
        assert all(task_id.startswith(f"{created.schedule_id}:") for task_id in seen)

    asyncio.run(main())


def test_a_message_with_a_time_comes_at_that_time(broker, source, note, work):
    working, _ = work

    async def main():
        at = datetime.now(UTC) + timedelta(seconds=0.5)
        created = await note.schedule_by_time(source, at, 5)
        async with working(broker):
            found = await broker.result_backend.wait_result(created.schedule_id, timeout=60)
        assert found.return_value == 5
        assert datetime.now(UTC) > at

    asyncio.run(main())


def test_schedules_are_listed_and_deleted(broker, source, note):
    async def main():
        at = datetime(2100, 1, 1, tzinfo=UTC)
        cron = await note.schedule_by_cron(source, CronSpec(minutes=5, offset="Europe/Berlin"), 1)
        once = await note.schedule_by_time(source, at, 2)
        found = {task.schedule_id: task for task in await source.get_schedules()}
        assert (found[cron.schedule_id].cron, found[cron.schedule_id].cron_offset) == ("5 * * * *", "Europe/Berlin")
        assert (found[once.schedule_id].time, found[once.schedule_id].args) == (at, [2])
        await cron.unschedule()
        await once.unschedule()
        assert await source.get_schedules() == []
        await broker.shutdown()

    asyncio.run(main())


def test_a_prefix_may_have_any_characters(broker, note, name):
    source = DisqueScheduleSource(broker, prefix=f"{name}[*]:")

    async def main():
        created = await note.schedule_by_interval(source, 3600, 1)
        assert [task.schedule_id for task in await source.get_schedules()] == [created.schedule_id]
        await created.unschedule()
        await broker.shutdown()

    asyncio.run(main())


def test_a_scheduler_process_sends_nothing(broker, source, note, client, name):
    async def main():
        await note.schedule_by_cron(source, "0 0 1 1 *", 1)
        scheduler = TaskiqScheduler(broker, [source])
        for task in await source.get_schedules():
            await scheduler.on_ready(source, task)
        assert client.qlen(name) == 0
        await broker.shutdown()

    asyncio.run(main())


def test_an_offset_in_time_is_refused(broker, source):
    task = ScheduledTask(
        task_name="note", labels={}, args=[], kwargs={}, cron="* * * * *", cron_offset=timedelta(hours=1)
    )
    with pytest.raises(ValueError, match="time zone"):
        asyncio.run(source.add_schedule(task))
