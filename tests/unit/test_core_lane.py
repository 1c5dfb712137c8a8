"""core/lane.py: (priority, creation time, id), whatever the mix."""

from __future__ import annotations

from random import Random

from disque_py.core.job import QUEUED, Job
from disque_py.core.lane import PART_MAX, Lane, key_of
from disque_py.core.traits import Traits

MS = 1_000_000


def make(number, *, ctime_ms=None, priority=None):
    job = Job(b"D-%037d-" % number, b"q", b"", (ctime_ms or number) * MS, 1 << 40, 30_000, 0, 1, frozenset())
    job.state = QUEUED
    if priority is not None:
        job.traits = Traits(priority, ())
    return job


def lane_of(*jobs):
    lane = Lane()
    for job in jobs:
        if job.traits is None:
            lane.tail.append(job)
        else:
            lane.push_aside(job)
    return lane


def test_a_job_without_priority_has_its_milliseconds_for_one():
    """So deadlines in Unix milliseconds and plain jobs stand in one order."""
    jobs = [make(100), make(200), make(1, ctime_ms=300, priority=150)]
    assert list(lane_of(*jobs).jobs()) == [jobs[0], jobs[2], jobs[1]]
    assert key_of(jobs[1]) == (200, 200 * MS, jobs[1].id)


def test_equal_priorities_are_served_in_order_of_creation():
    """Spec F1."""
    jobs = [make(3, priority=7), make(1, priority=7), make(2, priority=7)]
    assert list(lane_of(*jobs).jobs()) == [jobs[1], jobs[2], jobs[0]]


def test_the_first_key_is_of_run_or_aside_whichever_is_smaller():
    assert Lane().first_key() is None
    assert lane_of(make(5)).first_key() == key_of(make(5))
    assert lane_of(make(5), make(6, priority=-1)).first_key()[0] == -1


def test_the_smallest_is_taken_from_either():
    lane = lane_of(make(5), make(9, priority=2), make(8, priority=7))
    lane.next_chunk()
    assert [lane.smallest().priority for _ in range(3)] == [2, 5, 7]
    assert not lane.parts


def test_what_is_at_a_position_of_the_run_or_aside_can_be_told():
    assert Lane().key_at(0) is None
    assert lane_of(*map(make, range(1, 11))).key_at(4) == (5, 5 * MS)
    aside = lane_of(*(make(number, priority=number) for number in Random(1).sample(range(10_000), 10_000)))
    assert [aside.key_at(at)[0] for at in (0, 100, 5_000, 9_999)] == [0, 100, 5_000, 9_999]
    assert aside.key_at(10_000) is None


def test_parts_are_short_whatever_the_order():
    """So a push moves little."""
    lane = lane_of(*(make(number, priority=number % 97) for number in range(10_000)))
    assert max(map(len, lane.parts)) <= PART_MAX
    assert len(lane.parts) < 20
    rising = lane_of(*(make(number, priority=number) for number in range(10_000)))
    assert len(rising.parts) == -(-10_000 // PART_MAX)


def test_what_comes_back_to_the_front_takes_the_place_of_what_was_taken():
    jobs = [make(number, priority=number) for number in range(5)]
    lane = lane_of(*jobs)
    taken = [lane.smallest(), lane.smallest()]
    for job in reversed(taken):
        lane.push_aside(job)
    assert list(lane.jobs()) == jobs
    assert (lane.at, len(lane.parts[0])) == (0, 5)


def test_a_swept_lane_has_its_living_jobs_only():
    jobs = [make(1), make(2), make(3, priority=0), make(4, priority=9)]
    lane = lane_of(*jobs)
    for _ in lane.sweep(lambda job: job in jobs[1:3]):
        pass
    assert list(lane.jobs()) == [jobs[2], jobs[1]]
    assert [entry[4] for entry in lane.backwards()] == [jobs[1], jobs[2]]


def test_a_dismantled_lane_holds_nothing():
    lane = lane_of(make(1), make(2, priority=1))
    lane.chunks.append([make(3)])
    for _ in lane.dismantle():
        pass
    assert [len(part) for part in (lane.head, lane.chunks, lane.tail, lane.parts)] == [0, 0, 0, 0]
