"""persistence/write_queue.py: blocks on their way to the disk, and the time since they were added."""

from __future__ import annotations

from persistence.write_queue import Waiting, WriteQueue


def with_blocks(*numbers: int) -> WriteQueue:
    """Return a queue with a block of ten bytes for each of these segments. The blocks are added a second apart."""
    write_queue = WriteQueue()
    for index, number in enumerate(numbers):
        write_queue.add(Waiting(number, 10 * index, 10 * index + 10, [b"%010d" % index]), 1_000 * index)
    return write_queue


def test_a_batch_has_blocks_of_one_segment_up_to_a_size():
    write_queue = with_blocks(1, 1, 1, 2)
    assert len(write_queue.take(1, 15, 1_000)) == 2
    assert len(write_queue.take(1, 15, 1_000)) == 1
    assert write_queue.take(1, 15, 1_000) == []
    assert (write_queue.queued_bytes, write_queue.kept_bytes) == (10, 30)


def test_no_block_goes_behind_the_end_of_a_file():
    write_queue = with_blocks(1, 1, 1)
    assert write_queue.take(1, 1_000, 25) == [b"0000000000", b"0000000001"]


def test_safe_blocks_are_kept_no_longer():
    write_queue = with_blocks(1, 1, 1)
    write_queue.take(1, 1_000, 1_000)
    write_queue.on_synced(20)
    assert (write_queue.kept_bytes, write_queue.oldest_ms(5_000)) == (10, 3_000)
    write_queue.on_synced(30)
    assert (write_queue.kept_bytes, write_queue.oldest_ms(5_000), write_queue.has_ages) == (0, 0, False)


def test_unsafe_blocks_are_queued_again_before_the_rest():
    write_queue = with_blocks(1, 1, 1)
    write_queue.take(1, 15, 1_000)
    write_queue.give_back()
    assert [block.start for block in write_queue.queue] == [0, 10, 20]
    assert (write_queue.queued_bytes, write_queue.kept_bytes) == (30, 0)


def test_the_age_is_that_of_the_oldest_that_is_unsafe():
    assert with_blocks(1, 1, 1).oldest_ms(5_000) == 5_000


def test_blocks_of_one_moment_are_as_old_as_each_other():
    write_queue = WriteQueue()
    for start in (0, 10):
        write_queue.add(Waiting(1, start, start + 10, [bytes(10)]), 7)
    write_queue.forget_ages(10)
    assert write_queue.oldest_ms(9) == 2
    write_queue.forget_ages(20)
    assert not write_queue.has_ages
