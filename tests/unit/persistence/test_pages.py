"""persistence/pages.py: the loop writes only to bytes that were prepared recently and are not being synced."""

from __future__ import annotations

from persistence.pages import FRESH_MS, PAGE_BYTES, READY_BYTES_MAX, READY_BYTES_MIN, Pages, behind_gap

SIZE = 4 * 1024 * 1024


class Memory:
    """A window that is never written to."""

    size = SIZE

    def put(self, offset: int, data: bytes) -> None:
        """Not called."""


def pages(at: int = 100, limit: int = READY_BYTES_MIN) -> Pages:
    return Pages(Memory(), at, limit, 1_000)


def test_there_is_room_up_to_the_limit_for_as_long_as_it_is_fresh():
    made = pages()
    assert made.has_room(100, READY_BYTES_MIN - 100, 1_000)
    assert not made.has_room(100, READY_BYTES_MIN - 99, 1_000)
    assert not made.has_room(100, 1, 1_000 + FRESH_MS)


def test_more_is_prepared_before_it_is_needed_at_least_for_waiting_blocks():
    made = pages()
    assert not made.is_short(100)
    assert made.is_short(READY_BYTES_MIN // 2 + 1)
    start, end = made.to_prepare(40_000, 200_000, 1_000)
    assert (start, end % PAGE_BYTES) == (READY_BYTES_MIN, 0)
    made.prepared(40_000, start, end, 1_001)
    assert made.has_room(40_000, 200_000, 1_001)
    assert made.wanted == 2 * READY_BYTES_MIN


def test_stale_bytes_are_prepared_again_from_where_writing_goes_on():
    made = pages()
    start, end = made.to_prepare(5_000, 10, 1_000 + FRESH_MS)
    assert (start, end >= READY_BYTES_MIN) == (PAGE_BYTES, True)
    made.prepared(5_000, start, end, 1_000 + FRESH_MS)
    assert made.has_room(5_000, 10, 1_000 + FRESH_MS)


def test_a_sync_gets_the_page_that_is_being_written_and_gives_it_back():
    made = pages()
    at, (start, end) = made.leave(5_000)
    assert (at, start, end) == (2 * PAGE_BYTES, PAGE_BYTES, READY_BYTES_MIN)
    assert made.come_back(at, 5_000, 2_000) == 5_000


def test_bytes_written_during_a_sync_stay_where_they_are():
    made = pages()
    at, _ = made.leave(5_000)
    assert made.come_back(at + 10, at + 10, 2_000) == at + 10


def test_a_whole_page_needs_no_gap():
    assert pages().leave(PAGE_BYTES)[0] == PAGE_BYTES


def test_a_gap_has_the_four_bytes_that_show_it():
    offsets = (0, 1, 4092, 4093, 4095, 4096)
    assert [behind_gap(offset) for offset in offsets] == [4096, 4096, 4096, 8192, 8192, 8192]


def test_as_much_is_prepared_as_two_seconds_take():
    made = pages(limit=SIZE)
    made.leave(500_000)
    assert made.wanted == 2 * (500_000 - 100)
    made.leave(SIZE)
    assert made.wanted == READY_BYTES_MAX
    made.leave(SIZE + 10)
    assert made.wanted == READY_BYTES_MIN


def test_nothing_is_prepared_behind_the_window():
    made = pages(limit=SIZE - PAGE_BYTES)
    assert made.to_prepare(SIZE - 100, 10, 1_000) == (SIZE - PAGE_BYTES, SIZE)
    made.prepared(SIZE - 100, SIZE - PAGE_BYTES, SIZE, 1_000)
    assert not made.is_short(SIZE - 100)


def test_a_sync_that_is_passed_by_takes_away_the_page_of_the_next_byte_at_most():
    made = pages(limit=READY_BYTES_MIN)
    assert made.pass_by(PAGE_BYTES + 10) == (PAGE_BYTES, READY_BYTES_MIN)
    assert made.has_room(PAGE_BYTES + 10, 100, 1_000), "the next byte stays"


def test_bytes_behind_all_that_is_ready_are_not_made_ready_again():
    made = pages(limit=READY_BYTES_MIN)
    assert made.pass_by(3 * READY_BYTES_MIN + 10) == (3 * READY_BYTES_MIN, 3 * READY_BYTES_MIN)
