"""persistence/search.py: finds the bases of some jobs in one segment."""

from __future__ import annotations

import errno
from random import Random

import pytest

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.journal import Journal
from persistence.records import GONE, JOB
from persistence.search import PIECE_BYTES, Search


def base(job_id, body):
    return (job_id, b"header", b"q", body, b"", b"state")


def make(*turns, is_written=True):
    """Return a journal of one segment and its folder. Each turn is a block with the given bases."""
    folder = SimFolder(Random(1))
    disk = InlineDisk(folder)
    journal = Journal(disk, bytes(20), "always", lambda: None, reserve_bytes=0)
    journal.begin()
    for bases in turns:
        journal.append([[JOB, *bases], [GONE, [b"a", 1]]])
        if is_written:
            disk.run()
    return journal, folder


def search(journal, folder, *ids):
    """Return all bodies found, and how many pieces were read."""
    work = Search(journal.written_parts(1), set(ids))
    found, steps = [], 0
    while not work.is_over:
        found += work.step(folder)
        steps += 1
    return found, steps


def test_bases_of_the_given_ids_are_found_in_order():
    journal, folder = make([base(b"a", b"1"), base(b"b", b"2")], [base(b"c", b"3")], [base(b"a", b"4")])
    assert search(journal, folder, b"a", b"c", b"x") == ([(b"a", b"1"), (b"c", b"3"), (b"a", b"4")], 1)


def test_a_long_segment_is_read_in_pieces_and_a_long_block_as_a_whole():
    long = b"x" * (2 * PIECE_BYTES)
    journal, folder = make(*[[base(b"%d" % number, b"y" * 300_000)] for number in range(8)], [base(b"long", long)])
    found, steps = search(journal, folder, b"7", b"long")
    assert [(job_id, len(body)) for job_id, body in found] == [(b"7", 300_000), (b"long", 2 * PIECE_BYTES)]
    assert steps > 3


def test_unwritten_blocks_are_not_read():
    journal, folder = make([base(b"a", b"1")], is_written=False)
    assert search(journal, folder, b"a") == ([], 0)


def test_bases_in_several_files_of_a_segment_are_all_found():
    """After an error, a segment continues in another file."""
    journal, folder = make([base(b"a", b"1")])
    folder.fail("write", errno.EIO)
    journal.append([[JOB, base(b"b", b"2")]])
    disk = journal._disk
    disk.run()
    journal.now_ms += 1_000
    journal.tick()
    disk.run()
    assert len(journal.written_parts(1)) == 2
    assert search(journal, folder, b"a", b"b")[0] == [(b"a", b"1"), (b"b", b"2")]


def test_a_damaged_block_ends_it_with_its_place():
    journal, folder = make([base(b"a", b"1" * 100)], [base(b"b", b"2")])
    folder.write("0000000001.seg", 600, [b"\xff"])
    with pytest.raises(OSError, match="damaged at position 0"):
        search(journal, folder, b"b")


def test_a_file_that_was_cut_ends_it_too():
    journal, folder = make([base(b"a", b"1" * 100)], [base(b"b", b"2")])
    folder.truncate("0000000001.seg", 600)
    with pytest.raises(OSError, match="damaged at position 0"):
        search(journal, folder, b"b")
