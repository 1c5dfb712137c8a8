"""Tasks on a real node, with a worker in a thread of this process: results, errors, groups, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from disque_py import testing
from disque_py.client import BatchError, Disque
from disque_py.tasks import (
    App,
    AppWorker,
    MsgPackSerializer,
    TaskCanceledError,
    TaskFailedError,
    TaskGoneError,
    current,
)
from disque_py.tasks.schedules import Installed, install


@pytest.fixture(scope="module")
def node():
    with testing.node() as node:
        yield node


@pytest.fixture
def app(node):
    """An app with a queue and schedules that only this test uses."""
    name = f"t{uuid.uuid4().hex[:8]}"
    with App(node.url, name=name, queue=name) as app:
        yield app


@contextmanager
def working(app, **options):
    """Run a worker of the app as long as the context lasts."""
    worker = AppWorker(app, **{"concurrency": 4, "grace_s": 5, **options})
    thread = threading.Thread(target=lambda: asyncio.run(worker.serve()))
    thread.start()
    try:
        yield worker
    finally:
        worker.stop_from_thread()
        thread.join()


def until(ask):
    """Repeat a question until the answer is true, for at most a minute, and return the answer."""
    deadline = time.monotonic() + 60
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer


def with_asyncio(app, coroutine):
    """Run a coroutine in a new event loop, and close the app's client of that loop."""

    async def run():
        async with app:
            return await coroutine

    return asyncio.run(run())


def test_results_of_both_kinds_of_functions(app):
    @app.task
    def add(x, y):
        return x + y

    @app.task
    async def add_later(x, y):
        return x + y

    async def story():
        handle = await add.add_async(1, 2)
        return await handle.result(20), await add_later.handle(handle.id).result(20), await handle.status_async()

    with working(app):
        assert add.add(20, 22).wait(20) == 42
        assert add_later.add(20, y=22).wait(20) == 42
        assert with_asyncio(app, story()) == (3, 3, "completed")


def test_a_result_that_is_always_kept_is_not_none_when_the_node_has_dropped_it(app, node):
    """None would be a wrong answer. The node knows the end of a task for longer than a result of this queue."""

    @app.task(results=True)
    def answer():
        return 42

    with node.client() as client:
        client.set_queue(app.tasks["answer"].queue, result_retention=0)
    group = app.group()
    handles = [answer.add(), *app.add_many([answer.call()]), group.add(answer)]
    with working(app):
        until(lambda: all(handle.status() == "completed" for handle in handles))
    for handle in (*handles, answer.handle(handles[0].id)):
        with pytest.raises(TaskGoneError, match="not kept"):
            handle.wait(20)


def test_an_error_travels_to_the_program_that_waits(app):
    seen = []

    @app.task(attempts=2, backoff="fixed:50:50:0")
    def bill(order):
        seen.append(current().attempt)
        raise KeyError(order)

    @app.task(fail_on=(KeyError,))
    async def final(order):
        raise KeyError(order)

    with working(app):
        with pytest.raises(TaskFailedError) as caught:
            bill.add("o-1").wait(20)
        with pytest.raises(TaskFailedError):
            with_asyncio(app, final.add("o-1").result(20))
    assert (caught.value.type_name, caught.value.message, seen) == ("KeyError", "'o-1'", [1, 2])
    assert "in test_an_error_travels_to_the_program_that_waits.<locals>.bill" in caught.value.traceback


def test_a_dead_letter_is_a_failure(app):
    """The node goes on waiting, because the job is in another queue."""

    @app.task(attempts=1)
    def bill():
        raise ValueError("no total")

    with Disque.from_url(app.url) as client, working(app):
        client.set_queue(app.queues[0], dead_letter=f"{app.name}-dead")
        handle = bill.add()
        until(lambda: client.qlen(f"{app.name}-dead"))
        with pytest.raises(TaskFailedError, match="no total"):
            handle.wait()


def test_a_dead_letter_that_goes_on_in_a_third_queue_is_a_waiting_task(app):
    """An operator has moved it. There it may fail again, as in its own queue."""

    @app.task(attempts=2)
    def bill():
        return 42

    third = f"{app.name}-third"
    with Disque.from_url(app.url) as client:
        client.set_queue(app.queues[0], dead_letter=f"{app.name}-dead")
        handle = bill.add()
        client.nack(client.get_job(app.queues[0]), reason="ValueError: no total", final=True)
        client.redrive(f"{app.name}-dead", to=third)
        with pytest.raises(TimeoutError):
            handle.wait(3)
        client.nack(client.get_job(third), reason="ValueError: no total")
        with pytest.raises(TimeoutError):
            with_asyncio(app, handle.result(3))
        with working(app, queues=[third]):
            assert handle.wait(20) == 42


