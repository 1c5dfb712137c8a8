"""core/id_sets.py: sets of job ids in few bytes."""

from __future__ import annotations

import sys
from random import Random

import pytest

from copies import make_id
from disque_py.core.id_sets import ENTRY_BYTES, IdSet, check_entries, entry_of, pack_id, unpack_id
from disque_py.event_format import CANCELED, COMPLETED, ERRORED, EXPIRED

LIVE = 0


def packed(number):
    key = pack_id(make_id(number))
    assert key is not None
    return key


def test_an_id_has_24_bytes_without_its_punctuation():
    assert unpack_id(packed(1)) == make_id(1)
    assert len(packed(1)) == 24
    assert pack_id(b"D-00010203-" + b"!" * 24 + b"-05a1") is None


def test_an_id_counts_once():
    """Spec BT2."""
    ids = IdSet()
    for _ in range(2):
        for number in range(5_000):
            ids.merge(packed(number), LIVE, 1)
    assert (ids.count, ids.counts[LIVE]) == (5_000, 5_000)
    assert ids.status_of(packed(4_999)) == LIVE
    assert ids.status_of(packed(5_000)) is None


def test_a_job_takes_at_most_64_bytes():
    """Spec BT2."""
    for count in (1_000, 10_000):
        ids = IdSet()
        for number in range(count):
            ids.merge(packed(number), LIVE, 1)
        taken = sum(sys.getsizeof(bucket) + 8 for bucket in ids._buckets)
        assert taken <= 64 * count


@pytest.mark.parametrize("seed", range(5))
def test_sets_merge_to_the_same_in_any_order(seed):
    """Spec BT2: the order of events decides about the status."""
    states = [(LIVE, 1), (ERRORED, 4), (LIVE, 5), (ERRORED, 6), (EXPIRED, 2), (CANCELED, 3), (COMPLETED, 2)]
    changes = [(packed(number), *state) for number in range(200) for state in states[: number % 7 + 1]]
    one, other = IdSet(), IdSet()
    for change in changes:
        one.merge(*change)
    Random(seed).shuffle(changes)
    for change in changes * 2:
        other.merge(*change)
    assert (one.digest, one.counts, one.count) == (other.digest, other.counts, other.count)
    assert one.status_of(packed(6)) == COMPLETED
    assert one.status_of(packed(2)) == LIVE


@pytest.mark.parametrize("ended", [1, 2, 3, 200])
def test_sets_that_differ_have_other_digests(ended):
    """Spec BT3: keepers compare digests alone. Jobs that ended alike must not cancel out."""
    one, other = IdSet(), IdSet()
    for number in range(200):
        one.merge(packed(number), LIVE, 1)
        other.merge(packed(number), LIVE, 1)
        if number < ended:
            other.merge(packed(number), COMPLETED, 2)
    assert one.digest != other.digest


def test_the_entries_are_the_set():
    ids, again = IdSet(), IdSet()
    for number in range(500):
        ids.merge(packed(number), number % 3 * 2, number)
    data = b"".join(ids.entries())
    check_entries(data)
    assert len(data) == ids.size == 500 * ENTRY_BYTES
    for at in range(0, len(data), ENTRY_BYTES):
        again.merge(data[at : at + 24], data[at + 24], int.from_bytes(data[at + 25 : at + 29], "little"))
    assert (again.digest, again.counts) == (ids.digest, ids.counts)


@pytest.mark.parametrize("data", [b"x", entry_of(packed(1), 8, 1), entry_of(packed(1), 0, 1)[:-4] + b"\xff" * 4])
def test_entries_that_no_node_sends_are_refused(data):
    with pytest.raises(ValueError, match="batch"):
        check_entries(data)
