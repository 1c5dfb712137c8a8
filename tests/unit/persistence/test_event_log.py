"""persistence/event_log.py: numbers without gaps, positions, syncs, segments, and the end of a log."""

from __future__ import annotations

import errno
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.disk import READING, SYNCING, WRITING
from persistence.event_log import CLOSED_NAME, OPEN_NAME, STALL_MS, EventLog
from persistence.event_reading import open_log, read_piece, segment_of
from persistence.event_records import decode_events, pack_events
from persistence.pages import FRESH_MS, PAGE_BYTES, READY_BYTES_MIN

LOG_ID = "00112233aabbccdd"


def start(
    folder: SimFolder | None = None, *, has_windows: bool = True, **options: Any
) -> tuple[EventLog, InlineDisk, SimFolder]:
    folder = folder if folder is not None else SimFolder(Random(1))
    folder.has_windows = has_windows
    found = open_log(folder, LOG_ID, b"n" * 20)
    disk = InlineDisk(folder)
    log = EventLog(
        disk, found.log_id, b"n" * 20, lambda: None, segments=found.segments, next_seq=found.next_seq, **options
    )
    log.now_ms, log.wall_ms = 1_000_000, 1_700_000_000_000
    log.begin()
    return log, disk, folder


def pass_ms(log: EventLog, span_ms: int) -> None:
    log.now_ms += span_ms
    log.wall_ms += span_ms
    log.tick()


def events_of(log: EventLog, folder: SimFolder) -> list[Any]:
    """Return all events that can be read, in order."""
    found: list[Any] = []
    seq = log.first_seq
    while seq < log.durable_seq:
        segment = segment_of(log.segments, seq)
        piece = read_piece(folder, segment, seq, segment.durable_end)
        found += [event for block in piece.blocks for event in decode_events(block.payload)]
        seq = piece.end_seq
    return found


def test_a_quick_disk_is_waited_for():
    for syncs_each in (False, True):
        log, disk, _ = start(has_windows=not syncs_each, syncs_each=syncs_each)
        disk.run()
        disk.is_quick = True
        log.append([[b"a" * 200_000]])
        assert log.ready_position() < log.position
        log.await_write()
        assert log.ready_position() == log.position
        disk.is_quick = False
        log.append([[b"a" * 2_000_000]])
        log.await_write()
        assert log.ready_position() < log.position


def test_a_position_is_ready_when_it_is_written_and_events_when_they_are_synced():
    log, disk, _ = start()
    log.append([["a"], ["b"]])
    assert log.ready_position() < log.position
    disk.run(WRITING)
    assert (log.ready_position(), log.next_seq, log.durable_seq) == (log.position, 3, 1)
    pass_ms(log, 1_000)
    disk.run(SYNCING)
    assert log.durable_seq == 3


def test_before_there_is_a_file_the_oldest_event_is_the_first_that_can_be_read():
    """Events that wait for the file can't be read yet. EVENTS INFO must not answer with first 2 and next 1."""
    log, _, _ = start()
    log.append([["a"]])
    assert (log.first_seq, log.durable_seq, log.next_seq) == (1, 1, 2)


def test_with_always_a_write_is_synced_before_it_counts():
    log, disk, _ = start(syncs_each=True)
    log.append([["a"]])
    disk.run(WRITING)
    assert (log.ready_position(), log.durable_seq, log.syncs) == (log.position, 2, 1)


def test_with_always_few_writes_change_the_length_of_the_file_and_all_events_are_read():
    log, disk, folder = start(syncs_each=True)
    disk.run()
    lengths = []
    for number in range(2_000):
        log.append([[number, "x" * 40]])
        disk.run()
        lengths.append(folder.size(log.segments[-1].name))
    assert 1 <= sum(before != after for before, after in pairwise(lengths)) <= 3
    assert lengths[-1] > log.segments[-1].end
    folder.cut_power()
    again, disk, _ = start(folder, syncs_each=True)
    disk.run()
    assert again.next_seq == 2_001
    assert [event[0] for event in events_of(again, folder)] == [*range(2_000)]


