"""Worker: what becomes of a job whose handler failed or decided, and of one that was canceled."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from client_node import HANG_UP, SILENCE, bulk, wait_until
from disque_py.client import (
    AsyncDisque,
    Fail,
    Retry,
    Worker,
    WorkerHooks,
)
from worker_nodes import QUICK, Modern, Queue, RecordingHooks, fail, nothing, work


def nacked(handler, *, answers=None, **settings):
    """Return the words of the NACK after a handler's first run."""
    with Modern(**(answers or {})) as node:
        work(node, handler, until=lambda: node.named("NACK"), **settings)
        return b" ".join(node.named("NACK")[0][2:])


def shown(**pairs):
    """Return the reply to SHOW with these pairs."""
    fields = {"id": bulk("x"), "state": bulk("active"), **pairs}
    return b"*%d\r\n" % (2 * len(fields)) + b"".join(bulk(name) + value for name, value in fields.items())


def test_a_failed_job_goes_back_with_its_error_and_delay():
    """The node keeps the delay. ATTEMPT names the delivery, so the command may be sent twice."""
    assert nacked(fail, backoff=QUICK) == b"DELAYMS 100 REASON ValueError: delivery 1 ATTEMPT 1"
    assert nacked(fail, backoff=None) == b"DELAY 0 REASON ValueError: delivery 1 ATTEMPT 1"


def test_the_back_off_of_a_job_or_its_queue_wins_over_the_default():
    """Spec Y6: a NACK without DELAY leaves the delay to the node."""
    own = {"SHOW": shown(backoff=bulk("fixed:10:10"))}
    of_queue = {"QUEUE": b"*2\r\n" + bulk("backoff") + bulk("fixed:10:10")}
    for answers in (own, of_queue):
        assert nacked(fail, answers=answers) == b"REASON ValueError: delivery 1 ATTEMPT 1"


def test_a_job_without_back_off_waits_by_the_attempts_of_its_set():
    """ENQUEUE starts a new set of attempts. It begins with the shortest wait, whatever the number of deliveries."""
    answers = {"SHOW": shown(attempts=b":5\r\n", **{"attempts-left": b":4\r\n"})}
    words = nacked(fail, answers=answers).split()
    assert words[0] == b"DELAYMS"
    assert 750 <= int(words[1]) <= 1000


@pytest.mark.parametrize("is_raised", [True, False])
def test_a_handler_may_ask_for_another_attempt(is_raised, caplog):
    """The handler raises or returns Retry. The log has no traceback."""

    async def handle(job):
        retry = Retry(delay=timedelta(minutes=1), reason="busy")
        if is_raised:
            raise retry
        return retry

    assert nacked(handle) == b"DELAY 60 REASON busy ATTEMPT 1"
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_a_handler_may_fail_for_good():
    """FINAL uses up the remaining attempts. With `on_give_up` the worker gives up the job itself."""

    def handle(job):
        raise Fail("no address")

    hooks = RecordingHooks()
    assert nacked(handle, hooks=hooks) == b"REASON no address FINAL ATTEMPT 1"
    assert set(hooks.lines) == {"start"}
    buried = []
    with Modern() as node:
        work(node, handle, until=lambda: node.named("ACKJOB"), on_give_up=lambda job, error: buried.append(str(error)))
    assert buried == ["no address"]


def test_on_error_decides_about_an_exception():
    """If it returns None, the worker's settings decide."""

    async def decide(job, error):
        return Fail("bad") if isinstance(error, ValueError) else None

    assert nacked(fail, on_error=decide) == b"REASON bad FINAL ATTEMPT 1"
    assert nacked(fail, on_error=lambda job, error: Retry(5)).startswith(b"DELAY 5 REASON ValueError: delivery 1")
    assert nacked(fail, on_error=lambda job, error: None, backoff=None).startswith(b"DELAY 0 REASON ValueError")


def test_on_error_that_raises_decides_nothing(caplog):
    """Its own error is logged too."""
    assert nacked(fail, on_error=lambda job, error: 1 / 0, backoff=None).startswith(b"DELAY 0 REASON ValueError")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info][:2] == [
        ValueError,
        ZeroDivisionError,
    ]


def test_on_error_is_a_decorator_too():
    worker = Worker(AsyncDisque(), ["q"], nothing)

    @worker.on_error
    def decide(job, error):
        return None

    assert decide(None, None) is None


def test_the_last_of_max_attempts_is_final():
    """Without `on_give_up` the cluster keeps the job as errored."""
    assert nacked(fail, max_attempts=1) == b"REASON ValueError: delivery 1 FINAL ATTEMPT 1"


def test_the_ack_of_a_slow_handler_names_its_delivery():
    """More than half of the lease was over."""

    async def handle(job):
        await asyncio.sleep(0.06)

    with Modern(lease_ms=100) as node:
        work(node, handle, until=lambda: node.named("ACKJOB"))
        assert node.named("ACKJOB") == [[b"ACKJOB", node.job_id.encode(), b"ATTEMPT", b"1"]]


