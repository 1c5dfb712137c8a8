"""progress_text.py: a batch as a line, and as figures."""

from __future__ import annotations

import json

from disque_py.spark.progress_text import figures_of, lag_events, lag_seconds, line_of, rows_of

END = {"nodes": {"a": {"log": "x", "next": 90}, "b": {"log": "y", "next": 5}}}
LATEST = {"nodes": {"a": {"log": "x", "next": 100}, "b": {"log": "z", "next": 7}}}
PROGRESS = {
    "batchId": 4, "numInputRows": 500, "durationMs": {"triggerExecution": 250},
    "sources": [{"endOffset": json.dumps(END), "latestOffset": LATEST}],
}  # fmt: skip
NOTE = {"batch": 4, "merge_ms": 80, "jobs": 300, "newest_ms": 10_000, "dropped": 2}


def test_lag_counts_events_of_all_nodes_and_all_of_a_new_log():
    assert lag_events(PROGRESS) == 17
    assert lag_events({"sources": [{"endOffset": END}]}) is None


def test_lag_in_seconds_is_the_age_of_the_newest_event_while_others_wait():
    assert lag_seconds(PROGRESS, NOTE, 12_500) == 2.5
    assert lag_seconds({"sources": [{"endOffset": LATEST, "latestOffset": LATEST}]}, NOTE, 12_500) == 0
    assert lag_seconds(PROGRESS, {}, 12_500) is None


def test_a_batch_is_one_line():
    assert line_of("index", PROGRESS, NOTE, 12_500) == (
        "index: batch 4, 500 rows in 250 ms, 2000/s, lag 17 events, 2.5 s, 300 jobs merged in 80 ms, "
        "2 rows already indexed"
    )
    assert line_of("q", {"batchId": 1}, {}, 0) == "q: batch 1, 0 rows in 0 ms"


def test_rows_are_what_the_sink_counted_because_a_row_may_carry_many_events():
    note = NOTE | {"rows": 9_998}
    assert line_of("index", PROGRESS, note, 12_500).startswith("index: batch 4, 10000 rows in 250 ms, 40000/s")
    assert rows_of(PROGRESS, note | {"batch": 3}) == 500


def test_without_a_note_rows_are_the_events_between_the_offsets():
    """The tables are in an object store, and Spark counts slices."""
    start = {"a": {"log": "x", "next": 40}, "b": {"since": 1}}
    progress = PROGRESS | {"sources": [{"endOffset": json.dumps(END | {"from": start})}], "numInputRows": 1}
    assert rows_of(progress, {}) == 50
    assert rows_of(progress | {"numInputRows": 0}, {}) == 0  # A report without a batch repeats the last offset.


def test_losses_are_reported_with_every_batch():
    progress = PROGRESS | {"sources": [{"endOffset": json.dumps(END | {"lost": {"events": 3, "logs": 1}})}]}
    assert "lost 3 events and the ends of 1 logs" in line_of("index", progress, NOTE, 12_500)
    assert figures_of(progress, {}, 1, 1, 0)["disque_pipeline_lost_events"] == 3
