"""The broker in memory, for tests of programs with tasks."""

from __future__ import annotations

import asyncio
import sys

import pytest

from disque_py.client.errors import ReplyError
from disque_py.tasks import (
    App,
    Fail,
    Retry,
    SerializerError,
    TaskCanceledError,
    TaskFailedError,
    TaskGoneError,
    current,
)

app = App(middleware=[])
ran = []


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
async def add_later(x: int, y: int) -> int:
    await asyncio.sleep(0)
    return x + y


@app.task(attempts=3, fail_on=(KeyError,))
def fail(error: str, until: int = 99) -> int:
    ran.append(current().attempt)
    if current().attempt < until:
        raise {"value": ValueError, "key": KeyError, "fail": Fail, "retry": Retry}[error]("no")
    return current().attempt


@app.task
def report(text: str) -> str:
    return text


@app.task(attempts=2)
def leave() -> None:
    sys.exit(3)


@app.task
def parent(x: int) -> int:
    return add.add(x, 1).wait() + add_later.add(x, 1).wait()


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@pytest.fixture
def memory():
    with app.in_memory() as memory:
        yield memory


@pytest.fixture
def queued():
    with app.in_memory(at_once=False) as memory:
        yield memory


def test_a_task_runs_at_once(memory):
    assert add.add(20, 22).wait() == 42
    assert add_later.add(20, 22).wait() == 42
    assert memory.calls() == [("add", [20, 22], {}), ("add_later", [20, 22], {})]


def test_a_task_runs_at_once_in_a_loop_too(memory):
    async def story():
        handle = await add_later.add_async(20, 22)
        return await handle.result(), add.add(1, 2).wait(), await parent(1), await handle.status_async()

    with pytest.raises(TypeError):  # `parent` is a plain function, so its result can't be awaited.
        asyncio.run(story())

    async def other():
        handle = await add_later.add_async(20, 22)
        return await handle.result(), add.add(1, 2).wait(), await handle.status_async()

    assert asyncio.run(other()) == (42, 3, "completed")


def test_a_task_may_add_others(memory):
    assert parent.add(1).wait() == 4


def test_a_task_can_wait_until_the_test_runs_it(queued):
    handle = add.add(20, 22)
    with pytest.raises(TimeoutError):
        handle.wait(timeout=1)
    assert handle.status() == "pending"
    assert queued.run_all() == 1
    assert handle.wait() == 42
    assert asyncio.run(queued.run_all_async()) == 0


def test_a_failure_comes_again_until_its_attempts_are_spent(memory):
    with pytest.raises(TaskFailedError) as caught:
        fail.add("value").wait()
    assert (caught.value.type_name, caught.value.message, ran) == ("ValueError", "no", [1, 2, 3])
    assert "in fail" in caught.value.traceback
    assert fail.add("value", until=2).wait() == 2


@pytest.mark.parametrize("error", ["key", "fail"])
def test_some_failures_are_not_retried(memory, error):
    with pytest.raises(TaskFailedError):
        fail.add(error).wait()
    assert ran == [1]


def test_a_task_that_exits_has_failed(memory):
    """In a worker, too, it ends neither the process nor the other tasks."""
    handle = leave.add()
    with pytest.raises(TaskFailedError, match="SystemExit: 3"):
        handle.wait()


def test_arguments_pass_through_the_serializer(memory):
    assert report.add((1, 2)).wait() == [1, 2]
    with pytest.raises(SerializerError):
        report.add(object())


def test_a_canceled_task_does_not_run(queued):
    handle = add.add(1, 2)
    assert handle.cancel()
    assert not handle.cancel()
    assert queued.run_all() == 0
    with pytest.raises(TaskCanceledError):
        handle.wait()


def test_a_key_has_one_task_while_that_is_not_over(queued):
    once = report.options(key="k")
    first, second = once.add("a"), once.add("b")
    assert first == second
    queued.run_all()
    assert once.add("c") != first


def test_a_delayed_task_is_replaced(queued):
    late = report.options(key="k", delay=30, replace=True)
    first, second = late.add("a"), late.add("b")
    queued.run_all()
    assert (first.status(), second.wait()) == ("canceled", "b")
    third = late.add("c")
    queued.run_all()
    assert (second.wait(), third.wait()) == ("b", "c")


def test_the_callback_of_a_group_runs_last(queued):
    with app.group(callback=report.call("all done")) as group:
        assert group.add(add, 1, 2).id
        group.add_many([add.call(3, 4), fail.call("key")])
    queued.run_all()
    info = group.wait()
    assert (info.total, info.completed, info.errored) == (3, 2, 1)
    assert app.handle(info.callback).wait() == "all done"
    assert [call[0] for call in queued.calls()] == ["add", "add", "fail", "report"]


def test_a_closed_group_takes_no_task(queued):
    with app.group() as group:
        group.add(add, 1, 2)
    with pytest.raises(ReplyError):
        group.add(add, 1, 2)
    with pytest.raises(TimeoutError):
        group.wait(timeout=1)
    assert queued.run_all() == len(queued.calls()) == 1


def test_an_id_of_no_task_is_gone(memory):
    with pytest.raises(TaskGoneError):
        app.handle("M-0").wait()


def test_a_long_result_comes_back(memory):
    assert report.add("x" * 100_000).wait() == "x" * 100_000


def test_the_broker_is_as_before_afterwards():
    before = app.broker
    with app.in_memory():
        assert app.broker is not before
    assert app.broker is before
