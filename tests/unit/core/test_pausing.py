"""core/pausing.py: a queue's input and output, stopped here or everywhere."""

from __future__ import annotations

import time

import msgpack
import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import PAUSE, QUEUED, YOURJOBS
from cluster_bus.node import LEAVING
from copies import advance, deliver, hold, hold_queued, queue_of, say, sent, sent_of, snapshot
from disque_py.core import acks, census, events, journaling, pausing
from disque_py.core.event_packing import Noted
from disque_py.core.handover import exchange
from disque_py.core.job import ACKED, ACTIVE
from disque_py.core.job import QUEUED as IS_QUEUED
from disque_py.core.pausing import VERSION_MS_MAX
from disque_py.core.queue import PAUSED_IN, PAUSED_OUT
from disque_py.event_format import INVISIBLE, PENDING, RUNNING, line_fields
from disque_py.node import dispatch
from persistence.records import PAUSE as PAUSE_RECORD
from world import World, joined

BOTH = PAUSED_IN | PAUSED_OUT


def make_pair():
    broker = make_broker()
    return broker, add_node(broker), make_client(broker)


def pause(broker, client, *words):
    return ask(broker, client, "PAUSE", "q", *words)


def test_paused_input_refuses_jobs_and_changes_nothing():
    broker, _, client = make_pair()
    pause(broker, client, "in")
    assert ask(broker, client, "ADDJOB", "q", "body", 0) == b"-PAUSED Queue paused in input, try later\r\n"
    assert broker.job_count == 0


@pytest.mark.parametrize("how", ["out", "all"])
def test_paused_output_looks_empty(how):
    """Also for a queue whose input is paused, too. Spec U4."""
    broker, _, client = make_pair()
    hold_queued(broker)
    pause(broker, client, how)
    assert ask(broker, client, "GETJOB", "NOHANG", "FROM", "q") == b"*-1\r\n"
    assert ask(broker, client, "GETJOB", "FROM", "q") == b""
    assert ask(broker, make_client(broker), "QPEEK", "q", 1) != b"*0\r\n"


@pytest.mark.parametrize("how", ["out", "all"])
def test_a_job_that_comes_during_a_pause_is_not_given_to_a_consumer_that_waits(how):
    broker, _, client = make_pair()
    consumer = make_client(broker)
    ask(broker, consumer, "GETJOB", "FROM", "q")
    pause(broker, client, how)
    hold_queued(broker)
    dispatch.settle(broker)
    assert (consumer.out, broker.queues[b"q"].length) == ([], 1)


def test_resumed_output_serves_waiting_clients():
    broker, _, client = make_pair()
    job = hold_queued(broker)
    pause(broker, client, "out")
    consumer = make_client(broker)
    ask(broker, consumer, "GETJOB", "FROM", "q")
    pause(broker, client, "none")
    dispatch.settle(broker)
    assert job.id in consumer.out[0]


def test_a_nack_succeeds_and_the_job_is_due_when_the_pause_ends():
    """Spec U2."""
    broker, b, client = make_pair()
    hold_queued(broker, b, retry_s=300)
    job = deliver(broker)
    pause(broker, client, "in")
    assert ask(broker, client, "NACK", job.id) == b":1\r\n"
    assert (job.state, job.nacks, job.is_leased_here) == (ACTIVE, 1, False)
    sent(broker)
    pause(broker, client, "none")
    assert queue_of(broker) == [job.id]
    assert len(sent_of(broker, QUEUED)) == 1


def test_a_given_back_job_is_not_lost_with_a_pause_that_lasts():
    """Due when the pause ends (spec U2), also if that is after its retry."""
    broker, _, client = make_pair()
    hold_queued(broker, retry_s=2)
    job = deliver(broker)
    pause(broker, client, "in")
    ask(broker, client, "NACK", job.id)
    advance(broker, 10_000)
    assert job.state == ACTIVE
    pause(broker, client, "none")
    assert queue_of(broker) == [job.id]


def outlived():
    """Return a broker, its client, and a job whose lease ended while the input of its queue is paused."""
    broker = make_broker()
    client = make_client(broker)
    hold_queued(broker, retry_s=2)
    job = deliver(broker)
    pause(broker, client, "in")
    advance(broker, 2_100)
    return broker, client, job


