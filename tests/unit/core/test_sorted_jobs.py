"""core/sorted_jobs.py: sorted jobs, any of which can be taken."""

from __future__ import annotations

from random import Random

import pytest

from disque_py.core.job import Job, JobTerms
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.priority_queue import key_of
from disque_py.core.sorted_jobs import PART_MAX, SortedJobs


def make(number, priority):
    job = Job(b"D-%037d-" % number, JobTerms(b"q", 30_000, 0, 1), b"", number, 1 << 40, frozenset())
    job.attributes = JobAttributes(priority, ())
    return job


def test_a_job_is_there_once_however_often_it_is_added():
    jobs = SortedJobs()
    job = make(1, 5)
    assert [jobs.add(job), jobs.add(job), jobs.remove(job), jobs.remove(job)] == [True, False, True, False]
    assert jobs.first() is None
    assert jobs.length == 0


@pytest.mark.parametrize("priorities", [1, 3, 200, 1 << 40])
def test_any_mix_of_adding_and_removing_keeps_the_order(priorities):
    """With few priorities, parts begin and end with equal ones."""
    rng = Random(3)
    jobs, there = SortedJobs(), {}
    for number in range(12 * PART_MAX):
        if there and rng.random() < 0.4:
            gone = there.pop(rng.choice(list(there)[-500:]))
            assert jobs.remove(gone)
        else:
            there[number] = make(number, rng.randrange(priorities))
            assert jobs.add(there[number])
    expected = sorted(there.values(), key=key_of)
    assert [job for _, job in jobs.in_order()] == expected
    assert [job for _, job in jobs.backwards()] == expected[::-1]
    assert jobs.length == len(expected)
    assert jobs.first() is expected[0]
    assert jobs.first_key() == key_of(expected[0])
    for at in (0, 1, PART_MAX, len(expected) - 1):
        assert [job for _, job in jobs.from_key(key_of(expected[at]))] == expected[at:]
    rank, ctime, job_id = key_of(expected[-1])
    assert list(jobs.from_key((rank, ctime, job_id + b"-"))) == []


def test_dismantling_goes_part_by_part():
    jobs = SortedJobs()
    for number in range(3 * PART_MAX):
        jobs.add(make(number, 0))
    assert len(list(jobs.dismantle())) == 3
