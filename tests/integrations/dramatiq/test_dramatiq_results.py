"""The result backend of Dramatiq."""

from __future__ import annotations

import threading
import time

import dramatiq
import pytest
from dramatiq.results import ResultFailure, ResultMissing, ResultTimeout


@pytest.fixture
def message():
    """Return a message that was never sent."""
    return dramatiq.Message("default", "add", (), {}, {})


def test_a_result_is_there_when_the_actor_has_returned(broker, backend, start):
    add = dramatiq.actor(lambda x, y: x + y, actor_name="add", store_results=True)
    message = add.send(20, 22)
    start()
    assert message.get_result(backend=backend, block=True) == 42
    assert message.get_result(backend=backend) == 42


def test_a_failure_is_a_result(broker, backend, start):
    @dramatiq.actor(store_results=True, max_retries=0)
    def fail():
        raise RuntimeError("no ink")

    message = fail.send()
    start()
    with pytest.raises(ResultFailure, match="no ink"):
        message.get_result(backend=backend, block=True)


def test_a_result_that_is_not_there_is_missing(backend, message):
    with pytest.raises(ResultMissing):
        backend.get_result(message)
    with pytest.raises(ResultTimeout):
        backend.get_result(message, block=True, timeout=50)


def test_a_waiting_reader_gets_the_result(backend, message):
    threading.Timer(0.2, backend.store_result, (message, [1, 2], 60_000)).start()
    assert backend.get_result(message, block=True, timeout=60_000) == [1, 2]


def test_a_result_ends_with_its_time(backend, message):
    backend.store_result(message, 1, 1)
    time.sleep(0.5)
    with pytest.raises(ResultMissing):
        backend.get_result(message)


def test_long_results_are_kept_too(backend, message):
    backend.store_result(message, "x" * 300_000, 60_000)
    assert backend.get_result(message) == "x" * 300_000


def test_results_may_be_kept_for_days(backend, message, client):
    backend.store_result(message, 1, 2 * 86_400_000)
    assert client.queue_settings(backend.namespace).result_retention.days == 2


def test_a_pipeline_passes_results_on(broker, backend, start):
    add = dramatiq.actor(lambda x, y: x + y, actor_name="add", store_results=True)
    start()
    pipe = (add.message(1, 2) | add.message(3)).run()
    assert pipe.get_result(block=True) == 6


def test_the_retention_of_the_queue_is_looked_at_once(backend, calls):
    for _ in range(3):
        backend.store_result(dramatiq.Message("default", "add", (), {}, {}), 42, 7_200_000)
    before = calls("queue")
    backend.store_result(dramatiq.Message("default", "add", (), {}, {}), 42, 7_200_000)
    assert calls("queue") == before > 0