def test_a_job_whose_lease_ends_during_a_pause_is_invisible_until_the_pause_ends():
    """Its worker has lost it, so it may be purged, moved and counted as any other invisible job. Spec U2."""
    broker, client, job = outlived()
    assert (events.status_of(job), census.is_invisible(broker, job), job.is_leased_here) == (INVISIBLE, True, False)
    pause(broker, client, "none")
    assert (queue_of(broker), job.deliveries, events.status_of(job)) == ([job.id], 1, PENDING)


def test_a_lease_that_ends_during_a_pause_is_one_transition_and_the_end_of_the_pause_another():
    """Spec E2."""
    broker = make_broker()
    broker.events = Noted()
    client = make_client(broker)
    hold_queued(broker, retry_s=2)
    deliver(broker)
    pause(broker, client, "in")
    advance(broker, 10_000)
    pause(broker, client, "none")
    noted = [event for payload, _ in broker.events.take() for event in msgpack.unpackb(payload, use_list=False)]
    lines = [line_fields(1, 0, event) for event in noted[-2:]]
    seen = [(line["event"], line["from_state"], line["to_state"]) for line in lines]
    assert seen == [("requeued", "running", "invisible"), ("queued", "invisible", "pending")]


def test_a_worker_that_outlived_its_lease_in_a_pause_may_go_on():
    """WORKING begins a lease anew. Spec R11."""
    broker, client, job = outlived()
    assert ask(broker, client, "WORKING", job.id) == b":2\r\n"
    pause(broker, client, "none")
    assert (job.state, events.status_of(job)) == (ACTIVE, RUNNING)


def test_a_job_given_back_and_done_meanwhile_is_not_queued():
    broker, b, client = make_pair()
    hold_queued(broker, b)
    job = deliver(broker)
    pause(broker, client, "in")
    ask(broker, client, "NACK", job.id)
    acks.acknowledge(broker, job)
    pause(broker, client, "none")
    assert (job.state, queue_of(broker)) == (ACKED, [])


def test_enqueue_is_refused_as_a_whole_if_one_queue_is_paused():
    """Spec U1."""
    broker, _, client = make_pair()
    paused, free = hold(broker, number=1), hold(broker, number=2, queue=b"r")
    pause(broker, client, "in")
    assert ask(broker, client, "ENQUEUE", free.id, paused.id).startswith(b"-PAUSED")
    assert (free.state, paused.state) == (ACTIVE, ACTIVE)


def test_a_hand_over_into_a_paused_queue_is_refused():
    broker, b, client = make_pair()
    pause(broker, client, "in")
    say(broker, b, YOURJOBS, (1, 0, [snapshot(broker, b)]))
    assert exchange(b).answers == {1: b"\x01"}
    assert broker.job_count == 0


@pytest.mark.parametrize(("flags", "count"), [(0, 0), (PAUSED_IN, 1), (BOTH, 1)])
def test_paused_queues_are_counted(flags, count):
    broker, _, _ = make_pair()
    for each in (PAUSED_OUT, flags, flags):
        pausing.set_pause(broker, b"q", each)
    assert broker.pauses.paused_count == count


def test_no_queue_is_made_for_a_state_without_a_pause():
    broker, _, client = make_pair()
    assert pause(broker, client, "none") == pause(broker, client, "state") == b"+none\r\n"
    assert broker.queues == {}


# -- BCAST ----------------------------------------------------------------------------------------------


def test_a_broadcast_pause_is_told_with_a_version():
    broker, b, client = make_pair()
    assert pause(broker, client, "in", "bcast") == b"+in\r\n"
    assert sent_of(broker, PAUSE) == [((b,), (b"q", PAUSED_IN, broker.wall_ms, broker.me.id))]


def test_a_broadcast_without_a_state_sends_the_current_one():
    broker, _, client = make_pair()
    pause(broker, client, "all")
    sent(broker)
    assert pause(broker, client, "bcast") == b"+all\r\n"
    assert [item[1] for _, item in sent_of(broker, PAUSE)] == [BOTH]


