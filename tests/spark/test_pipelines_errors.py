"""pipelines/errors.py: failures by reason and worker."""

from __future__ import annotations

import pytest

from disque_py.spark.pipelines import depth, errors, latency
from index_events import batch, index
from made import make_index, make_moves, step


def test_failures_are_counted_by_reason_and_worker(spark, tmp_path):
    rows = errors.run(spark, make_index(tmp_path)).to_pylist()
    assert [(row["queue"], row["error"], row["worker"], row["failures"], row["example"]) for row in rows] == [
        ("q", "no fuel", "w1", 1, "b")
    ]


def test_a_dead_letter_is_a_failure_in_the_queue_that_it_left(spark, tmp_path):
    rows = errors.run(spark, make_moves(tmp_path)).to_pylist()
    assert [(row["queue"], row["error"]) for row in rows] == [("q", "no fuel")]


def test_an_index_without_the_column_extra_has_failures(spark, tmp_path):
    index(tmp_path, batch(step(1, "a", 1, "running", "errored", 0)).drop_columns(["extra"]))
    rows = errors.run(spark, str(tmp_path)).to_pylist()
    assert [(row["queue"], row["failures"]) for row in rows] == [("q", 1)]


@pytest.mark.parametrize("pipeline", [errors, latency, depth])
def test_a_key_of_metadata_may_have_the_name_of_a_column(spark, tmp_path, pipeline):
    meta = {"worker": "x", "Queue": "y"}
    first = step(1, "a", 1, None, "running", 0, meta=meta)
    index(tmp_path, batch(first, step(2, "a", 2, "running", "errored", 9, meta=meta, worker="w", error="why")))
    for _ in range(2):  # The second run takes the rows of the first.
        row = pipeline.run(spark, str(tmp_path), by=["worker", "Queue", "worker"]).to_pylist()[0]
        assert (row["queue"], row["meta_Queue"]) == ("q", "y")
        assert row.get("meta_worker", row["worker"]) == "x"
