"""pipelines/latency.py: time in states."""

from __future__ import annotations

from deltalake import DeltaTable

from disque_py.spark.pipelines import latency
from made import make_index, make_moves


def test_each_transition_counts_once_with_the_time_since_the_state_was_entered(spark, tmp_path):
    path = make_index(tmp_path)
    rows = {row["state"]: row for row in latency.run(spark, path, by=["carrier"]).to_pylist() if row["carrier"]}
    assert (rows["pending"]["jobs"], rows["pending"]["p50_ms"]) == (1, 61_000)
    assert (rows["running"]["jobs"], rows["running"]["max_ms"]) == (1, 124_000)
    assert len(DeltaTable(f"{path}/latency").to_pyarrow_table()) == 4


def test_time_in_a_state_ends_with_the_state_and_belongs_to_the_queue_that_the_job_left(spark, tmp_path):
    rows = latency.run(spark, make_moves(tmp_path)).to_pylist()
    assert [(row["queue"], row["state"], row["jobs"], row["max_ms"]) for row in rows] == [
        ("q", "pending", 2, 61_000),
        ("q", "running", 1, 122_000),
    ]