def test_a_version_is_later_than_any_known_whatever_the_clock_does():
    broker, b, client = make_pair()
    say(broker, b, PAUSE, (b"q", PAUSED_IN, broker.wall_ms + 5000, b.id))
    pause(broker, client, "none", "bcast")
    assert sent_of(broker, PAUSE) == [((b,), (b"q", 0, broker.wall_ms + 5001, broker.me.id))]


@pytest.mark.parametrize(
    ("version_ms", "node_id", "is_later"),
    [(99, b"\xff" * 20, False), (100, b"\x01" * 20, False), (100, b"\x02" * 20, False), (100, b"\x03" * 20, True),
     (101, b"\x00" * 20, True)],
)  # fmt: skip
def test_the_later_version_wins_and_the_node_decides_between_equals(version_ms, node_id, is_later):
    """Spec U3."""
    broker, b, _ = make_pair()
    say(broker, b, PAUSE, (b"q", PAUSED_IN, 100, b"\x02" * 20))
    say(broker, b, PAUSE, (b"q", PAUSED_OUT, version_ms, node_id))
    assert broker.queues[b"q"].paused == (PAUSED_OUT if is_later else PAUSED_IN)


def test_unknown_bits_pause_nothing():
    broker, b, _ = make_pair()
    say(broker, b, PAUSE, (b"q", 4 | PAUSED_OUT, 100, b.id))
    assert broker.queues[b"q"].paused == PAUSED_OUT


def test_a_node_that_joins_learns_states_set_with_bcast_ended_pauses_included():
    broker, b, client = make_pair()
    for name, state in (("one", "in"), ("two", "out")):
        ask(broker, client, "PAUSE", name, state, "BCAST")
    ask(broker, client, "PAUSE", "two", "none", "BCAST")
    ask(broker, client, "PAUSE", "mine", "in")
    sent(broker)
    dispatch.link_up(broker, b)
    assert [item[:2] for _, item in sent_of(broker, PAUSE)] == [(b"one", PAUSED_IN), (b"two", 0)]


@pytest.mark.plain
def test_versions_of_ended_pauses_are_bounded_and_running_ones_are_kept(monkeypatch):
    monkeypatch.setattr(pausing, "ENDED_MAX", 20)
    broker, b, _ = make_pair()
    say(broker, b, PAUSE, (b"kept", PAUSED_IN, 1, b.id))
    for number in range(100):
        say(broker, b, PAUSE, (b"%d" % number, 0, 1, b.id))
    assert len(broker.pauses.versions) == 21
    assert broker.pauses.versions[b"kept"][0] == PAUSED_IN
    assert b"99" in broker.pauses.versions


@pytest.mark.plain
def test_the_queues_that_another_node_can_pause_here_are_limited(monkeypatch):
    """Each paused queue needs memory, and a client that may send PAUSE may use any name."""
    monkeypatch.setattr(pausing, "VERSIONED_MAX", 10)
    broker, b, _ = make_pair()
    for number in range(100):
        say(broker, b, PAUSE, (b"%d" % number, PAUSED_IN, 1, b.id))
    say(broker, b, PAUSE, (b"5", 0, 2, b.id))
    assert len(broker.pauses.versions) == 10
    assert broker.pauses.paused_count == 9
    assert broker.stats.reject_reasons == {"pause of too many queues": 90}


def test_many_running_pauses_are_not_looked_through_for_each_new_one():
    """150,000 of them from one node stopped another for three seconds."""
    broker, b, _ = make_pair()
    begun = time.process_time()
    for number in range(0, 30_000, 500):
        say(broker, b, PAUSE, *((b"%d" % name, PAUSED_IN, 1, b.id) for name in range(number, number + 500)))
    assert time.process_time() - begun < 2


def test_a_broadcast_pause_is_journaled():
    broker, _, client = make_pair()
    broker.is_journaling = True
    pause(broker, client, "out", "bcast")
    assert journaling.collect(broker) == [[PAUSE_RECORD, (b"q", PAUSED_OUT, broker.wall_ms, broker.me.id, PAUSED_OUT)]]


def test_a_pause_reaches_all_nodes_and_latecomers():
    world = World("abc")
    world.join()
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(10)
    world.ask("a", "PAUSE", "q", "in", "BCAST")
    world.run(10)
    assert [world[name].queues.get(b"q") is not None for name in "abc"] == [True, True, False]
    world.heal()
    world.run(5_000)
    assert world["c"].queues[b"q"].paused == PAUSED_IN


