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
    LEFT,
    LEFT_OK,
    QUEUED_RELEASED,
    REFUSED,
    REFUSED_PAUSED,
    REPLJOB,
)
from cluster_bus.messages import QUEUED as QUEUED_MESSAGE
from cluster_bus.node import PFAIL
from copies import add_waiting, advance, confirm, make_id, pack, queue_of, say, sent, sent_of
from disque_py.core import events, leaving, producer_waits, replication
from disque_py.core.client import RUNNING, WAITS_FOR_COPIES
from disque_py.core.job import ACTIVE, QUEUED, WAIT_REPL
from disque_py.core.replication import EXTEND_MS, KNOWN, MOVING
from disque_py.event_format import RUNNING as RUNNING_EVENT
from disque_py.node import dispatch
from world import World, joined

# -- the creator ----------------------------------------------------------------------------------------


def test_the_answer_waits_for_the_last_copy():
    """Spec C2."""
    broker, b, c = make_cluster()
    producer, job = add_waiting(broker)
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
    producer, job = add_waiting(broker)
    confirm(broker, job, b)
    say(broker, b, LEASED, (job.id, 10_000, 1))
    assert job.state == WAIT_REPL
    confirm(broker, job, c)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert (job.state, events.status_of(job), job.attempt) == (ACTIVE, RUNNING_EVENT, 1)
    assert job.requeue_at_ms >= broker.now_ms + 10_000
    advance(broker, 12_000)
    assert job.state == QUEUED


def test_a_delivery_of_a_copy_that_has_ended_does_not_keep_the_job_from_its_queue():
    """Spec L2: a NACK ended the lease before the last copy was confirmed."""
    broker, b, c = make_cluster()
    _, job = add_waiting(broker)
    say(broker, b, LEASED, (job.id, 10_000, 1))
    say(broker, b, QUEUED_MESSAGE, (job.id, QUEUED_RELEASED, 1, 1, 0))
    confirm(broker, job, b, c)
    assert job.state == QUEUED


def test_the_same_node_confirming_twice_is_one_copy():
    broker, b, _ = make_cluster()
    producer, job = add_waiting(broker)
    confirm(broker, job, b, b, b)
    assert producer.out == []


def test_the_job_is_queued_only_when_all_copies_are_confirmed():
    """A consumer must not get a job whose producer may still be refused."""
    broker, b, _ = make_cluster()
    consumer = make_client(broker)
    ask(broker, consumer, "GETJOB", "FROM", "q")
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    dispatch.settle(broker)
    assert consumer.out == []
    confirm(broker, job, *job.holders - {broker.me, b}, b)
    dispatch.settle(broker)
    assert job.id in consumer.out[0]


def test_a_late_confirmation_is_ignored():
    broker, b, c = make_cluster()
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b)
    confirm(broker, job, c)
    assert (job.state, broker.stats.jobs_added) == (QUEUED, 1)
    say(broker, c, GOTJOB, make_id(), (make_id(), 1))


def test_a_delayed_job_waits_for_its_delay_after_its_copies():
    broker, b, c = make_cluster()
    _, job = add_waiting(broker, 0, "DELAY", 5, "RETRY", 60)
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
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
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
    _, job = add_waiting(broker, 0, "REPLICATE", 3)
    ((asked, _),) = sent_of(broker, REPLJOB)
    confirm(broker, job, asked[0])
    advance(broker, 70)
    messages = sent(broker)
    assert [kind for _, kind, _ in messages] == [REPLJOB, HOLDERS]
    assert messages[0][0][0] in set(nodes) - set(asked)
    assert messages[1] == ((asked[0],), HOLDERS, (job.id, pack(*job.holders)))


def test_without_another_node_silent_ones_are_asked_again_each_second():
    broker, b, c = make_cluster()
    _, job = add_waiting(broker)
    confirm(broker, job, b)
    sent(broker)
    advance(broker, 900)
    assert sent_of(broker, REPLJOB) == []
    advance(broker, 300)
    assert [nodes for nodes, _ in sent_of(broker, REPLJOB)] == [(c,)]


def test_after_a_refusal_another_node_is_asked_at_once():
    """Spec C3."""
    broker, *nodes = make_cluster(3)
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    (((first,), _),) = sent_of(broker, REPLJOB)
    say(broker, first, REFUSED, (job.id, REFUSED_PAUSED))
    (((second,), _),) = sent_of(broker, REPLJOB)
    assert second in set(nodes) - {first}
    assert broker.stats.refusals_received == 1


