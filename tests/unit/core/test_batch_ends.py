"""core/batch_ends.py: batches that are done, and jobs whose end no node has reported."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_client, pass_time
from cluster_bus.messages import BATCHADD, BATCHFLUSH, BATCHFLUSHED, BATCHSUM, SETTING
from copies import advance, make_id, say, sent_of
from disque_py.core import batch_ends, keeping
from disque_py.core.batch_state import CLOSED, DONE, KEEPERS, LIVE
from disque_py.core.id_sets import entry_of, pack_id
from disque_py.event_format import EXPIRED
from disque_py.node import dispatch
from kept_batches import ENTRY, KEY, add, start
from lost_copies import forget


def closing():
    """A keeper, and another node, of a closed batch whose only job has just ended."""
    broker, client, other = start(is_keeper=True)
    job_id = add(broker, client)[1:-2]
    ask(broker, make_client(broker), "BATCH", "CLOSE", "b")
    ask(broker, client, "ACKJOB", job_id)
    return broker, other


def test_keepers_of_a_closed_batch_that_is_not_done_compare_again():
    """Spec BT3: a node that was a keeper gives its ids to one of the others only."""
    broker, _, other = start(is_keeper=True)
    say(broker, other, BATCHADD, (1, b"b", ENTRY))
    say(broker, other, SETTING, (KEY, CLOSED, b"1", 2, other.id))
    dispatch.settle(broker)
    sent_of(broker, BATCHSUM)
    advance(broker, 11_000)
    assert keeping.is_primary(broker, broker.batches.by_name[b"b"])
    assert sent_of(broker, BATCHSUM)


def test_a_keeper_with_jobs_alive_compares_with_the_others_also_when_they_say_that_all_is_done():
    """Spec BT3: this keeper was cut off when the others heard of the last end."""
    broker, _, other = start(is_keeper=True, number=0)
    say(broker, other, BATCHADD, (1, b"b", ENTRY))
    say(broker, other, SETTING, (KEY, CLOSED, b"1", 2, other.id), (KEY, DONE, b"1", 3, other.id))
    dispatch.settle(broker)
    sent_of(broker, BATCHSUM)
    advance(broker, 11_000)
    assert not keeping.is_primary(broker, broker.batches.by_name[b"b"])
    assert sent_of(broker, BATCHSUM)


def test_a_question_about_reports_is_answered_behind_them():
    """Spec BT4."""
    broker, client, other = start(is_keeper=True)
    say(broker, other, BATCHFLUSH, (7, b"b"))
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "BATCH", "b")
    dispatch.settle(broker)
    runs = [kind for _, kind, items in broker.outbox.messages.take() for _ in items]
    assert runs.index(BATCHADD) < runs.index(BATCHFLUSHED)


def test_a_question_about_reports_is_repeated_until_it_is_answered():
    """Spec BT4: a node that reads its journal hears none."""
    broker, other = closing()
    advance(broker, 2_500)
    questions = [item for _, item in sent_of(broker, BATCHFLUSH)]
    assert len(questions) >= 2
    assert len(set(questions)) == 1
    say(broker, other, BATCHFLUSHED, (questions[0][0], 0, 1))
    assert broker.batches.by_name[b"b"].is_done
    advance(broker, 2_500)
    assert sent_of(broker, BATCHFLUSH) == []


def test_a_question_about_reports_waits_until_all_jobs_are_reported_again():
    """Spec BT4: all keepers are others at once, and no turn looks at all jobs."""
    broker, client, other = start()
    for _ in range(2 * keeping.LOOKED_PER_PART):
        add(broker, client)
    third = add_node(broker, 3)
    say(broker, other, SETTING, (KEY, KEEPERS, third.id, 2, other.id))
    dispatch.settle(broker)
    sent_of(broker, BATCHADD)
    say(broker, third, BATCHFLUSH, (7, b"b"))
    assert broker.batches.reporting
    advance(broker, 500)
    kinds = [kind for _, kind, items in broker.outbox.messages.take() for _ in items]
    assert kinds.count(BATCHADD) >= 2
    assert kinds[-1] == BATCHFLUSHED


def test_a_question_about_reports_from_an_unknown_keeper_is_not_answered():
    """Spec BT4: this node has not heard yet that it should report its jobs again."""
    broker, _, other = start()
    third = add_node(broker, 3)
    say(broker, third, BATCHFLUSH, (7, b"b"))
    dispatch.settle(broker)
    assert sent_of(broker, BATCHFLUSHED) == []
    say(broker, other, SETTING, (KEY, KEEPERS, third.id, 2, other.id))
    say(broker, third, BATCHFLUSH, (7, b"b"))
    dispatch.settle(broker)
    assert sent_of(broker, BATCHFLUSHED) == [((third,), (7, 0, 0))]


def test_a_node_that_is_no_longer_primary_ends_its_question_about_reports():
    """Spec BT4: the others answer the new primary only."""
    broker, other = closing()
    advance(broker, 500)
    assert broker.batches.flushes
    say(broker, other, SETTING, (KEY, KEEPERS, other.id, 2, other.id))
    advance(broker, 2_500)
    assert (broker.batches.flushes, broker.batches.by_name[b"b"].flush) == ({}, 0)


def test_a_batch_without_any_keeper_left_gets_one_without_a_report():
    """Spec BT3: all of its keepers were reset, and its jobs are over (simulator, seed 2985)."""
    broker, _, other = start()
    say(broker, other, SETTING, (KEY, CLOSED, b"1", 2, other.id))
    advance(broker, 2 * batch_ends.LOOK_MS + 1_000)
    batch = broker.batches.by_name[b"b"]
    assert batch.keepers == (other,)
    forget(broker, other)
    advance(broker, 2 * batch_ends.LOOK_MS + 1_000)
    assert batch.keepers == (broker.me,)
    assert batch.is_done
    assert broker.batches.keeperless == {}


def test_a_node_that_is_no_longer_linked_is_not_waited_for():
    """Spec BT4."""
    broker, other = closing()
    advance(broker, 500)
    broker.membership.links.back_off(other)
    broker.cluster.refresh()
    dispatch.link_lost(broker, other)
    advance(broker, 1_500)
    assert broker.batches.by_name[b"b"].is_done


def test_a_closed_batch_whose_keeper_was_flushed_is_looked_at_again():
    """Spec BT4: all its ids are gone here, so the other nodes are asked, and it is done where they have none either."""
    broker, client, other = start(is_keeper=True)
    add(broker, client)
    ask(broker, make_client(broker), "BATCH", "CLOSE", "b")
    advance(broker, 500)
    assert sent_of(broker, BATCHFLUSH) == []
    ask(broker, client, "DEBUG", "FLUSHALL")
    advance(broker, 500)
    questions = [item for _, item in sent_of(broker, BATCHFLUSH)]
    assert len(questions) == 1
    say(broker, other, BATCHFLUSHED, (questions[0][0], 0, 0))
    assert broker.batches.by_name[b"b"].is_done


def test_no_turn_looks_at_all_batches_that_may_be_done():
    """Spec BT4: there are 600, and one look takes 500 of them."""
    broker, _, _ = start(is_keeper=True)
    names = [b"%d" % number for number in range(keeping.LOOKED_PER_PART + 100)]
    for name in names:
        batch = broker.batches.get(name)
        batch.fields = broker.batches.by_name[b"b"].fields | {CLOSED: b"1"}
        batch.keepers = (broker.me,)
    broker.batches.due = dict.fromkeys(names)
    asked = []
    for _ in range(150):
        advance(broker, 1)
        asked.append(len(sent_of(broker, BATCHFLUSH)))
    assert [count for count in asked if count] == [keeping.LOOKED_PER_PART, 100]


def lost(number, ttl_minutes):
    """Return the entry of a job that no node has, and whose id says this time to live."""
    return entry_of(pack_id(make_id(number)[:-4] + b"%04x" % ttl_minutes), LIVE, 1)


def test_a_job_that_was_lost_with_all_copies_counts_as_expired_after_its_time_to_live():
    """Spec BT8: so its batch comes to an end. A keeper tells the others."""
    broker, client, other = start(is_keeper=True)
    say(broker, other, BATCHADD, (0, b"b", lost(1, 61) + lost(2, 5)))
    ask(broker, client, "BATCH", "CLOSE", "b")
    pass_time(broker, 3_600_000)
    advance(broker, 11_000)
    assert broker.batches.by_name[b"b"].counts()[LIVE] == 2
    sent_of(broker, BATCHADD)
    pass_time(broker, batch_ends.LOST_MS + 300_000)
    advance(broker, 11_000)
    assert broker.batches.by_name[b"b"].counts()[EXPIRED] == 2
    assert {data[24] for _, (_, _, data) in sent_of(broker, BATCHADD)} == {EXPIRED}


@pytest.mark.parametrize("ttl_minutes", [0xFFFE, 0xFFFF])
def test_a_job_whose_id_does_not_say_its_time_to_live_stays_alive(ttl_minutes):
    """Spec BT8: the field of an id ends at 45 days."""
    broker, _, other = start(is_keeper=True)
    say(broker, other, BATCHADD, (0, b"b", lost(1, ttl_minutes)))
    pass_time(broker, 50 * 86_400_000)
    advance(broker, 11_000)
    assert broker.batches.by_name[b"b"].counts()[LIVE] == 1


def test_a_job_that_began_again_is_not_taken_for_a_lost_one():
    """Spec BT8: the time to live counts from the last change."""
    broker, _, other = start(is_keeper=True)
    say(broker, other, BATCHADD, (0, b"b", lost(1, 5) + lost(2, 5)))
    pass_time(broker, batch_ends.LOST_MS + 300_000)
    say(broker, other, BATCHADD, (0, b"b", lost(3, 5)))
    advance(broker, 11_000)
    assert broker.batches.by_name[b"b"].counts()[LIVE] == 3
