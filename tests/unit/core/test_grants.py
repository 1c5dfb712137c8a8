"""core/grants.py: one voter's memory of the claims that it granted."""

from __future__ import annotations

import pytest

from disque_py.core import grants
from disque_py.core.grants import (
    DONE,
    GRANTED,
    HELD,
    NO_ROOM,
    OLD_ATTEMPT,
    OLD_FENCE,
    RENEWS,
    REPLACES,
    Grants,
    is_grant_item,
)

KEY = b"k"


class Voter:
    """A voter's memory whose records are on disk at once."""

    def __init__(self):
        self.grants = Grants()
        self.now_ms = 1_000

    def claim(self, holder, fence, lease_ms=100, attempt=0, keep_ms=0, flags=0, key=KEY):
        outcome = self.grants.claim(key, holder, fence, lease_ms, attempt, keep_ms, flags, self.now_ms)
        self.grants.settle(key, self.now_ms)
        return outcome

    def release(self, holder, fence, done_ms=0, *, gives_back=False):
        return self.grants.release(KEY, holder, fence, done_ms, gives_back=gives_back, now_ms=self.now_ms)


def test_another_holder_waits_until_the_lease_is_over():
    """Spec CL1."""
    voter = Voter()
    assert voter.claim(b"a", 5) == GRANTED
    assert voter.claim(b"b", 6) == HELD
    voter.now_ms += 100
    assert voter.claim(b"b", 6) == HELD  # Milliseconds are cut, so it runs one longer.
    voter.now_ms += 1
    assert voter.claim(b"b", 6) == GRANTED


def test_a_fence_is_granted_once():
    """Spec CL1, CL10."""
    voter = Voter()
    voter.claim(b"a", 5)
    voter.release(b"a", 5)
    assert voter.claim(b"b", 5) == OLD_FENCE
    assert voter.claim(b"b", 4) == OLD_FENCE
    assert voter.claim(b"b", 6) == GRANTED


def test_a_holder_renews_with_the_same_fence_while_the_grant_runs():
    """Spec CL1."""
    voter = Voter()
    voter.claim(b"a", 5)
    voter.now_ms += 90
    assert voter.claim(b"a", 5) == GRANTED
    voter.now_ms += 90
    assert voter.claim(b"b", 6) == HELD
    voter.now_ms += 90
    assert voter.claim(b"a", 5) == OLD_FENCE


def test_a_renewal_never_shortens_a_grant():
    """Spec CL2: one that fails leaves the old lease as it was."""
    voter = Voter()
    voter.claim(b"a", 5, lease_ms=1_000)
    voter.claim(b"a", 5, lease_ms=10)
    voter.claim(b"a", 6, lease_ms=10, flags=REPLACES)
    voter.now_ms += 900
    assert voter.claim(b"b", 7) == HELD


def test_a_holder_replaces_its_grant_only_if_it_says_so():
    voter = Voter()
    voter.claim(b"a", 5)
    assert voter.claim(b"a", 6) == HELD
    assert voter.claim(b"a", 6, flags=REPLACES) == GRANTED
    assert voter.claim(b"b", 7, flags=REPLACES) == HELD


def test_a_release_touches_only_its_own_grant():
    """Spec CL2."""
    voter = Voter()
    voter.claim(b"a", 5)
    assert not voter.release(b"a", 4)
    assert not voter.release(b"b", 5)
    assert voter.claim(b"b", 6) == HELD
    assert voter.release(b"a", 5)
    assert not voter.release(b"a", 5)


def test_a_grant_runs_without_end_until_its_record_is_on_disk():
    """Spec CL3."""
    memory = Grants()
    assert memory.claim(KEY, b"a", 5, 100, 0, 0, 0, 1_000) == GRANTED
    assert memory.claim(KEY, b"b", 6, 100, 0, 0, 0, 1_000_000) == HELD
    memory.settle(KEY, 2_000)
    assert memory.running(KEY, 2_100) is not None
    assert memory.running(KEY, 2_101) is None


def test_attempts_are_counted_and_kept_after_the_lease():
    """Spec CL9."""
    voter = Voter()
    assert voter.claim(b"a", 5, attempt=1, keep_ms=1_000) == GRANTED
    voter.now_ms += 500
    assert voter.claim(b"b", 6, attempt=1, keep_ms=1_000) == OLD_ATTEMPT
    assert voter.claim(b"b", 6, attempt=2, keep_ms=1_000) == GRANTED
    voter.now_ms += 1_200
    assert voter.claim(b"b", 7, attempt=1, keep_ms=1_000) == GRANTED


