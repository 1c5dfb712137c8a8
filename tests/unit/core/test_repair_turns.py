"""core/repair_turns.py: a holder counts the copies of a job and makes those that are missing."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client
from cluster_bus.messages import (
    CHANGED,
    GOTJOB,
    HAVE,
    HAVEARE,
    LEFT,
    REFUSED,
    REFUSED_PAUSED,
    REPLJOB,
    RESTORED,
    SETACK,
    SHORT,
    TAKETURN,
)
from copies import advance, hold, hold_queued, make_id, pack, say, sent, sent_of, snapshot
from disque_py.core import changing, events, lifecycle
from disque_py.core.job import ACKED, ACTIVE
from disque_py.core.repair_turns import HAS, HAS_CREATION, HAS_DONE, HAS_NONE, HAS_PASSIVE
from disque_py.core.replication import MOVING, TIMED
from disque_py.event_format import PENDING, RUNNING
from disque_py.node import dispatch
from disque_py.simulator.checks.cluster_invariants import jobs_of
from lost_copies import SECOND, answer, forget, make_cluster, make_missing, run_due_turns


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


def test_a_copy_that_moved_to_another_member_begins_the_turn_anew():
    """Spec RC3: the copy was counted at both nodes."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, third, lost, replicate=4)
    forget(broker, lost)
    answer(broker, second, HAS_PASSIVE)
    sent(broker)
    say(broker, second, LEFT, (job.id, second.id, third.id, pack(broker.me, second, third)))
    advance(broker, 200)
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(third,)]


def test_a_job_takes_a_turn_when_a_copy_moved_to_a_node_that_was_known_as_a_holder():
    """Spec RC3: its ADDJOB or a repair may have counted both nodes."""
    broker, second, third, _ = make_cluster()
    advance(broker, 30 * SECOND)
    job = hold(broker, second, third)
    sent(broker)
    say(broker, second, LEFT, (job.id, second.id, third.id, pack(broker.me, second, third)))
    advance(broker, 200)
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(third,)]


def test_a_node_that_leaves_gives_such_a_turn_to_the_node_that_took_the_copy():
    """Spec RC3: a leaving node takes no turns."""
    broker, second, third, _ = make_cluster()
    job = hold(broker, second, third)
    broker.membership.set_leaving(True)
    sent(broker)
    say(broker, second, LEFT, (job.id, second.id, third.id, pack(broker.me, second, third)))
    assert sent_of(broker, TAKETURN) == [((third,), ([job.id],))]
    assert not broker.repairs.later


def test_a_node_that_leaves_takes_no_copy_of_a_repair_that_it_has_already():
    """Spec RC6: its copy may be on its way to another node."""
    broker, second, third, job = make_missing()
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    say(broker, third, GOTJOB, (job.id, MOVING))
    run_due_turns(broker)
    assert [nodes for nodes, _ in sent_of(broker, SHORT)] == [(second, third)]


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


def test_a_member_that_missed_a_change_is_told_of_it():
    """Spec RC4. Otherwise its copy would end with the first TTL, and the errored job would have one copy less."""
    broker, second, _, lost = make_cluster()
    job = hold(broker, second, lost)
    changing.give_up(broker, job, b"no use")
    sent(broker)
    forget(broker, lost)
    answer(broker, second)
    assert [(nodes, item[0]) for nodes, item in sent_of(broker, CHANGED)] == [((second,), job.id)]


def test_a_turn_waits_for_a_newer_change_only_while_a_member_has_it():
    """Spec RC4: the member that had the change lost its memory before it could send it."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, lost, replicate=3)
    forget(broker, lost)
    sent(broker)
    answer(broker, second, HAS_PASSIVE, change=[(0, 1, second.id)])
    assert sent_of(broker, HAVE) == []
    advance(broker, SECOND + 200)
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(second,)]
    answer(broker, second, HAS_NONE)
    assert [nodes for nodes, _ in sent_of(broker, HAVE)] == [(second, third)]
    assert job in broker.behind


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
    assert (nodes, item[0][0], item[1]) == ((third,), job.id, TIMED)


def test_a_node_whose_disk_fails_gets_no_copy():
    """Spec RC6, P5: it would refuse it."""
    broker, second, third, lost = make_cluster()
    third.is_disk_failing = True
    job = hold(broker, second, lost)
    forget(broker, lost)
    sent(broker)
    answer(broker, second)
    assert third not in job.holders
    assert [item for _, item in sent_of(broker, SHORT)] == [([job.id],)]


@pytest.mark.parametrize(("status", "shown"), [(PENDING, b"pending"), (RUNNING, b"running")])
def test_a_new_copy_of_a_job_that_was_delivered_shows_whether_it_waits(status, shown):
    """Spec RC6, Z4: the copy alone can't tell a job that was given back from a running one."""
    broker, second, third, job = make_missing()
    job.attempt = 1
    events.learn(broker, job, status)
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    [(_, item)] = sent_of(broker, REPLJOB)
    taker = make_broker(node_id=b"t" * 20)
    sender = add_node(taker, 5)
    say(taker, sender, REPLJOB, item)
    reply = ask_parsed(taker, make_client(taker), "SHOW", job.id)
    assert reply[reply.index(b"status") + 1] == shown


def test_a_copy_that_is_taken_ends_the_turn():
    """Spec RC3, RC5."""
    broker, second, third, job = make_missing()
    answer(broker, third, HAS_NONE)
    answer(broker, second)
    say(broker, third, GOTJOB, job.id)
    run_due_turns(broker)
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
    run_due_turns(broker)
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
    say(broker, second, REPLJOB, (copy, TIMED, 400 * SECOND))
    assert abs(broker.find(copy[0]).requeue_at_ms - broker.now_ms - 400 * SECOND) <= 250


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
