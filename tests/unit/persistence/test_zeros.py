"""persistence/zeros.py: few writes make a file longer, and a disk without room for zeros takes the blocks alone."""

from __future__ import annotations

import errno
from random import Random

import pytest

from disque_py.simulator.world.folder import SimFolder
from persistence.zeros import ZEROS_BYTES_MAX, ZEROS_BYTES_MIN, Zeros, write_synced


def test_zeros_come_when_a_write_passes_the_last_ones_and_twice_as_many_each_time():
    zeros = Zeros()
    sizes = []
    end = 0
    while len(sizes) < 7:
        end += 1_000
        added = zeros.behind(end, 1 << 30)
        if added:
            sizes.append(len(added))
            zeros.written(end + len(added), has_room=True)
    assert sizes == [min(ZEROS_BYTES_MIN << number, ZEROS_BYTES_MAX) for number in range(7)]
    assert sum(sizes[:-1]) < end < sum(sizes[:-1]) + 7_000


def test_zeros_do_not_pass_the_longest_length_of_the_file():
    zeros = Zeros()
    assert len(zeros.behind(9_000, 10_000)) == 1_000
    assert zeros.behind(10_000, 10_000) == b""
    assert zeros.behind(10_500, 10_000) == b""


def test_without_room_no_zeros_come_before_the_next_file():
    zeros = Zeros()
    zeros.written(len(zeros.behind(100, 1 << 20)), has_room=False)
    assert zeros.behind(1 << 19, 1 << 20) == b""
    zeros.begin_file()
    assert zeros.behind(100, 1 << 20)


def test_blocks_and_zeros_are_on_disk_after_the_write():
    folder = SimFolder(Random(1))
    folder.create("a", b"head")
    assert write_synced(folder, "a", 4, [b"one", b"two"], bytes(100), has_unsynced=True)
    folder.cut_power()
    assert folder.read("a", 0, 1_000) == b"headonetwo" + bytes(100)


def test_a_full_disk_takes_the_blocks_alone_and_other_errors_are_raised():
    folder = SimFolder(Random(1))
    folder.create("a", b"head")
    folder.capacity_bytes = folder.used_bytes + 50
    assert not write_synced(folder, "a", 4, [b"one"], bytes(100), has_unsynced=False)
    folder.cut_power()
    assert folder.read("a", 4, 3) == b"one"
    folder.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        write_synced(folder, "a", 4, [b"one"], bytes(100), has_unsynced=False)