def test_an_attempt_that_was_given_back_does_not_count():
    voter = Voter()
    voter.claim(b"a", 5, attempt=1, keep_ms=1_000)
    voter.release(b"a", 5, gives_back=True)
    assert voter.claim(b"b", 6, attempt=1, keep_ms=1_000) == GRANTED


def test_work_that_is_done_stays_done_for_its_time():
    """Spec CL9."""
    voter = Voter()
    voter.claim(b"a", 5, attempt=3, keep_ms=1_000)
    assert voter.release(b"a", 5, done_ms=500)
    assert voter.claim(b"b", 6) == DONE
    voter.now_ms += 500
    assert voter.claim(b"b", 6, attempt=1, keep_ms=1_000) == GRANTED


def test_a_second_release_does_not_shorten_what_the_first_one_was_told():
    """Spec CL9."""
    voter = Voter()
    voter.claim(b"a", 5)
    assert voter.release(b"a", 5, done_ms=500)
    assert voter.release(b"a", 5, done_ms=100)
    voter.now_ms += 499
    assert voter.claim(b"b", 6) == DONE
    assert voter.release(b"a", 5, done_ms=300)
    voter.now_ms += 299
    assert voter.claim(b"b", 6) == DONE


def test_the_end_is_remembered_after_the_lease_unless_another_holder_came():
    voter = Voter()
    voter.claim(b"a", 5)
    voter.now_ms += 200
    assert voter.release(b"a", 5, done_ms=500)
    voter.now_ms += 501
    voter.claim(b"b", 6)
    assert not voter.release(b"a", 5, done_ms=500)
    assert not voter.release(b"a", 9, done_ms=500)


def test_a_forgotten_key_leaves_the_floor():
    """Spec CL10."""
    voter = Voter()
    voter.claim(b"a", 5)
    voter.now_ms += grants.IDLE_MS
    assert voter.grants.idle(voter.now_ms) == []
    voter.now_ms += 101
    assert voter.grants.idle(voter.now_ms) == [KEY]
    voter.grants.forget(KEY)
    assert voter.claim(b"b", 5, key=b"other") == OLD_FENCE
    assert voter.claim(b"b", 6) == GRANTED


def test_a_key_of_two_grants_is_closed_to_both_holders():
    """Spec CL5: one of them has a majority elsewhere, and nothing tells which."""
    first, second, merged = Voter(), Voter(), Voter()
    first.claim(b"a", 5, lease_ms=500)
    second.claim(b"b", 6, lease_ms=500)
    for voter in (first, second):
        merged.grants.merge(voter.grants.item(KEY, 1_000), 1_000)
    assert merged.claim(b"a", 5) == HELD
    again = Grants()
    again.put(merged.grants.item(KEY, 1_000), 1_000)
    assert again.claim(KEY, b"a", 5, 100, 0, 0, 0, 1_100) == HELD


def test_a_renewal_makes_no_grant():
    """Spec CL1: a fence that a client invents is worth nothing."""
    voter = Voter()
    assert voter.claim(b"a", 1 << 61, flags=RENEWS) == OLD_FENCE
    assert voter.claim(b"a", 5) == GRANTED
    voter.now_ms += 200
    assert voter.claim(b"a", 5, flags=RENEWS) == OLD_FENCE


def test_a_grant_that_was_renewed_is_not_given_back():
    """Spec CL2."""
    voter = Voter()
    voter.claim(b"a", 5)
    voter.claim(b"a", 5, flags=RENEWS)
    assert not voter.release(b"a", 5, gives_back=True)
    assert voter.claim(b"b", 6) == HELD
    assert voter.release(b"a", 5)


def test_the_end_of_the_work_ends_the_grant_at_a_voter_that_had_not_heard():
    """Spec CL9: in whichever order the two memories are merged."""
    done, stale = Voter(), Voter()
    for voter in (done, stale):
        voter.claim(b"a", 5, lease_ms=5_000)
    done.release(b"a", 5, done_ms=5_000)
    for order in ((done, stale), (stale, done)):
        merged = Grants()
        for voter in order:
            merged.merge(voter.grants.item(KEY, 1_000), 1_000)
        assert merged.claim(KEY, b"a", 5, 100, 0, 0, RENEWS, 1_100) == DONE


