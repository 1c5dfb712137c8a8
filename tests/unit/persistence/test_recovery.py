"""persistence/recovery.py: reads records in order up to a torn tail. Other damage is refused, with its place."""

from __future__ import annotations

import errno
from random import Random

import pytest

import journal_files
from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.journal import CLEAN_NAME, Journal
from persistence.records import GONE, HEAD_BYTES, HEADER_ALIGN, NewerFormatError, encode_header
from persistence.recovery import RESTORED_NAME, SECTOR_BYTES, DamagedJournalError, Recovery

NODE = bytes(20)


def written(count=6, *, segment_bytes=200, policy="always", bytes_each=40):
    """Return a folder with a journal of `count` blocks, and the journal."""
    disk = InlineDisk(SimFolder(Random(1)))
    journal = Journal(disk, NODE, policy, lambda: None, segment_bytes=segment_bytes, reserve_bytes=0)
    journal.begin()
    disk.run()
    for number in range(count):
        journal.append([[GONE, (b"%d" % number * bytes_each, 1)]])
        disk.run()
    return disk.folder, journal


def read(folder):
    recovery = Recovery(folder)
    blocks = []
    while not recovery.is_finished:
        blocks += [block for _, block in recovery.step()]
    return blocks, recovery


def rewrite_file(folder, name, data):
    """Replace the content of a file."""
    folder.replace(name, data)


def content(folder, name):
    return folder.read(name, 0, folder.size(name))


def blocks_of(folder, name):
    """Return the content of a file without the zeros behind its last block."""
    return content(folder, name)[: HEADER_ALIGN + sum(block.size for block in read(folder)[0])]


def segments(folder):
    return [name for name in folder.names() if name.endswith(".seg")]


def test_an_empty_folder_is_not_a_journal():
    blocks, recovery = read(SimFolder(Random(1)))
    assert (blocks, recovery.newest, recovery.is_clean, recovery.chain()) == ([], None, False, ())


def test_blocks_come_back_in_order_over_all_files():
    folder, journal = written()
    blocks, recovery = read(folder)
    assert [block.runs[0][1][0][:1] for block in blocks] == [b"%d" % number for number in range(6)]
    assert (recovery.position, recovery.torn) == (journal.position, None)
    assert [part[:3] for part in recovery.chain()] == [part[:3] for part in [*journal.files, journal._file]]


def test_a_block_of_several_pieces_is_put_together():
    folder, _ = written(3, segment_bytes=1 << 30, bytes_each=3_000_000)
    blocks, recovery = read(folder)
    assert [len(block.runs[0][1][0]) for block in blocks] == [3_000_000] * 3
    assert recovery.done_bytes <= recovery.total_bytes + HEADER_ALIGN


def test_the_last_file_may_end_anywhere():
    """It is cut at each byte. Whole blocks are read, the rest is a torn tail, and a repaired journal reads the same."""
    folder, _ = written(4, segment_bytes=1 << 30)
    (name,) = segments(folder)
    data = blocks_of(folder, name)
    ends = [HEADER_ALIGN]
    for block in read(folder)[0]:
        ends.append(ends[-1] + block.size)
    for cut in range(HEADER_ALIGN, len(data)):
        rewrite_file(folder, name, data[:cut])
        blocks, recovery = read(folder)
        assert len(blocks) == sum(end <= cut for end in ends[1:])
        assert (recovery.torn is None) == (cut in ends)
        recovery.repair()
        again, repaired = read(folder)
        assert [block.runs for block in again if block.runs] == [block.runs for block in blocks]
        assert repaired.torn is None


