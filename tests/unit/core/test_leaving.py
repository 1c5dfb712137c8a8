"""core/leaving.py: a node gives its jobs away, down to zero."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import (
    GOTJOB,
    HOLDERS,
    LEFT,
    LEFT_OK,
    REFUSED,
    REFUSED_PAUSED,
    REPLJOB,
    SETACK,
    TOOK,
    YOURJOBS,
)
from cluster_bus.node import LEAVING
from copies import advance, deliver, hold, hold_queued, make_id, pack, say, sent, sent_of
from disque_py.core import acks, client_acks, leaving
from disque_py.core.handover import TAKEN
from disque_py.core.job import ACKED, ACTIVE, GONE, QUEUED
from disque_py.core.leaving import HAS, HAS_ACK, HAS_NOT
from disque_py.core.replication import KNOWN
from disque_py.node import dispatch
from world import World, joined


def make_leaver(count=2):
    """A broker that leaves, and its other nodes."""
    broker = make_broker()
    nodes = [add_node(broker, number) for number in range(2, 2 + count)]
    ask(broker, make_client(broker), "CLUSTER", "LEAVING", "yes")
    sent(broker)
    return broker, *nodes


def step(broker):
    leaving.step(broker)
    return sent(broker)


def test_no_job_is_given_away_before_the_journal_is_read():
    """The rest of the journal may have a GONE or an ack, and the hand-overs would not be recorded."""
    broker, *_ = make_leaver()
    hold_queued(broker)
    broker.is_loading = True
    advance(broker, 500)
    assert sent(broker) == []
    broker.is_loading = False
    advance(broker, 500)
    assert YOURJOBS in [kind for _, kind, _ in sent(broker)]


# -- what lies in queues ------------------------------------------------------------------------------------


@pytest.mark.parametrize("retry_s", [0, 30])
def test_queued_jobs_go_by_hand_over(retry_s):
    """Spec V1."""
    broker, *_ = make_leaver()
    jobs = [hold_queued(broker, number=number, retry_s=retry_s) for number in range(30)]
    given = {each[0] for _, kind, (_, _, snapshots) in step(broker) if kind == YOURJOBS for each in snapshots}
    assert given == {job.id for job in jobs}


def test_they_are_spread_over_the_nodes():
    broker, b, c = make_leaver()
    for number in range(1500):
        hold_queued(broker, number=number)
    receivers = {nodes[0] for _ in range(3) for nodes, kind, _ in step(broker) if kind == YOURJOBS}
    assert receivers == {b, c}


def test_a_paused_queue_is_given_away_too():
    broker, *_ = make_leaver()
    hold_queued(broker)
    ask(broker, make_client(broker), "PAUSE", "q", "out")
    assert [kind for _, kind, _ in step(broker)] == [YOURJOBS]


def test_no_more_than_a_few_batches_are_on_their_way_to_a_node():
    broker, _ = make_leaver(1)
    for number in range(2_000):
        hold_queued(broker, number=number)
    for _ in range(5):
        step(broker)
    assert broker.queues[b"q"].length == 2_000 - leaving.PENDING_BATCHES_MAX * 100


# -- copies -------------------------------------------------------------------------------------------------


def test_a_copy_goes_to_a_node_that_has_none_and_is_dropped_when_all_holders_have_heard():
    """Spec V2."""
    broker, b, c = make_leaver()
    job = hold(broker, b)
    ((receivers, kind, (job_snapshot, *_)),) = step(broker)
    assert (receivers, kind, job_snapshot[4]) == ((c,), REPLJOB, pack(broker.me, b, c))
    say(broker, c, GOTJOB, job.id)
    assert sent(broker) == [((b, c), LEFT, (job.id, broker.me.id, c.id, pack(broker.me, b, c), job.version))]
    say(broker, b, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is job
    say(broker, c, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is None
    assert broker.stats.copies_missing_leaving == 0


@pytest.fixture
def moving():
    """A leaver, the other holder of a job, the node that took the leaver's copy, and the leaving creator of the job."""
    broker, b, c = make_leaver()
    creator = add_node(broker, 4)
    creator.flags |= LEAVING
    broker.cluster.refresh()
    job = hold(broker, b, creator=creator)
    step(broker)
    say(broker, c, GOTJOB, job.id)
    return broker, b, c, creator, job


