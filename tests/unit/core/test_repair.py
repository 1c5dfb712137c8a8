"""core/repair.py: the holders of a job replace copies that were lost."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import (
    CHANGED,
    DELJOB,
    GOTACK,
    GOTJOB,
    HAVE,
    HAVEARE,
    REFUSED,
    REFUSED_PAUSED,
    REPLJOB,
    RESTORED,
    SETACK,
    SHORT,
    TAKETURN,
)
from cluster_bus.node import FORGOTTEN
from copies import advance, hold, hold_queued, make_id, pack, say, sent, sent_of, snapshot
from disque_py.core import acks, changing, lifecycle, repair
from disque_py.core.job import ACKED, ACTIVE, WAIT_REPL
from disque_py.core.repair import HAS, HAS_CREATION, HAS_DONE, HAS_NONE, HAS_PASSIVE
from disque_py.core.replication import REPAIRED
from disque_py.node import dispatch
from disque_py.simulator.checks.cluster_invariants import jobs_of
from world import World

SECOND = 1_000


def make_cluster(count=3, **settings):
    """A broker with other nodes that have higher ids, and that it has asked already."""
    broker = make_broker(node_id=bytes(20), **settings)
    nodes = [add_node(broker, number) for number in range(2, 2 + count)]
    for node in nodes:
        broker.repairs.runs[node] = node.run
    advance(broker, 11 * SECOND)
    sent(broker)
    return broker, *nodes


def forget(broker, node):
    """CLUSTER FORGET, and time for the walk."""
    ask(broker, make_client(broker), "CLUSTER", "FORGET", node.name)
    dispatch.forgotten(broker, node)
    advance(broker, 200)


def answer(broker, node, code=HAS, holders=b"", change=()):
    """The node answers the last HAVE, the same for each of its jobs."""
    number, _, ids = broker.repairs.questions[broker.repairs.number].item
    known = [holders] * len(ids) if code >= HAS else []
    say(broker, node, HAVEARE, (number, bytes([code] * len(ids)), known, list(change)))
    go_on(broker)


def go_on(broker):
    """Turns whose step is due do it."""
    dispatch.settle(broker)
    while dispatch.tick(broker):
        dispatch.settle(broker)


# -- suspicion, turns, questions ----------------------------------------------------------------------------


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
    """Spec RC2. A node that answers in between begins anew."""
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


def test_a_holder_with_a_lower_id_is_told_to_take_its_turn():
    """Spec RC3."""
    broker, second, _, lost = make_cluster()
    broker.me.id = b"\xff" * 20
    job = hold(broker, second, lost)
    forget(broker, lost)
    advance(broker, 6 * SECOND)
    sent(broker)
    answer(broker, second)
    assert sent_of(broker, TAKETURN) == [((second,), ([job.id],))]
    say(broker, second, RESTORED, ([job.id],))
    assert not broker.repairs.turns


def test_a_broken_link_begins_the_turn_anew():
    """Spec RC3."""
    broker, second, third, lost = make_cluster()
    hold(broker, second, third, lost, replicate=4)
    forget(broker, lost)
    answer(broker, second)
    broker.membership.links.back_off(third)
    broker.cluster.refresh()
    dispatch.link_lost(broker, third)
    sent(broker)
    advance(broker, 200)
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(second,)]


def test_a_silent_member_is_asked_again():
    """Spec RC4. It may read its journal."""
    broker, second, _, lost = make_cluster()
    hold(broker, second, lost)
    forget(broker, lost)
    sent(broker)
    advance(broker, 10 * SECOND)
    assert len(sent_of(broker, HAVE)) >= 9
    assert len(broker.repairs.turns) == 1


def test_an_answer_that_names_a_further_member_is_asked_for_again():
    """Spec RC4."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, lost, replicate=3)
    forget(broker, lost)
    sent(broker)
    answer(broker, second, holders=pack(broker.me, second, third))
    assert third in job.holders
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(second, third)]


def test_a_member_that_never_heard_of_a_change_is_told():
    """Spec RC4. Its copy would end with the first TTL, and the errored job would have a copy less."""
    broker, second, _, lost = make_cluster()
    job = hold(broker, second, lost)
    changing.give_up(broker, job, b"no use")
    sent(broker)
    forget(broker, lost)
    answer(broker, second)
    assert [(nodes, item[0]) for nodes, item in sent_of(broker, CHANGED)] == [((second,), job.id)]


