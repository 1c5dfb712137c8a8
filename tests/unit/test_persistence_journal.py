"""persistence/journal.py: what is written when, what may be believed to be on disk, and what a bad disk costs."""

from __future__ import annotations

import errno
from random import Random

from disque_py.simulator.disk import InlineDisk
from disque_py.simulator.folder import SimFolder
from persistence.disk import READING, SYNCING, WRITING
from persistence.journal import LATE_MS, REFUSE_MS, RETRY_MS, STALL_MS, SYNC_EVERY_MS, Journal
from persistence.records import GONE, IS_ALWAYS, Part
from persistence.recovery import CLEAN_NAME, Recovery
from persistence.trouble import FINE, NO_ACKS, NO_ADDS

NODE = bytes(20)
RECORD = [[GONE, (b"x" * 40, 1)]]


def make(policy="always", folder=None, *, reserve_bytes=0, segment_bytes=1000, **more):
    disk = InlineDisk(folder or SimFolder(Random(1)))
    changes = []
    journal = Journal(
        disk, NODE, policy, lambda: changes.append(1), segment_bytes=segment_bytes, reserve_bytes=reserve_bytes, **more
    )
    journal.now_ms, journal.wall_ms = 10_000, 1_700_000_000_000
    journal.begin()
    disk.run()
    return journal, disk


def wait(journal, disk, span_ms):
    """Time passes in steps of ten milliseconds; the disk does what is asked for."""
    for _ in range(span_ms // 10):
        journal.now_ms += 10
        journal.tick()
        disk.run()


def read(disk):
    """Blocks and the reader, after a kill."""
    recovery = Recovery(disk.folder)
    blocks = []
    while not recovery.is_finished:
        blocks += recovery.step()
    return blocks, recovery


def test_always_is_ready_when_it_is_on_disk_and_not_when_it_is_written():
    journal, disk = make()
    position = journal.append(RECORD)
    assert journal.ready_position() == 0
    disk.run()
    assert journal.ready_position() == journal.synced == position


def test_one_fsync_serves_all_that_gathered_meanwhile():
    journal, disk = make()
    journal.append(RECORD)
    for _ in range(9):
        journal.append(RECORD)
    disk.folder.trace = []
    disk.run()
    assert [op for op, *_ in disk.folder.trace] == ["write", "sync", "write", "sync"]
    assert journal.synced == journal.position


def test_everysec_is_ready_when_it_is_written_and_on_disk_within_a_second():
    journal, disk = make("everysec")
    position = journal.append(RECORD)
    disk.run(WRITING)
    assert (journal.ready_position(), journal.synced) == (position, 0)
    wait(journal, disk, SYNC_EVERY_MS + 10)
    assert journal.synced == position


def test_no_leaves_it_to_the_system():
    journal, disk = make("no")
    position = journal.append(RECORD)
    wait(journal, disk, 5_000)
    assert (journal.ready_position(), journal.synced, journal.next_ms()) == (position, 0, None)


def test_a_stalled_disk_holds_nobody_up_for_long_but_under_always():
    for policy, ready in (("always", False), ("everysec", True), ("no", True)):
        journal, _ = make(policy)
        position = journal.append(RECORD)
        assert journal.ready_position() < position
        journal.now_ms += STALL_MS + 1
        assert (journal.ready_position() == position) is ready


def test_under_everysec_nothing_goes_ahead_of_a_disk_that_is_two_seconds_late():
    """A power cut loses no more (semantics.md, section 8); after five seconds nothing new is promised."""
    journal, disk = make("everysec")
    journal.append(RECORD)
    disk.run(WRITING)
    journal.now_ms += LATE_MS + 1
    journal.tick()
    assert (journal.ready_position(), journal.level, journal.delayed_syncs) == (0, FINE, 1)
    journal.now_ms += REFUSE_MS - LATE_MS
    journal.tick()
    assert (journal.level, journal.trouble) == (NO_ADDS, "the disk is too slow, nothing was synced for 5 seconds")
    disk.run()
    journal.tick()
    assert (journal.level, journal.trouble) == (FINE, "")


def test_a_full_segment_is_synced_before_the_next_begins():
    journal, disk = make("no", segment_bytes=100)
    first = journal.append(RECORD) and journal.append(RECORD)
    disk.run()
    journal.append(RECORD)
    disk.run()
    assert (journal.number, journal.files) == (2, [Part(1, 0, 0, first)])
    assert journal.synced == first
    assert [number for number, _ in read(disk)[0]] == [1, 1, 2]


def test_a_closed_segment_can_be_dropped_once_the_record_of_that_is_on_disk():
    journal, disk = make(segment_bytes=100)
    for _ in range(3):
        journal.append(RECORD)
        disk.run()
    assert journal.closed_segments() == [1]
    journal.drop(1)
    assert (journal.closed_segments(), journal.has_segment(1)) == ([], True)
    disk.run()
    assert (journal.has_segment(1), "0000000001.seg" in disk.folder.names()) == (False, False)
    assert read(disk)[1].missing == {1}


def test_what_was_dropped_is_said_again_while_the_newest_header_names_it():
    """The record that said it first may be in a segment that is dropped itself."""
    journal, disk = make(segment_bytes=100)
    while journal.number < 4:
        journal.append(RECORD)
        disk.run()
    journal.rotate()
    disk.run()
    for number in (1, 2):
        journal.drop(number)
        disk.run()
    said = [run[1:] for _, block in read(disk)[0] for run in block.runs if run[0] == 5]
    assert said == [[1], [2, 1]]


def test_a_failed_write_is_written_again_into_another_file():
    journal, disk = make("everysec")
    disk.folder.fail("write", errno.EIO)
    position = journal.append(RECORD)
    disk.run()
    assert (journal.level, journal.error, journal.written) == (NO_ADDS, "Input/output error", 0)
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.level, journal.error, journal.written) == (FINE, "", position)
    assert [block.position for _, block in read(disk)[0]] == [0]


