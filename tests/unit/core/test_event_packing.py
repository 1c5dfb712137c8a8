"""core/event_packing.py: noted events are the bytes that msgpack makes of their tuples, compiled or not."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from disque_py.core.event_packing import EVENTS_PER_BLOCK, Noted
from disque_py.core.job import Job, JobTerms

ID = b"D-d15b070d-nXjPpnObB03yf/0KKtZUpGLW-05a1"
CTIME = 1_700_000_002_650_000_001
MS = 1_700_000_002_650


def job(**more: Any) -> Job:
    made = Job(ID, JobTerms(b"queue", 0, 0, 1), b"body", CTIME, 0, frozenset())
    made.version, made.since_ms, made.status, made.attempt = 3, MS, 2, 1
    for name, value in more.items():
        setattr(made, name, value)
    return made


def events_in(noted: Noted) -> list[Any]:
    return [event for payload, _ in noted.take() for event in msgpack.unpackb(payload, use_list=False)]


def expected(made: Job, size: int) -> list[Any]:
    counters = made.attempt, made.nacks, made.deliveries, made.ctime, made.queue, size
    return [
        (1, made.id, made.ctime, made.queue, size),
        (2, made.id, made.version, made.since_ms, *counters),
        (3, made.id, made.version, made.status, made.since_ms, *counters),
        (32, {"reason": "why"}),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"version": 127, "attempt": 127, "nacks": 127, "deliveries": 127},
        {"version": 128},
        {"attempt": 128},
        {"nacks": 70_000},
        {"deliveries": 255},
        {"since_ms": 0},
        {"ctime": 5},
        {"ctime": 2**64 - 1},
        {"terms": JobTerms(b"", 0, 0, 1)},
        {"terms": JobTerms(b"q" * 255, 0, 0, 1)},
        {"terms": JobTerms(b"q" * 256, 0, 0, 1)},
        {"id": b"D-short"},
    ],
)
def test_every_event_is_its_tuple(more):
    made = job(**more)
    for size in (0, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1):
        noted = Noted()
        noted.added(made, size)
        noted.delivered(made, size)
        noted.acked(made, size)
        noted.append((32, {"reason": "why"}))
        assert noted.count == 4
        assert events_in(noted) == expected(made, size)


def test_equal_and_other_jobs_follow_each_other():
    terms = JobTerms(b"queue", 0, 0, 1)
    some, other = job(terms=terms), job(terms=JobTerms(b"other", 0, 0, 1))
    given = [(some, 7), (some, 7), (some, 7), (some, 300), (other, 300), (other, 300), (some, 7), (some, 7)]
    noted = Noted()
    for made, size in given:
        noted.added(made, size)
        noted.acked(made, size)
    assert events_in(noted) == [event for made, size in given for event in expected(made, size)[0:3:2]]


def test_very_many_events_become_several_lists_and_no_events_become_none():
    noted = Noted()
    assert noted.take() == []
    for _ in range(EVENTS_PER_BLOCK * 2 + 5):
        noted.delivered(job(), 7)
    parts = noted.take()
    assert [count for _, count in parts] == [EVENTS_PER_BLOCK, EVENTS_PER_BLOCK, 5]
    assert [len(msgpack.unpackb(payload)) for payload, _ in parts] == [EVENTS_PER_BLOCK, EVENTS_PER_BLOCK, 5]
    assert (noted.count, noted.take()) == (0, [])


def test_a_list_begins_the_same_way_however_short_it_is():
    noted = Noted()
    for count in (1, 15, 16, 17):
        for _ in range(count):
            noted.added(job(), 7)
        [(payload, _)] = noted.take()
        assert payload[:3] == bytes((0xDC, 0, count))


def test_a_part_that_is_exactly_full_leaves_nothing_over():
    noted = Noted()
    for _ in range(EVENTS_PER_BLOCK):
        noted.added(job(), 7)
    assert [count for _, count in noted.take()] == [EVENTS_PER_BLOCK]
    noted.added(job(), 7)
    assert events_in(noted) == expected(job(), 7)[:1]