def test_a_refusal_of_a_job_that_needs_no_more_copies_is_ignored():
    broker, b, c = make_cluster()
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b)
    sent(broker)
    say(broker, c, REFUSED, (job.id, REFUSED_PAUSED), (make_id(), REFUSED_PAUSED))
    assert sent(broker) == []


def test_a_producer_with_the_default_number_of_copies_does_not_wait_for_a_lost_node():
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
def test_at_the_deadline_the_producer_gets_an_error_and_the_job_is_deleted_everywhere(timeout_ms):
    """The deadline is exact to the timer's grain. The original needed up to a second (spec Q26)."""
    broker, b, c = make_cluster()
    producer, job = add_waiting(broker, timeout_ms)
    sent(broker)
    advance(broker, timeout_ms - 1)
    assert producer.out == []
    advance(broker, 18)
    assert producer.out == [producer_waits.NOREPL_TIMEOUT]
    assert sent_of(broker, DELJOB) == [((b, c), (job.id, None))]
    assert (broker.job_count, broker.waits.blocked_count, broker.stats.replication_timeouts) == (0, 0, 1)


def test_a_timeout_of_zero_waits_without_a_limit():
    broker, *_ = make_cluster()
    producer, _ = add_waiting(broker, 0)
    advance(broker, 60_000)
    assert producer.out == []


def test_the_job_of_a_producer_that_hangs_up_is_deleted():
    broker, b, c = make_cluster()
    producer, job = add_waiting(broker)
    sent(broker)
    dispatch.disconnect(broker, producer)
    assert sent(broker) == [((b, c), DELJOB, (job.id, None))]
    assert (broker.job_count, broker.waits.blocked_count, broker.copies.waiting_repl) == (0, 0, {})


def test_a_job_that_expires_while_it_misses_copies_is_refused():
    broker, *_ = make_cluster()
    producer, _ = add_waiting(broker, 0, "TTL", 1)
    advance(broker, 1100)
    assert producer.out == [producer_waits.NOREPL_REMOVED]


def test_a_new_link_gets_the_jobs_that_the_old_one_may_have_lost():
    broker, b, c = make_cluster()
    _, job = add_waiting(broker)
    confirm(broker, job, b)
    sent(broker)
    for node in (b, c):
        dispatch.link_up(broker, node)
    assert [nodes for nodes, _ in sent_of(broker, REPLJOB)] == [(c,)]


# -- ASYNC and external replication -----------------------------------------------------------------------


def test_async_is_answered_at_once_and_needs_no_confirmation():
    broker, b, c = make_cluster()
    job_id = ask_parsed(broker, make_client(broker), "ADDJOB", "q", "body", 0, "ASYNC")
    ((receivers, (job_snapshot, flags)),) = sent_of(broker, REPLJOB)
    assert (receivers, job_snapshot[4], flags) == ((b, c), pack(broker.me, b, c), replication.NO_ANSWER)
    assert queue_of(broker) == [job_id]


def test_without_an_own_copy_a_confirmed_node_is_told_to_queue_the_job():
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    producer, job = add_waiting(broker, 0, "REPLICATE", 2, "DELAY", 3)
    assert sent_of(broker, REPLJOB)[0][1][0][4] == pack(b, c)
    confirm(broker, job, b, c)
    (((chosen,), item),) = sent_of(broker, ENQUEUE)
    assert chosen in (b, c)
    assert item == (job.id, 3000)
    assert (producer.out, broker.job_count) == ([b"+%b\r\n" % job.id], 0)


def test_an_external_creator_tells_all_asked_nodes_of_later_ones():
    """
    Its confirmation was in transit when another node was asked, and soon no node will know both. The first one would
    believe that it is the only holder. It would forget the job with its ack, and the other one would queue it again.
    """
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    _, job = add_waiting(broker, 0, "REPLICATE", 1)
    ((first,), _) = sent_of(broker, REPLJOB)[0]
    advance(broker, EXTEND_MS)
    assert job.holders == {b, c}
    assert sent_of(broker, HOLDERS) == [((first,), (job.id, pack(b, c)))]


def test_an_external_creator_counts_anew_when_a_copy_may_be_the_one_of_another_holder():
    """Spec C5: b left and gave its copy to c. It did not know the creator, which holds no copy (seed 3359)."""
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    producer, job = add_waiting(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b)
    sent(broker)
    say(broker, c, GOTJOB, (job.id, KNOWN))
    assert [nodes for nodes, _ in sent_of(broker, REPLJOB)] == [(b,)]
    assert (producer.out, job.work.confirmed) == ([], (c,))
    say(broker, b, GOTJOB, (job.id, KNOWN))
    assert producer.out == [b"+%b\r\n" % job.id]


