"""Worker: fetch, handle, acknowledge, stop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import signal
import sys
import threading
import time
import weakref
from datetime import timedelta

import pytest

from client_node import HANG_UP, SILENCE, Node, in_turn, wait_until
from disque_py.client import (
    AsyncDisque,
    AttemptsSpentError,
    AuthError,
    Backoff,
    Disque,
    ReplyError,
    Worker,
    WorkerHooks,
)
from disque_py.client.options import ClientOptions
from disque_py.client.worker import CANCEL_S, LAST_ACKS_S
from disque_py.tasks import supervisor
from worker_nodes import QUICK, Failing, Queue, RecordingHooks, fail, nothing, work


def test_a_worker_refuses_the_blocking_client():
    """Its calls would block the event loop, and with it the signal handlers."""
    with pytest.raises(TypeError, match="a Worker needs an AsyncDisque, not a Disque"):
        Worker(Disque("127.0.0.1:1"), ["q"], print)


def test_a_job_is_acknowledged_when_its_handler_returns():
    """Each job is acknowledged once. Acks are collected while earlier ones are in flight."""
    with Queue(100) as node:
        work(node, nothing, until=lambda: len(node.ids_of("ACKJOB")) == 100)
        assert node.ids_of("ACKJOB") == node.ids
        assert len(node.named("ACKJOB")) < 60


def test_a_worker_fetches_as_many_jobs_as_handlers_are_free():
    """No job waits in the worker while its lease runs."""
    running = []

    async def handle(job):
        running.append(job)
        await asyncio.sleep(0.02)
        assert len(running) <= 4
        running.remove(job)

    with Queue(20) as node:
        work(node, handle, until=lambda: len(node.ids_of("ACKJOB")) == 20, concurrency=4)
        assert max(node.portions) == 4


def test_a_job_is_put_back_when_its_handler_raises():
    """The hook gets the reason."""
    hooks = RecordingHooks()

    async def handle(job):
        if job.body == b"01":
            raise ValueError("no")

    with Queue(3) as node:
        work(node, handle, until=lambda: len(node.ids_of("ACKJOB")) == 2, hooks=hooks)
        assert node.ids_of("NACK") == [node.ids[1]]
        assert sorted(hooks.lines) == ["failure no", "start", "start", "start", "success", "success"]


def test_a_handler_that_waited_for_a_cancelled_task_has_failed():
    """The CancelledError comes from the handler, so the worker continues."""

    async def handle(job):
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        if job.body == b"00":
            await task

    with Queue(2) as node:
        work(node, handle, until=lambda: node.ids_of("NACK") and node.ids_of("ACKJOB"), concurrency=1)
        assert (node.ids_of("NACK"), node.ids_of("ACKJOB")) == (node.ids[:1], node.ids[1:])


def test_a_coroutine_in_a_plain_wrapper_is_run():
    """Some decorators return such functions. The job is not done when the wrapper returns."""
    done = []

    async def handle(job):
        await asyncio.sleep(0)
        done.append(job.id)

    with Queue(1) as node:
        work(node, lambda job: handle(job), until=lambda: node.ids_of("ACKJOB"))
        assert done == node.ids


def test_a_function_that_raises_stop_iteration_has_failed():
    """An example is `next()` of an empty iterator.

    A future can't hold this error, but the handler's slot must be freed.
    """

    def handle(job):
        next(iter(()))

    with Queue(1) as node:
        work(node, handle, until=lambda: node.ids_of("NACK"))
        assert node.ids_of("NACK") == node.ids


def exits(job):
    if job.body == b"00":
        sys.exit(3)


async def exits_in_the_loop(job):
    exits(job)


class PanicException(BaseException):
    """An error as extensions in Rust raise it: no Exception."""


def panics(job):
    if job.body == b"00":
        raise PanicException("index out of bounds")


async def panics_in_the_loop(job):
    panics(job)


@pytest.mark.parametrize(
    ("handler", "line"),
    [
        (exits, "failure the handler called sys.exit(3)"),
        (exits_in_the_loop, "failure the handler called sys.exit(3)"),
        (panics, "failure the handler raised PanicException: index out of bounds"),
        (panics_in_the_loop, "failure the handler raised PanicException: index out of bounds"),
    ],
)
def test_a_handler_that_exits_or_raises_no_exception_has_failed(handler, line):
    """argparse and click call sys.exit. Otherwise one job could end all workers. The other jobs go on."""
    hooks = RecordingHooks()
    with Queue(2) as node:
        work(node, handler, until=lambda: node.ids_of("NACK") and node.ids_of("ACKJOB"), hooks=hooks)
        assert (node.ids_of("NACK"), node.ids_of("ACKJOB")) == (node.ids[:1], node.ids[1:])
        assert line in hooks.lines


def interrupts(job):
    if job.body == b"00":
        raise KeyboardInterrupt


async def closes_itself(job):
    if job.body == b"00":
        raise GeneratorExit


@pytest.mark.parametrize(("handler", "name"), [(interrupts, "KeyboardInterrupt"), (closes_itself, "GeneratorExit")])
def test_an_error_that_usually_ends_a_program_is_a_failure_of_the_job(handler, name):
    """A thread gets no Ctrl-C, and the worker has not closed the coroutine. The other jobs go on."""
    hooks = RecordingHooks()
    with Queue(2) as node:
        work(node, handler, until=lambda: node.ids_of("NACK") and node.ids_of("ACKJOB"), hooks=hooks)
        assert (node.ids_of("NACK"), node.ids_of("ACKJOB")) == (node.ids[:1], node.ids[1:])
        assert f"failure the handler raised {name}" in hooks.lines


def test_progress_of_a_job_that_is_over_is_not_kept():
    """A thread that a handler has left behind may still report it."""
    over = []

    class Decoder:
        """A part of the job whose end a test can see."""

        def __call__(self, body):
            return body

    async def handle(job):
        job.decode = Decoder()
        over.append(weakref.ref(job.decode))
        asyncio.get_running_loop().call_later(0.05, job.progress, 50)

    def is_gone():
        if len(node.ids_of("ACKJOB")) < 2:
            return False
        gc.collect(1)  # A full collection, repeated, would take most of the time on a busy machine.
        return over[0]() is None

    with Queue(2) as node:
        work(node, handle, until=is_gone, concurrency=1)  # The loop over jobs refers to the last one.


def test_a_function_that_decides_about_an_error_may_exit_too():
    async def bury(job, error):
        sys.exit(3)

    with Queue(1) as node:
        work(node, fail, until=lambda: node.ids_of("NACK"), on_error=bury, backoff=None)


@pytest.mark.parametrize("answer", ["\ud83d", 10**5000, object()], ids=["surrogate", "long", "object"])
def test_a_result_that_is_no_text_fails_its_job(answer):
    """UTF-8 can't express half of a surrogate pair. The worker goes on."""

    async def handle(job):
        return answer if job.body == b"00" else "fine"

    with Queue(2) as node:
        work(node, handle, until=lambda: node.ids_of("NACK") and node.named("ACKJOB"), results=True)
        assert node.ids_of("NACK") == node.ids[:1]


