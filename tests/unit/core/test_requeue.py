"""core/requeue.py: a job is held by several nodes and queued on one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import add_node, ask, make_broker, make_client, pass_time
from cluster_bus.messages import LEASED, QUEUED, QUEUED_RELEASED, QUEUED_WAITING, SETACK, WILLQUEUE
from cluster_bus.node import Node
from copies import advance, deliver, hold, hold_queued, make_id, pack, queue_of, say, sent, sent_of
from disque_py.core import acks, changing, events, journaling, requeue
from disque_py.core.job import ACKED, ACTIVE, COUNTER_MAX
from disque_py.core.job import QUEUED as IS_QUEUED
from disque_py.event_format import PENDING, RUNNING
from world import World, joined


def make_cluster(count=2):
    broker = make_broker(repair_after=0)
    return broker, *[add_node(broker, number) for number in range(2, 2 + count)]


def id_where(broker, node, *, wins):
    """Return an id for which the other node wins, or loses, against this one."""
    return next(number for number in range(100) if requeue.wins(node, broker.me, make_id(number)) is wins)


# -- our timer ------------------------------------------------------------------------------------------


def test_before_a_copy_is_queued_the_others_are_asked():
    """Spec L3."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c, retry_s=30)
    advance(broker, 29_400)
    assert sent(broker) == []
    advance(broker, 150)
    assert sent(broker) == [((b, c), WILLQUEUE, (job.id, 0))]
    assert job.state == ACTIVE
    advance(broker, 500)
    assert queue_of(broker) == [job.id]
    assert sent(broker) == [((b, c), QUEUED, (job.id, 0, 0, 0, 1, 2))]
    assert broker.stats.jobs_requeued == 1


def test_a_job_that_no_other_node_has_is_queued_without_a_message():
    broker, *_ = make_cluster()
    hold_queued(broker, retry_s=2)
    job = deliver(broker)
    advance(broker, 2100)
    assert (queue_of(broker), job.deliveries) == ([job.id], 1)
    assert sent(broker) == []


@pytest.mark.parametrize(("ended", "error"), [(1, b"no route"), (0, b"lease expired")])
def test_a_job_that_was_given_back_keeps_its_error(ended, error):
    """The node that had it queued after the NACK is gone. No lease ended. Spec Y6."""
    broker, b, _ = make_cluster()
    job = hold(broker, b, retry_s=30)
    job.attempt = 1
    part = changing.begin(broker, job)
    part.error, part.ended = b"no route", ended
    advance(broker, 31_000)
    assert queue_of(broker) == [job.id]
    assert changing.error_of(job) == error


def test_the_first_queueing_of_a_delayed_job_is_not_announced():
    broker, b, _ = make_cluster()
    job = hold(broker, b, retry_s=30, delay_s=5)
    job.was_queued = False
    job.was_announced = True
    job.requeue_at_ms = broker.now_ms + 5000
    advance(broker, 36_000)
    assert (job.state, job.deliveries) == (IS_QUEUED, 0)
    assert sent(broker) == []


def test_input_pause_postpones_a_retry_by_one_retry():
    broker, *_ = make_cluster()
    job = hold(broker, retry_s=2)
    ask(broker, make_client(broker), "PAUSE", "q", "in")
    advance(broker, 3000)
    assert job.state == ACTIVE
    ask(broker, make_client(broker), "PAUSE", "q", "none")
    advance(broker, 1400)
    assert job.state == IS_QUEUED


