"""persistence/journal.py with windows: blocks are copied to a file's mapped memory. A thread syncs the file."""

from __future__ import annotations

import errno
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from disque_py.simulator.world.disk import InlineDisk
from journal_writer import RECORD, make, read, wait
from persistence.disk import SYNCING, WRITING
from persistence.disk_errors import FINE, NO_ADDS
from persistence.journal import LATE_MS, LEAVING_BYTES_MIN, RETRY_MS, SYNC_BYTES, SYNC_EVERY_MS
from persistence.pages import FRESH_MS, PAGE_BYTES, READY_BYTES_MIN
from persistence.records import GONE, JOINED_BYTES_MAX, file_name

SEGMENT_BYTES = 1 << 20
LARGE = [[GONE, *((b"x" * 40, number) for number in range(40))]]
FIRST = file_name(1, 0)


def windowed(policy="everysec", *, segment_bytes=SEGMENT_BYTES, **more):
    return make(policy, segment_bytes=segment_bytes, **more)


def pass_ms(journal, span_ms):
    """Let time pass while the disk does nothing."""
    journal.now_ms += span_ms
    journal.tick()


def fill(journal, disk, size):
    """Append at least this many bytes. The disk prepares the needed bytes."""
    end = journal.position + size
    while journal.position < end:
        journal.append(LARGE)
        disk.run(WRITING)


def test_a_block_that_fits_into_ready_bytes_is_written_at_once_and_survives_a_kill():
    for policy in ("everysec", "no"):
        journal, disk = windowed(policy)
        position = journal.append(RECORD)
        assert (journal.written, journal.ready_position(), disk.waiting) == (position, position, [])
        disk.folder.kill()
        blocks, recovery = read(disk)
        assert (len(blocks), recovery.torn) == (1, None)


def test_pages_for_a_block_are_waited_for_if_the_disk_is_quick():
    journal, disk = windowed()
    size = READY_BYTES_MIN // 40
    records = [[GONE, *((b"x" * 40, number) for number in range(size))]]
    position = journal.append(records)
    assert journal.ready_position() < position
    journal.await_write()
    assert journal.ready_position() < position
    disk.is_quick = True
    journal.await_write()
    assert journal.ready_position() == position
    assert not journal.level


def test_a_new_file_is_not_waited_for():
    journal, disk = windowed(segment_bytes=1_000)
    disk.is_quick = True
    journal.append(LARGE)
    journal.await_write()
    position = journal.append(RECORD)
    journal.await_write()
    assert journal.ready_position() < position
    disk.run()
    assert journal.ready_position() == position


def test_always_waits_for_the_disk():
    journal, disk = windowed("always")
    position = journal.append(RECORD)
    assert journal.ready_position() < position
    disk.run()
    assert journal.synced == position


def test_a_power_cut_after_a_change_to_always_loses_no_earlier_block():
    """The sync in progress leaves the last page out. So the next write syncs the whole file."""
    journal, disk = windowed()
    fill(journal, disk, LEAVING_BYTES_MIN)
    pass_ms(journal, SYNC_EVERY_MS)
    journal.set_policy("always")
    position = journal.append(RECORD)
    disk.run()
    assert journal.ready_position() == position
    count = len(read(disk)[0])
    for seed in range(8):
        folder = disk.folder.copy(Random(seed))
        folder.cut_power()
        assert len(read(InlineDisk(folder))[0]) == count


def test_the_parts_of_a_large_block_are_one_block():
    for policy in ("always", "everysec", "no"):
        journal, disk = windowed(policy)
        runs = [[GONE, (b"x" * 40, number)] for number in range(3)]
        runs.append([GONE, (b"y" * JOINED_BYTES_MAX, 1)])
        position = journal.append(runs)
        disk.run()
        blocks, _ = read(disk)
        assert [list(map(list, block.runs[-1][1:])) for _, block in blocks] == [[[b"y" * JOINED_BYTES_MAX, 1]]]
        assert blocks[0][1].size == position == journal.written


