"""core/acks.py: an acknowledged job is forgotten only when every node that may hold it knows."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, make_cluster
from cluster_bus.messages import DELJOB, GOTACK, HOLDERS, REPLJOB, RESULT, SETACK, TOOK
from cluster_bus.node import FORGOTTEN
from copies import advance, deliver, hold, hold_queued, make_id, pack, say, sent, sent_of, snapshot
from disque_py.core import acks, client_acks
from disque_py.core.changing import OUTCOME_DOUBTED
from disque_py.core.job import ACKED, JOB_BYTES, Cancellation
from world import World, joined


def ack(broker, job):
    count = client_acks.ack_here(broker, job.id)
    return count, sent(broker)


def test_when_all_have_confirmed_it_is_over_everywhere():
    """Spec A3."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    ack(broker, job)
    all_three = pack(broker.me, b, c)
    say(broker, b, GOTACK, (job.id, all_three, 1))
    assert sent(broker) == []
    assert broker.find(job.id) is job
    say(broker, c, GOTACK, (job.id, all_three, 1))
    assert sent(broker) == [((b, c), DELJOB, (job.id, all_three))]
    assert broker.find(job.id) is None
    assert job.id in broker.tombstones


def test_a_holder_that_reports_a_new_copy_gets_the_ack_again():
    """Spec A5: it knew of the ack, was flushed, and took the job from a holder that had not heard of the ack."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    ack(broker, job)
    all_three = pack(broker.me, b, c)
    say(broker, b, HOLDERS, (job.id, all_three))
    assert sent(broker) == []
    say(broker, b, GOTACK, (job.id, all_three, 1))
    say(broker, b, HOLDERS, (job.id, all_three))
    assert [(nodes, item[:2]) for nodes, item in sent_of(broker, SETACK)] == [((b, c), (job.id, all_three))]
    assert acks.confirmed_by(job) == frozenset()


def test_sets_of_equal_size_may_differ():
    """The original compared sizes, so an ack could stay local and the job came back (spec Q1, A1)."""
    broker, b, c = make_cluster()
    job = hold(broker, b)
    ack(broker, job)
    say(broker, b, GOTACK, (job.id, pack(b, c), 1))
    assert job.holders == {broker.me, b, c}
    assert sent_of(broker, SETACK) == [((c,), (job.id, pack(broker.me, b, c), 2))]
    assert broker.find(job.id) is job
    say(broker, c, GOTACK, (job.id, pack(broker.me, b, c), 1))
    assert broker.find(job.id) is None


def test_a_confirmation_counts_only_if_the_question_named_the_answering_node():
    """`Not a holder` may become false, because a copy may be in transit (spec A4)."""
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    ack(broker, job)
    say(broker, b, GOTACK, (job.id, pack(broker.me, b), 0))
    assert acks.confirmed_by(job) == frozenset()
    assert broker.find(job.id) is job


def test_a_silent_holder_is_asked_again_with_growing_gaps():
    broker, b, _ = make_cluster()
    job = hold(broker, b, ttl_s=864_000)
    client_acks.ack_here(broker, job.id)
    gaps, last_ms = [], broker.now_ms
    sent(broker)
    while len(gaps) < 11:
        advance(broker, 50)
        if sent_of(broker, SETACK):
            gaps.append((broker.now_ms - last_ms) / 1000)
            last_ms = broker.now_ms
        elif gaps and len(gaps) > 8:
            advance(broker, 1000)
    expected = [1, 2, 4, 8, 16, 32, 64, 128, 180, 180, 180]
    assert all(abs(gap - wanted) < 2 for gap, wanted in zip(gaps, expected, strict=True)), gaps


def test_answers_do_not_lengthen_the_pause_before_a_silent_holder_is_asked_again():
    """The silent holder may be reading its journal, and answer in a moment."""
    broker, *others = make_cluster(6)
    job = hold(broker, *others, ttl_s=864_000)
    client_acks.ack_here(broker, job.id)
    for number, node in enumerate(others[1:]):
        new = add_node(broker, 20 + number)
        say(broker, node, GOTACK, (job.id, pack(broker.me, *others, new), 1))
        say(broker, new, GOTACK, (job.id, pack(broker.me, *others, new), 1))
    sent(broker)
    advance(broker, 1_100)
    assert [nodes for nodes, _ in sent_of(broker, SETACK)] == [(others[0],)]


def test_a_holder_without_a_link_is_not_asked_but_waited_for():
    broker, b, c = make_cluster()
    c.is_linked = False
    job = hold(broker, b, c)
    assert ack(broker, job)[1] == [((b,), SETACK, (job.id, pack(broker.me, b, c), 2))]
    say(broker, b, GOTACK, (job.id, pack(broker.me, b, c), 1))
    assert broker.find(job.id) is job


def test_a_forgotten_member_counts_as_confirmed():
    """Spec A8."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    client_acks.ack_here(broker, job.id)
    say(broker, b, GOTACK, (job.id, pack(broker.me, b, c), 1))
    broker.membership.forget(c)
    advance(broker, 2000)
    assert broker.find(job.id) is None


