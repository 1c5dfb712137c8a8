"""core/memory.py: the rules of a node above 75, 95 and 100 % of maxmemory."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client
from cluster_bus.messages import REFUSED, REFUSED_MEMORY, REPLJOB
from copies import deliver, hold, hold_queued, make_id, say, sent, sent_of, snapshot
from disque_py.core import acks, lifecycle, memory
from disque_py.core.job import JOB_BYTES

LIMIT = 100_000


def make_full(percent, *, policy="acks", nodes=0):
    """A broker filled with queued jobs to about `percent` of its maxmemory."""
    broker = make_broker(maxmemory=LIMIT, maxmemory_policy=policy)
    others = [add_node(broker, number) for number in range(2, 2 + nodes)]
    fill(broker, percent)
    return broker, others


def fill(broker, percent):
    hold_queued(broker, number=1_000_000 + percent, queue=b"ballast",
                body=b"x" * (LIMIT * percent // 100 - broker.used_memory - 3000))  # fmt: skip
    size = LIMIT * percent // 100 - broker.used_memory - JOB_BYTES
    hold(broker, number=2_000_000 + percent, body=b"x" * size)
    assert broker.used_memory == LIMIT * percent // 100


def add_acked(broker, count):
    """Add finished jobs whose other holder is silent: each counts JOB_BYTES, its body is gone."""
    node = add_node(broker, 9, is_linked=False)
    jobs = [hold(broker, node, number=number) for number in range(count)]
    for job in jobs:
        acks.acknowledge(broker, job)
    return jobs


@pytest.mark.parametrize(
    ("percent", "level"), [(70, 0), (75, 0), (76, 1), (95, 1), (96, 2), (99, 2), (100, 3), (120, 3)]
)
def test_levels_begin_above_their_marks_and_the_last_at_it(percent, level):
    broker, _ = make_full(percent)
    assert broker.memory_level == level


def test_without_maxmemory_there_is_no_level():
    """In the original, 0 meant that all limits are exceeded (spec Q5, M5)."""
    broker = make_broker(maxmemory=0)
    hold(broker, body=b"x" * 1_000_000)
    assert broker.memory_level == 0
    assert memory.make_room(broker)
    assert not memory.is_full(broker)


def test_at_or_below_95_percent_nothing_is_evicted():
    broker, _ = make_full(40)
    add_acked(broker, 20)
    assert memory.make_room(broker)
    assert (broker.memory.acked_count, broker.stats.jobs_evicted) == (20, 0)


def test_eviction_frees_enough_in_one_step():
    """The original freed one job per command, and still failed (spec Q5)."""
    broker, _ = make_full(50)
    add_acked(broker, 110)
    assert broker.memory_level == 3
    assert memory.make_room(broker)
    assert broker.used_memory <= broker.memory.limits[1]
    assert broker.stats.jobs_evicted == 110 - broker.memory.acked_count > 0


@pytest.mark.plain
def test_with_very_many_jobs_each_attempt_looks_at_a_part(monkeypatch):
    """No command may take long because memory is short. The next attempts continue."""
    monkeypatch.setattr(memory, "LOOKED_PER_ATTEMPT", 20)
    broker, _ = make_full(50)
    add_acked(broker, 140)
    before = broker.memory.acked_count
    assert not memory.make_room(broker)
    assert 0 < before - broker.memory.acked_count <= 40
    assert any(memory.make_room(broker) for _ in range(20))


def test_jobs_that_are_still_to_be_done_are_never_evicted():
    """Spec M3."""
    broker, _ = make_full(98)
    waiting, leased = hold_queued(broker, number=1), hold_queued(broker, number=2, queue=b"r")
    deliver(broker, b"r")
    assert not memory.make_room(broker)
    assert broker.find(waiting.id) is waiting
    assert broker.find(leased.id) is leased


def test_an_at_most_once_job_may_be_evicted_after_its_delivery():
    broker, _ = make_full(50)
    before = [hold_queued(broker, number=number, retry_s=0, queue=b"r", body=b"x" * 20_000) for number in (1, 2)]
    hold_queued(broker, number=3, retry_s=0, queue=b"s", body=b"x" * 20_000)
    assert not memory.make_room(broker)
    deliver(broker, b"s")
    assert memory.make_room(broker)
    assert broker.job_count == 4
    assert all(broker.find(job.id) is job for job in before)
    assert broker.memory.once_delivered_count == 0


def test_noeviction_evicts_nothing():
    broker, _ = make_full(50, policy="noeviction")
    add_acked(broker, 110)
    assert not memory.make_room(broker)
    assert broker.stats.jobs_evicted == 0


def test_an_evicted_ack_is_still_known_as_done():
    """A node that deletes an acked record remembers its id: a late copy is not delivered (spec A6)."""
    broker, _ = make_full(50)
    jobs = add_acked(broker, 110)
    memory.make_room(broker)
    assert all(job.id in broker.tombstones for job in jobs if broker.find(job.id) is None)


def test_writes_are_refused_at_100_percent_of_maxmemory():
    """The original refused from 95 % (spec Q5, M4)."""
    broker, _ = make_full(97)
    client = make_client(broker)
    assert ask(broker, client, "ADDJOB", "q", "x" * 10, 0).startswith(b"+D-")
    fill_up = hold(broker, number=77, body=b"x" * 2_000)
    assert ask(broker, client, "ADDJOB", "q", "", 0) == (
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    )
    lifecycle.forget(broker, fill_up)
    assert ask(broker, client, "ADDJOB", "q", "", 0).startswith(b"+D-")


@pytest.mark.parametrize("command", ["NACK", "ENQUEUE"])
def test_commands_that_need_memory_are_refused_and_commands_that_free_it_are_not(command):
    broker, _ = make_full(110)
    client = make_client(broker)
    job = hold(broker, number=5)
    assert ask(broker, client, command, job.id).startswith(b"-OOM")
    assert ask_parsed(broker, client, "ACKJOB", job.id) == 1
    assert ask_parsed(broker, client, "GETJOB", "FROM", "ballast")


def test_a_command_that_needs_memory_evicts_first():
    broker, _ = make_full(50)
    add_acked(broker, 110)
    assert ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 1).startswith(b"+D-")


def test_above_75_percent_no_own_copy_is_kept_if_others_have_room():
    """Spec M1."""
    broker, (node,) = make_full(80, nodes=1)
    client = make_client(broker)
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1) == b""
    ((receivers, (job_snapshot, _)),) = sent_of(broker, REPLJOB)
    assert receivers == (node,)
    assert job_snapshot[4] == node.id


def test_a_full_cluster_goes_on_as_usual():
    """Otherwise every ADDJOB of a lone node or an evenly filled cluster would fail at 75 % (spec Q5)."""
    broker, (node,) = make_full(80, nodes=1)
    node.memory_level = 1
    assert ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 1).startswith(b"+D-")
    assert sent_of(broker, REPLJOB) == []
    lone, _ = make_full(80)
    assert ask(lone, make_client(lone), "ADDJOB", "q", "body", 0).startswith(b"+D-")


def test_a_node_without_link_has_no_room_for_us():
    broker, _ = make_full(80)
    add_node(broker, 5, is_linked=False)
    assert not memory.replicates_externally(broker, 1)


def test_one_roomy_node_is_not_enough_for_a_default_of_more_copies():
    """
    There are enough reachable nodes below 75 % if there are as many as the job has copies. Here only one of two others
    has room. So this node keeps its copy, and the default of three copies counts it.
    """
    broker, (_, other) = make_full(80, nodes=2)
    other.memory_level = 1
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0)
    ((_, (job_snapshot, _)),) = sent_of(broker, REPLJOB)
    assert broker.me.id in job_snapshot[4]


def test_a_leaving_node_never_keeps_a_copy():
    broker = make_broker()
    broker.membership.set_leaving(True)
    assert memory.replicates_externally(broker, 3)


@pytest.mark.parametrize(("percent", "is_taken"), [(80, True), (95, True), (97, False)])
def test_copies_of_others_are_taken_up_to_95_percent(percent, is_taken):
    """It is refused with the reason, so that the creator asks another node at once."""
    broker, (node,) = make_full(percent, nodes=1)
    sent(broker)
    say(broker, node, REPLJOB, (snapshot(broker, node, broker.me), 0))
    assert (broker.find(make_id()) is not None) is is_taken
    if not is_taken:
        assert sent_of(broker, REFUSED) == [((node,), (make_id(), REFUSED_MEMORY))]


def test_evictable_records_make_room_for_a_copy():
    """Spec M2."""
    broker, (node,) = make_full(50, nodes=1)
    add_acked(broker, 110)
    say(broker, node, REPLJOB, (snapshot(broker, node, broker.me, number=999), 0))
    assert broker.find(make_id(999)) is not None
