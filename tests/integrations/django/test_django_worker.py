"""The worker of Django's tasks, in this process and as a command."""

from __future__ import annotations

import os
import signal
import time

import pytest

from disque_py import testing

WORKER = ("-m", "django", "disque_worker", "--settings", "settings", "--pythonpath", ".")
PROGRAM = """
import os, time
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

@task
def write(number):
    with open(os.environ["NOTES"], "a") as file: file.write(f"{number}\\n")
    time.sleep(0.05)
"""
SEND = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
import writing
for number in range(200): writing.write.enqueue(number)
"""


def eventually(condition, seconds=10):
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def test_each_task_runs_once(tasks, start):
    for number in range(50):
        tasks.note.enqueue(number)
    start()
    start()
    eventually(lambda: len(tasks.ran) >= 50)
    assert sorted(tasks.ran) == list(range(50))


def test_a_task_beyond_its_lease_runs_once(tasks, backend, start):
    result = tasks.note.enqueue(1, pause=3.5)
    start()
    start()
    assert backend.wait_result(result.id, timeout=10).attempts == 1
    assert tasks.ran == [1]


def test_a_task_that_was_delivered_before_knows_it(tasks, backend, start, client):
    result = tasks.attempt.enqueue()
    assert client.get_job("django.default", lease=1).id == result.id
    start()
    assert backend.wait_result(result.id, timeout=10).return_value == 2


def test_a_job_that_is_no_task_is_errored(tasks, start, client):
    client.add_job("django.default", b"no task")
    client.add_job("django.default", b'{"task": "os.getpid", "args": [], "kwargs": {}}')
    start()
    eventually(lambda: client.qlen("django.default", status="errored") == 2)


def test_a_burst_ends_when_no_task_waits(tasks, backend):
    from disque_py.integrations.django.worker import DisqueWorker

    tasks.note.enqueue(1)
    DisqueWorker(backend, burst=True).run()
    assert tasks.ran == [1]


def test_the_nodes_keep_results_for_the_time_of_the_options(backend, client):
    backend.keep_results()
    assert client.queue_settings("django.mail").result_retention.days == 1


@pytest.mark.timeout(120)
def test_no_task_is_lost_when_workers_and_nodes_are_killed(run, notes, wait_for, folder, tmp_path):
    settings = (folder / "settings.py").read_text().replace('"OPTIONS": {', '"OPTIONS": {"lease": 2, ')
    (tmp_path / "settings.py").write_text(settings)
    (tmp_path / "writing.py").write_text(PROGRAM)
    with testing.cluster() as cluster:
        assert run(cluster.url, "-c", SEND).wait(30) == 0
        first = run(cluster.url, *WORKER)
        second = run(cluster.url, *WORKER)
        wait_for(lambda: len(notes()) > 40)
        os.killpg(first.pid, signal.SIGKILL)
        wait_for(lambda: len(notes()) > 80)
        cluster.kill(0)
        wait_for(lambda: set(notes()) == set(range(200)))
        os.kill(second.pid, signal.SIGTERM)
        assert second.wait(20) == 0