def test_an_acknowledged_record_ends_with_its_ttl():
    broker, b, _ = make_cluster()
    job = hold(broker, b, ttl_s=100)
    client_acks.ack_here(broker, job.id)
    advance(broker, 100_050)
    assert broker.find(job.id) is None
    assert broker.stats.jobs_expired == 0


# -- SETACK -------------------------------------------------------------------------------------------


def test_an_ack_from_elsewhere_takes_the_job_out_of_the_queue():
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c)
    say(broker, b, SETACK, (job.id, pack(broker.me, b, c)))
    assert (job.state, broker.queues[b"q"].length) == (ACKED, 0)
    assert sent(broker) == [((b,), GOTACK, (job.id, pack(broker.me, b, c), 1))]


def test_an_ack_from_the_only_other_holder_ends_the_collection():
    """It has confirmed with its SETACK. Spec A13."""
    broker, b, _ = make_cluster()
    job = hold_queued(broker, b)
    say(broker, b, SETACK, (job.id, pack(broker.me, b)))
    assert (broker.find(job.id), broker.queues[b"q"].length) == (None, 0)
    assert sent(broker) == [((b,), DELJOB, (job.id, pack(broker.me, b)))]


def test_an_ack_that_is_told_again_after_the_collection_is_answered_with_its_end():
    """The DELJOB was lost. Spec A13."""
    broker, b, _ = make_cluster()
    job = hold_queued(broker, b)
    for _ in range(2):
        say(broker, b, SETACK, (job.id, pack(broker.me, b)))
    assert sent(broker) == [((b,), DELJOB, (job.id, pack(broker.me, b)))] * 2
    assert broker.find(job.id) is None


def test_an_ack_that_crosses_the_end_of_a_collection_is_answered_with_that_end():
    """Spec A14: its sender has not read the DELJOB yet. An ack that is kept again would be collected again."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    all_three = pack(broker.me, b, c)
    say(broker, b, SETACK, (job.id, all_three))
    say(broker, b, DELJOB, (job.id, all_three))
    sent(broker)
    say(broker, c, SETACK, (job.id, all_three))
    assert sent(broker) == [((c,), DELJOB, (job.id, all_three))]
    assert broker.find(job.id) is None


def test_the_end_of_a_collection_is_remembered_until_other_holders_ask():
    """Seed 8376. With a short node timeout six holders kept each other's acks again, in turns, for ever. Spec A14."""
    broker, b, c = make_cluster()
    ask(broker, make_client(broker), "CONFIG", "SET", "cluster-node-timeout", 1)
    job = hold(broker, b, c)
    all_three = pack(broker.me, b, c)
    say(broker, b, SETACK, (job.id, all_three))
    say(broker, b, DELJOB, (job.id, all_three))
    advance(broker, 5_000)
    sent(broker)
    say(broker, c, SETACK, (job.id, all_three))
    assert sent(broker) == [((c,), DELJOB, (job.id, all_three))]