def test_after_a_failed_fsync_nothing_of_it_is_believed():
    """A second fsync that succeeds proves nothing: all that was not known to be on disk is written anew."""
    for policy in ("always", "everysec"):
        journal, disk = make(policy)
        good = journal.append(RECORD)
        wait(journal, disk, 1_100)
        disk.folder.fail("sync", errno.EIO)
        journal.append(RECORD)
        for _ in range(110):
            if not journal.level:
                wait(journal, disk, 10)
        assert journal.level == (NO_ACKS if policy == "always" else NO_ADDS)
        wait(journal, disk, RETRY_MS + 1_100)
        assert journal.files == [Part(1, 0, 0, good)]
        disk.folder.cut_power()
        assert len(read(disk)[0]) == 2


def test_with_no_a_failed_fsync_at_the_end_of_a_segment_loses_nothing_either():
    journal, disk = make("no", segment_bytes=100)
    journal.append(RECORD)
    journal.append(RECORD)
    disk.run()
    disk.folder.fail("sync", errno.EIO)
    journal.append(RECORD)
    disk.run()
    wait(journal, disk, RETRY_MS + 20)
    journal.rotate()
    disk.run()
    disk.folder.cut_power()
    assert [number for number, _ in read(disk)[0]][:3] == [1, 1, 2]


def test_what_was_promised_before_a_failure_waits_for_the_recovery():
    """Whoever asks while the disk is in trouble need not: `must_wait` says so."""
    journal, disk = make("everysec")
    disk.folder.fail("write", errno.EIO)
    position = journal.append(RECORD)
    disk.run()
    assert (journal.must_wait(), journal.ready_position()) == (False, 0)
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.must_wait(), journal.ready_position()) == (True, position)


def test_acks_of_a_full_disk_go_to_the_reserved_file():
    journal, disk = make(reserve_bytes=4096)
    wait(journal, disk, RETRY_MS + 20)
    assert "reserve" in disk.folder.names()
    disk.folder.fail("write create allocate", errno.ENOSPC, nth=1, times=1)
    disk.folder.fail("create allocate", errno.ENOSPC, times=-1)
    position = journal.append(RECORD)
    disk.run()
    assert (journal.level, journal.is_on_reserve, journal.synced) == (NO_ADDS, True, position)
    disk.folder.heal()
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.level, journal.is_on_reserve, "reserve" in disk.folder.names()) == (FINE, False, True)


def test_a_reserved_file_that_could_not_be_taken_is_in_nobodys_way():
    """It has its new name already, and the header can't be written: the next file needs another one."""
    journal, disk = make(reserve_bytes=4096)
    wait(journal, disk, RETRY_MS + 20)
    disk.folder.fail("write", errno.ENOSPC, times=2)
    position = journal.append(RECORD)
    disk.run()
    assert journal.level == NO_ACKS
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.level, journal.synced) == (FINE, position)


