"""core/queue.py: jobs by priority, then oldest first, for every way of leaving the queue."""

from __future__ import annotations

from collections import deque
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import make_broker
from copies import make_job
from disque_py.core import priority_queue as priority_queue_module
from disque_py.core import queue as queue_module
from disque_py.core.job import ACTIVE, GONE, QUEUED, Job, JobTerms
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.queue import Queue


def make_jobs(count, *, ctimes=None):
    """Make jobs as lifecycle does. The tests below act as lifecycle, which is otherwise the only writer of states."""
    found = []
    for number in range(count):
        ctime = ctimes[number] if ctimes else 1000 + number
        found.append(Job(b"D-%037d-" % number, JobTerms(b"q", 0, 0, 1), b"", ctime, 1 << 40, frozenset()))
    return found


def push(queue, job):
    job.state = QUEUED
    queue.push(job)


def remove(queue, job, state=ACTIVE):
    """Take the job out without `pop`."""
    job.state = state
    queue.removed(job)


def drain(queue):
    found = []
    while (job := queue.pop()) is not None:
        job.state = ACTIVE
        found.append(job)
    return found


def test_jobs_come_out_oldest_first():
    jobs = make_jobs(5)
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    assert queue.length == 5
    assert drain(queue) == jobs
    assert queue.length == 0


def test_age_is_ctime_then_id_not_the_moment_of_queueing():
    jobs = make_jobs(6, ctimes=[50, 40, 40, 60, 10, 60])
    queue = Queue(b"q", 0)
    for job in (jobs[3], jobs[5], jobs[2], jobs[1], jobs[0], jobs[4]):
        push(queue, job)
    assert drain(queue) == [jobs[4], jobs[1], jobs[2], jobs[0], jobs[3], jobs[5]]


def test_a_job_that_comes_back_is_before_the_younger_ones_again():
    """Requeued jobs keep their ctime, so they normally come out first."""
    jobs = make_jobs(4)
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    first = queue.pop()
    first.state = ACTIVE
    push(queue, first)
    assert drain(queue) == jobs


def test_an_empty_queue_gives_no_jobs():
    queue = Queue(b"q", 0)
    assert queue.pop() is None
    assert list(queue.oldest()) == list(queue.newest(100)) == []


def test_a_job_that_left_in_another_way_is_not_popped():
    jobs = make_jobs(3)
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    remove(queue, jobs[0])
    assert queue.length == 2
    assert drain(queue) == jobs[1:]
    assert queue.listed == 0


def test_a_job_that_left_and_came_back_is_there_once():
    """Its old entry counts again."""
    jobs = make_jobs(3)
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    remove(queue, jobs[1])
    push(queue, jobs[1])
    assert (queue.length, queue.listed) == (3, 3)
    assert drain(queue) == jobs


def test_a_long_queue_is_kept_in_chunks(monkeypatch):
    monkeypatch.setattr(queue_module, "CHUNK", 4)
    jobs = make_jobs(11)
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    assert list(queue.oldest()) == jobs
    assert list(queue.newest(100)) == jobs[::-1]
    assert drain(queue) == jobs


def test_looking_takes_no_job_and_skips_those_that_left():
    jobs = make_jobs(4, ctimes=[10, 20, 15, 30])
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    remove(queue, jobs[1])
    assert list(queue.oldest()) == [jobs[0], jobs[2], jobs[3]]
    assert list(queue.newest(100)) == [jobs[3], jobs[2], jobs[0]]
    assert queue.length == 3


def test_the_search_for_the_newest_jobs_is_bounded():
    """A long heap is not sorted for the sake of three jobs."""
    jobs = make_jobs(6, ctimes=[50, 10, 60, 20, 30, 40])
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    assert list(islice(queue.newest(3), 3)) == [jobs[2], jobs[0], jobs[5]]


def test_dead_entries_are_worth_a_sweep_only_when_they_are_many():
    queue = Queue(b"q", 0)
    jobs = make_jobs(queue_module.DEAD_ENTRIES_MIN + 2)
    for job in jobs:
        push(queue, job)
    for job in jobs[:-1]:
        assert not queue.needs_sweep
        remove(queue, job)
    remove(queue, jobs[-1])
    assert queue.needs_sweep


def test_a_sweep_drops_the_dead_and_keeps_the_living():
    jobs = make_jobs(20, ctimes=[number if number % 3 else 100 - number for number in range(20)])
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    for job in jobs[::2]:
        remove(queue, job, GONE)
    deque(queue.sweep(), maxlen=0)
    assert queue.listed == queue.length == 10
    assert not any(job.is_listed for job in jobs[::2])
    assert drain(queue) == sorted(jobs[1::2], key=lambda job: (job.ctime, job.id))


def test_a_swept_job_that_comes_back_gets_a_new_entry():
    jobs = make_jobs(3)
    queue = Queue(b"q", 0)
    for job in jobs:
        push(queue, job)
    remove(queue, jobs[0])
    deque(queue.sweep(), maxlen=0)
    push(queue, jobs[0])
    assert drain(queue) == jobs


