"""core/client_acks.py: acks that clients give, dummy acks, FASTACK."""

from __future__ import annotations

import pytest

from brokers import add_node, make_broker, make_cluster
from cluster_bus.messages import DELJOB, GOTACK, GOTJOB, REPLJOB, RESULT, SETACK
from copies import advance, hold, hold_queued, make_id, pack, say, sent, sent_of, snapshot
from disque_py.core import acks, client_acks
from disque_py.core.job import ACKED
from world import World


def ack(broker, job):
    count = client_acks.ack_here(broker, job.id)
    return count, sent(broker)


def test_a_job_that_no_other_node_has_is_gone_at_once():
    broker, *_ = make_cluster()
    job = hold(broker)
    assert ack(broker, job) == (1, [])
    assert (broker.job_count, broker.stats.jobs_acked) == (0, 1)


def test_the_holders_are_told_with_their_set():
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c)
    assert ack(broker, job) == (1, [((b, c), SETACK, (job.id, pack(broker.me, b, c), 2))])
    assert (job.state, broker.queues[b"q"].length) == (ACKED, 0)


def test_a_second_ack_counts_nothing_but_asks_again():
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    ack(broker, job)
    assert ack(broker, job) == (0, [((b,), SETACK, (job.id, pack(broker.me, b), 2))])


@pytest.mark.plain
def test_without_room_an_ack_of_an_unknown_job_is_passed_on_and_not_kept(monkeypatch):
    monkeypatch.setattr(acks, "ACKED_COUNT_MAX", 0)
    broker, *_ = make_cluster()
    job_id = make_id(1)
    assert client_acks.ack_here(broker, job_id) == 0
    assert sent(broker) == [(broker.cluster.linked, SETACK, (job_id, b"", 0))]
    assert broker.job_count == 0


def test_an_ack_of_an_unknown_job_goes_to_all_nodes_with_the_empty_set():
    broker, b, c = make_cluster()
    assert client_acks.ack_here(broker, make_id()) == 0
    assert sent(broker) == [((b, c), SETACK, (make_id(), b"", 0))]
    assert broker.find(make_id()).is_dummy


@pytest.mark.parametrize("reason", ["even id", "alone", "leaving", "known as done"])
def test_no_dummy_ack_is_kept_where_it_is_of_no_use(reason):
    broker = make_broker()
    job_id = make_id(retry_s=0 if reason == "even id" else 30)
    if reason != "alone":
        add_node(broker)
    if reason == "leaving":
        broker.membership.set_leaving(True)
    if reason == "known as done":
        broker.tombstones.add(job_id, broker.now_ms)
    assert client_acks.ack_here(broker, job_id) == 0
    assert broker.job_count == 0


def test_a_leaving_node_passes_an_ack_of_an_unknown_job_on_and_keeps_nothing():
    broker, b, c = make_cluster()
    broker.membership.set_leaving(True)
    assert client_acks.ack_here(broker, make_id()) == 0
    assert sent(broker) == [((b, c), SETACK, (make_id(), b"", 0))]
    assert broker.job_count == 0


def test_a_dummy_ack_learns_the_holders_and_collects_then():
    """The first answer confirms nothing: the question had named no node."""
    broker, b, c = make_cluster()
    client_acks.ack_here(broker, make_id())
    sent(broker)
    say(broker, b, GOTACK, (make_id(), b"", 0))
    say(broker, c, GOTACK, (make_id(), pack(b, c), 0))
    job = broker.find(make_id())
    assert job.holders == {b, c}
    assert sent(broker) == [((b, c), SETACK, (make_id(), pack(b, c), 1))]
    for node in (b, c):
        say(broker, node, GOTACK, (make_id(), pack(b, c), 1))
    assert sent(broker) == [((b, c), DELJOB, (make_id(), pack(b, c)))]


def test_a_dummy_ack_is_dropped_when_all_nodes_say_that_they_have_no_copy():
    broker, b, c = make_cluster()
    client_acks.ack_here(broker, make_id())
    say(broker, b, GOTACK, (make_id(), b"", 0))
    assert broker.job_count == 1
    say(broker, c, GOTACK, (make_id(), b"", 0))
    assert broker.job_count == 0


