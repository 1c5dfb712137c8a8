"""Behaviour that Dramatiq's own tests require of a broker, with Dramatiq's middleware."""

from __future__ import annotations

import threading
import time

import dramatiq
import pytest
from dramatiq.middleware import AsyncIO, CurrentMessage, GroupCallbacks, TimeLimitExceeded
from dramatiq.results import ResultFailure, ResultTimeout

from waits import eventually

JOIN_MS = 60_000


def actor(function, name="work", **options):
    return dramatiq.actor(function, actor_name=name, **options)


def test_delays_do_not_depend_on_each_other(broker, start):
    ran = []
    append = actor(ran.append)
    append.send_with_options(args=(1,), delay=1_500)
    append.send_with_options(args=(2,), delay=500)
    start()
    broker.join("default", timeout=JOIN_MS)
    assert ran == [2, 1]


def test_a_failed_message_waits_for_its_backoff(broker, start):
    ran = []

    def fail_once():
        ran.append(time.monotonic())
        if len(ran) == 1:
            raise RuntimeError

    actor(fail_once, min_backoff=1_000, max_backoff=1_000, max_retries=1).send()
    start()
    broker.join("default", timeout=JOIN_MS)
    assert ran[1] - ran[0] >= 0.5  # Dramatiq's jitter shortens a back-off by half at most.


def test_retries_are_counted(broker, start):
    tries = []

    def fail_thrice():
        tries.append(CurrentMessage.get_current_message().options.get("retries", 0))
        if len(tries) < 4:
            raise RuntimeError

    broker.add_middleware(CurrentMessage())
    actor(fail_thrice, min_backoff=10, max_backoff=20).send()
    start()
    broker.join("default", timeout=JOIN_MS)
    assert tries == [0, 1, 2, 3]


def test_an_exception_of_throws_is_not_tried_again(broker, start, client, name):
    tries = []

    def fail():
        tries.append(1)
        raise KeyError("no ink")

    actor(fail, throws=(KeyError,)).send()
    start()
    eventually(lambda: client.qlen(f"{name}.default", status="errored"))
    assert tries == [1]


def test_callbacks_get_the_result_and_the_exception(broker, start):
    told = []
    actor(lambda message, result: told.append(result), "succeeded")
    actor(lambda message, failure: told.append(failure["type"]), "failed")

    def divide(by):
        return 6 // by

    work = actor(divide, max_retries=0)
    start()
    for by in (2, 0):
        work.send_with_options(args=(by,), on_success="succeeded", on_failure="failed")
    eventually(lambda: len(told) == 2)
    assert sorted(map(str, told)) == ["3", "ZeroDivisionError"]


def test_a_time_limit_ends_a_message(broker, start):
    broker.emit_after("process_boot")  # Dramatiq's command does this, which starts the timer.
    ended = []

    def endless():
        try:
            while True:
                time.sleep(0.01)
        except TimeLimitExceeded as error:
            ended.append(error)
            raise

    actor(endless, max_retries=0, time_limit=500).send()
    start()
    broker.join("default", timeout=JOIN_MS)
    assert len(ended) == 1


def test_asynchronous_actors_run(broker, start):
    broker.add_middleware(AsyncIO())
    ran = []

    async def work():
        ran.append(1)

    actor(work).send()
    start()
    broker.join("default", timeout=JOIN_MS)
    assert ran == [1]


def test_a_paused_worker_takes_no_message(broker, start):
    ran = []
    append = actor(ran.append)
    worker = start()
    worker.pause()
    append.send(1)
    time.sleep(0.5)
    assert ran == []
    worker.resume()
    broker.join("default", timeout=JOIN_MS)
    assert ran == [1]


def test_a_queue_that_is_declared_later_is_consumed(broker, start):
    ran = []
    start()
    actor(ran.append, queue_name="later").send(1)
    broker.join("later", timeout=JOIN_MS)
    assert ran == [1]


def test_more_messages_than_a_worker_holds_wait_for_others(broker, start):
    """One worker is busy. The other worker gets the messages that the first one did not fetch."""
    may_end, ran = threading.Event(), []

    def work(number):
        ran.append(number)
        may_end.wait(60)

    slow = actor(work)
    for number in range(20):
        slow.send(number)
    start(threads=1)
    start(threads=1)
    eventually(lambda: len(ran) == 2)
    may_end.set()
    broker.join("default", timeout=JOIN_MS)
    assert sorted(ran) == list(range(20))


def test_groups_have_results_and_their_number(broker, start, backend):
    add = actor(lambda x, y: x + y, "add", store_results=True)
    start()
    group = dramatiq.group([add.message(n, n) for n in range(4)]).run()
    group.wait(timeout=JOIN_MS)
    assert (list(group.get_results()), group.completed, group.completed_count) == ([0, 2, 4, 6], True, 4)


def test_groups_of_pipelines_and_pipelines_of_delays_work(broker, start, backend):
    add = actor(lambda x, y: x + y, "add", store_results=True)
    start()
    group = dramatiq.group([add.message(n, 1) | add.message(2) for n in range(2)]).run()
    assert list(group.get_results(block=True, timeout=JOIN_MS)) == [3, 4]
    pipe = (add.message(1, 2) | add.message_with_options(args=(3,), delay=300) | add.message(4)).run()
    assert pipe.get_result(block=True, timeout=JOIN_MS) == 10
    assert list(pipe.get_results()) == [3, 6, 10]


def test_a_pipeline_ends_with_the_first_failure(broker, start, backend):
    def fail():
        raise RuntimeError("no ink")

    ran = []
    first = actor(fail, "first", max_retries=0, store_results=True)
    second = actor(ran.append, "second", store_results=True)
    pipe = (first.message() | second.message()).run()
    start()
    with pytest.raises(ResultFailure, match="no ink"):
        pipe.messages[0].get_result(backend=backend, block=True, timeout=JOIN_MS)
    with pytest.raises(ResultTimeout):
        pipe.get_result(block=True, timeout=300)
    assert ran == []


def test_a_group_calls_back_after_retries_too(broker, limits, start):
    broker.add_middleware(GroupCallbacks(limits))
    done, tries = threading.Event(), []

    def fail_once():
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError

    part = actor(fail_once, "part", min_backoff=10, max_backoff=20)
    finish = actor(done.set, "finish")
    group = dramatiq.group([part.message(), part.message()])
    group.add_completion_callback(finish.message())
    start()
    group.run()
    assert done.wait(60)
    assert len(tries) == 3