def test_a_delayed_at_most_once_job_is_queued_even_into_a_paused_queue():
    """This node is its only owner."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "body", 0, "RETRY", 0, "DELAY", 2)
    ask(broker, client, "PAUSE", "q", "in")
    advance(broker, 2100)
    assert len(queue_of(broker)) == 1


def test_counters_stop_at_their_limit():
    broker, *_ = make_cluster()
    job = hold(broker, retry_s=1)
    job.deliveries = COUNTER_MAX
    advance(broker, 1100)
    assert (job.state, job.deliveries) == (IS_QUEUED, COUNTER_MAX)


# -- LEASED ---------------------------------------------------------------------------------------------


def test_a_delivery_is_told_to_the_other_holders():
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c, retry_s=30)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert sent_of(broker, LEASED) == []
    advance(broker, 150)
    ((nodes, (job_id, left_ms, attempt, version)),) = sent_of(broker, LEASED)
    assert (nodes, job_id, attempt, version) == ((b, c), job.id, 1, 2)
    assert 29_850 <= left_ms < 29_980


def test_a_delivery_that_is_over_at_once_is_not_told():
    """Spec L1."""
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c, retry_s=30)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert ask(broker, make_client(broker), "ACKJOB", job.id) == b":1\r\n"
    advance(broker, 150)
    assert sent_of(broker, LEASED) == []


@pytest.mark.parametrize(
    ("words", "retry_s"), [((), 4), (("LEASE", "30"), 30), (("TOKEN", "t"), 30)], ids=["short", "lease", "token"]
)
def test_a_short_or_individual_lease_is_told_at_once(words, retry_s):
    """Spec L1."""
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c, retry_s=retry_s)
    ask(broker, make_client(broker), "GETJOB", *words, "FROM", "q")
    assert sent_of(broker, LEASED) == [((b, c), (job.id, retry_s * 1_000, 1, 2))]


@pytest.mark.parametrize(
    ("kind", "rest"), [(LEASED, (30_000, 0, 2)), (QUEUED, (QUEUED_RELEASED, 0, 0, 1, 2))], ids=["leased", "queued"]
)
def test_a_node_that_missed_a_delivery_learns_its_number(kind, rest):
    """Otherwise a client that goes on with the job at another node would begin with the same number. Spec L5."""
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c, retry_s=30)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    say(broker, b, kind, (job.id, *rest))
    assert sent_of(broker, WILLQUEUE) == [((b,), (job.id, 1))]


def test_a_holder_queues_no_earlier_than_the_lease_ends():
    """Spec L2."""
    broker, b, _ = make_cluster()
    job = hold(broker, b, retry_s=5)
    advance(broker, 4000)
    say(broker, b, LEASED, (job.id, 5000, 3))
    assert job.attempt == 3
    advance(broker, 4900)
    assert job.state == ACTIVE
    advance(broker, 1200)
    assert job.state == IS_QUEUED


def test_a_shorter_lease_does_not_shorten_an_earlier_one():
    broker, b, c = make_cluster()
    job = hold(broker, b, c, retry_s=60)
    say(broker, b, LEASED, (job.id, 60_000, 1))
    until_ms = job.requeue_at_ms
    say(broker, c, LEASED, (job.id, 1000, 1))
    assert job.requeue_at_ms == until_ms


def test_a_job_leased_elsewhere_leaves_the_queue_here():
    """Delivering our copy as well would be the duplicate that leases prevent."""
    broker, b, _ = make_cluster()
    job = hold_queued(broker, b)
    say(broker, b, LEASED, (job.id, 20_000, 1))
    assert (job.state, queue_of(broker)) == (ACTIVE, [])
    assert job.requeue_at_ms >= broker.now_ms + 20_000


def test_two_that_leased_the_same_job_do_not_wait_for_each_other():
    """The later message counts: from then on only one node answers for the job."""
    broker, b, _ = make_cluster()
    hold_queued(broker, b, retry_s=5)
    job = deliver(broker)
    say(broker, b, LEASED, (job.id, 5000, 1))
    assert not job.is_leased_here
    sent(broker)
    say(broker, b, WILLQUEUE, (job.id, 1))
    assert sent(broker) == []


def test_a_sender_becomes_a_holder():
    """Spec A7."""
    broker, b, c = make_cluster()
    job = hold(broker, b)
    for number, kind in enumerate((LEASED, QUEUED, WILLQUEUE)):
        node = add_node(broker, 10 + number)
        say(broker, node, kind, {LEASED: (job.id, 10, 0), QUEUED: (job.id, 0, 0, 0, 0), WILLQUEUE: (job.id, 0)}[kind])
        assert node in job.holders
    assert c not in job.holders


# -- QUEUED ---------------------------------------------------------------------------------------------


def test_a_job_in_the_queue_of_another_node_leaves_the_queue_here():
    broker, b, _ = make_cluster()
    job = hold(broker, b, retry_s=10)
    advance(broker, 9000)
    say(broker, b, QUEUED, (job.id, QUEUED_WAITING, 0, 0, 0))
    assert abs(job.requeue_at_ms - broker.now_ms - 10_000) <= 250
    advance(broker, 9000)
    assert job.state == ACTIVE


def test_of_two_queues_the_winner_keeps_the_job():
    broker, b, _ = make_cluster()
    losing = hold_queued(broker, b, number=id_where(broker, b, wins=True))
    winning = hold_queued(broker, b, number=id_where(broker, b, wins=False))
    say(broker, b, QUEUED, (losing.id, 0, 0, 0, 1), (winning.id, 0, 0, 0, 1))
    assert queue_of(broker) == [winning.id]
    assert sent(broker) == [((b,), QUEUED, (winning.id, QUEUED_WAITING, 0, 0, 1, 1))]
    assert losing.state == ACTIVE


def test_of_two_holders_that_would_queue_a_limited_job_one_waits():
    """Spec Y4: two deliveries at the same moment would be one too many."""
    for is_loser in (True, False):
        broker, b, c = make_cluster()
        job = hold(broker, b, c, retry_s=30, number=id_where(broker, b, wins=is_loser))
        changing.begin(broker, job).limit = 2
        advance(broker, 29_800)
        say(broker, b, WILLQUEUE, (job.id, 0))
        advance(broker, 300)
        assert (queue_of(broker) == []) is is_loser
        advance(broker, 2_000)
        assert queue_of(broker) == [job.id]


def test_counters_and_attempts_merge_by_maximum():
    """Spec L5."""
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    job.nacks, job.deliveries, job.attempt = 5, 1, 2
    say(broker, b, QUEUED, (job.id, 0, 7, 3, 4))
    assert (job.attempt, job.nacks, job.deliveries) == (7, 5, 4)
    say(broker, b, QUEUED, (job.id, 0, 2**60, 2**60, 2**60))
    assert (job.attempt, job.nacks, job.deliveries) == (2**32 - 1, COUNTER_MAX, COUNTER_MAX)


def test_a_running_lease_is_told_to_a_node_that_queued_the_job_without_knowing():
    broker, b, _ = make_cluster()
    hold_queued(broker, b, retry_s=30)
    job = deliver(broker)
    pass_time(broker, 10_000)
    sent(broker)
    say(broker, b, QUEUED, (job.id, 0, 0, 0, 1))
    assert sent(broker) == [((b,), LEASED, (job.id, 20_000, 1, 2))]
    assert job.is_leased_here


def test_the_lease_of_a_third_node_is_told_to_a_node_that_queued_the_job_without_knowing():
    """Spec L3: that node might hand the job to us, and we would deliver it again (simulator, seed 3616)."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c, retry_s=30)
    say(broker, b, LEASED, (job.id, 40_000, 1))
    say(broker, c, QUEUED, (job.id, QUEUED_WAITING, 0, 0, 0))
    [(receivers, kind, (job_id, _, attempt, *_))] = sent(broker)
    assert (receivers, kind, job_id, attempt) == ((c,), LEASED, job.id, 1)
    assert events.status_of(job) == RUNNING
    say(broker, c, QUEUED, (job.id, QUEUED_RELEASED, 1, 1, 0))
    assert sent(broker) == []
    assert events.status_of(job) == PENDING