def test_a_pause_reaches_nodes_that_are_not_linked_with_its_node():
    """Others pass it on, once. Spec U3."""
    world = World("abcd")
    world.join()
    world.run(1_000)
    world.cut("a", "c")
    world.run(10)
    world.ask("a", "PAUSE", "q", "out", "BCAST")
    world.run(100)
    assert [world[name].pauses.paused_count for name in "abcd"] == [1] * 4
    broker = make_broker()
    b, c = add_node(broker, 2), add_node(broker, 3)
    say(broker, b, PAUSE, (b"q", PAUSED_OUT, 7, b.id))
    assert sent_of(broker, PAUSE) == [((c,), (b"q", PAUSED_OUT, 7, b.id))]
    for sender, version_ms, maker in ((c, 7, b), (c, 8, b), (b, 8, b)):
        say(broker, sender, PAUSE, (b"q", PAUSED_OUT, version_ms, maker.id))
    assert sent_of(broker, PAUSE) == []


def test_a_flushed_node_asks_for_states_set_with_bcast():
    """Spec U3. A node that was down, and knows an earlier state, could be the first to tell it one (seed 7579)."""
    world = World("abc")
    world.join()
    world.ask("a", "PAUSE", "q", "out", "BCAST")
    world.ask("a", "PAUSE", "own", "in")
    world.run(10)
    world.ask("b", "DEBUG", "FLUSHALL")
    world.ask("a", "DEBUG", "FLUSHALL")
    assert (world["a"].pauses.versions, world["b"].pauses.versions) == ({}, {})
    world.run(10)
    assert [world[name].queues[b"q"].paused for name in "abc"] == [PAUSED_OUT] * 3
    assert world["a"].pauses.versions == world["b"].pauses.versions == world["c"].pauses.versions
    assert b"own" not in world["a"].queues


def test_a_question_for_a_state_changes_nothing_where_none_is_known():
    broker, b, client = make_pair()
    pause(broker, client, "in")
    say(broker, b, PAUSE, [b"q", 0, 0, b""])
    assert broker.queues[b"q"].paused == PAUSED_IN
    assert broker.pauses.versions == {}
    assert sent_of(broker, PAUSE) == []


def test_leaving_does_not_change_a_pause():
    broker, _, client = make_pair()
    pause(broker, client, "in")
    broker.me.flags |= LEAVING
    assert pause(broker, client, "state") == b"+in\r\n"


def test_a_pause_is_set_on_top_of_the_latest_version_there_can_be():
    """All other nodes would refuse a higher version, and close the link each time."""
    broker, node, client = make_pair()
    say(broker, node, PAUSE, (b"q", PAUSED_IN, VERSION_MS_MAX, b""))
    pause(broker, client, "none", "bcast")
    ((_, item),) = sent_of(broker, PAUSE)
    other, sender, _ = make_pair()
    say(other, sender, PAUSE, (b"q", PAUSED_IN, VERSION_MS_MAX, b""), item)
    assert other.queues[b"q"].paused == 0


def test_a_node_that_sends_an_older_version_gets_the_newer_one():
    """It was flushed, or its wall clock is behind. Otherwise it would miss the pause that all others know."""
    broker, b, client = make_pair()
    pause(broker, client, "out", "bcast")
    version = broker.pauses.versions[b"q"]
    sent(broker)
    say(broker, b, PAUSE, [b"q", 0, version[1] - 1, b.id])
    assert sent_of(broker, PAUSE) == [((b,), (b"q", *version))]
    say(broker, b, PAUSE, [b"q", *version])
    assert sent_of(broker, PAUSE) == []


def test_a_delay_that_ends_in_a_pause_ends_with_the_pause():
    """The job was queued only when its RETRY had passed, too. Spec U2."""
    world = World("a")
    world.ask("a", "ADDJOB", "q", "body", 0, "DELAY", 5, "RETRY", 300)
    world.ask("a", "PAUSE", "q", "in")
    world.run(6_000)
    world.ask("a", "PAUSE", "q", "none")
    world.run(10)
    assert len(world.ask("a", "GETJOB", "NOHANG", "FROM", "q")) == 1


