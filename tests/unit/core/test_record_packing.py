"""core/record_packing.py: a run of records is the bytes that msgpack makes of their tuples, compiled or not."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from disque_py.core.job import Job, JobTerms
from disque_py.core.record_packing import JobRun, header_of, state_of
from persistence.layouts import BASE_STATE
from persistence.records import GONE, HEAD_BYTES, JOB, STATE, encode_block, unpacked

ID = b"D-d15b070d-nXjPpnObB03yf/0KKtZUpGLW-05a1"
CTIME = 1_700_000_002_650_000_001
NOW_MS = 5_000
ME = b"m" * 20


def job(**more: Any) -> Job:
    made = Job(ID, JobTerms(b"queue", 300_000, 70, 3), b"body", CTIME, NOW_MS + 86_400_000, frozenset())
    for name, value in more.items():
        setattr(made, name, value)
    return made


def assert_packed(run: JobRun, kind: int, *items: tuple[Any, ...]) -> None:
    """Assert that the run has these items, as a list and in a block, and is empty afterwards."""
    assert run.count == len(items)
    taken = run.take()
    assert unpacked(taken) == msgpack.unpackb(msgpack.packb([kind, *items])) or taken == [kind, *items]
    assert encode_block([taken], 7, 3, 1, 0)[HEAD_BYTES:] == msgpack.packb([[kind, *items]])
    assert run.count == 0


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"version": 2},
        {"version": 2**31 - 1},
        {"attempt": 1, "nacks": 2, "deliveries": 3},
        {"attempt": 2**31 - 1, "nacks": 32_767, "deliveries": 32_767},
        {"attempt": 2**31},
        {"attempt": 2**32 - 1},
        {"nacks": 32_768},
        {"deliveries": 65_535},
        {"ctime": 5},
        {"ctime": 2**62 - 1},
        {"ctime": 2**62},
        {"ctime": 2**63 - 1},
        {"expire_at_ms": 0},
        {"terms": JobTerms(b"", 0, 0, 1)},
        {"terms": JobTerms(b"q" * 255, 1 << 53, 1 << 53, 32_767)},
        {"terms": JobTerms(b"q", 0, 0, 32_768)},
        {"terms": JobTerms(b"q" * 256, 0, 0, 65_535)},
        {"id": b"D-short"},
    ],
)
def test_every_record_is_its_tuple(more):
    made = job(**more)
    jobs, states = JobRun(JOB), JobRun(STATE)
    expected_jobs, expected_states = [], []
    for body in (b"", b"b" * 255, b"b" * 256, b"b" * 32_767, b"b" * 32_768, b"b" * 65_535, b"b" * 65_536):
        for holders in (b"", ME, ME * 12, ME * 13):
            for flags, due_ms in ((17, -1), (127, 1 << 53)):
                jobs.add_job(made, body, holders, flags, due_ms, NOW_MS)
                states.add_state(made, holders or None, flags, due_ms)
                base = BASE_STATE.pack(flags, due_ms)
                expected_jobs.append((made.id, header_of(made, NOW_MS), made.queue, body, holders, base))
                expected_states.append((made.id, state_of(made, flags, due_ms), holders or None))
    assert_packed(jobs, JOB, *expected_jobs)
    assert_packed(states, STATE, *expected_states)


def test_jobs_with_other_terms_follow_each_other():
    run = JobRun(JOB)
    several = [job(terms=JobTerms(name, 1, 2, 3)) for name in (b"a", b"b", b"b", b"c" * 300, b"a")]
    for each in several:
        run.add_job(each, b"", ME, 17, -1, NOW_MS)
    base = BASE_STATE.pack(17, -1)
    assert_packed(run, JOB, *((ID, header_of(each, NOW_MS), each.queue, b"", ME, base) for each in several))


def test_jobs_with_the_same_last_fields_follow_each_other():
    run = JobRun(JOB)
    fields = [(ME, 17, -1)] * 3 + [(ME, 1, -1)] * 2 + [(ME * 2, 1, -1), (ME * 2, 1, 7), (ME, 17, -1), (ME, 17, -1)]
    made = [job(), job(attempt=1), job(), job(version=2), job(nacks=3), job(), job(), job(), job(deliveries=1)]
    for each, (holders, flags, due_ms) in zip(made, fields, strict=True):
        run.add_job(each, b"body", holders, flags, due_ms, NOW_MS)
    expected = (
        (ID, header_of(each, NOW_MS), each.queue, b"body", holders, BASE_STATE.pack(flags, due_ms))
        for each, (holders, flags, due_ms) in zip(made, fields, strict=True)
    )
    assert_packed(run, JOB, *expected)


@pytest.mark.parametrize("count", [1, 14, 15, 16, 65_534, 65_535])
def test_a_run_begins_with_its_length(count):
    run = JobRun(GONE)
    for _ in range(count):
        run.add_gone(ID, 1)
    assert_packed(run, GONE, *([(ID, 1)] * count))


def test_segments_have_any_number():
    run = JobRun(GONE)
    places = [1, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1]
    for place in places:
        run.add_gone(ID, place)
    run.add_gone(b"D-short", 3)
    assert_packed(run, GONE, *((ID, place) for place in places), (b"D-short", 3))


def test_a_cleared_run_is_empty():
    run = JobRun(GONE)
    run.add_gone(ID, 1)
    run.clear()
    run.add(("any", 2))
    assert_packed(run, GONE, ("any", 2))
