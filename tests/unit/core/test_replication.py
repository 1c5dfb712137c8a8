"""core/replication.py: an ADDJOB gets its reply when the requested number of nodes has the job."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, make_cluster, pass_time
from cluster_bus.messages import (
    DELJOB,
    ENQUEUE,
    GOTJOB,
    HOLDERS,
    LEASED,
    QUEUED_RELEASED,
    REFUSED,
    REFUSED_BUSY,
    REFUSED_LEAVING,
    REFUSED_PAUSED,
    REPLJOB,
    SETACK,
    WILLQUEUE,
)
from cluster_bus.messages import QUEUED as QUEUED_MESSAGE
from cluster_bus.node import PFAIL
from copies import advance, hold, hold_queued, make_id, pack, queue_of, say, sent, sent_of, snapshot
from disque_py.core import acks, changing, events, lifecycle, replication
from disque_py.core.client import RUNNING, WAITS_FOR_COPIES
from disque_py.core.job import ACKED, ACTIVE, QUEUED, WAIT_REPL
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.lifecycle import WILLQUEUE_LEAD_MS
from disque_py.core.replication import EXTEND_MS
from disque_py.event_format import RUNNING as RUNNING_EVENT
from disque_py.node import dispatch
from world import World


def add(broker, *words, producer=None):
    """Send an ADDJOB that waits, and return its producer and its job."""
    producer = producer or make_client(broker)
    assert ask(broker, producer, "ADDJOB", "q", "body", *(words or (0,))) == b""
    return producer, list(broker.copies.waiting_repl)[-1]


def confirm(broker, job, *nodes):
    for node in nodes:
        say(broker, node, GOTJOB, job.id)


# -- the creator ----------------------------------------------------------------------------------------


def test_the_answer_waits_for_the_last_copy():
    """Spec C2."""
    broker, b, c = make_cluster()
    producer, job = add(broker)
    ((receivers, (job_snapshot, flags)),) = sent_of(broker, REPLJOB)
    assert (receivers, job_snapshot[4], flags) == ((b, c), pack(broker.me, b, c), 0)
    confirm(broker, job, b)
    assert (producer.out, job.state, producer.waiting) == ([], WAIT_REPL, WAITS_FOR_COPIES)
    confirm(broker, job, c)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert (job.state, producer.waiting, broker.waits.blocked_count) == (QUEUED, RUNNING, 0)


def test_a_job_that_a_copy_delivered_is_not_queued_during_that_lease():
    """Spec L2: its producer still waited for another copy when the timer of the first one ended (seed 4771)."""
    broker, b, c = make_cluster()
    producer, job = add(broker)
    confirm(broker, job, b)
    say(broker, b, LEASED, (job.id, 10_000, 1))
    assert job.state == WAIT_REPL
    confirm(broker, job, c)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert (job.state, events.status_of(job), job.attempt) == (ACTIVE, RUNNING_EVENT, 1)
    assert job.requeue_at_ms >= broker.now_ms + 10_000
    advance(broker, 12_000)
    assert job.state == QUEUED


def test_a_delivery_of_a_copy_that_is_over_keeps_the_job_from_no_queue():
    """Spec L2: a NACK ended the lease before the last copy was confirmed."""
    broker, b, c = make_cluster()
    _, job = add(broker)
    say(broker, b, LEASED, (job.id, 10_000, 1))
    say(broker, b, QUEUED_MESSAGE, (job.id, QUEUED_RELEASED, 1, 1, 0))
    confirm(broker, job, b, c)
    assert job.state == QUEUED


def test_the_same_node_confirming_twice_is_one_copy():
    broker, b, _ = make_cluster()
    producer, job = add(broker)
    confirm(broker, job, b, b, b)
    assert producer.out == []


def test_the_job_is_queued_only_then():
    """A consumer must not get a job whose producer may still be refused."""
    broker, b, _ = make_cluster()
    consumer = make_client(broker)
    ask(broker, consumer, "GETJOB", "FROM", "q")
    _, job = add(broker, 0, "REPLICATE", 2)
    dispatch.settle(broker)
    assert consumer.out == []
    confirm(broker, job, *job.holders - {broker.me, b}, b)
    dispatch.settle(broker)
    assert job.id in consumer.out[0]


def test_replies_keep_the_order_of_requests():
    """The second job has its copies first, and its answer waits."""
    broker, b, c = make_cluster()
    producer, first = add(broker)
    _, second = add(broker, producer=producer)
    confirm(broker, second, b, c)
    assert producer.out == []
    confirm(broker, first, b, c)
    assert producer.out == [b"+%b\r\n" % first.id, b"+%b\r\n" % second.id]
    assert not producer.slots


def test_a_late_confirmation_is_ignored():
    broker, b, c = make_cluster()
    _, job = add(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b)
    confirm(broker, job, c)
    assert (job.state, broker.stats.jobs_added) == (QUEUED, 1)
    say(broker, c, GOTJOB, make_id(), (make_id(), 1))


def test_a_delayed_job_waits_for_its_delay_after_its_copies():
    broker, b, c = make_cluster()
    _, job = add(broker, 0, "DELAY", 5, "RETRY", 60)
    pass_time(broker, 20)
    confirm(broker, job, b, c)
    assert (job.state, job.requeue_at_ms - broker.now_ms) == (ACTIVE, 5000)
    sent(broker)
    advance(broker, 5100)
    assert queue_of(broker) == [job.id]
    assert sent(broker) == []


def test_while_copies_are_missing_one_more_node_is_asked_every_50_ms():
    """Nodes that have the job learn the longer list; no node gets the body twice."""
    broker, *nodes = make_cluster(4)
    _, job = add(broker, 0, "REPLICATE", 2)
    ((first,), _) = sent_of(broker, REPLJOB)[0]
    assert first in nodes
    asked, moments = [first], [broker.now_ms]
    for _ in range(220):
        advance(broker, 1)
        for receivers, _ in sent_of(broker, REPLJOB):
            asked += receivers
            moments.append(broker.now_ms)
    assert sorted(node.id for node in asked) == sorted(node.id for node in nodes)
    assert all(EXTEND_MS <= after - before <= EXTEND_MS + 17 for before, after in pairwise(moments))
    assert job.holders == {broker.me, *nodes}


def test_a_node_that_has_confirmed_learns_the_longer_list_only():
    """Spec C4."""
    broker, *nodes = make_cluster(4)
    _, job = add(broker, 0, "REPLICATE", 3)
    ((asked, _),) = sent_of(broker, REPLJOB)
    confirm(broker, job, asked[0])
    advance(broker, 70)
    messages = sent(broker)
    assert [kind for _, kind, _ in messages] == [REPLJOB, HOLDERS]
    assert messages[0][0][0] in set(nodes) - set(asked)
    assert messages[1] == ((asked[0],), HOLDERS, (job.id, pack(*job.holders)))


def test_without_another_node_silent_ones_are_asked_again_each_second():
    broker, b, c = make_cluster()
    _, job = add(broker)
    confirm(broker, job, b)
    sent(broker)
    advance(broker, 900)
    assert sent_of(broker, REPLJOB) == []
    advance(broker, 300)
    assert [nodes for nodes, _ in sent_of(broker, REPLJOB)] == [(c,)]


def test_a_refusal_makes_us_ask_another_at_once():
    """Spec C3."""
    broker, *nodes = make_cluster(3)
    _, job = add(broker, 0, "REPLICATE", 2)
    (((first,), _),) = sent_of(broker, REPLJOB)
    say(broker, first, REFUSED, (job.id, REFUSED_PAUSED))
    (((second,), _),) = sent_of(broker, REPLJOB)
    assert second in set(nodes) - {first}
    assert broker.stats.refusals_received == 1


def test_a_refusal_of_a_job_that_needs_no_more_copies_is_ignored():
    broker, b, c = make_cluster()
    _, job = add(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b)
    sent(broker)
    say(broker, c, REFUSED, (job.id, REFUSED_PAUSED), (make_id(), REFUSED_PAUSED))
    assert sent(broker) == []


def test_a_producer_that_asked_for_no_number_waits_for_no_node_out_of_sight():
    """The crash of one of three: its job has two copies and is added."""
    broker, b, c = make_cluster()
    producer = make_client(broker)
    strict = make_client(broker)
    ask(broker, producer, "ADDJOB", "q", "body", 0)
    ask(broker, strict, "ADDJOB", "q", "body", 0, "REPLICATE", 3)
    by_default, by_number = broker.copies.waiting_repl
    broker.membership.link_down(c)
    say(broker, b, GOTJOB, by_default.id, by_number.id)
    dispatch.settle(broker)
    assert by_default.state == WAIT_REPL
    broker.cluster.now_ms += 900
    broker.membership.tick()
    dispatch.settle(broker)
    assert (by_default.state, by_default.replicate) == (QUEUED, 2)
    assert producer.out == [b"+" + by_default.id + b"\r\n"]
    assert (by_number.state, by_number.replicate) == (WAIT_REPL, 3)


@pytest.mark.parametrize("timeout_ms", [10, 49, 50, 300])
def test_at_the_deadline_the_producer_hears_so_and_the_job_goes_everywhere(timeout_ms):
    """The deadline is exact to the timer's grain. The original needed up to a second (spec Q26)."""
    broker, b, c = make_cluster()
    producer, job = add(broker, timeout_ms)
    sent(broker)
    advance(broker, timeout_ms - 1)
    assert producer.out == []
    advance(broker, 18)
    assert producer.out == [replication.NOREPL_TIMEOUT]
    assert sent_of(broker, DELJOB) == [((b, c), (job.id, None))]
    assert (broker.job_count, broker.waits.blocked_count, broker.stats.replication_timeouts) == (0, 0, 1)


