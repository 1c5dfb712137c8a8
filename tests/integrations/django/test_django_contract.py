"""Behaviour that Django's own tests require of a backend of tasks."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from waits import eventually


def ended(backend, result):
    return backend.wait_result(result.id, timeout=60)


@pytest.fixture
def mistakes(backend):
    """The exceptions of Django's tasks."""
    try:
        from django.tasks import exceptions
    except ImportError:
        from django_tasks import exceptions
    return exceptions


def test_a_result_that_was_enqueued_is_complete(tasks, backend):
    result = tasks.add.enqueue(1, y=2)
    assert (result.status, result.task, result.args, result.kwargs) == ("READY", tasks.add, [1], {"y": 2})
    assert (result.is_finished, result.attempts, result.errors, result.backend) == (False, 0, [], "default")
    assert result.enqueued_at is not None
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018


def test_refreshing_changes_nothing_of_a_task_that_waits(tasks, backend):
    result = tasks.add.enqueue(1, 2)
    before = dataclasses.asdict(result)
    result.refresh()
    assert dataclasses.asdict(result) == before
    asyncio.run(result.arefresh())
    assert dataclasses.asdict(result) == before
    assert tasks.add.get_result(result.id) == result


def test_arguments_that_are_not_json_are_refused(tasks, client):
    with pytest.raises(TypeError):
        tasks.add.enqueue(datetime.now(), 2)
    assert client.qlen("django.default") == 0


def test_tasks_are_validated(tasks, mistakes):
    invalid = getattr(mistakes, "InvalidTask", None) or mistakes.InvalidTaskError  # The name in django-tasks.
    for options in ({"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"queue_name": "unknown"}):
        with pytest.raises(invalid):
            tasks.add.using(**options).enqueue(1, 2)
    with pytest.raises(invalid):
        tasks.add.using(run_after=datetime.now()).enqueue(1, 2)


def test_a_result_of_another_task_does_not_match(tasks, mistakes):
    result = tasks.add.enqueue(1, 2)
    with pytest.raises(mistakes.TaskResultMismatch):
        tasks.fail.get_result(result.id)


def test_a_backend_tells_what_it_supports(backend):
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_failed_task_is_described(tasks, backend, start):
    result = tasks.fail.enqueue()
    start()
    found = ended(backend, result)
    assert found.is_finished
    assert found.errors[0].traceback.endswith("ValueError: no ink\n")
    assert found.enqueued_at <= found.started_at <= found.finished_at
    with pytest.raises(ValueError, match="failed"):
        found.return_value  # noqa: B018


def test_a_value_that_is_not_json_fails_its_task(tasks, backend, start):
    result = tasks.strange.enqueue()
    start()
    assert ended(backend, result).errors[0].exception_class is TypeError


def test_a_task_that_exits_fails_and_the_worker_goes_on(tasks, backend, start):
    result = tasks.leave.enqueue()
    start(threads=1)
    assert ended(backend, result).errors[0].exception_class is SystemExit
    assert ended(backend, tasks.add.enqueue(1, 2)).return_value == 3


def test_no_error_of_a_task_ends_a_thread_of_the_worker(tasks, backend, start):
    """KeyboardInterrupt is no Ctrl-C there. Extensions in Rust raise errors that are no Exceptions."""
    results = [tasks.raise_builtin.enqueue(name) for name in ("KeyboardInterrupt", "GeneratorExit", "BaseException")]
    start(threads=1)
    found = [ended(backend, result).errors[0].exception_class for result in results]
    assert found == [KeyboardInterrupt, GeneratorExit, BaseException]
    assert ended(backend, tasks.add.enqueue(1, 2)).return_value == 3


def test_an_exception_that_cannot_be_pickled_is_kept_as_text(tasks, backend, start):
    result = tasks.tangled.enqueue()
    start()
    assert "ValueError(ValueError(" in ended(backend, result).errors[0].traceback


def test_a_context_has_the_result(tasks, backend, start):
    result = tasks.own_id.enqueue()
    start()
    assert ended(backend, result).return_value == result.id


def test_the_log_tells_begin_and_end(tasks, backend, start, caplog):
    # Django 6 sets the level of its own loggers to INFO.
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="django"):
        result = tasks.add.enqueue(1, 2)
        failed = tasks.fail.enqueue()
        start()
        ended(backend, result)
        ended(backend, failed)
        eventually(lambda: "state=FAILED" in caplog.text)
    assert f"id={result.id}" in caplog.text
    for word in ("enqueued", "state=RUNNING", "state=SUCCESSFUL"):
        assert word in caplog.text


def test_a_backend_without_queues_takes_all_of_them(tasks, client):
    """`QUEUES: []` allows any name."""
    from django.conf import settings
    from django.test import override_settings

    from disque_py.integrations.django.framework import task_backends
    from disque_py.integrations.django.worker import DisqueWorker

    with override_settings(TASKS={"default": settings.TASKS["default"] | {"QUEUES": []}}):
        result = tasks.add.using(queue_name="anything").enqueue(1, 2)
        DisqueWorker(task_backends["default"], burst=True).run()
        result.refresh()
        assert result.return_value == 3
        assert client.queue_settings("django.anything").result_retention == timedelta(days=1)


def test_all_threads_of_a_process_share_their_connections(backend):
    """Django makes a backend per thread, and a server may have a thread per request."""
    with ThreadPoolExecutor() as executor:
        other = executor.submit(lambda: type(backend)("default", {"OPTIONS": backend.options})).result()
    assert other is not backend
    assert other.client() is backend.client()