def test_a_member_takes_the_set_over_and_says_what_it_has():
    """Spec RC4."""
    broker, second, third, _ = make_cluster()
    job = hold(broker, second)
    waiting = hold(broker, second, number=2)
    waiting.state = 0
    done = make_id(3)
    broker.tombstones.add(done, broker.now_ms)
    say(broker, second, HAVE, (7, pack(broker.me, second, third), [job.id, waiting.id, done, make_id(4)]))
    waiting.state = ACTIVE
    assert third in job.holders
    codes = bytes([HAS, HAS_CREATION, HAS_DONE, HAS_NONE])
    assert [item for _, kind, item in sent(broker) if kind == HAVEARE] == [(7, codes, [b"", b""], [])]


def test_a_leaving_member_has_the_job_and_takes_no_turn():
    """Spec RC3."""
    broker, second, _, _ = make_cluster()
    job = hold(broker, second)
    ask(broker, make_client(broker), "CLUSTER", "LEAVING", "yes")
    say(broker, second, HAVE, (7, pack(broker.me, second), [job.id]))
    [(_, item)] = sent_of(broker, HAVEARE)
    assert item[1] == bytes([HAS_PASSIVE])


def test_a_job_that_is_done_elsewhere_is_collected_instead():
    """Spec RC4."""
    broker, second, _, lost = make_cluster()
    job = hold(broker, second, lost)
    forget(broker, lost)
    say(broker, second, SETACK, (job.id, b""))
    answer(broker, second, HAS_DONE)
    assert job.state == ACKED
    assert not broker.repairs.turns
    assert sent_of(broker, REPLJOB) == []


# -- counting, naming, copying ------------------------------------------------------------------------------


def test_enough_copies_end_the_turn():
    """Spec RC5. No other holder has to be told: none waits for us."""
    broker, second, third, lost = make_cluster()
    hold(broker, second, third, lost, replicate=3)
    forget(broker, lost)
    answer(broker, second)
    answer(broker, third)
    assert not broker.repairs.turns
    assert RESTORED not in [kind for _, kind, _ in sent(broker)]


def test_a_member_out_of_reach_counts_until_its_copies_are_suspect():
    """Spec RC5. It is asked when it is linked again."""
    broker, second, third, lost = make_cluster()
    hold(broker, second, third, lost, replicate=3)
    broker.membership.links.back_off(third)
    broker.cluster.refresh()
    forget(broker, lost)
    answer(broker, second)
    assert not broker.repairs.turns
    assert third in broker.repairs.presumed
    third.protocol = second.protocol
    dispatch.link_up(broker, third)
    assert third in broker.repairs.due


