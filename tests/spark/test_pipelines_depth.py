"""pipelines/depth.py: jobs per state at the end of each minute."""

from __future__ import annotations

from datetime import UTC, datetime

from disque_py.spark.pipelines import depth
from made import make_index


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
