"""core/holding.py: a node takes copies of jobs, confirms or refuses them, and answers for known jobs."""

from __future__ import annotations

import pytest

from brokers import ask, make_client, make_cluster
from cluster_bus.messages import (
    DELJOB,
    ENQUEUE,
    GOTJOB,
    HOLDERS,
    REFUSED,
    REFUSED_BUSY,
    REFUSED_LEAVING,
    REFUSED_PAUSED,
    REPLJOB,
    SETACK,
    WILLQUEUE,
)
from copies import add_waiting, advance, hold, hold_queued, make_id, pack, queue_of, say, sent, sent_of, snapshot
from disque_py.core import acks, changing, lifecycle, replication
from disque_py.core.job import ACKED, ACTIVE, QUEUED, Cancellation
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.lifecycle import WILLQUEUE_LEAD_MS


def test_a_copy_is_held_confirmed_and_queued_only_if_no_other_node_does():
    broker, b, c = make_cluster()
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me, c, retry_s=30, delay_s=5), 0))
    job = broker.find(make_id())
    assert sent(broker) == [((b,), GOTJOB, make_id())]
    assert (job.state, job.holders, job.was_queued) == (ACTIVE, {broker.me, b, c}, True)
    assert abs(job.requeue_at_ms - broker.now_ms - 35_000) <= 250
    assert job.awake_at_ms == job.requeue_at_ms - WILLQUEUE_LEAD_MS


def test_an_at_most_once_copy_is_never_queued_by_a_timer():
    broker, b, _ = make_cluster()
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me, retry_s=0), 0))
    job = broker.find(make_id(retry_s=0))
    assert job.requeue_at_ms == 0
    advance(broker, 60_000)
    assert job.state == ACTIVE


def test_best_effort_copies_are_not_confirmed():
    broker, b, _ = make_cluster()
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), replication.NO_ANSWER))
    assert sent(broker) == []
    assert broker.job_count == 1


@pytest.mark.parametrize("is_queued", [True, False])
def test_a_copy_that_is_here_already_is_confirmed_as_known(is_queued):
    """This differs from "taken": to a node that leaves, only a new copy is useful."""
    broker, b, c = make_cluster()
    job = hold_queued(broker, b) if is_queued else hold(broker, b)
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me, c), 0))
    assert sent(broker) == [((b,), GOTJOB, (job.id, replication.KNOWN))]
    assert job.holders == {broker.me, b, c}


def test_a_leaving_node_confirms_its_copy_as_one_that_may_move():
    """Spec C5."""
    broker, b, c = make_cluster()
    job = hold(broker, b)
    broker.membership.set_leaving(True)
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me, c), 0))
    assert sent_of(broker, GOTJOB) == [((b,), (job.id, replication.MOVING))]


def test_a_copy_of_an_acknowledged_job_is_answered_with_the_ack():
    broker, b, c = make_cluster()
    job = hold(broker, b)
    acks.acknowledge(broker, job)
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me, c), 0))
    assert sent(broker) == [((b,), SETACK, (job.id, pack(broker.me, b, c)))]
    assert job.state == ACKED


def test_a_late_copy_of_a_job_known_as_done_is_never_delivered():
    broker, b, _ = make_cluster()
    broker.tombstones.add(make_id(), broker.now_ms)
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert sent(broker) == [((b,), SETACK, (make_id(), pack(broker.me, b)))]
    job = broker.find(make_id())
    assert (job.state, job.body) == (ACKED, b"")


def test_the_ack_of_a_late_copy_says_that_the_job_was_canceled():
    """Spec Y8: otherwise nodes that know of the cancellation would take it for a completion."""
    broker, b, _ = make_cluster()
    job = hold(broker, b, number=1)
    acks.acknowledge(broker, job, is_news=True, is_canceled=True)
    say(broker, b, DELJOB, (job.id, pack(broker.me, b)))
    assert broker.find(job.id) is None
    sent(broker)
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    item = (make_id(), pack(broker.me, b), changing.UNTOLD, changing.OUTCOME_CANCELED)
    assert sent(broker) == [((b,), SETACK, item)]
    assert isinstance(broker.find(make_id()).work, Cancellation)


def test_the_ack_of_a_late_copy_is_collected_if_the_sender_does_not():
    """It may crash now; then we ask the others, after a second."""
    broker, b, c = make_cluster()
    broker.tombstones.add(make_id(), broker.now_ms)
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me, c), 0))
    sent(broker)
    advance(broker, 5000)
    assert sent_of(broker, SETACK)


