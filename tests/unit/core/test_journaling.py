"""core/journaling.py: the records of a turn, and records that move out of a segment before it is dropped."""

from __future__ import annotations

import contextlib

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import LEASED, REPLJOB
from copies import collect, deliver, hold, hold_queued, make_job, say, snapshot
from disque_py.core import journaling, lifecycle
from disque_py.core.job_snapshot import SPAN_BITS
from disque_py.core.journaling import keep
from disque_py.node import dispatch
from persistence.layouts import (
    BASE_STATE,
    HEADER,
    IS_ACKED,
    IS_DELIVERED,
    IS_LEASED,
    IS_QUEUED,
    STATE_FIELDS,
    VERSION,
    WAS_QUEUED,
)
from persistence.records import GONE, JOB, PAUSE, STATE


def listening(place=1):
    broker = make_broker()
    broker.is_journaling = True
    broker.journal.first_place = 1
    broker.journal.place = place
    return broker


def move(broker, job, number):
    """Copy the segment, with its base of the job."""
    keep(broker, number, JOB, (job.id, b"", job.queue, job.body), may_matter=True)


def test_a_new_job_is_recorded_with_all_its_fields():
    broker = listening(3)
    job = hold_queued(broker, body=b"body", retry_s=30)
    ((kind, base),) = collect(broker)
    assert kind == JOB
    assert base[:1] + base[2:5] == (job.id, b"q", b"body", broker.me.id)
    assert BASE_STATE.unpack(base[5]) == (IS_QUEUED | WAS_QUEUED, -1)
    assert (job.place, broker.journal.live_bytes) == (3, {3: journaling.base_bytes(job)})


def test_later_records_have_only_fields_that_may_have_changed():
    broker = listening()
    job = hold_queued(broker)
    collect(broker)
    deliver(broker)
    ((kind, (job_id, state, holders)),) = collect(broker)
    assert (kind, job_id, holders) == (STATE, job.id, None)
    assert STATE_FIELDS.unpack(state)[:5] == (IS_DELIVERED | IS_LEASED | WAS_QUEUED, 30_000, 1, 0, 0)
    lifecycle.acknowledge(broker, job)
    ((_, (_, state, holders)),) = collect(broker)
    assert (STATE_FIELDS.unpack(state)[0] & IS_ACKED, holders) == (IS_ACKED, None)


def test_new_holders_are_recorded_as_a_whole_set():
    broker = listening()
    node = add_node(broker)
    job = hold(broker)
    journaling.mark_holders_dirty(broker, job)
    collect(broker)
    job.holders = broker.sets.add(job.holders, node)
    journaling.mark_holders_dirty(broker, job)
    ((_, (_, _, holders)),) = collect(broker)
    assert holders == broker.me.id + node.id


def test_a_job_that_came_and_went_within_a_turn_leaves_no_trace():
    broker = listening()
    lifecycle.forget(broker, hold_queued(broker))
    assert collect(broker) == []


def test_a_job_that_waits_for_its_copies_is_not_recorded():
    """Its producer has no promise yet."""
    broker = listening()
    job = make_job(broker)
    lifecycle.register_waiting(broker, job)
    lifecycle.mark_dirty(broker, job)
    assert (collect(broker), job.place) == ([], 0)


def test_jobs_that_are_gone_come_before_new_ones():
    """The same id may go and come again within a turn."""
    broker = listening()
    lifecycle.forget(broker, _known(broker, 1))
    hold_queued(broker, number=1)
    assert [run[0] for run in collect(broker)] == [GONE, JOB]


def _known(broker, number, *, place=1):
    """A job that the journal knows."""
    job = hold_queued(broker, number=number)
    broker.journal.place = place
    collect(broker)
    assert job.place == place
    return job


def test_a_pause_is_recorded_in_its_state_at_the_end_of_the_turn():
    broker = listening()
    client = make_client(broker)
    for words in (("in",), ("out", "bcast"), ("all",)):
        ask(broker, client, "PAUSE", "q", *words)
    assert collect(broker) == [[PAUSE, (b"q", 3, broker.wall_ms, broker.me.id, 2)]]


