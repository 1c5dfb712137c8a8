"""core/priority_queue.py: jobs ordered by (priority, creation time, id), with any mix of priorities."""

from __future__ import annotations

from bisect import insort
from itertools import pairwise
from random import Random

import pytest

from disque_py.core import priority_queue
from disque_py.core.job import QUEUED, Job, JobTerms
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.priority_queue import PART_MAX, PriorityQueue, key_of

MS = 1_000_000


def make(number, *, ctime_ms=None, priority=None):
    job = Job(b"D-%037d-" % number, JobTerms(b"q", 30_000, 0, 1), b"", (ctime_ms or number) * MS, 1 << 40, frozenset())
    job.state = QUEUED
    if priority is not None:
        job.attributes = JobAttributes(priority, ())
    return job


def queue_of(*jobs):
    queue = PriorityQueue()
    for job in jobs:
        if job.attributes is None:
            queue.tail.append(job)
        else:
            queue.push_aside(job)
    return queue


def test_a_job_without_priority_has_its_milliseconds_as_priority():
    """Deadlines in Unix milliseconds and plain jobs therefore have one order."""
    jobs = [make(100), make(200), make(1, ctime_ms=300, priority=150)]
    assert list(queue_of(*jobs).jobs()) == [jobs[0], jobs[2], jobs[1]]
    assert key_of(jobs[1]) == (200, 200 * MS, jobs[1].id)


def test_equal_priorities_are_served_in_order_of_creation():
    """Spec F1."""
    jobs = [make(3, priority=7), make(1, priority=7), make(2, priority=7)]
    assert list(queue_of(*jobs).jobs()) == [jobs[1], jobs[2], jobs[0]]


def test_the_first_key_is_of_run_or_aside_whichever_is_smaller():
    assert PriorityQueue().first_key() is None
    assert queue_of(make(5)).first_key() == key_of(make(5))
    assert queue_of(make(5), make(6, priority=-1)).first_key()[0] == -1


def test_the_smallest_is_taken_from_either():
    queue = queue_of(make(5), make(9, priority=2), make(8, priority=7))
    queue.next_chunk()
    assert [queue.smallest().priority for _ in range(3)] == [2, 5, 7]
    assert not queue.parts


@pytest.mark.parametrize("count", [1, 2 * PART_MAX])
def test_a_job_is_removed_though_former_copies_of_it_left_dead_entries(count):
    """A node may forget a job and get a copy again. The entries have one key."""
    former = [make(5, priority=1) for _ in range(count)]
    job = make(5, priority=1)
    queue = queue_of(make(4, priority=1), *former, job, make(6, priority=1))
    assert queue.remove(job)
    assert not queue.remove(job)
    assert all(queue.remove(each) for each in former)
    assert [each.id for each in queue.jobs()] == [make(4).id, make(6).id]


def test_the_key_at_a_position_of_the_run_or_aside_is_known():
    assert PriorityQueue().key_at(0) is None
    assert queue_of(*map(make, range(1, 11))).key_at(4) == (5, 5 * MS)
    aside = queue_of(*(make(number, priority=number) for number in Random(1).sample(range(10_000), 10_000)))
    assert [aside.key_at(at)[0] for at in (0, 100, 5_000, 9_999)] == [0, 100, 5_000, 9_999]
    assert aside.key_at(10_000) is None


