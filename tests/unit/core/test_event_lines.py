"""core/event_lines.py: every line has all fields in the same order, and is JSON whatever the bytes were."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_py.core.event_lines import Lines
from disque_py.event_format import (
    ACKED,
    ADDED,
    ADDED_ANYHOW,
    CODES,
    DELIVERED,
    EXPIRED_EVENT,
    RUNNING,
    STARTED,
    STATUS_NAMES,
)

JOB_ID = b"D-00010203-9bFlIkpYt5HfavHYMD5hzYbD-003d"
CTIME = 1_700_000_000_123_000_007
FIELDS = [
    "seq", "ts", "job_id", "ctime", "queue", "version", "event", "from_state", "to_state", "since", "attempt", "nacks",
    "deliveries", "priority", "error", "worker", "meta", "body_size", "v",
]  # fmt: skip


def line_of(event: tuple) -> dict:
    (line,) = Lines().of(41, 1_700_000_000_500, [event])
    assert line.endswith("\n")
    assert line.count("\n") == 1
    return json.loads(line)


def test_the_short_form_of_a_new_job_says_all():
    line = line_of((ADDED, JOB_ID, CTIME, b"q", 100))
    assert list(line) == FIELDS
    assert [line[name] for name in FIELDS] == [
        41, 1_700_000_000_500, JOB_ID.decode(), CTIME, "q", 1, "added", None, "pending", None, 0, 0, 0,
        1_700_000_000_123, None, None, {}, 100, 1,
    ]  # fmt: skip


def test_the_short_form_of_a_delivery_says_all():
    line = line_of((DELIVERED, JOB_ID, 2, 1_700_000_000_123, 1, 3, 4, CTIME, b"q", 100))
    assert list(line) == FIELDS
    assert (line["from_state"], line["to_state"], line["since"]) == ("pending", "running", 1_700_000_000_123)
    assert (line["version"], line["attempt"], line["nacks"], line["deliveries"]) == (2, 1, 3, 4)


@pytest.mark.parametrize("code", [code for code in CODES if DELIVERED < code < STARTED])
def test_every_event_of_a_job_has_the_same_fields(code):
    event = (code, JOB_ID, 3, RUNNING, 0, 1, 0, 0, CTIME, b"q", 100)
    plain, rare = line_of(event), line_of((*event, {"error": "why"}))
    assert list(plain) == FIELDS
    assert plain == rare | {"error": None}
    assert (plain["event"], plain["since"], plain["from_state"]) == (CODES[code][0], None, "running")


def test_an_event_of_the_node_is_about_no_job():
    line = line_of((STARTED, {"reason": "memory lost"}))
    assert list(line) == [*FIELDS, "reason"]
    assert (line["event"], line["job_id"], line["to_state"], line["reason"]) == ("started", None, None, "memory lost")


@pytest.mark.parametrize(("body", "field", "value"), [(b"text", "body", "text"), (b"\xff\0", "body_base64", "/wA=")])
def test_a_body_is_text_where_it_is_text(body, field, value):
    line = line_of((ADDED_ANYHOW, JOB_ID, 1, 0, 0, 0, 0, 0, CTIME, b"q", len(body), {"body": body}))
    assert line[field] == value


def test_an_event_of_a_later_version_is_still_a_line():
    assert line_of((99, JOB_ID, 3, RUNNING, 0, 1, 0, 0, CTIME, b"q", 100))["event"] == "unknown"


@pytest.mark.parametrize("code", [ACKED, EXPIRED_EVENT])
@pytest.mark.parametrize("rare", [(), ({"error": "why"},)])
def test_a_state_of_a_later_version_is_no_state(code, rare):
    """The node was downgraded, and its log has events of the later version."""
    line = line_of((code, JOB_ID, 3, len(STATUS_NAMES), 0, 1, 0, 0, CTIME, b"q", 100, *rare))
    assert (line["from_state"], line["event"]) == (None, CODES[code][0])


@given(name=st.binary(max_size=40), size=st.integers(0, 1 << 40), job_id=st.binary(min_size=40, max_size=40))
def test_any_bytes_make_a_line_of_ascii(name, size, job_id):
    """An id is checked by position only, so another node's may have any characters in it."""
    events = [
        (ADDED, job_id, CTIME, name, size),
        (ACKED, job_id, 3, RUNNING, 5, 1, 0, 0, CTIME, name, size),
        (EXPIRED_EVENT, job_id, 3, RUNNING, 5, 1, 0, 0, CTIME, name, size, {"meta": (name, name)}),
    ]
    for line in Lines().of(1, 2, events):
        assert line.isascii()
        assert json.loads(line)["queue"] == name.decode("utf-8", "replace")


def test_pieces_that_get_many_are_forgotten():
    lines = Lines()
    for start in range(0, 12_000, 4_000):
        lines.of(1, 2, [(ADDED, JOB_ID, CTIME, b"q%d" % number, number) for number in range(start, start + 4_000)])
    assert len(lines._queues) <= 8_000