def test_bytes_that_are_not_ready_are_made_ready_first():
    journal, disk = windowed()
    while not disk.waiting:
        position = journal.append(LARGE)
    disk.folder.trace = []
    while journal.written == position:
        position = journal.append(LARGE)
    assert journal.ready_position() < position
    disk.run()
    assert journal.ready_position() == position
    assert "write" not in [op for op, *_ in disk.folder.trace]


def test_bytes_that_were_ready_long_ago_are_made_ready_again():
    """The system may be writing the bytes to the disk by now."""
    journal, disk = windowed("no")
    pass_ms(journal, FRESH_MS)
    position = journal.append(RECORD)
    assert journal.ready_position() < position
    disk.run()
    assert journal.ready_position() == position


def test_a_sync_leaves_the_page_alone_that_is_being_written():
    journal, disk = windowed()
    fill(journal, disk, LEAVING_BYTES_MIN)
    disk.folder.trace = []
    pass_ms(journal, SYNC_EVERY_MS)
    position = journal.append(RECORD)
    assert (journal.ready_position(), [lane for lane, *_ in disk.waiting]) == (position, [SYNCING])
    disk.run()
    ((start, size),) = [(start, size) for op, _, start, size in disk.folder.trace if op == "sync"]
    assert (start + size) // PAGE_BYTES < (journal._file.header_bytes + position) // PAGE_BYTES
    assert 0 < journal.position - journal.synced < PAGE_BYTES + len(LARGE[0]) * 60
    blocks, _ = read(disk)
    assert journal.synced in {block.position for _, block in blocks}, "the end of a block"


def test_many_bytes_are_synced_before_a_second_is_over():
    """Blocks stay in memory until they are synced."""
    journal, disk = windowed(segment_bytes=1 << 30)
    while journal.written - journal.synced + 2 * LEAVING_BYTES_MIN < SYNC_BYTES:
        fill(journal, disk, LEAVING_BYTES_MIN)
        assert not journal.is_syncing
    fill(journal, disk, 2 * LEAVING_BYTES_MIN)
    assert journal.is_syncing
    disk.run()
    assert journal.position - journal.synced < LEAVING_BYTES_MIN


def test_few_bytes_are_synced_all_at_once_while_the_lane_writes():
    journal, disk = windowed()
    first = journal.append(RECORD)
    pass_ms(journal, SYNC_EVERY_MS)
    second = journal.append(RECORD)
    assert (journal.ready_position(), sorted(lane for lane, *_ in disk.waiting)) == (first, [WRITING, SYNCING])
    disk.run(WRITING)
    assert journal.ready_position() == second
    disk.run(SYNCING)
    assert journal.synced == first
    third = journal.append(RECORD)
    assert journal.ready_position() == third
    assert len(read(disk)[0]) == 3


def test_a_sync_of_blocks_written_by_the_lane_behind_ready_bytes_costs_no_window():
    journal, disk = windowed()
    journal.append(RECORD)
    pass_ms(journal, SYNC_EVERY_MS)
    journal.append([[GONE, *((b"x" * 40, number) for number in range(4_000))]])
    disk.run(WRITING)
    disk.run_one(SYNCING)
    assert journal.written > journal._pages.limit
    pass_ms(journal, SYNC_EVERY_MS)
    disk.run_one(SYNCING)
    assert journal._pages is not None
    disk.run()
    position = journal.append(RECORD)
    assert (journal.ready_position(), disk.waiting) == (position, [])


