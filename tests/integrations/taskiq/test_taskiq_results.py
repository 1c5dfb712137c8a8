"""The result backend of Taskiq."""

from __future__ import annotations

import asyncio

import pytest
from taskiq import TaskiqResult
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError
from taskiq.serializers import PickleSerializer

from disque_py.integrations.taskiq import DisqueResultBackend


def run(shared_node, name, story, **options):
    """Run the coroutine of a test with a backend."""

    async def main():
        backend = DisqueResultBackend(shared_node.url, queue_name=name, **options)
        await backend.startup()
        try:
            await story(backend)
        finally:
            await backend.shutdown()

    asyncio.run(main())


def result(value):
    return TaskiqResult(is_err=False, return_value=value, execution_time=0.1)


def test_a_result_is_read_as_it_was_stored(shared_node, name):
    async def story(backend):
        assert not await backend.is_result_ready("task")
        await backend.set_result("task", result({"pages": 12}))
        assert await backend.is_result_ready("task")
        assert (await backend.get_result("task")).return_value == {"pages": 12}

    run(shared_node, name, story)


def test_an_error_is_a_result(shared_node, name):
    async def story(backend):
        failed = TaskiqResult(is_err=True, return_value=None, execution_time=0.1, error=ValueError("no ink"))
        await backend.set_result("task", failed)
        with pytest.raises(ValueError, match="no ink"):
            (await backend.get_result("task")).raise_for_error()

    run(shared_node, name, story)


def test_a_waiting_reader_gets_the_result(shared_node, name):
    async def story(backend):
        waiting = asyncio.create_task(backend.wait_result("task", timeout=60))
        await asyncio.sleep(0.1)
        await backend.set_result("task", result(42))
        assert (await waiting).return_value == 42
        with pytest.raises(ResultGetError):
            await backend.wait_result("other", timeout=0.05)
        with pytest.raises(ResultGetError):
            await backend.get_result("other")

    run(shared_node, name, story)


def test_results_may_be_pickled(shared_node, name):
    async def story(backend):
        await backend.set_result("task", result({1, 2}))
        assert (await backend.get_result("task")).return_value == {1, 2}

    run(shared_node, name, story, serializer=PickleSerializer())


def test_the_newest_progress_counts(shared_node, name, client):
    async def story(backend):
        assert await backend.get_progress("task") is None
        await backend.set_progress("task", TaskProgress(state="STARTED", meta={"page": 1}))
        await backend.set_progress("task", TaskProgress(state="half", meta={"page": 6}))
        progress = await backend.get_progress("task")
        assert (progress.state, progress.meta) == ("half", {"page": 6})
        assert client.qlen(f"{name}.progress.task") == 1

    run(shared_node, name, story)
