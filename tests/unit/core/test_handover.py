"""core/handover.py: a job that goes to another node is neither lost nor delivered twice."""

from __future__ import annotations

import msgpack
import pytest

from brokers import add_node, ask, make_broker, make_client, pass_time
from cluster_bus.messages import (
    HINT,
    LEASED,
    NEEDJOBS,
    REFUSED_BUSY,
    REFUSED_DONE,
    REFUSED_LEAVING,
    SETACK,
    SETTLED,
    TOOK,
    YOURJOBS,
)
from cluster_bus.messages import QUEUED as JOB_QUEUED
from cluster_bus.node import FORGOTTEN
from copies import advance, deliver, hold_queued, pack, queue_of, say, sent, sent_of, snapshot
from disque_py import event_format
from disque_py.core import handover, lifecycle
from disque_py.core.event_packing import Noted
from disque_py.core.handover import REFUSED_MS, TAKEN, exchange
from disque_py.core.job import ACTIVE, GONE, QUEUED, Handover
from disque_py.core.job_snapshot import snapshot_of
from disque_py.node import dispatch
from handovers import TOOK_IT, fill, give_one, make_pair, pull, take
from world import World, joined


def test_a_retried_job_stays_as_a_copy_whose_other_holder_the_taker_is():
    broker, node, job = give_one()
    assert (job.state, job.holders) == (ACTIVE, {broker.me, node})
    assert isinstance(job.work, Handover)
    say(broker, node, TOOK, (1, TOOK_IT))
    assert (job.state, job.work) == (ACTIVE, None)
    assert abs(job.requeue_at_ms - broker.now_ms - 30_000) <= 250
    assert broker.stats.jobs_exported == 1


def test_an_at_most_once_job_is_kept_until_it_is_taken_and_then_forgotten():
    """Spec H2."""
    broker, node, job = give_one(retry_s=0)
    assert broker.find(job.id) is job
    say(broker, node, TOOK, (1, TOOK_IT))
    assert broker.find(job.id) is None


def test_a_given_at_most_once_job_names_only_its_taker():
    broker, node = make_pair()
    fill(broker, 1, retry_s=0)
    say(broker, node, NEEDJOBS, (b"q", 1, 0))
    ((_, (_, _, (job_snapshot,))),) = sent_of(broker, YOURJOBS)
    assert job_snapshot[4] == pack(node)


@pytest.mark.parametrize("retry_s", [0, 30])
def test_a_refused_job_is_in_its_queue_again_as_if_it_had_never_left(retry_s):
    broker, node, job = give_one(retry_s=retry_s)
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    assert queue_of(broker) == [job.id]
    assert (job.work, broker.queues[b"q"].jobs_in) == (None, 1)


@pytest.mark.parametrize("is_leased", [True, False])
def test_a_refused_job_that_another_node_has_meanwhile_is_not_queued_here(is_leased):
    """A holder doesn't queue a job before the end of the last lease of which it knows (spec L2)."""
    broker, node, job = give_one()
    other = add_node(broker, 3)
    if is_leased:
        say(broker, other, LEASED, (job.id, 20_000, 1, 5))
    else:
        say(broker, other, JOB_QUEUED, (job.id, 0, 0, 0, 1, 5))
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    assert (job.state, job.work, queue_of(broker)) == (ACTIVE, None, [])
    assert job.requeue_at_ms >= broker.now_ms + 20_000


def test_a_refused_job_is_owed_to_others_that_wait():
    """A hint is owed while there are jobs that a linked node has clients for (spec I4)."""
    broker, node, _ = give_one()
    other = add_node(broker, 3)
    broker.consumers.interest[b"q"] = broker.queues[b"q"].interested = {other: 1}
    advance(broker, 50)
    sent(broker)
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    advance(broker, REFUSED_MS + 20)
    assert (other,) in [nodes for nodes, _ in sent_of(broker, HINT)]


def test_a_job_that_the_taker_knows_as_done_waits_for_the_ack_that_follows():
    broker, node, job = give_one()
    say(broker, node, TOOK, (1, bytes([REFUSED_DONE])))
    assert (job.state, queue_of(broker)) == (ACTIVE, [])
    say(broker, node, SETACK, (job.id, pack(broker.me, node)))
    assert broker.find(job.id) is None