def test_a_disk_that_hangs_makes_nobody_busy():
    journal, disk = make("everysec")
    journal.append(RECORD)
    disk.run(WRITING)
    journal.now_ms += SYNC_EVERY_MS
    journal.tick()
    journal.append(RECORD)
    disk.folder.fail("sync", errno.EIO)
    disk.run(SYNCING)
    journal.now_ms += 10 * RETRY_MS
    journal.tick()
    assert journal.next_ms() > journal.now_ms


def test_blocks_say_whether_always_was_in_force():
    """Leaving `always` takes effect when the journal shows it on disk (semantics.md, section 5)."""
    journal, disk = make()
    journal.append(RECORD)
    journal.set_policy("everysec")
    assert journal.policy == "always"
    disk.run()
    assert journal.policy == "everysec"
    journal.append(RECORD)
    journal.set_policy("always")
    journal.append(RECORD)
    disk.run()
    assert [block.flags for _, block in read(disk)[0]] == [IS_ALWAYS, 0, 0, IS_ALWAYS]


def test_restart_begins_a_new_chain_and_the_old_files_go():
    journal, disk = make()
    journal.append(RECORD)
    disk.run()
    journal.restart()
    disk.run()
    assert [name for name in disk.folder.names() if name.endswith("seg")] == ["0000000002.seg"]
    assert [block.runs for _, block in read(disk)[0]] == [[]]


def test_the_end_leaves_a_mark_that_names_it():
    journal, disk = make()
    journal.append(RECORD)
    ends = []
    journal.close(ends.append, leave_mark=True)
    disk.run()
    assert (ends, journal.is_closed, read(disk)[1].is_clean) == ([None], True, True)


def test_what_comes_while_the_mark_is_written_is_behind_it_and_moves_it():
    journal, disk = make()
    ends = []
    journal.close(ends.append, leave_mark=True)
    position = journal.append(RECORD)
    disk.run_one()
    assert (ends, journal.ready_position(), CLEAN_NAME in disk.folder.names()) == ([], 0, True)
    disk.run()
    assert (ends, journal.synced, read(disk)[1].is_clean) == ([None], position, True)


def test_an_end_without_a_mark_says_that_nothing_is_known_of_what_follows():
    journal, disk = make()
    journal.append(RECORD)
    ends = []
    journal.close(ends.append, leave_mark=False)
    journal.append(RECORD)
    disk.run()
    blocks, recovery = read(disk)
    assert (ends, recovery.is_clean) == ([None], False)
    assert [block.flags for _, block in blocks[:2]] == [IS_ALWAYS, 0]
    assert all(block.flags == 0 for _, block in blocks[1:])


def test_a_journal_that_can_not_be_closed_says_why_and_goes_on():
    for operation in ("sync", "replace"):
        journal, disk = make("everysec")
        disk.folder.fail(operation, errno.EIO, is_partial=operation == "replace")
        ends = []
        journal.append(RECORD)
        journal.close(ends.append, leave_mark=True)
        disk.run()
        assert [type(end) for end in ends] == [OSError]
        wait(journal, disk, RETRY_MS + 20)
        journal.append(RECORD)
        disk.run()
        assert (journal.level, read(disk)[1].is_clean, len(read(disk)[0])) == (FINE, False, 2)


def test_removing_that_fails_leaves_the_file_in_the_chain():
    """What is gone there must stay known as gone."""
    journal, disk = make(segment_bytes=100)
    for _ in range(3):
        journal.append(RECORD)
        disk.run()
    disk.folder.fail("remove", errno.EIO)
    journal.drop(1)
    disk.run()
    assert (journal.has_segment(1), journal.closed_segments()) == (True, [1])


def test_lanes_never_wait_for_each_other():
    """Nothing that reads or removes holds up a write."""
    journal, disk = make(segment_bytes=100)
    for _ in range(3):
        journal.append(RECORD)
        disk.run()
    journal.drop(1)
    disk.run(WRITING)
    position = journal.append(RECORD)
    disk.run(WRITING)
    assert journal.synced == position
    assert [lane for lane, _, _ in disk.waiting] == [READING]


def test_a_segment_whose_blocks_have_no_file_yet_is_there():
    """A slow disk: the journal is in the third segment before the first is written (simulator, seed 34)."""
    journal, disk = make(segment_bytes=100)
    while journal.number < 4:
        journal.append(RECORD)
    assert [journal.has_segment(number) for number in range(1, 6)] == [True] * 4 + [False]
    disk.run()
    assert all(journal.has_segment(number) for number in range(1, journal.number + 1))