def test_timeout_zero_waits_for_ever():
    broker, *_ = make_cluster()
    producer, _ = add(broker, 0)
    advance(broker, 60_000)
    assert producer.out == []


def test_a_producer_that_hangs_up_takes_its_job_along():
    broker, b, c = make_cluster()
    producer, job = add(broker)
    sent(broker)
    dispatch.disconnect(broker, producer)
    assert sent(broker) == [((b, c), DELJOB, (job.id, None))]
    assert (broker.job_count, broker.waits.blocked_count, broker.copies.waiting_repl) == (0, 0, {})


def test_a_job_that_expires_while_it_misses_copies_is_refused():
    broker, *_ = make_cluster()
    producer, _ = add(broker, 0, "TTL", 1)
    advance(broker, 1100)
    assert producer.out == [replication.NOREPL_REMOVED]


def test_a_new_link_gets_the_jobs_that_the_old_one_may_have_lost():
    broker, b, c = make_cluster()
    _, job = add(broker)
    confirm(broker, job, b)
    sent(broker)
    for node in (b, c):
        dispatch.link_up(broker, node)
    assert [nodes for nodes, _ in sent_of(broker, REPLJOB)] == [(c,)]


def test_a_silenced_producer_gets_no_reply_but_goes_on():
    broker, b, c = make_cluster()
    producer = make_client(broker)
    ask(broker, producer, "CLIENT", "REPLY", "OFF")
    _, job = add(broker, producer=producer)
    confirm(broker, job, b, c)
    assert (producer.out, producer.waiting) == ([], RUNNING)
    assert queue_of(broker) == [job.id]