def test_a_new_object_for_a_job_that_was_here_before_is_accepted():
    """
    A job is deleted here, its entry stays in the heap, and another node hands its copy over: same ctime, same id,
    another object. The entries must still be comparable.
    """
    late, old, again = make_jobs(3, ctimes=[100, 50, 50])
    again.id = old.id
    queue = Queue(b"q", 0)
    push(queue, late)
    push(queue, old)
    remove(queue, old, GONE)
    push(queue, again)
    assert drain(queue) == [again, late]


def test_a_queue_with_an_old_entry_of_a_job_can_be_read():
    """Here the old entry is in the run: QPEEK merges run and heap."""
    old, later, again = make_jobs(3, ctimes=[50, 100, 50])
    again.id = old.id
    queue = Queue(b"q", 0)
    push(queue, old)
    push(queue, later)
    remove(queue, old, GONE)
    push(queue, again)
    assert list(queue.oldest()) == [again, later]
    assert list(queue.newest(100)) == [later, again]


def test_the_text_of_a_queue_says_which_it_is():
    queue = Queue(b"orders", 0)
    push(queue, make_jobs(1)[0])
    assert repr(queue) == "<Queue b'orders' 1>"
    assert queue.head_bytes == b"$6\r\norders\r\n$40\r\n"


def test_a_job_of_the_broker_fits():
    """The tests above make bare jobs; a real one has the same fields."""
    job = make_job(make_broker())
    queue = Queue(b"q", 0)
    push(queue, job)
    assert queue.pop() is job


class Model:
    """A queue, and its model: the ready jobs, sorted at each look."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.queue = Queue(b"q", 0)
        self.ready = []
        self.resting = []
        self.made = 0
        self.clock = 0
        self.sweep = None
        self.prioritized = self.rng.choice((0, 0.1, 1))

    def ordered(self):
        return sorted(self.ready, key=lambda job: (job.priority, job.ctime, job.id))

    def push_new(self):
        self.clock += self.rng.choice((0, 1, 1, 3))
        ctime = self.clock if self.rng.random() < 0.7 else self.rng.randrange(self.clock + 1)
        job = make_jobs(1, ctimes=[ctime])[0]
        job.id = b"D-%037d-" % self.made
        self.made += 1
        job.terms = JobTerms(b"q", self.rng.choice((0, 30_000, 30_000)), 0, 1)
        if self.rng.random() < self.prioritized:
            job.attributes = JobAttributes(self.rng.choice((None, -1, 0, self.rng.randrange(9))), ())
        push(self.queue, job)
        self.ready.append(job)

    def push_again(self):
        if self.resting:
            job = self.resting.pop(self.rng.randrange(len(self.resting)))
            push(self.queue, job)
            self.ready.append(job)

    def pop(self):
        expected = self.ordered()
        job = self.queue.pop()
        assert job is (expected[0] if expected else None)
        if job is not None:
            job.state = ACTIVE
            self.ready.remove(job)
            self.resting.append(job)

    def pop_retried(self):
        expected = [job for job in self.ordered() if job.retry_ms]
        job = self.queue.pop_retried()
        assert job is (expected[0] if expected else None)
        if job is not None:
            job.state = ACTIVE
            self.ready.remove(job)
            self.resting.append(job)

    def take_out(self):
        if self.ready:
            job = self.ready.pop(self.rng.randrange(len(self.ready)))
            is_gone = self.rng.random() < 0.5
            remove(self.queue, job, GONE if is_gone else ACTIVE)
            if not is_gone:
                self.resting.append(job)

    def sweep_on(self):
        """Do one step of a sweep; other actions happen between steps."""
        self.sweep = self.sweep or self.queue.sweep()
        if next(self.sweep, self) is self:
            self.sweep = None

    def check(self):
        expected = self.ordered()
        assert list(self.queue.oldest()) == expected
        assert list(self.queue.newest(len(expected))) == expected[::-1]
        assert self.queue.length == len(expected)
        assert self.queue.retried_length == sum(job.retry_ms > 0 for job in expected)


DEEDS = ("push_new", "push_new", "push_new", "push_again", "pop", "pop", "pop_retried", "take_out", "sweep_on")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), chunk=st.sampled_from((1, 2, 5, 64)), part=st.sampled_from((1, 2, 3, 2048)))
def test_a_queue_is_a_sorted_list_whatever_happens(seed, chunk, part):
    """Pushes in any order, pops, removals, returns and the steps of sweeps, against a list that is sorted each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_module, "CHUNK", chunk)
        patch.setattr(priority_queue_module, "PART_MAX", part)
        model = Model(seed)
        for step in range(250):
            getattr(model, model.rng.choice(DEEDS))()
            if step % 10 == 0:
                model.check()
        model.check()
        while model.ready:
            model.pop()
        model.pop()
        assert model.queue.listed == 0


def test_the_first_job_can_be_seen_without_taking_it():
    queue = Queue(b"q", 0)
    once, dead, retried = make_jobs(3)
    dead.terms = retried.terms = JobTerms(b"q", 1_000, 0, 1)
    for job in (once, dead, retried):
        push(queue, job)
    remove(queue, dead)
    assert queue.first(is_picky=False) is once
    assert queue.first(is_picky=True) is retried
    assert (queue.length, queue.dead) == (2, 0)
    assert drain(queue) == [once, retried]
