"""The end of a job as the result of a task."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from types import SimpleNamespace

import pytest

from disque_py.client import NoPermissionError
from disque_py.client.flow_commands import JobEnd
from disque_py.tasks import (
    App,
    JSONSerializer,
    Progress,
    TaskCanceledError,
    TaskError,
    TaskExpiredError,
    TaskFailedError,
    TaskGoneError,
    current,
)
from disque_py.tasks.handle import Handle, pieces, progress_of, value_of
from disque_py.tasks.operations import SettingsOf, Show

JSON = JSONSerializer()


def value(status, result=None, error=None, elsewhere=None):
    return value_of(JobEnd("D-1", status, result, error), elsewhere, JSON)


def test_a_result_is_read():
    assert (value("completed", b"=[1]"), value("completed")) == ([1], None)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (("errored", None, "ValueError: no"), TaskFailedError),
        (("canceled",), TaskCanceledError),
        (("expired",), TaskExpiredError),
        (("unknown",), TaskGoneError),
        (("completed", b"@D-2"), TaskGoneError),
        (("completed", b"[1]"), TaskError),
    ],
)
def test_any_other_end_is_an_error(end, error):
    with pytest.raises(error):
        value(*end)


class Asked:
    """A broker that returns these answers."""

    serializer = JSON
    is_live = True

    def __init__(self, *answers):
        self.answers = list(answers)

    @property
    def broker(self):
        return self

    def run(self, operation):
        return self.answers.pop(0)

    async def run_async(self, operation):
        return self.run(operation)


@pytest.fixture
def shown():
    """A job as a node describes it."""
    app = App()
    task = app.task(name="t")(lambda: None)
    with app.in_memory(at_once=False) as memory:
        return memory.run(Show(task.add().id))


def test_a_dead_letter_is_a_failure(shown):
    """For the node the job is not over, because it waits in another queue."""
    dead = dataclasses.replace(shown, meta={"x-disque-from": "q", "x-disque-error": "ValueError: no total"})
    home = Asked([JobEnd("D-1", "pending", None, None)], dead, None)
    with pytest.raises(TaskFailedError, match="no total"):
        Handle(home, "D-1").wait(timeout=1)


def test_a_long_wait_looks_for_a_dead_letter_now_and_then(shown):
    """Otherwise a wait without a time-out would never end."""
    dead = dataclasses.replace(shown, meta={"x-disque-from": "q", "x-disque-error": "ValueError: no total"})
    pending = [JobEnd("D-1", "pending", None, None)]
    with pytest.raises(TaskFailedError, match="no total"):
        Handle(Asked(pending, shown, pending, dead, None), "D-1").wait()


def test_a_dead_letter_that_is_back_in_its_queue_is_no_failure(shown):
    """QREDRIVE gives it fresh attempts."""
    again = dataclasses.replace(shown, meta={"x-disque-from": shown.queue, "x-disque-error": "ValueError: no total"})
    pending = [JobEnd("D-1", "pending", None, None)]
    assert Handle(Asked(pending, again, DONE), "D-1").wait() == 1
    assert list(Handle(Asked(again, pending, again, DONE), "D-1").updates()) == []


PAST = {"x-disque-from": "q", "x-disque-error": "KeyError: 1", "x-disque-attempts": "3"}


@pytest.mark.parametrize(
    ("target", "there", "is_dead"),
    [
        pytest.param("dead", {"error": "KeyError: 1", "attempt": 3}, True, id="in the dead-letter queue"),
        pytest.param("dead", {"error": "KeyError: 2", "attempt": 4}, True, id="failed there again"),
        pytest.param("", {"error": "KeyError: 1", "attempt": 3}, True, id="the setting was removed since"),
        pytest.param("other", {"error": "KeyError: 1", "attempt": 3}, True, id="the setting was changed since"),
        pytest.param("other", {"error": None, "attempt": 3}, False, id="in a third queue"),
        pytest.param("other", {"error": "KeyError: 1", "attempt": 4}, False, id="failed in a third queue"),
    ],
)
def test_a_job_that_failed_elsewhere_is_a_dead_letter_only_in_the_dead_letter_queue(shown, target, there, is_dead):
    job = dataclasses.replace(shown, queue="dead", meta=PAST, **there)
    settings = SimpleNamespace(dead_letter=target)
    pending = [JobEnd("D-1", "pending", None, None)]
    home = Asked(pending, job, settings, DONE)
    if is_dead:
        with pytest.raises(TaskFailedError):
            Handle(home, "D-1").wait()
    else:
        assert Handle(home, "D-1").wait() == 1


def test_a_program_that_may_not_see_settings_takes_a_job_that_failed_elsewhere_for_a_dead_letter(shown):
    job = dataclasses.replace(shown, queue="third", meta=PAST)

    class Refusing(Asked):
        def run(self, operation):
            if isinstance(operation, SettingsOf):
                raise NoPermissionError("NOPERM no")
            return super().run(operation)

    with pytest.raises(TaskFailedError):
        Handle(Refusing([JobEnd("D-1", "pending", None, None)], job), "D-1").wait()


def test_the_pieces_of_a_wait_are_the_time_out():
    assert list(pieces(9, is_live=True)) == [2, 4, 3]
    assert list(pieces(0, is_live=True)) == [0.001]
    assert list(itertools.islice(pieces(None, is_live=True), 6)) == [2, 4, 8, 16, 30, 30]
    assert list(pieces(None, is_live=False)) == [2]


def test_a_task_that_is_not_over_times_out(shown):
    with pytest.raises(TimeoutError, match="running"):
        Handle(Asked([JobEnd("D-1", "running", None, None)], shown), "D-1").wait(timeout=1)


UNKNOWN = [JobEnd("D-1", "unknown", None, None)]
DONE = [JobEnd("D-1", "completed", b"=1", None)]


def test_a_task_that_is_unknown_before_the_time_out_is_gone():
    """Spec RW6: every known node is linked, and none has the task."""
    with pytest.raises(TaskGoneError):
        Handle(Asked(UNKNOWN), "D-1").wait()


def test_a_task_that_is_unknown_at_the_time_out_is_not_gone():
    """Spec RW8: the node that has the task may be unreachable for a moment."""
    with pytest.raises(TimeoutError, match="unknown"):
        Handle(Asked(UNKNOWN, None), "D-1").wait(timeout=0.001)
    with pytest.raises(TimeoutError, match="unknown"):
        asyncio.run(Handle(Asked(UNKNOWN, None), "D-1").result(timeout=0.001))


def test_the_progress_of_a_task_that_is_not_known_for_a_moment_goes_on(shown):
    """The iterator ends only when the task ends."""
    later = dataclasses.replace(shown, progress=50)
    assert [told.percent for told in Handle(Asked(shown, UNKNOWN, later, DONE), "D-1").updates(every=0.001)] == [50]


def test_progress_is_reported(shown):
    told = dataclasses.replace(shown, progress=40, progress_text="page 4")
    assert progress_of(told) == Progress(40, "page 4")
    assert progress_of(shown) is None
    assert progress_of(None) is None


def test_updates_report_each_progress_once_until_the_end(shown):
    going, over = JobEnd("D-1", "running", None, None), JobEnd("D-1", "completed", None, None)
    first, second = (dataclasses.replace(shown, progress=n, progress_text="") for n in (10, 60))
    home = Asked(shown, [going], first, [going], first, [going], second, [over])
    assert list(Handle(home, "D-1").updates()) == [Progress(10), Progress(60)]

    async def story():
        home = Asked(first, [going], second, [over])
        return [told async for told in Handle(home, "D-1").updates_async()]

    assert asyncio.run(story()) == [Progress(10), Progress(60)]


def test_updates_end_if_the_task_is_a_dead_letter(shown):
    """No answer to WAITJOB tells this end, because the job waits in another queue."""
    dead = dataclasses.replace(shown, meta={"x-disque-from": "q"})
    going = [JobEnd("D-1", "running", None, None)]
    first = dataclasses.replace(shown, progress=10)
    assert [told.percent for told in Handle(Asked(first, going, dead, None), "D-1").updates()] == [10]

    async def story():
        return [told async for told in Handle(Asked(dead, None), "D-1").updates_async()]

    assert asyncio.run(story()) == []


def test_updates_in_memory_end_for_a_task_that_still_waits():
    app = App()
    task = app.task(name="t")(lambda: None)
    with app.in_memory(at_once=False):
        assert list(task.add().updates()) == []


def test_a_running_task_shows_its_progress():
    app, seen = App(), []

    @app.task
    def work():
        current().progress(40, "page 4")
        seen.append(app.handle(current().job_id).progress())

    with app.in_memory():
        handle = work.add()
        assert handle.progress() is None
    assert seen == [Progress(40, "page 4")]
    assert handle == work.handle(handle.id)
    assert len({handle, work.handle(handle.id)}) == 1