def test_an_external_creator_counts_the_node_that_took_a_copy_and_tells_the_holders():
    """Spec C5: otherwise d and the node that took the copy would not know of each other (seed 11813)."""
    broker, b, c = make_cluster()
    d = add_node(broker, 4)
    broker.membership.set_leaving(True)
    producer, job = add_waiting(broker, 0, "REPLICATE", 2)
    job.holders = broker.sets.of([b, d])
    confirm(broker, job, b)
    sent(broker)
    say(broker, b, LEFT, (job.id, b.id, c.id, pack(b, c), 0))
    assert job.holders == {c, d}
    assert sent(broker) == [((c, d), HOLDERS, (job.id, pack(c, d))), ((b,), LEFT_OK, (job.id, leaving.HAS_NOT))]
    confirm(broker, job, d)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert set(sent_of(broker, ENQUEUE)[0][0]) <= {c, d}


def test_each_node_is_asked_again_once():
    """Otherwise nodes whose answers cross would be asked in turn for ever."""
    broker, b, c = make_cluster()
    d = add_node(broker, 4)
    broker.membership.set_leaving(True)
    producer, job = add_waiting(broker, 0, "REPLICATE", 3)
    confirm(broker, job, b)
    say(broker, c, GOTJOB, (job.id, KNOWN))
    say(broker, d, GOTJOB, (job.id, KNOWN))
    assert [nodes for nodes, _ in sent_of(broker, REPLJOB)][1:] == [(b,), (c,)]
    say(broker, b, GOTJOB, (job.id, KNOWN))
    say(broker, c, GOTJOB, (job.id, KNOWN))
    assert sent_of(broker, REPLJOB) == []
    assert producer.out == [b"+%b\r\n" % job.id]


def test_a_known_copy_at_a_node_that_leaves_does_not_count():
    """Spec C5: it may be on its way to a node that is asked, too."""
    broker, *_ = make_cluster()
    producer, job = add_waiting(broker, 0, "REPLICATE", 2)
    ((first,), _) = sent_of(broker, REPLJOB)[0]
    say(broker, first, GOTJOB, (job.id, MOVING))
    assert producer.out == []
    ((second,), _) = sent_of(broker, REPLJOB)[0]
    assert second is not first
    confirm(broker, job, second)
    assert producer.out == [b"+%b\r\n" % job.id]


def test_a_copy_that_moves_counts_at_the_node_that_took_it():
    """Spec C5."""
    broker, *_ = make_cluster()
    add_node(broker, 4)
    producer, job = add_waiting(broker, 0, "REPLICATE", 3)
    b, c = sent_of(broker, REPLJOB)[0][0]
    d = next(node for node in broker.cluster.usable if node not in (b, c))
    confirm(broker, job, b)
    say(broker, b, LEFT, (job.id, b.id, d.id, pack(broker.me, b, c, d)))
    assert (job.work.confirmed, producer.out) == ((broker.me, d), [])
    say(broker, d, GOTJOB, (job.id, KNOWN))
    assert producer.out == []
    confirm(broker, job, c)
    assert producer.out == [b"+%b\r\n" % job.id]


def test_externally_replicated_jobs_count_as_added():
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    confirm(broker, job, b, c)
    assert broker.stats.jobs_added == 1


def test_async_without_an_own_copy_waits_like_any_other():
    """The producer would get the id of a job that no node holds."""
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    producer, job = add_waiting(broker, 0, "ASYNC", "REPLICATE", 2)
    confirm(broker, job, b)
    assert producer.out == []
    confirm(broker, job, c)
    assert producer.out == [b"+%b\r\n" % job.id]
    assert broker.job_count == 0


def test_async_is_not_answered_for_a_job_that_no_node_has():
    """The only usable node has no link at the moment: a copy must be kept, or the job refused."""
    broker = make_broker()
    add_node(broker, is_linked=False)
    broker.membership.set_leaving(True)
    reply = ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "ASYNC", "REPLICATE", 1)
    assert reply.startswith(b"-NOREPL") or broker.job_count == 1 or sent_of(broker, REPLJOB)


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
    _, job = add_waiting(broker, 0, "REPLICATE", 2)
    assert job.holders == {broker.me, c}


def begin_leaving(seed, lost, retry):
    """An ADDJOB at a node that leaves, and so keeps no copy. The third copy does not arrive."""
    world = joined("abcd", seed=seed)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(1_000)
    world.drop = lambda sender, receiver, kind, _: kind == lost and "d" in (sender, receiver)
    producer = world.client("a")
    producer.say("ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", retry)
    return world, producer


