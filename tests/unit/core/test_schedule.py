"""core/schedule.py: never early, late by no more than a millisecond, and no item forgotten."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import make_broker
from copies import make_job
from disque_py.core.schedule import (
    GRAIN_MS,
    HORIZON_MS,
    LINE_GRAIN_MS,
    SWEEP_MS,
    WALKED_PER_MS,
    Line,
    Schedule,
    Timetable,
)


class Item:
    """Something with a time."""

    def __init__(self, name=""):
        self.name = name
        self.awake_at_ms = 0

    def __repr__(self):
        return f"<Item {self.name}>"


def make_table(now_ms=1000):
    table = Timetable()
    table.now_ms = now_ms
    return table


def due_at(table, now_ms, count=1000):
    table.now_ms = now_ms
    return list(table.due(count))


def test_an_item_is_due_when_its_time_has_come_and_not_before():
    table = make_table()
    item = Item()
    table.set(item, 5000)
    assert due_at(table, 4999) == []
    assert due_at(table, 5000 + GRAIN_MS) == [item]
    assert item.awake_at_ms == 0


def test_items_are_due_at_their_millisecond():
    """This includes items in one bucket that were set long before."""
    table = make_table()
    items = [Item(str(at)) for at in range(40)]
    for at, item in enumerate(items):
        table.set(item, 5000 + at)
    assert [due_at(table, 4999 + at) for at in range(41)] == [[], *[[item] for item in items]]
    assert table.count() == 0


def test_items_wait_for_what_the_clock_may_have_left_out():
    """Spec T6: a clock that rounds down."""
    table = make_table()
    table.coarse_ms = 1
    item = Item()
    table.set(item, 5000)
    assert due_at(table, 5000) == []
    assert table.next_ms() == 5001
    assert due_at(table, 5001) == [item]


def test_next_is_when_the_first_will_be_due():
    table = make_table()
    assert table.next_ms() is None
    late, early = Item(), Item()
    table.set(late, 9000)
    table.set(early, 5000)
    assert 5000 - GRAIN_MS < table.next_ms() <= 5000  # It is far, so this is not exact.
    assert due_at(table, table.next_ms()) == []
    assert table.next_ms() == 5000
    assert due_at(table, 5000) == [early]
    assert 9000 - GRAIN_MS < table.next_ms() <= 9000


def test_setting_again_replaces_the_entry():
    table = make_table()
    item = Item()
    for at_ms in (5000, 9000, 9000, 7000):
        table.set(item, at_ms)
    assert due_at(table, 6000) == []
    assert due_at(table, 7100) == [item]
    assert due_at(table, 20_000) == []


def test_zero_and_cancel_take_the_entry_out():
    table = make_table()
    one, other = Item(), Item()
    table.set(one, 5000)
    table.set(other, 5000)
    table.set(one, 0)
    table.cancel(other)
    table.cancel(other)
    assert (one.awake_at_ms, other.awake_at_ms) == (0, 0)
    assert due_at(table, 9000) == []
    assert table.next_ms() is None


def test_an_item_that_is_overdue_when_set_is_due_next():
    table = make_table(now_ms=5000)
    item = Item()
    table.set(item, 10)
    assert due_at(table, 5000 + GRAIN_MS) == [item]


def test_a_visit_takes_a_bounded_number_and_the_next_goes_on_from_there():
    table = make_table()
    items = [Item(str(number)) for number in range(10)]
    for item in items:
        table.set(item, 5000)
    assert due_at(table, 6000, 4) == items[:4]
    assert due_at(table, 6000, 4) == items[4:8]
    assert table.next_ms() <= 6000
    assert due_at(table, 6000, 4) == items[8:]


def test_an_item_cancelled_by_one_visited_before_it_is_not_visited():
    """A turn may end a client's wait while the clients of its bucket are looked at."""
    table = make_table()
    one, other = Item(), Item()
    table.set(one, 5000)
    table.set(other, 5000)
    table.now_ms = 6000
    visited = []
    for item in table.due(10):
        visited.append(item)
        table.cancel(other)
    assert visited == [one]


def test_an_item_that_is_set_again_at_its_visit_is_not_visited_twice_now():
    """Otherwise a timer that sets itself to `now` would never end."""
    table = make_table()
    item = Item()
    table.set(item, 5000)
    table.now_ms = 6000
    count = 0
    for each in table.due(1000):
        count += 1
        table.set(each, table.now_ms)
    assert count == 1
    assert due_at(table, 6000 + GRAIN_MS) == [item]


def test_clear_forgets_all_even_in_the_middle_of_a_visit():
    table = make_table()
    for _ in range(5):
        table.set(Item(), 5000)
    due_at(table, 6000, 2)
    table.clear()
    assert due_at(table, 9000) == []
    assert table.next_ms() is None


def test_items_of_one_moment_come_in_the_order_they_were_set():
    """Two runs of one seed must do the same things in the same order."""
    table = make_table()
    items = [Item(str(number)) for number in range(50)]
    for item in items:
        table.set(item, 5000)
    assert due_at(table, 6000) == items


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_timetable_against_a_list_of_times(seed):
    """Sets, changes, cancellations and partial visits, at any moments."""
    rng = Random(seed)
    table = make_table(now_ms=rng.randrange(1, 10_000))
    items = [Item(str(number)) for number in range(12)]
    wanted = {}
    for _ in range(200):
        item = rng.choice(items)
        deed = rng.random()
        if deed < 0.5:
            at_ms = table.now_ms + rng.randrange(-50, 300)
            table.set(item, at_ms)
            if wanted.get(item) != at_ms:  # The same moment again changes nothing, also when it is past.
                wanted[item] = max(at_ms, table.now_ms + 1)
        elif deed < 0.6:
            table.cancel(item)
            wanted.pop(item, None)
        else:
            table.now_ms += rng.choice((0, 1, 7, 40, 200))
            for found in table.due(rng.choice((1, 3, 100))):
                assert wanted.pop(found) <= table.now_ms
            next_ms = table.next_ms()
            assert (next_ms is None) == (not wanted)
            assert not wanted or next_ms <= min(wanted.values())
        assert {each: each.awake_at_ms for each in items if each.awake_at_ms} == wanted
    table.now_ms += 10_000
    assert set(table.due(1000)) == set(wanted)


