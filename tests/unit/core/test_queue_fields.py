"""core/queue_fields.py: the values that fields may have, as texts, and the settings in force."""

from __future__ import annotations

import pytest

from disque_py.core.queue_fields import FIELDS, QUORUM, InvalidValueError, read_value, settings_in_force


def read(field, value, queue=b"q"):
    return read_value(queue, FIELDS[field], value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"30", b"30"),
        (b"30s", b"30"),
        (b"1500ms", b"1500ms"),
        (b"2000ms", b"2"),
        (b"5m", b"300"),
        (b"2h", b"7200"),
        (b"7d", b"604800"),
        (b"9223372036854", b"9223372036854"),
        (b"", b""),
    ],
)
def test_a_time_is_shown_in_whole_seconds_or_in_milliseconds(value, shown):
    assert read(b"lease", value) == shown


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"lease", b"0"),
        (b"lease", b"-1"),
        (b"lease", b"5 m"),
        (b"lease", b"1w"),
        (b"ttl", b"9223372036855"),
        (b"delay", b"soon"),
        (b"replicate", b"0"),
        (b"replicate", b"65536"),
        (b"attempts", b"-1"),
        (b"backoff", b"linear:0:5"),
        (b"backoff", b"linear:10:5"),
        (b"backoff", b"square:1:5"),
        (b"backoff", b"fixed:1:5:101"),
        (b"maxlen", b"9223372036854775808"),
        (b"maxsize", b"1k"),
        (b"dead-letter", b"q"),
        (b"require-meta", b"a,,b"),
        (b"require-meta", b"a,a"),
        (b"require-meta", b"a,b,c,d,e,f,g,h,i"),
        (b"index", b"n" * 1025),
        (b"type", b"striped"),
        (b"assign", b"never"),
        (b"exclusive-by", b"n" * 1_025),
        (b"dead-letter", b"d" * 65_537),
    ],
)
def test_a_value_out_of_range_is_refused_with_a_reason(field, value):
    with pytest.raises(InvalidValueError, match=r"\w"):
        read(field, value)


def test_every_field_takes_effect():
    values = {
        b"lease": b"30", b"delay": b"500ms", b"ttl": b"60", b"replicate": b"quorum", b"attempts": b"5",
        b"backoff": b"linear:10:500", b"maxlen": b"7", b"maxsize": b"8", b"dead-letter": b"dead", b"retention": b"9",
        b"require-meta": b"a,b", b"index": b"c",
    }  # fmt: skip
    found = settings_in_force(b"q", values.items())
    parsed = {
        "lease_ms": 30_000, "delay_ms": 500, "ttl_ms": 60_000, "replicate": QUORUM, "attempts": 5,
        "backoff": b"linear:10:500", "maxlen": 7, "maxsize": 8, "dead_letter": b"dead", "retention_ms": 9_000,
        "require_meta": (b"a", b"b"), "index": (b"c",),
    }  # fmt: skip
    assert {name: getattr(found, name) for name in parsed} == parsed


def test_fields_with_their_defaults_give_no_settings():
    assert settings_in_force(b"q", [(field.name, field.default) for field in FIELDS.values()]) is None


def test_a_field_or_a_value_of_a_newer_version_has_no_effect():
    """Spec QS1."""
    assert settings_in_force(b"q", [(b"colour", b"red"), (b"lease", b"1w")]) is None
