"""Failures by hour, queue, reason and worker: events with a reason, and jobs that were given up.

A job that became a dead letter failed in the queue that it left. Writes the table `errors`: hour, queue, error, worker,
the keys of `by`, failures, jobs, last_at, and the id of one job as an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from disque_py.event_format import FAILURE_SQL
from disque_py.spark.pipelines.history import hourly

SQL: Final = """
    WITH failures AS (
        SELECT date_trunc('HOUR', ts) AS hour, left_queue AS queue, coalesce(error, '') AS error,
               coalesce(worker, '') AS worker{select}, job_id, ts
        FROM {events} WHERE {failure} AND {bound}
    )
    SELECT hour, queue, error, worker{names}, count(*) AS failures, count(DISTINCT job_id) AS jobs,
           max(ts) AS last_at, min(job_id) AS example
    FROM failures GROUP BY ALL ORDER BY hour, failures DESC, queue, error, worker
"""


def run(spark: Any, path: str, *, by: Sequence[str] = (), since: str = "", until: str = "") -> Any:
    """Compute and save the table `errors`, and return its rows as Arrow.

    spark          a SparkSession with the data sources registered
    path           folder or URI of an index
    by             keys of metadata that divide the rows further; by default none
    since, until   first and last day (YYYY-MM-DD, included); by default empty: no bound

    Raises OptionError for a key that can't be quoted, TableError when there is no index.
    """
    return hourly(spark, path, "errors", SQL.replace("{failure}", FAILURE_SQL), by, since, until)