def test_answers_are_per_job():
    """Spec H3."""
    broker, node = make_pair()
    one, two, *_ = fill(broker, 4)
    pull(broker, node, 2)
    say(broker, node, TOOK, (1, bytes([REFUSED_BUSY, TAKEN])))
    assert one.id in queue_of(broker)
    assert two.state == ACTIVE


def test_an_unanswered_batch_is_sent_again_each_second_under_its_number():
    """Spec H4."""
    broker, node, job = give_one()
    for _ in range(3):
        advance(broker, 1010)
        ((_, (number, _, snapshots)),) = sent_of(broker, YOURJOBS)
        assert (number, snapshots[0][0]) == (1, job.id)
    say(broker, node, TOOK, (1, TOOK_IT))
    advance(broker, 3000)
    assert sent_of(broker, YOURJOBS) == []


def test_a_new_link_of_the_same_process_is_asked_at_once():
    broker, node, job = give_one()
    dispatch.link_up(broker, node)
    advance(broker, 5)
    ((receivers, (number, _, snapshots)),) = sent_of(broker, YOURJOBS)
    assert (receivers, number, snapshots[0][0]) == ((node,), 1, job.id)


def test_a_job_done_meanwhile_is_no_longer_offered():
    broker, node = make_pair()
    jobs = fill(broker, 4)
    ids, _ = pull(broker, node, 2)
    say(broker, node, SETACK, (ids[0], pack(broker.me, node)))
    sent(broker)
    advance(broker, 1010)
    ((_, (_, _, snapshots)),) = sent_of(broker, YOURJOBS)
    assert [snapshot and snapshot[0] for snapshot in snapshots] == [None, ids[1]]
    say(broker, node, TOOK, (1, bytes([REFUSED_DONE, TAKEN])))
    assert (jobs[0].state, jobs[1].state) == (GONE, ACTIVE)


def test_a_hand_over_of_which_nothing_is_left_is_over_and_keeps_no_job():
    """Otherwise a node that pulls and never answers would keep all jobs in memory that were ever offered to it."""
    broker, node, job = give_one()
    say(broker, node, SETACK, (job.id, pack(broker.me, node)))
    sent(broker)
    advance(broker, 1010)
    assert (sent_of(broker, YOURJOBS), exchange(node).pending) == ([], {})
    assert exchange(node).told_settled == 1
    say(broker, node, TOOK, (1, bytes([REFUSED_DONE])))
    assert job.state == GONE


def test_a_job_that_is_forgotten_keeps_no_body_even_if_a_hand_over_names_it():
    broker, _, job = give_one()
    lifecycle.forget(broker, job)
    assert (job.state, job.body) == (GONE, b"")


def test_an_answer_to_a_hand_over_that_is_over_is_ignored():
    broker, node, job = give_one()
    say(broker, node, TOOK, (1, TOOK_IT), (1, bytes([REFUSED_BUSY])), (77, TOOK_IT))
    assert job.state == ACTIVE
    assert broker.stats.reject_reasons == {"answer to a hand-over that is over": 2}


def test_the_taker_hears_the_settled_numbers_with_the_next_hand_over_or_after_a_second():
    broker, node = make_pair()
    fill(broker, 8)
    pull(broker, node, 1)
    say(broker, node, TOOK, (1, TOOK_IT))
    say(broker, node, NEEDJOBS, (b"q", 1, 0))
    ((_, (number, settled, _)),) = sent_of(broker, YOURJOBS)
    assert (number, settled) == (2, 1)
    say(broker, node, TOOK, (2, TOOK_IT))
    advance(broker, 1100)
    assert sent_of(broker, SETTLED) == [((node,), 2)]
    advance(broker, 5000)
    assert sent_of(broker, SETTLED) == []


def test_a_retried_job_is_requeued_by_its_retry_whatever_the_hand_overs_state():
    """Spec H8."""
    broker, node = make_pair()
    (job,) = fill(broker, 1, retry_s=5)
    pull(broker, node)
    advance(broker, 6000)
    assert job.state == QUEUED
    say(broker, node, TOOK, (1, TOOK_IT))
    assert queue_of(broker) == [job.id]