def test_an_error_without_a_message_fails_its_job():
    """Its own method raises."""

    class MuteError(Exception):
        def __str__(self):
            raise AttributeError

    async def handle(job):
        raise MuteError

    with Queue(1) as node:
        work(node, handle, until=lambda: node.ids_of("NACK"), hooks=WorkerHooks())


@pytest.mark.parametrize("wrap", [lambda handle: handle, lambda handle: lambda job: handle(job)])
def test_a_job_sees_no_context_variables_of_the_one_before(wrap):
    """Such a variable may be the tenant, or the user, for whom a job runs."""
    tenant = contextvars.ContextVar("tenant", default="none")
    seen = []

    async def handle(job):
        seen.append(tenant.get())
        tenant.set(job.id)

    with Queue(2) as node:
        work(node, wrap(handle), until=lambda: len(node.ids_of("ACKJOB")) == 2, concurrency=1)
    assert seen == ["none", "none"]


def test_a_cancellation_that_a_handler_left_behind_does_not_end_the_worker():
    """Some libraries cancel the task at their time limit, and do not take the cancellation back."""

    async def handle(job):
        if job.body == b"00":
            asyncio.current_task().cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        if job.body == b"01":
            other = asyncio.ensure_future(asyncio.sleep(60))
            other.cancel()
            await other

    with Queue(3) as node:
        work(node, handle, until=lambda: len(node.ids_of("ACKJOB")) == 2, concurrency=1)
        assert node.ids_of("ACKJOB") == [node.ids[0], node.ids[2]]