def test_the_job_of_a_dropped_dummy_ack_is_known_as_done():
    """A node that deletes an acked record remembers the id: the copy may come now (spec A6)."""
    broker, b, c = make_cluster()
    client_acks.ack_here(broker, make_id())
    for node in (b, c):
        say(broker, node, GOTACK, (make_id(), b"", 0))
    sent(broker)
    assert make_id() in broker.tombstones
    say(broker, b, REPLJOB, (snapshot(broker, b, broker.me), 0))
    assert sent_of(broker, GOTJOB) == []


def test_two_dummy_acks_tell_each_other_nothing():
    """Each took the other for an owner and the ack was lost (spec Q10, A9)."""
    broker, b, _ = make_cluster()
    client_acks.ack_here(broker, make_id())
    sent(broker)
    say(broker, b, SETACK, (make_id(), b""))
    assert sent(broker) == [((b,), GOTACK, (make_id(), b"", 0))]
    assert broker.find(make_id()).is_dummy


def test_a_dummy_ack_lives_as_long_as_the_id_says():
    broker, *_ = make_cluster()
    client_acks.ack_here(broker, make_id(ttl_s=600))
    assert broker.find(make_id(ttl_s=600)).expire_at_ms == broker.now_ms + 11 * 60_000
    client_acks.ack_here(broker, make_id(2, ttl_s=1))
    assert broker.find(make_id(2, ttl_s=1)).expire_at_ms == broker.now_ms + 60_000


def test_a_dummy_ack_asks_nodes_that_come_later():
    broker, *_ = make_cluster()
    client_acks.ack_here(broker, make_id())
    late = add_node(broker, 7)
    sent(broker)
    advance(broker, 1300)
    assert [nodes for nodes, _ in sent_of(broker, SETACK)] == [tuple(broker.members())]
    assert late in broker.members()


def test_a_fast_ack_tells_the_holders_and_forgets():
    """Spec A11."""
    broker, b, c = make_cluster()
    job = hold_queued(broker, b)
    assert client_acks.fast_ack(broker, job.id) == 1
    assert sent(broker) == [((b,), DELJOB, (job.id, None))]
    assert (broker.job_count, broker.queues[b"q"].length) == (0, 0)
    assert client_acks.fast_ack(broker, job.id) == 0
    assert sent(broker) == [((b, c), DELJOB, (job.id, None, 1))]


def test_a_fast_ack_of_an_acknowledged_job_ends_its_collection():
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    client_acks.ack_here(broker, job.id)
    assert client_acks.fast_ack(broker, job.id) == 1
    assert (broker.job_count, broker.memory.acked_count, broker.stats.jobs_acked) == (0, 0, 1)


def test_an_ack_that_no_holder_took_finds_them():
    """REPLICATE 1 on a, acknowledged on c, which never saw it."""
    world = World("abc")
    world.join()
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    assert world.ask("c", "ACKJOB", job_id) == 0
    world.run(50)
    assert [world[name].job_count for name in world.members] == [0, 0, 0]


def test_a_result_that_is_replaced_by_that_of_another_ack_is_passed_on():
    """Spec RW2: the node with the other ack may not know all holders (seed 542 of `--focus flows`)."""
    broker, near, far = make_cluster()
    job = hold(broker, near, far)
    assert client_acks.ack_with_result(broker, job.id, 0, b"ours") == 1
    sent(broker)
    say(broker, near, RESULT, (job.id, b"first", 1, bytes(20)))
    say(broker, near, RESULT, (job.id, b"later", 9, bytes(20)))
    assert sent_of(broker, RESULT) == [((far,), (job.id, b"first", 1, bytes(20)))]
    assert broker.results.get(job.id) == b"first"


def test_the_result_of_a_job_whose_record_is_gone_is_replaced_by_that_of_an_earlier_ack():
    """Spec RW2."""
    broker = make_broker()
    node = add_node(broker)
    job_id = make_id()
    broker.results.put(job_id, b"ours", 3, b"x" * 20, 5_000)
    say(broker, node, RESULT, (job_id, b"first", 3, bytes(20)))
    assert broker.results.get(job_id) == b"first"