@pytest.mark.parametrize("event", [dispatch.new_run, dispatch.forgotten])
def test_when_the_taker_is_another_process_or_forgotten_the_hand_over_is_over(event):
    """An at-most-once job is lost rather than repeated. At-least-once jobs wait for their RETRY. Spec H7."""
    broker, node = make_pair()
    once, retried = hold_queued(broker, number=1, retry_s=0), hold_queued(broker, number=2, retry_s=5)
    for _ in range(2):
        pull(broker, node, 1)
    assert len(exchange(node).pending) == 2
    event(broker, node)
    assert (once.state, retried.state, retried.work) == (GONE, ACTIVE, None)
    assert broker.stats.once_lost_in_handover == 1
    assert exchange(node).pending == {}
    say(broker, node, TOOK, (1, bytes([REFUSED_BUSY])))
    advance(broker, 6000)
    assert queue_of(broker) == [retried.id]


@pytest.mark.parametrize("event", [dispatch.new_run, dispatch.forgotten])
def test_a_number_is_never_used_again(event):
    """The node may remember its answer to the old number, whatever happens to it. Spec H1."""
    broker, node = make_pair()
    fill(broker, 8)
    assert [pull(broker, node, 1)[1] for _ in range(2)] == [1, 2]
    event(broker, node)
    assert pull(broker, node, 1)[1] == 3


def test_answers_to_another_process_are_forgotten_and_to_a_forgotten_node_are_not():
    """Numbers hold for the giver's run; after FORGET and MEET the same process may ask again."""
    broker, node = make_pair()
    job_snapshot = snapshot(broker, node, retry_s=0)
    take(broker, node, job_snapshot)
    dispatch.forgotten(broker, node)
    deliver(broker)
    assert take(broker, node, job_snapshot) == TAKEN
    assert queue_of(broker) == []
    node.run = b"another!"
    dispatch.new_run(broker, node)
    assert exchange(node).answers == {}
    assert take(broker, node, snapshot(broker, node, number=7)) == TAKEN


def test_answers_stay_though_the_process_was_not_known_when_the_node_was_first_named():
    """It was forgotten before it was ever reached (CLUSTER RESET after a restart), and met again."""
    broker, node = make_pair()
    run, node.run, node.core = node.run or b"a run !!", b"", None
    dispatch.forgotten(broker, node)
    node.run = run
    job_snapshot = snapshot(broker, node, retry_s=0)
    take(broker, node, job_snapshot)
    deliver(broker)
    ask(broker, make_client(broker), "DEBUG", "FLUSHALL")
    dispatch.forgotten(broker, node)
    assert take(broker, node, job_snapshot) == TAKEN
    assert queue_of(broker) == []
    node.run = b"another!"
    dispatch.new_run(broker, node)
    assert exchange(node).answers == {}


# -- at-most-once jobs of which we keep no copy --------------------------------------------------------------


def start_once(*, count=1, timeout_ms=0, delay_s=0):
    """We leave; a producer adds an at-most-once job."""
    broker = make_broker()
    nodes = [add_node(broker, number) for number in range(2, 2 + count)]
    broker.membership.set_leaving(True)
    producer = make_client(broker)
    words = ("ADDJOB", "q", "body", timeout_ms, "RETRY", 0, "DELAY", delay_s)
    assert ask(broker, producer, *words) == b""
    (job,) = [job for shard in broker.shards for job in shard.values()]
    return broker, nodes[0], producer, job


def test_an_at_most_once_job_is_answered_when_another_node_has_taken_it():
    """The original answered, and the job was never delivered (spec Q3, Q39, O6)."""
    broker, node, producer, job = start_once(delay_s=2)
    ((_, (number, _, (job_snapshot,))),) = sent_of(broker, YOURJOBS)
    assert job_snapshot[4:] == (pack(node), 2000)
    assert producer.out == []
    say(broker, node, TOOK, (number, TOOK_IT))
    assert producer.out == [b"+%b\r\n" % job.id]
    assert (broker.job_count, broker.waits.blocked_count, broker.stats.jobs_added) == (0, 0, 1)


def test_a_refused_at_most_once_job_goes_to_another_node_and_at_last_fails():
    broker, _, producer, job = start_once(count=2)
    asked = []
    for _ in range(2):
        (((node,), (number, *_)),) = sent_of(broker, YOURJOBS)
        asked.append(node)
        assert producer.out == []
        say(broker, node, TOOK, (number, bytes([REFUSED_LEAVING])))
    assert len(set(asked)) == 2
    assert producer.out[0].startswith(b"-NOREPL")
    assert (job.state, broker.job_count, broker.waits.blocked_count) == (GONE, 0, 0)


