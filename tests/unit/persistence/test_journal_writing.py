"""persistence/journal.py, writing: blocks are written to files, and failed writes are repeated."""

from __future__ import annotations

import errno
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from disque_py.simulator.world.disk_errors import CrashError
from disque_py.simulator.world.folder import SimFolder
from journal_writer import RECORD, make, read, wait
from persistence.disk import READING, WRITING
from persistence.disk_errors import FINE, NO_ACKS, NO_ADDS
from persistence.journal import CLEAN_NAME, RETRY_MS, SYNC_EVERY_MS
from persistence.records import GONE, HEADER_ALIGN, Part, file_name
from persistence.zeros import ZEROS_BYTES_MAX, ZEROS_BYTES_MIN


def test_one_fsync_serves_all_that_gathered_meanwhile():
    journal, disk = make()
    journal.append(RECORD)
    for _ in range(9):
        journal.append(RECORD)
    disk.folder.trace = []
    disk.run()
    assert [op for op, *_ in disk.folder.trace] == ["write", "sync", "write", "sync"]
    assert journal.synced == journal.position


def test_with_always_few_writes_change_the_length_of_the_file():
    """A write that makes the file longer also changes the file system's own records. Its sync takes twice as long."""
    journal, disk = make(segment_bytes=1 << 22)
    name = file_name(1, 0)
    lengths = []
    for _ in range(4_000):
        journal.append(RECORD)
        disk.run()
        lengths.append(disk.folder.size(name))
    assert journal.synced == journal.position == read(disk)[1].position
    changes = sum(before != after for before, after in pairwise(lengths))
    assert 1 <= changes <= 3
    assert lengths[0] >= ZEROS_BYTES_MIN
    assert lengths[-1] < journal.position + 4 * ZEROS_BYTES_MAX
    assert read(disk)[1].torn is None


def test_zeros_do_not_make_a_file_longer_than_a_segment():
    journal, disk = make(segment_bytes=10_000)
    while journal.number == 1:
        journal.append(RECORD)
        disk.run()
        assert disk.folder.size(file_name(1, 0)) <= max(10_000, journal.position) + HEADER_ALIGN
    end = journal.position
    journal.append(RECORD)
    disk.run()
    assert disk.folder.size(file_name(1, 0)) == HEADER_ALIGN + end, "a closed file has no zeros behind its blocks"
    assert read(disk)[1].position == journal.synced == journal.position


def test_a_disk_without_room_for_zeros_takes_blocks_until_it_is_full():
    journal, disk = make(segment_bytes=1 << 20)
    disk.folder.capacity_bytes = disk.folder.used_bytes + 10_000
    while not journal.error:
        journal.append(RECORD)
        disk.run()
    assert 9_000 < journal.synced <= 10_000
    disk.folder.cut_power()
    assert read(disk)[1].position >= journal.synced


def test_with_always_a_write_that_a_power_cut_interrupts_is_as_if_it_had_never_begun():
    """No reply left for it, so the journal is whole, and jobs are as certain as before (docs/journal.md)."""
    lost = whole = 0
    for seed in range(100):
        journal, disk = make(folder=SimFolder(Random(seed)), segment_bytes=1 << 20)
        for _ in range(seed % 7 + 1):
            journal.append(RECORD)
            disk.run()
        safe = journal.ready_position()
        for number in range(seed % 3 + 1):
            journal.append([[GONE, *((b"%d-%d" % (number, item), 1) for item in range(seed * 20))]])
        disk.folder.crash_in(seed % 2)
        with suppress(CrashError):
            disk.run()
        disk.folder.cut_power()
        _, recovery = read(disk)
        assert recovery.position >= safe
        assert recovery.torn is None
        lost += recovery.position == safe
        whole += recovery.position == journal.position
        recovery.repair()
        _, again = read(disk)
        assert (again.position, again.torn) == (recovery.position, None)
    assert lost > 20
    assert whole > 0


def test_a_full_segment_is_synced_before_the_next_begins():
    journal, disk = make("no", segment_bytes=100)
    first = journal.append(RECORD) and journal.append(RECORD)
    disk.run()
    journal.append(RECORD)
    disk.run()
    assert (journal.number, journal.files) == (2, [Part(1, 0, 0, first)])
    assert journal.synced == first
    assert [number for number, _ in read(disk)[0]] == [1, 1, 2]


def test_a_failed_write_is_written_again_into_another_file():
    journal, disk = make("everysec", has_windows=False)
    disk.folder.fail("write", errno.EIO)
    position = journal.append(RECORD)
    disk.run()
    assert (journal.level, journal.error, journal.written) == (NO_ADDS, "Input/output error", 0)
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.level, journal.error, journal.written) == (FINE, "", position)
    assert [block.position for _, block in read(disk)[0]] == [0]


def test_after_a_failed_fsync_nothing_of_it_is_believed():
    """A second fsync that succeeds proves nothing. So all blocks that are not known to be on disk are written again."""
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


def lanes(disk):
    """Return the lanes that have work to do."""
    return [lane for lane, *_ in disk.waiting]


def test_no_sync_begins_beside_the_one_that_ends_the_journal():
    """The system may report a lost page to only one of two syncs. Then the other one would count (spec J1)."""
    journal, disk = make("everysec")
    journal.append(RECORD)
    disk.run(WRITING)
    ended = []
    journal.close(ended.append, leave_mark=True)
    journal.now_ms += SYNC_EVERY_MS + 100
    journal.tick()
    assert lanes(disk) == [WRITING]
    disk.run()
    assert (ended, journal.synced) == ([None], journal.position)


