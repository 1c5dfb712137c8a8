"""A broker of Dramatiq on a real node, with real workers."""

from __future__ import annotations

import pytest

dramatiq = pytest.importorskip("dramatiq", reason="the extra [dramatiq] is not installed")

from disque_py.integrations.dramatiq import DisqueBackend, DisqueBroker, DisqueRateLimiterBackend  # noqa: E402


@pytest.fixture
def backend(shared_node, name):
    """A result backend with a queue that no other test uses."""
    backend = DisqueBackend(url=shared_node.url, namespace=f"{name}-results")
    yield backend
    backend.close()


@pytest.fixture
def limits(shared_node, name):
    """A rate limiter backend with names that no other test uses."""
    limits = DisqueRateLimiterBackend(url=shared_node.url, namespace=f"{name}-limits")
    yield limits
    limits.close()


@pytest.fixture
def broker(shared_node, name, backend):
    """A broker with queues that no other test uses. It stores results, and its leases last three seconds."""
    broker = DisqueBroker(url=shared_node.url, namespace=name, lease=3)
    broker.add_middleware(dramatiq.results.Results(backend=backend))
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def start(broker):
    """A function that starts workers. They stop at the end of the test."""
    workers = []

    def start(threads=2):
        worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=threads)
        workers.append(worker)
        worker.start()
        return worker

    yield start
    for worker in workers:
        worker.stop(60_000)
