"""core/moving.py: changes of single jobs on one node, in messages, records and memory."""

from __future__ import annotations

import msgpack
import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client
from cluster_bus.messages import CHANGED, QUEUED
from copies import advance, deliver, hold, hold_queued, sent, sent_of
from disque_py import event_format
from disque_py.core import changing, events, lifecycle, moving
from disque_py.core.event_packing import Noted
from disque_py.core.job import ACTIVE, Handover, memory_of
from disque_py.core.job import QUEUED as IS_QUEUED
from disque_py.core.queue import QUEUE_BYTES
from disque_py.core.queue_fields import QueueSettings
from journaled import JournaledNode
from spilled import SpillingNode
from world import World


def start():
    broker = make_broker()
    return broker, make_client(broker), add_node(broker)


def shown(broker, client, job_id):
    reply = ask_parsed(broker, client, "SHOW", job_id)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def memory_is_exact(broker):
    jobs = sum(memory_of(job) for shard in broker.shards for job in shard.values())
    return broker.used_memory == jobs + sum(QUEUE_BYTES + len(name) for name in broker.queues)


def test_a_move_tells_all_holders_before_the_job_is_queued():
    """Spec MV3."""
    broker, _, node = start()
    job = hold_queued(broker, node)
    sent(broker)
    assert moving.move(broker, job, b"new")
    (_, changed, item), (_, queued, _) = sent(broker)
    assert (changed, queued) == (CHANGED, QUEUED)
    assert item[1][2] == b"new"
    assert broker.queues[b"new"].length == 1
    assert broker.queues[b"q"].length == 0
    assert memory_is_exact(broker)


def test_a_job_with_a_worker_or_on_its_way_is_not_moved():
    """Spec MV3, MV5."""
    broker, _, node = start()
    leased = hold_queued(broker, node)
    deliver(broker)
    given = hold(broker, node, number=2)
    given.work = Handover(node, 1)
    assert not moving.move(broker, leased, b"new")
    assert not moving.move(broker, given, b"new")
    assert moving.reschedule(broker, leased.id, 5, None) == moving.reschedule(broker, given.id, 5, None) == 0


def test_a_delivered_at_most_once_job_is_left_alone():
    """Spec MV3."""
    broker, _, _ = start()
    job = hold_queued(broker, retry_s=0)
    assert moving.move(broker, job, b"new")
    assert job.queue == b"new"
    assert deliver(broker, b"new") is job
    assert not moving.move(broker, job, b"q")
    assert moving.reschedule(broker, job.id, 0, None) == 0


def test_an_at_most_once_job_is_promoted_once():
    """Spec MV1."""
    broker = make_broker()
    client = make_client(broker)
    job_id = ask(broker, client, "ADDJOB", "q", "x", 0, "RETRY", 0, "DELAY", 60)[1:-2]
    assert moving.promote(broker, job_id) == 1
    assert moving.promote(broker, job_id) == 0
    assert deliver(broker).id == job_id


def test_a_rescheduled_job_keeps_its_lines_and_timers_when_only_its_priority_changes():
    """Spec MV2."""
    broker, _, node = start()
    job, other = hold_queued(broker, node), hold_queued(broker, node, number=2)
    due_ms = other.requeue_at_ms
    sent(broker)
    assert moving.reschedule(broker, other.id, moving.NO_DELAY, -5) == 1
    assert [kind for _, kind, _ in sent(broker)] == [CHANGED]
    assert (other.state, other.requeue_at_ms) == (IS_QUEUED, due_ms)
    assert deliver(broker) is other
    assert deliver(broker) is job
    assert memory_is_exact(broker)


def test_the_place_of_a_job_that_was_out_of_its_queue_is_the_new_one():
    """A dead entry at its old place does not count again."""
    broker, _, _ = start()
    jobs = [hold_queued(broker, number=number) for number in range(1, 4)]
    lifecycle.dequeue(broker, jobs[0])
    assert moving.reschedule(broker, jobs[0].id, moving.NO_DELAY, 1 << 60) == 1
    lifecycle.enqueue(broker, jobs[0])
    assert [deliver(broker) for _ in range(3)] == [jobs[1], jobs[2], jobs[0]]


