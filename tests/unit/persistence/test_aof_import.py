"""persistence/aof_import.py: import of the original's file (spec J6)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_journals import DAY_MS, ME, OTHER, WALL_MS, blob, job_id, loadjob, record
from persistence.aof_import import AofError, AofReader, common_holders, facts_of_blob, parse_blob
from persistence.layouts import IS_DELIVERED, IS_QUEUED, WAS_QUEUED

FILE = loadjob(1) + loadjob(2, queue=b"other", body=b"\r\n*1\r\n") + record(b"DELJOB", job_id(1)) + loadjob(3)


def read(*pieces: bytes) -> AofReader:
    reader = AofReader()
    for piece in pieces:
        reader.feed(piece)
    return reader


def test_a_record_has_the_size_that_the_original_writes():
    """Spec J6: a job has 151 bytes, if its queue and its body have one byte and it has one holder. A DELJOB has 63."""
    assert len(loadjob()) == 151
    assert len(record(b"DELJOB", job_id(1))) == 63


def test_an_acknowledged_job_is_gone():
    reader = read(FILE)
    assert list(reader.jobs) == [job_id(2), job_id(3)]
    assert (reader.record_count, reader.offset, reader.torn_bytes) == (4, len(FILE), 0)


@given(st.lists(st.integers(0, len(FILE)), max_size=5))
def test_pieces_may_end_anywhere(cuts):
    places = [0, *sorted(cuts), len(FILE)]
    reader = read(*(FILE[a:b] for a, b in pairwise(places)))
    assert list(reader.jobs) == [job_id(2), job_id(3)]


def test_a_file_that_ends_in_the_middle_has_a_torn_tail():
    whole = len(loadjob(1))
    for cut in (whole + 1, whole + 20, len(FILE) - 1):
        reader = read(FILE[:cut])
        assert reader.offset + reader.torn_bytes == cut
        assert reader.torn_bytes


@pytest.mark.parametrize(
    "junk",
    [b"PING\r\n", b"*x\r\n", b"*1\r\n$4\r\nPING\r\n", b"*0\r\n", b"*2\r\n$7\r\nLOADJOB\r\n$1\r\nxyz", b"\0" * 40],
)
def test_a_malformed_record_is_named_with_its_place(junk):
    with pytest.raises(AofError, match=f"byte {len(loadjob())}"):
        read(loadjob(), junk)


def test_of_two_records_of_a_job_the_first_counts():
    reader = read(loadjob(1, body=b"x"), loadjob(1, body=b"y"))
    assert [each.body for each in reader.blobs()] == [b"x"]
    reader.feed(record(b"DELJOB", job_id(1)) + loadjob(1, body=b"z"))
    assert [each.body for each in reader.blobs()] == [b"z"]


def test_a_blob_has_all_fields():
    found = parse_blob(blob(1, nacks=1, deliveries=2, delay=3, holders=(ME, OTHER), state=0x21, flags=4))
    assert (found.nacks, found.deliveries, found.delay_s, found.state, found.flags) == (1, 2, 3, 1, 4)
    assert found.holders == (ME, OTHER)


@pytest.mark.parametrize(
    "data", [b"", blob()[:50], blob()[:-1], blob() + b"x", b"\0" + blob()[1:], blob(id=b"x" * 40), blob()[:-2] + b"zz"]
)
def test_a_blob_with_wrong_lengths_is_refused(data):
    with pytest.raises(AofError):
        parse_blob(data)


def known(index: int = 0, **changes):
    return facts_of_blob(parse_blob(blob(1, **changes)), index, WALL_MS)


def test_a_queued_job_stays_queued():
    found = known()
    assert found is not None
    assert found.flags == IS_QUEUED | WAS_QUEUED
    assert (found.expire_at_ms, found.retry_ms) == (WALL_MS + DAY_MS, 300_000)


def test_expired_and_unfinished_jobs_stay_behind():
    assert known(expire=WALL_MS // 1000) is None
    assert known(state=0) is None
    assert known(state=3) is None


def test_a_copy_waits_for_its_retry_and_copies_do_not_all_come_at_once():
    first, later = known(state=1, flags=1), known(20_000, state=1, flags=1)
    assert first is not None
    assert later is not None
    assert first.due_at_ms == WALL_MS + 300_000
    assert later.due_at_ms == WALL_MS + 301_000


def test_a_delay_is_counted_from_the_creation():
    """It is not counted from the import. The original counted it from every start (spec Q22)."""
    early = (WALL_MS - 4000) * 1_000_000
    found = known(state=1, delay=10, ctime=early)
    assert found is not None
    assert found.due_at_ms == WALL_MS + 6000
    over = known(state=1, delay=3, ctime=early)
    assert over is not None
    assert over.due_at_ms == WALL_MS + 300_000
    copy = known(state=1, delay=10, ctime=early, flags=1)
    assert copy is not None
    assert copy.due_at_ms == WALL_MS + 306_000


def test_a_delivered_job_is_known_as_delivered():
    found = known(flags=4, retry=0)
    assert found is not None
    assert found.flags & IS_DELIVERED


def test_the_node_of_an_import_is_a_holder_of_all_jobs():
    def common(*sets):
        return common_holders(read(*(loadjob(n, holders=each) for n, each in enumerate(sets))).holder_sets())

    assert common((ME, OTHER), (ME,), (ME,)) == {ME}
    assert common((ME, OTHER), (OTHER, ME)) == {ME, OTHER}
    assert common((ME,), ()) == common() == set()
