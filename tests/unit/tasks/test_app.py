"""The app: names, queues, schedules."""

from __future__ import annotations

import pytest

from disque_py.tasks import App, AsyncTask, Task


def test_the_kind_of_the_function_decides_how_it_runs():
    app = App()

    @app.task
    def one(): ...

    @app.task(queue="mail")
    async def two(): ...

    assert (type(one), type(two)) == (Task, AsyncTask)
    assert app.queues == ["default", "mail"]
    assert repr(app) == "<App tasks: 2 tasks>"


def test_two_functions_of_one_name_are_refused():
    """A job has only the name of its function."""
    app = App()

    @app.task(name="send")
    def one(): ...

    with pytest.raises(ValueError, match="send"):

        @app.task(name="send")
        def two(): ...


def test_a_module_that_is_loaded_again_declares_its_tasks_again():
    app = App()
    for _ in range(2):

        @app.schedule("* * * * *")
        @app.task
        def send(): ...

    assert list(app.tasks) == ["send"]
    assert list(app.schedules) == ["tasks:send"]


def test_a_schedule_makes_a_task_of_a_function():
    app = App(name="shop")

    @app.schedule(every=30, name="often", args=(1,))
    def clean(x): ...

    assert app.schedules["shop:often"].task is clean
    with pytest.raises(TypeError, match="clean"):
        app.schedule("@daily")(clean)
    with pytest.raises(ValueError, match="either"):
        app.schedule(name="neither", args=(1,))(clean)


def test_a_function_may_be_a_task_of_two_apps():
    first, second = App(queue="a"), App(queue="b")

    async def work(): ...

    one = first.task(work)
    two = second.task(one)
    assert (one.app, one.queue, two.app, two.queue) == (first, "a", second, "b")
    assert two.is_async
    assert two.function is work


def test_attributes_of_a_function_are_not_those_of_its_task():
    def work(): ...

    work.name, work.options = "other", {}
    task = App().task(work)
    assert (task.name, task.options(queue="q").queue) == ("work", "q")


def test_two_schedules_of_one_name_are_refused():
    app = App()
    app.schedule(every=30, name="a")(app.task(name="one")(lambda: None))

    @app.task
    def two(): ...

    with pytest.raises(ValueError, match="tasks:a"):
        app.schedule(every=30, name="a")(two)


def test_the_nodes_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DISQUE_URL", "disque://10.0.0.1:7711")
    assert App().url == "disque://10.0.0.1:7711"
    assert App("disque://10.0.0.2:7711").url == "disque://10.0.0.2:7711"
    monkeypatch.delenv("DISQUE_URL")
    app = App()
    assert app.url == "disque://127.0.0.1:7711"
    app.url = "disque://10.0.0.3:7711"
    assert app.broker.url == "disque://10.0.0.3:7711"


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="'lese' is not an option of tasks; did you mean 'lease'"):
        App(lese=1)
    with pytest.raises(TypeError, match="did you mean 'queue'"):
        App(queues=["mail"])