def test_a_nack_on_another_node_ends_the_lease_here():
    broker, b, _ = make_cluster()
    hold_queued(broker, b)
    job = deliver(broker)
    sent(broker)
    say(broker, b, QUEUED, (job.id, QUEUED_RELEASED, 1, 1, 0))
    assert (sent(broker), job.is_leased_here, job.nacks) == ([], False, 1)


@pytest.mark.parametrize("jitter_ms", [-250, 249])
@pytest.mark.plain
def test_a_job_queued_elsewhere_never_shortens_a_known_lease(jitter_ms):
    """A holder queues the job no earlier than the last lease ends that it heard of (spec L2)."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c, retry_s=5)
    say(broker, b, LEASED, (job.id, 5000, 1))
    broker._jitters = [jitter_ms]
    say(broker, c, QUEUED, (job.id, QUEUED_WAITING, 1, 0, 0))
    assert job.requeue_at_ms >= broker.now_ms + 5000


# -- WILLQUEUE ------------------------------------------------------------------------------------------


def test_a_node_that_has_the_job_queued_objects_to_all():
    broker, b, c = make_cluster()
    job = hold_queued(broker, b, c)
    say(broker, b, WILLQUEUE, (job.id, 0))
    assert sent(broker) == [((b, c), QUEUED, (job.id, QUEUED_WAITING, 0, 0, 0, 1))]


def test_a_node_that_delivered_it_objects_with_the_time_left():
    broker, b, c = make_cluster()
    hold_queued(broker, b, c, retry_s=30)
    job = deliver(broker)
    pass_time(broker, 12_000)
    say(broker, b, WILLQUEUE, (job.id, 0))
    assert sent(broker) == [((b, c), LEASED, (job.id, 18_000, 1, 2))]


def test_a_node_whose_lease_is_over_does_not_object():
    broker, b, _ = make_cluster()
    hold_queued(broker, b, retry_s=30)
    job = deliver(broker)
    pass_time(broker, 30_001)
    say(broker, b, WILLQUEUE, (job.id, 0))
    assert sent(broker) == []


def test_a_holder_that_heard_of_a_later_delivery_tells_the_asker_of_its_lease():
    """Spec L3, Y4: the node that delivered the job may not have been linked with the asker, which would queue it."""
    broker, b, c = make_cluster()
    job = hold(broker, b, c, retry_s=30)
    say(broker, b, LEASED, (job.id, 40_000, 1))
    pass_time(broker, 5_000)
    say(broker, c, WILLQUEUE, (job.id, 0))
    [(receivers, kind, (job_id, left_ms, attempt, *_))] = sent(broker)
    assert (receivers, kind, job_id, attempt) == ((c,), LEASED, job.id, 1)
    assert 35_000 <= left_ms < 36_000
    say(broker, c, WILLQUEUE, (job.id, 1))
    say(broker, b, QUEUED, (job.id, QUEUED_RELEASED, 2, 1, 0))
    say(broker, c, WILLQUEUE, (job.id, 1))
    assert sent(broker) == []


def test_the_longer_of_two_leases_of_one_delivery_answers_for_the_job():
    """WORKING at another node, for less time than the lease of the delivery. The job runs on one node. Spec L2, Z2."""
    broker = make_broker()
    b = add_node(broker)
    job = hold_queued(broker, b, retry_s=30)
    deliver(broker)
    sent(broker)
    say(broker, b, LEASED, (job.id, 5_000, 1))
    assert job.is_leased_here
    assert sent_of(broker, LEASED) == [((b,), (job.id, 30_000, 1, 2))]
    say(broker, b, LEASED, (job.id, 60_000, 1))
    assert not job.is_leased_here
    say(broker, b, LEASED, (job.id, 10_000, 1))
    assert sent_of(broker, LEASED) == []


@pytest.mark.parametrize("kind", [WILLQUEUE, QUEUED, LEASED])
def test_a_node_that_knows_the_job_as_done_says_so(kind):
    broker, b, _ = make_cluster()
    job = hold(broker, b)
    acks.acknowledge(broker, job)
    rest = {WILLQUEUE: (0,), QUEUED: (0, 0, 0, 0), LEASED: (1000, 1)}[kind]
    say(broker, b, kind, (job.id, *rest))
    assert sent(broker) == [((b,), SETACK, (job.id, pack(broker.me, b)))]
    assert job.state == ACKED
    broker.tombstones.add(make_id(2), broker.now_ms)
    say(broker, b, kind, (make_id(2), *rest))
    assert sent(broker) == [((b,), SETACK, (make_id(2), b""))]
    say(broker, b, kind, (make_id(3), *rest))
    assert sent(broker) == []


# -- announcements --------------------------------------------------------------------------------------


def test_a_hundred_waiting_jobs_are_announced_in_one_run():
    """Otherwise 100,000 of them would cost 100,000 messages per RETRY (spec L4)."""
    broker, b, c = make_cluster()
    jobs = [hold_queued(broker, b, c, number=number, retry_s=300) for number in range(100)]
    announced = []
    for _ in range(300):
        advance(broker, 1000)
        announced += [items for _, kind, items in broker.outbox.messages.take() if kind == QUEUED]
    assert len(announced) <= 40
    assert {item[0] for items in announced for item in items} == {job.id for job in jobs}


def test_an_announcement_names_only_jobs_that_still_wait():
    broker, b, _ = make_cluster()
    gone, leased, waiting = [hold_queued(broker, b, number=number) for number in range(3)]
    for job in (gone, leased, waiting):
        requeue.announce_later(broker, job)
    acks.acknowledge(broker, gone)
    sent(broker)
    advance(broker, 1050)
    ids = [item[0] for _, item in sent_of(broker, QUEUED)]
    assert ids == [leased.id, waiting.id]


# -- the rule both compute alike ------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(left=st.binary(min_size=20, max_size=20), right=st.binary(min_size=20, max_size=20), number=st.integers(0, 99))
def test_exactly_one_of_two_nodes_wins(left, right, number):
    """Spec L6."""
    one, other, job_id = Node(left), Node(right), make_id(number)
    assert requeue.wins(one, other, job_id) + requeue.wins(other, one, job_id) == (left != right)


def test_no_node_always_wins():
    broker, b, _ = make_cluster()
    wins = sum(requeue.wins(b, broker.me, make_id(number)) for number in range(200))
    assert 60 < wins < 140


@pytest.mark.parametrize(
    ("retry_s", "is_delivered", "may"), [(5, False, True), (5, True, True), (0, False, True), (0, True, False)]
)
def test_an_at_most_once_job_is_never_queued_after_its_delivery(retry_s, is_delivered, may):
    job = hold(make_broker(), retry_s=retry_s)
    job.is_delivered = is_delivered
    assert requeue.is_queueable(job) is may


# -- stories --------------------------------------------------------------------------------------------


def start_world(retry_s=2, **fields):
    world = World("abc", **fields)
    world.join()
    job_id = world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3, "RETRY", retry_s)
    world.run(20)
    return world, job_id


def queued_on(world, job_id):
    found = {name: world[name].find(job_id) for name in world.members}
    return [name for name, job in found.items() if job is not None and job.state == IS_QUEUED]


def test_after_a_delivery_without_ack_exactly_one_node_queues_the_job_again():
    world, job_id = start_world()
    assert world.ask("a", "GETJOB", "FROM", "q")[0][1] == job_id
    world.run(2_600)
    assert len(queued_on(world, job_id)) == 1
    assert [world[name].find(job_id).deliveries for name in "abc"] == [1, 1, 1]


def test_when_the_node_with_the_consumer_dies_another_queues_the_job():
    world, job_id = start_world()
    world.ask("a", "GETJOB", "FROM", "q")
    world.crash("a")
    world.run(3_500)
    assert len(queued_on(world, job_id)) == 1


def test_a_job_that_waits_for_long_stays_in_one_queue():
    world, job_id = start_world()
    for _ in range(20):
        world.run(1_000)
        assert queued_on(world, job_id) == ["a"]
    assert world["a"].find(job_id).deliveries == 0


def test_a_worker_that_is_still_busy_keeps_its_job():
    world, job_id = start_world(retry_s=5)
    world.ask("a", "GETJOB", "FROM", "q")
    for _ in range(6):
        world.run(3_000)
        assert world.ask("b", "WORKING", job_id) == 5
        assert queued_on(world, job_id) == []


def test_two_halves_that_both_queued_a_job_agree_after_the_healing():
    world, job_id = start_world()
    world.ask("a", "GETJOB", "FROM", "q")
    world.cut("a", "b")
    world.cut("a", "c")
    world.run(4_000)
    assert len(queued_on(world, job_id)) == 2
    world.heal()
    world.run(8_000)
    assert len(queued_on(world, job_id)) == 1


def test_counters_that_another_node_tells_are_recorded():
    """The lease is elsewhere and the job waits as before; only the counters are new (simulator, seed 9)."""
    broker, b, _ = make_cluster()
    broker.is_journaling = True
    job = hold(broker, b)
    for kind, item in ((QUEUED, (job.id, 0, 7, 3, 4)), (WILLQUEUE, (job.id, 9))):
        journaling.clear(broker)
        say(broker, b, kind, item)
        assert job in broker.dirty
        journaling.clear(broker)
        say(broker, b, kind, item)
        assert job not in broker.dirty


@pytest.mark.parametrize("words", [(), ("ATTEMPT", 1)])
def test_a_nack_at_another_node_that_crosses_the_news_of_the_delivery_queues_the_job(words):
    """Spec Y4: the job was in no queue until the end of the lease, because LEASED took it out of the queue again."""
    world = joined("ab", delay_ms=100)
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 30, "REPLICATE", 2, "ATTEMPTS", 2)
    world.run(500)
    assert world.ask("a", "GETJOB", "FROM", "q")
    assert world.ask("b", "NACK", job_id, *words) == 1
    world.run(500)
    assert world.ask("a", "SHOW", job_id)[33] == 0  # leased
    assert world.ask("b", "GETJOB", "NOHANG", "FROM", "q")[0][1] == job_id
