"""core/repair.py: jobs whose copies may be lost take turns; acknowledgements of such jobs."""

from __future__ import annotations

import pytest

from brokers import ask, make_client
from cluster_bus.messages import DELJOB, GOTACK, GOTJOB, HAVE, REPLJOB, SETACK, YOURJOBS
from cluster_bus.node import FORGOTTEN
from copies import advance, hold, pack, say, sent, sent_of, snapshot
from disque_py.core import changing, client_acks, lifecycle, repair, repair_turns
from disque_py.core.job import ACKED, WAIT_REPL
from disque_py.core.repair_turns import HAS_NONE
from disque_py.node import dispatch
from disque_py.simulator.checks.cluster_invariants import jobs_of
from lost_copies import SECOND, answer, forget, make_cluster, make_missing, run_due_turns
from world import World

# -- suspicion and turns -------------------------------------------------------------------------------------


def test_jobs_of_a_forgotten_node_are_asked_for_at_once():
    """Spec RC2, RC4. The question carries the holder set."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, lost)
    hold(broker, second, third, number=2)
    forget(broker, lost)
    [(nodes, (_, packed, ids))] = sent_of(broker, HAVE)
    assert (nodes, packed, ids) == ((second,), pack(broker.me, second), [job.id])


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"retry_s": 0}, None),
        ({"ttl_s": 9}, None),
        ({"replicate": 1}, None),
        ({}, lambda broker, job: lifecycle.acknowledge(broker, job)),
    ],
    ids=["at most once", "nearly over", "one copy", "acknowledged"],
)
def test_other_jobs_are_left_alone(fields, change):
    """Spec RC1."""
    broker, second, _, lost = make_cluster()
    job = hold(broker, second, lost, **fields)
    if change is not None:
        change(broker, job)
    sent(broker)
    forget(broker, lost)
    assert sent_of(broker, HAVE) == []


def test_a_job_whose_copy_is_lost_while_it_is_added_takes_its_turn_after_that():
    """Spec RC1. A holder confirmed its copy, and lost it before the others had theirs."""
    broker, second, third, lost = make_cluster()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", 60)
    [job] = jobs_of(broker)
    confirming = next(node for node in (second, third, lost) if node in job.holders)
    say(broker, confirming, GOTJOB, job.id)
    broker.repairs.due[confirming] = broker.now_ms
    advance(broker, SECOND)
    assert job.state == WAIT_REPL
    assert not sent_of(broker, HAVE)
    for node in job.holders - {broker.me, confirming}:
        say(broker, node, GOTJOB, job.id)
    advance(broker, SECOND)
    assert {job_id for _, (_, _, ids) in sent_of(broker, HAVE) for job_id in ids} == {job.id}


def test_a_job_whose_turn_may_have_counted_a_deleted_copy_takes_another_one():
    """Spec RC2. The creator's DELJOB came to the other holder after that had answered."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, lost, replicate=2)
    forget(broker, lost)
    broker.repairs.recount(job)
    advance(broker, SECOND)
    sent(broker)
    answer(broker, second)
    advance(broker, SECOND)
    assert [(nodes, ids) for nodes, (_, _, ids) in sent_of(broker, HAVE)] == [((second,), [job.id])]
    answer(broker, second, HAS_NONE)
    assert broker.repairs.named[job][0] in (second, third)


@pytest.mark.parametrize(("since_ms", "is_asked"), [(5 * SECOND, True), (20 * SECOND, False)])
def test_a_job_that_was_about_to_end_takes_its_turn_when_it_has_longer_to_live(since_ms, is_asked):
    """Spec RC1. It became errored, and a walk had left it alone."""
    broker, second, _, lost = make_cluster()
    job = hold(broker, second, lost)
    job.expire_at_ms = broker.now_ms + 9 * SECOND
    repair.suspect(broker, lost, "lost")
    broker.repairs.since_ms = broker.now_ms - since_ms
    advance(broker, SECOND)
    assert not sent_of(broker, HAVE)
    changing.give_up(broker, job, b"no use")
    advance(broker, SECOND)
    assert bool(sent_of(broker, HAVE)) == is_asked


def test_a_process_that_is_linked_first_is_asked_after_ten_seconds():
    """Spec RC2."""
    broker, second, third, _ = make_cluster()
    hold(broker, second, third)
    second.run = b"another-"
    dispatch.link_up(broker, second)
    advance(broker, 9 * SECOND)
    assert sent_of(broker, HAVE) == []
    advance(broker, 2 * SECOND)
    assert sent_of(broker, HAVE)


def test_a_failed_node_is_suspect_after_repair_after():
    """Spec RC2. If a node answers in between, the time begins again."""
    broker, second, _, lost = make_cluster(repair_after=60)
    hold(broker, second, lost)
    broker.membership.links.back_off(lost)
    lost.flags |= 4
    lost.fail_at_ms = broker.now_ms
    broker.cluster.refresh()
    advance(broker, 59 * SECOND)
    assert sent_of(broker, HAVE) == []
    advance(broker, 3 * SECOND)
    assert sent_of(broker, HAVE)


