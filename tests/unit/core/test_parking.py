"""core/parking.py: jobs of a queue, set aside by value."""

from __future__ import annotations

from random import Random

import pytest

from claimed_worlds import add, exclusive, get
from disque_py.core.filters import Group
from disque_py.core.job import ACTIVE, QUEUED, Job, JobTerms
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.parking import LOOKED_PER_TURN, SEARCHES_MAX, SHOWN_PER_CALL, Parking
from disque_py.core.queue import Queue


def value_of(job):
    return job.body or None


def make_queue(room=1):
    queue = Queue(b"q", 0)
    queue.parking = Parking(queue, value_of, lambda value: room)
    return queue


def make(number, value=b"", priority=None, retry_ms=1000):
    job = Job(b"D-%037d-" % number, JobTerms(b"q", retry_ms, 0, 1), value, 1000 + number, 1 << 40, frozenset())
    if priority is not None:
        job.attributes = JobAttributes(priority, ())
    return job


def push(queue, *jobs):
    for job in jobs:
        job.state = QUEUED
        queue.push(job)


def take(queue):
    job = queue.pop()
    if job is not None:
        job.state = ACTIVE
    return job


def group_of(*jobs):
    """An index's group with these jobs."""
    group = Group((b"kind",), (b"video",))
    for job in jobs:
        group.add(job)
    return group


def leave(queue, job):
    job.state = ACTIVE
    queue.removed(job)
    queue.parking.show_due()


def test_a_value_without_room_holds_back_no_other_value():
    queue = make_queue()
    first, second, other = make(1, b"a"), make(2, b"a"), make(3, b"b")
    push(queue, first, second, other)
    assert [take(queue), take(queue), take(queue)] == [first, other, None]
    assert [queue.length, queue.pending] == [0, 1]


def test_jobs_without_a_value_are_always_offered():
    queue = make_queue()
    jobs = [make(number) for number in range(3)]
    push(queue, *jobs)
    assert [take(queue) for _ in jobs] == jobs


def test_the_best_job_of_a_value_is_offered_whichever_came_first():
    queue = make_queue()
    worse, better = make(1, b"a", priority=5), make(2, b"a", priority=3)
    push(queue, worse, better)
    assert queue.length == 1
    assert take(queue) is better


def test_the_next_job_of_a_value_is_offered_when_there_is_room():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    take(queue)
    assert not queue.parking.set_room(b"a", 0)
    assert take(queue) is None
    assert queue.parking.set_room(b"a", 1)
    assert take(queue) is second


def test_a_value_may_have_room_for_several():
    queue = make_queue(room=2)
    jobs = [make(number, b"a") for number in range(4)]
    push(queue, *jobs)
    assert queue.length == 2
    queue.parking.set_room(b"a", 3)
    assert queue.length == 3


def test_with_less_room_the_last_jobs_go_aside():
    queue = make_queue(room=3)
    jobs = [make(number, b"a") for number in range(3)]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 1)
    assert [queue.length, queue.pending] == [1, 3]
    assert take(queue) is jobs[0]


def test_a_job_that_is_put_back_is_offered_again():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    push(queue, take(queue))
    assert take(queue) is first


def test_after_a_hand_over_the_next_job_of_the_value_is_offered():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    take(queue)
    assert queue.parking.show_due()
    assert take(queue) is second


@pytest.mark.parametrize("number", [0, 1])
def test_a_job_may_leave_in_another_way(number):
    queue = make_queue()
    jobs = [make(1, b"a"), make(2, b"a")]
    push(queue, *jobs)
    leave(queue, jobs[number])
    assert [queue.length, queue.pending] == [1, 1]
    assert take(queue) is jobs[1 - number]
    assert not queue.parking.groups


def test_a_job_that_left_may_come_back_and_wait_aside():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, second)
    leave(queue, second)
    push(queue, first)
    push(queue, second)
    assert not second.is_listed
    assert [take(queue), take(queue)] == [first, None]


def test_pending_jobs_are_listed_in_order_whether_offered_or_aside():
    queue = make_queue()
    jobs = [make(number, b"ab"[number % 2 : number % 2 + 1]) for number in range(6)]
    push(queue, *jobs)
    assert list(queue.oldest()) == jobs
    assert list(queue.newest(4)) == jobs[:1:-1]
    found = [job for each in queue.first_lists(6) for job in each]
    assert sorted(found, key=jobs.index) == jobs


