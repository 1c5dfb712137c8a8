"""persistence/event_reading.py: opens the log at a start, and finds blocks by number and by moment."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.simulator.world.folder import SimFolder
from persistence.event_log import MARK_BYTES, OPEN_NAME, Segment
from persistence.event_reading import DamagedEventsError, open_log, read_piece, seek, segment_of
from persistence.event_records import encode_block, encode_header, file_name
from persistence.records import NewerFormatError

LOG_ID = "00112233aabbccdd"
WALL_MS = 1_700_000_000_000


def folder_with(*segments: list[bytes], firsts: tuple[int, ...] = (1,), log_id: str = LOG_ID) -> SimFolder:
    """Return a folder with segments of these blocks."""
    folder = SimFolder(Random(1))
    folder.create(OPEN_NAME, f"{LOG_ID}\n".encode())
    for first, blocks in zip(firsts, segments, strict=True):
        header = encode_header(log_id, first, b"n" * 20, WALL_MS + first)
        folder.create(file_name(first), header + b"".join(blocks))
    return folder


def block(seq: int, count: int = 1, durable: int = 1, size: int = 10) -> bytes:
    return encode_block([[seq + number, b"x" * size] for number in range(count)], seq, durable, WALL_MS + seq)


def test_a_log_is_continued_where_it_ends():
    found = open_log(folder_with([block(1, 3)], [block(4), block(5)], firsts=(1, 4)), "new", b"n" * 20)
    assert (found.log_id, found.next_seq, found.notices) == (LOG_ID, 6, [])
    assert [(segment.first_seq, segment.last_ms) for segment in found.segments] == [(1, WALL_MS + 4), (4, WALL_MS + 5)]


def test_an_empty_folder_begins_a_log():
    folder = SimFolder(Random(1))
    assert open_log(folder, "new", b"n" * 20) == ("new", [], 1, [])
    assert folder.read(OPEN_NAME, 0, 99) == b"new\n"


@pytest.mark.parametrize("cut", range(1, 47))
def test_a_torn_tail_is_cut_off_at_any_byte(cut):
    whole = block(1), block(2)
    folder = folder_with([whole[0], whole[1][:-cut]])
    found = open_log(folder, "new", b"n" * 20)
    assert (found.log_id, found.next_seq) == (LOG_ID, 2)
    assert folder.size(file_name(1)) == found.segments[0].end


def test_damage_in_synced_blocks_ends_the_log():
    broken = bytearray(block(2, durable=1))
    broken[-1] ^= 1
    folder = folder_with([block(1), bytes(broken), block(3, durable=1), block(4, durable=4)])
    found = open_log(folder, "new", b"n" * 20)
    assert (found.log_id, found.next_seq, found.segments) == ("new", 1, [])
    assert "damaged" in found.notices[0]


def test_a_broken_head_in_synced_blocks_is_damage_too():
    broken = bytearray(block(2))
    broken[0] ^= 0x40
    found = open_log(folder_with([block(1), bytes(broken), block(3), block(4, durable=4)]), "new", b"n" * 20)
    assert found.log_id == "new"


def test_a_broken_block_before_others_that_were_not_synced_either_is_a_torn_tail():
    broken = bytearray(block(2))
    broken[-1] ^= 1
    found = open_log(folder_with([block(1), bytes(broken), block(3), block(4)]), "new", b"n" * 20)
    assert (found.log_id, found.next_seq) == (LOG_ID, 2)


def test_nothing_after_an_end_that_a_power_cut_removed_counts():
    """The next segment is already written while the disk still syncs the one before it."""
    folder = folder_with([block(1), block(2)], [block(4), block(5)], firsts=(1, 4))
    found = open_log(folder, "new", b"n" * 20)
    assert (found.log_id, found.next_seq, [segment.first_seq for segment in found.segments]) == (LOG_ID, 3, [1])
    assert folder.names() == [file_name(1), OPEN_NAME]


def test_synced_events_before_two_segments_that_a_power_cut_emptied_can_be_read():
    """Found by seed 9346."""
    folder = folder_with([block(1), block(2)], [], [], firsts=(1, 3, 5))
    found = open_log(folder, "new", b"n" * 20)
    (segment,) = found.segments
    assert (found.next_seq, segment.durable_end) == (3, folder.size(segment.name))
    assert read_piece(folder, segment, 1, segment.durable_end).end_seq == 3


def test_an_end_that_is_missing_and_was_on_disk_is_damage():
    folder = folder_with([block(1), block(2)], [block(4, durable=4)], firsts=(1, 4))
    assert open_log(folder, "new", b"n" * 20).log_id == "new"


def test_ready_bytes_of_the_last_segment_but_one_are_cut_off():
    folder = folder_with([block(1), bytes(9_000)], [block(2)], firsts=(1, 2))
    found = open_log(folder, "new", b"n" * 20)
    assert (found.next_seq, folder.size(file_name(1))) == (3, found.segments[0].end)


def test_without_the_mark_that_it_is_open_a_log_is_not_continued():
    folder = folder_with([block(1)])
    folder.remove(OPEN_NAME)
    folder.create("closed", b"the disk was full\n")
    found = open_log(folder, "new", b"n" * 20)
    assert found.log_id == "new"
    assert "the disk was full" in found.notices[0]
    assert folder.names() == [OPEN_NAME]


def test_segments_of_another_log_and_files_without_a_header_are_removed():
    folder = folder_with([block(1)])
    folder.create(file_name(7), encode_header("f" * 16, 7, b"n" * 20, WALL_MS))
    folder.create(file_name(9), b"nothing")
    assert open_log(folder, "new", b"n" * 20).next_seq == 2
    assert folder.names() == [file_name(1), OPEN_NAME]


def test_a_log_of_another_node_is_not_continued():
    """An operator moved the nodes file away to start a new node. Readers would take the old events for its events."""
    folder = folder_with([block(1)])
    found = open_log(folder, "new", b"m" * 20)
    assert (found.log_id, found.next_seq, found.segments) == ("new", 1, [])
    assert (b"n" * 20).hex() in found.notices[0]
    assert folder.names() == [OPEN_NAME]


def test_a_segment_without_events_is_made_anew_under_its_name():
    folder = folder_with([block(1)], [], firsts=(1, 2))
    found = open_log(folder, "new", b"n" * 20)
    assert (found.next_seq, len(found.segments), file_name(2) in folder.names()) == (2, 1, False)


def test_a_later_format_is_not_touched():
    folder = folder_with([block(1)])
    folder._files[file_name(1)].content[8] = 9
    with pytest.raises(NewerFormatError):
        open_log(folder, "new", b"n" * 20)
    assert file_name(1) in folder.names()


def long_segment() -> tuple[SimFolder, Segment, int]:
    """Return a folder, a segment in it as found at a start, which has no marks, and the segment's end."""
    folder = folder_with([block(seq, 2, size=400) for seq in range(1, 801, 2)])
    segment = Segment(1, WALL_MS, len(encode_header(LOG_ID, 1, b"n" * 20, WALL_MS + 1)))
    return folder, segment, folder.size(file_name(1))


