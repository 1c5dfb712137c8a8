"""Tasks: functions that a program can call directly or add as jobs."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from disque_py.client.flow_commands import JobEnd
from disque_py.tasks import App, JSONSerializer, SerializerError, TaskGoneError
from disque_py.tasks.handle import value_of
from disque_py.tasks.operations import Ends


@pytest.fixture
def app():
    return App("disque://127.0.0.1:1", queue="shop")


def test_a_task_is_still_its_function(app):
    @app.task
    def add(x, y=1):
        """Add."""
        return x + y

    assert (add(20, y=22), add.__doc__, add.name) == (42, "Add.", "add")


def test_a_task_is_still_its_coroutine_function(app):
    @app.task
    async def add(x, y):
        return x + y

    assert asyncio.run(add(20, 22)) == 42


def test_wrong_arguments_are_refused_when_the_task_is_added(app):
    @app.task
    def add(x, y):
        return x + y

    for args in [(), (1, 2, 3)]:
        with pytest.raises(TypeError, match=r"^add\(\)"):
            add.add(*args)
    with pytest.raises(SerializerError):
        add.add(1, object())


def test_options_are_merged_from_app_task_and_call(app):
    @app.task(priority=5, attempts=7)
    def add(x):
        return x

    called = add.options(delay=30).options(attempts=2, queue="mail").call(1).message()
    assert (called.queue, called.options["priority"], called.options["attempts"]) == ("mail", 5, 2)
    assert called.options["delay"].total_seconds() == 30
    plain = add.call(1).message()
    assert (plain.queue, plain.options["attempts"], "delay" in plain.options) == ("shop", 7, False)


def test_a_unique_task_has_a_key_of_its_arguments(app):
    @app.task(unique=True)
    def add(x):
        return x

    first, same, other = (add.call(x).message().options["key"] for x in (1, 1, 2))
    assert first == same != other
    assert add.options(key="mine").call(1).message().options["key"] == "mine"


def test_a_thread_has_no_time_limit(app):
    with pytest.raises(ValueError, match="can't be interrupted"):
        app.task(timeout=5)(lambda: None)


@pytest.mark.parametrize("wrong", [[KeyError], "KeyError", ("KeyError",)])
def test_fail_on_is_a_tuple_of_exceptions(app, wrong):
    """Otherwise the first failure would show it, as a failure of another kind."""
    with pytest.raises(TypeError, match="fail_on must be a tuple"):
        app.task(fail_on=wrong)(lambda: None)


def test_a_function_with_an_unknown_option_is_not_a_task(app):
    with pytest.raises(TypeError, match="'retries' is not an option of tasks; did you mean 'attempts'"):
        app.task(retries=5)(lambda: None)
    assert app.tasks == {}


def find() -> str | None:
    return None


def send() -> None:
    return None


def guess():
    return None


@pytest.mark.parametrize(
    ("function", "results", "is_kept"),
    [
        (find, None, True),
        (send, None, False),
        (guess, None, False),
        (send, True, True),
        (find, False, False),
    ],
    ids=["value or None", "None", "no annotation", "results=True", "results=False"],
)
def test_none_is_a_result_if_the_annotation_permits_a_value(app, function, results, is_kept):
    """So a program that waits can tell it from a result that the nodes have dropped."""
    task = app.task(name="t", results=results)(function)
    done = JobEnd("D-1", "completed", None, None)
    with app.in_memory() as memory:
        handle = task.add()
        assert handle.wait() is None
        assert (memory.run(Ends((handle.id,), 1))[0].result is None) == (not is_kept)
    with pytest.raises(TaskGoneError) if is_kept else nullcontext():
        assert value_of(done, None, JSONSerializer(), always_kept=task.keeps_none) is None


@pytest.mark.parametrize(("annotation", "is_kept"), [(None, False), (type(None), False), (int, True)])
def test_an_annotation_may_be_an_object(app, annotation, is_kept):
    """It is one without `from __future__ import annotations`."""

    def function():
        return None

    function.__annotations__["return"] = annotation
    assert app.task(name="t")(function).keeps_none == is_kept
