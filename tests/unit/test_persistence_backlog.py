"""persistence/backlog.py: blocks on their way to the disk, and how long they have been on it."""

from __future__ import annotations

from persistence.backlog import Backlog, Waiting


def with_blocks(*numbers: int) -> Backlog:
    """Blocks of ten bytes in these segments, a second apart."""
    backlog = Backlog()
    for index, number in enumerate(numbers):
        backlog.add(Waiting(number, 10 * index, 10 * index + 10, b"%010d" % index), 1_000 * index)
    return backlog


def test_a_batch_has_blocks_of_one_segment_up_to_a_size():
    backlog = with_blocks(1, 1, 1, 2)
    assert len(backlog.take(1, 15, 1_000)) == 2
    assert len(backlog.take(1, 15, 1_000)) == 1
    assert backlog.take(1, 15, 1_000) == []
    assert (backlog.queued_bytes, backlog.kept_bytes) == (10, 30)


def test_no_block_goes_behind_the_end_of_a_file():
    backlog = with_blocks(1, 1, 1)
    assert backlog.take(1, 1_000, 25) == [b"0000000000", b"0000000001"]


def test_what_is_safe_is_kept_no_longer():
    backlog = with_blocks(1, 1, 1)
    backlog.take(1, 1_000, 1_000)
    backlog.safe(20)
    assert (backlog.kept_bytes, backlog.oldest_ms(5_000)) == (10, 3_000)
    backlog.safe(30)
    assert (backlog.kept_bytes, backlog.oldest_ms(5_000), backlog.has_ages) == (0, 0, False)


def test_what_is_not_safe_is_queued_again_before_the_rest():
    backlog = with_blocks(1, 1, 1)
    backlog.take(1, 15, 1_000)
    backlog.give_back()
    assert [block.start for block in backlog.queue] == [0, 10, 20]
    assert (backlog.queued_bytes, backlog.kept_bytes) == (30, 0)


def test_the_age_is_that_of_the_oldest_that_is_unsafe():
    assert with_blocks(1, 1, 1).oldest_ms(5_000) == 5_000


def test_blocks_of_one_moment_are_as_old_as_each_other():
    backlog = Backlog()
    for start in (0, 10):
        backlog.add(Waiting(1, start, start + 10, bytes(10)), 7)
    backlog.forget_ages(10)
    assert backlog.oldest_ms(9) == 2
    backlog.forget_ages(20)
    assert not backlog.has_ages
