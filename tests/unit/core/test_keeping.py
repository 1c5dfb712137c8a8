"""core/keeping.py: nodes that record the ids of a batch. tests/scenarios/test_batches.py has whole stories."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import (
    ASKSETTINGS,
    BATCHADD,
    BATCHFLUSH,
    BATCHFLUSHED,
    BATCHGOT,
    BATCHSUM,
    DELJOB,
    GOTACK,
    REPLJOB,
    SETTING,
)
from copies import advance, make_job, say, sent, sent_of
from disque_py.core import batch_ends, keeping, replication
from disque_py.core.batch_state import ABORTED, CLOSED, KEEPERS, LIVE, MADE, PARTS
from disque_py.core.id_sets import ENTRY_BYTES, KEY_BYTES
from disque_py.core.job_attributes import BATCH as BATCH_EXTRA
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.queue_settings import BATCH, RESET_FIELD, state_key
from disque_py.event_format import COMPLETED
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError
from disque_py.simulator.clients.connection import words
from kept_batches import ENTRY, KEY, add, start
from simulated import ask as tell
from simulated import asker, joined


def test_a_producer_is_answered_when_a_keeper_has_recorded_the_job():
    """Spec BT1."""
    broker, client, other = start()
    assert add(broker, client) == b""
    ((nodes, (number, name, data)),) = sent_of(broker, BATCHADD)
    assert (nodes, name, len(data)) == ((other,), b"b", ENTRY_BYTES)
    say(broker, other, BATCHGOT, number)
    assert b"".join(client.out).startswith(b"+D-")


def test_a_flush_answers_producers_whose_jobs_no_keeper_has_recorded():
    """Spec BT1: their jobs are gone here, and no keeper will record them (seed 4061)."""
    broker, client, _ = start()
    assert add(broker, client) == b""
    operator = make_client(broker)
    ask(broker, operator, "DEBUG", "FLUSHALL")
    assert b"".join(client.out).startswith(b"-NOREPL job removed")
    assert not broker.batches.held


def test_a_producer_that_makes_a_batch_waits_for_keepers_that_another_node_chose_meanwhile():
    """Spec BT1: two nodes made the batch at once, and the other one's list of keepers stays."""
    broker = make_broker()
    client, other = make_client(broker), add_node(broker, number=2)
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "BATCH", "b")
    say(broker, other, SETTING, (KEY, MADE, b"2-x", 2, other.id), (KEY, KEEPERS, other.id, 2, other.id))
    dispatch.settle(broker)
    advance(broker, 10_000)
    assert not broker.batches.by_name[b"b"].is_spreading
    assert b"".join(client.out) == b""
    say(broker, other, BATCHGOT, sent_of(broker, BATCHADD)[-1][1][0])
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
    """Spec BT1: its creation may be aborted, and then its entry would never end."""
    broker, client, other = start()
    ask(broker, client, "ADDJOB", "q", "x", 5000, "REPLICATE", 2, "BATCH", "b")
    say(broker, other, SETTING, (KEY, KEEPERS, broker.me.id, 2, other.id))
    dispatch.settle(broker)
    advance(broker, 2_000)
    assert broker.batches.by_name[b"b"].count == 0


def hold_copy(broker, creator):
    """A copy of a job of batch b that another node is adding."""
    job = make_job(broker, creator, is_mine=False)
    job.attributes = JobAttributes(None, ())
    job.attributes.set_extra(BATCH_EXTRA, b"b")
    say(broker, creator, REPLJOB, (snapshot_of(broker, job), 0))
    dispatch.settle(broker)
    return job.id


def replace_keepers(broker, other, *keepers):
    """Another list of keepers wins. Return the entries that this node reports."""
    say(broker, other, SETTING, (KEY, KEEPERS, b"".join(node.id for node in keepers), 2, other.id))
    dispatch.settle(broker)
    advance(broker, 100)
    return reported(broker)


def reported(broker):
    """Return the statuses that this node has reported since the last look."""
    dispatch.settle(broker)
    return [data[24] for _, (_, _, data) in sent_of(broker, BATCHADD)]


def test_a_copy_that_was_reported_to_new_keepers_is_taken_back_if_its_addjob_fails():
    """Spec BT8."""
    broker, _, other = start()
    third = add_node(broker, number=3)
    job_id = hold_copy(broker, other)
    assert replace_keepers(broker, other, third) == [LIVE]
    say(broker, other, DELJOB, (job_id, None, replication.NOT_CREATED))
    assert reported(broker) == [ABORTED]
    assert broker.find(job_id) is None


def test_a_copy_that_no_keeper_was_told_of_is_not_reported_if_its_addjob_fails():
    """Spec BT1: one of the keepers stayed, so it knows the truth."""
    broker, _, other = start()
    third = add_node(broker, number=3)
    job_id = hold_copy(broker, other)
    assert replace_keepers(broker, other, other, third) == []
    say(broker, other, DELJOB, (job_id, None, replication.NOT_CREATED))
    assert reported(broker) == []