def test_copies_are_not_dropped_where_memory_is_full(monkeypatch):
    monkeypatch.setattr(grants, "KEYS_MAX", 0)
    voter, merged = Voter(), Grants()
    voter.grants.put((KEY, b"a", 5, 100, 5, 0, 0, 0, 0, True, False), 1_000)
    merged.merge(voter.grants.item(KEY, 1_000), 1_000)
    assert merged.running(KEY, 1_050) is not None


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(grants, "KEYS_MAX", 2)
    voter = Voter()
    assert [voter.claim(b"a", 5, key=key) for key in (b"1", b"2", b"3")] == [GRANTED, GRANTED, NO_ROOM]


test_memory_is_bounded = pytest.mark.plain(test_memory_is_bounded)


def test_a_file_gives_back_a_grant_with_its_whole_lease():
    """Spec CL3."""
    voter = Voter()
    voter.claim(b"a", 5, attempt=1, keep_ms=1_000)
    voter.grants.records[KEY].until_ms = grants.PENDING_MS
    again = Grants()
    again.put(voter.grants.item(KEY, voter.now_ms + 90), 5_000)
    assert again.running(KEY, 5_100) is not None
    assert again.running(KEY, 5_101) is None
    assert again.claim(KEY, b"b", 5, 1, 0, 0, 0, 9_000) == OLD_FENCE


def test_grants_of_two_holders_both_keep_a_key_from_others():
    """Spec CL5: copies from two voters, of which one saw a claim without a majority."""
    first, second = Voter(), Voter()
    first.claim(b"a", 5, lease_ms=500)
    second.claim(b"b", 6, lease_ms=100)
    for order in ((first, second), (second, first)):
        merged = Grants()
        for voter in order:
            merged.merge(voter.grants.item(KEY, 1_000), 1_000)
        merged.release(KEY, b"b", 6, 0, gives_back=True, now_ms=1_100)
        merged.release(KEY, b"a", 5, 0, gives_back=True, now_ms=1_100)
        assert merged.claim(KEY, b"c", 9, 1, 0, 0, 0, 1_400) == HELD
        assert merged.claim(KEY, b"c", 9, 1, 0, 0, 0, 1_600) == GRANTED


def test_a_merge_keeps_the_highest_fence_and_count():
    voter = Voter()
    voter.claim(b"a", 5, attempt=2, keep_ms=10_000)
    merged = Grants()
    merged.claim(KEY, b"b", 9, 10, 1, 10_000, 0, 1_000)
    merged.settle(KEY, 1_000)
    merged.merge(voter.grants.item(KEY, 1_300), 1_300)
    assert merged.highest(KEY) == 9
    assert merged.records[KEY].attempts_at(1_300) == 2


def test_the_end_of_earlier_work_does_not_end_a_later_grant():
    """Spec CL5: a voter that was down remembers the end longer. It is copied twice, with the later grant between."""
    late, first, second = Voter(), Voter(), Voter()
    late.claim(b"a", 5)
    late.release(b"a", 5, done_ms=50)
    for voter in (first, second):
        voter.claim(b"b", 9, lease_ms=300)
    first.grants.merge(late.grants.item(KEY, 1_000), 1_000)
    second.grants.merge(first.grants.item(KEY, 1_000), 1_000)
    second.now_ms = 1_200
    assert second.claim(b"c", 10) == HELD


@pytest.mark.parametrize("copied_ms", [1_000, 1_200])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_the_end_of_earlier_work_does_not_end_a_grant_that_other_voters_renewed(copied_ms, is_restarted):
    """Spec CL5: at the voter that copies the end, the later grant runs or is over. It goes on at the next voter."""
    late, short, renewed = Voter(), Voter(), Voter()
    late.claim(b"a", 5)
    late.release(b"a", 5, done_ms=500)
    short.claim(b"b", 9, lease_ms=50)
    renewed.claim(b"b", 9, lease_ms=50)
    assert renewed.claim(b"b", 9, lease_ms=3_000, flags=RENEWS) == GRANTED
    short.grants.merge(late.grants.item(KEY, copied_ms), copied_ms)
    if is_restarted:
        short.grants.put(short.grants.item(KEY, 1_200), 1_200)
    renewed.grants.merge(short.grants.item(KEY, 1_200), 1_300)
    renewed.now_ms = 1_900
    assert renewed.claim(b"c", 10) == HELD