def test_any_number_is_found_and_the_way_is_remembered():
    folder, segment, end = long_segment()
    for seq in (1, 2, 3, 400, 401, 799, 800, 5):
        piece = read_piece(folder, segment, seq, end)
        assert piece.seq <= seq < piece.seq + piece.blocks[0].event_count
        assert piece.end_seq == piece.blocks[-1].seq + piece.blocks[-1].event_count
    assert 3 < len(segment.marks) <= end // MARK_BYTES + 1


def test_a_block_that_is_larger_than_a_piece_is_read_whole():
    folder = folder_with([block(1, size=300_000), block(2)])
    segment = open_log(folder, "new", b"n" * 20).segments[0]
    assert read_piece(folder, segment, 1, segment.end).end_seq >= 2


def test_a_missing_number_is_an_error():
    folder, segment, end = long_segment()
    folder._files[file_name(1)].content[segment.end + 8] ^= 1
    with pytest.raises(DamagedEventsError):
        read_piece(folder, segment, 1, end)
    with pytest.raises(DamagedEventsError):
        read_piece(folder, segment, 700, end)


def test_the_first_event_at_a_time_is_found():
    folder, segment, end = long_segment()
    assert seek(folder, segment, WALL_MS, end) == 1
    assert seek(folder, segment, WALL_MS + 401, end) == 401
    assert seek(folder, segment, WALL_MS + 402, end) == 403
    assert seek(folder, segment, WALL_MS + 5_000, end) is None


def test_the_segment_with_an_event_number_is_found():
    segments = [Segment(first, WALL_MS, 10) for first in (5, 9, 12)]
    assert [segment_of(segments, seq).first_seq for seq in (5, 8, 9, 11, 12, 99)] == [5, 5, 9, 9, 12, 12]
