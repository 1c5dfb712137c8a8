"""query/questions.py: questions are answered from the files."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.options import OptionError
from disque_py.spark.query import questions
from disque_py.spark.query.tables import open_index
from index_events import TS, batch, event, index


def step(seq: int, job: str, version: int, before: str | None, after: str, at: int, **more):
    return event(seq, job, version, event=after, from_state=before, to_state=after, ts=TS + at, **more)


@pytest.fixture
def db(tmp_path):
    """Two jobs on two nodes: one is done, one fails and waits; one transition was made on both sides of a cut."""
    first = batch(
        step(1, "a", 1, None, "pending", 0, meta={"carrier": "UA"}),
        step(2, "a", 2, "pending", "running", 1_000, meta={"carrier": "UA"}, since=TS),
        step(3, "b", 1, None, "pending", 0),
    )
    second = batch(
        step(1, "a", 3, "running", "completed", 3_000, meta={"carrier": "UA"}, worker="w1"),
        step(2, "b", 2, "pending", "running", 2_000),
        step(3, "b", 3, "running", "errored", 4_000, error="no fuel"),
        step(4, "a", 2, "pending", "running", 1_100, meta={"carrier": "UA"}, since=TS),
        node="n2",
    )
    index(tmp_path, first, second)
    with open_index(str(tmp_path)) as connection:
        yield connection


def test_a_trace_is_in_the_documented_order_and_says_how_long(db):
    answer = questions.trace(db, "a")
    at = {name: number for number, name in enumerate(answer.columns)}
    assert [row[at["event"]] for row in answer.rows] == ["pending", "running", "running", "completed"]
    assert [row[at["ms_in_state"]] for row in answer.rows] == [None, 1_000, 1_100, None]


def test_depth_counts_the_newest_events(db):
    assert [row[:3] for row in questions.depth(db).rows] == [("q", "completed", 1), ("q", "errored", 1)]
    assert [row[:4] for row in questions.depth(db, ["carrier"]).rows] == [
        ("q", "completed", "UA", 1),
        ("q", "errored", "", 1),
    ]


def test_depth_over_time_ends_where_current_is_and_starts_at_nothing_more(db):
    answer = questions.depth_over_time(db, points=4)
    series: dict[str, list[int]] = {}
    for _, state, jobs in answer.rows:
        series.setdefault(state, []).append(jobs)
    assert series == {"errored": [0, 0, 0, 1], "pending": [2, 1, 0, 0], "running": [0, 1, 2, 0]}


def test_a_queue_has_its_own_curves(db):
    assert questions.depth_over_time(db, "another").rows == []


def test_time_in_states_counts_a_transition_once_and_falls_back_to_the_previous_event(db):
    rows = {row[1]: row for row in questions.latency(db).rows}
    assert rows["pending"][2:5] == (2, 1_500, 1_500)
    assert rows["running"][2] == 2
    assert rows["running"][-1] == 2_000
    by = questions.latency(db, ["carrier"])
    assert {row[2] for row in by.rows} == {"", "UA"}
    assert questions.latency(db, hourly=True).columns[0] == "hour"


def test_failures_are_counted_by_reason(db):
    answer = questions.errors(db)
    assert [row[:5] for row in answer.rows] == [("q", "no fuel", "", 1, 1)]


@pytest.mark.parametrize("key", ["queue", "state", "node", "jobs", "oldest", "ms", "began", "ts", "worker", "job_id"])
def test_a_key_of_metadata_may_have_the_name_of_a_column(tmp_path, key):
    meta = {key: "x"}
    index(
        tmp_path,
        batch(step(1, "a", 1, None, "pending", 0, meta=meta), step(2, "a", 2, "pending", "errored", 9, meta=meta)),
    )
    with open_index(str(tmp_path)) as db:
        for answer in (
            questions.depth(db, [key], by_node=True),
            questions.latency(db, [key], hourly=True),
            questions.errors(db, [key]),
        ):
            assert "x" in answer.rows[0]
            assert len(set(answer.columns)) == len(answer.columns)


@pytest.fixture
def moved(tmp_path):
    """Job m moves from queue q to r. Job d reports progress and becomes a dead letter. Job o is replaced."""
    from_q = {"queue": "r", "from_queue": "q"}
    index(
        tmp_path,
        batch(
            step(1, "m", 1, None, "pending", 0),
            event(2, "m", 2, event="moved", from_state="pending", ts=TS + 2_000, since=TS, **from_q),
            step(3, "d", 1, None, "pending", 0),
            step(4, "d", 2, "pending", "running", 0, since=TS),
            event(5, "d", 3, event="progress", from_state="running", to_state="running", ts=TS + 500, since=TS),
            event(6, "d", 4, event="dead-lettered", from_state="running", ts=TS + 4_000, since=TS, error="", **from_q),
            step(7, "o", 1, None, "invisible", 0),
            event(8, "o", 2, event="canceled", from_state="invisible", to_state="canceled", error="replaced by D-1"),
        ),
    )
    with open_index(str(tmp_path)) as connection:
        yield connection


def test_a_job_that_leaves_a_queue_leaves_its_curves(moved):
    def curve(queue: str) -> list[tuple[str, int]]:
        return [(state, jobs) for _, state, jobs in questions.depth_over_time(moved, queue, points=4).rows]

    assert [jobs for state, jobs in curve("q") if state == "pending"] == [1, 1, 0, 0]
    assert [jobs for state, jobs in curve("r") if state == "pending"][-1] == 2
    assert {state for state, _ in curve("r")} == {"pending"}


def test_time_in_a_state_ends_with_the_state_and_belongs_to_the_queue_that_the_job_left(moved):
    rows = {row[:2]: row[2:4] for row in questions.latency(moved).rows}
    assert rows["q", "running"] == (1, 4_000)
    assert rows["q", "pending"] == (2, 1_000)
    assert not [queue for queue, _ in rows if queue == "r"]


def test_a_dead_letter_is_a_failure_in_the_queue_that_it_left_and_a_replaced_job_is_none(moved):
    assert [row[:4] for row in questions.errors(moved).rows] == [("q", "", "", 1)]


def test_an_event_of_an_unknown_kind_ends_no_state_and_is_no_failure(tmp_path):
    """A later version of a node writes events that this version doesn't know."""
    strange = {"event": "unknown", "from_state": "running", "to_state": None, "since": TS, "error": "why"}
    index(
        tmp_path,
        batch(
            step(1, "a", 1, None, "pending", 0),
            step(2, "a", 2, "pending", "running", 0, since=TS),
            event(3, "a", 3, ts=TS + 1_000, **strange),
            step(4, "a", 4, "running", "completed", 4_000, since=TS),
            step(5, "b", 1, None, "pending", 0),
            event(6, "b", 2, ts=TS + 1_000, **strange),
        ),
    )
    with open_index(str(tmp_path)) as connection:
        assert [row[:3] for row in questions.depth(connection).rows] == [("q", "completed", 1), ("q", "pending", 1)]
        curves = [(state, jobs) for _, state, jobs in questions.depth_over_time(connection, points=4).rows]
        assert curves == [*[("pending", 1)] * 4, *[("running", 1)] * 3, ("running", 0)]
        assert [row[2:4] for row in questions.latency(connection).rows if row[1] == "running"] == [(1, 4_000)]
        assert questions.errors(connection).rows == []
        assert [row[1] for row in questions.trace(connection, "a").rows] == [
            "pending",
            "running",
            "unknown",
            "completed",
        ]


def test_an_index_without_the_column_extra_has_answers(tmp_path):
    index(
        tmp_path,
        batch(step(1, "a", 1, None, "pending", 0), step(2, "a", 2, "pending", "errored", 9)).drop_columns(["extra"]),
    )
    with open_index(str(tmp_path)) as connection:
        assert len(questions.latency(connection).rows) == len(questions.errors(connection).rows) == 1
        assert questions.depth_over_time(connection, "q", points=1).rows


def test_a_summary_counts_events_jobs_and_nodes(db):
    assert {name: questions.summary(db)[name] for name in ("events", "jobs", "nodes")} == {
        "events": 7,
        "jobs": 2,
        "nodes": 2,
    }


def test_a_key_that_could_be_sql_is_refused(db):
    with pytest.raises(OptionError, match="can't be a key of metadata"):
        questions.depth(db, ["x' OR 1=1 --"])