@pytest.mark.parametrize("is_first", [True, False])
def test_a_copied_grant_counts_as_an_attempt_after_those_that_another_voter_knows(is_first):
    """Spec CL5, CL9: the first voter did not hear of the attempts of `a`, and `b` has no majority yet."""
    first, second = Voter(), Voter()
    first.claim(b"b", 9, lease_ms=500, attempt=1, keep_ms=10_000)
    second.claim(b"a", 5, attempt=2, keep_ms=10_000)
    second.release(b"a", 5)
    merged = Voter()
    for voter in (first, second) if is_first else (second, first):
        merged.grants.merge(voter.grants.item(KEY, 1_000), 1_000)
    assert merged.claim(b"b", 9, flags=RENEWS) == GRANTED
    record = merged.grants.records[KEY]
    assert (record.attempts, record.before) == (3, 2)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_copied_grant_below_the_highest_fence_is_not_renewed(is_first):
    """Spec CL5, CL10: a majority may have granted the higher fence, and the lower one only this voter."""
    first, second = Voter(), Voter()
    first.claim(b"b", 5, lease_ms=500)
    second.claim(b"a", 9)
    second.release(b"a", 9)
    merged = Voter()
    for voter in (first, second) if is_first else (second, first):
        merged.grants.merge(voter.grants.item(KEY, 1_000), 1_000)
    assert merged.claim(b"b", 5, flags=RENEWS) == HELD
    merged.now_ms = 1_502
    assert merged.claim(b"b", 10) == GRANTED


@pytest.mark.parametrize("is_first", [True, False])
def test_a_grant_that_was_renewed_after_a_failed_end_keeps_others_out(is_first):
    """Spec CL5: one voter heard that the work is done, and the others renewed the grant afterwards."""
    done, renewed, merged = Voter(), Voter(), Voter()
    for voter in (done, renewed):
        voter.claim(b"a", 5, lease_ms=500)
    done.release(b"a", 5, done_ms=200)
    assert renewed.claim(b"a", 5, lease_ms=3_000, flags=RENEWS) == GRANTED
    for voter in (done, renewed) if is_first else (renewed, done):
        merged.grants.merge(voter.grants.item(KEY, 1_000), 1_000)
    assert merged.claim(b"b", 6) == DONE
    merged.now_ms = 3_900
    assert merged.claim(b"b", 6) == HELD
    merged.now_ms = 4_100
    assert merged.claim(b"b", 6) == GRANTED


def test_a_longer_lease_is_copied_while_a_renewal_is_written():
    """Spec CL5: this voter did not hear of the renewal for the longer lease."""
    late, renewed = Voter(), Voter()
    for voter in (late, renewed):
        voter.claim(b"a", 5, lease_ms=500)
    renewed.claim(b"a", 5, lease_ms=3_000, flags=RENEWS)
    late.grants.claim(KEY, b"a", 5, 50, 0, 0, RENEWS, 1_000)
    late.grants.merge(renewed.grants.item(KEY, 1_000), 1_000)
    late.grants.settle(KEY, 1_000)
    late.now_ms = 3_900
    assert late.claim(b"b", 6) == HELD


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_grants_with_one_fence_none_is_renewed(is_first):
    """Spec CL5, CL10: two nodes claimed in one millisecond. Only one of the two grants had a majority."""
    first, second, merged = Voter(), Voter(), Voter()
    first.claim(b"a", 5, lease_ms=500)
    second.claim(b"b", 5, lease_ms=20)
    for voter in (first, second) if is_first else (second, first):
        merged.grants.merge(voter.grants.item(KEY, 1_100), 1_100)
    assert merged.claim(b"a", 5, flags=RENEWS) == HELD
    merged.now_ms = 1_502
    assert merged.claim(b"c", 6) == OLD_FENCE
    assert merged.claim(b"c", 7) == GRANTED


def test_a_copied_end_of_the_last_lease_does_not_hinder_its_renewal():
    """Spec CL5: two voters have the same grant. It is over at the one, and was renewed at the other."""
    merged, over, renewed = Voter(), Voter(), Voter()
    merged.claim(b"a", 5)
    merged.now_ms = 1_200
    over.claim(b"b", 9, lease_ms=50)
    renewed.claim(b"b", 9, lease_ms=3_000)
    for voter in (over, renewed):
        merged.grants.merge(voter.grants.item(KEY, 1_200), 1_200)
    assert merged.claim(b"b", 9, flags=RENEWS) == GRANTED