def test_the_creator_hears_of_a_move_even_if_it_keeps_no_copy(moving):
    """It may still count the copy, and name this node to other holders. Spec C5 and V2."""
    broker, b, c, creator, job = moving
    assert sent(broker) == [((b, c, creator), LEFT, (job.id, broker.me.id, c.id, pack(broker.me, b, c), job.version))]
    for node in (b, c):
        say(broker, node, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is job
    say(broker, creator, LEFT_OK, (job.id, HAS_NOT))
    assert broker.find(job.id) is None


def test_a_creator_without_a_copy_need_not_answer_if_it_is_gone(moving):
    broker, b, c, creator, job = moving
    for node in (b, c):
        say(broker, node, LEFT_OK, (job.id, HAS))
    broker.membership.link_down(creator)
    advance(broker, 1_200)
    assert broker.find(job.id) is None


def test_a_creator_without_a_copy_is_no_holder():
    broker, b, c = make_leaver()
    creator = add_node(broker, 4)
    creator.flags |= LEAVING
    broker.cluster.refresh()
    job = hold(broker, b, c, creator=creator)
    step(broker)
    for node, has in ((creator, HAS), (b, HAS_NOT), (c, HAS_NOT)):
        say(broker, node, LEFT_OK, (job.id, has))
    assert broker.find(job.id) is job


def test_a_copy_that_was_there_before_does_not_count_as_new():
    """Only the answer `taken` counts: REPLICATE copies must remain (spec V2)."""
    broker, b, c = make_leaver()
    job = hold(broker, b)
    step(broker)
    say(broker, c, GOTJOB, (job.id, KNOWN))
    assert sent(broker) == []
    assert broker.find(job.id) is job
    assert c in job.holders
    assert [kind for _, kind, _ in step(broker)] == [LEFT]


def test_if_all_others_hold_the_job_already_the_missing_copy_is_counted():
    """Spec V3."""
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    assert step(broker) == [((b, c), LEFT, (job.id, broker.me.id, b"", pack(broker.me, b, c), job.version))]
    for node in (b, c):
        say(broker, node, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is None
    assert broker.stats.copies_missing_leaving == 1


def test_if_no_supposed_holder_has_the_job_this_copy_stays():
    """Nodes that were told of its end learn that it stays, because no collection may end without this node."""
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    step(broker)
    say(broker, b, LEFT_OK, (job.id, HAS_NOT))
    say(broker, c, LEFT_OK, (job.id, HAS_NOT))
    assert broker.find(job.id) is job
    assert job.holders == {broker.me}
    assert broker.drain.blocked_by == "no other node has the copy of a job"
    ((receivers, kind, _),) = step(broker)
    assert (kind, receivers[0] in (b, c)) == (REPLJOB, True)


def test_one_holder_with_the_job_is_enough_and_a_node_without_it_is_not_a_holder():
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    step(broker)
    say(broker, b, LEFT_OK, (job.id, HAS_NOT))
    assert job.holders == {broker.me, c}
    say(broker, c, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is None


def test_the_node_that_took_the_copy_is_asked_again_when_another_holder_leaves():
    """It may have left, too, because that holder had a copy. Then this node's copy is the last one. Spec V2."""
    broker, b, c = make_leaver()
    job = hold(broker, b)
    step(broker)
    say(broker, c, GOTJOB, job.id)
    say(broker, c, LEFT_OK, (job.id, HAS))
    say(broker, b, LEFT, (job.id, b.id, b"", pack(broker.me, b)))
    say(broker, b, LEFT_OK, (job.id, HAS_NOT))
    assert broker.find(job.id) is job
    advance(broker, 1_200)
    say(broker, c, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is None


def test_an_unanswered_request_for_a_copy_is_made_again():
    broker, b, c = make_leaver()
    job = hold(broker, b)
    first = step(broker)
    assert step(broker) == []
    pass_time(broker, 1000)
    ((receivers, kind, (job_snapshot, *_)),) = step(broker)
    assert (receivers, kind, job_snapshot[0]) == ((c,), REPLJOB, job.id)
    assert [nodes for nodes, _, _ in first] == [(c,)]


def test_another_node_gets_the_copy_when_the_first_is_gone_or_refuses():
    broker, b, c = make_leaver()
    d = add_node(broker, 4)
    job = hold(broker, b)
    (((first,), _, _),) = step(broker)
    say(broker, first, REFUSED, (job.id, REFUSED_PAUSED))
    assert first not in job.holders
    (((second,), _, _),) = step(broker)
    assert {first, second} == {c, d}
    say(broker, second, GOTJOB, job.id)
    assert [kind for _, kind, _ in sent(broker)] == [LEFT]


def test_silent_holders_are_asked_again_and_named():
    """Spec V5."""
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    step(broker)
    say(broker, b, LEFT_OK, (job.id, HAS))
    pass_time(broker, 1000)
    ((receivers, kind, _),) = step(broker)
    assert (receivers, kind) == ((c,), LEFT)
    assert broker.drain.blocked_by == f"holder {c.name.decode()} does not answer"


def test_the_reason_why_leaving_does_not_go_on_is_always_shown():
    """CLUSTER INFO shows it whenever a client asks (spec V5)."""
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    step(broker)
    say(broker, b, LEFT_OK, (job.id, HAS))
    pass_time(broker, 1000)
    step(broker)
    pass_time(broker, 100)
    step(broker)
    assert broker.drain.blocked_by == f"holder {c.name.decode()} does not answer"


def test_a_forgotten_holder_need_not_answer():
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    step(broker)
    say(broker, b, LEFT_OK, (job.id, HAS))
    broker.membership.forget(c)
    pass_time(broker, 1000)
    step(broker)
    assert broker.find(job.id) is None


def test_a_leased_job_waits_for_its_ack_or_the_end_of_its_lease():
    """Spec V4."""
    broker, b, _ = make_leaver()
    hold_queued(broker, b, retry_s=5)
    job = deliver(broker)
    assert step(broker) == []
    advance(broker, 5100)
    assert job.state == QUEUED or job.work is not None or job.state == GONE


def test_a_delivered_at_most_once_job_is_dropped():
    broker, *_ = make_leaver()
    hold_queued(broker, retry_s=0)
    job = deliver(broker)
    assert step(broker) == []
    assert (job.state, broker.stats.once_dropped_leaving) == (GONE, 1)


def test_a_delayed_at_most_once_job_goes_with_the_rest_of_its_delay():
    broker = make_broker()
    node = add_node(broker)
    client = make_client(broker)
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0, "RETRY", 0, "DELAY", 10)
    pass_time(broker, 4000)
    ask(broker, client, "CLUSTER", "LEAVING", "yes")
    sent(broker)
    ((receivers, _, (number, _, (job_snapshot,))),) = step(broker)
    assert (receivers, job_snapshot[0], job_snapshot[5]) == ((node,), job_id, 6000)
    say(broker, node, TOOK, (number, bytes([TAKEN])))
    assert broker.job_count == 0


# -- acks -----------------------------------------------------------------------------------------------------


def test_an_ack_that_a_silent_holder_keeps_here_is_passed_on():
    broker, b, c = make_leaver()
    c.is_linked = False
    job = hold(broker, b, c)
    client_acks.ack_here(broker, job.id)
    sent(broker)
    assert ((b,), SETACK, (job.id, pack(broker.me, b, c))) in step(broker)
    assert broker.find(job.id) is job


def test_an_ack_is_forgotten_when_the_node_that_took_it_has_confirmed():
    """The job stays known as done, because this node may stay after all while the silent holder has the job."""
    broker, b, c = make_leaver()
    c.is_linked = False
    job = hold(broker, b, c)
    client_acks.ack_here(broker, job.id)
    job.work.confirmed = (b,)
    step(broker)
    assert broker.find(job.id) is None
    assert job.id in broker.tombstones


# -- why it does not go on --------------------------------------------------------------------------------------


def test_a_node_that_leaves_alone_says_so():
    broker = make_leaver(0)[0]
    hold(broker)
    step(broker)
    assert broker.drain.blocked_by.startswith("no ")
    assert broker.job_count == 1


def test_without_jobs_no_reason_is_shown():
    broker = make_leaver(0)[0]
    step(broker)
    assert broker.drain.blocked_by == ""


def test_copies_are_not_given_to_nodes_that_leave_too():
    broker, b, c = make_leaver()
    c.flags |= LEAVING
    broker.cluster.refresh()
    hold(broker)
    ((receivers, _, _),) = step(broker)
    assert receivers == (b,)


def test_staying_after_all_keeps_copies_that_were_on_their_way():
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    step(broker)
    ask(broker, make_client(broker), "CLUSTER", "LEAVING", "no")
    assert broker.drain is None
    assert sent_of(broker, HOLDERS) == [((b, c), (job.id, pack(broker.me, b, c)))]
    for node in (b, c):
        say(broker, node, LEFT_OK, (job.id, HAS))
    assert broker.find(job.id) is job


# -- the other side -----------------------------------------------------------------------------------------------


def test_a_node_that_stays_replaces_the_leaver_by_the_new_holder():
    broker = make_broker()
    b, c, d = (add_node(broker, number) for number in (2, 3, 4))
    job = hold(broker, b, c)
    say(broker, b, LEFT, (job.id, b.id, d.id, pack(b, c, broker.me, d)))
    assert job.holders == {broker.me, c, d}
    assert sent(broker) == [((b,), LEFT_OK, (job.id, HAS))]


def test_a_holder_hears_the_version_of_a_copy_that_goes():
    """Spec V3. The leaver may get the job back, and tell of it again."""
    broker, b, c = make_leaver()
    job = hold(broker, b, c)
    say(broker, b, LEFT, (job.id, b.id, c.id, pack(broker.me, b, c), 7))
    assert job.version == 7


def test_the_holders_that_the_leaver_knew_are_merged():
    broker = make_broker()
    b, c = (add_node(broker, number) for number in (2, 3))
    job = hold(broker, b)
    say(broker, b, LEFT, (job.id, b.id, b"", pack(b, c, broker.me)))
    assert job.holders == {broker.me, c}


def test_a_leaver_of_a_job_that_is_done_learns_so():
    broker = make_broker()
    b = add_node(broker)
    job = hold(broker, b)
    acks.acknowledge(broker, job)
    say(broker, b, LEFT, (job.id, b.id, b"", pack(broker.me, b)))
    assert [(kind, item[1]) for _, kind, item in sent(broker)][1:] == [(LEFT_OK, HAS_ACK)]
    assert broker.find(job.id).state == ACKED


def test_a_leaver_of_an_unknown_job_may_go():
    broker = make_broker()
    b = add_node(broker)
    say(broker, b, LEFT, (make_id(), b.id, b"", pack(broker.me, b)))
    assert sent(broker) == [((b,), LEFT_OK, (make_id(), HAS_NOT))]


@pytest.mark.parametrize("field", ["old", "new"])
def test_a_holder_with_an_invalid_id_is_refused(field):
    """If it were in a set of holders, every node that got the set would break its link."""
    broker = make_broker()
    b = add_node(broker)
    job = hold(broker, b)
    item = (job.id, b"short" if field == "old" else b.id, b"short" if field == "new" else b"", pack(broker.me, b))
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, b, LEFT, item)


# -- stories --------------------------------------------------------------------------------------------------


def test_a_node_is_drained_to_zero_and_every_job_keeps_its_copies():
    world = World("abcd")
    world.join()
    ids = [world.ask("a", "ADDJOB", "q", f"body {number}", 1000, "REPLICATE", 3) for number in range(30)]
    ids += [world.ask("a", "ADDJOB", "q", f"once {number}", 1000, "RETRY", 0) for number in range(10)]
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.until(lambda: world["a"].job_count == 0, 20_000)
    for job_id in ids[:30]:
        assert sum(world[name].find(job_id) is not None for name in "bcd") == 3
    for job_id in ids[30:]:
        assert sum(world[name].find(job_id) is not None for name in "bcd") == 1


def test_jobs_of_a_drained_node_are_still_delivered():
    world = World("abc")
    world.join()
    ids = {world.ask("a", "ADDJOB", "q", "body", 1000, "RETRY", 0) for _ in range(10)}
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.until(lambda: world["a"].job_count == 0, 20_000)
    found = set()
    for name in "bc":
        reply = world.ask(name, "GETJOB", "NOHANG", "COUNT", 100, "FROM", "q") or []
        found |= {entry[1] for entry in reply}
    assert found == ids


def test_a_drain_waits_for_a_holder_that_is_down():
    world = World("abc")
    world.join()
    world.ask("a", "ADDJOB", "q", "body", 1000, "REPLICATE", 3)
    world.run(20)
    world.crash("c")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(5_000)
    assert world["a"].job_count == 1
    world.restart("c")
    world.until(lambda: world["a"].job_count == 0, 30_000)


def test_an_active_copy_is_found_by_the_step():
    broker, *_ = make_leaver()
    assert hold(broker).state == ACTIVE
    assert [kind for _, kind, _ in step(broker)] == [REPLJOB]


def test_a_job_that_a_worker_has_stays_and_is_named_as_the_reason():
    broker, *_ = make_leaver()
    leaving.end(broker)
    hold_queued(broker)
    job = deliver(broker)
    leaving.begin(broker)
    for _ in range(3):
        assert step(broker) == []
    assert job.state == ACTIVE
    info = ask(broker, make_client(broker), "CLUSTER", "INFO")
    assert b"cluster_leaving_blocked_by:a job is with a worker" in info


def test_a_copy_that_leaves_goes_to_a_zone_without_one():
    """Spec ZN2. The copies that stay count, the one that leaves does not."""
    for seed in range(10):
        broker = make_broker(seed=seed, zone="a")
        places = (("", "b"), ("", "b"), ("", "a"))
        nodes = [add_node(broker, number, place=place) for number, place in enumerate(places, 2)]
        hold(broker, nodes[0]).requeue_at_ms += 1
        ask(broker, make_client(broker), "CLUSTER", "LEAVING", "yes")
        sent(broker)
        leaving.step(broker)
        assert [receivers for receivers, kind, _ in sent(broker) if kind == REPLJOB] == [(nodes[2],)]


# -- delays -------------------------------------------------------------------------------------------------


def delayed(*options, names="abc"):
    """A delayed job of node a, and clients of the other nodes that wait for it."""
    world = joined(names)
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 30, *options)
    workers = [world.client(name) for name in names[1:]]
    for worker in workers:
        worker.say("GETJOB", "FROM", "q")
    world.run(1_000)
    return world, job_id, workers


@pytest.mark.parametrize("is_rescheduled", [False, True])
def test_a_delayed_job_is_delivered_at_its_time_although_a_holder_does_not_answer_the_leaver(is_rescheduled):
    """Spec V1. A hand-over ended after RETRY, and the takers queued the job then."""
    world, job_id, workers = delayed("REPLICATE", 3, "DELAY", 100)
    if is_rescheduled:
        world.ask("a", "RESCHEDULE", job_id, "DELAY", 99)
    world.cut("a", "c")
    world.run(1_000)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(90_000)
    assert not any(worker.replies for worker in workers)
    world.run(15_000)
    assert sum(len(worker.replies) for worker in workers) == 1


@pytest.mark.parametrize("replicate", [2, 3])
def test_a_rescheduled_job_leaves_with_its_node(replicate):
    """Its holders know its time. They refuse to take it, so it moves as a copy does."""
    world, job_id, workers = delayed("REPLICATE", replicate, "DELAY", 3_600)
    world.ask("a", "RESCHEDULE", job_id, "DELAY", 1_800)
    world.run(1_000)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(40_000)
    assert world["a"].find(job_id) is None
    assert sum(world[name].find(job_id) is not None for name in "bc") == 2
    assert not any(worker.replies for worker in workers)


def test_a_moved_copy_does_not_wait_for_a_delay_that_is_over():
    """Its timer ends a moment after that of the copy that it replaces."""
    world = joined("ab")
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 2, "DELAY", 400, "RETRY", 20)
    world.add("c")
    world.meet("a", "c")
    world.run(430_000)
    world.ask("b", "CLUSTER", "LEAVING", "yes")
    world.run(3_000)
    world.crash("a")
    world.crash("b")
    world.run(60_000)
    assert world["c"].find(job_id).state == QUEUED


# -- copies that are missing --------------------------------------------------------------------------------


def test_copies_that_were_lost_before_are_replaced_although_the_last_holder_leaves():
    """Spec V2, RC3."""
    world = World("ab", repair_after=600)
    world.join()
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 60)
    world.ask("a", "DEQUEUE", job_id)
    for name in "cde":
        world.add(name)
        world.meet("a", name)
    world.run(15_000)
    world.crash("b")
    for name in "acde":
        world.ask(name, "CLUSTER", "FORGET", (b"b" * 20).hex())
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(60_000)
    assert world["a"].find(job_id) is None
    assert sum(world[name].find(job_id) is not None for name in "cde") == 2
