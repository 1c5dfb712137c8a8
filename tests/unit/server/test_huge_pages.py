"""server/huge_pages.py: the memory of a large node moves to huge pages."""

from __future__ import annotations

import ctypes
import errno
import mmap
import re
import sys
import threading
from pathlib import Path

import pytest

from disque_py.config.settings import Settings
from disque_py.server import huge_pages
from disque_py.server.huge_pages import HUGE_BYTES, SHORTAGES_MAX, UNUSED_MAX, HugePages, LinuxMemory

PAGE = 4096


class FakeMemory:
    """The system's side: ranges that are in use or not, and the error of each move."""

    def __init__(self, used, error=0, obstacle=""):
        self.used = used
        self.error = error
        self.reason = obstacle
        self.moved = []

    def obstacle(self):
        return self.reason

    def ranges(self):
        yield from range(len(self.used))

    def is_used(self, address):
        return self.used[address]

    def move(self, address):
        self.moved.append(address)
        return self.error


@pytest.fixture
def told(monkeypatch):
    """Return the names and fields of the log lines."""
    told = []
    monkeypatch.setattr(huge_pages, "tell", lambda name, **fields: told.append((name, fields)))
    return told


@pytest.fixture
def resident(monkeypatch):
    """Return a function that sets the resident memory of the process."""

    def become(size):
        monkeypatch.setattr(huge_pages, "rss_bytes", lambda: size)

    become(huge_pages.RESIDENT_MIN)
    return become


def switched_on():
    """Return settings with `huge-pages yes`."""
    settings = Settings()
    settings.huge_pages = True
    return settings


def looked(pages):
    """Look, and wait until the thread has ended."""
    pages.look()
    for thread in threading.enumerate():
        if thread.name == "huge-pages":
            thread.join()


def test_ranges_that_are_in_use_are_moved(resident, told):
    memory = FakeMemory([True, False, True])
    looked(HugePages(switched_on(), memory))
    assert memory.moved == [0, 2]


def test_the_memory_of_a_small_process_is_left_alone(resident, told):
    resident(huge_pages.RESIDENT_MIN - 1)
    memory = FakeMemory([True])
    looked(HugePages(switched_on(), memory))
    assert memory.moved == []


def test_the_memory_is_visited_again_after_it_has_grown(resident, told):
    memory = FakeMemory([True])
    pages = HugePages(switched_on(), memory)
    looked(pages)
    looked(pages)
    assert memory.moved == [0]
    resident(huge_pages.RESIDENT_MIN + huge_pages.GROWTH_BYTES)
    looked(pages)
    assert memory.moved == [0, 0]


def test_the_memory_is_visited_again_after_some_time(resident, told, monkeypatch):
    memory = FakeMemory([True])
    pages = HugePages(switched_on(), memory)
    monkeypatch.setattr(huge_pages, "AGAIN_SECONDS", 0.0)
    looked(pages)
    looked(pages)
    assert memory.moved == [0, 0]


def test_memory_that_shrank_and_grew_is_visited_again(resident, told):
    memory = FakeMemory([True])
    pages = HugePages(switched_on(), memory)
    resident(3 * huge_pages.RESIDENT_MIN)
    looked(pages)
    for size in (huge_pages.RESIDENT_MIN, huge_pages.RESIDENT_MIN + huge_pages.GROWTH_BYTES):
        resident(size)
        looked(pages)
    assert memory.moved == [0, 0]


def test_without_the_directive_nothing_is_moved(resident, told):
    memory = FakeMemory([True])
    looked(HugePages(Settings(), memory))
    assert memory.moved == []


def test_huge_pages_no_moves_nothing_until_it_is_yes(resident, told):
    memory, settings = FakeMemory([True]), switched_on()
    settings.huge_pages = False
    pages = HugePages(settings, memory)
    looked(pages)
    assert memory.moved == []
    settings.huge_pages = True
    looked(pages)
    assert memory.moved == [0]


