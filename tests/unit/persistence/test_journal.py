"""persistence/journal.py: policies, positions, files, and the effects of a bad disk."""

from __future__ import annotations

import errno

import pytest

from journal_writer import RECORD, make, read, wait
from persistence.disk import SYNCING, WRITING
from persistence.disk_errors import FINE, NO_ADDS
from persistence.journal import LATE_MS, REFUSE_MS, RETRY_MS, SYNC_EVERY_MS
from persistence.records import IS_ALWAYS


def test_always_is_ready_when_it_is_on_disk_and_not_when_it_is_written():
    journal, disk = make()
    position = journal.append(RECORD)
    assert journal.ready_position() == 0
    disk.run()
    assert journal.ready_position() == journal.synced == position


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


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_nothing_goes_ahead_of_records_that_are_not_even_written(policy):
    """A killed process loses such records. On a busy machine, the writing thread may wait for long."""
    journal, disk = make(policy, has_windows=False)
    position = journal.append(RECORD)
    for _ in range(LATE_MS // 100):
        journal.now_ms += 100
        journal.tick()
        assert journal.ready_position() < position
    disk.run()
    assert journal.ready_position() == position


def test_under_no_a_disk_that_hangs_refuses_after_a_while():
    journal, disk = make("no", has_windows=False)
    journal.append(RECORD)
    end_ms = journal.now_ms + REFUSE_MS
    while journal.now_ms <= end_ms:
        journal.now_ms = journal.next_ms()
        journal.tick()
    assert journal.level == NO_ADDS
    assert journal.refusal_reason.startswith("the disk is too slow, nothing was written for ")
    disk.run()
    journal.tick()
    assert (journal.level, journal.refusal_reason) == (FINE, "")


def test_under_everysec_nothing_goes_ahead_of_a_disk_that_is_two_seconds_late():
    """So a power cut loses at most two seconds (spec P4). After five seconds, no new promise is made."""
    journal, disk = make("everysec")
    journal.append(RECORD)
    disk.run(WRITING)
    journal.now_ms += LATE_MS + 1
    journal.tick()
    assert (journal.ready_position(), journal.level, journal.delayed_syncs) == (0, FINE, 1)
    journal.now_ms += REFUSE_MS - LATE_MS
    journal.tick()
    assert (journal.level, journal.refusal_reason) == (
        NO_ADDS,
        "the disk is too slow, nothing was synced for 5 seconds",
    )
    disk.run()
    journal.tick()
    assert (journal.level, journal.refusal_reason) == (FINE, "")


def test_after_a_pause_of_the_process_the_disk_gets_some_time():
    """While the process was stopped, it asked the disk for nothing. The records still count as late."""
    journal, disk = make("everysec")
    journal.append(RECORD)
    disk.run(WRITING)
    journal.set_clock(journal.now_ms + 2 * REFUSE_MS, journal.wall_ms)
    journal.tick()
    assert (journal.level, journal.ready_position()) == (FINE, 0)
    end_ms = journal.now_ms + REFUSE_MS - LATE_MS
    while journal.now_ms < end_ms:
        assert journal.level == FINE
        journal.set_clock(journal.now_ms + 100, journal.wall_ms)
        journal.tick()
    assert journal.level == NO_ADDS


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


def test_a_dropped_segment_stays_until_the_record_of_that_is_synced():
    """Otherwise, after a power cut, the journal would name a missing file, without a record that it was dropped."""
    journal, disk = make("everysec", segment_bytes=100)
    for _ in range(3):
        journal.append(RECORD)
        disk.run()
    journal.drop(1)
    disk.run()
    assert journal.written == journal.position > journal.synced
    assert "0000000001.seg" in disk.folder.names()
    journal.hurry()
    disk.run()
    assert "0000000001.seg" not in disk.folder.names()


def test_a_drop_is_recorded_again_while_the_newest_header_names_the_segment():
    """The segment with the first DROPPED record may itself be dropped."""
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


def test_replies_promised_before_a_failure_wait_for_the_recovery():
    """New replies need not wait while the disk fails: `must_wait` says so. Spec J1."""
    journal, disk = make("everysec", has_windows=False)
    disk.folder.fail("write", errno.EIO)
    position = journal.append(RECORD)
    disk.run()
    assert (journal.must_wait(), journal.ready_position()) == (False, 0)
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.must_wait(), journal.ready_position()) == (True, position)


def test_acks_of_a_full_disk_go_to_the_reserved_file():
    """Spec P6."""
    journal, disk = make(reserve_bytes=4096)
    wait(journal, disk, RETRY_MS + 20)
    assert "reserve" in disk.folder.names()
    disk.folder.fail("write create allocate", errno.ENOSPC, nth=1, times=2)  # With zeros and without.
    disk.folder.fail("create allocate", errno.ENOSPC, times=-1)
    position = journal.append(RECORD)
    disk.run()
    assert (journal.level, journal.is_on_reserve, journal.synced) == (NO_ADDS, True, position)
    disk.folder.heal()
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.level, journal.is_on_reserve, "reserve" in disk.folder.names()) == (FINE, False, True)


def test_a_disk_that_hangs_causes_no_busy_loop():
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
    """Leaving `always` takes effect when the journal shows it on disk (spec J2)."""
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


def test_a_file_that_cannot_be_removed_stays_in_the_chain():
    """The records of the ends of its jobs must be kept as long as the file exists."""
    journal, disk = make(segment_bytes=100)
    for _ in range(3):
        journal.append(RECORD)
        disk.run()
    disk.folder.fail("remove", errno.EIO)
    journal.drop(1)
    disk.run()
    assert (journal.has_segment(1), journal.closed_segments()) == (True, [1])


def test_a_segment_exists_before_its_blocks_have_a_file():
    """On a slow disk, the journal may be in the third segment before the first one is written (simulator, seed 34)."""
    journal, disk = make(segment_bytes=100)
    while journal.number < 4:
        journal.append(RECORD)
    assert [journal.has_segment(number) for number in range(1, 6)] == [True] * 4 + [False]
    disk.run()
    assert all(journal.has_segment(number) for number in range(1, journal.number + 1))