def test_the_node_that_ended_a_collection_answers_with_its_end_too():
    """Spec A14."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    client_acks.ack_here(broker, job.id)
    all_three = pack(broker.me, b, c)
    for node in (b, c):
        say(broker, node, GOTACK, (job.id, all_three, 1))
    sent(broker)
    say(broker, b, SETACK, (job.id, pack(broker.me, b)))
    assert sent(broker) == [((b,), DELJOB, (job.id, all_three))]


def test_an_ack_with_a_holder_that_did_not_confirm_is_kept_after_the_end_of_a_collection():
    """Spec A14: the holder may hand the job over to this node, long after the tombstone is gone."""
    broker, b, c = make_cluster()
    job = hold(broker, b)
    say(broker, b, SETACK, (job.id, pack(broker.me, b)))
    sent(broker)
    all_three = pack(broker.me, b, c)
    say(broker, b, SETACK, (job.id, all_three))
    assert sent(broker) == [((b,), GOTACK, (job.id, all_three, 1))]
    assert broker.find(job.id).state == ACKED


def test_a_forgotten_node_has_confirmed_in_no_collection():
    """Spec A8, A14: it may come back with its copy, so an ack that names it is kept."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    client_acks.ack_here(broker, job.id)
    c.flags |= FORGOTTEN
    broker.cluster.has_forgotten = True
    broker.sets.forget_packed()
    say(broker, b, GOTACK, (job.id, pack(broker.me, b, c), 1))
    assert broker.find(job.id) is None
    c.flags &= ~FORGOTTEN
    broker.sets.forget_packed()
    say(broker, b, SETACK, (job.id, pack(broker.me, b, c)))
    assert broker.find(job.id).state == ACKED