def test_a_job_may_be_set_aside_for_a_second_reason():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first, second)
    job = take(queue)
    job.state = QUEUED
    queue.parking.set_aside(job, b"cap")
    queue.parking.show_due()
    assert take(queue) is second
    assert queue.parking.give_back(b"cap", 5) == 1
    assert take(queue) is first
    assert queue.pending == 0


def test_a_job_given_back_still_needs_room_of_its_own_value():
    queue = make_queue()
    first, second = make(1, b"a"), make(2, b"a")
    push(queue, first)
    job = take(queue)
    job.state = QUEUED
    queue.parking.set_aside(job, b"cap")
    push(queue, second)
    queue.parking.set_room(b"a", 0)
    queue.parking.room_of = lambda value: 0
    queue.parking.give_back(b"cap", 1)
    assert [queue.length, queue.pending] == [0, 2]


def test_at_most_once_jobs_wait_aside_too():
    queue = make_queue()
    first, second = make(1, b"a", retry_ms=0), make(2, b"a", retry_ms=0)
    push(queue, first, second)
    assert [queue.once_length, queue.pending] == [1, 2]
    assert take(queue) is first
    queue.parking.show_due()
    assert take(queue) is second
    assert queue.once_length == 0


def test_very_much_room_is_used_a_part_at_a_time():
    queue = make_queue(room=0)
    push(queue, *(make(number, b"a") for number in range(SHOWN_PER_CALL + 5)))
    queue.parking.set_room(b"a", 1000)
    assert queue.length == SHOWN_PER_CALL
    queue.parking.show_due()
    assert queue.length == SHOWN_PER_CALL + 5


def test_of_certain_jobs_the_first_with_room_is_found_whichever_the_queue_offers():
    queue = make_queue()
    jobs = [make(1, b"a"), make(2, b"b"), make(3, b"a"), make(4, b"b")]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 0)
    assert queue.parking.search(group_of(*jobs[2:]), 0, is_picky=False) is jobs[3]
    assert queue.parking.search(group_of(jobs[2]), 0, is_picky=False) is None


def searched(queue, group, *, is_picky=False):
    """Search until all jobs were looked at. Return the job, and the number of turns."""
    for now_ms in range(1, 100):
        job = queue.parking.search(group, now_ms, is_picky=is_picky)
        if not queue.parking.is_cut(group):
            return job, now_ms
    return None


def many(count=2_500):
    """A queue with many jobs of a value without room. The group has all of them, and one behind them that has room."""
    queue = make_queue()
    jobs = [*(make(number, b"a") for number in range(count)), make(count, b"b")]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 0)
    return queue, jobs, group_of(*jobs)


def test_a_search_behind_very_many_jobs_goes_on_in_the_next_turn():
    queue, jobs, group = many()
    assert searched(queue, group) == (jobs[-1], 3)
    assert searched(queue, group) == (jobs[-1], 1)


def test_all_searches_of_a_turn_look_at_a_bounded_number_of_jobs():
    queue, jobs, group = many(1_500)
    for each in (group, group_of(*jobs)):
        assert queue.parking.search(each, 1, is_picky=False) is None
        assert queue.parking.is_cut(each)
    assert queue.parking.looked == LOOKED_PER_TURN


def test_a_search_that_has_looked_at_all_jobs_looks_at_none_again():
    queue, jobs, _ = many()
    group = group_of(*jobs[:-1])
    assert searched(queue, group) == (None, 3)
    assert queue.parking.search(group, 200, is_picky=False) is None
    assert queue.parking.looked <= 1


@pytest.mark.parametrize("way", ["room", "pushed", "given back"])
def test_a_search_goes_back_to_a_job_that_gets_room(way):
    queue, jobs, group = many()
    first = jobs[5]
    if way == "given back":
        leave(queue, first)
        first.state = QUEUED
        queue.parking.set_aside(first, b"cap")
    assert searched(queue, group) == (jobs[-1], 3)
    if way == "room":
        queue.parking.set_room(b"a", 1)
        first = jobs[0]
    elif way == "pushed":
        first = make(-1)
        push(queue, first)
        group.add(first)
    else:
        queue.parking.value_of = {first: b"b"}.get
        queue.parking.give_back(b"cap", 1)
    assert searched(queue, group)[0] is first


