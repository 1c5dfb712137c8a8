"""persistence/reserved_segment.py: a file whose disk space was allocated before the disk was full."""

from __future__ import annotations

import errno
from random import Random

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.reserved_segment import RESERVE_NAME, Reserve


def make(**more) -> tuple[Reserve, InlineDisk, list[str]]:
    disk = InlineDisk(SimFolder(Random(1)))
    return Reserve(disk, 4096, is_there=False, **more), disk, []


def test_the_reserve_exists_when_its_blocks_are_allocated():
    reserve, disk, heard = make()
    reserve.allocate(lambda: heard.append("there"))
    assert reserve.is_missing
    disk.run()
    assert (reserve.is_there, reserve.is_missing, heard) == (True, False, ["there"])
    assert disk.folder.size(RESERVE_NAME) == 4096


def test_an_existing_reserve_is_used():
    reserve, disk, heard = make()
    disk.folder.create(RESERVE_NAME, bytes(4096))
    disk.folder.trace = []
    reserve.allocate(lambda: heard.append("there"))
    disk.run()
    assert (reserve.is_there, heard) == (True, ["there"])
    assert {op for op, *_ in disk.folder.trace} == {"names", "read"}


def test_a_reserve_with_other_bytes_than_zeros_is_made_again():
    """A process began to make a file of the journal of it. A shorter header would leave a part of its header there."""
    reserve, disk, heard = make()
    disk.folder.create(RESERVE_NAME, bytes(4095) + b"x")
    reserve.allocate(lambda: heard.append("there"))
    disk.run()
    assert (reserve.is_there, heard) == (True, ["there"])
    assert disk.folder.read(RESERVE_NAME, 0, 5000) == bytes(4096)


def test_without_room_there_is_no_reserve_and_another_try_is_possible():
    reserve, disk, heard = make()
    disk.folder.fail("allocate", errno.ENOSPC)
    reserve.allocate(lambda: heard.append("there"))
    reserve.allocate(lambda: heard.append("twice"))
    assert len(disk.waiting) == 1
    disk.run()
    assert (reserve.is_missing, heard) == (True, [])
    reserve.allocate(lambda: heard.append("there"))
    disk.run()
    assert heard == ["there"]


def test_a_reserve_that_the_journal_uses_no_longer_exists():
    reserve, disk, _ = make()
    reserve.allocate(lambda: None)
    disk.run()
    reserve.mark_used()
    assert (reserve.is_used, reserve.is_there, reserve.is_missing) == (True, False, True)


def test_a_reserve_that_can_not_be_read_is_made_again():
    """It has no data, so a bad sector in it must not keep a node from starting."""
    reserve, disk, heard = make()
    disk.folder.create(RESERVE_NAME, bytes(4096))
    disk.folder.fail("read", errno.EIO, times=1)
    reserve.allocate(lambda: heard.append("there"))
    disk.run()
    assert (reserve.is_there, heard) == (True, ["there"])
    assert disk.folder.size(RESERVE_NAME) == 4096