def test_failures_may_be_left_to_their_retry():
    """With a NACK, a job that fails immediately would come back immediately."""

    async def handle(job):
        raise ValueError

    hooks = RecordingHooks()
    with Queue(1) as node:
        work(node, handle, until=lambda: len(hooks.lines) == 2, hooks=hooks, on_failure="leave")
        assert node.named("NACK") == []


def test_plain_functions_run_in_threads():
    """Up to `concurrency` of them run at the same time."""
    barrier = threading.Barrier(3)
    names = set()

    def handle(job):
        names.add(threading.current_thread().name)
        barrier.wait(5)

    with Queue(3) as node:
        work(node, handle, until=lambda: len(node.ids_of("ACKJOB")) == 3, concurrency=3)
    assert len(names) == 3


def test_an_object_with_an_async_call_is_a_handler():
    """A handler need not be a function."""

    class Handler:
        async def __call__(self, job):
            await asyncio.sleep(0)

    with Queue(1) as node:
        work(node, Handler(), until=lambda: len(node.ids_of("ACKJOB")) == 1)


def test_the_leases_of_long_jobs_are_extended():
    """Each lease is extended at half of the job's RETRY, which the first reply gives."""

    async def handle(job):
        await asyncio.sleep(1.2)

    with Queue(1, WORKING=b":1\r\n") as node:
        work(node, handle, until=lambda: node.ids_of("ACKJOB") != [])
        assert len(node.named("WORKING")) == 2


def test_stopping_lets_running_handlers_finish():
    """They may run until the grace period ends."""
    began = []

    async def handle(job):
        began.append(job)
        await asyncio.sleep(0.2)

    with Queue(2) as node:
        work(node, handle, until=lambda: len(began) == 2)
        assert node.ids_of("ACKJOB") == node.ids
        assert node.named("NACK") == []


def test_jobs_still_running_after_the_grace_are_put_back():
    """The handlers are cancelled."""
    began = []

    async def handle(job):
        began.append(job)
        await asyncio.sleep(60)

    with Queue(2) as node:
        work(node, handle, until=lambda: len(began) == 2, grace_s=0.05)
        assert node.ids_of("NACK") == node.ids


def test_a_handler_that_survives_its_cancellation_has_done_its_work():
    """The job is acknowledged, because the handler returned. The worker still ends."""
    began = []

    async def handle(job):
        began.append(job)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    with Queue(1) as node:
        work(node, handle, until=lambda: len(began) == 1, grace_s=0.05)
        assert node.ids_of("ACKJOB") == node.ids


def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_the_end(monkeypatch):
    """Its job is put back while it still runs."""
    monkeypatch.setattr("disque_py.client.worker.CANCEL_S", 0.05)
    began, is_ended = [], []

    async def handle(job):
        began.append(job)
        until = time.monotonic() + 5
        while not is_ended and time.monotonic() < until:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async def run(node):
        async with AsyncDisque(node.address) as client:
            worker = Worker(client, ["q"], handle, grace_s=0.01)
            serving = asyncio.ensure_future(worker.serve())
            while not began:
                await asyncio.sleep(0.01)
            worker.stop()
            await asyncio.wait([serving], timeout=3)
            is_ended.append(True)
            assert serving.done()
            await serving

    with Queue(1) as node:
        asyncio.run(run(node))
        assert node.ids_of("NACK") == node.ids


def test_there_is_time_for_the_last_acks_after_the_time_out_of_a_silent_node():
    """Another node gets the acks then. A supervisor kills a process only after that."""
    assert ClientOptions().timeout < LAST_ACKS_S
    assert CANCEL_S + LAST_ACKS_S < supervisor.LAST_S


def test_acks_are_not_lost_with_a_connection():
    """The worker sends ACKJOB again."""
    answers = iter([HANG_UP])
    with Queue(5, ACKJOB=lambda words: next(answers, b":1\r\n")) as node:
        work(node, nothing, until=lambda: set(node.ids_of("ACKJOB")) == set(node.ids))


