"""What failed: events with a reason, by hour, queue, reason and worker.

Writes the table `errors`: hour, queue, error, worker, the keys asked for, failures, jobs, last_at, and the
id of one job to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from disque_py.spark.pipelines.history import columns_of, open_history, plan_of, save

SQL: Final = """
    WITH failures AS (
        SELECT date_trunc('HOUR', ts) AS hour, queue_name AS queue, coalesce(error, '') AS error,
               coalesce(worker, '') AS worker{select}, job_id, ts
        FROM {events} WHERE (error <> '' OR to_state = 'errored') AND {bound}
    )
    SELECT hour, queue, error, worker{names}, count(*) AS failures, count(DISTINCT job_id) AS jobs,
           max(ts) AS last_at, min(job_id) AS example
    FROM failures GROUP BY ALL ORDER BY hour, failures DESC, queue, error, worker
"""


def run(spark: Any, path: str, *, by: Sequence[str] = (), since: str = "", until: str = "") -> Any:
    """Compute and save the table → its rows as Arrow. `by` are keys of metadata, `since` and `until` days."""
    select, names = columns_of(by)
    plan = plan_of(spark, path, "errors", "hour", {"by": list(by)}, since, until)
    if plan.is_done:
        return plan.kept
    sql = SQL.format(events=open_history(spark, path, plan), select=select, names=names, bound=plan.bound("ts"))
    return save(spark.sql(sql).toArrow(), path, "errors", plan)
