"""persistence/lanes.py: lanes in order, results in the loop's thread, and an orderly end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persistence.lanes import Lanes

WRITES = 0
SYNCS = 1


def on_a_loop(story: Callable[[Lanes, asyncio.AbstractEventLoop], Any]) -> None:
    """Run the coroutine that `story` returns, with lanes."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        lanes = Lanes(2, "test", loop.call_soon_threadsafe)
        try:
            await story(lanes, loop)
        finally:
            assert lanes.close()

    asyncio.run(run())


def test_the_result_comes_in_the_loops_thread():
    async def story(lanes: Lanes, loop: asyncio.AbstractEventLoop) -> None:
        heard: asyncio.Future[Any] = loop.create_future()
        here = threading.get_ident()
        lanes.start(
            WRITES,
            lambda: threading.get_ident() == here,
            lambda result: heard.set_result((result, threading.get_ident() == here)),
        )
        assert await heard == (False, True)

    on_a_loop(story)


def test_a_defect_is_raised_in_the_loop_and_other_results_still_arrive():
    async def story(lanes: Lanes, loop: asyncio.AbstractEventLoop) -> None:
        raised: list[Any] = []
        heard: asyncio.Future[Any] = loop.create_future()
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        lanes.start(WRITES, lambda: 1 // 0, lambda result: raised.append("heard"))
        lanes.start(WRITES, lambda: None, heard.set_result)
        assert await heard is None
        assert [type(error) for error in raised] == [ZeroDivisionError]

    on_a_loop(story)


def test_a_lane_works_in_order_and_lanes_do_not_wait_for_each_other():
    async def story(lanes: Lanes, loop: asyncio.AbstractEventLoop) -> None:
        heard: list[Any] = []
        gate, end = threading.Event(), loop.create_future()
        lanes.start(SYNCS, lambda: gate.wait(10), lambda result: heard.append("slow"))
        lanes.start(SYNCS, lambda: None, lambda result: end.set_result(None))
        for number in range(100):
            lanes.start(WRITES, lambda number=number: number, heard.append)
        lanes.start(WRITES, gate.set, lambda result: None)
        await end
        assert heard == [*range(100), "slow"]

    on_a_loop(story)


def test_results_that_came_together_are_handed_over_in_one_call():
    """The loop is woken once, however many results there are."""
    calls: list[Callable[[], None]] = []
    heard: list[Any] = []
    lanes = Lanes(2, "test", calls.append)
    end = threading.Event()
    for number in range(50):
        lanes.start(WRITES, lambda number=number: number, heard.append)
    lanes.start(WRITES, end.set, lambda result: None)
    assert end.wait(10)
    assert len(calls) == 1
    assert lanes.close()
    assert heard == list(range(50))
    calls[0]()
    assert heard == list(range(50))


def test_a_wait_hands_over_quick_work_and_the_loop_is_not_called():
    calls: list[Callable[[], None]] = []
    heard: list[Any] = []
    lanes = Lanes(2, "test", calls.append)

    def first(result: Any) -> None:
        heard.append(result)
        lanes.start(WRITES, lambda: "second", heard.append)

    lanes.wait(WRITES)
    for _ in range(100):  # A busy machine may not run the thread in time.
        heard.clear()
        calls.clear()
        lanes.start(WRITES, lambda: "first", first)
        lanes.wait(WRITES)
        if heard == ["first", "second"]:
            break
    assert heard == ["first", "second"]
    assert calls == []
    assert lanes.close()


def test_a_wait_for_work_that_takes_long_is_short_and_the_loop_hears_of_its_end():
    """After some of them there are no waits at all for a while."""
    calls: list[Callable[[], None]] = []
    heard: list[Any] = []
    gate = threading.Event()
    lanes = Lanes(2, "test", calls.append)
    lanes.start(WRITES, lambda: gate.wait(10), heard.append)
    began_s = time.monotonic()
    for _ in range(2_000):
        lanes.wait(WRITES)
    assert time.monotonic() - began_s < 1  # 2,000 waits of 2 ms would take four seconds.
    assert heard == []
    gate.set()
    while not calls:
        time.sleep(0.001)
    calls[0]()
    assert heard == [True]
    assert lanes.close()


def test_a_wait_waits_for_its_lane_only():
    gate = threading.Event()
    heard: list[Any] = []
    lanes = Lanes(2, "test", lambda call: None)
    lanes.start(SYNCS, lambda: gate.wait(10), heard.append)
    began_s = time.monotonic()
    for _ in range(200):
        lanes.wait(WRITES)
    assert time.monotonic() - began_s < 0.3
    gate.set()
    assert lanes.close()
    assert heard == [True]


def test_a_defect_in_awaited_work_is_raised_in_the_loop_and_not_by_the_wait():
    """The caller is in the middle of a turn, which must end."""

    async def story(lanes: Lanes, loop: asyncio.AbstractEventLoop) -> None:
        raised: list[Any] = []
        heard: asyncio.Future[Any] = loop.create_future()
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        lanes.start(WRITES, lambda: 1 // 0, lambda result: raised.append("heard"))
        lanes.wait(WRITES)
        lanes.start(WRITES, lambda: None, lambda result: {}["missing"])
        lanes.wait(WRITES)
        lanes.start(WRITES, lambda: None, heard.set_result)
        lanes.wait(WRITES)
        assert await heard is None
        await asyncio.sleep(0)
        assert [type(error) for error in raised] == [ZeroDivisionError, KeyError]

    on_a_loop(story)


def test_closing_hands_over_started_work_and_the_work_that_it_starts():
    """For example, the end of the last batch starts the write of the clean mark."""
    heard: list[str] = []
    lanes = Lanes(2, "test", lambda call: None)
    lanes.start(
        WRITES,
        lambda: heard.append("first"),
        lambda result: lanes.start(SYNCS, lambda: "second", heard.append),
    )
    assert lanes.close()
    assert heard == ["first", "second"]


def test_closing_does_not_wait_for_ever_and_later_results_are_dropped():
    """A call that is already scheduled on the loop drops them, too."""
    heard: list[Any] = []
    calls: list[Callable[[], None]] = []
    gate, before = threading.Event(), set(threading.enumerate())
    lanes = Lanes(2, "test", calls.append)
    threads = set(threading.enumerate()) - before
    lanes.start(WRITES, lambda: "quick", heard.append)
    lanes.start(SYNCS, lambda: gate.wait(10), heard.append)
    while not calls:
        time.sleep(0.001)
    assert not lanes.close(0.05)
    gate.set()
    for thread in threads:
        thread.join(10)
    calls[0]()
    assert heard == ["quick"]


def test_after_closing_no_thread_is_left_and_nothing_starts():
    before = set(threading.enumerate())
    lanes = Lanes(2, "test", lambda call: None)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    lanes.close()
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(AssertionError, match="closed"):
        lanes.start(WRITES, lambda: None, lambda result: None)


def test_work_that_hangs_does_not_keep_the_process_alive():
    code = (
        "import time; from persistence.lanes import Lanes;"
        "Lanes(1, 'test', print).start(0, lambda: time.sleep(60), print)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20, cwd=Path(__file__).parents[3])


def test_results_after_the_loop_was_closed_are_dropped():
    """A node that can't start ends immediately, with work in flight. Its thread must end without an error."""

    def closed(call):
        raise RuntimeError("Event loop is closed")

    lanes = Lanes(2, "test", closed)
    lanes.start(WRITES, lambda: None, lambda outcome: None)
    for thread in lanes._threads[:1]:
        thread.join(5)
        assert not thread.is_alive()
