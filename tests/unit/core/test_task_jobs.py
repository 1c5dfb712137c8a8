"""core/task_jobs.py: the jobs that a share chooses and acts on."""

from __future__ import annotations

from brokers import make_broker, pass_time
from copies import deliver, hold_queued
from disque_py.core import task_jobs
from disque_py.core.job import GONE, QUEUED
from disque_py.core.task_state import PENDING, PURGE, Share, Work


def start(jobs=3):
    """Return a broker with queued jobs, and a share that purges them."""
    broker = make_broker()
    made = [hold_queued(broker, number=number) for number in range(1, jobs + 1)]
    pass_time(broker, 5)
    return broker, made, share_of(broker)


def share_of(broker):
    """A share of a purge that this node leads."""
    return Share(broker, broker.me, 1, Work(PURGE, b"q", None, PENDING, b""), lambda broker, share: iter(()))


def run(steps):
    """Take all steps."""
    for _ in steps:
        pass


def test_a_walk_chooses_the_jobs_of_the_queue():
    """Spec MV5."""
    broker, jobs, share = start()
    run(task_jobs.choose(broker, share))
    assert sorted(place[2] for place in share.chosen) == sorted(job.id for job in jobs)


def test_a_job_that_changed_since_the_share_began_is_left_alone():
    """A worker has it meanwhile."""
    broker, _, share = start(jobs=1)
    run(task_jobs.choose(broker, share))
    pass_time(broker, 5)
    job = deliver(broker)
    share.granted = 1
    run(task_jobs.act_on_all(broker, share))
    assert share.changed == 0
    assert job.state != GONE


def test_a_share_acts_on_as_many_jobs_as_it_was_granted():
    """The others wait for the next grant."""
    broker, jobs, share = start()
    run(task_jobs.choose(broker, share))
    share.granted = 2
    run(task_jobs.act_on_all(broker, share))
    assert (share.changed, share.at) == (2, 2)
    assert sum(job.state == QUEUED for job in jobs) == 1