def test_a_result_that_is_too_long_for_an_acknowledgement(app):
    @app.task
    def repeat(text, count):
        return text * count

    with working(app):
        assert repeat.add("ü", 200_000).wait(20) == "ü" * 200_000


def test_msgpack_carries_bytes(node):
    app = App(node.url, name="packed", queue="packed", serializer=MsgPackSerializer())

    @app.task
    def reverse(data):
        return data[::-1]

    with app, working(app):
        assert reverse.add(b"\x00\x01").wait(20) == b"\x01\x00"


def test_the_callback_of_a_group_runs_when_all_its_tasks_are_over(app):
    @app.task
    def double(x):
        if x == 3:
            raise ValueError(x)
        return 2 * x

    @app.task
    def report(name):
        return f"{name} is done"

    with working(app):
        with app.group(callback=report.call("upload")) as group:
            handles = group.add_many([double.options(attempts=1).call(x) for x in range(20)])
            group.add(double, 20)
        info = group.wait(20)
        assert (info.total, info.completed, info.errored) == (21, 20, 1)
        assert handles[4].wait(20) == 8
        callback = until(lambda: group.info().callback)
        assert app.handle(callback).wait(20) == "upload is done"


def test_progress_and_cancellation_of_a_coroutine(app):
    ended = threading.Event()

    @app.task
    async def encode():
        current().progress(40, "page 4")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with working(app):
        handle = encode.add()
        told = until(handle.progress)
        assert (told.percent, told.note, handle.status()) == (40, "page 4", "running")
        updates = handle.updates(every=0.1)
        assert next(updates) == told
        assert handle.cancel()
        assert list(updates) == []
        assert ended.wait(30)
        with pytest.raises(TaskCanceledError):
            handle.wait(20)


def test_keys_delays_and_moments(app):
    @app.task(unique=True)
    def send(to):
        return to

    late = send.options(delay=3600)
    assert late.add("ada") == late.add("ada") != late.add("grace")
    assert late.add("ada").status() == "invisible"
    later = send.options(eta=datetime.now(UTC) + timedelta(hours=1)).add("mary")
    assert later.status() == "invisible"
    with pytest.raises(TimeoutError):
        later.wait(0.05)


def test_a_worker_serves_the_queues_of_all_tasks(app):
    @app.task(queue=f"{app.name}-mail")
    def mail():
        return "mail"

    @app.task
    def shop():
        return "shop"

    with working(app) as worker:
        assert worker.queues == [f"{app.name}-mail", app.name]
        assert (mail.add().wait(20), shop.add().wait(20)) == ("mail", "shop")


def test_the_lifespan_is_open_while_the_worker_works(app):
    @asynccontextmanager
    async def lifespan(app):
        app.pool = ["open"]
        yield
        app.pool.append("closed")

    @app.task
    def state():
        return app.pool[-1]

    app.lifespan = lifespan
    with working(app):
        assert state.add().wait(20) == "open"
    assert app.pool == ["open", "closed"]


def test_schedules_are_installed_once(app):
    """They are left alone afterwards, so their ticks and counts go on."""

    @app.schedule(every=3600)
    def clean(): ...

    name = f"{app.name}:clean"
    with Disque.from_url(app.url) as client:
        with working(app):
            until(lambda: client.schedule_info(name))

        async def again():
            return await install(app.async_client(), app.name, app.schedules)

        assert with_asyncio(app, again()) == Installed([], [], [])
        app.schedules.clear()
        with working(app):
            assert clean.add().wait(20) is None
            assert client.schedules(f"{app.name}:*") == [name]
        with working(app, prune=True):
            until(lambda: client.schedules(f"{app.name}:*") == [])


def test_a_schedule_that_the_node_refuses_does_not_end_the_worker(app, caplog):
    @app.schedule("61 * * * *")
    def never(): ...

    with working(app):
        assert never.add().wait(20) is None
        until(lambda: "can't be installed" in caplog.text)


def test_many_calls_with_one_that_is_refused(app):
    @app.task
    def add(x):
        return x

    full = add.options(maxlen=1)
    with pytest.raises(BatchError) as caught:
        app.add_many([full.call(1), full.call(2)])
    assert caught.value.results[0].startswith("D-")
    with pytest.raises(BatchError):
        with_asyncio(app, app.add_many_async([full.call(3)]))


def test_an_id_of_no_task_is_gone(app):
    with pytest.raises(TaskGoneError):
        app.handle("D-00000000-000000000000000000000000-05a1").wait(20)


def test_an_app_without_tasks_has_no_worker(app):
    with pytest.raises(ValueError, match="no tasks"):
        AppWorker(app)