def test_a_rescheduled_job_keeps_its_error():
    """Its counters told the error until it got a changeable part. Spec MV2, Y6."""
    broker, client, _ = start()
    job = hold_queued(broker, retry_s=1)
    deliver(broker)
    advance(broker, 1_500)
    assert shown(broker, client, job.id)[b"error"] == b"lease expired"
    assert moving.reschedule(broker, job.id, moving.NO_DELAY, 5)
    assert shown(broker, client, job.id)[b"error"] == b"lease expired"
    assert memory_is_exact(broker)


CHANGES = [("RESCHEDULE", "PRIORITY", 5), ("RESCHEDULE", "DELAY", 0), ("MOVEJOB", "TO", "new")]


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_stays_pending_has_been_ready_since_the_same_moment(change):
    """Spec MV2, MV3."""
    broker = make_broker()
    client = make_client(broker)
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0)
    advance(broker, 500)
    assert ask_parsed(broker, client, change[0], job_id, *change[1:]) == 1
    reply = ask_parsed(broker, client, "QSTAT", "new" if "new" in change else "q")
    assert reply[reply.index(b"oldest-ms") + 1] == 500


def test_a_rescheduled_delay_ends():
    """Spec MV2."""
    broker, client, node = start()
    job = hold_queued(broker, node)
    assert moving.reschedule(broker, job.id, 2_000, None) == 1
    assert shown(broker, client, job.id)[b"status"] == b"invisible"
    advance(broker, 2_100)
    assert job.state == IS_QUEUED


def test_redrive_begins_attempts_and_life_anew():
    """Spec MV4."""
    broker, _, node = start()
    job = hold_queued(broker, node, ttl_s=3600)
    advance(broker, 600_000)
    if job.state == IS_QUEUED:
        lifecycle.dequeue(broker, job)
    changing.give_up(broker, job, b"broken")
    sent(broker)
    assert moving.redrive(broker, job, b"")
    assert (job.state, job.part.error, job.part.start) == (IS_QUEUED, None, job.attempt)
    assert job.expire_at_ms == broker.now_ms + 3_600_000
    [(_, item)] = sent_of(broker, CHANGED)
    assert item[1][changing.changeable.LEFT_AT] == 3_600_000


@pytest.mark.parametrize("offset_ms", [-(1 << 40), 1 << 40])
def test_a_wrong_clock_of_the_creator_ends_no_fresh_life_at_once(offset_ms):
    """Spec Y5: the id contains the TTL in minutes, to the nearest minute or so."""
    broker, _, _ = start()
    job = hold_queued(broker, ttl_s=3600)
    job.ctime = max(0, job.ctime + offset_ms * 1_000_000)
    assert 3_540_000 <= changing.begin(broker, job).ttl_ms <= 3_780_000


def test_a_dead_letter_goes_back_with_its_own_limit():
    """Spec MV4."""
    broker, client, _ = start()
    rules = QueueSettings()
    rules.dead_letter = b"dead"
    broker.queue_settings.in_force[b"q"] = rules
    job_id = ask(broker, client, "ADDJOB", "q", "x", 0, "ATTEMPTS", 1, "REPLICATE", 1)[1:-2]
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "NACK", job_id)
    job = broker.find(job_id)
    assert (job.queue, job.part.limit) == (b"dead", 0)
    assert moving.is_redrivable(job)
    assert moving.redrive(broker, job, b"")
    assert (job.queue, job.part.limit, job.part.is_dead_letter) == (b"q", 1, False)
    assert not moving.is_redrivable(job)


def test_a_job_is_invisible_in_a_paused_queue_until_the_pause_ends():
    """Spec MV3."""
    broker, client, node = start()
    ask(broker, client, "PAUSE", "new", "in")
    job = hold_queued(broker, node)
    assert moving.move(broker, job, b"new")
    assert job.state == ACTIVE
    assert job in broker.pauses.deferred
    ask(broker, client, "PAUSE", "new", "none")
    assert job.state == IS_QUEUED


