"""report.py: records as lines. Times and shares are formatted for people."""

from __future__ import annotations

import json

import pytest

from disque_py.cli.check_journal.report import moment, record_line, share, state_text, text
from made_journals import ME, WALL_MS, facts
from persistence.items import base_item
from persistence.layouts import IS_LEASED, STATE_FIELDS, STATE_FIELDS_V1
from persistence.records import DROPPED, GONE, JOB, PAUSE, STATE, Block

BLOCK = Block(77, 0, WALL_MS, 0, [], 0)


def row(kind, item, *, with_body=True):
    found = json.loads(record_line(3, BLOCK, kind, item, with_body=with_body))
    assert (found.pop("segment"), found.pop("position"), found.pop("at_ms")) == (3, 77, WALL_MS)
    return found


def test_a_job_record_is_shown_with_all_fields():
    found = row(JOB, base_item(facts(1), WALL_MS))
    assert (found["kind"], found["body"], found["retry_ms"], found["flags"]) == (
        "job",
        "body-1",
        300_000,
        ["queued", "was-queued"],
    )
    assert row(JOB, base_item(facts(1), WALL_MS), with_body=False)["body"] is None


def test_a_state_record_shows_the_fields_of_its_version():
    found = row(STATE, [b"id", STATE_FIELDS.pack(IS_LEASED, 5, 1, 2, 3, 4), ME])
    assert (found["flags"], found["due_ms"], found["attempt"], found["nacks"], found["version"]) == (
        ["leased"],
        5,
        1,
        2,
        4,
    )
    assert found["holders"] == [ME.hex()]
    found = row(STATE, [b"id", STATE_FIELDS_V1.pack(IS_LEASED, -1, 1), None])
    assert ("nacks" in found, found["holders"]) == (False, None)


def test_the_other_kinds_of_records_are_shown():
    assert row(GONE, [b"id", 4]) == {"kind": "gone", "id": "id", "base_segment": 4}
    assert row(DROPPED, 4) == {"kind": "dropped", "dropped": 4}
    assert row(PAUSE, [b"q", 1, 0, b""])["flags"] == 1
    assert row(99, [1])["kind"] == 99


def test_an_item_without_a_form_of_its_own_is_json_too():
    """`dump | jq` can read it."""
    assert row(99, [b"batch", 15, {b"a": b"\xff"}, None])["item"] == ["batch", 15, {"a": "base64:/w=="}, None]


def test_bytes_that_are_not_text_are_marked():
    assert (text(b"a"), text(b"\xff")) == ("a", "base64:/w==")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"in_use": True}, "in use"),
        ({"torn": {"file": "a", "bytes": 3}}, "the last 3 bytes of a"),
        ({"restored": True}, "a backup"),
        ({"clean": True}, "closed cleanly"),
        ({}, "not closed cleanly"),
    ],
)
def test_the_way_in_which_the_node_stopped_is_shown(row, said):
    default = {"in_use": False, "torn": None, "restored": False, "clean": False}
    assert said in state_text(default | row)


def test_shares_and_times_are_formatted():
    assert share({"live_bytes": 50, "bytes": 200}) == "25 %"
    assert share({"live_bytes": 0, "bytes": 0}) == "-"
    assert moment(0) == "1970-01-01 00:00:00"