def test_a_copy_from_the_journal_may_have_been_reported_before_the_restart():
    """Spec BT8."""
    broker, _, other = start()
    broker.is_loading = True
    broker.batches.job_in(b"b")
    broker.is_loading = False
    job_id = hold_copy(broker, other)
    say(broker, other, DELJOB, (job_id, None, replication.NOT_CREATED))
    assert reported(broker) == [ABORTED]


def test_a_creator_that_gives_up_tells_new_keepers_too():
    """Spec BT8: the node that has reported the copy may be lost by then."""
    broker, client, other = start()
    third = add_node(broker, number=3)
    ask(broker, client, "ADDJOB", "q", "x", 5000, "REPLICATE", 2, "BATCH", "b")
    assert replace_keepers(broker, other, third) == []
    advance(broker, 5_100)
    assert b"".join(client.out).startswith(b"-NOREPL")
    told = [(kind, item) for _, kind, item in sent(broker)]
    assert [item[2] for kind, item in told if kind == DELJOB] == [replication.NOT_CREATED]
    assert [item[2][24] for kind, item in told if kind == BATCHADD] == [ABORTED]


def test_a_job_whose_producer_waits_for_a_hand_over_is_not_reported_to_new_keepers():
    """Spec BT1: no node may take it in the end."""
    broker, client, other = start()
    third = add_node(broker, number=3)
    broker.membership.set_leaving(True)
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "RETRY", 0, "BATCH", "b")
    assert replace_keepers(broker, other, third) == []


def test_a_report_waits_until_all_of_an_unknown_batch_is_heard():
    """Spec BT3: the fields of its state may come one by one, and a CLOSE may come before the beginning."""
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


def test_the_end_of_a_job_is_reported_even_if_it_comes_before_its_batch():
    """Seed 10392, spec BT3: the node of a FASTACK did not know the batch, and it had no other job of that batch."""
    broker = make_broker()
    client, other = make_client(broker), add_node(broker, number=2)
    assert ask(broker, client, "FASTACK", hold_copy(broker, other)) == b":1\r\n"
    dispatch.settle(broker)
    advance(broker, 3_000)
    assert sent_of(broker, BATCHADD) == []
    say(broker, other, SETTING, (KEY, MADE, b"1-x", 2, other.id), (KEY, KEEPERS, other.id, 2, other.id))
    dispatch.settle(broker)
    ((nodes, (number, name, data)),) = sent_of(broker, BATCHADD)
    assert (nodes, name, data[KEY_BYTES]) == ((other,), b"b", COMPLETED)
    say(broker, other, BATCHGOT, number)
    assert not broker.batches.reports


def test_a_report_of_an_ended_job_is_given_up_if_no_node_knows_its_batch():
    """A batch that was deleted long ago is unknown everywhere."""
    broker = make_broker()
    add_node(broker, number=2)
    before = broker.used_memory
    keeping.report_ids(broker, b"b", {ENTRY[:KEY_BYTES]: (COMPLETED, 1)})
    advance(broker, keeping.UNKNOWN_MS - 1_000)
    assert broker.batches.reports
    advance(broker, 3_000)
    assert (broker.batches.reports, broker.batches.pending, broker.batches.by_name) == ({}, {}, {})
    assert broker.used_memory == before


def deleted():
    """A node that knows that batch b was deleted, and has made no other one of this name yet."""
    broker, client, other = start()
    say(broker, other, SETTING, (KEY, RESET_FIELD, b"", 2, other.id))
    dispatch.settle(broker)
    sent(broker)
    return broker, client, other


def make_again(broker, other):
    """Tell the node of a new batch b, with `other` as its keeper."""
    fields = [(CLOSED, b""), (MADE, b"2-x"), (KEEPERS, other.id)]
    say(broker, other, SETTING, *[(KEY, field, value, 3, other.id) for field, value in fields])
    dispatch.settle(broker)


def test_the_end_of_a_job_is_reported_although_its_batch_was_deleted_and_made_again_elsewhere():
    """Spec BT3: the node has heard of the deletion, and not yet of the new batch."""
    broker, client, other = deleted()
    ask(broker, client, "FASTACK", hold_copy(broker, other))
    dispatch.settle(broker)
    advance(broker, 900)
    assert sent_of(broker, BATCHADD) == []
    make_again(broker, other)
    ((nodes, (_, name, data)),) = sent_of(broker, BATCHADD)
    assert (nodes, name, data[KEY_BYTES]) == ((other,), b"b", COMPLETED)


def test_the_end_of_a_job_of_a_deleted_batch_is_given_up_soon():
    """Spec BT3: no node is asked for a state that this node knows."""
    broker, _, _ = deleted()
    for number in range(30):
        keeping.report_ids(broker, b"b", {bytes([number]) + ENTRY[1:KEY_BYTES]: (COMPLETED, 1)})
        advance(broker, 500)
    assert sent_of(broker, ASKSETTINGS) == []
    assert len(broker.batches.pending) < 5
    advance(broker, keeping.DELETED_MS + 1_000)
    batches = broker.batches
    assert (batches.reports, batches.pending, batches.by_name) == ({}, {}, {})


