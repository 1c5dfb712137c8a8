"""disque_py/simulator/world/folder.py: three ends of a process, and a disk that fails like a real one."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disque_py.simulator.world.disk_errors import CrashError
from disque_py.simulator.world.folder import SimFolder
from disque_py.simulator.world.sectors import SECTOR_BYTES
from folder_operations import OPERATION, contents, outcome


def folder_with(**files: bytes) -> SimFolder:
    folder = SimFolder(Random(1))
    for name, data in files.items():
        folder.create(name, data)
    return folder


def after_power_cuts(folder: SimFolder, count: int = 100) -> list[dict[str, bytes]]:
    """Return the possible contents after a power cut, each once, in the order found."""
    found: list[dict[str, bytes]] = []
    for seed in range(count):
        cut = folder.copy(Random(seed))
        cut.cut_power()
        if contents(cut) not in found:
            found.append(contents(cut))
    return found


# Ends of a process.


def test_the_death_of_the_process_leaves_what_was_written():
    folder = folder_with(a=b"")
    folder.write("a", 0, [b"not ", b"synced"])
    folder.kill()
    assert contents(folder) == {"a": b"not synced"}


def test_a_power_cut_leaves_what_was_synced():
    folder = folder_with(a=b"")
    folder.write("a", 0, [b"synced"])
    folder.sync("a")
    folder.write("a", 6, [b" or not"])
    left = [ending["a"] for ending in after_power_cuts(folder)]
    assert all(data.startswith(b"synced") for data in left)
    assert b"synced" in left
    assert b"synced or not" in left
    assert b"synced or" in left
    assert b"synced\0\0\0\0\0\0\0" in left


def test_a_synced_write_survives_a_power_cut_without_earlier_writes():
    folder = folder_with(a=b"")
    folder.write("a", 0, [b"x" * SECTOR_BYTES])
    folder.write_synced("a", SECTOR_BYTES, [b"syn", b"ced"])
    left = [ending["a"] for ending in after_power_cuts(folder)]
    assert all(data[SECTOR_BYTES:] == b"synced" for data in left)
    assert any(data[:SECTOR_BYTES] == bytes(SECTOR_BYTES) for data in left)


def test_names_survive_a_power_cut_once_the_operation_has_returned():
    folder = folder_with(a=b"a", b=b"b", c=b"c")
    folder.write("a", 0, [b"A"])
    folder.rename("a", "d")
    folder.remove("b")
    folder.replace("c", b"new")
    folder.allocate("e", 3)
    assert after_power_cuts(folder) == [{"c": b"new", "d": b"A", "e": b"\0\0\0"}]


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        (("create", "b", b"b"), {"a": b"a", "b": b"b"}),
        (("allocate", "b", 1), {"a": b"a", "b": b"\0"}),
        (("replace", "a", b"new"), {"a": b"new"}),
        (("remove", "a"), {}),
        (("rename", "a", "b"), {"b": b"a"}),
    ],
)
def test_a_crash_in_the_middle_leaves_the_names_as_before_or_after(operation, after):
    left: list[dict[str, bytes]] = []
    for steps in range(3):
        folder = folder_with(a=b"a")
        folder.crash_in(steps)
        try:
            outcome(folder, operation)
        except CrashError:
            pass
        left += after_power_cuts(folder)
    assert [ending for ending in left if ending not in ({"a": b"a"}, after)] == []
    assert {"a": b"a"} in left
    assert after in left


def test_a_process_that_dies_while_it_writes_has_written_the_first_part():
    lengths = set()
    for seed in range(50):
        folder = SimFolder(Random(seed))
        folder.create("a", b"")
        folder.crash_in(0)
        with pytest.raises(CrashError):
            folder.write("a", 0, [b"abc"])
        folder.kill()
        assert b"abc".startswith(folder.read("a", 0, 9))
        lengths.add(folder.size("a"))
    assert lengths == {0, 1, 2, 3}


def test_a_dead_process_does_nothing_more():
    folder = folder_with(a=b"a")
    folder.crash_in(1)
    assert folder.size("a") == 1
    for _ in range(2):
        with pytest.raises(CrashError):
            folder.remove("a")
    assert folder.is_dead
    folder.kill()
    assert not folder.is_dead
    assert folder.names() == ["a"]


# Troubles.


def test_operations_fail_when_asked_to():
    folder = folder_with(a=b"", b=b"")
    folder.fail("write sync", errno.EIO, nth=2, times=2, when=lambda name: name == "a")
    results = [outcome(folder, operation) for operation in (("write", "a", 0, [b"x"]), ("sync", "b"), ("sync", "a"))]
    assert results == [None, None, (OSError, errno.EIO)]
    assert outcome(folder, ("write", "a", 0, [b"y"])) == (OSError, errno.EIO)
    assert outcome(folder, ("write", "a", 0, [b"z"])) is None
    assert contents(folder) == {"a": b"z", "b": b""}


def test_a_read_only_disk_stays_so_until_healed():
    folder = folder_with(a=b"a")
    folder.fail("create write sync", errno.EROFS, times=-1)
    for _ in range(3):
        assert outcome(folder, ("create", "b", b"")) == (OSError, errno.EROFS)
    assert folder.read("a", 0, 1) == b"a"
    folder.heal()
    folder.create("b", b"")
    assert folder.names() == ["a", "b"]


def test_after_a_failed_sync_what_is_read_is_not_what_is_durable():
    """The kernel takes the lost pages for written, so only a new file helps."""
    data = b"x" * SECTOR_BYTES * 4
    left = set()
    for seed in range(30):
        folder = SimFolder(Random(seed))
        folder.create("a", b"")
        folder.write("a", 0, [data])
        folder.fail("sync", errno.EIO)
        for _ in range(2):
            assert outcome(folder, ("sync", "a")) == (OSError, errno.EIO)
        folder.kill()  # The next process knows nothing of the failure.
        folder.sync("a")
        assert folder.read("a", 0, 9999) == data
        folder.cut_power()
        left.add(folder.read("a", 0, 9999))
    assert data in left
    assert len(left) > 3


def test_a_replaced_file_may_be_synced_again():
    folder = folder_with(a=b"a")
    folder.fail("sync", errno.EIO)
    assert outcome(folder, ("sync", "a")) == (OSError, errno.EIO)
    folder.replace("a", b"b")
    folder.sync("a")


@pytest.mark.parametrize("op", ["create", "allocate"])
def test_a_file_that_could_not_be_made_is_not_there(op):
    for seed in range(20):
        folder = SimFolder(Random(seed))
        folder.fail(op, errno.EIO, is_partial=True)
        assert outcome(folder, (op, "a", b"x" if op == "create" else 1)) == (OSError, errno.EIO)
        assert folder.names() == []
        assert folder.used_bytes == 0


def test_a_change_of_names_that_failed_in_part_may_be_undone_by_a_power_cut():
    seen: list[Any] = []
    for seed in range(20):
        folder = SimFolder(Random(seed))
        folder.create("a", b"")
        folder.fail("remove", errno.EIO, is_partial=True)
        assert outcome(folder, ("remove", "a")) == (OSError, errno.EIO)
        seen.append((folder.names(), len(after_power_cuts(folder))))
    assert (["a"], 1) in seen
    assert ([], 2) in seen
    assert ([], 1) in seen


def test_a_write_that_fails_in_part_leaves_its_first_bytes():
    left = set()
    for seed in range(60):
        folder = SimFolder(Random(seed))
        folder.create("a", b"")
        folder.fail("write", errno.EIO, is_partial=True)
        assert outcome(folder, ("write", "a", 0, [b"ab"])) == (OSError, errno.EIO)
        left.add(folder.read("a", 0, 9))
    assert left == {b"", b"a", b"ab"}


def test_on_a_full_disk_what_fits_is_written():
    folder = folder_with(a=b"1234")
    folder.allocate("reserve", 4)
    folder.capacity_bytes = 10
    assert outcome(folder, ("write", "a", 3, [b"4567"])) == (OSError, errno.ENOSPC)
    assert folder.read("a", 0, 99) == b"123456"
    for operation in ("create", "b", b"x"), ("allocate", "b", 1), ("replace", "a", b"x"), ("truncate", "a", 7):
        assert outcome(folder, operation) == (OSError, errno.ENOSPC)
    folder.write("reserve", 0, [b"room"])
    folder.remove("reserve")
    assert folder.used_bytes == 6
    folder.write("a", 6, [b"7"])


def test_a_directory_may_vanish_and_come_back_with_or_without_its_files():
    folder = folder_with(a=b"a")
    folder.vanish()
    for operation in ("names",), ("create", "b", b""), ("write", "a", 0, [b"x"]), ("remove", "a"), ("read", "a", 0, 1):
        assert outcome(folder, operation) == (FileNotFoundError, errno.ENOENT)
    folder.appear()
    assert contents(folder) == {"a": b"a"}
    folder.vanish()
    folder.appear(is_empty=True)
    assert (folder.names(), folder.used_bytes) == ([], 0)


# The rest.


def test_a_link_shares_the_file_and_its_room():
    folder = folder_with(a=b"data")
    folder.link("a", "backup")
    assert outcome(folder, ("link", "a", "backup")) == (FileExistsError, errno.EEXIST)
    folder.remove("a")
    assert bytes(folder.linked["backup"]["a"].content) == b"data"
    assert folder.used_bytes == 4
    folder.cut_power()
    assert folder.used_bytes == 4


def test_the_trace_tells_every_operation():
    folder = SimFolder(Random(1))
    folder.trace = []
    folder.create("a", b"head")
    folder.write("a", 4, [b"x", b"y"])
    folder.sync("a")
    assert folder.trace == [("create", "a", 0, 4), ("write", "a", 4, 2), ("sync", "a", 0, 0)]


def test_a_copy_is_independent():
    folder = folder_with(a=b"a")
    folder.link("a", "backup")
    folder.write("a", 1, [b"b"])
    copied = folder.copy(Random(1))
    folder.write("a", 0, [b"XY"])
    folder.remove("a")
    assert contents(copied) == {"a": b"ab"}
    assert bytes(copied.linked["backup"]["a"].content) == b"ab"


def test_the_same_seed_loses_the_same():
    endings = []
    for _ in range(2):
        folder = SimFolder(Random(7))
        folder.create("a", b"")
        for number in range(20):
            folder.write("a", number * 300, [bytes([number]) * 400])
        folder.cut_power()
        endings.append(contents(folder))
    assert endings[0] == endings[1]


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATION, max_size=20), st.integers(0, 1 << 32), st.booleans())
def test_synced_data_always_survives_a_power_cut(operations, seed, is_copied):
    """Sectors without a write since the last sync are unchanged. Names are as the last operation left them."""
    folder = SimFolder(Random(seed))
    synced: dict[str, bytes] = {}
    dirty: dict[str, set[int]] = {}
    for operation in operations:
        if isinstance(outcome(folder, operation), tuple):
            continue
        op, name = operation[0], operation[1]
        if op == "write":
            start, size = operation[2], sum(map(len, operation[3]))
            dirty[name].update(range(start // SECTOR_BYTES, (start + size - 1) // SECTOR_BYTES + 1) if size else ())
        elif op not in ("read", "size"):
            for each in operation[1:3] if op == "rename" else (name,):
                synced[each], dirty[each] = b"", set()
                if each in folder.names():
                    synced[each] = folder.read(each, 0, folder.size(each))
    before = folder.names()
    used = folder.copy(Random(seed)) if is_copied else folder
    used.cut_power(Random(seed + 1))
    assert used.names() == before
    for name in before:
        left = used.read(name, 0, used.size(name))
        assert len(synced[name]) <= len(left) <= folder.size(name)
        for sector in range(0, len(synced[name]), SECTOR_BYTES):
            if sector // SECTOR_BYTES not in dirty[name]:
                end = min(sector + SECTOR_BYTES, len(synced[name]))
                assert left[sector:end] == synced[name][sector:end]
    assert used.used_bytes == sum(map(len, contents(used).values()))


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATION, max_size=12), st.integers(0, 1 << 32), st.integers(0, 20))
def test_wherever_the_process_dies_files_it_did_not_touch_are_whole(operations, seed, steps):
    folder = SimFolder(Random(seed))
    folder.create("untouched", b"x" * 1000)
    folder.crash_in(steps)
    try:
        for operation in operations:
            outcome(folder, operation)
    except CrashError:
        pass
    folder.cut_power()
    assert folder.read("untouched", 0, 2000) == b"x" * 1000
    assert folder.used_bytes == sum(map(len, contents(folder).values()))


# Copies.


def test_copies_take_room_until_they_are_discarded():
    folder = folder_with(a=b"12345")
    folder.link("a", "copies")
    folder.store("copies", "note", b"123")
    assert folder.stored("copies") == ["a", "note"]
    folder.remove("a")
    assert folder.used_bytes == 8
    folder.discard("copies")
    folder.discard("copies")
    assert folder.stored("copies") == []
    assert folder.used_bytes == 0


def test_no_room_for_a_copy_is_an_error():
    folder = SimFolder(Random(1), capacity_bytes=2)
    with pytest.raises(OSError, match="No space"):
        folder.store("copies", "note", b"123")
    assert folder.stored("copies") == []


# Files as memory.


def test_mapped_data_is_read_at_once_and_durable_when_its_part_is_synced():
    folder = folder_with(a=b"head")
    window = folder.map("a", 4096)
    assert window is not None
    folder.prepare("a", window, 0, 4096)
    window.put(4, b"+one")
    folder.sync_window("a", window, 0, 8)
    window.put(8, b"+two")
    assert folder.read("a", 0, 14) == b"head+one+two\0\0"
    assert {files["a"][:12] for files in after_power_cuts(folder)} == {b"head+one+two", b"head+one\0\0\0\0"}


def test_preparing_bytes_takes_room_and_filling_them_takes_none():
    folder = folder_with(a=b"head")
    window = folder.map("a", 4096)
    assert window is not None
    folder.capacity_bytes = 2000
    assert outcome(folder, ("prepare", "a", window, 0, 4096)) == (OSError, errno.ENOSPC)
    folder.prepare("a", window, 0, 1000)
    folder.capacity_bytes = 0
    window.put(990, b"0123456789")
    assert (folder.size("a"), folder.used_bytes) == (1000, 1000)


def test_a_folder_may_have_no_windows():
    folder = folder_with(a=b"")
    folder.has_windows = False
    assert folder.map("a", 4096) is None
