"""The worker of Django's tasks, in this process."""

from __future__ import annotations

import pytest

from disque_py import testing
from waits import eventually


def test_each_task_runs_once(tasks, start):
    for number in range(50):
        tasks.note.enqueue(number)
    start()
    start()
    eventually(lambda: len(tasks.ran) >= 50)
    assert sorted(tasks.ran) == list(range(50))


def test_a_task_that_was_delivered_before_knows_it(tasks, backend, start, client):
    result = tasks.attempt.enqueue()
    assert client.get_job("django.default", lease=1).id == result.id
    start()
    assert backend.wait_result(result.id, timeout=60).return_value == 2


def test_a_job_without_a_valid_task_is_errored(tasks, start, client):
    client.add_job("django.default", b"no task")
    client.add_job("django.default", b'{"task": "os.getpid", "args": [], "kwargs": {}}')
    start()
    eventually(lambda: client.qlen("django.default", status="errored") == 2)


def test_a_burst_ends_when_no_task_waits(tasks, backend):
    from disque_py.integrations.django.worker import DisqueWorker

    tasks.note.enqueue(1)
    DisqueWorker(backend, burst=True).run()
    assert tasks.ran == [1]


def test_a_burst_runs_tasks_that_only_another_node_has(tasks):
    from disque_py.integrations.django.backend import DisqueBackend
    from disque_py.integrations.django.worker import DisqueWorker

    with testing.cluster(2) as cluster:
        producer, consumer = (
            DisqueBackend("default", {"QUEUES": ["default"], "OPTIONS": {"url": node.url, "replicate": 1}})
            for node in cluster
        )
        producer.enqueue(tasks.note, [1], {})
        DisqueWorker(consumer, threads=1, burst=True).run()
        assert tasks.ran == [1]
        producer.client.close()
        consumer.client.close()


def test_the_nodes_keep_results_for_the_time_of_the_options(backend, client):
    backend.keep_results("django.mail")
    assert client.queue_settings("django.mail").result_retention.days == 1


def test_a_task_that_was_cancelled_has_failed(tasks, backend, start):
    """For example, a coroutine in `async_to_sync` waited for a cancelled task. The thread goes on."""
    result, fine = tasks.cancelled.enqueue(), tasks.note.enqueue(1)
    start(threads=1)
    assert backend.wait_result(result.id, timeout=60).errors[0].exception_class_path.endswith("CancelledError")
    backend.wait_result(fine.id, timeout=60)


@pytest.mark.parametrize("signal", ["task_started", "task_finished"])
def test_a_receiver_that_raises_does_not_end_the_worker(tasks, backend, start, signal):
    from disque_py.integrations.django import framework

    def receive(**values):
        raise ZeroDivisionError

    sent = getattr(framework, signal)
    sent.connect(receive)
    try:
        results = [tasks.note.enqueue(number) for number in range(3)]
        start(threads=1)
        for result in results:
            backend.wait_result(result.id, timeout=60)
    finally:
        sent.disconnect(receive)
    assert sorted(tasks.ran) == [0, 1, 2]


def test_an_error_beside_a_task_does_not_end_the_worker(tasks, backend, start, monkeypatch):
    """The job comes again after its lease."""
    from disque_py.integrations.django import worker

    errors = iter([ZeroDivisionError])
    monkeypatch.setattr(worker, "PAUSE_S", 0.01)

    def close():
        for error in errors:
            raise error

    monkeypatch.setattr(worker, "close_old_connections", close)
    result = tasks.note.enqueue(1)
    start(threads=1)
    backend.wait_result(result.id, timeout=60)
