"""Defects that random days and transcripts have shown, each as the shortest scenario that shows it again.

Days are seeds of the simulator's predecessor. Defects that the simulator found are in tests/simulation.
"""

from __future__ import annotations

import pytest

from cluster_bus.messages import HINT, QUEUED, REPLJOB, SETACK, TOOK, YOURJOBS
from disque_py.core.job import ACKED, ACTIVE
from disque_py.core.job_snapshot import job_of, snapshot_of
from disque_py.core.lifecycle import enqueue, forget, register


def lose_next(world, kind, sender, receiver):
    """Lose the next message of this kind between these nodes."""
    left = [1]

    def drop(from_, to, what, item):
        return (from_, to, what) == (sender, receiver, kind) and bool(left) and left.pop() == 1

    world.drop = drop


def said(world, sender, kind):
    """Return the messages of this kind that left a node."""
    return [item for name, _, what, item in world.sent if (name, what) == (sender, kind)]


def test_a_leaver_never_drops_the_only_copy(make):
    """
    The only other node refused the copy, because its queue is paused. The question alone makes it a holder in the sets,
    which proves nothing: LEFT without a successor needs a holder that has the job. Days: 3 and others with `leaving`.
    """
    world = make("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 60)
    assert len(world.ask("a", "GETJOB", "FROM", "q")) == 1
    world.ask("a", "DEQUEUE", job_id)
    world["a"].find(job_id).is_leased_here = False
    world.ask("b", "DELJOB", job_id)
    world.ask("b", "PAUSE", "q", "in")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(5_000)
    assert world["a"].find(job_id) or world["b"].find(job_id)
    world.ask("b", "PAUSE", "q", "none")
    world.run(5_000)
    assert world["b"].find(job_id)
    assert not world["a"].job_count


def test_a_leaver_stops_asking_a_node_that_got_the_job_in_another_way(make):
    """
    It asked c for a copy. Before the request arrived, b handed the job to c. The answer "known" means no new copy, but
    c is a holder that has one. So the leaver must look for another node, or leave without. Days 503, 521 and others
    with leaving nodes=abcd.
    """
    world = make("abc")
    while True:
        job_id = world.ask("b", "ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 60)
        if world["a"].find(job_id):
            break
        world.ask("b", "FASTACK", job_id)
    world.drop = lambda sender, receiver, kind, item: (sender, kind) == ("a", REPLJOB)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(300)
    assert len(world.ask("c", "GETJOB", "FROM", "q")) == 1
    world.drop = None
    world.run(10_000)
    assert world["a"].job_count == 0


def test_an_id_may_come_back_while_its_dead_entry_is_in_the_queue(make):
    """
    A copy is forgotten while its entry is still in the queue's heap. Then it is handed over again. So there are two
    entries with the same key, and the jobs themselves can't be compared. Day 205.
    """
    world = make("ab")
    first = world.ask("a", "ADDJOB", "q", "old", 0, "REPLICATE", 1)
    world.run(5)
    young = world.ask("b", "ADDJOB", "q", "young", 0, "REPLICATE", 1)
    assert first
    assert young
    broker = world["b"]
    snapshot = snapshot_of(world["a"], world["a"].find(first))
    for _ in range(3):
        job = job_of(broker, snapshot)
        register(broker, job)
        enqueue(broker, job)
        assert world.ask("b", "QPEEK", "q", 5)[0][1] == first
        forget(broker, job)
    assert world.ask("b", "QLEN", "q") == 1


def test_settled_numbers_of_one_process_are_not_sent_to_the_next(make):
    """
    SETTLED is sent a second after the last answer. If the taker was restarted meanwhile, its first hand-over has the
    same number again. It would be ignored for ever. Days 166 and 238 with nodes=abcd crashes.
    """
    world = make("ab")
    getter = world.client("b")
    getter.say("GETJOB", "FROM", "q")
    world.run(20)
    world.ask("a", "ADDJOB", "q", "first", 0, "RETRY", 0)
    world.run(300)
    assert getter.replies
    world.crash("b")
    world.restart("b")
    world.run(1_500)
    getter = world.client("b")
    getter.say("GETJOB", "FROM", "q")
    world.run(100)
    world.ask("a", "ADDJOB", "q", "second", 0, "RETRY", 0)
    world.run(3_000)
    assert [reply[0][2] for reply in getter.replies] == [b"second"]


def test_an_ack_kept_for_a_late_copy_is_collected_like_any_other(make):
    """A late REPLJOB for a done job leaves an acked record. Its timer must ask. Day 155 leaving nodes=abcd."""
    world = make("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    snapshot = snapshot_of(world["a"], world["a"].find(job_id))
    world.ask("a", "ACKJOB", job_id)
    broker = world["b"]
    broker.tombstones.add(job_id, broker.now_ms)
    world.cut("a", "b")
    member = world.members["b"]
    sender = member.membership.table.find(world.members["a"].node_id)
    member.driver.receive(sender, [[REPLJOB, (snapshot, 1)]])
    member.driver.finish()
    assert broker.find(job_id).state == ACKED
    world.heal()
    world.run(8_000)
    assert broker.find(job_id) is None


@pytest.mark.parametrize(("node", "command"), [("a", "ACKJOB"), ("a", "FASTACK"), ("b", "FASTACK"), ("b", "ACKJOB")])
def test_a_producer_whose_job_is_processed_before_its_hand_over_is_answered_gets_its_id(make, node, command):
    """
    A leaving node has a job with RETRY 0. The taker has delivered the job, its answer is in transit or lost, and the
    consumer acknowledges. The producer must not wait for ever (spec Q11). Day 110 losses leaving.
    """
    world = make("ab")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(50)
    world.drop = lambda sender, receiver, kind, item: kind == TOOK
    producer = world.client("a")
    producer.say("ADDJOB", "q", "body", 2_000, "RETRY", 0)
    world.run(50)
    [[_, job_id, _]] = world.ask("b", "GETJOB", "FROM", "q")
    world.ask(node, command, job_id)
    world.run(50)
    world.drop = None
    world.run(4_000)
    assert producer.replies, "the producer waits for ever"
    assert world["a"].waits.blocked_count == 0


def test_a_hint_that_is_owed_is_not_forgotten_because_another_queue_owes_one(make):
    """
    The hint to b is lost, and it is due again ten milliseconds later. Meanwhile another queue's hint was sent. The
    client on b must not have to wait for the fallback of half a minute.
    """
    world = make("ab")
    first, second = world.client("b"), world.client("b")
    first.say("GETJOB", "FROM", "q")
    second.say("GETJOB", "FROM", "r")
    world.run(20)
    lose_next(world, HINT, "a", "b")
    world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.run(4)
    world.ask("a", "ADDJOB", "r", "body", 0, "REPLICATE", 1)
    world.run(500)
    assert second.replies
    assert first.replies


def test_a_queue_whose_jobs_all_rest_owes_no_hint(make):
    """A job that came less than 100 ms ago can't be passed on. Repeated requests for it would be a storm."""
    world = make("abc")
    getter = world.client("b")
    getter.say("GETJOB", "FROM", "q")
    world.run(20)
    for number in range(6):
        world.ask("a", "ADDJOB", "q", number, 0, "REPLICATE", 1)
    world.run(20)
    assert world["b"].queues[b"q"].length
    world.client("c").say("GETJOB", "FROM", "q")
    world.sent.clear()
    world.run(40)
    assert len(said(world, "b", HINT)) <= 2


def test_a_hint_on_a_slow_link_is_not_repeated_before_its_answer_can_come(make):
    """One node waits, 40 ms away. It must not get four hints and send four pulls for one job."""
    world = make("ab", delay_ms=20)
    world.client("b").say("GETJOB", "FROM", "q")
    world.run(100)
    for number in range(12):
        world.ask("a", "ADDJOB", "q", number, 0, "REPLICATE", 1)
    world.sent.clear()
    world.run(60)
    assert len(said(world, "a", HINT)) <= 2


def test_a_node_whose_clients_are_served_does_not_pull_more(make):
    """The hint comes together with the job. One client waits, so one job is enough."""
    world = make("ab")
    for number in range(12):
        world.ask("a", "ADDJOB", "q", number, 0, "REPLICATE", 1)
    world.client("b").say("GETJOB", "FROM", "q")
    world.run(50)
    assert world["a"].queues[b"q"].length >= 10


def test_where_clients_wait_every_node_is_asked_every_30_seconds(make):
    """The fallback (spec I8) helps the client that has been waiting all the time."""
    world = make("ab")
    getter = world.client("b")
    world.drop = lambda sender, receiver, kind, item: True
    getter.say("GETJOB", "FROM", "q")
    world.run(100)
    world.drop = None
    world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.run(31_000)
    assert getter.replies


def test_the_reason_why_a_node_cannot_leave_is_always_shown_on_request(make):
    """CLUSTER INFO names the silent holder as long as it is silent."""
    world = make("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 3)
    world.ask("b", "GETJOB", "NOHANG", "FROM", "q")
    world.ask("a", "DEQUEUE", job_id)
    world.pause("c")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(2_500)
    told = []
    for _ in range(12):
        told.append(b"cluster_leaving_blocked_by" in world.ask("a", "CLUSTER", "INFO"))
        world.run(100)
    assert all(told)


def test_a_holder_that_was_forgotten_elsewhere_does_not_keep_an_ack_for_ever(make):
    """
    a and b forgot c before d joined. d can't forget a node that it does not know. So a set that names c must not reach
    d, or FORGET of an unknown id must work at d. Days 10 and 133 with leaving.
    """
    world = make("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 60)
    world.crash("c")
    for name in "ab":
        world.ask(name, "CLUSTER", "FORGET", world.members["c"].node_id.hex())
    del world.members["c"]
    world.add("d")
    world.meet("d", "a")
    world.run(1_000)
    world.client("d").say("GETJOB", "FROM", "q")
    world.run(100)
    for name in "ab":
        world.crash(name)
        world.ask("d", "CLUSTER", "FORGET", world.members[name].node_id.hex())
    world.ask("d", "ACKJOB", job_id)
    world.run(10_000)
    assert world["d"].job_count == 0


def test_async_without_any_node_to_take_the_job_is_an_error(make):
    """A node that keeps no copy and reaches no other node must not answer with an id."""
    world = make("ab", cluster_node_timeout=2_000)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.cut("a", "b")
    reply = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1, "ASYNC")
    assert isinstance(reply, Exception)


def test_async_of_a_node_that_keeps_no_copy_survives_a_refusal(make):
    """The only node that got the job refuses it (paused). Another one must be asked, because no other node has it."""
    world = make("abc")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.ask("b", "PAUSE", "q", "in")
    for number in range(8):
        world.ask("a", "ADDJOB", "q", number, 0, "REPLICATE", 1, "ASYNC")
    world.run(2_000)
    assert world["b"].job_count + world["c"].job_count + world["a"].job_count == 8


def test_an_ack_sent_to_a_leaving_node_reaches_the_holders(make):
    """The leaving node makes no dummy ack (spec V6), but it can tell the others (spec Q43)."""
    world = make("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 1)
    world.ask("a", "GETJOB", "FROM", "q")
    world.ask("b", "CLUSTER", "LEAVING", "yes")
    world.ask("b", "ACKJOB", job_id)
    assert world["b"].job_count == 0
    world.run(3_000)
    assert world.ask("a", "QLEN", "q") == 0


def test_a_batch_of_announcements_names_a_job_once(make):
    """With RETRY 1, its announcements come due twice per batch."""
    world = make("ab")
    batches = []
    world.on_runs = lambda member, runs: batches.extend(items for _, kind, items in runs if kind == QUEUED)
    world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 1, "REPLICATE", 2)
    world.run(5_000)
    assert batches
    assert [items for items in batches if len({item[0] for item in items}) < len(items)] == []


def test_a_lost_took_or_yourjobs_delivers_once(make):
    """An at-most-once job comes once, whichever message of a hand-over is lost."""
    for kind, sender, receiver in ((YOURJOBS, "a", "b"), (TOOK, "b", "a")):
        world = make("ab")
        getter = world.client("b")
        getter.say("GETJOB", "FROM", "q")
        world.run(20)
        lose_next(world, kind, sender, receiver)
        job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
        world.run(5_000)
        assert len(getter.replies) == 1
        assert world["a"].find(job_id) is None
        assert world["b"].find(job_id).state == ACTIVE


def test_setack_is_not_repeated_without_end_between_two_that_know(make):
    """After two collectors have finished, no further questions are sent."""
    world = make("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 3)
    for name in "abc":
        world.client(name).say("ACKJOB", job_id)
    world.run(3_000)
    world.sent.clear()
    world.run(60_000)
    assert [what for _, _, what, _ in world.sent if what == SETACK] == []
    assert all(world[name].job_count == 0 for name in "abc")


def test_on_slow_links_the_collection_of_an_ack_ends(make):
    """
    Spec A14. An answer takes longer than the time after which each holder collects, too. The holders that had ended the
    collection kept the ack again for the others, and collected again: for ever. Seed 4907, with eight holders.
    """
    names = "abcdefgh"
    world = make(names, delay_ms=700)
    world.run(3_000)
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 8, "RETRY", 300)
    world.run(2_000)
    world.sent.clear()
    assert world.ask("a", "ACKJOB", job_id) == 1
    world.run(5_000)
    assert all(world[name].job_count == 0 for name in names)
    assert len([what for _, _, what, _ in world.sent if what == SETACK]) <= 7 + 8 * 7
    world.sent.clear()
    world.run(30_000)
    assert [what for _, _, what, _ in world.sent if what == SETACK] == []


def test_one_bad_id_in_a_long_list_and_nothing_is_done(make):
    """The list is so long that it is checked and worked on in parts."""
    world = make("a")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0)
    assert "BADID" in str(world.ask("a", "ACKJOB", *[job_id] * 5_000, "bad"))
    assert world["a"].queues[b"q"].length == 1
    assert world.ask("a", "ACKJOB", *[job_id] * 5_000) == 1
