"""persistence/page_cache.py: old synced bytes of a folder leave the system's memory, and nothing else does."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from persistence import files as files_module
from persistence import page_cache
from persistence.files import Files
from persistence.page_cache import PAGE_BYTES, STEP_BYTES, PageCache
from persistence.window import SYNCED_WRITES, file_system

MIB = 1024 * 1024
KEPT = 8 * MIB

pytestmark = pytest.mark.skipif(not page_cache.IS_ADVISED, reason="this system takes no advice about its page cache")


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Return the list of (file name, start, end) that the module gives back to the system."""
    found: list[tuple[str, int, int]] = []

    def note(fd: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        found.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), start, start + size))

    monkeypatch.setattr(page_cache.os, "posix_fadvise", note)
    return found


@pytest.fixture
def path_of(tmp_path: Path) -> Callable[[str], str]:
    def make(name: str) -> str:
        path = tmp_path / name
        path.touch()
        return str(path)

    return make


def test_nothing_is_given_back_before_there_are_many_newer_bytes(given_back: list[tuple[str, int, int]], path_of):
    cache = PageCache(KEPT)
    cache.synced(path_of("a"), KEPT + STEP_BYTES - 1)
    assert given_back == []
    cache.synced(path_of("a"), KEPT + STEP_BYTES)
    assert given_back == [("a", 0, STEP_BYTES)]


def test_the_oldest_bytes_go_first_and_each_once(given_back: list[tuple[str, int, int]], path_of):
    cache = PageCache(KEPT)
    for end in range(MIB, 21 * MIB, MIB):
        cache.synced(path_of("a"), end)
    for end in range(MIB, 13 * MIB, MIB):
        cache.synced(path_of("b"), end)
    assert {name for name, _, _ in given_back} == {"a", "b"}
    for name in "ab":
        parts = [(start, end) for each, start, end in given_back if each == name]
        assert parts[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(parts))
    assert max(end for name, _, end in given_back if name == "a") == 20 * MIB
    assert sum(end - start for _, start, end in given_back) >= 32 * MIB - KEPT - STEP_BYTES


def test_what_is_given_back_ends_at_the_end_of_a_page(given_back: list[tuple[str, int, int]], path_of):
    cache = PageCache(KEPT)
    for number in range(1, 40):
        cache.synced(path_of("a"), number * (MIB + 1001))
    assert given_back
    assert all(start % PAGE_BYTES == end % PAGE_BYTES == 0 for _, start, end in given_back)


def test_bytes_behind_the_last_sync_stay(given_back: list[tuple[str, int, int]], tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files_module, "PageCache", lambda: PageCache(KEPT))
    files = Files(str(tmp_path / "log"))
    files.create("a", b"")
    files.write("a", 0, [bytes(3 * KEPT)])
    assert given_back == []
    files.sync("a")
    assert given_back == [("a", 0, 2 * KEPT)]
    files.write_synced("a", 3 * KEPT, [bytes(STEP_BYTES)])
    assert given_back[1:] == [("a", 2 * KEPT, 2 * KEPT + STEP_BYTES)]
    files.write("a", 3 * KEPT + STEP_BYTES, [bytes(3 * KEPT)])
    assert len(given_back) == 2
    files.close()


def test_a_sync_that_failed_gives_nothing_back(given_back: list[tuple[str, int, int]], tmp_path: Path, monkeypatch):
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files_module, "PageCache", lambda: PageCache(KEPT))
    files = Files(str(tmp_path / "log"))
    files.create("a", b"")
    files.write("a", 0, [bytes(3 * KEPT)])
    monkeypatch.setattr(files_module.os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        files.sync("a")
    assert given_back == []
    files.close()


def test_a_file_that_was_replaced_counts_anew(given_back: list[tuple[str, int, int]], path_of):
    cache = PageCache(KEPT)
    cache.synced(path_of("a"), KEPT)
    cache.forget(path_of("a"))
    cache.synced(path_of("a"), KEPT)
    assert given_back == []
    cache.synced(path_of("b"), STEP_BYTES)
    assert given_back == [("a", 0, STEP_BYTES)]


def test_a_file_that_is_gone_is_passed_over(given_back: list[tuple[str, int, int]], path_of):
    cache = PageCache(KEPT)
    cache.synced(path_of("a"), KEPT)
    os.unlink(path_of("a"))
    cache.synced(path_of("b"), 2 * KEPT)
    assert [name for name, _, _ in given_back] in (["b"], [])
    cache.synced(path_of("b"), 4 * KEPT)
    assert given_back[-1] == ("b", given_back[-1][1], 3 * KEPT)


def test_the_pages_of_old_bytes_leave_memory_and_the_bytes_are_still_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files_module, "PageCache", lambda: PageCache(KEPT))
    files = Files(str(tmp_path / "log"))
    files.create("a", b"")
    with open(f"{files.directory}/a", "rb") as file:
        if file_system(file.fileno()) not in SYNCED_WRITES:
            pytest.skip("only a file system on a disk can give pages back")
    data = os.urandom(MIB)
    for number in range(32):
        files.write("a", number * MIB, [data])
        files.sync("a")
    assert KEPT <= resident_bytes(f"{files.directory}/a") <= KEPT + STEP_BYTES + MIB
    assert all(files.read("a", number * MIB, MIB) == data for number in range(32))
    files.close()


def resident_bytes(path: str) -> int:
    """Return how much of a file is in the system's memory."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        pages = -(-len(memory) // PAGE_BYTES)
        vector = (ctypes.c_ubyte * pages)()
        buffer = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(buffer)
        found = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), vector
        )
        del buffer
        assert found == 0, os.strerror(ctypes.get_errno())
        return sum(each & 1 for each in vector) * PAGE_BYTES
