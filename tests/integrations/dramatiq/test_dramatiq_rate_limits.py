"""The rate limiter backend of Dramatiq: its limiters, barriers and groups."""

from __future__ import annotations

import threading

import dramatiq
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits import Barrier, BucketRateLimiter, ConcurrentRateLimiter, WindowRateLimiter

from waits import eventually


def test_the_number_that_run_at_a_time_is_limited(limits):
    limiter = ConcurrentRateLimiter(limits, "printer", limit=1)
    with limiter.acquire(raise_on_failure=False) as first, limiter.acquire(raise_on_failure=False) as second:
        assert (first, second) == (True, False)
    with limiter.acquire(raise_on_failure=False) as third:
        assert third


def test_no_increment_is_lost_between_threads(limits):
    threads = [threading.Thread(target=limits.incr, args=("count", 1, 100, 60_000)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limits.incr("count", 0, 12, 60_000)
    assert not limits.incr("count", 0, 11, 60_000)


def test_a_counter_ends_with_its_time(limits):
    assert limits.add("count", 1, 2_000)
    assert not limits.add("count", 1, 2_000)
    eventually(lambda: limits.add("count", 1, 2_000))


def test_a_bucket_limits_the_rate(limits):
    limiter = BucketRateLimiter(limits, "mail", limit=2, bucket=86_400_000)
    taken = []
    for _ in range(3):
        with limiter.acquire(raise_on_failure=False) as acquired:
            taken.append(acquired)
    assert taken == [True, True, False]


def test_a_window_slides(limits):
    limiter = WindowRateLimiter(limits, "mail", limit=2, window=30)
    taken = []
    for _ in range(3):
        with limiter.acquire(raise_on_failure=False) as acquired:
            taken.append(acquired)
    assert taken == [True, True, False]


def test_a_barrier_frees_all_when_the_last_one_comes(limits):
    barrier = Barrier(limits, "start", ttl=60_000)
    assert barrier.create(parties=2)
    passed = []
    first = threading.Thread(target=lambda: passed.append(barrier.wait(timeout=60_000)))
    first.start()
    eventually(lambda: limits.incr(barrier.key, 0, 1, 60_000))  # One of two parties has arrived.
    assert barrier.wait(block=False)
    first.join()
    assert passed == [True]


def test_a_group_calls_back_when_all_its_messages_are_done(broker, limits, start):
    broker.add_middleware(GroupCallbacks(limits))
    done = threading.Event()
    part = dramatiq.actor(lambda number: None, actor_name="part")
    finish = dramatiq.actor(done.set, actor_name="finish")
    group = dramatiq.group([part.message(number) for number in range(5)])
    group.add_completion_callback(finish.message())
    start()
    group.run()
    assert done.wait(60)
