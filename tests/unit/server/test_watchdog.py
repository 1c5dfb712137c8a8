"""The watchdog of the loop."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from disque_py.server.watchdog import Watchdog


@pytest.fixture
def lines():
    """Return the logged lines. Afterwards the alarm is off."""
    before = signal.getsignal(signal.SIGALRM)
    timer = signal.getitimer(signal.ITIMER_REAL)
    yield []
    signal.setitimer(signal.ITIMER_REAL, *timer)
    signal.signal(signal.SIGALRM, before)


def watched(lines, period_ms, work):
    """Run `work` in a loop with a watchdog."""

    async def main():
        watchdog = Watchdog(asyncio.get_running_loop(), lambda level, text: lines.append((level, text)))
        watchdog.watch(period_ms)
        await work()
        watchdog.watch(0)

    asyncio.run(main())


def test_a_loop_that_stalls_is_reported_with_the_place(lines):
    async def work():
        time.sleep(0.12)  # noqa: ASYNC251 - that is the point

    watched(lines, 50, work)
    assert lines[0] == ("warning", "the loop has been standing still for 0.05 seconds or more. It is here:")
    assert any("time.sleep(0.12)" in text for _, text in lines)


def test_a_loop_that_makes_progress_is_not_reported(lines):
    async def work():
        await asyncio.sleep(0.15)

    watched(lines, 100, work)
    assert lines == []


def test_a_period_of_zero_ends_the_watchdog(lines):
    async def work():
        pass

    watched(lines, 50, work)
    time.sleep(0.1)
    assert lines == []
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
