"""core/taking.py: a job from another node is taken once or refused, and the giver always gets the same answer."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_client
from cluster_bus.messages import (
    LEASED,
    QUEUED_RELEASED,
    REFUSED_BUSY,
    REFUSED_DONE,
    REFUSED_LEAVING,
    SETACK,
    SETTLED,
    TOOK,
    YOURJOBS,
)
from cluster_bus.messages import QUEUED as QUEUED_MESSAGE
from copies import advance, deliver, hold, hold_queued, make_id, make_job, queue_of, say, sent, snapshot
from disque_py.core import acks
from disque_py.core.handover import TAKEN, exchange
from disque_py.core.job import ACKED, ACTIVE, QUEUED
from disque_py.core.job_snapshot import snapshot_of
from handovers import TOOK_IT, fill, give_one, make_pair, take
from world import World, joined


def test_a_handed_over_job_is_queued_and_the_taker_becomes_a_holder():
    """The original's receiver did not, so an ack stayed local (spec Q1)."""
    broker, node = make_pair()
    assert take(broker, node, snapshot(broker, node)) == TAKEN
    job = broker.find(make_id())
    assert (job.state, job.holders) == (QUEUED, {broker.me, node})
    assert (broker.stats.jobs_imported, list(broker.queues[b"q"].sources)) == (1, [node])


def test_a_job_that_a_consumer_of_another_node_has_is_not_queued():
    """The giver queued it without having heard of the delivery. After the lease it may be queued. Spec L2."""
    broker, node = make_pair()
    job = hold(broker, node)
    say(broker, node, LEASED, (job.id, 5_000, 1, 2))
    assert take(broker, node, snapshot(broker, node)) == TAKEN
    assert queue_of(broker) == []
    advance(broker, 31_500)
    assert queue_of(broker) == [job.id]


def test_a_job_that_was_given_back_is_queued_although_its_lease_is_not_over():
    broker, node = make_pair()
    job = hold(broker, node)
    say(broker, node, LEASED, (job.id, 5_000, 1, 2))
    say(broker, node, QUEUED_MESSAGE, (job.id, QUEUED_RELEASED, 0, 1, 1, 3))
    assert take(broker, node, snapshot(broker, node)) == TAKEN
    assert queue_of(broker) == [job.id]


def test_the_same_number_gets_the_same_answer_and_changes_nothing():
    """Spec H5."""
    broker, node = make_pair()
    job_snapshot = snapshot(broker, node, retry_s=0)
    assert take(broker, node, job_snapshot) == TAKEN
    deliver(broker)
    assert take(broker, node, job_snapshot) == TAKEN
    assert queue_of(broker) == []


@pytest.mark.parametrize("retry_s", [0, 30])
def test_only_the_answer_for_an_at_most_once_job_leaves_at_once(retry_s):
    """Its producer may wait for it. Spec N11."""
    broker, node = make_pair()
    sent(broker)
    say(broker, node, YOURJOBS, (1, 0, [snapshot(broker, node, retry_s=retry_s)]))
    assert broker.outbox.messages.is_urgent is (retry_s == 0)


def test_nothing_is_taken_from_a_node_that_could_not_hear_the_answer():
    """Once it is reached it asks again, and no answer has been forgotten meanwhile."""
    broker, node = make_pair()
    node.is_newcomer = True
    say(broker, node, YOURJOBS, (1, 0, [snapshot(broker, node)]))
    assert (sent(broker), broker.job_count) == ([], 0)
    node.is_newcomer = False
    assert take(broker, node, snapshot(broker, node)) == TAKEN


def test_an_answer_is_remembered_until_its_number_is_settled():
    broker, node = make_pair()
    for number in range(1, 4):
        take(broker, node, snapshot(broker, node, number=number), number)
    assert list(exchange(node).answers) == [1, 2, 3]
    say(broker, node, SETTLED, 2)
    assert list(exchange(node).answers) == [3]
    take(broker, node, snapshot(broker, node, number=4), 4, settled=3)
    assert list(exchange(node).answers) == [4]


def test_a_job_that_a_local_consumer_has_is_taken_whatever_is_refused():
    """Its giver would queue it again while the lease runs (seed 21169 of `--weather disks+restarts+delays`)."""
    broker, node = make_pair()
    job = hold_queued(broker, node)
    deliver(broker)
    broker.journal.disk_level = 1
    assert take(broker, node, snapshot_of(broker, job)) == TAKEN
    assert (job.state, job.is_leased_here, queue_of(broker)) == (ACTIVE, True, [])


def test_a_settled_number_that_comes_late_is_not_taken_again():
    broker, node = make_pair()
    job_snapshot = snapshot(broker, node, retry_s=0)
    take(broker, node, job_snapshot)
    deliver(broker)
    ask(broker, make_client(broker), "DELJOB", make_id(retry_s=0))
    say(broker, node, SETTLED, 1)
    say(broker, node, YOURJOBS, (1, 0, [job_snapshot]))
    assert (sent(broker), broker.job_count) == ([], 0)


