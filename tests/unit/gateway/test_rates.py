"""Token buckets."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from disque_py.gateway import rates
from disque_py.gateway.rates import BUCKETS_MAX, LOGIN_FAILURES, LoginFailures, Rates, group_of


def test_a_second_holds_as_many_requests_as_the_rate():
    rates = Rates(3)
    assert [rates.take("a", 0.0) for _ in range(4)] == [True, True, True, False]


def test_a_bucket_fills_steadily():
    rates = Rates(2)
    assert rates.take("a", 0.0, 2)
    assert not rates.take("a", 0.4)
    assert rates.take("a", 0.6)


def test_callers_have_buckets_of_their_own():
    rates = Rates(1)
    assert rates.take("a", 0.0)
    assert rates.take("b", 0.0)


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("2001:db8:1:2:3::5", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(address, group):
    """Each subscriber has such a network, with as many addresses as guesses."""
    assert group_of(address) == group


def test_failed_logins_of_a_network_of_ipv6_are_counted_together():
    failures = LoginFailures()
    for number in range(LOGIN_FAILURES):
        failures.failed(f"2001:db8::{number}", 0)
    assert failures.is_blocked("2001:db8::ffff", 0)
    assert not failures.is_blocked("2001:db8:0:1::1", 0)


def test_a_rate_of_0_means_no_limit():
    rates = Rates(0)
    assert all(rates.take("a", 0.0) for _ in range(1000))


def test_full_buckets_are_dropped_when_there_are_many():
    rates = Rates(1000)
    for number in range(BUCKETS_MAX + 10):
        rates.take(str(number), float(number))
    assert len(rates._buckets) <= BUCKETS_MAX


def test_an_address_is_blocked_after_five_failed_logins_and_not_for_ever():
    failures = LoginFailures()
    for _ in range(LOGIN_FAILURES):
        assert not failures.is_blocked("a", 0.0)
        failures.failed("a", 0.0)
    assert failures.is_blocked("a", 0.0)
    assert not failures.is_blocked("b", 0.0)
    assert not failures.is_blocked("a", 13.0)


def checks(failures, outcomes):
    """Check passwords at the same time. Return the number of admitted ones, and of those that ran together."""
    running, most, admitted = 0, 0, 0

    async def check(is_correct):
        nonlocal running, most, admitted
        async with failures.check("a") as is_admitted:
            if not is_admitted:
                return
            running, admitted = running + 1, admitted + 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            if not is_correct:
                failures.failed("a", time.monotonic())

    async def run():
        async with asyncio.timeout(60):
            await asyncio.gather(*map(check, outcomes))

    asyncio.run(run())
    return admitted, most


def test_guesses_at_the_same_time_count_before_they_fail():
    failures = LoginFailures()
    failures.failed("a", time.monotonic())
    assert checks(failures, [False] * 20) == (4, 4)
    assert not failures._checks


def test_correct_passwords_at_the_same_time_wait_for_each_other_and_are_not_refused():
    failures = LoginFailures()
    failures.failed("a", time.monotonic())
    assert checks(failures, [True] * 20 + [False] + [True] * 20) == (41, 4)
    assert not failures._checks


def test_a_check_that_is_given_up_lets_the_next_one_begin():
    async def run():
        failures, ended = LoginFailures(), asyncio.Event()

        async def check():
            async with failures.check("a"):
                await ended.wait()

        tasks = [asyncio.create_task(check()) for _ in range(LOGIN_FAILURES + 2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in tasks[: LOGIN_FAILURES + 1]:
            task.cancel()
        ended.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks, return_exceptions=True)
        return tasks[-1].exception()

    assert asyncio.run(run()) is None


def test_a_check_does_not_wait_for_ever_for_others(monkeypatch):
    """If no node answers, checks take long."""
    monkeypatch.setattr(rates, "CHECK_WAIT_S", 0.05)

    async def run():
        failures = LoginFailures()
        async with contextlib.AsyncExitStack() as others:
            for _ in range(LOGIN_FAILURES):
                assert await others.enter_async_context(failures.check("a"))
            async with failures.check("a") as is_admitted:
                return is_admitted

    assert asyncio.run(run()) is False


def test_a_cancelled_waiter_takes_no_turn_of_another():
    async def one(failures, event):
        async with failures.check("a") as is_admitted:
            await event.wait()
            return is_admitted

    async def run():
        failures = LoginFailures()
        ends = [asyncio.Event() for _ in range(LOGIN_FAILURES)]
        running = [asyncio.create_task(one(failures, event)) for event in ends]
        await asyncio.sleep(0)
        over = asyncio.Event()
        over.set()
        waiting = []
        for _ in range(2):
            waiting.append(asyncio.create_task(one(failures, over)))
            await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ends[0].set()
        await running[0]
        return await asyncio.wait_for(waiting[0], 2)

    assert asyncio.run(run()) is True