def test_parts_are_short_whatever_the_order():
    """A push then moves few entries."""
    queue = queue_of(*(make(number, priority=number % 97) for number in range(10_000)))
    assert max(map(len, queue.parts)) <= PART_MAX
    assert len(queue.parts) < 20
    rising = queue_of(*(make(number, priority=number) for number in range(10_000)))
    assert len(rising.parts) == -(-10_000 // PART_MAX)


def test_a_job_that_comes_back_to_the_front_takes_the_place_of_a_taken_one():
    jobs = [make(number, priority=number) for number in range(5)]
    queue = queue_of(*jobs)
    taken = [queue.smallest(), queue.smallest()]
    for job in reversed(taken):
        queue.push_aside(job)
    assert list(queue.jobs()) == jobs
    assert (queue.at, len(queue.parts[0])) == (0, 5)


def test_a_swept_priority_queue_has_its_living_jobs_only():
    jobs = [make(1), make(2), make(3, priority=0), make(4, priority=9)]
    queue = queue_of(*jobs)
    for _ in queue.sweep(lambda job: job in jobs[1:3]):
        pass
    assert list(queue.jobs()) == [jobs[2], jobs[1]]
    assert list(queue.backwards()) == [jobs[1], jobs[2]]


def test_a_dismantled_priority_queue_holds_nothing():
    queue = queue_of(make(1), make(2, priority=1))
    queue.chunks.append([make(3)])
    for _ in queue.dismantle():
        pass
    assert [len(part) for part in (queue.head, queue.chunks, queue.tail, queue.parts)] == [0, 0, 0, 0]


def test_any_entry_can_be_removed():
    """It may be in the run or aside. The others keep their order."""
    rng = Random(4)
    jobs = [make(number, priority=rng.randrange(9) if number % 3 else None) for number in range(1, 9_000)]
    queue = queue_of(*jobs)
    taken = [queue.smallest() for _ in range(50) if queue.head or queue.next_chunk() or queue.parts]
    there = [job for job in jobs if job not in taken]
    rng.shuffle(there)
    for job in there[:4_000]:
        assert queue.remove(job)
    assert not queue.remove(there[0])
    assert list(queue.jobs()) == sorted(there[4_000:], key=key_of)


def few_priorities(rng):
    return rng.choice([-5, 0, 0, 7, 7, 7, rng.randrange(400)])


def many_priorities(rng):
    return rng.randrange(1 << 40)


def some_priorities(rng):
    return rng.randrange(20_000)


@pytest.mark.plain
@pytest.mark.parametrize("priority_of", [few_priorities, some_priorities, many_priorities])
def test_any_mix_of_pushes_pops_and_removals_agrees_with_a_sorted_list(priority_of, monkeypatch):
    """Parts begin and end with equal priorities, or are loose. Some jobs were created at the same moment."""
    monkeypatch.setattr(priority_queue, "PART_MAX", 64)
    rng = Random(7)
    queue, model = PriorityQueue(), []
    most_loose = 0
    for number in range(20_000):
        job = make(number, ctime_ms=rng.randrange(1, 300), priority=priority_of(rng))
        queue.push_aside(job)
        insort(model, job, key=key_of)
        most_loose = max(most_loose, sum(queue.loose))
        while model and rng.random() < 0.4:
            if rng.random() < 0.5:
                assert queue.smallest() is model.pop(0)
            else:
                assert queue.remove(model.pop(rng.randrange(len(model))))
        if number % 5_000 == 4_999:
            assert queue.key_at(len(model) // 2) == key_of(model[len(model) // 2])[:2]
    assert most_loose > 20 or priority_of is few_priorities
    assert max(map(len, queue.parts)) <= 64
    assert [ranks[-1] for ranks in queue.ranks] == list(queue.last_ranks)
    assert all(max(part, key=key_of) is part[-1] for part in queue.parts[1:])
    assert list(queue.jobs()) == model
    assert list(queue.backwards()) == model[::-1]
    assert [queue.smallest() for _ in model] == model
    assert not queue.parts
    assert not queue.loose


def test_loose_parts_are_swept_and_served_and_give_up_any_job():
    rng = Random(3)
    jobs = [make(number, priority=rng.randrange(1 << 40)) for number in range(40 * PART_MAX)]
    queue = queue_of(*jobs)
    assert any(queue.loose)
    removed = set(rng.sample(jobs, 300))
    assert all(queue.remove(job) for job in removed)
    assert not any(queue.remove(job) for job in removed)
    kept = {job for job in jobs[::3] if job not in removed}
    for _ in queue.sweep(lambda job: job in kept):
        pass
    assert [queue.smallest() for _ in kept] == sorted(kept, key=key_of)


@pytest.mark.plain
def test_halves_of_a_loose_part_are_loose_and_equal_priorities_stay_in_order(monkeypatch):
    monkeypatch.setattr(priority_queue, "PART_MAX", 64)
    rng = Random(11)
    jobs = [make(number, priority=rng.choice([rng.randrange(1 << 40), 1 << 39])) for number in range(5_000)]
    queue = queue_of(*jobs)
    assert any(one and other for one, other in pairwise(queue.loose))
    assert max(map(len, queue.parts)) <= 64
    assert [queue.smallest() for _ in jobs] == sorted(jobs, key=key_of)


@pytest.mark.plain
def test_a_loose_part_whose_median_is_its_greatest_priority_is_split_below_it(monkeypatch):
    monkeypatch.setattr(priority_queue, "PART_MAX", 64)
    spread = [make(number, priority=number * 1_000) for number in range(2_000)]
    queue = queue_of(*spread)
    last = max(queue.last_ranks[10:20])
    equal = [make(5_000 - number, ctime_ms=1, priority=last) for number in range(32)]
    lower = [make(6_000 + number, priority=last - 1) for number in range(40)]
    for job in (*equal, *lower):
        queue.push_aside(job)
    assert all(0 < len(part) <= 64 for part in queue.parts)
    assert list(queue.jobs()) == sorted((*spread, *equal, *lower), key=key_of)


@pytest.mark.plain
def test_a_push_sorts_no_part_though_its_priority_is_that_of_many_other_jobs(monkeypatch):
    """Each part begins and ends with such a priority. To sort a part for each push took a tenth of a millisecond."""
    monkeypatch.setattr(priority_queue, "PART_MAX", 64)
    rng = Random(13)
    queue = queue_of(*(make(number, priority=rng.randrange(200)) for number in range(40 * 64)))
    monkeypatch.setattr(PriorityQueue, "_sort", lambda queue, number: pytest.fail("a part was sorted"))
    for number in range(500):
        queue.push_aside(make(100_000 + number, priority=rng.randrange(200)))


@pytest.mark.plain
@pytest.mark.parametrize("middle", [0, 1 << 53, -(1 << 53), (1 << 63) - 10, 10 - (1 << 63)])
def test_neighbouring_priorities_keep_their_order_however_great_they_are(middle, monkeypatch):
    """As floats, those beyond 2^53 would be equal."""
    monkeypatch.setattr(priority_queue, "PART_MAX", 64)
    rng = Random(17)
    jobs = [make(number, priority=middle + rng.randrange(-9, 9)) for number in range(40 * 64)]
    queue = queue_of(*jobs)
    assert any(queue.loose)
    assert [queue.smallest() for _ in jobs] == sorted(jobs, key=key_of)


@pytest.mark.plain
def test_a_removed_copy_is_found_among_equal_ones_of_loose_parts(monkeypatch):
    monkeypatch.setattr(priority_queue, "PART_MAX", 64)
    rng = Random(5)
    queue = queue_of(*(make(number, priority=rng.randrange(1 << 40)) for number in range(10_000)))
    copies = [make(1, priority=1 << 39) for _ in range(200)]
    for job in copies:
        queue.push_aside(job)
    rng.shuffle(copies)
    assert all(queue.remove(job) for job in copies)
    assert not any(queue.remove(job) for job in copies)
