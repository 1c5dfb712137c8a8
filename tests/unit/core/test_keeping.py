"""core/keeping.py: nodes that record the ids of a batch. tests/scenarios/test_batches.py has whole stories."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client, pass_time
from cluster_bus.messages import BATCHADD, BATCHFLUSH, BATCHFLUSHED, BATCHGOT, BATCHSUM, SETTING
from copies import advance, make_id, say, sent_of
from disque_py.core import keeping
from disque_py.core.batch_state import CLOSED, KEEPERS, LIVE, MADE, PARTS
from disque_py.core.id_sets import ENTRY_BYTES, entry_of, pack_id
from disque_py.core.queue_settings import BATCH, state_key
from disque_py.event_format import COMPLETED, EXPIRED
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError

KEY = state_key(BATCH, b"b")
ENTRY = entry_of(pack_id(make_id(1)), LIVE, 1)


def start(*, is_keeper=False):
    """A node, and another one that is the keeper of batch b, or both are."""
    broker = make_broker()
    other = add_node(broker, number=2)
    keepers = other.id + (broker.me.id if is_keeper else b"")
    say(broker, other, SETTING, (KEY, MADE, b"1-x", 1, other.id), (KEY, KEEPERS, keepers, 1, other.id))
    dispatch.settle(broker)
    sent_of(broker, BATCHSUM)
    return broker, make_client(broker), other


def add(broker, client):
    reply = ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "BATCH", "b")
    dispatch.settle(broker)
    return reply + b"".join(client.out)


def test_a_producer_is_answered_when_a_keeper_has_recorded_the_job():
    """Spec BT1."""
    broker, client, other = start()
    assert add(broker, client) == b""
    ((nodes, (number, name, data)),) = sent_of(broker, BATCHADD)
    assert (nodes, name, len(data)) == ((other,), b"b", ENTRY_BYTES)
    say(broker, other, BATCHGOT, number)
    assert b"".join(client.out).startswith(b"+D-")


def test_a_report_is_repeated_until_it_is_recorded():
    """Spec BT3."""
    broker, client, other = start()
    add(broker, client)
    advance(broker, 3_500)
    numbers = [number for _, (number, _, _) in sent_of(broker, BATCHADD)]
    assert len(numbers) >= 3
    say(broker, other, BATCHGOT, numbers[-1])
    advance(broker, 3_500)
    assert sent_of(broker, BATCHADD) == []


def test_the_record_of_an_ended_job_stays_until_a_keeper_has_its_end():
    """Spec BT3."""
    broker, client, other = start()
    add(broker, client)
    say(broker, other, BATCHGOT, sent_of(broker, BATCHADD)[0][1][0])
    job_id = b"".join(client.out)[1:-2]
    ask(broker, client, "ACKJOB", job_id)
    dispatch.settle(broker)
    ((_, (number, _, data)),) = sent_of(broker, BATCHADD)
    assert data[24] == COMPLETED
    assert broker.find(job_id) is not None
    say(broker, other, BATCHGOT, number)
    assert broker.find(job_id) is None


def test_a_job_that_still_waits_for_copies_is_not_reported_to_new_keepers():
    """Spec BT1: it may not be created in the end, and then nothing would end its entry."""
    broker, client, other = start()
    ask(broker, client, "ADDJOB", "q", "x", 5000, "REPLICATE", 2, "BATCH", "b")
    say(broker, other, SETTING, (KEY, KEEPERS, broker.me.id, 2, other.id))
    dispatch.settle(broker)
    advance(broker, 2_000)
    assert broker.batches.by_name[b"b"].count == 0


def test_a_report_waits_until_all_of_an_unknown_batch_is_heard():
    """Spec BT3: the fields of its state may come one by one, that of a CLOSE before those of its beginning."""
    broker, client, other = start()
    add(broker, client)
    (job,) = (job for shard in broker.shards for job in shard.values())
    broker.batches.job_in(b"new")
    broker.batches.report(b"new", job, COMPLETED)
    dispatch.settle(broker)
    sent_of(broker, BATCHADD)
    key = state_key(BATCH, b"new")
    say(broker, other, SETTING, (key, CLOSED, b"1", 1, other.id))
    say(broker, other, SETTING, (key, MADE, b"1-x", 2, other.id), (key, KEEPERS, other.id, 2, other.id))
    dispatch.settle(broker)
    assert [name for _, (_, name, _) in sent_of(broker, BATCHADD)] == [b"new"]


def test_keepers_tell_each_other_what_differs():
    """Spec BT3."""
    broker, _, other = start(is_keeper=True)
    say(broker, other, BATCHADD, (5, b"b", ENTRY))
    assert sent_of(broker, BATCHGOT) == [((other,), 5)]
    say(broker, other, BATCHSUM, (b"b", [0] * PARTS, 0))
    advance(broker, 10)
    assert sent_of(broker, BATCHADD) == [((other,), (0, b"b", ENTRY))]
    say(broker, other, BATCHSUM, (b"b", broker.batches.by_name[b"b"].digests(), 0))
    advance(broker, 10)
    assert sent_of(broker, BATCHADD) == []


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


def test_a_node_that_is_no_keeper_any_more_gives_its_ids_away():
    """Spec BT3."""
    broker, _, other = start(is_keeper=True)
    say(broker, other, BATCHADD, (0, b"b", ENTRY))
    say(broker, other, SETTING, (KEY, KEEPERS, other.id, 2, other.id))
    dispatch.settle(broker)
    advance(broker, 10)
    ((_, (number, _, data)),) = sent_of(broker, BATCHADD)
    assert (bool(number), data) == (True, ENTRY)
    say(broker, other, BATCHGOT, number)
    assert broker.batches.by_name[b"b"].count == 0


def test_a_question_about_reports_is_answered_behind_them():
    """Spec BT4."""
    broker, client, other = start(is_keeper=True)
    say(broker, other, BATCHFLUSH, (7, b"b"))
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "BATCH", "b")
    dispatch.settle(broker)
    runs = [kind for _, kind, items in broker.outbox.messages.take() for _ in items]
    assert runs.index(BATCHADD) < runs.index(BATCHFLUSHED)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (BATCHADD, (1, b"b", b"short")),
        (BATCHADD, (1, b"", ENTRY)),
        (BATCHADD, (1, b"b", ENTRY * 501)),
        (BATCHGOT, b"x"),
        (BATCHSUM, (b"b", [1], 0)),
        (BATCHFLUSH, (b"x", b"b")),
        (BATCHFLUSHED, (1, b"x", 1)),
    ],
)
def test_a_message_that_no_node_sends_closes_the_link(kind, item):
    broker, _, other = start()
    with pytest.raises(MalformedMessageError):
        say(broker, other, kind, item)


def test_a_name_in_an_unknown_batch_waits_for_its_shared_state():
    """Spec BT3: an end that is heard of before the state is not lost."""
    broker = make_broker()
    other = add_node(broker, number=2)
    say(broker, other, BATCHADD, (3, b"new", ENTRY))
    assert broker.batches.by_name[b"new"].count == 1
    assert not broker.batches.by_name[b"new"].is_known


def test_a_question_about_reports_is_repeated_until_it_is_answered():
    """Spec BT4: a node that reads its journal hears none."""
    broker, client, other = start(is_keeper=True)
    job_id = add(broker, client)[1:-2]
    ask(broker, make_client(broker), "BATCH", "CLOSE", "b")
    ask(broker, client, "ACKJOB", job_id)
    advance(broker, 2_500)
    questions = [item for _, item in sent_of(broker, BATCHFLUSH)]
    assert len(questions) >= 2
    assert len(set(questions)) == 1
    say(broker, other, BATCHFLUSHED, (questions[0][0], 0, 1))
    assert broker.batches.by_name[b"b"].is_done
    advance(broker, 2_500)
    assert sent_of(broker, BATCHFLUSH) == []


def test_a_node_that_is_not_linked_any_more_is_not_waited_for():
    """Spec BT4."""
    broker, client, other = start(is_keeper=True)
    job_id = add(broker, client)[1:-2]
    ask(broker, make_client(broker), "BATCH", "CLOSE", "b")
    ask(broker, client, "ACKJOB", job_id)
    advance(broker, 500)
    broker.membership.links.back_off(other)
    broker.cluster.refresh()
    dispatch.link_lost(broker, other)
    advance(broker, 1_500)
    assert broker.batches.by_name[b"b"].is_done


def test_ids_that_no_keeper_has_confirmed_are_given_away_again():
    """Spec BT3: an answer to an earlier message confirms nothing of a later one."""
    broker, client, other = start(is_keeper=True)
    add(broker, client)
    sent_of(broker, BATCHADD)
    say(broker, other, SETTING, (KEY, KEEPERS, other.id, 2, other.id))
    advance(broker, keeping.LOOK_MS + 1_000)
    first, again = [number for _, (number, _, _) in sent_of(broker, BATCHADD)]
    say(broker, other, BATCHGOT, first)
    assert broker.batches.by_name[b"b"].count == 1
    say(broker, other, BATCHGOT, again)
    assert broker.batches.by_name[b"b"].count == 0


def looked_at(broker, begin):
    """Return how many batches of b"0" to b"1999" were looked at in each turn: those looked at are due."""
    due = []
    begin()
    for _ in range(60):
        before = len(broker.batches.due)
        advance(broker, 1)
        due.append(len(broker.batches.due) - before)
    return [count for count in due if count > 0]


@pytest.mark.parametrize("begin", [keeping.on_link_up, keeping.on_link_lost])
def test_no_turn_looks_at_all_batches_because_of_a_link(begin):
    """Spec BT3, BT4."""
    broker, _, other = start(is_keeper=True)
    for number in range(4 * keeping.LOOKED_PER_PART):
        broker.batches.get(b"%d" % number).keepers = (broker.me, other)
    counts = looked_at(broker, lambda: begin(broker, other))
    assert len(counts) >= 2
    assert max(counts) <= 2 * keeping.LOOKED_PER_PART


def test_no_turn_looks_at_all_batches_that_may_be_done():
    """Spec BT4: of 600 one look takes 500."""
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
    pass_time(broker, keeping.LOST_MS + 300_000)
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
    pass_time(broker, keeping.LOST_MS + 300_000)
    say(broker, other, BATCHADD, (0, b"b", lost(3, 5)))
    advance(broker, 11_000)
    assert broker.batches.by_name[b"b"].counts()[LIVE] == 3