def test_with_always_a_full_disk_takes_events_without_zeros_behind_them():
    log, disk, folder = start(syncs_each=True)
    disk.run()
    folder.capacity_bytes = folder.used_bytes + 20_000
    while not log.error:
        log.append([["x" * 40]])
        disk.run()
    assert folder.size(log.segments[-1].name) <= folder.capacity_bytes
    assert log.segments[-1].durable_end > 15_000


def test_a_power_cut_after_a_change_to_always_loses_no_earlier_event():
    """The first write with `always` also syncs the events that were put into the window before."""
    log, disk, folder = start()
    disk.run()
    log.append([["a"]])
    log.syncs_each = True
    log.append([["b"]])
    disk.run(WRITING)
    assert log.durable_seq == 3
    for seed in range(8):
        copied = folder.copy(Random(seed))
        copied.cut_power()
        assert open_log(copied, LOG_ID, b"n" * 20).next_seq == 3


def test_a_large_block_in_two_parts_is_read_as_one():
    for syncs_each in (True, False):
        log, disk, folder = start(syncs_each=syncs_each)
        events = [[number, b"x" * 100] for number in range(1000)]
        log.append(events)
        disk.run()
        pass_ms(log, 1_000)
        disk.run()
        assert events_of(log, folder) == events


def test_a_turn_with_very_many_events_makes_several_blocks():
    log, disk, folder = start()
    parts = [[[number] for number in range(first, first + 700)] for first in (0, 700, 1400)]
    log.append_packed([(pack_events(part), 700) for part in parts])
    events = [event for part in parts for event in part]
    disk.run()
    pass_ms(log, 1_000)
    disk.run()
    assert events_of(log, folder) == events


def test_a_block_that_fits_into_ready_bytes_is_written_at_once():
    """The block survives the death of the process without any work of the disk."""
    log, disk, folder = start()
    disk.run()
    log.append([["a"], ["b"]])
    assert (log.ready_position(), disk.waiting) == (log.position, [])
    folder.kill()
    assert open_log(folder, "other", b"n" * 20).next_seq == 3


def test_a_block_without_ready_bytes_waits_until_the_disk_has_prepared_them():
    log, disk, _ = start()
    disk.run()
    log.append([["a", b"x" * READY_BYTES_MIN]])
    assert log.ready_position() < log.position
    log.append([["b"]])
    disk.run(WRITING)
    assert (log.ready_position(), log.next_seq) == (log.position, 3)


