"""Defects of the original in clusters, and related promises of its own tests.

Each test is named after its number in the list of defects. Its docstring is the rule of this project.
"""

from __future__ import annotations

import pytest

from cluster_bus.messages import QUEUED, REPLJOB, SETACK, TOOK, YOURJOBS
from disque_py.core.job import ACKED, WAIT_REPL
from disque_py.core.job import QUEUED as IS_QUEUED


def waiting(world, name, *words):
    """Return a client that has sent a request and waits."""
    talker = world.client(name)
    talker.say(*words)
    world.run(20)
    assert talker.replies == []
    return talker


def jobs_left(world):
    """Return the number of records on all nodes that are up."""
    return sum(world[name].job_count for name, member in world.members.items() if member.is_up)


def test_q01_the_ack_of_a_federated_job_reaches_the_giver(make):
    """The taker is a holder, the giver knows that, and sets (not sizes) are compared. No job is delivered again."""
    world = make("ab")
    getter = waiting(world, "b", "GETJOB", "FROM", "q")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 1)
    world.run(20)
    assert getter.replies == [[[b"q", job_id, b"body"]]]
    assert world.ask("b", "ACKJOB", job_id) == 1
    world.run(5_000)
    assert jobs_left(world) == 0
    assert world.ask("a", "QLEN", "q") == 0


def test_q03_q39_an_at_most_once_job_of_a_leaving_node_arrives(make):
    """It is handed over before its producer gets the reply, with and without DELAY, and comes once."""
    world = make("abc")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(20)
    ids = [world.ask("a", "ADDJOB", "q", number, 0, "RETRY", 0, "DELAY", number % 2) for number in range(19)]
    world.run(1_500)
    got = []
    for name in "bc":
        while reply := world.ask(name, "GETJOB", "NOHANG", "COUNT", 50, "FROM", "q"):
            got += [job_id for _, job_id, _ in reply]
    assert sorted(got) == sorted(ids)


def test_q03_an_at_most_once_job_of_a_node_above_75_percent_arrives(make):
    """The same rule applies to a node that is short of memory while others are not."""
    world = make("abc")
    world.ask("a", "ADDJOB", "ballast", "x" * 5_000, 0, "REPLICATE", 1)
    world["a"].settings.maxmemory = int(world["a"].used_memory / 0.8)
    world["a"].apply_maxmemory()
    world.run(300)
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    assert world["a"].find(job_id) is None
    holders = [name for name in "bc" if world[name].find(job_id)]
    assert len(holders) == 1
    assert world.ask(holders[0], "GETJOB", "FROM", "q")[0][1] == job_id