def test_living_records_of_a_segment_are_written_anew_at_the_journals_end():
    broker = listening()
    job = _known(broker, 1)
    broker.journal.place = 5
    move(broker, job, 1)
    ((kind, base),) = collect(broker)
    assert (kind, base[0], job.place) == (JOB, job.id, 5)
    assert broker.journal.live_bytes == {1: 0, 5: journaling.base_bytes(job)}


def test_a_base_that_was_replaced_lives_elsewhere():
    broker = listening()
    job = _known(broker, 1, place=4)
    move(broker, job, 1)
    assert collect(broker) == []


def test_a_job_that_ends_in_the_turn_in_which_it_is_moved_leaves_a_gone():
    """Otherwise the remaining base would bring the job back."""
    broker = listening()
    job = _known(broker, 1)
    broker.journal.place = 5
    move(broker, job, 1)
    lifecycle.forget(broker, job)
    assert collect(broker) == [[GONE, (job.id, 1)]]
    assert broker.journal.live_bytes == {1: 0}


def test_a_gone_record_is_written_again_as_long_as_it_matters():
    broker = listening()
    item = (make_job(broker).id, 2)
    keep(broker, 3, GONE, item, may_matter=False)
    assert collect(broker) == []
    keep(broker, 3, GONE, item, may_matter=True)
    assert collect(broker) == [[GONE, item]]


def test_a_repeated_gone_record_does_not_end_a_later_job():
    broker = listening()
    job = _known(broker, 1, place=4)
    keep(broker, 3, GONE, (job.id, 2), may_matter=True)
    assert [run[0] for run in collect(broker)] == [GONE, JOB]


def test_the_segment_of_a_base_that_was_replaced_is_stale():
    """It may be another segment than the one that goes: a repeated GONE moves a job that came back."""
    broker = listening()
    job = _known(broker, 1, place=4)
    broker.journal.place = 5
    keep(broker, 3, GONE, (job.id, 2), may_matter=True)
    collect(broker)
    assert broker.journal.stale_places == {4}


def test_a_state_in_a_segment_that_goes_is_recorded_again_for_a_base_before_it():
    broker = listening()
    before, after = _known(broker, 1), _known(broker, 2, place=7)
    for job in (before, after):
        keep(broker, 4, STATE, (job.id, b"", None), may_matter=True)
    assert [(run[0], [item[0] for item in run[1:]]) for run in collect(broker)] == [(STATE, [before.id])]


def test_places_of_an_earlier_journal_do_not_count():
    """The journal was switched off and on. So every job is new to it, and the end of a job needs no record."""
    broker = listening()
    stays, goes = _known(broker, 1), _known(broker, 2)
    broker.journal.first_place, broker.journal.place, broker.journal.live_bytes = 9, 9, {}
    lifecycle.forget(broker, goes)
    lifecycle.acknowledge(broker, stays)
    assert [(run[0], [item[0] for item in run[1:]]) for run in collect(broker)] == [(JOB, [stays.id])]
    assert stays.place == 9


@pytest.mark.parametrize("bits", [SPAN_BITS, 63])
def test_the_longest_spans_that_another_node_can_tell_have_a_record(bits):
    """A turn that can't be recorded would be tried again for ever, and no client answered."""
    broker = listening()
    node = add_node(broker)
    known = hold(broker, node, number=1)
    header = HEADER.pack(1, (1 << bits) - 1, (1 << bits) - 1, (1 << bits) - 1, 2, 0, 0, 0)
    job_id, _, *rest = snapshot(broker, node, number=2)
    with contextlib.suppress(dispatch.MalformedMessageError):
        say(broker, node, REPLJOB, ((job_id, header, *rest), 0))
    with contextlib.suppress(dispatch.MalformedMessageError):
        say(broker, node, LEASED, (known.id, (1 << bits) - 1, 1))
    assert bool(collect(broker)) == (bits == SPAN_BITS)
    assert broker.dirty == []


def test_an_impossible_version_is_refused():
    broker = listening()
    node = add_node(broker)
    job_id, header, *rest = snapshot(broker, node)
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, node, REPLJOB, ((job_id, header + VERSION.pack(2**32 - 1), *rest), 0))
    assert broker.job_count == 0