def test_bytes_left_out_of_a_sync_are_in_time_for_the_next():
    journal, disk = windowed()
    for _ in range(40):
        fill(journal, disk, LEAVING_BYTES_MIN // 4)
        wait(journal, disk, 100)
        assert journal.unsynced_ms() < LATE_MS
    wait(journal, disk, 2 * SYNC_EVERY_MS)
    assert journal.synced == journal.position


def test_a_record_is_unsynced_until_a_sync_has_covered_it():
    journal, disk = windowed()
    assert not journal.has_unsynced
    fill(journal, disk, 100)
    assert journal.has_unsynced
    wait(journal, disk, 3 * SYNC_EVERY_MS)
    assert (journal.has_unsynced, journal.synced) == (False, journal.position)


def test_a_sync_that_is_waited_for_covers_everything():
    journal, disk = windowed()
    fill(journal, disk, LEAVING_BYTES_MIN)
    journal.hurry()
    disk.run()
    assert journal.synced == journal.position


def test_a_closed_segment_has_nothing_behind_its_blocks():
    journal, disk = windowed(segment_bytes=20_000)
    file = journal._file
    while journal.number == 1:
        assert disk.folder.size(FIRST) > file.header_bytes + journal.position
        journal.append(RECORD)
    journal.append(RECORD)
    disk.run()
    (closed,) = journal.files
    assert disk.folder.size(FIRST) == file.header_bytes + closed.end


def test_a_clean_stop_leaves_nothing_behind_the_last_block():
    journal, disk = windowed()
    journal.append(RECORD)
    file = journal._file
    journal.close(lambda error: None, leave_mark=True)
    disk.run()
    assert disk.folder.size(FIRST) == file.header_bytes + journal.position
    assert read(disk)[1].is_clean


def test_without_room_to_make_ready_there_are_still_writes():
    journal, disk = windowed()
    disk.folder.fail("prepare", errno.ENOSPC, times=-1)
    fill(journal, disk, 2 * READY_BYTES_MIN)
    disk.run()
    assert (journal.level, journal.written) == (FINE, journal.position)
    assert sum(block.size for _, block in read(disk)[0]) == journal.position


def test_blocks_copied_and_never_synced_are_written_again_after_a_failure():
    journal, disk = windowed()
    disk.folder.fail("sync", errno.EIO, times=1)
    position = journal.append(RECORD)
    pass_ms(journal, SYNC_EVERY_MS)
    disk.run()
    assert (journal.level, journal.ready_position()) == (NO_ADDS, 0)
    wait(journal, disk, RETRY_MS + SYNC_EVERY_MS + 20)
    assert (journal.level, journal.error, journal.synced) == (FINE, "", position)
    disk.folder.cut_power()
    assert [block.position for _, block in read(disk)[0]] == [0]


def test_a_change_of_the_policy_keeps_all_blocks_in_place():
    journal, disk = windowed()
    for policy in ("always", "everysec", "no", "always", "no"):
        journal.append(LARGE)
        journal.set_policy(policy)
        journal.append(RECORD)
        wait(journal, disk, 1_100)
    assert journal.written == journal.position
    assert sum(block.size for _, block in read(disk)[0]) == journal.position


@given(
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5)), max_size=40),
    seed=st.integers(0, 1_000),
    power=st.booleans(),
)
def test_with_any_disk_and_any_end_a_whole_beginning_is_left(turns, seed, power):
    """Turns append little or much, the disk works in any steps and fails now and then, and the process dies."""
    rng = Random(seed)
    journal, disk = windowed(rng.choice(("everysec", "no")), segment_bytes=rng.choice((3_000, 200_000)))
    for kind, steps, pause in turns:
        if kind:
            journal.append(RECORD if kind == 1 else LARGE * rng.choice((1, 20)))
        if rng.random() < 0.05:
            disk.folder.fail(rng.choice(("prepare", "sync", "write", "create")), errno.EIO, times=1)
        for _ in range(steps):
            disk.run_one()
        pass_ms(journal, (0, 10, 90, 600, 1_100, FRESH_MS)[pause])
    promised = journal.synced if power or journal._is_failed else max(journal.written, journal.synced)
    disk.folder.heal()
    disk.folder.cut_power() if power else disk.folder.kill()
    blocks, recovery = read(disk)
    assert recovery.position >= promised
    at = 0
    for _, block in blocks:
        assert block.position == at
        at += block.size