def test_a_worker_survives_the_loss_of_its_node():
    """The worker reports the error, and continues when the node is back."""
    hooks = RecordingHooks()
    with Queue(2) as node:
        node.close()

        def is_done():
            if "NotConnectedError" in hooks.lines and node.port and node.greetings < 2 and not is_back:
                is_back.append(True)
                node.listen()
            return len(node.ids_of("ACKJOB")) == 2

        is_back = []

        async def run():
            client = AsyncDisque(node.address, patience=0.05)
            worker = Worker(client, ["q"], nothing, hooks=hooks)
            serving = asyncio.ensure_future(worker.serve())
            until = time.monotonic() + 10
            while not is_done():
                assert time.monotonic() < until
                await asyncio.sleep(0.01)
            worker.stop()
            await serving
            await client.close()

        asyncio.run(run())


def test_run_ends_with_a_signal():
    """Service managers stop services with SIGTERM."""

    async def handle(job):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)

    with Queue(1) as node:
        Worker(AsyncDisque(node.address), ["q"], handle).run()
        assert node.ids_of("ACKJOB") == node.ids


def test_a_coroutine_that_raises_keyboard_interrupt_fails_its_job_while_the_loop_has_sigint():
    """It is no Ctrl-C then. Otherwise one job could end all workers, one after the other."""

    async def handle(job):
        if job.body == b"00":
            raise KeyboardInterrupt
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    with Queue(2) as node:
        Worker(AsyncDisque(node.address), ["q"], handle).run()
        assert (node.ids_of("NACK"), node.ids_of("ACKJOB")) == (node.ids[:1], node.ids[1:])


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_further_signal_ends_a_program_that_waits_for_a_thread():
    """A loop waits at its end for functions in `asyncio.to_thread`, which can't be ended."""
    released, is_released = threading.Event(), []

    async def handle(job):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.to_thread(lambda: is_released.append(released.wait(5)))

    def watch():
        wait_until(lambda: node.ids_of("NACK"))
        with contextlib.suppress(AssertionError):
            wait_until(lambda: signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
            released.set()

    with Queue(1) as node:
        watching = threading.Thread(target=watch)
        watching.start()
        Worker(AsyncDisque(node.address), ["q"], handle, grace_s=0.01).run()
        watching.join()
    assert is_released == [True]


def test_an_exception_in_a_hook_ends_the_worker():
    """Otherwise the worker would silently lose one handler slot after another."""

    class Broken(WorkerHooks):
        def on_start(self, job):
            raise ZeroDivisionError

    with Queue(1) as node, pytest.raises(ZeroDivisionError):
        work(node, nothing, until=lambda: False, hooks=Broken(), grace_s=0.01)


@pytest.mark.parametrize(("queues", "concurrency", "error"), [("q", 1, TypeError), (["q"], 0, ValueError)])
def test_arguments_that_make_no_sense_are_refused(queues, concurrency, error):
    """For example, a single name in place of a list would mean queues with one-letter names."""
    with pytest.raises(error):
        Worker(AsyncDisque(), queues, nothing, concurrency=concurrency)


def test_a_job_that_fails_rests_before_it_comes_again(caplog):
    """Each rest is longer, and the lease is kept meanwhile. Each failure is one log line with a traceback."""
    with Failing() as node:
        work(node, fail, until=lambda: len(node.fetched_at) == 3, backoff=Backoff(base_ms=200, jitter_percent=0))
        gaps = [later - earlier for earlier, later in zip(node.fetched_at, node.fetched_at[1:], strict=False)]
        assert gaps[0] > 0.19
        assert gaps[1] > 0.39
        assert len(node.named("WORKING")) >= 2
    failures = [record for record in caplog.records if "failed" in record.message]
    assert [record.exc_info[1].args for record in failures[:2]] == [("delivery 1",), ("delivery 2",)]
    assert len(failures) == 3


def test_by_default_a_job_rests_for_about_a_second():
    """A handler that always fails therefore causes no busy loop."""
    with Failing() as node:
        work(node, fail, until=lambda: len(node.fetched_at) == 2)
        assert node.fetched_at[1] - node.fetched_at[0] > 0.7


def test_resting_jobs_do_not_delay_others():
    """They occupy no handler slot."""
    hooks = RecordingHooks()
    with Queue(20, WORKING=b":300\r\n") as node:
        work(node, fail, until=lambda: len(hooks.lines) == 40, concurrency=1, hooks=hooks)


def test_a_worker_that_stops_puts_resting_jobs_back():
    """They are put back immediately, so that another worker can take them."""

    def is_waiting():
        return len(node.named("GETJOB")) == 2 and time.monotonic() > node.fetched_at[0] + 0.1

    with Failing(when_empty=SILENCE) as node:
        began = time.monotonic()
        work(node, fail, until=is_waiting, backoff=Backoff("fixed", base_ms=60_000))
        assert node.nacks == 1
        assert time.monotonic() - began < 2


def test_a_resting_job_whose_lease_is_lost_is_left_alone():
    """It is delivered again without the worker's help, and a NACK would affect that delivery."""

    def is_over():
        return node.named("WORKING") and time.monotonic() > node.fetched_at[0] + 0.4

    with Failing(WORKING=b"-TOOLATE no\r\n") as node:
        work(node, fail, until=is_over, backoff=Backoff("fixed", base_ms=60_000))
        assert node.nacks == 0


def test_after_all_attempts_a_job_is_given_up():
    """The `on_give_up` function gets the job with the last error. Then the job is acknowledged."""
    given_up = []

    async def bury(job, error):
        given_up.append((job.delivery_count, str(error)))

    with Failing() as node:
        work(node, fail, until=lambda: node.named("ACKJOB"), backoff=QUICK, max_attempts=3, on_give_up=bury)
        assert given_up == [(3, "delivery 3")]
        assert node.nacks == 2


def test_a_job_without_attempts_left_is_given_up_untried():
    """The last attempt ended with its worker. A job that kills workers must not kill them all."""
    given_up = []
    with Failing() as node:
        node.nacks = 3
        handler = lambda job: given_up.append("tried")  # noqa: E731
        bury = lambda job, error: given_up.append(type(error))  # noqa: E731
        work(node, handler, until=lambda: node.named("ACKJOB"), max_attempts=3, on_give_up=bury)
    assert given_up == [AttemptsSpentError]


def test_a_job_of_retry_0_has_one_attempt():
    """It is never delivered again."""
    given_up = []

    async def bury(job, error):
        given_up.append(job.id)

    with Failing("D-aaaaaaaa-000000000000000000000000-05a0") as node:
        work(node, fail, until=lambda: node.named("ACKJOB"), max_attempts=5, on_give_up=bury)
        assert given_up == [node.job_id]


def test_a_job_that_could_not_be_given_up_rests():
    """`on_give_up` is called again later. The handler does not run again."""
    tries = []

    async def bury(job, error):
        tries.append(type(error))
        if len(tries) < 2:
            raise OSError

    with Failing() as node:
        work(node, fail, until=lambda: node.named("ACKJOB"), backoff=QUICK, max_attempts=1, on_give_up=bury)
        assert tries == [ValueError, AttemptsSpentError]


def test_a_password_that_all_nodes_refuse_ends_a_worker_at_once():
    """Waiting can't correct the password."""
    with Queue(1, AUTH=b"-WRONGPASS no\r\n") as node, pytest.raises(AuthError):
        Worker(AsyncDisque(node.address, password="wrong"), ["q"], nothing).run()


@pytest.mark.parametrize(
    "answers",
    [
        {"AUTH": in_turn(b"+OK\r\n", b"-WRONGPASS no\r\n")},
        {"AUTH": b"+OK\r\n", "GETJOB": b"-NOAUTH Authentication required.\r\n"},
    ],
    ids=["new connection", "open connection"],
)
def test_a_worker_goes_on_at_other_nodes_while_one_refuses_its_login(answers, caplog):
    """An operator changes the password node by node."""
    with Node("b", answers) as node, Queue(2, AUTH=b"+OK\r\n") as other:
        node.peers, other.peers = [other], [node]
        work(node, nothing, until=lambda: len(other.ids_of("ACKJOB")) == 2, client={"password": "old"})
    assert f"node {node.address} refuses the login: " in caplog.text


def test_a_worker_waits_for_a_node_that_can_not_be_reached_while_others_refuse_its_login():
    with Node("b", {"AUTH": b"-WRONGPASS no\r\n"}) as node, Queue(1, AUTH=b"+OK\r\n") as other:
        other.close()

        async def run():
            client = AsyncDisque(node.address, other.address, password="x", patience=0.1)
            worker = Worker(client, ["q"], nothing)
            serving = asyncio.create_task(worker.serve())
            await asyncio.sleep(0.3)
            other.listen()
            while not serving.done() and not other.ids_of("ACKJOB"):
                await asyncio.sleep(0.01)
            worker.stop()
            await serving
            await client.close()

        asyncio.run(asyncio.wait_for(run(), 10))


def test_a_getjob_that_is_not_understood_ends_a_worker():
    """An older node knows no META, and repeating the command does not help."""
    with Queue(1, GETJOB=b"-ERR syntax error\r\n") as node, pytest.raises(ReplyError, match="syntax error"):
        Worker(AsyncDisque(node.address), ["q"], nothing, withmeta=True).run()


def test_running_handlers_have_their_grace_when_a_node_refuses_to_deliver():
    """Examples are a password or a right that was changed. Handlers may end, and their acks are sent."""

    async def handle(job):
        await asyncio.sleep(0.1)

    with Queue(1) as node:
        node.answers["GETJOB"] = lambda words: node.get(words) if node.rest else b"-ERR syntax error\r\n"
        with pytest.raises(ReplyError, match="syntax error"):
            work(node, handle, until=lambda: False, concurrency=2)
        assert node.ids_of("ACKJOB") == node.ids


def test_a_worker_without_work_stops_at_once():
    """Its last GETJOB returns no jobs, or the node does not answer at all."""
    released = threading.Event()
    for answer in (SILENCE, lambda words: released.wait(5) and HANG_UP):
        with Queue(0, GETJOB=answer) as node:
            took = []

            def stop(node=node, took=took):
                wait_until(lambda: node.named("GETJOB"))
                time.sleep(0.05)
                took.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGTERM)

            thread = threading.Thread(target=stop)
            thread.start()
            Worker(AsyncDisque(node.address), ["q"], nothing).run()
            took.append(time.monotonic())
            thread.join()
            released.set()
            assert took[1] - took[0] < 0.4


