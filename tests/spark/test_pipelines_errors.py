"""pipelines/errors.py: failures by reason and worker."""

from __future__ import annotations

from disque_py.spark.pipelines import errors
from made import make_index


def test_failures_are_counted_by_reason_and_worker(spark, tmp_path):
    rows = errors.run(spark, make_index(tmp_path)).to_pylist()
    assert [(row["queue"], row["error"], row["worker"], row["failures"], row["example"]) for row in rows] == [
        ("q", "no fuel", "w1", 1, "b")
    ]