def test_a_last_block_with_wrong_bytes_is_torn_unless_sectors_of_zeros_show_that_its_write_did_not_end():
    folder, _ = written(2, segment_bytes=1 << 30, bytes_each=3_000)
    (name,) = segments(folder)
    whole = content(folder, name)
    blocks = read(folder)[0]
    first, end = HEADER_ALIGN + blocks[0].size, HEADER_ALIGN + blocks[0].size + blocks[1].size
    for at in range(first, end, 211):
        rewrite_file(folder, name, whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        recovery = read(folder)[1]
        assert recovery.torn == (name, first, len(whole) - first)
    for at in range(first - first % SECTOR_BYTES, end, SECTOR_BYTES):
        start, stop = max(at, first), min(at + SECTOR_BYTES, end)
        rewrite_file(folder, name, whole[:start] + bytes(stop - start) + whole[stop:])
        blocks, recovery = read(folder)
        assert (len(blocks), recovery.torn) == (1, None), f"without the sector at {at}"
        assert recovery.unfinished is not None
        assert recovery.unfinished[:2] == (name, first)
    for cut in range(first, end, 211):
        rewrite_file(folder, name, whole[:cut] + bytes(len(whole) - cut))
        blocks, recovery = read(folder)
        assert (len(blocks), recovery.torn) == (1, None), f"written up to {cut}"
    rewrite_file(folder, name, whole[: end - 97])
    assert read(folder)[1].torn == (name, first, end - 97 - first), "the end of the file is missing"


def test_without_always_a_write_that_did_not_end_is_a_torn_tail():
    """Replies have left the node for records that were not on disk yet."""
    folder, _ = written(2, segment_bytes=1 << 30, bytes_each=3_000, policy="everysec")
    name = segments(folder)[-1]
    whole = content(folder, name)
    at = HEADER_ALIGN + read(folder)[0][0].size + 2 * SECTOR_BYTES
    at -= at % SECTOR_BYTES
    rewrite_file(folder, name, whole[:at] + bytes(SECTOR_BYTES) + whole[at + SECTOR_BYTES :])
    assert read(folder)[1].torn is not None


def test_a_torn_journal_does_not_look_whole_once_it_is_cut():
    """The next reader must be just as careful with the at-most-once jobs. Spec J3."""
    folder, _ = written(2, segment_bytes=1 << 30)
    (name,) = segments(folder)
    rewrite_file(folder, name, blocks_of(folder, name)[:-1])
    _, recovery = read(folder)
    recovery.repair()
    assert [block.flags for block in read(folder)[0]] == [1, 0]


def test_zeros_behind_the_last_block_are_a_reserved_file():
    folder, _ = written(2)
    name = segments(folder)[-1]
    rewrite_file(folder, name, content(folder, name) + bytes(5_000))
    blocks, recovery = read(folder)
    assert (len(blocks), recovery.torn) == (2, None)


def test_a_file_that_was_being_made_is_left_over():
    """The header of a file is synced before its first block is written. So a file without a header has no record."""
    folder, _ = written(2)
    for data in (b"", b"DISQ", encode_header(9, 0, 0, [], NODE, 17)[:40], bytes(HEADER_ALIGN)):
        folder.create("0000000009.seg", data)
        blocks, recovery = read(folder)
        assert (len(blocks), recovery.leftovers) == (2, ["0000000009.seg"])
        recovery.repair()
        assert "0000000009.seg" not in folder.names()


def test_no_flipped_bit_in_a_closed_file_goes_unnoticed():
    """Spec Q38."""
    folder, _ = written()
    name = segments(folder)[0]
    data = content(folder, name)
    end = len(data)
    for at in (0, 9, 25, *range(HEADER_ALIGN, end, 3)):
        wrong = bytearray(data)
        wrong[at] ^= 16
        rewrite_file(folder, name, bytes(wrong))
        with pytest.raises((DamagedJournalError, NewerFormatError), match=name):
            read(folder)
    rewrite_file(folder, name, data)
    assert len(read(folder)[0]) == 6


def test_a_closed_file_that_lacks_its_end_is_damage():
    folder, _ = written()
    name = segments(folder)[0]
    data = content(folder, name)
    for cut in range(0, len(data), 7):
        rewrite_file(folder, name, data[:cut])
        with pytest.raises(DamagedJournalError, match="disque-check-journal verify"):
            read(folder)


def test_a_broken_place_that_a_later_block_knows_as_synced_is_damage_and_named():
    """The later block proves that the place was on disk. So it is not a torn tail, in whichever file."""
    folder, _ = written(4, segment_bytes=1 << 30)
    (name,) = segments(folder)
    data = bytearray(content(folder, name))
    data[HEADER_ALIGN + 3 * HEAD_BYTES] ^= 1
    rewrite_file(folder, name, bytes(data))
    with pytest.raises(DamagedJournalError, match=rf"{name}: damaged at byte \d+, and a later block"):
        read(folder)


def test_blocks_behind_a_broken_place_not_known_as_synced_are_a_torn_tail():
    """Sectors reach a disk in any order. Without an fsync, a later block may be there and an earlier one not."""
    folder, _ = written(4, segment_bytes=1 << 30, policy="no")
    (name,) = segments(folder)
    data = bytearray(content(folder, name))
    data[HEADER_ALIGN + HEAD_BYTES + 5] ^= 1
    rewrite_file(folder, name, bytes(data))
    blocks, recovery = read(folder)
    assert (len(blocks), recovery.torn) == (0, (name, HEADER_ALIGN, len(data) - HEADER_ALIGN))


def test_a_missing_segment_is_distinguished_from_one_that_never_existed():
    folder, _ = written()
    folder.remove(segments(folder)[0])
    assert read(folder)[1].missing == {1}


def test_a_newer_format_is_refused_wherever_it_stands():
    folder, _ = written()
    name = segments(folder)[0]
    data = bytearray(content(folder, name))
    data[8] = 99
    rewrite_file(folder, name, bytes(data))
    with pytest.raises(NewerFormatError, match="start the newer version again"):
        Recovery(folder)


def test_another_journals_file_is_refused():
    folder, _ = written()
    rewrite_file(folder, "0000000001.seg", journal_files.header(2, [1, 0, 77, [], NODE, 17]))
    with pytest.raises(DamagedJournalError, match="not the file that the journal means"):
        Recovery(folder)


@pytest.mark.parametrize("version", [1, 2])
def test_journals_of_all_versions_are_read(version):
    folder = SimFolder(Random(1))
    folder.create("0000000001.seg", (journal_files.JOURNALS / f"v{version}.seg").read_bytes())
    blocks, recovery = read(folder)
    assert (len(blocks), recovery.torn) == (2, None)
    assert recovery.newest is not None
    assert (recovery.newest.version, recovery.newest.node) == (version, journal_files.NODE)


def test_the_mark_counts_only_where_the_journal_ends():
    folder, journal = written(2, segment_bytes=1 << 30)
    folder.create(CLEAN_NAME, b"1 0 %d\n" % journal.position)
    assert read(folder)[1].is_clean
    folder.replace(CLEAN_NAME, b"1 0 %d\n" % (journal.position - 1))
    assert not read(folder)[1].is_clean
    folder.replace(CLEAN_NAME, b"")
    assert not read(folder)[1].is_clean


def test_repair_takes_the_mark_away_first():
    folder, journal = written(2, segment_bytes=1 << 30)
    folder.create(CLEAN_NAME, b"1 0 %d\n" % journal.position)
    _, recovery = read(folder)
    folder.trace = []
    recovery.repair()
    assert folder.trace[0][:2] == ("remove", CLEAN_NAME)
    assert not read(folder)[1].is_clean


def test_repair_syncs_the_last_file():
    """The next header will name the file as whole, but its writer may have been killed before the fsync."""
    folder, _ = written(3, segment_bytes=1 << 30, policy="no")
    _, recovery = read(folder)
    recovery.repair()
    for seed in range(5):
        copy = folder.copy(Random(seed))
        copy.cut_power()
        assert len(read(copy)[0]) == 3


def test_a_backup_is_known_by_its_mark():
    """An empty mark applies to any journal. A number is that of the last segment to which the mark applies."""
    folder, _ = written(2, segment_bytes=1 << 30)
    folder.create(RESTORED_NAME, b"")
    assert read(folder)[1].is_restored
    for number, expected in ((1, True), (0, False), (7, True)):
        folder.replace(RESTORED_NAME, b"%d\n" % number)
        assert read(folder)[1].is_restored is expected


def test_bytes_that_the_system_only_believes_to_have_written_are_written_again():
    """The last process got an error from fsync, and died.

    The block is then read from the system's memory, and another fsync succeeds without writing it. So a header must not
    name the block as synced before it is written again (simulator, seed 88).
    """
    folder, _ = written(2, segment_bytes=1 << 30, policy="no")
    name = read(folder)[1].files[-1][0]
    folder.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        folder.sync(name)
    folder.heal()
    folder.kill()
    read(folder)[1].repair()
    for seed in range(8):
        copy = folder.copy(Random(seed))
        copy.cut_power()
        assert len(read(copy)[0]) == 2


def closed(count=6):
    """Return a folder and its journal of several segments, which was closed."""
    folder, journal = written(count)
    disk = journal._disk
    journal.close(lambda _: None, leave_mark=True)
    disk.run()
    assert read(folder)[1].is_clean
    return folder, journal


def test_a_last_file_that_went_after_a_clean_stop_is_missing():
    """No other file names the newest one, and clients got replies for its records."""
    folder, _ = closed()
    name = [name for name in folder.names() if name.endswith(".seg")][-1]
    folder.remove(name)
    with pytest.raises(DamagedJournalError, match=f"{name} is missing: the journal was closed there"):
        read(folder)


def test_all_files_missing_after_a_clean_stop_is_not_a_new_journal():
    folder, _ = closed()
    for name in folder.names():
        if name.endswith(".seg"):
            folder.remove(name)
    with pytest.raises(DamagedJournalError, match="is missing"):
        read(folder)


def test_an_end_that_was_cut_between_two_blocks_after_a_clean_stop_is_torn():
    folder, journal = written(2, segment_bytes=10_000)
    end = len(blocks_of(folder, "0000000001.seg"))
    journal.append([[GONE, (b"x" * 40, 1)]])
    journal.close(lambda _: None, leave_mark=True)
    journal._disk.run()
    cut = folder.size("0000000001.seg") - end
    folder.truncate("0000000001.seg", end)
    assert read(folder)[1].torn == ("0000000001.seg", end, cut)


def test_a_mark_for_an_earlier_file_means_nothing():
    folder, _ = closed()
    folder.replace(CLEAN_NAME, b"1 0 999999\n")
    recovery = read(folder)[1]
    assert (recovery.is_clean, recovery.torn) == (False, None)


def test_an_unreadable_mark_is_ignored():
    folder, _ = closed()
    for text in (b"", b"1 0", b"x y z"):
        folder.replace(CLEAN_NAME, text)
        assert not read(folder)[1].is_clean