def test_a_search_for_consumers_that_skip_at_most_once_jobs_hides_none_from_others():
    queue = make_queue()
    jobs = [make(number, b"a") for number in range(1_200)]
    once = make(1_200, b"", retry_ms=0)
    late = make(1_201, b"b")
    push(queue, *jobs, once, late)
    queue.parking.set_room(b"a", 0)
    group = group_of(*jobs, once, late)
    assert searched(queue, group, is_picky=True) == (late, 2)
    assert searched(queue, group)[0] is once


def test_a_bounded_number_of_searches_is_noted_and_all_end():
    queue, jobs, _ = many(1_500)
    groups = [group_of(*jobs) for _ in range(SEARCHES_MAX + 5)]
    left = groups
    for now_ms in range(1, 200):
        left = [each for each in left if queue.parking.search(each, now_ms, is_picky=False) is None]
        assert all(queue.parking.is_cut(each) for each in left)
        assert len(queue.parking.searches) <= SEARCHES_MAX
    assert not left


def test_a_search_goes_back_to_an_at_most_once_job_behind_another_one_of_its_value():
    queue = make_queue()
    once = make(1, b"c", retry_ms=0)
    jobs = [make(0, b"c"), once, *(make(number, b"a") for number in range(2, 1_200))]
    push(queue, *jobs)
    queue.parking.set_room(b"a", 0)
    queue.parking.set_room(b"c", 0)
    group = group_of(*jobs[1:])
    assert searched(queue, group) == (None, 2)
    queue.parking.set_room(b"c", 1)
    assert searched(queue, group)[0] is once


def test_a_node_that_leaves_offers_all_jobs():
    queue = make_queue(room=0)
    jobs = [make(number, b"a") for number in range(3)]
    push(queue, *jobs)
    queue.parking.offer(10)
    assert [take(queue) for _ in jobs] == jobs


@pytest.mark.parametrize("seed", range(5))
def test_each_value_always_offers_its_best_jobs_as_far_as_it_has_room(seed):
    rng = Random(seed)
    queue = make_queue(room=2)
    rooms = dict.fromkeys((b"a", b"b", b"c"), 2)
    queue.parking.room_of = rooms.__getitem__
    pending = []
    for number in range(2_000):
        what = rng.random()
        if what < 0.4:
            job = make(number, rng.choice((b"", *rooms)), priority=rng.randrange(100))
            push(queue, job)
            pending.append(job)
        elif what < 0.6:
            job = take(queue)
            queue.parking.show_due()
            if job is not None:
                pending.remove(job)
        elif what < 0.8 and pending:
            leave(queue, pending.pop(rng.randrange(len(pending))))
        else:
            value = rng.choice(tuple(rooms))
            rooms[value] = rng.randrange(3)
            queue.parking.set_room(value, rooms[value])
        assert queue.pending == len(pending)
        pending.sort(key=lambda job: (job.priority, job.ctime))
        assert list(queue.oldest()) == pending
        counts = {}
        for job in pending:
            at = counts[job.body] = counts.get(job.body, 0) + 1
            assert job.is_listed == (not job.body or at <= rooms[job.body])


@pytest.mark.parametrize("end", ["its jobs", "its index"])
def test_a_group_that_is_gone_has_no_search(end):
    """Searches are bounded, and those of such groups would take the room of others."""
    world = exclusive()
    for _ in range(1_200):
        add(world, "a", "ann", "META", "kind", "video", copies=1)
    add(world, "a", "bob", "META", "kind", "video", copies=1)
    assert len(get(world, "a")) == 1
    [other] = get(world, "a", "WHERE", "kind", "video")
    assert other.body == b"work-bob"
    queue = world["a"].queues[b"q"]
    assert queue.parking.searches
    if end == "its index":
        queue.filters.dropped()
    else:
        world.ask("a", "DEBUG", "FLUSHALL")
    assert not queue.parking.searches
