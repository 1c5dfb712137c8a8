"""The runner: jobs become calls, and return values become results."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import functools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from disque_py.client import Fail, Job, Retry
from disque_py.tasks import App, Middleware, current
from disque_py.tasks.messages import INLINE_BYTES
from disque_py.tasks.runner import Runner

app = App(queue="q")
begun, go_on = threading.Event(), threading.Event()
tenant = contextvars.ContextVar("tenant", default="none")


@app.task
def echo(value):
    return value


@app.task(results=True)
def nothing():
    return None


@app.task(results=False)
async def secret():
    return "s"


@app.task(timeout=0.01)
async def endless():
    await asyncio.Event().wait()


@app.task(fail_on=(KeyError,))
def fail(error):
    raise {"value": ValueError, "key": KeyError, "stop": StopIteration, "retry": Retry, "exit": SystemExit(2)}[error]


@app.task
def interrupt(name):
    raise getattr(builtins, name)


@app.task
async def leave():
    sys.exit(2)


@app.task
def where():
    return [current().task, current().attempt, current().meta["a"], tenant.get(), threading.current_thread().name[:4]]


def logged(function):
    """Return a function around another one, as decorators of other libraries do."""

    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@app.task
@logged
async def wrapped(value):
    return value


@app.task
def hold():
    begun.set()
    go_on.wait(30)
    return "held"


def job_of(task, *args, **kwargs):
    job = Job("q", "D-1", task.call(*args, **kwargs).message().body, meta={"a": "b"}, attempt=2)
    job.tell = lambda *words: None
    return job


def handled(job, program=app):
    async def story():
        with ThreadPoolExecutor(1, thread_name_prefix="pool") as threads:
            return await Runner(program, app.broker, threads).handle(job)

    return asyncio.run(story())


def test_a_return_value_is_a_result():
    assert handled(job_of(echo, [1, "a"])) == b'=[1,"a"]'


def test_none_is_kept_only_where_it_is_wanted():
    assert [handled(job_of(echo, None)), handled(job_of(nothing)), handled(job_of(secret))] == [None, b"=null", None]


def test_a_plain_function_may_wrap_a_coroutine_function():
    """The worker of the client library awaits such a value, too."""
    assert handled(job_of(wrapped, 1)) == b"=1"


def test_a_long_value_is_stored_elsewhere():
    with app.in_memory() as memory:
        assert handled(job_of(echo, "x" * INLINE_BYTES)).startswith(b"@M-")
        assert memory.calls() == []


def test_a_function_in_a_thread_sees_its_context():
    tenant.set("ada")
    assert handled(job_of(where)) == b'=["where",2,"b","ada","pool"]'


@pytest.mark.parametrize(("error", "kind"), [("value", Retry), ("key", Fail), ("stop", Retry), ("exit", Retry)])
def test_a_failure_is_given_back_with_its_reason(error, kind):
    with pytest.raises(kind) as caught:
        handled(job_of(fail, error))
    assert "\n  at " in caught.value.reason
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, GeneratorExit])
def test_an_error_in_a_thread_never_ends_the_worker(error):
    """No signal raises KeyboardInterrupt in a thread."""
    with pytest.raises(Retry) as caught:
        handled(job_of(interrupt, error.__name__))
    assert caught.value.reason.startswith(f"RuntimeError: the task raised {error.__name__}\n  at {__name__}:")


def test_a_coroutine_that_exits_has_failed():
    """argparse exits with status 2, which the supervisor takes for a program that can't be imported."""
    with pytest.raises(Retry) as caught:
        handled(job_of(leave))
    assert caught.value.reason.startswith("SystemExit: 2")


def test_a_decision_of_the_task_is_kept():
    with pytest.raises(Retry) as caught:
        handled(job_of(fail, "retry"))
    assert caught.value.__cause__ is None


def test_a_coroutine_that_takes_too_long_fails():
    with pytest.raises(Retry) as caught:
        handled(job_of(endless))
    assert caught.value.reason.startswith("TimeoutError")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"task":"unknown"}', "no task 'unknown'"),
        (b"no json", "SerializerError"),
        (b'{"task":"echo","args":[1,2]}', "echo(): too many"),
    ],
)
def test_a_job_that_the_program_cannot_run_is_given_back(body, reason):
    """A newer worker may know the task."""
    with pytest.raises(Retry) as caught:
        handled(Job("q", "D-1", body, tell=print))
    assert reason in caught.value.reason


def test_the_first_middleware_is_the_outermost():
    seen = []

    class Note(Middleware):
        def __init__(self, name):
            self.name = name

        async def running(self, context, proceed):
            seen.append(self.name)
            value = await proceed()
            return f"{value} {context.task}{self.name}"

    other = App(queue="q", middleware=[Note(1), Note(2)])
    other.task(name="echo")(lambda value: value)
    assert handled(job_of(echo, "a"), other) == b'="a echo2 echo1"'
    assert seen == [1, 2]


def test_a_canceled_job_waits_for_its_thread():
    """Otherwise more functions could run than there are threads."""

    async def story():
        with ThreadPoolExecutor(1) as threads:
            runner, job = Runner(app, app.broker, threads), job_of(hold)
            handling = asyncio.create_task(runner.handle(job))
            await asyncio.to_thread(begun.wait, 30)
            job.is_canceled = True
            handling.cancel()
            await asyncio.sleep(0)
            assert (handling.done(), runner.busy_threads) == (False, 1)
            go_on.set()
            assert await handling == b'="held"'
            assert runner.busy_threads == 0

    asyncio.run(story())


def test_the_end_of_the_worker_leaves_the_thread_of_a_canceled_job():
    """The first cancellation is that of the job, and the second one that of the worker."""
    begun.clear()
    go_on.clear()

    async def story():
        with ThreadPoolExecutor(1) as threads:
            runner, job = Runner(app, app.broker, threads), job_of(hold)
            handling = asyncio.create_task(runner.handle(job))
            await asyncio.to_thread(begun.wait, 30)
            job.is_canceled = True
            for _ in range(2):
                handling.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([handling], timeout=0.5)
            assert (handling.cancelled(), runner.busy_threads) == (True, 1)
            go_on.set()

    try:
        asyncio.run(story())
    finally:
        go_on.set()
