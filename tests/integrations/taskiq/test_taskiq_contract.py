"""Behaviour that Taskiq's own tests require of a broker and a result backend."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from taskiq import Context, SmartRetryMiddleware, TaskiqDepends, TaskiqMiddleware, TaskiqResultTimeoutError, gather
from taskiq.exceptions import NoResultError

# The seconds that a task may take on a busy machine.
LONG = 60


def run(broker, work, story, **options):
    """Run the coroutine of a test while a worker runs."""
    working, eventually = work

    async def main():
        async with working(broker, **options):
            await story(eventually)

    asyncio.run(main())


def test_functions_run_in_threads(broker, work):
    @broker.task(task_name="add")
    def add(x: int, y: int = 1) -> int:
        return x + y

    async def story(_):
        results = [await (await add.kiq(n, y=n)).wait_result(timeout=LONG) for n in range(3)]
        assert [result.return_value for result in results] == [0, 2, 4]

    run(broker, work, story)


def test_results_are_gathered(broker, work):
    @broker.task(task_name="double")
    async def double(x: int) -> int:
        return 2 * x

    async def story(_):
        tasks = [await double.kiq(n) for n in range(5)]
        assert [result.return_value for result in await gather(*tasks, timeout=LONG)] == [0, 2, 4, 6, 8]

    run(broker, work, story)


def test_a_result_has_its_labels_and_its_error(broker, work):
    @broker.task(task_name="fail", team="press")
    async def fail() -> None:
        raise ValueError("no ink")

    async def story(_):
        result = await (await fail.kiq()).wait_result(timeout=LONG)
        assert result.is_err
        assert (type(result.error), result.labels["team"]) == (ValueError, "press")

    run(broker, work, story)


def test_a_task_is_put_back_by_itself(broker, work, client, name):
    """`Context.requeue` sends the message again and ends this run without a result."""
    tries = []

    @broker.task(task_name="again")
    async def again(context: Context = TaskiqDepends()) -> str:  # noqa: B008
        tries.append(context.message.labels.get("X-Taskiq-requeue", 0))
        if len(tries) < 3:
            await context.requeue()
        return "done"

    async def story(eventually):
        result = await (await again.kiq()).wait_result(timeout=LONG)
        assert (result.return_value, len(tries)) == ("done", 3)
        await eventually(lambda: not client.qlen(name, status="running"))

    run(broker, work, story)


def test_a_task_rejects_its_message(broker, work, client, name):
    @broker.task(task_name="never")
    async def never(context: Context = TaskiqDepends()) -> None:  # noqa: B008
        context.reject()

    async def story(eventually):
        task = await never.kiq()
        result = await task.wait_result(timeout=LONG)
        assert "rejected" in str(result.error)
        await eventually(lambda: not client.qlen(name, status="running"))

    run(broker, work, story)


def test_a_task_without_a_result_stores_none(broker, work, client, name):
    @broker.task(task_name="silent")
    async def silent() -> None:
        raise NoResultError

    async def story(eventually):
        task = await silent.kiq()
        await eventually(lambda: not client.qlen(name) and not client.qlen(name, status="running"))
        assert not await task.is_ready()

    run(broker, work, story)


def test_a_time_limit_is_an_error(broker, work):
    @broker.task(task_name="endless", timeout=0.2)
    async def endless() -> None:
        await asyncio.sleep(600)

    async def story(_):
        assert (await (await endless.kiq()).wait_result(timeout=LONG)).is_err

    run(broker, work, story)


def test_a_retry_waits_on_the_nodes(broker, work):
    broker.add_middlewares(SmartRetryMiddleware(default_delay=0.3))
    ran = []

    @broker.task(task_name="note", retry_on_error=True, max_retries=3)
    async def note() -> int:
        ran.append(asyncio.get_running_loop().time())
        if len(ran) < 3:
            raise RuntimeError
        return len(ran)

    async def story(_):
        assert (await (await note.kiq()).wait_result(timeout=LONG)).return_value == 3
        assert all(later - earlier >= 0.3 for earlier, later in pairwise(ran))

    run(broker, work, story)


def test_middleware_sees_each_step(broker, work):
    seen = []

    class Steps(TaskiqMiddleware):
        def pre_send(self, message):
            seen.append("pre_send")
            return message

        def post_send(self, message):
            seen.append("post_send")

        def pre_execute(self, message):
            seen.append("pre_execute")
            return message

        def post_save(self, message, result):
            seen.append("post_save")

    broker.add_middlewares(Steps())

    @broker.task(task_name="note")
    async def note() -> None:
        pass

    async def story(eventually):
        await note.kiq()
        await eventually(lambda: "post_save" in seen)

    run(broker, work, story)
    assert {"pre_send", "post_send", "pre_execute", "post_save"} <= set(seen)


def test_waiting_ends_with_its_time(broker, work):
    @broker.task(task_name="slow")
    async def slow() -> None:
        await asyncio.sleep(5)

    async def story(_):
        with pytest.raises(TaskiqResultTimeoutError):
            await (await slow.kiq()).wait_result(timeout=0.2)

    run(broker, work, story)


@pytest.mark.parametrize("count", [1, 3])
def test_no_more_tasks_run_at_once_than_the_worker_allows(broker, work, count):
    running, most = set(), []

    @broker.task(task_name="note")
    async def note(number: int) -> None:
        running.add(number)
        most.append(len(running))
        await asyncio.sleep(0.05)
        running.remove(number)

    async def story(eventually):
        for number in range(12):
            await note.kiq(number)
        await eventually(lambda: len(most) == 12)

    run(broker, work, story, max_async_tasks=count)
    assert max(most) <= count


def test_an_invalid_message_is_dropped(broker, work, client, name):
    """Taskiq acknowledges messages that it can't read."""
    client.add_job(name, b"no message")

    async def story(eventually):
        await eventually(lambda: not client.qlen(name) and not client.qlen(name, status="running"))

    run(broker, work, story)