def test_handlers_see_the_requested_fields():
    """These are pairs, leases and counters."""
    with Queue(1) as node:
        settings = {"withmeta": True, "withlease": True, "lease": timedelta(minutes=1), "where": {"a": "b"}}
        work(node, nothing, until=lambda: node.ids_of("ACKJOB"), **settings)
        assert b"WITHCOUNTERS WITHMETA WITHLEASE LEASE 60 WHERE a b FROM q" in b" ".join(node.named("GETJOB")[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"max_attempts": 0},
        {"on_failure": "drop"},
        {"concurrency": 1.5},
        {"lease": 0.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    """The error comes when the worker is created, not with the first job."""
    with pytest.raises(ValueError, match="must"):
        Worker(AsyncDisque(), ["q"], nothing, **settings)


def test_the_last_nack_decides_about_a_job():
    """A later WORKING would hide the job for its RETRY, although it is queued or with another consumer."""
    began = []

    async def handle(job):
        began.append(job)
        await asyncio.sleep(60)

    with Queue(1, WORKING=b":1\r\n", NACK=SILENCE) as node:
        work(
            node,
            handle,
            until=lambda: node.named("WORKING"),
            client={"timeout": 1.0, "patience": 0.0},
            heartbeat_s=0.0,
            grace_s=0.01,
        )
        assert [words[0] for words in node.commands if words[0] != b"GETJOB"][-1] == b"NACK"


def test_jobs_are_put_back_although_no_node_takes_acks():
    """Other consumers wait for these jobs."""

    async def handle(job):
        if job.body == b"01":
            await asyncio.sleep(0.1)
            raise ValueError("no")

    with Queue(2, ACKJOB=SILENCE) as node:
        client = {"timeout": 1.0, "patience": 0.0}
        work(node, handle, until=lambda: node.ids_of("NACK"), client=client, backoff=None)
        assert node.ids_of("NACK") == [node.ids[1]]
