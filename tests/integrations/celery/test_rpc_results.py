"""Celery's result backend `rpc://`: a result is a message to a queue of the program that sent the task."""

from __future__ import annotations

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from celery import Celery, chain, group
from celery_workers import CeleryWorker

from waits import eventually


@pytest.fixture(scope="module")
def worker(shared_node, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rpc")
    made = CeleryWorker(folder, shared_node.url, "-c", "2", name="rpc", RESULTS="rpc://", QUEUE="rpc").start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def app(shared_node, worker):
    """One app for all tests. The first test that waits for a result opens the consumer of the app's queue."""
    made = Celery("tests", broker=shared_node.url, backend="rpc://")
    made.conf.task_default_queue = "rpc"
    yield made
    made.close()


def task(app, name, *words, **options):
    return app.signature(f"celery_program.{name}", words, **options)


def test_a_state_is_polled(app):
    result = task(app, "add", 1, 2).delay()
    eventually(lambda: result.state == "SUCCESS")
    assert result.result == 3


def test_a_result_is_awaited(app):
    assert task(app, "add", 1, 2).delay().get(timeout=60) == 3


def test_a_state_is_polled_while_a_consumer_of_the_queue_is_open(app):
    """`get` leaves its consumer open, which fetches all results of the program."""
    assert task(app, "add", 1, 2).delay().get(timeout=60) == 3
    result = task(app, "run", "polled", 0.5).delay()
    eventually(lambda: result.state == "SUCCESS")
    assert result.get(timeout=60) == "polled"


def test_results_arrive_in_any_order(app):
    results = [task(app, "add", number, 0).delay() for number in range(30)]
    assert [result.get(timeout=60) for result in reversed(results)] == list(reversed(range(30)))


def test_failures_retries_groups_and_chains_work(app):
    with pytest.raises(ValueError, match="no"):
        task(app, "fail").delay().get(timeout=60)
    assert task(app, "third_time").delay().get(timeout=60) == 2
    assert group(task(app, "add", n, n) for n in range(5))().get(timeout=60) == [0, 2, 4, 6, 8]
    assert chain(task(app, "add", 1, 1), task(app, "add", 3)).delay().get(timeout=60) == 5