def test_a_job_that_a_pause_held_back_is_pending_in_a_queue_without_one():
    """Spec MV3."""
    broker, client, node = start()
    job = hold_queued(broker, node)
    deliver(broker)
    ask(broker, client, "PAUSE", "q", "in")
    ask(broker, client, "NACK", job.id)
    assert job in broker.pauses.deferred
    assert moving.move(broker, job, b"new")
    assert job.state == IS_QUEUED
    assert job not in broker.pauses.deferred


def test_events_name_the_change():
    """Spec MV1, MV2, MV3, MV4."""
    broker, client, _ = start()
    broker.events = Noted()
    job_id = ask(broker, client, "ADDJOB", "q", "x", 0, "DELAY", 60, "REPLICATE", 1)[1:-2]
    moving.promote(broker, job_id)
    moving.reschedule(broker, job_id, moving.NO_DELAY, 3)
    moving.reschedule(broker, job_id, 5_000, None)
    job = broker.find(job_id)
    moving.move(broker, job, b"new")
    assert events.status_of(job) == event_format.INVISIBLE
    noted = [event for payload, _ in broker.events.take() for event in msgpack.unpackb(payload)]
    names = [event_format.CODES[event[0]][0] for event in noted]
    assert names == ["added", "promoted", "rescheduled", "rescheduled", "moved"]


def test_changes_survive_a_restart():
    """Spec MV2, MV3."""
    node = JournaledNode(appendonly=True, appendfsync="always")
    node.settle()
    moved = node.answer("ADDJOB", "q", "one", 0, "REPLICATE", 1)
    delayed = node.answer("ADDJOB", "r", "two", 0, "REPLICATE", 1)
    once = node.answer("ADDJOB", "s", "three", 0, "RETRY", 0)
    assert node.answer("RESCHEDULE", delayed, "DELAY", 60, "PRIORITY", 4) == 1
    moving.move(node.broker, node.broker.find(moved), b"new")
    moving.move(node.broker, node.broker.find(once), b"new")
    assert node.answer("PING")  # A turn, whose end records the changes.
    node.settle()
    node = node.restart()
    node.settle()
    find = node.broker.find
    assert (find(moved).queue, find(once).queue) == (b"new", b"new")
    assert (find(delayed).priority, find(delayed).part.is_delayed, find(delayed).state) == (4, True, ACTIVE)


def test_a_job_whose_body_is_on_disk_moves():
    """Spec MV3."""
    node = SpillingNode()
    node.fill(40)
    spilled = node.out()
    assert spilled
    for job_id in spilled:
        assert moving.move(node.broker, node.job(job_id), b"new")
    assert node.answer("PING")
    node.settle()
    got = [node.answer("GETJOB", "FROM", "new")[0] for _ in spilled]
    assert {entry[1]: entry[2] for entry in got} == {job_id: node.bodies[job_id] for job_id in spilled}


@pytest.mark.parametrize("command", ["ENQUEUE", "QREDRIVE"])
def test_lost_copies_of_a_job_are_replaced_when_its_ttl_begins_anew(command):
    """Spec RC1: a repair skips a job that is about to end."""
    world = World("ab", repair_after=600)
    world.join()
    world.ask("a", "QUEUE", "SET", "q", "retention", "20s")
    job_id = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 60, "TTL", 120, "ATTEMPTS", 1)
    world.ask("a", "GETJOB", "FROM", "q")
    world.ask("a", "NACK", job_id)
    world.run(world["a"].find(job_id).expire_at_ms - world["a"].now_ms - 8_000)
    world.crash("b")
    for name in "cd":
        world.add(name)
        world.meet("a", name)
    world.run(500)
    for name in "acd":
        world.ask(name, "CLUSTER", "FORGET", (b"b" * 20).hex())
    world.run(1_000)
    world.ask("a", command, job_id if command == "ENQUEUE" else "q")
    world.run(60_000)
    assert sum(world[name].find(job_id) is not None for name in "acd") == 2