def test_q07_yourjobs_does_not_bring_an_acked_job_back(make):
    """The taker knows that it is acknowledged. It refuses the job, and tells the giver."""
    world = make("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    world.cut("a", "b")
    world.ask("b", "ACKJOB", job_id)
    getter = world.client("b")
    getter.say("GETJOB", "TIMEOUT", 5_000, "FROM", "q")
    world.heal()
    world.run(6_000)
    assert getter.replies == [None]
    assert jobs_left(world) == 0


def test_q07_yourjobs_for_a_job_whose_producer_waits_is_refused(make):
    """The producer's job stays in WAIT_REPL until its copies are confirmed. The giver keeps its copy."""
    world = make("abc")
    world.pause("c")
    producer = waiting(world, "a", "ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 1)
    waiting(world, "a", "GETJOB", "FROM", "q")
    world.run(5_000)
    [job_id] = [job.id for shard in world["a"].shards for job in shard.values()]
    assert world["a"].find(job_id).state == WAIT_REPL
    assert producer.replies == []
    world.resume("c")
    world.run(2_000)
    assert producer.replies == [job_id]


def test_q10_two_dummy_acks_keep_the_ack(make):
    """The holder is away. Two nodes that never had the job keep its ack until the holder returns. The job is not
    delivered again.
    """
    world = make("abc")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 5)
    world.ask("a", "GETJOB", "FROM", "q")
    world.cut("a", "b")
    world.cut("a", "c")
    world.ask("b", "ACKJOB", job_id)
    world.ask("c", "ACKJOB", job_id)
    world.run(500)
    assert (world["b"].find(job_id).state, world["c"].find(job_id).state) == (ACKED, ACKED)
    world.heal()
    world.run(10_000)
    assert jobs_left(world) == 0
    assert world.ask("a", "QLEN", "q") == 0


def test_q11_a_producer_hears_of_its_job_when_a_copy_was_acknowledged(make):
    """The job exists and was processed, so the reply is its id, not a timeout."""
    world = make("abc")
    world.pause("c")
    producer = waiting(world, "a", "ADDJOB", "q", "body", 2_000, "REPLICATE", 3)
    [job_id] = [job.id for shard in world["b"].shards for job in shard.values()]
    assert world.ask("b", "ACKJOB", job_id) == 1
    world.run(20)
    assert producer.replies == [job_id]
    world.resume("c")
    world.run(10_000)
    assert jobs_left(world) == 0


@pytest.mark.parametrize("how", ["leaving", "failed"])
def test_q13_default_replicate_counts_reachable_nodes(make, how):
    """A node that leaves or has failed does not make every ADDJOB fail."""
    world = make("abc", cluster_node_timeout=2_000)
    if how == "leaving":
        world.ask("c", "CLUSTER", "LEAVING", "yes")
        world.run(300)
    else:
        world.crash("c")
        world.run(10_000)
    job_id = world.ask("a", "ADDJOB", "q", "body", 100)
    assert isinstance(job_id, bytes)
    assert len(world["a"].find(job_id).holders) == 2


def test_q14_yourjobs_into_a_paused_queue_are_refused(make):
    """The giver queues them again. No job is lost, and no job is delivered at the paused node."""
    world = make("ab", delay_ms=20)
    getter = waiting(world, "b", "GETJOB", "FROM", "q")
    world.run(100)
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.run(25)
    world.ask("b", "PAUSE", "q", "in")
    world.run(500)
    assert getter.replies == []
    assert world["a"].find(job_id).state == IS_QUEUED


def test_q15_a_lost_hand_over_costs_a_second_not_a_retry(make):
    """A hand-over is acknowledged per job, and repeated until then."""
    world = make("ab")
    getter = waiting(world, "b", "GETJOB", "FROM", "q")
    lost = []
    world.drop = lambda sender, receiver, kind, item: kind in (YOURJOBS, TOOK) and len(lost) < 2 and not lost.append(1)
    world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 300)
    world.run(3_000)
    assert len(getter.replies) == 1


