"""A broker of Taskiq on a real node, with real receivers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

taskiq = pytest.importorskip("taskiq", reason="the extra [taskiq] is not installed")

from taskiq.receiver import Receiver  # noqa: E402

from disque_py.integrations.taskiq import DisqueBroker, DisqueResultBackend  # noqa: E402


@pytest.fixture
def make_broker(shared_node, name):
    """A function that makes brokers. Their queue is that of the test, and their leases last two seconds."""

    def make(**options):
        backend = DisqueResultBackend(shared_node.url, queue_name=f"{name}-results")
        broker = DisqueBroker(shared_node.url, queue_name=name, **{"lease": 2, **options})
        return broker.with_result_backend(backend)

    return make


@pytest.fixture
def broker(make_broker):
    """A broker with a queue that no other test uses."""
    return make_broker()


@asynccontextmanager
async def working(broker, **options):
    """Receive and run the broker's messages, as Taskiq's worker does."""
    finish = asyncio.Event()
    broker.is_worker_process = True
    with ThreadPoolExecutor(4) as executor:
        receiver = Receiver(broker, executor, **{"max_async_tasks": 10, "wait_tasks_timeout": 60, **options})
        listening = asyncio.create_task(receiver.listen(finish))
        try:
            yield
        finally:
            finish.set()
            await listening
            await broker.shutdown()


async def eventually(condition, seconds=60):
    """Wait until a condition is true."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def work():
    """The functions `working`, a context in which a worker runs, and `eventually`."""
    return working, eventually