def test_two_claims_of_an_owner_with_one_fence_count_the_higher_attempt():
    """Spec CL9: two nodes claimed for the same owner in one millisecond."""
    voter = Voter()
    voter.claim(b"a", 5, attempt=1, keep_ms=1_000)
    voter.claim(b"a", 5, attempt=2, keep_ms=1_000)
    assert voter.grants.records[KEY].attempts_at(voter.now_ms) == 2


@pytest.mark.parametrize(
    "item",
    [
        None,
        (KEY, b"a", 5, 100, 5, 0, 0, 0, 0),
        (b"", b"a", 5, 100, 5, 0, 0, 0, 0, True, False),
        (KEY, "a", 5, 100, 5, 0, 0, 0, 0, True, False),
        (KEY, b"a", -1, 100, 5, 0, 0, 0, 0, True, False),
        (KEY, b"a", 5, 1 << 60, 5, 0, 0, 0, 0, True, False),
        (KEY, b"a", 5, 100, 5, 0, 0, 0, 0, 1),
    ],
)
def test_another_voters_grant_is_checked(item):
    assert not is_grant_item(item)


@pytest.mark.plain
def test_keys_and_holders_are_bounded_in_bytes_and_a_forgotten_one_makes_room(monkeypatch):
    """Spec CL1. They are not in `maxmemory`, because a full node has to grant claims."""
    monkeypatch.setattr(grants, "NAME_BYTES_MAX", 100)
    memory = Grants()
    assert memory.claim(b"k" * 40, b"h" * 40, 1, 1_000, 0, 0, 0, 0) == GRANTED
    assert memory.claim(b"o" * 11, b"h" * 10, 1, 1_000, 0, 0, 0, 0) == NO_ROOM
    assert memory.claim(b"o" * 10, b"h" * 10, 1, 1_000, 0, 0, 0, 0) == GRANTED
    memory.settle(b"o" * 10, 0)
    assert memory.claim(b"o" * 10, b"h" * 11, 2, 1_000, 0, 0, 0, 9_000) == NO_ROOM
    assert memory.claim(b"o" * 10, b"h" * 9, 2, 1_000, 0, 0, 0, 9_000) == GRANTED
    memory.put(memory.item(b"k" * 40, 0), 0)
    assert memory.name_bytes == 99
    memory.forget(b"k" * 40)
    assert memory.name_bytes == 19
    memory.clear()
    assert memory.name_bytes == 0


def test_a_memory_with_the_longest_spans_can_be_copied_again_and_again():
    """Spec CL5: a count that is kept after a lease is kept for no longer in each copy."""
    voter = Voter()
    voter.claim(b"a", 5, lease_ms=grants.LONGEST_MS, attempt=1, keep_ms=grants.LONGEST_MS)
    running = voter.grants.item(KEY, voter.now_ms)
    voter.release(b"a", 5, done_ms=grants.LONGEST_MS)
    ended = voter.grants.item(KEY, voter.now_ms)
    for _ in range(4):
        copy = Grants()
        for item in (running, ended, running):
            assert is_grant_item(item)
            copy.merge(item, voter.now_ms)
            ended = copy.item(KEY, voter.now_ms)
    assert is_grant_item(ended)


def test_a_copied_grant_below_the_floor_only_blocks_the_key():
    """Spec CL5, CL10: this voter may have granted the key later, and forgotten it."""
    voter = Voter()
    voter.grants.floor = 7
    voter.grants.merge((KEY, b"a", 5, 100, 5, 0, 0, 0, 0, True, False), voter.now_ms)
    assert voter.claim(b"a", 5, flags=RENEWS) == HELD
    assert voter.claim(b"b", 9) == HELD
    voter.now_ms += 102
    assert voter.claim(b"b", 7) == OLD_FENCE
    assert voter.claim(b"b", 8) == GRANTED


def test_a_copied_grant_above_the_floor_is_renewed():
    """Spec CL5."""
    voter = Voter()
    voter.grants.floor = 4
    voter.grants.merge((KEY, b"a", 5, 100, 5, 0, 0, 0, 0, True, False), voter.now_ms)
    assert voter.claim(b"a", 5, flags=RENEWS) == GRANTED
