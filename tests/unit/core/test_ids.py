"""core/ids.py: making ids of jobs, and reading the ids of other nodes."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.core.ids import ID_BYTES, IDS_PER_DRAW, IdSource, is_retried_id, is_valid_id, ttl_minutes, ttl_suffix

NODE = b"0123456789abcdef" * 2 + b"01234567"


def make_source(seed=1):
    return IdSource(NODE, Random(seed))


def test_an_id_has_the_layout_of_the_specification():
    """Spec F4."""
    job_id = make_source().next(86_400_000, True)
    assert len(job_id) == ID_BYTES
    assert (job_id[:11], job_id[35:]) == (b"D-01234567-", b"-05a1")
    assert is_valid_id(job_id)


@pytest.mark.parametrize(
    ("ttl_s", "is_retried", "field"),
    [
        (86_400, True, b"-05a1"),
        (86_400, False, b"-05a0"),
        (59, True, b"-0001"),
        (59, False, b"-0000"),
        (60, False, b"-0000"),
        (120, True, b"-0003"),
        (65_535 * 60, True, b"-ffff"),
        (10**9, True, b"-ffff"),
        (10**9, False, b"-fffe"),
    ],
)
def test_the_last_field_is_the_ttl_in_minutes_odd_if_the_job_is_retried(ttl_s, is_retried, field):
    assert ttl_suffix(ttl_s * 1000, is_retried) == field


def test_ids_are_never_the_same():
    """This includes ids from different random draws."""
    source = make_source()
    ids = {source.next(60_000, True) for _ in range(3 * IDS_PER_DRAW)}
    assert len(ids) == 3 * IDS_PER_DRAW


def test_the_same_chance_makes_the_same_ids():
    one, other = make_source(), make_source()
    assert [one.next(1000, True) for _ in range(5)] == [other.next(1000, True) for _ in range(5)]
    assert make_source(2).next(1000, True) != make_source().next(1000, True)


def test_ids_come_from_the_generator_that_was_given_last():
    """Spec US6: a server gives one that can't be predicted."""
    source = make_source(1)
    first = source.next(60_000, True)
    source.draw_from(Random(2))
    assert source.next(60_000, True) == make_source(2).next(60_000, True) != first


def test_ttl_and_retry_may_change_from_one_id_to_the_next():
    source = make_source()
    spans = [(60_000, True), (60_000, False), (600_000, False), (60_000, True)]
    assert [source.next(*span)[35:] for span in spans] == [b"-0001", b"-0000", b"-000a", b"-0001"]


def test_a_renamed_node_signs_with_its_new_name_at_once():
    """After CLUSTER RESET HARD no drawn id may have the old name."""
    source = make_source()
    source.next(60_000, True)
    source.rename(b"fedcba98" + NODE[8:])
    assert source.next(60_000, True)[:11] == b"D-fedcba98-"


@pytest.mark.parametrize(
    "word",
    [b"", b"D-", b"D-01234567-" + b"x" * 24 + b"-05a", b"E-01234567-" + b"x" * 24 + b"-05a1",
     b"D-01234567x" + b"x" * 24 + b"-05a1", b"D-01234567-" + b"x" * 24 + b"x05a1",
     b"D-01234567-" + b"x" * 24 + b"-05a1\n"],
)  # fmt: skip
def test_an_id_that_is_not_laid_out_like_one_is_refused(word):
    assert not is_valid_id(word)


def test_nothing_but_length_and_the_four_fixed_characters_is_checked():
    assert is_valid_id(b"D-\0\xff {}!\n\r-" + b"\0" * 24 + b"-zzzz")


@pytest.mark.parametrize(
    ("field", "minutes"), [(b"05a1", 0x5A1), (b"05A1", 0x5A1), (b"FFFF", 65_535), (b"zz10", 0x10), (b"g0g1", 1)]
)
def test_a_reader_takes_upper_case_and_counts_other_characters_as_zero(field, minutes):
    job_id = b"D-01234567-" + b"x" * 24 + b"-" + field
    assert ttl_minutes(job_id) == minutes
    assert is_retried_id(job_id) == bool(minutes & 1)
