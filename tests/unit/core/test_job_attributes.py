"""core/job_attributes.py: fields that only some jobs have, and how they travel."""

from __future__ import annotations

import msgpack
import pytest

from disque_py.core.job_attributes import BATCH, META_BYTES_MAX, TOPIC, WINDOW, JobAttributes, pack_topic, unpack


@pytest.mark.parametrize(
    "attributes", [JobAttributes(None, ()), JobAttributes(-5, (b"a", b"1")), JobAttributes(1 << 62, (), is_keyed=True)]
)
def test_attributes_come_out_as_they_went_in(attributes):
    copy, _ = unpack(msgpack.unpackb(msgpack.packb(attributes.pack(None))))
    assert (copy.priority, copy.meta, copy.is_keyed, copy.size) == (
        attributes.priority,
        attributes.meta,
        attributes.is_keyed,
        attributes.size,
    )


def test_absent_attributes_are_read_as_none():
    assert unpack(None) == (None, None)


def test_unknown_fields_are_ignored():
    assert unpack((1, (), 0, [], "news"))[0].priority == 1


def test_extras_of_any_code_are_kept_and_passed_on():
    """Spec F11."""
    attributes = JobAttributes(None, ())
    attributes.set_extra(BATCH, b"night")
    attributes.set_extra(999, [b"later", 7])
    copy, topic = unpack(msgpack.unpackb(msgpack.packb(attributes.pack(b"news"))))
    assert (copy.extra(BATCH), copy.extra(999), copy.extra(WINDOW), topic) == (b"night", [b"later", 7], None, b"news")
    assert copy.size == attributes.size > JobAttributes(None, ()).size


def test_a_topic_alone_makes_no_attributes():
    """It is one of the job's terms, which many jobs share."""
    assert unpack(msgpack.unpackb(msgpack.packb(pack_topic(b"news")))) == (None, b"news")


def test_extras_that_are_taken_away_leave_nothing():
    attributes = JobAttributes(None, ())
    attributes.set_extra(BATCH, b"night")
    attributes.set_extra(BATCH, None)
    assert attributes.pack(None) == (None, (), 0)
    assert attributes.size == JobAttributes(None, ()).size


@pytest.mark.parametrize(
    "field",
    [
        7, (), (1, ()), ("1", (), 0), (1 << 63, (), 0), (None, (b"odd",), 0), (None, ("a", "b"), 0),
        (None, (b"a", b"x" * META_BYTES_MAX), 0), (None, (b"a", b"b") * 1001, 0), (None, {}, 0),
        (None, (b"a", b"b") * 1000 + (b"tracestate", b"x" * 1024), 0),
        (None, (), 0, "text"), (None, (), 0, [TOPIC]), (None, (), 0, [TOPIC, 7]), (None, (), 0, ["a", b"b"]),
        (None, (), 0, [WINDOW, -1]), (None, (), 0, [9, 1.5]), (None, (), 0, [9, b"x" * 65_536]),
        (None, (), 0, [9, 1] * 33), (None, (), 0, [TOPIC, b"x" * 65_537]),
    ],
)  # fmt: skip
def test_a_field_that_no_node_can_have_sent_is_refused(field):
    with pytest.raises((ValueError, TypeError)):
        unpack(field)


def test_pairs_are_accounted_for_by_their_length():
    assert JobAttributes(None, (b"a", b"x" * 1000)).size - JobAttributes(None, (b"a", b"")).size == 1000
    assert JobAttributes(None, (b"a", b"x" * 1000)).packed_bytes > 1000


def test_the_same_job_under_another_id_uses_its_key():
    attributes = JobAttributes(3, (b"a", b"b"), is_keyed=True)
    attributes.is_keyed = False
    assert attributes.again().pack(None) == (3, (b"a", b"b"), 1)