def test_huge_pages_no_stops_a_visit(resident, told):
    memory, settings = FakeMemory([True] * 5), switched_on()
    memory.move = lambda address: memory.moved.append(address) or setattr(settings, "huge_pages", False) or 0
    looked(HugePages(settings, memory))
    assert memory.moved == [0]


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_a_system_that_refuses_is_asked_once_and_logged_once(resident, told, error):
    memory = FakeMemory([True], error)
    pages = HugePages(switched_on(), memory)
    for factor in (1, 2, 3):
        resident(factor * huge_pages.RESIDENT_MIN)
        looked(pages)
    assert memory.moved == [0]
    assert [name for name, _ in told] == ["huge-pages-missing"]


def test_an_obstacle_is_logged_once(resident, told):
    memory = FakeMemory([True], obstacle="none here")
    pages = HugePages(switched_on(), memory)
    for _ in range(3):
        looked(pages)
    assert memory.moved == []
    assert told == [("huge-pages-missing", {"reason": "none here"})]


def test_a_range_that_can_not_be_moved_does_not_stop_the_others(resident, told):
    memory = FakeMemory([True] * 3)
    memory.move = lambda address: memory.moved.append(address) or (0 if address else errno.EINVAL)
    pages = HugePages(switched_on(), memory)
    looked(pages)
    looked(pages)
    assert memory.moved == [0, 1, 2]
    assert told == []


def test_a_visit_ends_while_the_system_has_no_huge_page_free(resident, told):
    memory = FakeMemory([True] * 100, errno.ENOMEM)
    pages = HugePages(switched_on(), memory)
    looked(pages)
    assert len(memory.moved) == SHORTAGES_MAX
    resident(2 * huge_pages.RESIDENT_MIN)
    looked(pages)
    assert len(memory.moved) == 2 * SHORTAGES_MAX
    assert told == []


def test_the_count_of_moved_ranges_is_logged_after_the_visit(resident, told, monkeypatch):
    monkeypatch.setattr(huge_pages, "MOVE_S", -1.0)
    monkeypatch.setattr(huge_pages, "REST_FACTOR", 0)
    pages = HugePages(switched_on(), FakeMemory([True, False, True]))
    looked(pages)
    assert told == []
    pages.look()
    assert told == [("huge-pages", {"moved": 2})]


def huge_kilobytes(address):
    """Return the kilobytes of huge pages in the mapping that has this address."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_inside = int(span[1], 16) <= address < int(span[2], 16)
        elif is_inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    return 0


@pytest.fixture
def linux_memory():
    """The memory of this process, if its system can move a range."""
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    memory = LinuxMemory()
    if reason := memory.obstacle():
        pytest.skip(reason)
    return memory


@pytest.fixture
def piece():
    """Return a mapping of four ranges, and the address of the first whole one."""
    with mmap.mmap(-1, 4 * HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as piece:
        first = ctypes.c_char.from_buffer(piece)
        address = -(-ctypes.addressof(first) // HUGE_BYTES) * HUGE_BYTES
        offset = address - ctypes.addressof(first)
        del first
        yield piece, address, offset


def test_a_real_range_in_use_becomes_a_huge_page_with_the_same_contents(linux_memory, piece):
    mapping, address, offset = piece
    for at in range(offset, offset + HUGE_BYTES, PAGE):
        mapping[at : at + 2] = b"ab"
    assert address in linux_memory.ranges()
    assert linux_memory.is_used(address)
    if error := linux_memory.move(address):
        pytest.skip(f"this system refuses: {errno.errorcode[error]}")
    assert huge_kilobytes(address) >= HUGE_BYTES >> 10
    assert mapping[offset : offset + HUGE_BYTES] == (b"ab" + bytes(PAGE - 2)) * (HUGE_BYTES // PAGE)


def test_a_real_range_with_more_than_a_few_unused_pages_is_not_in_use(linux_memory, piece):
    mapping, address, offset = piece
    end = offset + HUGE_BYTES - UNUSED_MAX * PAGE
    for at in range(offset, end - PAGE, PAGE):
        mapping[at] = 1
    assert not linux_memory.is_used(address)
    mapping[end - PAGE] = 1
    assert linux_memory.is_used(address)


def test_memory_that_is_gone_is_not_in_use_and_can_not_be_moved(linux_memory):
    assert not linux_memory.is_used(HUGE_BYTES << 30)
    assert linux_memory.move(HUGE_BYTES << 30) != 0