@pytest.mark.parametrize("is_known_as_done", [True, False])
def test_a_job_that_is_done_is_refused_and_its_ack_follows(is_known_as_done):
    broker, node = make_pair()
    if is_known_as_done:
        broker.tombstones.add(make_id(), broker.now_ms)
    else:
        acks.acknowledge(broker, hold(broker, node))
    say(broker, node, YOURJOBS, (1, 0, [snapshot(broker, node)]))
    messages = {kind: item for _, kind, item in sent(broker)}
    assert messages[TOOK] == (1, bytes([REFUSED_DONE]))
    assert messages[SETACK][0] == make_id()
    assert broker.find(make_id()).state == ACKED


def test_a_job_whose_producer_still_waits_here_is_refused():
    """If it were queued, its producer would get no reply (spec Q7)."""
    broker, node = make_pair()
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    (job,) = broker.copies.waiting_repl
    sent(broker)
    assert take(broker, node, snapshot_of(broker, job)) == REFUSED_BUSY


def test_a_leaving_node_takes_no_jobs():
    broker, node = make_pair()
    broker.membership.set_leaving(True)
    assert take(broker, node, snapshot(broker, node)) == REFUSED_LEAVING
    assert broker.job_count == 0


def test_a_held_copy_is_queued_when_the_job_is_handed_over_here():
    broker, node = make_pair()
    job = hold(broker, node)
    assert take(broker, node, snapshot_of(broker, job)) == TAKEN
    assert queue_of(broker) == [job.id]


def test_a_job_already_queued_here_stays_queued_once():
    broker, node = make_pair()
    job = hold_queued(broker, node)
    assert take(broker, node, snapshot_of(broker, job)) == TAKEN
    assert queue_of(broker) == [job.id]


def test_a_job_with_a_local_consumer_is_taken_and_not_queued():
    """The giver had not heard of the delivery."""
    broker, node = make_pair()
    hold_queued(broker, node)
    job = deliver(broker)
    assert take(broker, node, snapshot_of(broker, job)) == TAKEN
    assert (job.state, job.is_leased_here, queue_of(broker)) == (ACTIVE, True, [])


def test_an_at_most_once_job_that_was_delivered_here_is_never_queued_again():
    broker, node = make_pair()
    hold_queued(broker, retry_s=0)
    job = deliver(broker)
    assert take(broker, node, snapshot(broker, node, retry_s=0)) == TAKEN
    assert (job.state, queue_of(broker)) == (ACTIVE, [])


def test_a_job_that_comes_back_from_its_taker_was_taken():
    """That hand-over is over, and the job is taken anew (spec H6)."""
    broker, node, job = give_one(retry_s=0)
    assert take(broker, node, snapshot_of(broker, job)) == TAKEN
    assert queue_of(broker) == [job.id]
    say(broker, node, TOOK, (1, TOOK_IT))
    assert queue_of(broker) == [job.id]


def test_a_delayed_job_is_queued_by_its_taker_after_the_delay():
    broker, node = make_pair()
    job_snapshot = (*snapshot(broker, node, retry_s=0, delay_s=5), 3000)
    assert take(broker, node, job_snapshot) == TAKEN
    job = broker.find(make_id(retry_s=0))
    assert (job.state, job.requeue_at_ms - broker.now_ms) == (ACTIVE, 3000)
    advance(broker, 3050)
    assert job.state == QUEUED


def test_the_first_queueing_of_a_delayed_job_does_not_count_as_a_delivery():
    broker, node = make_pair()
    take(broker, node, (*snapshot(broker, node, retry_s=0, delay_s=5), 3000))
    advance(broker, 3050)
    assert broker.find(make_id(retry_s=0)).deliveries == 0


def test_a_job_deleted_here_may_come_back_while_its_old_entry_is_in_the_queue():
    """DELJOB here, a copy elsewhere, and a consumer here again: the entries have the same age and id."""
    broker, node = make_pair()
    job, later = fill(broker, 2)
    copy = snapshot_of(broker, job)
    client = make_client(broker)
    ask(broker, client, "DELJOB", job.id)
    assert take(broker, node, copy) == TAKEN
    assert [entry[1] for entry in ask_parsed(broker, client, "QPEEK", "q", 10)] == [job.id, later.id]


# -- stories -------------------------------------------------------------------------------------------------


def test_a_lost_answer_delivers_nothing_twice():
    world = World("ab")
    world.join()
    world.drop = lambda sender, receiver, kind, item: kind == TOOK
    consumer = world.client("b")
    consumer.say("GETJOB", "FROM", "q")
    world.run(100)
    world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    world.run(4_500)
    assert len(consumer.replies) == 1
    consumer.say("GETJOB", "NOHANG", "FROM", "q")
    world.drop = None
    world.run(3_000)
    assert consumer.replies[1] is None
    assert world["a"].job_count == 0


def test_make_job_is_the_job_that_snapshot_sends():
    """Both helpers of these tests give the same job."""
    broker, node = make_pair()
    assert snapshot(broker, node) == snapshot_of(broker, make_job(broker, node, is_mine=False))


def test_a_hand_over_that_comes_after_the_ack_is_refused():
    """Spec A6: the taker has answered that it is no holder."""
    world = joined("abcd")
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 1, "RETRY", 60)
    world.cut("a", "c", both=False, silently=True)
    waiting = world.client("c")
    waiting.say("GETJOB", "FROM", "q")
    world.run(100)
    world.client("d").say("ACKJOB", job_id)
    world.until(lambda: job_id in world["c"].acks.not_held, 5_000)
    world.heal()
    world.run(3_000)
    assert not waiting.replies