def test_repair_after_zero_repairs_nothing():
    """Spec RC2."""
    broker, second, _, lost = make_cluster(repair_after=0)
    hold(broker, second, lost)
    forget(broker, lost)
    assert sent_of(broker, HAVE) == []


def test_the_next_holder_waits_for_five_seconds():
    """Spec RC3."""
    broker, second, _, lost = make_cluster()
    broker.me.id = b"\xff" * 20
    hold(broker, second, lost)
    forget(broker, lost)
    advance(broker, 4 * SECOND)
    assert sent_of(broker, HAVE) == []
    advance(broker, 2 * SECOND)
    assert sent_of(broker, HAVE)


# -- acknowledgements ---------------------------------------------------------------------------------------


def test_a_holder_waits_for_the_confirmation_of_the_node_that_it_named():
    """Spec RC7."""
    broker, second, third, job = make_missing()
    say(broker, second, SETACK, (job.id, pack(broker.me, second, third)))
    sent(broker)
    say(broker, second, DELJOB, (job.id, pack(broker.me, second, third)))
    assert broker.find(job.id) is job
    assert [nodes for nodes, _ in sent_of(broker, SETACK)] == [(third,)]
    say(broker, third, GOTACK, (job.id, pack(broker.me, second, third), 1))
    assert broker.find(job.id) is None


def test_a_node_that_was_named_confirms_by_the_end_of_the_collection_too():
    """Spec RC7. It knows that the job is done, and gives this answer to each question."""
    broker, second, third, job = make_missing()
    say(broker, third, SETACK, (job.id, pack(broker.me, second, third)))
    say(broker, second, GOTACK, (job.id, pack(broker.me, second, third), 1))
    sent(broker)
    say(broker, third, DELJOB, (job.id, pack(broker.me, third)))
    say(broker, third, DELJOB, (job.id, pack(broker.me, second, third)))
    assert broker.find(job.id) is None


def test_a_job_from_before_an_absence_is_collected_from_every_node():
    """Spec RC8. Later jobs have no additional cost."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second)
    broker.era += 1
    later = hold(broker, second, number=2)
    assert client_acks.ack_here(broker, later.id) == 1
    assert [nodes for nodes, _ in sent_of(broker, SETACK)] == [(second,)]
    assert client_acks.ack_here(broker, job.id) == 1
    assert [nodes for nodes, _ in sent_of(broker, SETACK)] == [(second, third, lost)]
    say(broker, third, GOTACK, (job.id, b"", 0))
    say(broker, lost, GOTACK, (job.id, b"", 0))
    assert broker.find(job.id) is job
    say(broker, second, GOTACK, (job.id, pack(broker.me, second), 1))
    assert broker.find(job.id) is None


def test_a_node_that_knows_the_job_as_done_ends_its_part_of_such_a_collection():
    """Spec RC8. It answers DELJOB without a set, and is not asked again."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second)
    broker.era += 1
    client_acks.ack_here(broker, job.id)
    sent(broker)
    say(broker, third, DELJOB, (job.id, b""))
    assert sent_of(broker, SETACK) == []
    say(broker, lost, GOTACK, (job.id, b"", 0))
    say(broker, second, GOTACK, (job.id, pack(broker.me, second), 1))
    assert broker.find(job.id) is None


def test_a_late_answer_of_a_node_that_becomes_a_member_does_not_count():
    """Spec A4, RC8."""
    broker, second, third = make_cluster(2)
    job = hold(broker, second)
    broker.era += 1
    client_acks.ack_here(broker, job.id)
    say(broker, third, GOTACK, (job.id, b"", 0))
    say(broker, second, GOTACK, (job.id, pack(broker.me, second, third), 1))
    assert broker.find(job.id) is job
    say(broker, third, GOTACK, (job.id, pack(broker.me, second, third), 1))
    assert broker.find(job.id) is None


@pytest.mark.parametrize(("replicate", "is_over"), [(1, True), (2, False)])
def test_a_lone_copy_from_before_an_absence_is_collected_unless_it_was_the_only_one(replicate, is_over):
    """Spec RC8."""
    broker, *_ = make_cluster()
    job = hold(broker, replicate=replicate)
    broker.era += 1
    client_acks.ack_here(broker, job.id)
    assert (broker.find(job.id) is None) is is_over


def test_a_copy_that_comes_after_not_a_holder_does_not_live():
    """Spec RC8."""
    broker, second, third, _ = make_cluster()
    copy = snapshot(broker, second)
    say(broker, third, SETACK, (copy[0], pack(second, third)))
    sent(broker)
    say(broker, second, REPLJOB, (copy, 0))
    assert broker.find(copy[0]).state == ACKED
    assert SETACK in [kind for _, kind, _ in sent(broker)]


