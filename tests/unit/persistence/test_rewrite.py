"""persistence/rewrite.py: reads segments, passes live records to the caller, and drops the segments."""

from __future__ import annotations

import errno
from random import Random

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.journal import Journal
from persistence.records import DROPPED, GONE, JOB, PAUSE
from persistence.rewrite import Rewrite, chosen, unread_prefix


def make(turns, *, segment_bytes=100):
    """Return a journal in which the runs of each turn are in a separate segment, and its disk."""
    disk = InlineDisk(SimFolder(Random(1)))
    journal = Journal(disk, bytes(20), "always", lambda: None, segment_bytes=segment_bytes, reserve_bytes=0)
    journal.begin()
    for runs in turns:
        journal.append([*runs, [99, b"x" * segment_bytes]])
        disk.run()
    journal.rotate()
    disk.run()
    return journal, disk


def rewrite(journal, disk, numbers, *, stale=frozenset()):
    """Run a rewrite until it is over. Return the records that the caller got, and the rewrite."""
    heard = []
    work = Rewrite(
        journal,
        disk,
        lambda number, kind, item, may_matter: heard.append((number, kind, item, may_matter)) if kind != 99 else None,
        lambda: None,
        numbers,
        set(stale),
    )
    for _ in range(200):
        work.step()
        disk.run()
    assert work.is_over
    return heard, work


def test_every_record_is_handed_over_in_order_and_then_the_segment_goes():
    journal, disk = make([[[JOB, "a", "b"], [PAUSE, "p"]], [[JOB, "c"]]])
    heard, work = rewrite(journal, disk, [1])
    assert heard == [(1, JOB, "a", True), (1, JOB, "b", True), (1, PAUSE, "p", True)]
    assert (work.error, work.segments_done, journal.has_segment(1), journal.has_segment(2)) == ("", 1, False, True)


def test_an_end_matters_as_long_as_a_file_may_hold_a_base_of_it():
    """The segment of the end's own record does not count, because it will be dropped."""
    journal, disk = make([[[JOB, "a"]], [], [[GONE, ["a", 1], ["b", 3], ["c", 77]]]])
    heard, _ = rewrite(journal, disk, [3])
    assert [(item[0], may_matter) for _, _, item, may_matter in heard] == [("a", True), ("b", False), ("c", False)]


def test_an_end_matters_while_an_older_segment_is_stale():
    """An interrupted rewrite may have left an older base of the job there."""
    journal, disk = make([[[JOB, "a"]], [], [[GONE, ["a", 77]]]])
    heard, _ = rewrite(journal, disk, [3], stale={1})
    assert heard[0][3] is True


def test_stale_segments_go_first():
    journal, disk = make([[[JOB, "a"]], [[JOB, "b"]], [[JOB, "c"]]])
    heard, _ = rewrite(journal, disk, [1, 2, 3], stale={3})
    assert [item for _, _, item, _ in heard] == ["c", "a", "b"]


def test_a_drop_is_recorded_again_while_the_file_is_there():
    journal, disk = make([[], [], [[DROPPED, 1, 77]]])
    before = journal.position
    rewrite(journal, disk, [3])
    said = journal.position - before
    assert said > 0
    assert journal.has_segment(1)


def test_a_large_block_is_read_in_pieces():
    journal, disk = make([[[JOB, b"x" * 900_000]]])
    heard, _ = rewrite(journal, disk, [1])
    assert len(heard[0][2]) == 900_000


def test_a_segment_that_cannot_be_read_stays_and_is_stale_from_then_on():
    """Some of its bases were already replaced by newer ones, so the ends of these jobs must be kept."""
    journal, disk = make([[[JOB, "a"]], [[JOB, "b"]]])
    disk.folder.fail("read", errno.EIO)
    stale = set()
    work = Rewrite(journal, disk, lambda *_: None, lambda: None, [1, 2], stale)
    for _ in range(50):
        work.step()
        disk.run()
    assert (work.is_over, work.error, stale) == (True, "Input/output error", {1})
    assert (journal.has_segment(1), journal.has_segment(2)) == (True, True)


def test_a_damaged_segment_is_named():
    journal, disk = make([[[JOB, "a"]]])
    disk.folder.write("0000000001.seg", 540, [b"\xff"])
    _, work = rewrite(journal, disk, [1])
    assert "0000000001.seg: damaged" in work.error


def test_nothing_is_done_while_the_disk_fails():
    journal, disk = make([[[JOB, "a"]]])
    work = Rewrite(journal, disk, lambda *_: None, lambda: None, [1], set())
    journal.level = 1
    assert not work.step()
    assert disk.waiting == []


def test_segments_with_many_dead_bytes_are_chosen():
    """Spec J5."""
    journal, _ = make([[], [], []])
    size = journal.size_of(1)
    live = {1: size, 2: size - 1, 3: size // 2}
    assert chosen(journal, live, everything=False) == [3]
    assert chosen(journal, live, everything=True) == [2, 3]


def test_the_oldest_segments_in_which_nothing_lives_need_no_reading():
    journal, _ = make([[], [], [], []])
    assert unread_prefix(journal, {1: 0, 3: 5}, set()) == [1, 2]
    assert unread_prefix(journal, {1: 0, 3: 5}, {2}) == [1]
    assert unread_prefix(journal, {1: 7}, set()) == []
