"""Time in each state: how long jobs stayed in a state before the next one.

An event usually has the time since when its job was in the state that it left. Otherwise the time of the job's
previous event counts. Writes the table `latency`: hour, queue, state, the keys of `by`, jobs, mean_ms, p50_ms, p95_ms,
p99_ms, max_ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from disque_py.spark.pipelines.history import hourly

SQL: Final = """
    WITH spans AS (
        SELECT date_trunc('HOUR', ts) AS hour, left_queue AS queue, from_state AS state{select},
               greatest(0, unix_millis(ts) - unix_millis(coalesce(since, last_ts))) AS ms
        FROM {events} WHERE from_state <> '' AND coalesce(since, last_ts) IS NOT NULL AND {bound}
    )
    SELECT hour, queue, state{names}, count(*) AS jobs, avg(ms) AS mean_ms,
           percentile(ms, 0.5) AS p50_ms, percentile(ms, 0.95) AS p95_ms, percentile(ms, 0.99) AS p99_ms,
           max(ms) AS max_ms
    FROM spans GROUP BY ALL ORDER BY hour, queue, state
"""


def run(spark: Any, path: str, *, by: Sequence[str] = (), since: str = "", until: str = "") -> Any:
    """Compute and save the table `latency`, and return its rows as Arrow.

    spark          a SparkSession with the data sources registered
    path           folder or URI of an index
    by             keys of metadata that divide the rows further; by default none
    since, until   first and last day (YYYY-MM-DD, included); by default empty: no bound

    Raises OptionError for a key that can't be quoted, TableError when there is no index.
    """
    return hourly(spark, path, "latency", SQL, by, since, until)