def test_no_sync_begins_beside_the_one_that_saves_the_written_blocks_of_a_full_disk():
    journal, disk = make("everysec", has_windows=False)
    first = journal.append(RECORD)
    disk.run(WRITING)
    disk.folder.fail("write", errno.ENOSPC)
    second = journal.append(RECORD)
    disk.run_one(WRITING)
    journal.now_ms += SYNC_EVERY_MS + 100
    journal.tick()
    assert lanes(disk) == [WRITING]
    disk.run_one()
    assert journal.synced == first
    wait(journal, disk, RETRY_MS + SYNC_EVERY_MS + 100)
    assert (journal.error, journal.synced) == ("", second)


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


def test_after_a_failed_use_of_the_reserved_file_the_next_file_has_another_name():
    """The file may already have its new name. So the next file needs another name."""
    journal, disk = make(reserve_bytes=4096)
    wait(journal, disk, RETRY_MS + 20)
    disk.folder.fail("write", errno.ENOSPC, times=3)  # With zeros, without, and to the reserved file.
    position = journal.append(RECORD)
    disk.run()
    assert journal.level == NO_ACKS
    wait(journal, disk, RETRY_MS + 20)
    assert (journal.level, journal.synced) == (FINE, position)


def before_reserve(seed=1):
    """Return a journal whose next file will be the reserved one, with a header of several sectors."""
    journal, disk = make(folder=SimFolder(Random(seed)), reserve_bytes=64 * 1024, segment_bytes=100)
    wait(journal, disk, RETRY_MS + 20)
    while journal.number < 80:
        journal.append(RECORD)
        disk.run()
    disk.folder.fail("create", errno.ENOSPC)
    return journal, disk


@pytest.mark.parametrize("is_power", [True, False])
def test_a_process_may_die_at_each_step_of_making_a_file_of_the_reserved_one(is_power):
    """A power cut may keep any sectors of a header that is not synced (spec J8)."""
    for seed in range(6):
        for steps in range(12):
            journal, disk = before_reserve(seed)
            safe = journal.append(RECORD) and journal.ready_position()
            disk.folder.crash_in(steps)
            with suppress(CrashError):
                disk.run()
            disk.folder.cut_power() if is_power else disk.folder.kill()
            _, recovery = read(disk)
            assert recovery.position >= safe
            recovery.repair()
            if "reserve" in disk.folder.names():
                assert disk.folder.read("reserve", 0, 1 << 20) == bytes(64 * 1024)
            assert recovery.has_reserve == ("reserve" in disk.folder.names())


@pytest.mark.parametrize("ops", ["write", "rename", "rename remove"])
@pytest.mark.parametrize("is_partial", [True, False])
def test_a_reserved_file_that_could_not_become_the_next_one_is_not_used_with_its_header(ops, is_partial):
    journal, disk = before_reserve()
    for op in ops.split():
        disk.folder.fail(op, errno.EIO, is_partial=is_partial, when=lambda name: name == "reserve")
    position = journal.append(RECORD)
    disk.run()
    assert journal.error
    wait(journal, disk, 3 * RETRY_MS)
    assert (journal.error, journal.synced) == ("", position)
    assert disk.folder.read("reserve", 0, 1 << 20) == bytes(64 * 1024)
    assert read(disk)[1].position == position


def on_reserve(policy):
    """Return a journal on a full disk that writes to its reserved file."""
    journal, disk = make(policy, reserve_bytes=4096, segment_bytes=1 << 20)
    wait(journal, disk, RETRY_MS + 20)
    disk.folder.capacity_bytes = disk.folder.used_bytes
    while not journal.is_on_reserve:
        journal.append(RECORD)
        disk.run()
    return journal, disk


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_reserved_file_that_is_used_up_keeps_its_records_and_gives_its_rest_back(policy):
    """Replies were sent when the records were written, so the records must not depend on room in the next file."""
    journal, disk = on_reserve(policy)
    answered = 0
    while journal.is_on_reserve:
        answered = journal.ready_position()
        journal.append(RECORD)
        disk.run()
    used = journal.files[-1]
    assert (journal.synced, used.end) == (answered, answered)
    assert disk.folder.size(file_name(used.number, used.part)) < 4096
    wait(journal, disk, 3 * RETRY_MS)
    disk.folder.cut_power()
    assert read(disk)[1].position >= answered


def test_a_reserved_file_that_is_used_up_during_a_sync_waits_for_it():
    journal, disk = on_reserve("everysec")
    journal.now_ms += SYNC_EVERY_MS
    journal.tick()
    written = journal.written
    while journal.written == journal.position:
        written = journal.written
        journal.append(RECORD)
        disk.run(WRITING)
    assert (journal.is_on_reserve, journal.written) == (True, written)
    disk.run()
    assert (journal.is_on_reserve, journal.synced) == (False, written)


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


def test_a_record_that_comes_while_the_mark_is_written_moves_it():
    journal, disk = make()
    ends = []
    journal.close(ends.append, leave_mark=True)
    position = journal.append(RECORD)
    disk.run_one()
    assert (ends, journal.ready_position(), CLEAN_NAME in disk.folder.names()) == ([], 0, True)
    disk.run()
    assert (ends, journal.synced, read(disk)[1].is_clean) == ([None], position, True)


def test_a_journal_that_cannot_be_closed_says_why_and_goes_on():
    for operation, has_windows in (("sync", False), ("truncate", True), ("replace", True)):
        journal, disk = make("everysec", has_windows=has_windows)
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


def test_lanes_never_wait_for_each_other():
    """A read or a removal never delays a write."""
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