@pytest.mark.parametrize("lost", [GOTJOB, REPLJOB])
@pytest.mark.parametrize("seed", range(4))
def test_a_creator_without_a_copy_does_not_queue_a_job_that_a_holder_has_queued_meanwhile(seed, lost):
    """Spec L2, L6. The copies took longer than RETRY."""
    world, producer = begin_leaving(seed, lost, retry=2)
    workers = [world.client(name) for name in "bcd"]
    for worker in workers:
        worker.say("GETJOB", "FROM", "q")
    world.until(lambda: any(worker.replies for worker in workers), 20_000)
    world.run(300)
    assert not producer.replies
    world.drop = None
    world.until(lambda: bool(producer.replies), 1_500)
    world.run(100)
    assert sum(len(worker.replies) for worker in workers) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_creator_without_a_copy_lets_a_linked_holder_queue_a_job_whose_copies_took_long(seed):
    """The first holder that confirmed is dead."""
    world, producer = begin_leaving(seed, REPLJOB, retry=30)
    world.run(2_000)
    (job,) = list(world["a"].copies.waiting_repl)
    dead = next(name for name in "bcd" if world[name].me.id == job.work.confirmed[0].id)
    world.crash(dead)
    world.run(15_000)
    world.add("e")
    world.meet("d", "e")
    world.drop = None
    world.until(lambda: bool(producer.replies), 8_000)
    workers = [world.client(name) for name in "bcde" if name != dead]
    for worker in workers:
        worker.say("GETJOB", "FROM", "q")
    world.run(1_000)
    assert sum(len(worker.replies) for worker in workers) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_creator_without_a_copy_lets_no_dead_holder_queue_the_job(seed):
    """Spec C2. The holder had confirmed its copy, and died before the last copy was made."""
    world, producer = begin_leaving(seed, REPLJOB, retry=300)
    world.run(500)
    world.crash("b")
    world.run(500)
    world.drop = None
    world.until(lambda: bool(producer.replies), 8_000)
    workers = [world.client(name) for name in "cd"]
    for worker in workers:
        worker.say("GETJOB", "FROM", "q")
    world.run(5_000)
    assert sum(len(worker.replies) for worker in workers) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_creator_without_a_copy_measures_the_time_of_its_copies_without_the_wall_clock(seed):
    """Spec T1. Copies that took long are queued by the first holder, and a clock that went back hid that."""
    world, producer = begin_leaving(seed, REPLJOB, retry=30)
    world.run(2_000)
    [job] = world["a"].copies.waiting_repl
    first = job.work.confirmed[0]
    world.run(15_000)
    world.machines["a"].wall_offset_ms = -60_000
    world.drop = None
    world.until(lambda: bool(producer.replies), 8_000)
    world.run(10)
    queued = [name for name in "bcd" if world[name].find(job.id).state == QUEUED]
    assert [world[name].me.id for name in queued] == [first.id]


def test_one_full_node_of_three_stops_no_producer_that_names_no_number():
    """Spec C1. Its jobs get two copies, and three again when the node has room."""
    world = joined()
    filling = world.ask("b", "ADDJOB", "filling", b"x" * 1_000_000, 0, "REPLICATE", 1)
    world.ask("b", "CONFIG", "SET", "maxmemory", world["b"].used_memory)
    world.run(300)
    assert [_copies(world, world.ask("a", "ADDJOB", "q", "x", 5_000)) for _ in range(5)] == [2] * 5
    assert str(world.ask("a", "ADDJOB", "q", "x", 500, "REPLICATE", 3)).startswith("NOREPL")
    world.ask("b", "DELJOB", filling)
    world.run(300)
    assert _copies(world, world.ask("a", "ADDJOB", "q", "x", 5_000)) == 3


def test_one_failing_disk_of_three_stops_no_producer_that_names_no_number():
    """Spec C1. A producer that waits when the disk fails gets its answer as soon as the other nodes know."""
    world = World("ac")
    world.add("b", journal="everysec")
    world.join()
    world.machines["b"].journal_storage.folder.fail("write sync create write_synced sync_window prepare", 28, times=-1)
    world.client("b").say("ADDJOB", "other", "x", 0, "REPLICATE", 1)
    world.run(3_000)
    assert world["b"].journal.disk_level
    assert [_copies(world, world.ask("a", "ADDJOB", "q", "x", 5_000)) for _ in range(5)] == [2] * 5


def _copies(world, job_id):
    return sum(machine.broker.find(job_id) is not None for machine in world.machines.values())
