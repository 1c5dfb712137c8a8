"""event_lines.py: lines become columns, whatever fields they have."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.event_lines import LineReader
from disque_py.spark.event_schema import ARROW_SCHEMA


def lines(*events: dict) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def read(*events: dict, reader: LineReader | None = None) -> list[dict]:
    batch = (reader or LineReader()).batch("n", "l", lines(*events))
    assert batch.schema == ARROW_SCHEMA
    return batch.to_pylist()


def test_columns_say_where_an_event_stands_and_absent_fields_are_null():
    row = read({"seq": 4, "ts": 1_700_000_000_123, "job_id": "D-1", "queue": "q"})[0]
    assert (row["node"], row["log"], row["seq"], row["job_id"], row["error"], row["meta"]) == (
        "n",
        "l",
        4,
        "D-1",
        None,
        None,
    )
    assert row["ts"].timestamp() == 1_700_000_000.123


def test_metadata_becomes_a_map_of_the_keys_an_event_has():
    rows = read(
        {"seq": 1, "meta": {"a": "1", "b": "2"}}, {"seq": 2, "meta": {"b": "3"}}, {"seq": 3, "meta": {}}, {"seq": 4}
    )
    assert [row["meta"] for row in rows] == [[("a", "1"), ("b", "2")], [("b", "3")], [], None]


def test_metadata_that_looks_like_a_date_stays_text():
    reader = LineReader()
    for _ in range(2):
        rows = read({"meta": {"at": "2013-01-01 05:15:00"}}, {"meta": {"at": "x", "n": "7"}}, reader=reader)
        assert [row["meta"] for row in rows] == [[("at", "2013-01-01 05:15:00")], [("at", "x"), ("n", "7")]]


def test_an_unknown_field_is_kept_as_text():
    rows = read({"seq": 1, "zone": "eu", "deep": {"a": [1]}, "meta": {"k": "v"}}, {"seq": 2})
    assert [row["extra"] for row in rows] == [[("zone", "eu"), ("deep", '{"a":[1]}')], []]
    assert rows[0]["meta"] == [("k", "v")]


def test_hundreds_of_keys_are_read_too():
    rows = read(*({"seq": number, "meta": {f"key-{number}": str(number)}} for number in range(300)))
    assert [row["meta"] for row in rows[:2]] == [[("key-0", "0")], [("key-1", "1")]]


def test_both_ways_of_reading_agree():
    events = [
        {"seq": n, "ts": n, "since": n, "queue": f"q{n % 3}", "meta": {"k": str(n)} if n % 2 else {}} for n in range(50)
    ]
    plain = read(*events)
    # Arrow can't read fields that change their type from line to line.
    slow = read(*({**event, "unknown": event["seq"] if event["seq"] % 2 else "text"} for event in events))
    assert [row | {"extra": []} for row in slow] == plain


def test_the_error_for_invalid_json_names_the_log_and_the_line():
    with pytest.raises(ValueError, match=r"node n, log l: an event is not JSON .*rubbish"):
        LineReader().batch("n", "l", b'{"seq": 1}\nrubbish\n')