def test_q22_the_delay_is_not_applied_again_to_copies(make):
    """The creator of a delayed job dies. Its copy is queued after DELAY and RETRY, counted from the copy's receipt."""
    world = make("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 2, "DELAY", 3, "RETRY", 2)
    world.crash("a")
    world.run(4_000)
    assert world["b"].find(job_id).state != IS_QUEUED
    world.run(1_600)
    assert world["b"].find(job_id).state == IS_QUEUED


def test_q26_the_extension_comes_after_50_ms(make):
    """If a node is silent, other nodes are asked immediately. Copies that others have are not sent again."""
    world = make("abcd")
    world.pause("c")
    world.pause("d")
    talker = world.client("a")
    talker.say("ADDJOB", "q", "body", 0, "REPLICATE", 2)
    world.run(170)
    assert isinstance(talker.replies[0], bytes)
    bodies = [to for name, to, kind, _ in world.sent if name == "a" and kind == REPLJOB]
    assert len(bodies) == len(set(bodies))


def test_q29_leaving_answers_producers_too_and_deletes_what_they_waited_for(make):
    """The original documents this only for GETJOB. Here it applies to both, with the same error."""
    world = make("abc")
    world.pause("b")
    world.pause("c")
    producer = waiting(world, "a", "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    consumer = waiting(world, "a", "GETJOB", "FROM", "r")
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    assert str(producer.replies[0]).startswith("LEAVING")
    assert str(consumer.replies[0]).startswith("LEAVING")
    world.resume("b")
    world.resume("c")
    world.run(2_000)
    assert jobs_left(world) == 0


def test_q30_the_copies_of_a_failed_addjob_are_deleted_where_that_is_possible(make):
    """This is best effort, and documented: a node that is away keeps its copy."""
    world = make("abc")
    world.pause("c")
    reply = world.ask("a", "ADDJOB", "q", "body", 300, "REPLICATE", 3)
    assert str(reply).startswith("NOREPL")
    world.run(50)
    assert world["b"].job_count == 0


def test_q31_a_dummy_ack_needs_those_that_live_and_are_not_forgotten(make):
    """Once the dead node is forgotten, the other nodes are enough."""
    world = make("abc", cluster_node_timeout=2_000)
    world.crash("c")
    unknown = b"D-ffffffff-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"
    world.ask("a", "ACKJOB", unknown)
    world.run(3_000)
    assert world["a"].job_count == 1
    world.ask("a", "CLUSTER", "FORGET", world.members["c"].node_id.hex())
    world.run(8_000)
    assert world["a"].job_count == 0


def test_q37_clock_steps_strand_nothing(make):
    """The clock jumps by +600 s for 6 s. Delayed jobs and repeated deliveries still come at the right time."""
    world = make("abc")
    ids = [world.ask("a", "ADDJOB", "q", number, 0, "DELAY", number % 3, "RETRY", 2) for number in range(6)]
    for member in world.members.values():
        member.wall_offset_ms = 600_000
    world.run(6_000)
    for member in world.members.values():
        member.wall_offset_ms = 0
    got = {job_id for _ in range(3) for name in "abc"
           for _, job_id, _ in world.ask(name, "GETJOB", "NOHANG", "COUNT", 10, "FROM", "q") or ()}  # fmt: skip
    assert got == set(ids)
    world.run(4_000)
    assert sum(world.ask(name, "QLEN", "q") for name in "abc") == 6


def test_q42_stopped_nodes_that_go_on_do_no_harm(make):
    """Three of five nodes are stopped for longer than the timeout while jobs are acknowledged elsewhere."""
    world = make("abcde", cluster_node_timeout=2_000)
    ids = [world.ask("a", "ADDJOB", "q", number, 0, "REPLICATE", 3, "RETRY", 1) for number in range(10)]
    for name in "cde":
        world.pause(name)
    for name in "ab":
        for job_id in ids:
            world.client(name).say("ACKJOB", job_id)
    world.run(6_000)
    for name in "cde":
        world.client(name).say("GETJOB", "TIMEOUT", 100, "FROM", "q")
        world.resume(name)
    world.run(20_000)
    assert jobs_left(world) == 0


def test_q43_without_faults_nothing_is_delivered_twice(make):
    """Consumers are on all nodes and ack at any. No job is delivered after its ack, with any RETRY."""
    world = make("abc")
    for number in range(60):
        name = "abc"[number % 3]
        job_id = world.ask(name, "ADDJOB", "q", number, 0, "REPLICATE", 1 + number % 3, "RETRY", 1)
        [[_, got, _]] = world.ask("bca"[number % 3], "GETJOB", "FROM", "q")
        assert got == job_id
        world.ask("cab"[number % 3], "ACKJOB", job_id)
    world.run(5_000)
    assert jobs_left(world) == 0
    assert sum(world[name].stats.jobs_delivered for name in "abc") == 60


def test_q43_a_holder_that_missed_the_ack_asks_before_it_queues(make):
    """WILLQUEUE is answered with SETACK, even by a node that has forgotten the job since."""
    world = make("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 3)
    world.drop = lambda sender, receiver, kind, item: kind == SETACK
    world.ask("a", "ACKJOB", job_id)
    world.run(2_000)
    world.drop = None
    world.run(6_000)
    assert jobs_left(world) == 0
    assert world.ask("b", "QLEN", "q") == 0


def test_waiting_jobs_do_not_cost_a_message_each(make):
    """Announcements are batched: the ids of jobs with the same holders are sent together, once a second."""
    world = make("ab")
    runs = []
    for number in range(200):
        world.ask("a", "ADDJOB", "q", number, 0, "REPLICATE", 2, "RETRY", 10)
    world.on_runs = lambda member, all_runs: runs.extend(run for run in all_runs if run[1] == QUEUED)
    world.run(10_000)
    assert len(runs) <= 11
    assert sum(len(items) for _, _, items in runs) >= 200


def test_keep_a_copy_has_no_counters_of_its_own_until_it_hears_of_them(make):
    """The counters are best effort. They are sent with QUEUED, and merge by maximum."""
    world = make("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    for _ in range(3):
        world.ask("a", "GETJOB", "FROM", "q")
        world.ask("a", "NACK", job_id)
    world.run(20)
    assert world["b"].find(job_id).nacks == 3