def test_a_producer_is_answered_at_its_timeout():
    broker, _, producer, _ = start_once(timeout_ms=500)
    advance(broker, 490)
    assert producer.out == []
    advance(broker, 30)
    assert producer.out == [b"-NOREPL Timeout reached before replicating to the requested number of nodes\r\n"]
    assert (broker.job_count, broker.waits.blocked_count) == (0, 0)


def test_a_job_whose_producer_is_gone_is_an_ordinary_job():
    """The other node may already have taken it."""
    broker, node, producer, job = start_once()
    dispatch.disconnect(broker, producer)
    assert broker.waits.blocked_count == 0
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    assert queue_of(broker) == [job.id]
    assert (job.was_queued, broker.queue(b"q").jobs_in) == (True, 1)  # For the first time.


def test_a_job_whose_taker_died_is_not_given_to_another_process():
    """The dead process may have delivered it. The producer gets an error, or the job goes to another node."""
    broker, node, producer, job = start_once()
    sent(broker)
    node.flags |= FORGOTTEN
    broker.cluster.usable = ()
    dispatch.forgotten(broker, node)
    assert producer.out[0].startswith(b"-NOREPL")
    assert job.state == GONE


def test_a_producer_is_answered_when_its_job_comes_back():
    """It had been taken there, and the producer waits to hear that. The answer itself was lost with a link."""
    broker, node, producer, job = start_once()
    broker.membership.set_leaving(False)
    say(broker, node, YOURJOBS, (1, 0, [snapshot_of(broker, job)]))
    assert producer.out == [b"+%b\r\n" % job.id]


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_producer_hears_of_its_job_with_the_event_that_it_was_added(comes_back):
    """It is back, or done, before the answer. So it had been taken, and this node says that it was added."""
    broker, node, producer, job = start_once()
    broker.membership.set_leaving(False)
    broker.events = Noted()
    if comes_back:
        say(broker, node, YOURJOBS, (1, 0, [snapshot_of(broker, job)]))
    else:
        ask(broker, make_client(broker), "ACKJOB", job.id)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert broker.stats.jobs_added == 1
    (payload, _), *_ = broker.events.take()
    assert msgpack.unpackb(payload)[0][:2] == [event_format.ADDED, job.id]


# -- stories -------------------------------------------------------------------------------------------------


def test_a_lost_hand_over_costs_a_second():
    world = World("ab")
    world.join()
    world.drop = lambda sender, receiver, kind, item: kind == YOURJOBS
    consumer = world.client("b")
    consumer.say("GETJOB", "FROM", "q")
    world.run(100)
    world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    world.run(500)
    world.drop = None
    world.run(700)
    assert len(consumer.replies) == 1


def test_a_node_that_was_reset_hard_answers_the_first_hand_over_to_its_new_self():
    """Others number from one again. The answer to the old first number would lose the new job (simulator, seed 53)."""
    broker, node = make_pair()
    assert take(broker, node, snapshot(broker, node)) == TAKEN
    assert exchange(node).answers
    assert ask(broker, make_client(broker), "CLUSTER", "RESET", "HARD") == b"+OK\r\n"
    state = exchange(node)
    assert (state.answers, state.answers_from) == ({}, 1)


def test_links_that_come_up_again_and_again_add_no_timers():
    broker, node, _ = give_one(retry_s=0)
    for _ in range(50):
        dispatch.link_up(broker, node)
        advance(broker, 300)
    looks = 0
    for _ in range(1_000):
        pass_time(broker, 1)
        for task in broker.schedule.due_tasks(200):
            looks += getattr(task, "func", None) is handover.resend
            task()
    assert looks <= 5  # Four per second.


def test_a_node_does_not_spin_for_an_at_most_once_job_whose_producer_hung_up():
    """The timer was set again and again for the moment at which the producer would have been answered."""
    world = joined("ab")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(500)
    world.drop = lambda sender, receiver, kind, item: kind == TOOK
    producer = world.client("a")
    producer.say("ADDJOB", "q", "body", 2_000, "RETRY", 0)
    world.run(500)
    producer.hang_up()
    world.run(500)
    machine = world.machines["a"]
    before = machine.ticks
    world.run(1_000)
    usual = machine.ticks - before
    world.run(2_000)
    before = machine.ticks
    world.run(1_000)
    assert machine.ticks - before <= 3 * usual
