"""disque_py/simulator/world/disk.py: work takes time, is done in order, and may be cut short."""

from __future__ import annotations

import errno
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from disque_py.simulator.world.disk import InlineDisk, SimDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.disk import READING, SYNCING, WRITING, Folder


class Clock:
    """A schedule that makes its calls in the order of their times."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._due, (self.now_ms + delay_ms, self._count, callback))

    def run(self, until_ms: int = 1 << 40) -> None:
        while self._due and self._due[0][0] <= until_ms:
            self.now_ms, _, callback = heappop(self._due)
            callback()


def sim_disk(seed: int = 1, **options: Any) -> tuple[Clock, SimDisk]:
    clock = Clock()
    return clock, SimDisk(SimFolder(Random(seed)), clock.schedule, Random(seed), **options)


def append(number: int) -> Callable[[Folder], int]:
    """Return work that appends one byte."""

    def work(folder: Folder) -> int:
        folder.write("a", folder.size("a"), [bytes([number])])
        return number

    return work


def test_work_is_reported_when_its_time_is_over():
    clock, disk = sim_disk(delays_ms=[(5, 5), (0, 0), (0, 0)])
    heard: list[Any] = []
    disk.start(WRITING, lambda folder: folder.create("a", b"x"), heard.append)
    clock.run(4)
    assert (heard, disk.folder.names(), disk.under_way) == ([], [], 1)
    clock.run()
    assert (heard, disk.folder.names(), disk.under_way) == ([None], ["a"], 0)
    assert 5 <= clock.now_ms <= 7


def test_an_error_is_a_result():
    clock, disk = sim_disk()
    heard: list[Any] = []
    disk.start(READING, lambda folder: folder.read("missing", 0, 1), heard.append)
    clock.run()
    assert [error.errno for error in heard] == [errno.ENOENT]


def test_a_lane_keeps_its_order_and_the_others_do_not_wait():
    clock, disk = sim_disk(delays_ms=[(0, 9), (1000, 1000), (0, 0)])
    disk.folder.create("a", b"")
    heard: list[Any] = []
    disk.start(SYNCING, lambda folder: folder.sync("a"), lambda result: heard.append("synced"))
    for number in range(50):
        disk.start(WRITING, append(number), heard.append)
    clock.run()
    assert heard == [*range(50), "synced"]
    assert disk.folder.read("a", 0, 99) == bytes(range(50))


def test_a_report_of_work_may_start_more_work():
    clock, disk = sim_disk()
    heard: list[Any] = []
    disk.start(
        WRITING,
        lambda folder: folder.create("a", b""),
        lambda result: disk.start(WRITING, lambda folder: folder.names(), heard.append),
    )
    clock.run()
    assert heard == [["a"]]


def test_a_stuck_disk_goes_on_when_it_is_freed():
    clock, disk = sim_disk()
    heard: list[Any] = []
    disk.folder.create("a", b"")
    disk.is_stuck = True
    for number in range(3):
        disk.start(WRITING, append(number), heard.append)
    clock.run()
    assert (heard, disk.under_way) == ([], 3)
    disk.free()
    clock.run()
    assert heard == [0, 1, 2]


def test_a_crashed_disk_tells_nothing_and_has_done_any_first_part_of_what_was_started():
    contents, heard = set(), []
    for seed in range(300):
        clock, disk = sim_disk(seed)
        disk.folder.create("a", b"")
        for number in range(3):
            disk.start(WRITING, append(number), heard.append)
        disk.crash()
        clock.run()
        disk.folder.kill()
        contents.add(disk.folder.read("a", 0, 9))
    assert heard == []
    assert contents == {b"", b"\0", b"\0\1", b"\0\1\2"}


def test_every_lane_may_have_been_in_the_middle_of_something():
    seen = set()
    for seed in range(400):
        _, disk = sim_disk(seed)
        disk.start(WRITING, lambda folder: [folder.create(name, b"") for name in "abc"], print)
        disk.start(READING, lambda folder: [folder.create(name, b"") for name in "xyz"], print)
        disk.crash()
        disk.folder.kill()
        names = "".join(disk.folder.names())
        seen.add((len(set(names) & set("abc")), len(set(names) & set("xyz"))))
    assert {(1, 1), (1, 2), (2, 1), (2, 2), (0, 3), (3, 0)} <= seen


def test_a_crash_the_folder_was_asked_for_is_told_to_the_world():
    clock, disk = sim_disk()
    told: list[str] = []
    disk.on_crash = lambda: told.append("dead")
    disk.folder.crash_in(1)
    disk.start(WRITING, lambda folder: folder.create("a", b""), told.append)
    disk.start(WRITING, lambda folder: folder.names(), told.append)
    clock.run()
    assert told == ["dead"]
    assert disk.is_crashed
    disk.start(WRITING, lambda folder: folder.names(), told.append)
    disk.crash()
    clock.run()
    assert told == ["dead"]


def test_an_inline_disk_works_when_told_to():
    disk, heard = InlineDisk(SimFolder(Random(1))), []
    disk.start(WRITING, lambda folder: folder.create("a", b""), heard.append)
    disk.start(SYNCING, lambda folder: folder.sync("missing"), heard.append)
    disk.start(READING, lambda folder: folder.names(), heard.append)
    assert disk.run_one(READING)
    assert heard == [[]]
    assert not disk.run_one(READING)
    assert disk.run() == 2
    assert heard[1] is None
    assert isinstance(heard[2], FileNotFoundError)


def test_an_inline_disk_also_does_what_is_started_meanwhile():
    disk, heard = InlineDisk(SimFolder(Random(1))), []
    disk.start(
        WRITING,
        lambda folder: folder.create("a", b""),
        lambda result: disk.start(WRITING, lambda folder: folder.names(), heard.append),
    )
    assert disk.run(SYNCING) == 0
    assert disk.run(WRITING) == 2
    assert heard == [["a"]]


def test_a_wait_does_the_first_task_in_some_of_the_calls_and_its_time_no_longer_counts():
    early = 0
    for seed in range(50):
        clock, disk = sim_disk(seed)
        heard: list[Any] = []
        disk.folder.create("a", b"")
        for number in range(2):
            disk.start(WRITING, append(number), heard.append)
        disk.wait(WRITING)
        assert heard in ([], [0])
        early += heard == [0]
        clock.run()
        assert heard == [0, 1]
        assert disk.folder.read("a", 0, 9) == b"\x00\x01"
    assert 20 <= early < 50


def test_a_disk_in_trouble_is_not_waited_for():
    for seed in range(20):
        _, disk = sim_disk(seed)
        heard: list[Any] = []
        disk.start(WRITING, lambda folder: folder.create("a", b""), heard.append)
        disk.is_stuck = True
        disk.wait(WRITING)
        disk.is_stuck = False
        disk.folder.crash_in(5)
        disk.wait(WRITING)
        assert heard == []
        _, slow = sim_disk(seed, delays_ms=[(50, 90), (0, 0), (0, 0)])
        slow.start(WRITING, lambda folder: folder.create("a", b""), heard.append)
        slow.wait(WRITING)
        assert heard == []
