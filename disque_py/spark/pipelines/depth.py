"""Depth over time: the number of jobs per queue and state at the end of each span of time.

A job is in a state from the event that led to it until the next event, in the documented order. So the last row of
each series agrees with `current`, even if events came twice or out of order. Jobs that have ended are not counted.
If retention removed older events, the first remaining event tells which state the job had before.

Writes the table `depth`: at, queue, state, the keys of `by`, jobs. Only spans in which the number changed have a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from disque_py.event_format import LIVE_SQL
from disque_py.spark.index_lock import write_lock
from disque_py.spark.options import OptionError
from disque_py.spark.pipelines.history import Plan, columns_of, history_view, plan_of, rows_of, save
from disque_py.spark.store import Store

BUCKET_S: Final = 60
DAY_S: Final = 86_400

SQL: Final = """
    WITH steps AS (SELECT * FROM {events}),
    changes AS (
        SELECT at, queue_name AS queue, to_state AS state{select}, 1 AS change FROM steps WHERE to_state IN {live}
        UNION ALL
        SELECT greatest(at, next_ts), queue_name, to_state{select}, -1 FROM steps
        WHERE to_state IN {live} AND next_ts IS NOT NULL
        UNION ALL
        SELECT coalesce(least(since, at), at), left_queue, from_state{select}, 1 FROM steps
        WHERE step = 1 AND from_state IN {live}
        UNION ALL
        SELECT at, left_queue, from_state{select}, -1 FROM steps WHERE step = 1 AND from_state IN {live}
    ),
    spans AS (
        SELECT timestamp_seconds(floor(unix_millis(at) / 1000 / {bucket}) * {bucket}) AS at, queue, state{names},
               sum(change) AS change
        FROM changes WHERE {bound} GROUP BY ALL HAVING sum(change) <> 0
    )
    SELECT at, queue, state{names},
           sum(change) OVER (PARTITION BY queue, state{names} ORDER BY at) AS jobs
    FROM spans ORDER BY at, queue, state
"""
# Select jobs that would change rows that the plan keeps. Such a job has one of these: its first event says that the
# job existed before; an event of kept rows counts later, because its predecessor has a later time; or the job's queue
# was unknown.
BACKWARD_SQL: Final = """
    SELECT job_id FROM {events}
    GROUP BY job_id HAVING count_if(step = 1 AND {at} AND from_state IN {live} AND NOT {was_new}) > 0
        OR count_if({at} AND NOT {ts}) > 0
        OR (count_if(NOT {at}) > 0 AND count_if(NOT {at} AND queue IS NOT NULL) = 0 AND count(queue) > 0)
    LIMIT 1
"""


def run(
    spark: Any, path: str, *, by: Sequence[str] = (), bucket_s: int = BUCKET_S, since: str = "", until: str = ""
) -> Any:
    """Compute and save the table `depth`, and return its rows as Arrow.

    spark          a SparkSession with the data sources registered
    path           folder or URI of an index
    by             keys of metadata that divide the rows further; by default none
    bucket_s       length of a span in seconds; by default 60
    since, until   first and last day (YYYY-MM-DD, included); by default empty: no bound

    Raises OptionError for a key that can't be quoted or a bucket below 1, and TableError when there is no index or
    another machine has changed the table meanwhile.
    """
    select, names = columns_of(by)
    if int(bucket_s) < 1:
        raise OptionError(f"depth: bucket_s must be a number of seconds from 1 on, not {bucket_s}")
    with write_lock(Store(path).under("depth")):
        plan = plan_of(spark, path, "depth", "at", {"by": list(by), "bucket": int(bucket_s)}, since, until)
        if plan.is_done:
            return plan.kept
        if DAY_S % int(bucket_s):
            plan = plan.whole()  # A span may begin on one day and end on the next.
        with ExitStack() as views:
            events = views.enter_context(history_view(spark, path, plan))
            if plan.first is not None and not plan.is_trimmed and _reaches_back(spark, events, plan):
                plan = plan.whole()
                events = views.enter_context(history_view(spark, path, plan))
            sql = SQL.format(
                events=events, select=select, names=names, live=LIVE_SQL, bucket=int(bucket_s), bound=plan.bound("at")
            )
            rows = rows_of(spark, sql, by)
        series = [name for name in rows.column_names if name not in ("at", "jobs")]
        return save(_on_top(rows, plan, series), path, "depth", plan)


def _reaches_back(spark: Any, events: str, plan: Plan) -> bool:
    """Return whether new events change rows that the plan keeps."""
    is_new = {name: plan.bound(name) for name in ("at", "ts")}
    was_new = plan.bound("coalesce(least(since, at), at)")
    query = BACKWARD_SQL.format(events=events, live=LIVE_SQL, was_new=was_new, **is_new)
    return bool(spark.sql(query).toArrow().num_rows)


def _on_top(rows: pa.Table, plan: Plan, series: list[str]) -> pa.Table:
    """Add the last kept depth of each series to its new depths, which were counted from zero."""
    if plan.kept is None:
        return rows
    known = plan.kept.select([*series, "jobs"]).to_pylist()
    place = {tuple(row[name] for name in series): row["jobs"] for row in known}
    keys = zip(*(rows[name].to_pylist() for name in series), strict=True)
    jobs = [place.get(key, 0) + count for key, count in zip(keys, rows["jobs"].to_pylist(), strict=True)]
    at = rows.schema.get_field_index("jobs")
    return rows.set_column(at, "jobs", pa.array(jobs, rows.schema.field(at).type))