def test_the_time_of_the_handler_counts_for_a_job_that_is_given_up():
    """Another worker may have the job, as after a slow success."""

    async def handle(job):
        await asyncio.sleep(0.06)
        raise Fail

    with Modern(lease_ms=100) as node:
        work(node, handle, until=lambda: node.named("ACKJOB"), on_give_up=lambda job, error: None)
        assert node.named("ACKJOB")[0][2:] == [b"ATTEMPT", b"1"]


def test_a_node_that_does_not_know_attempt_gets_plain_commands():
    """It refuses ATTEMPT once. The job is acknowledged anyway."""
    refuse = lambda words: b"-BADID Invalid Job ID format.\r\n" if b"ATTEMPT" in words else b":1\r\n"  # noqa: E731

    async def handle(job):
        await asyncio.sleep(0.06)

    with Modern(lease_ms=100, ACKJOB=refuse) as node:
        work(node, handle, until=lambda: len(node.named("ACKJOB")) == 2)
        assert [len(words) for words in node.named("ACKJOB")] == [4, 2]


def test_a_job_rests_at_the_worker_if_its_node_cannot_delay_it():
    """The first refusal shows this. The job rests at the worker, and goes back with a plain NACK."""

    class Older(Modern):
        def nack(self, words):
            return b"-BADID Invalid Job ID format.\r\n" if len(words) > 2 else super().nack(words)

    with Older() as node:
        work(node, fail, until=lambda: len(node.fetched_at) == 3, backoff=QUICK)
        assert [len(words) > 2 for words in node.named("NACK")[:3]] == [True, False, False]
        assert node.fetched_at[1] - node.fetched_at[0] > 0.09


def test_a_node_that_tells_no_attempts_is_asked_once():
    """Disque 1.0 refuses a GETJOB with WITHLEASE."""

    def get(words):
        return b"-ERR syntax error\r\n" if b"WITHLEASE" in words else SILENCE

    with Queue(1, GETJOB=get) as node:
        work(node, nothing, until=lambda: len(node.named("GETJOB")) == 2)
        assert [b"WITHLEASE" in words for words in node.named("GETJOB")] == [True, False]


def test_a_nack_that_was_lost_is_sent_again():
    """The NACK names its delivery, so a repetition does not affect the next delivery."""
    answers = iter([HANG_UP])
    with Modern(NACK=lambda words: next(answers, b":1\r\n")) as node:
        work(node, fail, until=lambda: len(node.named("NACK")) == 2, backoff=None)
        assert node.named("NACK")[0] == node.named("NACK")[1]


def test_a_worker_that_stops_gives_its_jobs_back_at_once():
    """The queue's back-off does not apply."""
    began = []

    async def handle(job):
        began.append(job)
        await asyncio.sleep(60)

    with Modern() as node:
        work(node, handle, until=lambda: began, grace_s=0.01)
        # The node may give the job to the abandoned fetch. Then a plain NACK puts it back again.
        assert b" ".join(node.named("NACK")[0][2:]) == b"DELAY 0 REASON the worker stopped ATTEMPT 1"


class Canceled(Modern):
    """A node on which the job was canceled after its delivery."""

    def __init__(self):
        super().__init__(WORKING=b"-CANCELED The job was canceled\r\n")


class CancelHooks(WorkerHooks):
    def __init__(self):
        self.canceled = []

    def on_cancel(self, job):
        self.canceled.append(job.id)


def test_a_canceled_job_interrupts_its_coroutine():
    """The worker continues. It neither acknowledges the job nor gives it back."""
    hooks, ended = CancelHooks(), []

    async def handle(job):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(job.is_canceled)

    with Canceled() as node:
        work(node, handle, until=lambda: hooks.canceled, heartbeat_s=0.0, concurrency=1, hooks=hooks)
        assert ended == [True]
        assert node.named("ACKJOB") + node.named("NACK") == []


def test_a_handler_may_survive_the_cancellation_of_its_job():
    """The next job in the same slot runs undisturbed."""
    hooks = CancelHooks()

    async def handle(job):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(0.05)

    with Canceled() as node:

        def has_run_twice():
            node.is_queued = len(node.fetched_at) < 2
            return len(hooks.canceled) == 2

        work(node, handle, until=has_run_twice, heartbeat_s=0.0, concurrency=1, hooks=hooks)
        assert node.named("ACKJOB") == []


def test_a_function_in_a_thread_sees_the_cancellation():
    hooks = CancelHooks()

    def handle(job):
        wait_until(lambda: job.is_canceled)

    with Canceled() as node:
        work(node, handle, until=lambda: hooks.canceled, heartbeat_s=0.0, hooks=hooks)
        assert node.named("ACKJOB") == []
