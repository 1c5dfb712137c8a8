"""core/events.py: the node that makes a transition writes its event, once, with versions that only grow."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import DELJOB, GOTJOB, LEASED, QUEUED, REPLJOB, SETACK, YOURJOBS
from cluster_bus.node import Node
from copies import advance, hold, make_id, make_job, say, sent_of
from disque_py import event_format
from disque_py.core import events
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.event_lines import Lines
from disque_py.core.event_packing import Noted
from disque_py.core.job_snapshot import snapshot_of

NACKS = (event_format.NACKED, event_format.NACKED_INVISIBLE)


def start(**settings: Any) -> tuple[Broker, Client]:
    broker = make_broker(**settings)
    broker.events = Noted()
    return broker, make_client(broker)


def noted(broker: Broker) -> list[Any]:
    """The events since the last look."""
    assert broker.events is not None
    return [event for payload, _ in broker.events.take() for event in msgpack.unpackb(payload)]


def told(broker: Broker) -> list[tuple[Any, ...]]:
    """(event, state left, state entered, version) since the last look."""
    import json

    lines = [json.loads(line) for line in Lines().of(1, broker.wall_ms, noted(broker))]
    return [(line["event"], line["from_state"], line["to_state"], line["version"]) for line in lines]


def test_a_job_that_is_added_delivered_and_acknowledged_has_three_events():
    """Spec E2."""
    broker, client = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "ACKJOB", job_id)
    assert told(broker) == [
        ("added", None, "pending", 1),
        ("delivered", "pending", "running", 2),
        ("acked", "running", "completed", 3),
    ]


def test_without_a_log_no_event_is_noted_and_versions_still_count():
    """Spec E3."""
    broker = make_broker()
    client = make_client(broker)
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    ask(broker, client, "GETJOB", "FROM", "q")
    job = broker.find(job_id)
    assert broker.events is None
    assert (job.version, job.status) == (2, event_format.RUNNING)


def test_a_delayed_job_is_invisible_until_its_time_comes():
    broker, client = start()
    ask(broker, client, "ADDJOB", "q", "body", 0, "DELAY", 2)
    advance(broker, 2_500)
    assert told(broker) == [("added", None, "invisible", 1), ("queued", "invisible", "pending", 2)]


def test_an_event_of_a_job_that_comes_back_says_why():
    """A NACK, a lease that ends, an operator."""
    broker, client = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0, "RETRY", 2)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "NACK", job_id)
    ask(broker, client, "GETJOB", "FROM", "q")
    advance(broker, 2_500)
    ask(broker, client, "DEQUEUE", job_id)
    ask(broker, client, "ENQUEUE", job_id)
    assert [event for event, *_ in told(broker)] == [
        "added", "delivered", "nacked", "delivered", "requeued", "dequeued", "enqueued",
    ]  # fmt: skip


def test_the_event_of_a_nack_has_its_reason():
    """The index counts failures by reason, also those after which the job is tried again."""
    broker, client = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    for words in (("REASON", b"no \xff fuel", "DELAY", 1), ("REASON", ""), ()):
        ask(broker, client, "GETJOB", "FROM", "q")
        ask(broker, client, "NACK", job_id, *words)
        advance(broker, 1_500)
    nacked = [event[-1] if type(event[-1]) is dict else {} for event in noted(broker) if event[0] in NACKS]
    assert nacked == [{"error": "no \ufffd fuel"}, {}, {}]


def test_working_on_a_running_job_changes_nothing_and_on_a_queued_one_it_does():
    broker, client = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    ask(broker, client, "WORKING", job_id)
    ask(broker, client, "WORKING", job_id)
    assert told(broker)[1:] == [("working", "pending", "running", 2)]


def test_a_nack_into_a_paused_queue_is_seen_twice():
    broker, client = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "PAUSE", "q", "in")
    ask(broker, client, "NACK", job_id)
    ask(broker, client, "PAUSE", "q", "none")
    assert told(broker)[2:] == [("nacked", "running", "invisible", 3), ("queued", "invisible", "pending", 4)]


def test_the_end_of_a_life_is_an_event_and_the_end_of_an_ack_is_none():
    broker, client = start()
    node = add_node(broker)
    ask(broker, client, "ADDJOB", "q", "body", 0, "TTL", 2, "REPLICATE", 1)
    held = hold(broker, node, ttl_s=2)
    ask(broker, client, "ACKJOB", held.id)
    told(broker)
    advance(broker, 3_000)
    assert told(broker) == [("expired", "pending", "expired", 2)]


def test_expired_jobs_that_a_getjob_finds_cause_events():
    broker, client = start()
    ask(broker, client, "ADDJOB", "q", "body", 0, "TTL", 1)
    pass_time(broker, 1_500)
    ask(broker, client, "GETJOB", "NOHANG", "FROM", "q")
    assert told(broker)[1:] == [("expired", "pending", "expired", 2)]


def test_deleting_the_only_copy_cancels_and_deleting_one_of_several_hides():
    broker, client = start()
    node = add_node(broker)
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    held = hold(broker, node, number=7)
    ask(broker, client, "ENQUEUE", held.id)
    told(broker)
    ask(broker, client, "DELJOB", job_id, held.id)
    assert told(broker) == [("deleted", "pending", "canceled", 2), ("deleted", "pending", "invisible", 3)]


def test_a_job_that_lacks_copies_causes_no_event_until_it_has_them():
    """Its producer has no promise; the copy on the other node writes no event either."""
    broker, client = start()
    node = add_node(broker)
    ask(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    assert told(broker) == []
    snapshot = sent_of(broker, REPLJOB)[0][1][0]
    say(broker, node, GOTJOB, snapshot[0])
    assert told(broker) == [("added", None, "pending", 1)]


def test_a_copy_taken_for_another_node_causes_no_event():
    broker, _ = start()
    node = add_node(broker)
    other = make_job(broker, node, is_mine=False)
    say(broker, node, REPLJOB, (snapshot_of(broker, other), 0))
    assert told(broker) == []


def test_a_node_that_only_learns_writes_no_event_and_takes_the_version():
    """Spec E1."""
    broker, _ = start()
    node = add_node(broker)
    job = hold(broker, node)
    say(broker, node, LEASED, (job.id, 30_000, 1, 5))
    assert (job.version, event_format.STATUS_NAMES[job.status]) == (5, "running")
    say(broker, node, QUEUED, (job.id, 0, 1, 0, 1, 6))
    assert (job.version, event_format.STATUS_NAMES[job.status]) == (6, "pending")
    packed = broker.sets.pack(broker.sets.of((node,)))
    say(broker, node, SETACK, (job.id, packed, 7))
    assert job.version == 7
    assert told(broker) == []


def test_a_node_that_is_given_a_job_it_knew_as_running_learns_that_it_waits():
    """Its lease elsewhere is over, else it would not be given away. The next delivery leaves pending, entered now."""
    broker, _ = start()
    node = add_node(broker)
    job = hold(broker, node)
    say(broker, node, LEASED, (job.id, 30_000, 1, 5))
    say(broker, node, YOURJOBS, (1, 0, [snapshot_of(broker, job)]))
    assert (event_format.STATUS_NAMES[job.status], job.since_ms) == ("pending", broker.wall_ms)
    assert told(broker) == []


@pytest.mark.parametrize("more", [(), ("META", "carrier", "UA"), ("PRIORITY", 7)])
def test_a_job_that_a_node_was_given_leaves_pending_when_it_is_delivered(more):
    """Its node has not seen how the job became pending, and no consumer had the job."""
    giver, producer = start()
    job_id = ask_parsed(giver, producer, "ADDJOB", "q", "body", 0, *more)
    taker, consumer = start()
    say(taker, add_node(taker), YOURJOBS, (1, 0, [snapshot_of(giver, giver.find(job_id))]))
    ask(taker, consumer, "GETJOB", "FROM", "q")
    assert told(taker) == [("delivered", "pending", "running", 2)]


def test_an_ack_of_a_node_without_the_job_is_written_by_the_first_holder_that_hears_of_it():
    broker, client = start()
    node = add_node(broker)
    job = hold(broker, node)
    say(broker, node, SETACK, (job.id, b"", 0))
    assert told(broker) == [("acked", "pending", "completed", 2)]
    ask(broker, client, "ACKJOB", make_id(9))
    assert told(broker) == []
    assert sent_of(broker, SETACK)[-1][1] == (make_id(9), b"", 0)


def test_a_node_that_knows_the_job_as_done_writes_no_event():
    """Its answer has an empty set, too, but the event was written long ago."""
    broker, _ = start()
    node = add_node(broker)
    job = hold(broker, node)
    say(broker, node, SETACK, (job.id, b""))
    assert told(broker) == []


def test_a_fast_ack_is_written_where_it_was_given_or_where_it_was_heard_first():
    broker, client = start()
    node = add_node(broker)
    first, second = hold(broker, node, number=1), hold(broker, node, number=2)
    ask(broker, client, "FASTACK", first.id)
    say(broker, node, DELJOB, (second.id, None, 1))
    assert [event for event, *_ in told(broker)] == ["acked", "acked"]
    third = hold(broker, node, number=3)
    say(broker, node, DELJOB, (third.id, None))
    assert told(broker) == []


def test_the_version_travels_in_the_snapshot_where_it_is_not_1():
    broker, _ = start()
    node = add_node(broker)
    job = make_job(broker, node)
    assert len(snapshot_of(broker, job)[1]) + 4 == len(snapshot_of(broker, _with_version(job, 300))[1])
    say(broker, node, REPLJOB, (snapshot_of(broker, job), 0))
    assert broker.find(job.id).version == 300


def _with_version(job: Any, version: int) -> Any:
    job.version = version
    return job


@pytest.mark.parametrize("version", [-1, 2**31, True, None, "1", 1.0])
def test_an_invalid_version_is_refused(version):
    broker, _ = start()
    job = hold(broker, add_node(broker))
    with pytest.raises(ValueError, match="version"):
        events.heard(job, version)


def test_a_state_that_was_not_seen_is_told_as_far_as_it_is_known():
    broker, client = start()
    node: Node = add_node(broker)
    job = hold(broker, node)
    assert events.status_of(job) == event_format.PENDING
    job.attempt = 1
    assert events.status_of(job) == event_format.RUNNING
    job.was_queued = False
    assert events.status_of(job) in (event_format.INVISIBLE, event_format.RUNNING)
    ask(broker, client, "ENQUEUE", job.id)
    job.status = event_format.UNKNOWN
    assert events.status_of(job) == event_format.PENDING


def test_flushing_is_one_event_of_the_node():
    broker, client = start()
    ask(broker, client, "ADDJOB", "q", "body", 0)
    ask(broker, client, "DEBUG", "FLUSHALL")
    assert told(broker)[1:] == [("flushed", None, None, None)]


def test_priority_and_metadata_are_told_with_every_event():
    import json

    broker, client = start()
    ask(broker, client, "ADDJOB", "q", "body", 0, "PRIORITY", 7, "META", "carrier", "UA")
    ask(broker, client, "GETJOB", "FROM", "q")
    lines = [json.loads(line) for line in Lines().of(1, broker.wall_ms, noted(broker))]
    assert [(line["priority"], line["meta"]) for line in lines] == [(7, {"carrier": "UA"})] * 2


def test_states_are_noted_while_no_events_are_written():
    """QLEN and QSTAT count by them, and events may be switched on at any time."""
    broker = make_broker()
    client = make_client(broker)
    assert broker.events is None
    ask(broker, client, "ADDJOB", "q", "body", 0)
    job = next(job for shard in broker.shards for job in shard.values())
    assert (job.status, job.since_ms) == (event_format.PENDING, broker.wall_ms)
    ask(broker, client, "GETJOB", "FROM", "q")
    assert job.status == event_format.RUNNING
    ask(broker, client, "NACK", job.id)
    assert job.status == event_format.PENDING
    ask(broker, client, "DEQUEUE", job.id)
    assert job.status == event_format.INVISIBLE