# -- ASYNC and external replication -----------------------------------------------------------------------


def test_async_is_answered_at_once_and_wants_no_confirmation():
    broker, b, c = make_cluster()
    job_id = ask_parsed(broker, make_client(broker), "ADDJOB", "q", "body", 0, "ASYNC")
    ((receivers, (job_snapshot, flags)),) = sent_of(broker, REPLJOB)
    assert (receivers, job_snapshot[4], flags) == ((b, c), pack(broker.me, b, c), replication.NO_ANSWER)
    assert queue_of(broker) == [job_id]


def test_without_an_own_copy_a_confirmed_node_is_told_to_queue_the_job():
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    producer, job = add(broker, 0, "REPLICATE", 2, "DELAY", 3)
    assert sent_of(broker, REPLJOB)[0][1][0][4] == pack(b, c)
    confirm(broker, job, b, c)
    (((chosen,), item),) = sent_of(broker, ENQUEUE)
    assert chosen in (b, c)
    assert item == (job.id, 3000)
    assert (producer.out, broker.job_count) == ([b"+%b\r\n" % job.id], 0)


def test_a_node_asked_for_a_copy_we_do_not_keep_learns_of_nodes_asked_later():
    """
    Its confirmation was in transit when another node was asked, and soon no node will know both. The first one would
    believe that it is the only holder. It would forget the job with its ack, and the other one would queue it again.
    """
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    _, job = add(broker, 0, "REPLICATE", 1)
    ((first,), _) = sent_of(broker, REPLJOB)[0]
    advance(broker, EXTEND_MS)
    assert job.holders == {b, c}
    assert sent_of(broker, HOLDERS) == [((first,), (job.id, pack(b, c)))]