def test_as_much_of_the_next_file_is_prepared_as_of_the_last():
    log, disk, _ = start(segment_bytes=4 * READY_BYTES_MIN)
    disk.run()
    while len(log.segments) < 2:
        log.append([["a", b"x" * (READY_BYTES_MIN // 2)]])
        disk.run()
    log.append([["b", b"x" * READY_BYTES_MIN]])
    assert (log.ready_position(), disk.waiting) == (log.position, [])


def test_bytes_that_were_ready_long_ago_are_prepared_again():
    """The system may be writing the bytes to the disk by now."""
    log, disk, _ = start()
    disk.run()
    pass_ms(log, FRESH_MS)
    log.append([["a"]])
    assert log.ready_position() < log.position
    disk.run(WRITING)
    log.append([["b"]])
    assert log.ready_position() == log.position


def test_blocks_during_a_sync_go_to_the_next_page_and_are_found_there():
    log, disk, folder = start()
    disk.run()
    for number in range(3):
        log.append([[number]])
        pass_ms(log, 1_000)
        log.append([[number, "meanwhile"]])
        disk.run()
    pass_ms(log, 1_000)
    disk.run()
    assert log.segments[0].end > 3 * PAGE_BYTES
    expected = [event for number in range(3) for event in ([number], [number, "meanwhile"])]
    assert events_of(log, folder) == expected
    folder.kill()
    assert open_log(folder, "other", b"n" * 20).next_seq == 7
    log.segments[0].marks[1:] = []
    assert events_of(log, folder) == expected


def test_a_quiet_log_has_no_gaps():
    log, disk, _ = start()
    disk.run()
    for number in range(20):
        log.append([[number]])
        pass_ms(log, 1_000)
        disk.run()
    assert log.segments[0].end < PAGE_BYTES


def test_a_log_that_ends_in_order_is_no_longer_than_its_events():
    log, disk, folder = start()
    disk.run()
    log.append([["a"]])
    assert folder.size(log.segments[0].name) > log.segments[0].end
    log.close(lambda: None)
    disk.run()
    assert folder.size(log.segments[0].name) == log.segments[0].end


def test_without_room_to_prepare_there_are_still_writes():
    log, disk, folder = start()
    disk.run()
    folder.fail("prepare", errno=errno.ENOSPC, times=-1)
    log.append([["a", b"x" * READY_BYTES_MIN]])
    log.append([["b"]])
    disk.run()
    assert (log.ready_position(), log.is_closed) == (log.position, False)


def test_blocks_that_come_while_the_disk_works_go_in_one_write():
    log, disk, folder = start(has_windows=False)
    disk.run()
    folder.trace = []
    for number in range(50):
        log.append([[number]])
    disk.run()
    assert [op for op, *_ in folder.trace].count("write") == 2


def test_segments_end_when_they_are_full_and_the_ended_one_is_on_disk():
    log, disk, folder = start(segment_bytes=500)
    for number in range(40):
        log.append([[number, b"x" * 30]])
        disk.run()
    assert len(log.segments) > 3
    assert log.durable_seq == log.segments[-1].first_seq
    pass_ms(log, 1_000)
    disk.run()
    assert events_of(log, folder) == [[number, b"x" * 30] for number in range(40)]


def test_no_reply_waits_for_the_end_of_a_segment_to_be_on_disk():
    log, disk, folder = start(segment_bytes=500)
    for number in range(40):
        log.append([[number, b"x" * 30]])
        disk.run(WRITING)
        if len(log.segments) == 2:
            break
    log.append([["next"]])
    assert (log.ready_position(), log.durable_seq) == (log.position, 1)
    pass_ms(log, 5_000)
    disk.run()
    assert log.durable_seq == log.segments[1].first_seq
    pass_ms(log, 1_000)
    disk.run()
    assert events_of(log, folder)[-1] == ["next"]


def test_a_segment_is_synced_by_one_at_a_time():
    """If two synced it, the system would report an error to only one of them."""
    log, disk, _ = start(segment_bytes=200)
    disk.run()
    while not disk.waiting:
        log.append([["a", b"x" * 30]])
    pass_ms(log, 1_000)
    assert [lane for lane, *_ in disk.waiting] == [WRITING]
    disk.run_one()
    pass_ms(log, 1_000)
    assert [lane for lane, *_ in disk.waiting].count(SYNCING) == 1


def test_a_segment_that_is_on_its_way_to_the_disk_stays():
    log, disk, _ = start(segment_bytes=500, bytes_max=600)
    for number in range(40):
        log.append([[number, b"x" * 60]])
        disk.run(WRITING)
    assert len(log.segments) == 2
    log.trim()
    assert len(log.segments) == 2
    disk.run(SYNCING)
    log.trim()
    assert len(log.segments) == 1


def test_a_segment_whose_end_is_cut_off_stays_until_then():
    """All its blocks are on disk, and the disk is about to cut off the bytes that were prepared behind them."""
    log, disk, _ = start(segment_bytes=500, bytes_max=600)
    log.append([["a", b"x" * 900]])
    disk.run(WRITING)
    pass_ms(log, 1_000)
    disk.run(SYNCING)
    log.append([["b", b"x" * 900]])
    disk.run(WRITING)
    assert [segment.durable_end == segment.end for segment in log.segments] == [True, False]
    log.trim()
    disk.run(READING)  # Removals have a separate thread.
    disk.run()
    assert not log.is_closed
    log.trim()
    assert len(log.segments) == 1


def test_the_oldest_segments_are_removed_when_there_are_too_many_bytes():
    log, disk, folder = start(segment_bytes=500, bytes_max=3_000)
    for number in range(200):
        log.append([[number, b"x" * 30]])
        disk.run()
        pass_ms(log, 100)
        disk.run()
    assert log.size <= 3_500
    names = [name for name in folder.names() if name.endswith(".events")]
    assert names == [segment.name for segment in log.segments]


def test_an_error_closes_the_log_for_good():
    log, disk, folder = start(has_windows=False)
    disk.run()
    folder.fail("write", errno=errno.ENOSPC)
    log.append([["a"]])
    disk.run()
    assert log.is_closed
    assert "space" in log.error
    assert (log.ready_position(), log.must_wait()) == (log.position, False)
    assert OPEN_NAME not in folder.names()
    assert CLOSED_NAME in folder.names()
    log.append([["b"]])
    assert not disk.waiting


def test_the_removal_of_the_mark_needs_no_space():
    """On a full disk the file `open` can still be removed."""
    log, disk, folder = start(has_windows=False)
    disk.run()
    folder.fail("write replace", errno=errno.ENOSPC, times=-1)
    log.append([["a"]])
    disk.run()
    assert OPEN_NAME not in folder.names()
    assert CLOSED_NAME not in folder.names()


def test_a_write_that_takes_too_long_closes_the_log_and_its_late_result_is_ignored():
    log, disk, folder = start(has_windows=False)
    disk.run()
    pass_ms(log, 100)
    log.append([["a"]])
    for _ in range(10):
        pass_ms(log, STALL_MS // 10)
    assert not log.is_closed
    pass_ms(log, 1)
    assert log.is_closed
    disk.run()
    assert log.durable_seq == 1
    assert OPEN_NAME not in folder.names()


def test_a_process_that_stood_still_does_not_blame_the_disk():
    """After SIGSTOP or a sleep of the machine, the time of a write in flight is counted from the next tick."""
    log, disk, _ = start()
    disk.run()
    log.append([["a"]])
    pass_ms(log, 60_000)
    assert not log.is_closed
    disk.run(WRITING)
    assert log.ready_position() == log.position


def test_a_sync_that_takes_long_delays_no_reply():
    log, disk, _ = start()
    log.append([["a"]])
    disk.run()
    pass_ms(log, 1_000)
    log.append([["b"]])
    disk.run(WRITING)
    pass_ms(log, 30_000)
    assert not log.is_closed
    assert log.ready_position() == log.position
    disk.run()
    pass_ms(log, 1_000)
    disk.run()
    assert log.durable_seq == 3


def test_closing_syncs_all_and_says_so():
    log, disk, folder = start()
    closed: list[bool] = []
    log.append([["a"]])
    log.close(lambda: closed.append(True))
    assert closed == []
    disk.run()
    assert (closed, log.is_closed, log.durable_seq) == ([True], True, 2)
    assert open_log(folder, "other", b"n" * 20).next_seq == 2


def test_a_failed_log_closes_at_once():
    log, disk, _ = start()
    disk.run()
    log.fail("why")
    closed: list[bool] = []
    log.close(lambda: closed.append(True))
    assert closed == [True]


@given(
    turns=st.lists(st.integers(0, 5), max_size=30),
    work=st.lists(st.integers(0, 3), max_size=60),
    seed=st.integers(0, 1_000),
    power=st.booleans(),
)
def test_with_any_disk_and_any_end_a_whole_beginning_is_left(turns, work, seed, power):
    """Turns append, the disk works in any steps, and the process dies. The first events are left, in order."""
    size = Random(seed).choice((200, 20_000))
    has_windows = seed % 3 > 0
    always = seed % 4 == 0
    log, disk, folder = start(SimFolder(Random(seed)), has_windows=has_windows, segment_bytes=size, syncs_each=always)
    rng = Random(seed)
    steps = iter(work)
    appended = 0
    for count in turns:
        log.append([[appended + number] for number in range(count)])
        appended += count
        for _ in range(next(steps, 0)):
            disk.run_one()
        pass_ms(log, rng.choice((0, 10, 600)))
    readable, written = log.durable_seq, log.written_seq
    folder.cut_power() if power else folder.kill()
    found = open_log(folder, "new", b"n" * 20)
    if log.is_closed or found.log_id == "new":
        assert log.is_closed or readable == 1
        return
    assert found.next_seq >= (readable if power else written)
    again, disk, folder = start(folder, segment_bytes=size)
    again.append([["last"]])
    disk.run()
    pass_ms(again, 1_000)
    disk.run()
    assert events_of(again, folder) == [*([number] for number in range(found.next_seq - 1)), ["last"]]
