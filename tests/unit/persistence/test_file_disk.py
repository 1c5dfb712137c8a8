"""persistence/file_disk.py: lanes in order, results in the loop's thread, and an orderly end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from disque_py.simulator.world.folder import SimFolder
from persistence.disk import LANES, READING, SYNCING, WRITING, Folder
from persistence.file_disk import FileDisk
from persistence.files import Files


def on_a_loop(story: Callable[[FileDisk, asyncio.AbstractEventLoop], Any]) -> None:
    """Run the coroutine that `story` returns, with a disk on a folder in memory."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        disk = FileDisk(SimFolder(Random(1)), loop.call_soon_threadsafe)
        try:
            await story(disk, loop)
        finally:
            assert disk.close()

    asyncio.run(run())


def test_the_result_comes_in_the_loops_thread():
    async def story(disk: FileDisk, loop: asyncio.AbstractEventLoop) -> None:
        heard: asyncio.Future[Any] = loop.create_future()
        here = threading.get_ident()
        disk.start(
            WRITING,
            lambda folder: (folder.names(), threading.get_ident() == here),
            lambda result: heard.set_result((result, threading.get_ident() == here)),
        )
        assert await heard == (([], False), True)

    on_a_loop(story)


def test_an_error_of_the_system_is_a_result():
    async def story(disk: FileDisk, loop: asyncio.AbstractEventLoop) -> None:
        heard: asyncio.Future[Any] = loop.create_future()
        disk.start(READING, lambda folder: folder.read("missing", 0, 1), heard.set_result)
        error = await heard
        assert isinstance(error, FileNotFoundError)
        assert error.__traceback__ is None

    on_a_loop(story)


