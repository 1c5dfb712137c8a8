"""The worker of an app around its lifespan. Real nodes: tests/integration/test_tasks_worker.py."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from disque_py.tasks import App, AppWorker


@pytest.mark.timeout(20)
def test_a_second_signal_ends_a_lifespan_that_does_not_begin():
    """The app waits for a service that does not answer, for example."""
    ended = []

    @asynccontextmanager
    async def lifespan(app):
        asyncio.get_running_loop().call_soon(worker.stop)
        asyncio.get_running_loop().call_later(0.05, worker.stop)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(app)
        yield

    app = App(lifespan=lifespan)
    app.task(name="t")(lambda: None)
    worker = AppWorker(app)
    worker.run()
    assert ended == [app]