def test_a_keeper_answers_no_report_about_a_batch_of_which_it_knows_the_deletion_only():
    """Spec BT3: the batch may have been made again. The node repeats its report."""
    broker, _, other = deleted()
    say(broker, other, BATCHADD, (5, b"b", ENTRY))
    assert sent_of(broker, BATCHGOT) == []
    make_again(broker, other)
    say(broker, other, BATCHADD, (6, b"b", ENTRY))
    assert sent_of(broker, BATCHGOT) == [((other,), 6)]


def test_the_record_of_an_ended_job_does_not_stay_if_no_node_knows_its_batch():
    """Seed 14996: all keepers were reset, and the record itself kept the report about its end."""
    broker = make_broker()
    client, other = make_client(broker), add_node(broker, number=2)
    job_id = hold_copy(broker, other)
    broker.batches.job_in(b"b")  # Another job of the batch.
    ask(broker, client, "ACKJOB", job_id)
    say(broker, other, GOTACK, (job_id, broker.sets.pack(broker.sets.of([broker.me, other])), 1))
    dispatch.settle(broker)
    advance(broker, keeping.UNKNOWN_MS - 1_000)
    assert broker.find(job_id) is not None
    advance(broker, 3_000)
    assert broker.find(job_id) is None
    assert broker.batches.by_name[b"b"].held == 1
    assert (broker.batches.reports, broker.batches.pending, broker.batches.collecting) == ({}, {}, {})


def test_a_report_of_an_unknown_batch_is_not_kept_beyond_the_greatest_number_of_batches():
    """The number of batches is limited, also for names that come with jobs."""
    broker = make_broker()
    add_node(broker, number=2)
    broker.batches.by_name = dict.fromkeys(range(keeping.BATCHES_MAX))
    keeping.report_ids(broker, b"b", {ENTRY[:KEY_BYTES]: (COMPLETED, 1)})
    assert (broker.batches.reports, broker.batches.pending) == ({}, {})
    assert b"b" not in broker.batches.by_name


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


def test_a_former_keeper_gives_its_ids_away():
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


def test_ids_that_no_keeper_has_confirmed_are_given_away_again():
    """Spec BT3: an answer to an earlier message confirms nothing of a later one."""
    broker, client, other = start(is_keeper=True)
    add(broker, client)
    sent_of(broker, BATCHADD)
    say(broker, other, SETTING, (KEY, KEEPERS, other.id, 2, other.id))
    advance(broker, batch_ends.LOOK_MS + 1_000)
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


def test_a_node_with_a_report_of_a_batch_that_it_never_heard_of_asks_for_the_settings():
    """Spec BT3."""
    broker = make_broker()
    add_node(broker, number=2)
    broker.batches.get(b"b")
    keeping.report_ids(broker, b"b", {ENTRY[:KEY_BYTES]: (COMPLETED, 1)})
    asked = []
    for _ in range(25):
        advance(broker, 1_000)
        asked.append(len(sent_of(broker, ASKSETTINGS)))
    assert sum(asked) == 3


def test_a_producer_is_answered_although_another_client_deletes_the_batch_in_the_same_turn():
    world = joined("a", is_prompt=False)
    world.run(500)
    tell(world, "a", "ADDJOB", "q", "x", 0, "BATCH", "b")
    world.run(3_000)
    producer, other = asker(world, "a"), asker(world, "a")
    producer.send([words("ADDJOB", "q", "x", 0, "BATCH", "b")])
    other.send([words("BATCH", "DEL", "b")])
    world.run(5_000)
    assert len(producer.replies) == 1
    assert world["a"].batches.held == {}


def test_an_acknowledged_job_is_collected_although_its_batch_is_deleted_in_the_same_turn():
    world = joined("a")
    world.run(500)
    tell(world, "a", "ADDJOB", "q", "x", 0, "BATCH", "b")
    world.run(3_000)
    ((_, job_id, _),) = tell(world, "a", "GETJOB", "FROM", "q")
    asker(world, "a").send([words("ACKJOB", job_id), words("BATCH", "DEL", "b")])
    world.run(5_000)
    assert world["a"].find(job_id) is None
    assert world["a"].batches.collecting == {}


def test_a_node_that_begins_a_batch_keeps_fields_of_which_it_has_heard_already():
    """Seed 4231: another node has made and closed the batch, and not all of its fields have arrived."""
    broker = make_broker()
    client, other = make_client(broker), add_node(broker, number=2)
    say(broker, other, SETTING, (KEY, CLOSED, b"1", 1, other.id))
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "BATCH", "b")
    assert broker.queue_settings.states[KEY].fields[CLOSED][0] == b"1"
