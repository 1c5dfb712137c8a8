"""persistence/closed_segments.py: the closed files of a journal, and their removal."""

from __future__ import annotations

import errno
from random import Random

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.closed_segments import ClosedSegments
from persistence.records import Part, file_name

FILES = (Part(1, 0, 0, 10), Part(2, 0, 10, 30), Part(2, 1, 30, 60), Part(3, 0, 60, 100))


def make() -> tuple[ClosedSegments, InlineDisk, list[OSError | None]]:
    """Return a chain of four existing files, their disk, and a list that gets the outcomes of removals."""
    disk = InlineDisk(SimFolder(Random(1)))
    for file in FILES:
        disk.folder.create(file_name(file.number, file.part), b"x")
    heard: list[OSError | None] = []
    return ClosedSegments(disk, lambda outcome, _: heard.append(outcome), FILES), disk, heard


def test_a_segment_goes_when_the_record_of_that_is_on_disk():
    chain, disk, heard = make()
    chain.drop(2, 120)
    chain.on_synced(119)
    assert (disk.waiting, chain.before(9), chain.size_going) == ([], [1, 3], 50)
    chain.on_synced(120)
    disk.run()
    assert (heard, disk.folder.names()) == ([None], ["0000000001.seg", "0000000003.seg"])
    assert (chain.has_files(2), chain.size, chain.dropping) == (False, 50, set())


def test_a_file_that_cannot_be_removed_stays():
    chain, disk, heard = make()
    disk.folder.fail("remove", errno.EIO)
    chain.drop(1, 120)
    chain.on_synced(120)
    disk.run()
    assert [type(each) for each in heard] == [OSError]
    assert (chain.before(9), chain.parts_of(1)) == ([1, 2, 3], [FILES[0]])


def test_no_file_goes_while_files_are_copied():
    chain, disk, _ = make()
    chain.hold()
    chain.drop(1, 120)
    chain.on_synced(120)
    chain.begin_anew()
    assert (disk.run(), chain.up_to(2), chain.files) == (0, list(FILES[:3]), [])
    chain.release(120)
    disk.run()
    assert disk.folder.names() == []


def test_a_record_names_the_other_gone_segments_that_the_newest_header_names():
    chain, disk, _ = make()
    chain.named = frozenset((1, 2, 3))
    chain.drop(1, 120)
    assert chain.gone_with(3) == [1]
    chain.on_synced(120)
    disk.run()
    assert chain.gone_with(3) == [1]
    chain.named = frozenset((2, 3))
    assert chain.gone_with(3) == []


def test_a_new_part_has_a_name_that_nothing_has():
    """The names of files that a failed attempt left behind count, too."""
    chain, _, _ = make()
    assert [chain.next_part(number) for number in (1, 2, 4)] == [1, 2, 0]
    chain.mark_used(4, 0)
    assert chain.next_part(4) == 1
