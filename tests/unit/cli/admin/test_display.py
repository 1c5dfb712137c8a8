"""display.py: jobs as tables and objects."""

from __future__ import annotations

import json
import sys

import pytest

from disque_py.cli.admin.display import (
    body_text,
    job_fields,
    job_object,
    pairs_text,
    print_fields,
    print_object,
    print_rows,
)
from disque_py.client import Job
from disque_py.client.results import job_info
from scripted_queues import JOB


def info(**changes):
    def word(value):
        if isinstance(value, list):
            return list(map(word, value))
        return value.encode() if isinstance(value, str) else value

    return job_info([word(item) for pair in {**JOB, **changes}.items() for item in pair])


def test_the_state_of_a_job_is_shown_first():
    fields = job_fields(info())
    assert list(fields)[:5] == ["id", "queue", "status", "attempts", "error"]
    assert (fields["attempts"], fields["meta"], fields["holders"]) == (
        "2 delivered, 3 of 5 left",
        "tenant=a",
        "aaaaaaaa bbbbbbbb",
    )
    assert job_fields(info(retry=0, **{"retry-ms": 0}))["retry"] == "0 (at most once)"


def test_a_job_that_was_never_delivered_is_not_queued_again():
    """`delay` in SHOW is the one of ADDJOB, also after RESCHEDULE."""
    waits = {"delay": 600, "delay-ms": 600_000, "next-requeue-within": 300_000, "status": "invisible"}
    fields = job_fields(info(**waits, attempt=0))
    assert (fields["delay when added"], fields["queued"], fields["queued again"]) == ("10m00s", "in 5m00s", None)
    fields = job_fields(info(**waits, attempt=2))
    assert (fields["queued"], fields["queued again"]) == (None, "in 5m00s")


def test_progress_result_batch_and_topic_are_shown_if_present():
    shown = info(**{"progress": 40, "progress-text": "page 4", "result": "42", "batch": "upload", "topic": "photos"})
    told = ("40 % page 4", "42", "upload", "photos")
    assert tuple(job_fields(shown)[name] for name in ("progress", "result", "batch", "topic")) == told
    assert job_object(shown)["result"] == "42"
    assert job_fields(info())["progress"] is None


def test_an_object_has_the_body_as_text():
    assert job_object(info())["body"] == "Dear Ada"
    assert "node" not in job_object(Job("q", "id", b"\xff"))
    assert job_object(Job("q", "id", b"\xff"))["body"] == "\\xff"


@pytest.mark.parametrize(
    ("body", "text"),
    [(None, ""), (b"a\nb", "a\\nb"), (b"x" * 80, "x" * 59 + "…"), (b"\xff", "\\xff"), (b"\x1b]0;", "\\x1b]0;")],
)
def test_a_body_takes_one_line(body, text):
    assert body_text(body) == text


def test_no_text_of_a_producer_is_a_command_to_the_terminal(capsys):
    print_fields({"queue": "mail\x1b[2J", "meta": "a=\x9b2J"})
    print_rows(("id", "meta"), [("x", "a=\x1b[2J")])
    out = capsys.readouterr().out
    assert "mail\\x1b[2J" in out
    assert set(out) & {"\x1b", "\x9b"} == set()


def test_tables_leave_out_what_is_empty(capsys):
    print_fields({"a": 1, "b": None, "c": ""})
    print_rows(("name", "n"), [("x", None)], right=("n",))
    print_object({"ä": pairs_text(None)})
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()] == [["a", "1"], ["name", "n"], ["x"], ['{"ä":', '""}']]
    assert json.loads(out.splitlines()[-1]) == {"ä": ""}


def test_a_narrow_terminal_cuts_off_bodies_and_not_ids(capsys, monkeypatch):
    """People copy ids into the next command."""
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    for name, value in (("TERM", "dumb"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    job_id = "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
    print_rows(("id", "meta", "body"), [(job_id, "tenant=a", "[b] " + "x" * 56)])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "meta", "body"]
    assert row.startswith(f"{job_id}  tenant=a  [b] xxx")
    assert row.endswith("…")
