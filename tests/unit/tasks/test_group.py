"""Groups as contexts. See test_memory.py for their callbacks."""

from __future__ import annotations

import asyncio

import pytest

from disque_py.client import EmptyBatchError, ReplyError
from disque_py.tasks import App

app = App(name="shop")


@app.task
def double(x: int) -> int:
    return 2 * x


@pytest.fixture(autouse=True)
def _memory():
    with app.in_memory():
        yield


def test_the_end_of_the_block_closes_the_group():
    with app.group("upload-77") as group:
        assert group.add(double, 1).wait() == 2
        assert not group.info().closed
    info = group.wait(timeout=1)
    assert (info.name, info.closed, info.done) == ("upload-77", True, True)


def test_a_group_works_with_asyncio():
    async def story():
        async with app.group() as group:
            await group.add_async(double, 1)
            handles = await group.add_many_async([double.call(x) for x in range(600)])
        assert [await handle.result() for handle in handles[:3]] == [0, 2, 4]
        assert (await group.info_async()).total == 601
        return (await group.wait_async()).completed

    assert asyncio.run(story()) == 601


def test_a_block_that_fails_leaves_the_group_open():
    group = app.group()

    def story():
        with group:
            group.add(double, 1)
            raise KeyError

    with pytest.raises(KeyError):
        story()
    assert not group.info().closed


def test_a_group_without_a_task_adds_nothing():
    with app.group() as group:
        pass
    with pytest.raises(ReplyError):
        group.wait()


@app.task(unique=True)
def once(x: int) -> int:
    return 3 * x


def test_a_group_whose_tasks_were_all_there_before_says_so():
    """Its callback would never run. The results are those of the first tasks."""
    with app.in_memory(at_once=False) as memory:
        once.add(1)
        group = app.group(callback=double.call(5))
        with pytest.raises(EmptyBatchError, match="has no job"), group:
            group.add(once, 1)
        with pytest.raises(EmptyBatchError):
            group.wait(timeout=1)
        assert group.info() is None
        memory.run_all()
        assert [handle.wait() for handle in group.handles] == [3]


def test_a_group_whose_tasks_were_all_there_before_says_so_with_asyncio():
    async def story():
        await once.add_async(1)
        group = app.group()
        with pytest.raises(EmptyBatchError):
            async with group:
                await group.add_async(once, 1)
        with pytest.raises(EmptyBatchError):
            await group.wait_async(timeout=1)
        return await group.info_async()

    with app.in_memory(at_once=False):
        assert asyncio.run(story()) is None


def test_each_group_has_a_name_of_its_own():
    assert app.group().name != app.group().name
    assert app.group().name.startswith("shop-")


def test_many_calls_are_added_without_a_group():
    assert [handle.wait() for handle in app.add_many([double.call(1), double.call(2)])] == [2, 4]
    assert [handle.wait() for handle in asyncio.run(app.add_many_async([double.call(3)]))] == [6]