def test_a_result_for_which_a_client_waits_is_kept_with_its_ack_after_the_end_of_a_collection():
    """Spec RW1, RW10: the collection that ended here had no result."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    all_three = pack(broker.me, b, c)
    say(broker, b, SETACK, (job.id, all_three))
    say(broker, b, DELJOB, (job.id, all_three))
    broker.ends.watched[job.id] = None
    say(broker, c, RESULT, (job.id, b"42", 3, c.id))
    say(broker, c, SETACK, (job.id, all_three, 3))
    assert broker.results.get(job.id) == b"42"


def test_an_ack_from_a_node_that_holds_nothing_ends_no_collection():
    """Spec A13."""
    broker, b, c = make_cluster()
    job = hold_queued(broker, b)
    say(broker, c, SETACK, (job.id, pack(broker.me, b)))
    assert job.state == ACKED


def test_an_ack_whose_ttl_ends_within_a_second_has_a_timer_of_its_own():
    """The shared line of first repetitions would be too late for it."""
    broker, b, _ = make_cluster()
    job = hold(broker, b, ttl_s=1, retry_s=0)
    advance(broker, 500)
    client_acks.ack_here(broker, job.id)
    assert (job.awake_at_ms, bool(broker.acks.asked)) == (job.expire_at_ms, False)
    advance(broker, 540)
    assert broker.find(job.id) is None


def test_the_collector_asks_again_before_the_nodes_that_were_told():
    """Otherwise a lost answer would make every node ask every other."""
    broker, b, c = make_cluster()
    mine, theirs = hold(broker, b, c, number=1), hold(broker, b, c, number=2)
    client_acks.ack_here(broker, mine.id)
    say(broker, b, SETACK, (theirs.id, pack(broker.me, b, c)))
    sent(broker)
    advance(broker, 1_200)
    assert [item[0] for _, item in sent_of(broker, SETACK)] == [mine.id]
    advance(broker, 300)
    assert [item[0] for _, item in sent_of(broker, SETACK)] == [theirs.id]


def test_the_receiver_looks_after_the_ack_if_the_collector_does_not_end_it():
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    say(broker, b, SETACK, (job.id, pack(broker.me, b, c), 1))
    sent(broker)
    advance(broker, 700)
    assert sent(broker) == []
    advance(broker, 600)
    assert sent_of(broker, SETACK) == [((b, c), (job.id, pack(broker.me, b, c), 1))]


def test_a_setack_without_a_known_holder_makes_the_receiver_collect_too():
    """
    The sender knows itself and us; we know a third node. The sets are merged, and no node
    may delete the job before the third has confirmed: it would queue it again.
    """
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    say(broker, b, SETACK, (job.id, pack(broker.me, b), 1))
    all_three = pack(broker.me, b, c)
    assert sent(broker) == [((b,), GOTACK, (job.id, all_three, 1)), ((b, c), SETACK, (job.id, all_three, 1))]


def test_a_setack_with_an_unknown_holder_is_merged():
    """Spec A2."""
    broker, b, c = make_cluster()
    job = hold(broker, b)
    say(broker, b, SETACK, (job.id, pack(broker.me, b, c)))
    assert job.holders == {broker.me, b, c}
    assert sent(broker) == [((b,), GOTACK, (job.id, pack(broker.me, b, c), 1))]


def test_a_named_member_without_the_job_confirms_and_keeps_the_ack():
    """Its copy may still be on its way, and must find it. Spec A5."""
    broker, b, _ = make_cluster()
    job_id = make_id()
    say(broker, b, SETACK, (job_id, pack(broker.me, b)))
    assert sent(broker) == [((b,), GOTACK, (job_id, pack(broker.me, b), 1))]
    assert broker.find(job_id).state == ACKED
    say(broker, b, REPLJOB, (snapshot(broker, broker.me, b), 0))
    assert sent(broker) == [((b,), SETACK, (job_id, pack(broker.me, b)))]
    assert broker.find(job_id).state == ACKED


@pytest.mark.parametrize("reason", ["memory", "count", "holders"])
@pytest.mark.plain
def test_without_room_an_ack_of_an_unknown_job_is_confirmed_and_known_as_done(reason, monkeypatch):
    """A client that invents ids must not fill our memory. A late copy of a real job is refused all the same."""
    broker, b, _ = make_cluster()
    if reason == "memory":
        broker.memory.limits = (-1, -1, 1 << 40)
    elif reason == "count":
        monkeypatch.setattr(acks, "ACKED_COUNT_MAX", 0)
    else:
        monkeypatch.setattr(acks, "UNKNOWN_HOLDERS_MAX", 1)
    job_id = make_id(1)
    say(broker, b, SETACK, (job_id, pack(broker.me, b)))
    assert sent(broker) == [((b,), GOTACK, (job_id, pack(broker.me, b), 1))]
    assert (broker.job_count, broker.used_memory) == (0, 0)
    assert job_id in broker.tombstones
    assert sum(broker.stats.reject_reasons.values()) == 1


def test_a_record_of_an_unknown_job_counts_as_memory():
    broker, b, _ = make_cluster()
    say(broker, b, SETACK, (make_id(1), pack(broker.me, b)))
    assert broker.used_memory == JOB_BYTES


def test_without_room_a_held_job_keeps_its_ack(monkeypatch):
    """The record of its ack keeps the job from being delivered again."""
    monkeypatch.setattr(acks, "ACKED_COUNT_MAX", 0)
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c)
    broker.memory.limits = (-1, -1, 1 << 40)
    say(broker, b, SETACK, (job.id, pack(broker.me, b, c)))
    assert broker.find(job.id).state == ACKED


def test_a_node_that_is_not_named_and_has_no_copy_says_so():
    broker, b, c = make_cluster()
    say(broker, b, SETACK, (make_id(), pack(b, c)))
    assert sent(broker) == [((b,), GOTACK, (make_id(), b"", 0))]
    assert broker.job_count == 0


def test_a_node_that_knows_the_job_as_done_ends_the_question():
    broker, b, _ = make_cluster()
    broker.tombstones.add(make_id(), broker.now_ms)
    say(broker, b, SETACK, (make_id(), b""))
    assert sent(broker) == [((b,), DELJOB, (make_id(), b""))]


def test_two_that_collect_do_not_ask_each_other_for_ever():
    """Each answers the other's question, and neither asks again because of it."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    client_acks.ack_here(broker, job.id)
    sent(broker)
    say(broker, b, SETACK, (job.id, pack(broker.me, b)))
    assert sent_of(broker, SETACK) == []


def test_an_ack_ends_a_lease():
    broker, b, _ = make_cluster()
    hold_queued(broker, b)
    job = deliver(broker)
    say(broker, b, SETACK, (job.id, pack(broker.me, b)))
    assert (broker.find(job.id), job.is_leased_here) == (None, False)


# -- DELJOB -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_queued", [True, False])
def test_the_end_of_a_collection_elsewhere_ends_the_collection_here(is_queued):
    broker, b, _ = make_cluster()
    job = hold_queued(broker, b) if is_queued else hold(broker, b)
    say(broker, b, DELJOB, (job.id, pack(broker.me, b)))
    assert broker.find(job.id) is None
    assert job.id in broker.tombstones


