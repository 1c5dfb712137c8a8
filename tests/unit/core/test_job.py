"""core/job.py: a job before any event."""

from __future__ import annotations

import msgpack
import pytest

from brokers import make_broker
from copies import hold, make_job
from disque_py.core import acks, client_acks, replication
from disque_py.core.job import (
    ACKED,
    ACTIVE,
    COUNTER_MAX,
    QUEUED,
    STATE_NAMES,
    TERMS_MAX,
    WAIT_REPL,
    Job,
    JobTerms,
    terms_of,
)
from disque_py.event_format import SHORT_BYTES_MAX
from world import joined


def test_a_new_job_is_active_and_has_never_been_anywhere():
    job = make_job(make_broker())
    assert (job.state, job.requeue_at_ms, job.awake_at_ms, job.attempt) == (ACTIVE, 0, 0, 0)
    assert (job.nacks, job.deliveries, job.work) == (0, 0, None)
    assert not any((job.is_listed, job.is_delivered, job.was_queued, job.is_leased_here, job.was_announced))


def test_states_have_the_names_that_clients_see():
    assert [STATE_NAMES[state] for state in (WAIT_REPL, ACTIVE, QUEUED, ACKED)] == [
        "wait-repl", "active", "queued", "acked",
    ]  # fmt: skip


@pytest.mark.plain
def test_a_job_has_no_room_for_more():
    """There are millions of jobs: a dict each would cost more than the job."""
    assert not hasattr(make_job(make_broker()), "__dict__")
    assert "id" in Job.__slots__


def test_only_an_ack_without_holders_and_queue_is_a_dummy():
    broker = make_broker()
    dummy = client_acks.dummy_ack(broker, b"D-00010203-" + b"x" * 24 + b"-0005")
    assert dummy.is_dummy
    job = hold(broker)
    assert not job.is_dummy
    acks.acknowledge(broker, job)
    assert not job.is_dummy


def test_the_text_of_a_job_says_which_it_is():
    """A reader of a trace wants its id, state and queue, not an address."""
    job = make_job(make_broker())
    assert repr(job) == f"<Job {job.id[11:19].decode()} active of b'q'>"


def test_jobs_in_a_row_of_one_queue_share_their_terms():
    broker = make_broker()
    first, second, other = make_job(broker), make_job(broker, number=2), make_job(broker, number=3, delay_s=5)
    assert first.terms is second.terms
    assert other.terms is not first.terms
    assert other.queue is first.queue


def test_another_number_of_copies_is_that_of_one_job():
    broker = make_broker()
    job, other = make_job(broker), make_job(broker, number=2)
    replication.set_copies(broker, job, 3)
    assert (job.replicate, other.replicate) == (3, 1)


def test_the_terms_of_very_many_queues_are_not_kept():
    known = {}
    for number in range(TERMS_MAX + 1):
        terms_of(known, b"%d" % number, 0, 0, 1)
    assert list(known) == [b"%d" % TERMS_MAX]


def test_counters_stop_at_their_limit():
    job = make_job(make_broker())
    job.nacks = job.deliveries = COUNTER_MAX + 1
    assert (job.nacks, job.deliveries) == (COUNTER_MAX, COUNTER_MAX)


@pytest.mark.parametrize(
    ("attempt", "nacks", "deliveries", "packed"),
    [
        (0, 0, 0, 0),
        (3, 2, 1, 0x030201),
        (127, 127, 127, 0x7F7F7F),
        (128, 0, 0, -1),
        (0, 128, 0, -1),
        (0, 0, 70_000, -1),
    ],
)
def test_counters_of_one_byte_each_are_one_number(attempt, nacks, deliveries, packed):
    job = make_job(make_broker())
    job.attempt, job.nacks, job.deliveries = attempt, nacks, deliveries
    assert job.small_counters() == packed


def test_terms_have_the_packed_name_of_a_queue_unless_it_is_long():
    for name in (b"", b"q" * SHORT_BYTES_MAX):
        terms = JobTerms(name, 0, 0, 1)
        assert (terms.is_short, terms.packed_queue) == (True, msgpack.packb(name))
    assert not JobTerms(b"q" * (SHORT_BYTES_MAX + 1), 0, 0, 1).is_short


@pytest.mark.parametrize("hours", [6, -6])
def test_a_step_of_the_wall_clock_does_not_refuse_working(hours):
    """Spec T1, L7: most of the TTL is left, whatever the clock says."""
    world = joined("ab")
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "TTL", 3_600)
    world.ask("a", "GETJOB", "FROM", "q")
    world.machines["a"].wall_offset_ms = hours * 3_600_000
    assert world.ask("a", "WORKING", job_id) == 300
    world.run(1_900_000)
    assert str(world.ask("a", "WORKING", job_id)).startswith("TOOLATE")


def test_working_beside_a_creator_whose_clock_is_behind_is_not_too_late():
    """Spec T4."""
    world = joined("ab")
    world.machines["a"].wall_offset_ms = -6 * 3_600_000
    world.run(1_000)
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "TTL", 3_600, "REPLICATE", 2)
    world.ask("a", "GETJOB", "FROM", "q")
    world.run(100)
    assert world.ask("b", "WORKING", job_id) == 300