def test_a_node_that_keeps_no_copy_is_no_holder_for_one_that_leaves():
    """It forgets the job as soon as its producer is answered."""
    broker, b, _ = make_cluster()
    broker.membership.set_leaving(True)
    _, job = add(broker, 0, "REPLICATE", 2)
    broker.membership.set_leaving(False)
    sent(broker)
    say(broker, b, REPLJOB, (snapshot_of(broker, job), 0))
    assert sent(broker) == [((b,), REFUSED, (job.id, REFUSED_BUSY))]
    assert broker.me not in job.holders


def test_jobs_that_others_hold_for_us_count_as_added():
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    _, job = add(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b, c)
    assert broker.stats.jobs_added == 1


def test_async_without_an_own_copy_waits_like_any_other():
    """The producer would get the id of a job that no node holds."""
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    producer, job = add(broker, 0, "ASYNC", "REPLICATE", 2)
    confirm(broker, job, b)
    assert producer.out == []
    confirm(broker, job, c)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert broker.job_count == 0


def test_async_never_answers_for_a_job_that_is_nowhere():
    """The only usable node has no link at the moment: a copy must be kept, or the job refused."""
    broker = make_broker()
    add_node(broker, is_linked=False)
    broker.membership.set_leaving(True)
    reply = ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "ASYNC", "REPLICATE", 1)
    assert reply.startswith(b"-NOREPL") or broker.job_count == 1 or sent_of(broker, REPLJOB)


# -- the nodes that are asked -----------------------------------------------------------------------------


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


def test_while_loading_messages_about_jobs_are_left_out():
    """No journal would hold a copy that was confirmed now. The sender repeats important messages. Spec Q32."""
    broker, b, _ = make_cluster()
    broker.is_loading = True
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert (broker.job_count, sent(broker)) == (0, [])
    broker.is_loading = False
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert broker.job_count == 1


def test_other_queues_are_not_paused():
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


def test_a_copy_is_queued_silently_when_its_creator_says_so():
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
def test_a_job_that_must_not_be_queued_is_not_queued_when_told_to(reason):
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


# -- stories ----------------------------------------------------------------------------------------------


def test_a_paused_replica_does_not_delay_the_producer():
    """The original sent the body again each 100 ms until the timeout."""
    world = World("abcd")
    world.join()
    world.ask("b", "PAUSE", "q", "in")
    for _ in range(5):
        before_ms = world.now_ms
        assert world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3).startswith(b"D-")
        assert world.now_ms - before_ms < 20
    assert world["b"].job_count == 0


def test_a_silent_replica_is_replaced():
    world = World("abcd")
    world.join()
    world.drop = lambda sender, receiver, kind, item: receiver == "b" and kind == REPLJOB
    for _ in range(5):
        before_ms = world.now_ms
        world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3)
        assert world.now_ms - before_ms <= 70


def test_suspected_nodes_get_no_copies():
    broker, b, c = make_cluster()
    b.flags |= PFAIL
    broker.cluster.refresh()
    _, job = add(broker, 0, "REPLICATE", 2)
    assert job.holders == {broker.me, c}
