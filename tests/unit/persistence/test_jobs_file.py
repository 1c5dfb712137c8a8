"""persistence/jobs_file.py: jobs as lines of JSON."""

from __future__ import annotations

import json

import pytest

from made_journals import DAY_MS, ME, OTHER, WALL_MS, facts, job_id
from persistence.jobs_file import JobsFileError, Origin, Pause, job_line, origin_line, parse_line, pause_line
from persistence.layouts import IS_ACKED, IS_DELIVERED, IS_LEASED, IS_QUEUED, WAS_QUEUED


@pytest.mark.parametrize(
    "said",
    [
        facts(),
        facts(body=b"\xff\x00", queue=b"\xfe"),
        facts(body=b"", holders=(ME, OTHER), nacks=1, deliveries=2, attempt=3),
        facts(flags=IS_DELIVERED | IS_LEASED | WAS_QUEUED, due_at_ms=WALL_MS + 7),
        facts(flags=IS_ACKED, body=b""),
        facts(more=(None, b"\xff", 7)),
        facts(retry_ms=0, flags=IS_QUEUED | WAS_QUEUED, delay_ms=5000),
    ],
)
def test_a_job_comes_back(said):
    assert parse_line(job_line(said).encode(), 1, 0) == said


def test_a_job_needs_few_fields():
    line = json.dumps({"id": job_id(1).decode(), "queue": "q", "body": "b"}).encode()
    found = parse_line(line, 1, WALL_MS)
    assert found == facts(body=b"b", holders=())


def test_a_job_without_its_body_has_the_length_of_the_body():
    row = json.loads(job_line(facts(body=b"12345"), with_body=False))
    assert (row["body_bytes"], "body" in row) == (5, False)


def test_pauses_and_the_origin_come_back():
    pause = Pause(b"mail", 3, WALL_MS, OTHER)
    assert parse_line(pause_line(pause).encode(), 1, 0) == pause
    assert parse_line(pause_line(Pause(b"\xff", 0, 0, b"")).encode(), 1, 0) == Pause(b"\xff", 0, 0, b"")
    assert parse_line(origin_line(ME, WALL_MS).encode(), 1, 0) == Origin(ME)
    assert parse_line(b" \n", 1, 0) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "D-short"}, "is not a job id"),
        ({"queue": None}, "`queue` is not a string"),
        ({"state": "lost"}, "state `lost`"),
        ({"retry_ms": -1}, "retry_ms"),
        ({"nacks": 70_000}, "nacks"),
        ({"retry_ms": "5"}, "retry_ms"),
        ({"holders": ["ab"]}, "is not a node id"),
        ({"body_base64": "?"}, "line 7"),
        ({"more_base64": "AQ=="}, "more_base64"),
    ],
)
def test_a_wrong_line_is_named_with_the_reason(change, reason):
    row = json.loads(job_line(facts())) | change
    with pytest.raises(JobsFileError, match=reason) as wrong:
        parse_line(json.dumps(row).encode(), 7, 0)
    assert str(wrong.value).startswith("line 7: ")


@pytest.mark.parametrize("line", [b"root:x:0", b"\xff"])
def test_a_line_that_is_not_json_is_refused(line):
    with pytest.raises(JobsFileError, match=r"^line 3: not JSON\. A file of jobs has one JSON object per line$"):
        parse_line(line, 3, 0)


@pytest.mark.parametrize("line", [b"[]", b"{}", b'{"id": 1}', b'{"node": "aa"}', b'{"node": "", "format": 9}'])
def test_a_line_of_another_format_is_refused(line):
    with pytest.raises(JobsFileError):
        parse_line(line, 1, DAY_MS)
