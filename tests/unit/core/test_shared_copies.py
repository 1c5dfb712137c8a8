"""core/shared_copies.py: one message for the copies of jobs that one command made."""

from __future__ import annotations

import pytest

from brokers import add_node, make_broker
from cluster_bus.messages import DELJOB, GOTJOB, GOTMANY, REFUSED, REPLJOB, REPLMANY
from cluster_bus.node import LEAVING
from copies import make_job, say, sent, sent_of
from disque_py.core.job import Job
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.shared_copies import for_older, ids_of, item_of, jobs_of, snapshots_of, split_ids

QUEUES = (b"x", b"y", b"z")


def made_together(broker, *others):
    """Return three jobs that differ in ids and queues."""
    first = make_job(broker, *others, queue=QUEUES[0])
    first.attributes = JobAttributes(7, (b"name", b"value"))
    jobs = [first]
    for number in (2, 3):
        terms = first.terms.of_queue(broker.terms, QUEUES[number - 1])
        job_id = make_job(broker, number=number).id
        job = Job(job_id, terms, first.body, first.ctime + number - 1, first.expire_at_ms, first.holders)
        job.attributes = first.attributes.like()
        jobs.append(job)
    return jobs


def start():
    """A broker, another node, and an item with copies that this node sends."""
    broker = make_broker()
    b = add_node(broker, 2)
    jobs = made_together(broker, b)
    return broker, b, jobs, item_of(broker, jobs, ids_of(jobs))


def test_an_item_says_the_same_as_a_snapshot_of_each_job():
    """Spec TP10."""
    broker, _, jobs, item = start()
    plain = [snapshot_of(broker, job) for job in jobs]
    assert snapshots_of(item) == plain
    again = jobs_of(broker, list(item))
    assert [snapshot_of(broker, job) for job in again] == plain


def test_a_node_that_takes_all_copies_says_so_once():
    """Spec TP10."""
    broker, b, jobs, item = start()
    say(broker, b, REPLMANY, list(item))
    assert [(kind, each) for _, kind, each in sent(broker)] == [(GOTMANY, item[0])]
    assert [broker.find(job.id).terms.queue for job in jobs] == list(QUEUES)
    assert all(broker.find(job.id).requeue_at_ms > broker.now_ms for job in jobs)


def test_known_jobs_are_answered_one_by_one():
    """Spec TP10."""
    broker, b, jobs, item = start()
    say(broker, b, REPLJOB, (snapshot_of(broker, jobs[1]), 0))
    sent(broker)
    say(broker, b, REPLMANY, list(item))
    answers = [(kind, each) for _, kind, each in sent(broker)]
    assert answers == [(GOTJOB, jobs[0].id), (GOTJOB, jobs[2].id), (GOTJOB, (jobs[1].id, 1))]
    assert broker.job_count == 3


def test_an_id_that_comes_twice_is_one_job():
    broker, b, jobs, item = start()
    twice = [jobs[0].id + jobs[0].id, *item[1:2], [b"x", b"x"], *item[3:]]
    say(broker, b, REPLMANY, twice)
    assert broker.job_count == 1
    assert [(kind, each) for _, kind, each in sent(broker)] == [(GOTJOB, jobs[0].id)]


def test_a_node_that_leaves_refuses_each():
    broker, b, jobs, item = start()
    broker.me.flags |= LEAVING
    say(broker, b, REPLMANY, list(item))
    assert [each[0] for _, each in sent_of(broker, REFUSED)] == [job.id for job in jobs]
    assert broker.job_count == 0


def test_a_job_that_is_given_up_leaves_no_copy():
    broker, b, jobs, item = start()
    say(broker, b, REPLMANY, list(item))
    say(broker, b, DELJOB, *((job.id, None) for job in jobs))
    assert broker.job_count == 0


def test_older_nodes_get_a_message_for_each_job():
    """Spec TP10, Y1."""
    _, _, jobs, item = start()
    kind, items = for_older(REPLMANY, [item])
    assert (kind, items) == (REPLJOB, [(snapshot, 0) for snapshot in snapshots_of(item)])
    assert for_older(GOTMANY, [item[0]]) == (GOTJOB, [job.id for job in jobs])
    assert for_older(GOTJOB, [jobs[0].id]) == (GOTJOB, [jobs[0].id])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b""),
        (0, b"D-" + 80 * b"x"),
        (0, 7),
        (1, b"short"),
        (2, [b"x", b"y"]),
        (2, [b"x", 1, b"y"]),
        (2, None),
        (3, 7),
    ],
)
def test_an_item_that_no_node_sends_is_refused(at, value):
    broker, _, _, item = start()
    wrong = list(item)
    wrong[at] = value
    with pytest.raises((ValueError, TypeError)):
        jobs_of(broker, wrong)
    with pytest.raises(ValueError, match="few"):
        jobs_of(broker, wrong[:3])


def test_a_byte_string_with_part_of_an_id_is_refused():
    assert split_ids(80 * b"x") == [40 * b"x"] * 2
    with pytest.raises(ValueError, match="cut"):
        split_ids(81 * b"x")