@pytest.mark.parametrize("reason", ["paused", "leaving"])
def test_a_copy_is_refused_with_the_reason(reason):
    broker, b, _ = make_cluster()
    client = make_client(broker)
    if reason == "paused":
        ask(broker, client, "PAUSE", "q", "in")
    else:
        broker.membership.set_leaving(True)
        sent(broker)
    expected = REFUSED_PAUSED if reason == "paused" else REFUSED_LEAVING
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0), (snapshot(broker, b, broker.me, number=2), 1))
    assert sent(broker) == [((b,), REFUSED, (make_id(), expected))]
    assert broker.job_count == 0


def test_while_the_journal_loads_messages_about_jobs_are_ignored():
    """No journal would hold a copy that was confirmed now. The sender repeats important messages. Spec Q32."""
    broker, b, _ = make_cluster()
    broker.is_loading = True
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert (broker.job_count, sent(broker)) == (0, [])
    broker.is_loading = False
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert broker.job_count == 1


def test_a_copy_of_a_job_in_another_queue_is_taken_during_a_pause():
    broker, b, _ = make_cluster()
    ask(broker, make_client(broker), "PAUSE", "other", "in")
    ask(broker, make_client(broker), "PAUSE", "q", "out")
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert broker.job_count == 1


def test_a_job_twice_in_one_run_is_one_copy():
    broker, b, _ = make_cluster()
    job_snapshot = snapshot(broker, b, broker.me)
    say(broker, b, REPLJOB, (job_snapshot, 0), (job_snapshot, 0))
    assert broker.job_count == 1
    assert len(sent_of(broker, GOTJOB)) == 2


def test_the_longer_list_of_holders_is_merged():
    broker, b, c = make_cluster()
    job = hold(broker, b)
    say(broker, b, HOLDERS, (job.id, pack(c)), (make_id(9), pack(c)))
    assert job.holders == {broker.me, b, c}
    assert broker.stats.reject_reasons == {"holders of an unknown job": 1}


def test_a_holder_that_is_named_after_the_question_is_asked_too():
    """Spec Y4: it may have taken the job by hand-over, and would deliver it besides us."""
    broker, b, c = make_cluster()
    job = hold(broker, b, retry_s=30)
    changing.begin(broker, job).limit = 1
    advance(broker, 29_600)
    assert sent_of(broker, WILLQUEUE) == [((b,), (job.id, 0))]
    advance(broker, 300)
    say(broker, b, HOLDERS, (job.id, pack(c)))
    advance(broker, 400)
    assert queue_of(broker) == []
    assert [to for to, _ in sent_of(broker, WILLQUEUE)] == [(b, c)]
    advance(broker, 400)
    assert queue_of(broker) == [job.id]


def test_a_copy_is_queued_without_messages_when_its_creator_says_so():
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    say(broker, b, ENQUEUE, (job.id, 0))
    assert queue_of(broker) == [job.id]
    assert sent(broker) == []
    assert job.deliveries == 0


def test_a_copy_is_queued_after_the_delay_that_its_creator_says():
    broker, b, _ = make_cluster()
    job = hold(broker, b, retry_s=60)
    say(broker, b, ENQUEUE, (job.id, 3000))
    advance(broker, 2900)
    assert job.state == ACTIVE
    advance(broker, 150)
    assert job.state == QUEUED
    assert (job.deliveries, sent(broker)) == (0, [])


@pytest.mark.parametrize("reason", ["paused", "delivered", "acknowledged", "unknown"])
def test_an_enqueue_does_not_queue_a_job_that_must_not_be_queued(reason):
    broker, b, _ = make_cluster()
    job = hold_queued(broker, b)
    lifecycle.lease(broker, lifecycle.fetch(broker, broker.queues[b"q"]))
    if reason == "paused":
        job.is_delivered = False
        ask(broker, make_client(broker), "PAUSE", "q", "in")
    elif reason == "acknowledged":
        acks.acknowledge(broker, job)
    say(broker, b, ENQUEUE, (make_id(9) if reason == "unknown" else job.id, 0))
    assert job.state != QUEUED


def test_a_node_that_keeps_no_copy_refuses_the_copy_of_a_leaving_node():
    """It forgets the job as soon as its producer is answered."""
    broker, b, _ = make_cluster()
    broker.membership.set_leaving(True)
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    broker.membership.set_leaving(False)
    sent(broker)
    say(broker, b, REPLJOB, (snapshot_of(broker, job), 0))
    assert sent(broker) == [((b,), REFUSED, (job.id, REFUSED_BUSY))]
    assert broker.me not in job.holders
