"""pipelines/depth.py: jobs per state at the end of each minute."""

from __future__ import annotations

from datetime import UTC, datetime

from disque_py.spark.delta_store import Store
from disque_py.spark.pipelines import depth
from index_events import TS, batch, index
from made import make_index, make_moves, step


def test_depth_follows_each_job_from_state_to_state(spark, tmp_path):
    path = make_index(tmp_path)
    rows = depth.run(spark, path).to_pylist()
    minutes = {datetime.fromtimestamp(1_700_000_000 // 60 * 60 + 60 * at, UTC): at for at in range(5)}
    found = [(minutes[row["at"]], row["state"], row["jobs"]) for row in rows]
    # 22:13:20 is the start; changes after 61, 122 and 183 seconds.
    assert found == [
        (0, "pending", 2), (1, "pending", 1), (1, "running", 1), (2, "pending", 0), (2, "running", 2),
        (3, "errored", 1), (3, "running", 0),
    ]  # fmt: skip
    by = depth.run(spark, path, by=["carrier"], bucket_s=3600).to_pylist()
    assert [(row["carrier"], row["state"], row["jobs"]) for row in by] == [("", "errored", 1)]


def test_days_that_retention_removed_stay_and_the_next_days_add_to_them(spark, tmp_path):
    """A run over all remaining days would not know the earlier contents of the queues."""
    day = 86_400_000
    index(tmp_path, batch(step(1, "a", 1, None, "pending", 0), step(2, "b", 1, None, "pending", 0)))
    before = depth.run(spark, str(tmp_path), bucket_s=3600).to_pylist()
    assert [(row["state"], row["jobs"]) for row in before] == [("pending", 2)]
    Store(str(tmp_path)).under("history").table().delete()
    index(tmp_path, batch(step(3, "a", 2, "pending", "running", day, since=TS)))
    after = depth.run(spark, str(tmp_path), bucket_s=3600).to_pylist()
    assert after[:1] == before
    assert [(row["state"], row["jobs"]) for row in after[1:]] == [("pending", 1), ("running", 1)]


def test_a_job_that_moves_leaves_its_queue(spark, tmp_path):
    rows = depth.run(spark, make_moves(tmp_path)).to_pylist()
    assert [(row["queue"], row["state"], row["jobs"]) for row in rows] == [
        ("q", "pending", 1), ("q", "running", 1), ("q", "pending", 0), ("r", "pending", 1), ("q", "running", 0),
        ("r", "pending", 2),
    ]  # fmt: skip
