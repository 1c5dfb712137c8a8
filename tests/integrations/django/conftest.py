"""A Django site on a real node: the site of the page of documentation, with more tasks."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest

django = pytest.importorskip("django", reason="the extra [django] is not installed")

if django.VERSION < (6,):
    pytest.importorskip("django_tasks", reason="Django before 6 needs the package django-tasks")

PAGE = Path(__file__).parents[3] / "docs/integrations/django.md"
MORE_TASKS = """
import asyncio, builtins, time
ran = []

@task
def note(number, pause=0):
    ran.append(number)
    time.sleep(pause)

@task
def fail():
    raise ValueError("no ink")

@task
def long():
    return "x" * 100_000

@task
def strange():
    return object()

@task
def leave():
    raise SystemExit("gone")

@task
def raise_builtin(name):
    raise getattr(builtins, name)

@task
def cancelled():
    raise asyncio.CancelledError

@task
def tangled():
    raise ValueError(ValueError("twice"))

@task(takes_context=True)
def own_id(context):
    return context.task_result.id

@task(takes_context=True)
def attempt(context):
    return context.attempt
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with the site of the page, and a module with more tasks."""
    folder = tmp_path_factory.mktemp("site")
    programs = dict(re.findall(r"```python\n# (\w+\.py)\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    (folder / "settings.py").write_text(programs["settings.py"])
    (folder / "tasks.py").write_text(programs["tasks.py"])
    (folder / "more_tasks.py").write_text(programs["tasks.py"].partition("@task")[0] + MORE_TASKS)
    return folder


@pytest.fixture(scope="session")
def site(folder, shared_node):
    """The site, set up in this process.

    Django reads its environment variables once, so they are removed again. Programs that other tests start must not
    inherit them: Celery looks for the settings of Django, too.
    """
    sys.path.insert(0, str(folder))
    try:
        with pytest.MonkeyPatch.context() as variables:
            variables.setenv("DISQUE_URL", shared_node.url)
            variables.setenv("DJANGO_SETTINGS_MODULE", "settings")
            django.setup()
        yield
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
def backend(site):
    """The default backend, with leases of two seconds."""
    from disque_py.integrations.django.framework import task_backends

    backend = task_backends["default"]
    backend.lease_s = 2.0
    return backend


@pytest.fixture
def tasks(backend):
    """The module with the tasks of the page and more tasks. The jobs of earlier tests are purged."""
    import more_tasks
    import tasks

    for status in ("pending", "invisible", "errored"):
        backend.client().purge("django.default", status=status)
    more_tasks.ran.clear()
    more_tasks.add, more_tasks.greet = tasks.add, tasks.greet
    return more_tasks


@pytest.fixture
def start(backend):
    """A function that starts workers. They stop at the end of the test."""
    from disque_py.integrations.django.worker import DisqueWorker

    running = []

    def start(**options):
        worker = DisqueWorker(backend, **{"threads": 2, **options})
        thread = threading.Thread(target=worker.run)
        running.append((worker, thread))
        thread.start()
        return worker

    yield start
    for worker, _ in running:
        worker.stop()
    for _, thread in running:
        thread.join(60)