def test_a_lease_that_ends_in_a_pause_ends_with_the_pause():
    """Spec U2."""
    world = joined("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 30, "REPLICATE", 3)
    world.ask("a", "GETJOB", "FROM", "q")
    world.run(25_000)
    world.ask("a", "PAUSE", "q", "in", "BCAST")
    world.run(70_000)
    world.ask("a", "PAUSE", "q", "none", "BCAST")
    world.run(100)
    assert [world[name].find(job_id).state == IS_QUEUED for name in "abc"] == [True, False, False]
    [[_, _, _, _, _, _, deliveries]] = world.ask("a", "GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q")
    assert deliveries == 1
    world.run(20_000)
    assert not any(world.ask(name, "GETJOB", "NOHANG", "FROM", "q") for name in "abc")


def given_back_elsewhere(*words, paused="b"):
    """Return three nodes and a job that `a` delivered, and that was given back to `b` in a pause."""
    world = joined("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 30, "REPLICATE", 3)
    world.ask("a", "GETJOB", "FROM", "q")
    for name in paused:
        world.ask(name, "PAUSE", "q", "in")
    assert world.ask("b", "NACK", job_id, *words) == 1
    world.run(100)
    return world, job_id


@pytest.mark.parametrize("paused", ["b", "abc"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_promote_does_not_end_a_pause_in_which_another_node_holds_the_job_back(name, paused):
    """Spec MV1, U2."""
    world, job_id = given_back_elsewhere(paused=paused)
    assert world.ask(name, "PROMOTE", job_id) == 0
    world.run(100)
    assert [world[each].find(job_id).state == IS_QUEUED for each in "abc"] == [False] * 3
    for each in paused:
        world.ask(each, "PAUSE", "q", "none")
    world.run(100)
    assert [world[each].find(job_id).state == IS_QUEUED for each in "abc"] == [False, True, False]


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_promote_ends_the_delay_of_a_nack_in_a_pause(name):
    """Spec MV1: the pause of another node holds back no job that it does not have."""
    world, job_id = given_back_elsewhere("DELAY", 5)
    assert world.ask(name, "PROMOTE", job_id) == 1
    world.run(100)
    assert [world[each].find(job_id).state == IS_QUEUED for each in "abc"] == [True, False, False]


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_promote_does_not_end_a_pause_that_outlasts_the_delay_of_a_nack(name):
    """Spec MV1: the delay is over, and only the pause holds the job back."""
    world, job_id = given_back_elsewhere("DELAY", 2, paused="abc")
    world.run(2_000)
    assert world.ask(name, "PROMOTE", job_id) == 0


def test_a_delay_after_a_pause_is_promoted_again():
    """Spec MV1."""
    world, job_id = given_back_elsewhere()
    assert world.ask("c", "RESCHEDULE", job_id, "DELAY", 5) == 1
    world.run(100)
    assert world.ask("c", "PROMOTE", job_id) == 1


def test_a_dead_letter_that_a_pause_holds_back_elsewhere_is_not_promoted():
    """Spec MV1."""
    world = joined("abc")
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "dead")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 30, "REPLICATE", 3, "ATTEMPTS", 1)
    world.ask("a", "GETJOB", "FROM", "q")
    world.ask("b", "PAUSE", "dead", "in")
    world.run(100)
    assert world.ask("b", "NACK", job_id) == 1
    world.run(100)
    assert world.ask("c", "PROMOTE", job_id) == 0


def test_very_many_jobs_that_wait_for_the_end_of_a_pause_are_queued_in_parts():
    """Spec B1, U2. If the queue is paused again meanwhile, the rest is due when that pause ends."""
    broker, _, client = make_pair()
    jobs = [hold(broker, number=number) for number in range(2 * pausing.RESUMED_PER_PART)]
    pause(broker, client, "in")
    for job in jobs:
        ask(broker, client, "NACK", job.id)
    pause(broker, client, "none")
    assert broker.queue(b"q").length == pausing.RESUMED_PER_PART
    pause(broker, client, "in")
    advance(broker, 10)
    assert broker.queue(b"q").length == pausing.RESUMED_PER_PART
    pause(broker, client, "none")
    advance(broker, 10)
    assert (broker.queue(b"q").length, broker.pauses.deferred) == (len(jobs), {})