def test_a_node_that_knows_more_holders_collects_on_instead_of_deleting():
    """Spec A10, RW10: no RESULT goes before a DELJOB, so the SETACK tells of an end in doubt."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c)
    say(broker, b, DELJOB, (job.id, pack(broker.me, b)))
    assert job.state == ACKED
    assert acks.confirmed_by(job) == {b}
    assert sent(broker) == [((c,), SETACK, (job.id, pack(broker.me, b, c), 1, OUTCOME_DOUBTED))]


def test_a_late_copy_of_a_finished_job_is_answered_with_the_ack():
    """Spec A6."""
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    say(broker, b, DELJOB, (job.id, pack(broker.me, b)))
    sent(broker)
    say(broker, b, REPLJOB, (snapshot(broker, broker.me, b), 0))
    assert sent(broker) == [((b,), SETACK, (job.id, pack(broker.me, b)))]
    assert broker.find(job.id).state == ACKED


def test_the_end_of_an_unknown_job_is_ignored():
    broker, b, _ = make_cluster()
    say(broker, b, DELJOB, (make_id(), pack(b)), (make_id(2), None))
    assert (sent(broker), broker.job_count) == ([], 0)


# -- DELJOB of a FASTACK ------------------------------------------------------------------------------------------


def test_a_fast_ack_from_elsewhere_deletes_whatever_the_state():
    broker, b, _ = make_cluster()
    for job in (hold(broker, b, number=1), hold_queued(broker, b, number=2)):
        say(broker, b, DELJOB, (job.id, None))
        assert broker.find(job.id) is None


def test_the_ack_of_a_delivered_copy_that_was_deleted_from_elsewhere_goes_to_all_nodes():
    """Spec C2: its creator gave it up while a consumer had it. A holder that was not reached must hear of the ack."""
    broker, b, c = make_cluster()
    hold_queued(broker, b)
    job = deliver(broker)
    say(broker, b, DELJOB, (job.id, None))
    sent(broker)
    assert client_acks.ack_here(broker, job.id) == 0
    assert [(nodes, item[:2]) for nodes, item in sent_of(broker, SETACK)] == [((b, c), (job.id, b""))]


def test_an_acknowledged_job_that_is_deleted_from_elsewhere_is_known_as_done():
    """Its creator gave it up without knowing of the ack. A copy still on its way must not live here (seed 1323)."""
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    client_acks.ack_here(broker, job.id)
    say(broker, b, DELJOB, (job.id, None))
    assert job.id in broker.tombstones
    say(broker, b, REPLJOB, (snapshot(broker, broker.me, b), 0))
    assert broker.find(job.id).state == ACKED


# -- jobs whose producer still waits --------------------------------------------------------------------


def start_replicated(*, leaving=False, retry_s=30):
    """A producer that waits for a copy on the one other node; the job, known through JSCAN."""
    broker = make_broker()
    node = add_node(broker)
    if leaving:
        broker.membership.set_leaving(True)
    producer = make_client(broker)
    assert ask(broker, producer, "ADDJOB", "q", "body", 0, "RETRY", retry_s, "REPLICATE", 1 if leaving else 2) == b""
    (job,) = [job for shard in broker.shards for job in shard.values()]
    sent(broker)
    return broker, node, producer, job


def test_an_ack_of_a_job_that_misses_copies_answers_its_producer():
    """A consumer got a copy: the job exists and was processed (spec Q11)."""
    broker, _, producer, job = start_replicated()
    assert client_acks.ack_here(broker, job.id) == 1
    assert producer.out == [b"+%b\r\n" % job.id]
    assert broker.waits.blocked_count == 0


def test_an_ack_from_elsewhere_answers_the_producer_too():
    broker, node, producer, job = start_replicated()
    say(broker, node, SETACK, (job.id, pack(broker.me, node)))
    assert producer.out == [b"+%b\r\n" % job.id]
    assert broker.find(job.id) is None


@pytest.mark.parametrize("how", ["DELJOB", "FASTACK", "message"])
def test_a_job_deleted_while_it_misses_copies_answers_its_producer(how):
    broker, node, producer, job = start_replicated()
    if how == "message":
        say(broker, node, DELJOB, (job.id, None))
    else:
        assert ask_parsed(broker, make_client(broker), how, job.id) == 1
    assert producer.out == [b"-NOREPL job removed (expired?) before the requested replication level was achieved\r\n"]
    assert (broker.job_count, broker.waits.blocked_count) == (0, 0)


@pytest.mark.parametrize("how", ["ACKJOB", "FASTACK", "SETACK", "DELJOB message"])
def test_an_at_most_once_job_on_its_way_answers_its_producer_when_it_is_done(how):
    """
    This node leaves, so the job goes to another node before the producer gets its reply. The answer to the hand-over is
    lost, and the consumer acknowledges here. The producer must not wait for ever.
    """
    broker, node, producer, job = start_replicated(leaving=True, retry_s=0)
    assert broker.waits.blocked_count == 1
    if how == "SETACK":
        say(broker, node, SETACK, (job.id, pack(node)))
    elif how == "DELJOB message":
        say(broker, node, DELJOB, (job.id, None))
    else:
        assert ask_parsed(broker, make_client(broker), how, job.id) == 1
    assert producer.out
    assert broker.waits.blocked_count == 0


# -- stories ------------------------------------------------------------------------------------------


def jobs_left(world):
    return sum(world[name].job_count for name in world.members)


def test_an_acknowledged_job_vanishes_everywhere():
    world = World("abc")
    world.join()
    job_id = world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3)
    world.run(10)
    assert jobs_left(world) == 3
    assert world.ask("c", "ACKJOB", job_id) == 1
    world.run(20)
    assert jobs_left(world) == 0


def test_a_lost_end_costs_one_more_question_and_no_delivery():
    world = World("abc")
    world.join()
    job_id = world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3, "RETRY", 5)
    world.run(10)
    world.drop = lambda sender, receiver, kind, item: kind == DELJOB and receiver == "b"
    world.ask("a", "ACKJOB", job_id)
    world.run(20)
    assert world["b"].find(job_id).state == ACKED
    world.drop = None
    world.run(3_000)
    assert jobs_left(world) == 0


@pytest.mark.parametrize("command", ["CANCELJOB", "ACKJOB", "FASTACK"])
def test_an_at_most_once_job_that_ends_while_it_is_handed_over_is_not_delivered(command):
    """Its only holder is the giver, so the node that had taken it never heard of the end. Spec A7, A11, Y8."""
    world = joined("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    world.drop = lambda sender, receiver, kind, item: kind == TOOK
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.until(lambda: world["b"].find(job_id) is not None, 3_000)
    if command != "FASTACK":
        world.cut("a", "b")
    assert world.ask("a", command, job_id) == 1
    world.drop = None
    world.heal()
    world.run(30_000)
    assert not world.ask("b", "GETJOB", "NOHANG", "FROM", "q")


def test_an_at_most_once_job_that_is_canceled_before_its_hand_over_arrives_is_not_delivered():
    world = joined("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    world.traffic.delay_ms = (100, 100)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.until(lambda: world["a"].find(job_id).work is not None, 3_000)
    assert world.ask("a", "CANCELJOB", job_id) == 1
    assert world["b"].find(job_id) is None
    world.run(30_000)
    assert not world.ask("b", "GETJOB", "NOHANG", "FROM", "q")


def test_a_cancellation_counts_on_the_node_that_made_it_and_on_no_other_holder():
    """Spec E1: a holder that only learns of the cancellation writes nothing."""
    world = joined("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3, "RETRY", 300)
    assert world.ask("a", "CANCELJOB", job_id) == 1
    world.run(3_000)
    assert jobs_left(world) == 0
    assert [world[name].stats.jobs_canceled for name in "abc"] == [1, 0, 0]


def test_a_member_without_memory_does_not_turn_a_cancellation_into_a_completion():
    """It kept the ack without its outcome, and told the others of a completion. Spec A5, Y8."""
    world = joined("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 300)
    world.ask("a", "GETJOB", "FROM", "q")
    world.run(300)
    world.crash("b")
    world.restart("b")
    world.run(3_000)
    world.crash("c")
    world.run(500)
    assert world.ask("a", "CANCELJOB", job_id) == 1
    world.run(10_000)
    assert isinstance(world["a"].find(job_id).work, Cancellation)
    assert str(world.ask("a", "WORKING", job_id)).startswith("CANCELED")