def test_a_defect_is_raised_in_the_loop_and_other_results_still_arrive():
    async def story(disk: FileDisk, loop: asyncio.AbstractEventLoop) -> None:
        raised: list[Any] = []
        heard: asyncio.Future[Any] = loop.create_future()
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        disk.start(WRITING, lambda folder: 1 // 0, lambda result: raised.append("heard"))
        disk.start(WRITING, lambda folder: folder.names(), heard.set_result)
        assert await heard == []
        assert [type(error) for error in raised] == [ZeroDivisionError]

    on_a_loop(story)


def test_a_lane_works_in_order_and_lanes_do_not_wait_for_each_other():
    async def story(disk: FileDisk, loop: asyncio.AbstractEventLoop) -> None:
        heard: list[Any] = []
        gate, end = threading.Event(), loop.create_future()
        disk.start(SYNCING, lambda folder: gate.wait(10), lambda result: heard.append("slow"))
        disk.start(SYNCING, lambda folder: None, lambda result: end.set_result(None))
        for number in range(100):
            disk.start(WRITING, lambda folder, number=number: number, heard.append)
        disk.start(WRITING, lambda folder: gate.set(), lambda result: None)
        await end
        assert heard == [*range(100), "slow"]

    on_a_loop(story)


def test_results_that_came_together_are_handed_over_in_one_call():
    """The loop is woken once, however many results there are."""
    calls: list[Callable[[], None]] = []
    heard: list[Any] = []
    disk = FileDisk(SimFolder(Random(1)), calls.append)
    end = threading.Event()
    for number in range(50):
        disk.start(WRITING, lambda folder, number=number: number, heard.append)
    disk.start(WRITING, lambda folder: end.set(), lambda result: None)
    assert end.wait(10)
    assert len(calls) == 1
    assert disk.close()
    assert heard == list(range(50))
    calls[0]()
    assert heard == list(range(50))


def test_a_wait_hands_over_quick_work_and_the_loop_is_not_called():
    calls: list[Callable[[], None]] = []
    heard: list[Any] = []
    disk = FileDisk(SimFolder(Random(1)), calls.append)

    def first(result: Any) -> None:
        heard.append(result)
        disk.start(WRITING, lambda folder: "second", heard.append)

    disk.wait(WRITING)
    for _ in range(100):  # A busy machine may not run the thread in time.
        heard.clear()
        calls.clear()
        disk.start(WRITING, lambda folder: "first", first)
        disk.wait(WRITING)
        if heard == ["first", "second"]:
            break
    assert heard == ["first", "second"]
    assert calls == []
    assert disk.close()


def test_a_wait_for_work_that_takes_long_is_short_and_the_loop_hears_of_its_end():
    """After some of them there are no waits at all for a while."""
    calls: list[Callable[[], None]] = []
    heard: list[Any] = []
    gate = threading.Event()
    disk = FileDisk(SimFolder(Random(1)), calls.append)
    disk.start(WRITING, lambda folder: gate.wait(10), heard.append)
    began_s = time.monotonic()
    for _ in range(2_000):
        disk.wait(WRITING)
    assert time.monotonic() - began_s < 1  # 2,000 waits of 2 ms would take four seconds.
    assert heard == []
    gate.set()
    while not calls:
        time.sleep(0.001)
    calls[0]()
    assert heard == [True]
    assert disk.close()


def test_a_wait_waits_for_its_lane_only():
    gate = threading.Event()
    heard: list[Any] = []
    disk = FileDisk(SimFolder(Random(1)), lambda call: None)
    disk.start(SYNCING, lambda folder: gate.wait(10), heard.append)
    began_s = time.monotonic()
    for _ in range(200):
        disk.wait(WRITING)
    assert time.monotonic() - began_s < 0.3
    gate.set()
    assert disk.close()
    assert heard == [True]


def test_a_defect_in_awaited_work_is_raised_in_the_loop_and_not_by_the_wait():
    """The caller is in the middle of a turn, which must end."""

    async def story(disk: FileDisk, loop: asyncio.AbstractEventLoop) -> None:
        raised: list[Any] = []
        heard: asyncio.Future[Any] = loop.create_future()
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        disk.start(WRITING, lambda folder: 1 // 0, lambda result: raised.append("heard"))
        disk.wait(WRITING)
        disk.start(WRITING, lambda folder: None, lambda result: {}["missing"])
        disk.wait(WRITING)
        disk.start(WRITING, lambda folder: folder.names(), heard.set_result)
        disk.wait(WRITING)
        assert await heard == []
        await asyncio.sleep(0)
        assert [type(error) for error in raised] == [ZeroDivisionError, KeyError]

    on_a_loop(story)


def test_closing_hands_over_started_work_and_the_work_that_it_starts():
    """For example, the end of the last batch starts the write of the clean mark."""
    heard: list[str] = []
    disk = FileDisk(SimFolder(Random(1)), lambda call: None)
    disk.start(
        WRITING,
        lambda folder: folder.create("a", b""),
        lambda result: disk.start(READING, lambda folder: folder.names(), heard.extend),
    )
    assert disk.close()
    assert heard == ["a"]


def test_closing_does_not_wait_for_ever_and_later_results_are_dropped():
    """A call that is already scheduled on the loop drops them, too."""
    heard: list[Any] = []
    calls: list[Callable[[], None]] = []
    gate, before = threading.Event(), set(threading.enumerate())
    disk = FileDisk(SimFolder(Random(1)), calls.append)
    threads = set(threading.enumerate()) - before
    disk.start(WRITING, lambda folder: "quick", heard.append)
    disk.start(SYNCING, lambda folder: gate.wait(10), heard.append)
    while not calls:
        time.sleep(0.001)
    assert not disk.close(0.05)
    gate.set()
    for thread in threads:
        thread.join(10)
    calls[0]()
    assert heard == ["quick"]


def test_after_closing_no_thread_is_left_and_nothing_starts():
    before = set(threading.enumerate())
    disk = FileDisk(SimFolder(Random(1)), lambda call: None)
    threads = set(threading.enumerate()) - before
    assert len(threads) == LANES
    disk.close()
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(AssertionError, match="closed"):
        disk.start(WRITING, lambda folder: folder.names(), lambda result: None)


def test_a_disk_that_hangs_does_not_keep_the_process_alive():
    code = (
        "import time; from persistence.file_disk import FileDisk;"
        "FileDisk(None, print).start(0, lambda folder: time.sleep(60), print)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20, cwd=Path(__file__).parents[3])


def test_lanes_may_use_real_files_at_once(tmp_path: Path):
    """One lane writes and syncs while another one removes. No descriptor is closed while a call uses it."""
    files = Files(str(tmp_path))
    heard: list[Any] = []
    disk = FileDisk(files, lambda call: None)

    def write(folder: Folder, name: str) -> None:
        folder.create(name, b"")
        folder.write(name, 0, [b"x" * 100])
        folder.sync(name)

    for number in range(20):
        disk.start(WRITING, lambda folder, name=f"w{number}": write(folder, name), heard.append)
        disk.start(READING, lambda folder, name=f"r{number}": write(folder, name), heard.append)
        disk.start(READING, lambda folder, name=f"r{number}": folder.remove(name), heard.append)
    assert disk.close()
    assert heard == [None] * 60
    assert files.names() == sorted(f"w{number}" for number in range(20))
    files.close()


def test_results_after_the_loop_was_closed_are_dropped(tmp_path):
    """A node that can't start ends immediately, with work in flight. Its thread must end without an error."""

    def closed(call):
        raise RuntimeError("Event loop is closed")

    disk = FileDisk(Files(str(tmp_path)), closed)
    disk.start(WRITING, lambda folder: folder.names(), lambda outcome: None)
    for thread in disk._threads[:1]:
        thread.join(5)
        assert not thread.is_alive()
