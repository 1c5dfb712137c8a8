"""Depth over time: how many jobs of a queue were in which state at the end of each span of time.

A job is in a state from the event that led there until its next event, in the documented order; so
the last row of each series is what `current` says, whatever came twice or out of order. Jobs that
have ended are not counted. Where older events were removed by retention, the first one that is
left says in which state the job was before.

Writes the table `depth`: at, queue, state, the keys asked for, jobs. Only spans in which the number
changed have a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from disque_py.spark.pipelines.history import columns_of, open_history, save

BUCKET_S: Final = 60
LIVE: Final = "('invisible', 'pending', 'running', 'errored')"

SQL: Final = """
    WITH steps AS (SELECT * FROM {events}),
    changes AS (
        SELECT at, queue_name AS queue, to_state AS state{select}, 1 AS change FROM steps WHERE to_state IN {live}
        UNION ALL
        SELECT greatest(at, next_ts), queue_name, to_state{select}, -1 FROM steps
        WHERE to_state IN {live} AND next_ts IS NOT NULL
        UNION ALL
        SELECT coalesce(least(since, at), at), queue_name, from_state{select}, 1 FROM steps
        WHERE step = 1 AND from_state IN {live}
        UNION ALL
        SELECT at, queue_name, from_state{select}, -1 FROM steps WHERE step = 1 AND from_state IN {live}
    ),
    spans AS (
        SELECT timestamp_seconds(floor(unix_millis(at) / 1000 / {bucket}) * {bucket}) AS at, queue, state{names},
               sum(change) AS change
        FROM changes GROUP BY ALL HAVING sum(change) <> 0
    )
    SELECT at, queue, state{names},
           sum(change) OVER (PARTITION BY queue, state{names} ORDER BY at) AS jobs
    FROM spans ORDER BY at, queue, state
"""


def run(
    spark: Any, path: str, *, by: Sequence[str] = (), bucket_s: int = BUCKET_S, since: str = "", until: str = ""
) -> Any:
    """Compute and save the table → its rows as Arrow. `by` are keys of metadata, `since` and `until` days."""
    select, names = columns_of(by)
    sql = SQL.format(
        events=open_history(spark, path, since, until), select=select, names=names, live=LIVE, bucket=int(bucket_s)
    )
    return save(spark.sql(sql), path, "depth")
