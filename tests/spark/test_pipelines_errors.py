"""pipelines/errors.py: failures by reason and worker."""

from __future__ import annotations

from disque_py.spark.pipelines import errors
from made import make_index, make_moves


def test_failures_are_counted_by_reason_and_worker(spark, tmp_path):
    rows = errors.run(spark, make_index(tmp_path)).to_pylist()
    assert [(row["queue"], row["error"], row["worker"], row["failures"], row["example"]) for row in rows] == [
        ("q", "no fuel", "w1", 1, "b")
    ]


def test_a_dead_letter_is_a_failure_in_the_queue_that_it_left(spark, tmp_path):
    rows = errors.run(spark, make_moves(tmp_path)).to_pylist()
    assert [(row["queue"], row["error"]) for row in rows] == [("q", "no fuel")]