def make_missing():
    """A job that a forgotten node had, and whose other member has answered: a new node is named."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, lost, replicate=3)
    forget(broker, lost)
    sent(broker)
    answer(broker, second)
    return broker, second, third, job


def test_a_new_node_is_named_before_it_gets_its_copy():
    """Spec RC6."""
    broker, second, third, job = make_missing()
    assert job.holders >= {broker.me, second, third}
    [(nodes, item)] = [(nodes, item) for nodes, kind, item in sent(broker) if kind == HAVE]
    assert (nodes, item[1]) == ((second, third), pack(broker.me, second, third))
    answer(broker, third, HAS_NONE)
    assert sent_of(broker, REPLJOB) == []
    answer(broker, second)
    [(nodes, item)] = sent_of(broker, REPLJOB)
    assert (nodes, item[0][0], item[1]) == ((third,), job.id, REPAIRED)


def test_a_copy_that_is_taken_ends_the_turn():
    """Spec RC3, RC5."""
    broker, second, third, job = make_missing()
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    say(broker, third, GOTJOB, job.id)
    go_on(broker)
    assert broker.stats.copies_repaired == 1
    assert sent_of(broker, RESTORED) == [((second, third), ([job.id],))]
    assert not broker.repairs.turns


def test_after_the_last_refusal_the_others_hear_that_no_node_is_left():
    """Spec RC6, RC10."""
    broker, second, third, job = make_missing()
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    sent(broker)
    say(broker, third, REFUSED, (job.id, REFUSED_PAUSED))
    go_on(broker)
    assert sent_of(broker, SHORT) == [((second, third), ([job.id],))]
    assert broker.repairs.missing == 1
    assert broker.stats.repair_refusals == 1
    advance(broker, 59 * SECOND)
    assert sent_of(broker, HAVE) == []
    advance(broker, 3 * SECOND)
    assert sent_of(broker, HAVE)


def test_a_named_node_that_stays_silent_is_passed_over():
    """Spec RC6."""
    broker, second, third, job = make_missing()
    answer(broker, second)
    advance(broker, 6 * SECOND)
    assert sent_of(broker, SHORT) == [((second, third), ([job.id],))]


def test_a_node_of_an_older_version_is_neither_asked_nor_given_a_copy():
    """Spec RC5, RC6."""
    broker, second, lost = make_cluster(2)
    old = add_node(broker, 9, protocol=2)
    hold(broker, second, lost, old, replicate=4)
    forget(broker, lost)
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(second,)]
    answer(broker, second)
    assert sent_of(broker, REPLJOB) == []
    assert broker.repairs.missing == 1


def test_copies_are_made_at_repair_rate():
    """Spec RC11."""
    broker, second, _, lost = make_cluster(repair_rate=5)
    for number in range(30):
        hold(broker, second, lost, number=number, replicate=3)
    forget(broker, lost)
    answer(broker, second)
    advance(broker, 2 * SECOND)
    named = sum(bool(turn.tried) for turn in broker.repairs.turns.values())
    assert 9 <= named <= 13


def test_a_new_copy_waits_longer_than_the_lease():
    """Spec RC9."""
    broker, second, third, lost = make_cluster()
    hold_queued(broker, second, lost, replicate=3)
    leased = lifecycle.fetch(broker, broker.queues[b"q"])
    lifecycle.lease(broker, leased)
    lifecycle.extend(broker, leased, 500 * SECOND)
    forget(broker, lost)
    answer(broker, second)
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    [(_, item)] = sent_of(broker, REPLJOB)
    assert item[2] > 499 * SECOND


def test_the_timer_of_a_repaired_copy_is_the_one_that_was_sent():
    """Spec RC9."""
    broker, second, _, _ = make_cluster()
    copy = snapshot(broker, second, broker.me)
    say(broker, second, REPLJOB, (copy, REPAIRED, 400 * SECOND))
    assert abs(broker.find(copy[0]).requeue_at_ms - broker.now_ms - 400 * SECOND) <= 250


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
    """Spec RC7. It knows the job as done, so it answers each question so."""
    broker, second, third, job = make_missing()
    say(broker, third, SETACK, (job.id, pack(broker.me, second, third)))
    say(broker, second, GOTACK, (job.id, pack(broker.me, second, third), 1))
    sent(broker)
    say(broker, third, DELJOB, (job.id, pack(broker.me, third)))
    say(broker, third, DELJOB, (job.id, pack(broker.me, second, third)))
    assert broker.find(job.id) is None


def test_a_job_from_before_an_absence_is_collected_from_every_node():
    """Spec RC8. Later jobs cost nothing more."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second)
    broker.era += 1
    later = hold(broker, second, number=2)
    assert acks.ack_here(broker, later.id) == 1
    assert [nodes for nodes, _ in sent_of(broker, SETACK)] == [(second,)]
    assert acks.ack_here(broker, job.id) == 1
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
    acks.ack_here(broker, job.id)
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
    acks.ack_here(broker, job.id)
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
    acks.ack_here(broker, job.id)
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
    assert (repair.copies_of(broker, job), repair.is_repairing(broker, job)) == (3, False)
    forget(broker, lost)
    assert lost.flags & FORGOTTEN
    assert (repair.copies_of(broker, job), repair.is_repairing(broker, job)) == (2, True)
    assert repair.waiting_count(broker) == 1


def test_the_log_tells_of_missing_copies_only():
    """Spec RC10. A node that restarts is no news."""
    broker, second, third, job = make_missing()
    names = [name for name, _ in broker.membership.tray.notices]
    assert names.count("repair-started") == 1
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    say(broker, third, GOTJOB, job.id)
    go_on(broker)
    advance(broker, 10 * SECOND)
    assert "repair-finished" in [name for name, _ in broker.membership.tray.notices]


# -- whole clusters -----------------------------------------------------------------------------------------


def copies_in(world):
    """How many nodes have each job."""
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


def test_a_copy_is_replaced_in_a_zone_that_has_none_before_memory_is_looked_at():
    """Spec ZN2."""
    places = (("", "b"), ("", "c"), ("", "b"), ("", "c"))
    broker = make_broker(node_id=bytes(20), zone="a")
    nodes = [add_node(broker, number, place=place) for number, place in enumerate(places, 2)]
    for node in nodes:
        broker.repairs.runs[node] = node.run
    advance(broker, 11 * SECOND)
    hold_queued(broker, *nodes[:2])
    nodes[3].memory_level = 1
    sent(broker)
    forget(broker, nodes[1])
    answer(broker, nodes[0])
    advance(broker, 200)
    (job,) = jobs_of(broker)
    assert nodes[3] in job.holders
    assert nodes[2] not in job.holders
