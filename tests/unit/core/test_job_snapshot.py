"""core/job_snapshot.py: a job as it travels; any other value is refused."""

from __future__ import annotations

import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import add_node, make_broker
from copies import hold, make_job, pack, snapshot
from disque_py.core import lifecycle
from disque_py.core.job import ACTIVE, ATTEMPT_MAX, COUNTER_MAX
from disque_py.core.job_snapshot import SPAN_BITS, job_of, snapshot_of
from persistence.layouts import HEADER

BODY = b"\x00\xff body"


def test_a_job_arrives_with_the_values_with_which_it_left():
    broker = make_broker()
    node = add_node(broker)
    job = make_job(broker, node, body=BODY, queue=b"orders", delay_s=5, retry_s=30, replicate=2)
    job.nacks, job.deliveries, job.attempt = 1, 2, 3
    copy = job_of(broker, snapshot_of(broker, job))
    for field in ("id", "queue", "body", "ctime", "expire_at_ms", "retry_ms", "delay_ms", "replicate", "holders"):
        assert getattr(copy, field) == getattr(job, field), field
    assert (copy.nacks, copy.deliveries, copy.attempt) == (1, 2, 3)


def test_values_that_hold_only_on_this_node_do_not_travel():
    broker = make_broker()
    job = hold(broker)
    job.is_delivered = job.is_leased_here = True
    copy = job_of(broker, snapshot_of(broker, job))
    assert (copy.state, copy.requeue_at_ms, copy.awake_at_ms) == (ACTIVE, 0, 0)
    assert not any((copy.is_delivered, copy.is_leased_here, copy.was_queued, copy.imported_at))


def test_life_is_counted_from_receipt_so_clocks_need_not_agree():
    """Spec T4."""
    here, there = make_broker(), make_broker()
    there.now_ms = 5
    job = make_job(here, ttl_s=100)
    here.now_ms += 40_000
    assert job_of(there, snapshot_of(here, job)).expire_at_ms == 5 + 60_000


def test_an_expired_job_has_no_life_left():
    broker = make_broker()
    job = make_job(broker, ttl_s=1)
    broker.now_ms += 5000
    assert job_of(broker, snapshot_of(broker, job)).expire_at_ms == broker.now_ms


def test_a_snapshot_survives_the_bus():
    broker = make_broker()
    sent = snapshot_of(broker, make_job(broker, body=BODY))
    received = msgpack.unpackb(msgpack.packb(sent), raw=False)
    assert job_of(broker, received).body == BODY


def test_unknown_later_fields_are_ignored():
    broker = make_broker()
    assert job_of(broker, (*snapshot(broker), 17, None, 1, "news")).body == b"body"


def test_a_longer_header_is_read_as_far_as_it_is_known():
    broker = make_broker()
    job_id, header, *rest = snapshot(broker)
    assert job_of(broker, (job_id, header + b"more", *rest)).retry_ms == 30_000


def test_holders_that_were_never_met_are_known_by_their_ids():
    broker = make_broker()
    stranger = b"s" * 20
    job_id, header, queue, body, _ = snapshot(broker)
    holders = job_of(broker, (job_id, header, queue, body, stranger)).holders
    assert [node.id for node in holders] == [stranger]


def test_counters_at_their_limit_still_fit():
    broker = make_broker()
    job = make_job(broker)
    job.nacks, job.deliveries, job.attempt = COUNTER_MAX, COUNTER_MAX, ATTEMPT_MAX
    copy = job_of(broker, snapshot_of(broker, job))
    assert (copy.nacks, copy.deliveries, copy.attempt) == (COUNTER_MAX, COUNTER_MAX, ATTEMPT_MAX)


def test_one_more_delivery_of_a_job_at_the_limit_of_attempts_still_fits():
    """Another node may tell us any number of attempts."""
    broker = make_broker()
    job = hold(broker)
    job.attempt = ATTEMPT_MAX
    lifecycle.lease(broker, job)
    assert job_of(broker, snapshot_of(broker, job)).attempt == ATTEMPT_MAX


def test_the_longest_spans_fit():
    """RETRY, DELAY and TTL are kept in 64 bits of milliseconds."""
    broker = make_broker()
    job = make_job(broker, retry_s=2**40, ttl_s=2**41, delay_s=2**40)
    copy = job_of(broker, snapshot_of(broker, job))
    assert (copy.retry_ms, copy.delay_ms) == (2**40 * 1000, 2**40 * 1000)


def without(broker, position, value):
    fields = list(snapshot(broker))
    fields[position] = value
    return fields


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, b"D-short"), (0, "D-00010203-" + "x" * 24 + "-05a1"), (0, 7), (0, None), (0, b"E" + b"x" * 39),
     (1, b""), (1, b"x" * (HEADER.size - 1)), (1, 7), (1, None), (1, "x" * HEADER.size),
     (2, "q"), (2, None), (2, 5), (2, [b"q"]), (3, "body"), (3, None), (3, 1), (3, [b"body"]),
     (4, b"x" * 19), (4, None), (4, 20), (4, [b"x" * 20])],
)  # fmt: skip
def test_a_malformed_field_is_refused(position, value):
    broker = make_broker()
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for people
        job_of(broker, without(broker, position, value))
    assert broker.job_count == 0


def test_holders_that_are_text_are_refused_like_everything_malformed():
    broker = make_broker()
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for people
        job_of(broker, without(broker, 4, "x" * 20))


plain = st.sampled_from((None, True, 0, -1, 2**64 - 1, 0.5, b"", b"x" * 20, b"x" * 40, b"x" * HEADER.size, "", "text"))
junk = plain | st.lists(plain | st.lists(plain, max_size=2), max_size=7)


BROKER = make_broker()


@settings(max_examples=100, deadline=None)
@given(data=junk)
def test_a_malformed_snapshot_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for people
        job_of(BROKER, data)


@settings(max_examples=100, deadline=None)
@given(header=st.binary(min_size=HEADER.size, max_size=HEADER.size), body=st.binary(max_size=50))
def test_any_numbers_in_the_header_make_a_job_that_can_travel_on(header, body):
    """A peer can send nothing but numbers there, and none that is too large to be passed on."""
    job_id, _, queue, _, holders = snapshot(BROKER)
    ctime, *spans = struct.unpack("<4Q", header[:32])
    numbers = (ctime >> 1, *(span >> 64 - SPAN_BITS for span in spans))
    header = struct.pack("<4Q", *numbers) + header[32:]
    job = job_of(BROKER, (job_id, header, queue, body, holders))
    assert job_of(BROKER, snapshot_of(BROKER, job)).body == body
    assert snapshot_of(BROKER, job)[4] == holders == pack()