def make_schedule(now_ms=1_000_000):
    schedule = Schedule()
    schedule.begin(now_ms)
    return schedule


def test_beyond_the_horizon_a_job_has_no_timer():
    """The sweep finds it in time (timers.py)."""
    schedule = make_schedule()
    job = make_job(make_broker())
    schedule.set(job, 1_000_000 + HORIZON_MS + 1)
    assert job.awake_at_ms == 0
    schedule.set(job, 1_000_000 + HORIZON_MS)
    assert job.awake_at_ms == 1_000_000 + HORIZON_MS
    schedule.set(job, 1_000_000 + HORIZON_MS + 1)
    assert job.awake_at_ms == 0
    assert schedule.next_ms() is None


def test_two_sweeps_fit_into_the_horizon():
    """A job looked at just before it comes into reach is looked at again before it is due."""
    assert 2 * SWEEP_MS < HORIZON_MS


def test_tasks_are_called_at_their_moment_in_order():
    schedule = make_schedule()
    called = []
    schedule.call_at(1_000_200, lambda: called.append("second"))
    schedule.call_at(1_000_100, lambda: called.append("first"))
    schedule.call_at(1_000_200, lambda: called.append("third"))
    assert schedule.next_ms() == 1_000_100
    assert list(schedule.due_tasks(10)) == []
    schedule.begin(1_000_200)
    for task in schedule.due_tasks(2):
        task()
    assert called == ["first", "second"]
    assert schedule.next_ms() == 1_000_200
    for task in schedule.due_tasks(2):
        task()
    assert called == ["first", "second", "third"]
    assert schedule.next_ms() is None


def test_next_is_the_earlier_of_jobs_and_tasks():
    schedule = make_schedule()
    job = make_job(make_broker())
    schedule.set(job, 1_000_500)
    schedule.call_at(1_000_300, lambda: None)
    assert schedule.next_ms() == 1_000_300
    schedule.cancel(job)
    schedule.set(job, 1_000_100)
    assert 1_000_100 <= schedule.next_ms() <= 1_000_100 + GRAIN_MS


def test_tasks_survive_when_jobs_are_cleared():
    """A flush forgets jobs; other tasks stay."""
    schedule = make_schedule()
    schedule.call_at(1_000_100, lambda: None)
    schedule.clear()
    assert schedule.next_ms() == 1_000_100


def test_entries_and_tasks_are_counted():
    schedule = make_schedule()
    broker = make_broker()
    for at in range(3):
        schedule.set(make_job(broker), 1_000_100 + 500 * at)
    schedule.call_at(1_000_100, lambda: None)
    assert (schedule.count(), schedule.task_count) == (3, 1)


# -- line ---------------------------------------------------------------------------------------------


def test_an_entry_of_a_line_is_due_after_its_span_and_not_before():
    line = Line(1000)
    line.add(b"a", 5000)
    assert line.due(5999, 10) == []
    assert line.due(6000 + LINE_GRAIN_MS, 10) == [b"a"]
    assert (line.due(9000, 10), bool(line)) == ([], False)


def test_an_entry_that_came_later_is_due_later():
    line = Line(1000)
    for now_ms in (5000, 5001, 7000):
        line.add(b"%d" % now_ms, now_ms)
    assert sorted(line.due(6001 + LINE_GRAIN_MS, 10)) == [b"5000", b"5001"]
    assert line
    assert line.due(8000 + LINE_GRAIN_MS, 10) == [b"7000"]


def test_the_ids_of_a_line_are_those_that_are_not_taken():
    line = Line(1000)
    for now_ms in (5000, 7000, 9000):
        line.add(b"%d" % now_ms, now_ms)
    line.due(6000 + LINE_GRAIN_MS, 10)
    assert list(line.ids()) == [b"7000", b"9000"]


def test_a_long_line_is_taken_a_part_at_a_time():
    line = Line(1000)
    ids = [b"%d" % number for number in range(10)]
    for job_id in ids:
        line.add(job_id, 5000)
    taken = [line.due(9000, 4) for _ in range(4)]
    assert [len(part) for part in taken] == [4, 4, 2, 0]
    assert sorted(job_id for part in taken for job_id in part) == ids


def test_an_entry_that_comes_after_the_line_was_empty_is_not_lost():
    """It comes at the same moment as the entries before, whose part of the line is gone."""
    line = Line(10)
    line.add(b"a", 5000)
    line.due(6000, 10)
    line.add(b"b", 5000)
    assert line.due(6000, 10) == [b"b"]
    line.add(b"c", 5000)
    line.clear()
    line.add(b"d", 5000)
    assert line.due(6000, 10) == [b"d"]


def parts_of(name, done, count):
    for _ in range(count):
        done.append(name)
        yield


def test_walks_take_turns_and_share_a_budget():
    schedule = Schedule()
    done = []
    for name in "abc":
        schedule.walk(parts_of(name, done, 4))
    counts = []
    for now_ms in range(1, 20):
        schedule.now_ms = now_ms
        before = len(done)
        for task in schedule.due_tasks(100):
            task()
        counts.append(len(done) - before)
    assert "".join(done) == "abc" * 4
    assert max(counts) == WALKED_PER_MS
    assert schedule.task_count == 0