@pytest.mark.parametrize("cause", ["forget", "sleep", "recovery", "long break", "short break"])
def test_the_era_grows_with_each_absence(cause):
    """Spec RC8."""
    broker, second, _, lost = make_cluster()
    era = broker.era
    if cause == "forget":
        forget(broker, lost)
    elif cause == "sleep":
        repair.look(broker, broker.membership.node_timeout_ms + 1)
    elif cause == "recovery":
        broker.membership.recoveries += 1
        repair.look(broker, 100)
    else:
        span_ms = broker.membership.node_timeout_ms + (1 if cause == "long break" else 0)
        second.unlinked_ms = broker.now_ms - span_ms
        dispatch.link_up(broker, second)
    assert broker.era == era + (cause != "short break")


# -- what users see -----------------------------------------------------------------------------------------


def test_show_and_info_tell_of_repairs():
    """docs/info.md."""
    broker, second, _, lost = make_cluster()
    job = hold(broker, second, lost, replicate=3)
    assert (repair_turns.copies_of(broker, job), repair.is_repairing(broker, job)) == (3, False)
    forget(broker, lost)
    assert lost.flags & FORGOTTEN
    assert (repair_turns.copies_of(broker, job), repair.is_repairing(broker, job)) == (2, True)
    assert repair.waiting_count(broker) == 1


def test_the_log_reports_only_missing_copies():
    """Spec RC10. A node that restarts is not reported."""
    broker, second, third, job = make_missing()
    names = [name for name, _ in broker.membership.tray.notices]
    assert names.count("repair-started") == 1
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    say(broker, third, GOTJOB, job.id)
    run_due_turns(broker)
    advance(broker, 10 * SECOND)
    assert "repair-finished" in [name for name, _ in broker.membership.tray.notices]


# -- whole clusters -----------------------------------------------------------------------------------------


def copies_in(world):
    """Return for each job how many nodes have it."""
    counts: dict[bytes, int] = {}
    for machine in world.running():
        for job in jobs_of(machine.broker):
            counts[job.id] = counts.get(job.id, 0) + 1
    return sorted(counts.values())


@pytest.mark.parametrize("how", ["forgotten", "wiped", "failed"])
def test_every_job_gets_its_copies_again(how):
    """Spec RC2, RC3, RC5."""
    world = World("abcd", repair_after=3, cluster_node_timeout=1_000)
    world.join(30_000)
    for number in range(20):
        world.ask("a", "ADDJOB", "q", f"job {number}", 0, "REPLICATE", 3)
    lost = world.machines["b"]
    lost.die()
    if how == "forgotten":
        for name in "acd":
            world.ask(name, "CLUSTER", "FORGET", lost.membership.table.me.id.hex())
    elif how == "wiped":
        lost.start()
    world.run(20_000)
    assert copies_in(world) == [3] * 20


def test_the_node_that_replaces_a_leaving_one_asks_for_copies_that_others_lost():
    """Spec RC3. It has asked a holder that lost its memory already, before it had the job itself."""
    world = World("abc", repair_after=1)
    world.join(30_000)
    world.ask("a", "ADDJOB", "q", "job", 0, "REPLICATE", 2, "DELAY", 600)
    [lost] = [world.machines[name] for name in "bc" if list(jobs_of(world.machines[name].broker))]
    lost.die()
    lost.start()
    world.drop = lambda sender, receiver, kind, item: kind in (REPLJOB, YOURJOBS)
    world.ask("a", "CLUSTER", "LEAVING", "yes")
    world.run(5_000)
    world.drop = None
    world.run(15_000)
    assert copies_in(world) == [2]
    assert not list(jobs_of(world.machines["a"].broker))


def test_a_node_that_joins_takes_missing_copies():
    """Spec RC10."""
    world = World("abc", repair_after=1)
    world.join(30_000)
    world.ask("a", "ADDJOB", "q", "job", 0, "REPLICATE", 3)
    lost = world.machines["b"]
    lost.die()
    for name in "ac":
        world.ask(name, "CLUSTER", "FORGET", lost.membership.table.me.id.hex())
    world.run(10_000)
    assert copies_in(world) == [2]
    world.add("e")
    world.ask("e", "CLUSTER", "MEET", "a", 7711)
    world.run(12_000)
    assert copies_in(world) == [3]


def test_a_turn_goes_on_although_a_node_that_it_asked_has_left():
    """The node could not answer, because its disk was full."""
    world = World("ac", repair_after=600)
    world.add("b", journal="everysec")
    world.join()
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", 60)
    world.ask("a", "DEQUEUE", job_id)
    for name in "de":
        world.add(name)
        world.meet("a", name)
    world.run(30_000)
    world.machines["b"].journal_storage.folder.fail("write sync create write_synced sync_window prepare", 28, times=-1)
    for command in ("NACK", "DEQUEUE"):
        world.client("b").say(command, job_id)
        world.run(3_000)
    assert world["b"].journal.disk_level
    world.crash("c")
    for name in "abde":
        world.ask(name, "CLUSTER", "FORGET", (b"c" * 20).hex())
    world.run(5_000)
    world.ask("b", "CLUSTER", "LEAVING", "yes")
    world.run(90_000)
    world.crash("b")
    for name in "ade":
        world.ask(name, "CLUSTER", "FORGET", (b"b" * 20).hex())
    world.run(120_000)
    assert [name for name in "ade" if world[name].find(job_id)] == ["a", "d", "e"]
