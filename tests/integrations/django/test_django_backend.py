"""The backend of Django's tasks."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from functools import partial

import pytest

from waits import eventually


def ended(backend, result):
    """Wait for the end of a task."""
    return backend.wait_result(result.id, timeout=60)


def test_a_result_is_read_by_the_id_of_its_job(tasks, backend, start, client):
    result = tasks.add.enqueue(20, y=22)
    assert (result.status, client.show(result.id).queue) == ("READY", "django.default")
    start()
    ended(backend, result)
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 42, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert tasks.add.get_result(result.id).args == [20]


def test_a_failed_task_keeps_its_error_and_its_job(tasks, backend, start, client):
    result = tasks.fail.enqueue()
    start()
    found = ended(backend, result)
    assert found.status == "FAILED"
    assert found.errors[0].exception_class is ValueError
    assert "in fail" in found.errors[0].traceback
    assert client.show(result.id).error == "ValueError: no ink"


def test_a_failed_task_that_is_redriven_has_the_newer_end(tasks, backend, start, client):
    result = tasks.fail.enqueue()
    start()
    ended(backend, result)
    client.redrive("django.default")
    eventually(lambda: backend.get_result(result.id).attempts == 2)


def test_a_task_runs_not_before_its_time(tasks, backend, start, client):
    from django.utils import timezone

    at = timezone.now() + timedelta(milliseconds=700)
    result = tasks.add.using(run_after=at).enqueue(1, 2)
    assert client.show(result.id).status == "invisible"
    assert backend.get_result(result.id).status == "READY"
    start()
    assert ended(backend, result).started_at >= at


def test_the_lease_of_a_task_that_runs_after_months_can_be_extended(tasks, client):
    """Nodes extend leases in the first half of a TTL only."""
    from django.utils import timezone

    result = tasks.add.using(run_after=timezone.now() + timedelta(days=100)).enqueue(1, 2)
    job = client.show(result.id)
    assert job.ttl / 2 >= job.delay + 14 * 86_400


def test_a_larger_priority_runs_first(tasks, start):
    for priority in (-100, 0, 100):
        tasks.note.using(priority=priority).enqueue(priority)
    start(threads=1)
    eventually(lambda: len(tasks.ran) == 3)
    assert tasks.ran == [100, 0, -100]


def test_a_running_task_is_running(tasks, backend, start):
    result = tasks.note.enqueue(1, pause=2)
    start()
    eventually(lambda: tasks.ran)
    assert backend.get_result(result.id).status == "RUNNING"
    assert ended(backend, result).status == "SUCCESSFUL"


def test_asynchronous_programs_and_tasks_work(tasks, backend, start):
    async def main():
        result = await tasks.greet.aenqueue("Ada")
        await asyncio.to_thread(ended, backend, result)
        return await tasks.greet.aget_result(result.id)

    start()
    assert asyncio.run(main()).return_value == "Dear Ada"


def test_a_task_of_a_transaction_that_fails_is_not_added(tasks, client):
    from django.db import transaction

    def change(fails):
        with transaction.atomic():
            transaction.on_commit(partial(tasks.add.enqueue, 1, 2))
            assert client.qlen("django.default") == 0
            if fails:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        change(fails=True)
    assert client.qlen("django.default") == 0
    change(fails=False)
    assert client.qlen("django.default") == 1


def test_a_long_value_is_kept_too(tasks, backend, start):
    result = tasks.long.enqueue()
    start()
    assert ended(backend, result).return_value == "x" * 100_000


def test_unknown_and_canceled_tasks_have_no_result(tasks, backend, client):
    from disque_py.integrations.django.framework import TaskResultDoesNotExist

    result = tasks.add.enqueue(1, 2)
    client.cancel(result.id)
    for unknown in (result.id, "no-id"):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(unknown)


def test_errors_in_the_options_are_found(site):
    from disque_py.integrations.django.backend import DisqueBackend

    def found(**options):
        return [error.id for error in DisqueBackend("default", {"OPTIONS": options}).check()]

    assert found(url="disque://10.0.0.1") == []
    assert found(leese=3) == ["disque.E001"]
    assert found(url="http://10.0.0.1") == ["disque.E002"]


def test_signals_tell_the_begin_and_the_end(tasks, backend, start):
    from disque_py.integrations.django.framework import task_enqueued, task_finished, task_started

    told = []

    def tell(sender, signal, task_result, **_):
        told.append((signal, task_result.id))

    signals = (task_enqueued, task_started, task_finished)
    for signal in signals:
        signal.connect(tell)
    try:
        result = tasks.add.enqueue(1, 2)
        start()
        ended(backend, result)
    finally:
        for signal in signals:
            signal.disconnect(tell)
    assert told == [(signal, result.id) for signal in signals]


def test_programs_that_other_tests_start_do_not_inherit_the_site(site):
    """Celery would look for these settings, too."""
    assert "DJANGO_SETTINGS_MODULE" not in os.environ
