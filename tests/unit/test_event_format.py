"""event_format.py: the codes and shapes of events."""

from __future__ import annotations

import struct

import msgpack
import pytest

from disque_py import event_format
from disque_py.event_format import ACKED, ADDED, CODES, DELIVERED, LOST, PENDING, STARTED, STATUS_NAMES, in_full

ID = b"D-d15b070d-nXjPpnObB03yf/0KKtZUpGLW-05a1"
SHAPES = [
    (event_format.START_OF_ADDED, (ADDED, ID, 5, b"q", 7)),
    (event_format.START_OF_DELIVERED, (DELIVERED, ID, 2, 9, 1, 0, 0, 5, b"q", 7)),
    (event_format.START_OF_ACKED, (ACKED, ID, 3, 3, 9, 1, 0, 0, 5, b"q", 7)),
]


@pytest.mark.parametrize(("start", "event"), SHAPES)
def test_the_start_of_a_usual_event_is_the_one_that_msgpack_writes(start, event):
    assert msgpack.packb(event).startswith(struct.pack(">i", start) + ID)


@pytest.mark.parametrize(("_", "event"), SHAPES)
def test_every_shape_in_full_has_all_fields(_, event):
    full = in_full(event)
    assert len(full) == event_format.FIELDS_OF_CHANGE
    assert (full[0], full[1], *full[-3:]) == (event[0], ID, 5, b"q", 7)


def test_a_delivered_job_was_pending():
    assert in_full(SHAPES[1][1])[3] == PENDING


def test_codes_on_disk_keep_their_meaning():
    """Logs of older versions have these."""
    assert [(code, *CODES[code]) for code in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)] == [
        (1, "added", 2), (2, "delivered", 3), (3, "acked", 4), (4, "added", 2), (5, "added", 1), (6, "queued", 2),
        (7, "requeued", 2), (8, "nacked", 2), (9, "nacked", 1), (10, "enqueued", 2),
    ]  # fmt: skip
    assert [(code, *CODES[code]) for code in (11, 12, 13, 14, 15, 16, 17, 32, 33)] == [
        (11, "dequeued", 1), (12, "working", 3), (13, "deleted", 5), (14, "deleted", 1), (15, "expired", 7),
        (16, "dropped", 7), (17, "lost", 6), (32, "started", 0), (33, "flushed", 0),
    ]  # fmt: skip
    assert STATUS_NAMES == (
        None, "invisible", "pending", "running", "completed", "canceled", "errored", "expired",
    )  # fmt: skip


def test_a_state_is_final_or_live():
    assert event_format.FINAL_RANKS_BY_NAME == {"completed": 3, "canceled": 2, "expired": 1}
    assert event_format.FINAL_RANK_SQL == (
        "CASE WHEN to_state IS NULL THEN -1 WHEN to_state = 'completed' THEN 3 WHEN to_state = 'canceled' THEN 2 "
        "WHEN to_state = 'expired' THEN 1 ELSE 0 END"
    )
    assert event_format.LIVE_SQL == "('invisible', 'pending', 'running', 'errored')"


def test_the_fields_of_an_event_of_the_node_name_no_job():
    fields = event_format.line_fields(4, 1_000, (STARTED, {"reason": "memory lost"}))
    assert (fields["seq"], fields["event"], fields["job_id"], fields["reason"]) == (4, "started", None, "memory lost")


def test_rare_fields_are_added_and_a_body_that_is_no_text_is_in_base64():
    event = (LOST, ID, 3, 3, 9, 1, 0, 0, 5_000_000, b"q", 7, {"error": "why", "meta": (b"a", b"b"), "body": b"\xff"})
    fields = event_format.line_fields(4, 1_000, event)
    assert (fields["error"], fields["meta"], fields["body_base64"]) == ("why", {"a": "b"}, "/w==")
    assert fields["priority"] == 5


def test_a_code_of_a_later_version_is_an_unknown_event():
    assert event_format.line_fields(1, 1, (60, {}))["event"] == "unknown"


def test_a_state_of_a_later_version_is_an_unknown_state():
    fields = event_format.line_fields(1, 1, (LOST, ID, 3, 9, 5, 1, 0, 0, 5_000_000, b"q", 7))
    assert (fields["from_state"], fields["to_state"]) == (None, "errored")
