"""The questions about an index, as SQL for DuckDB. Answers are rows with column names.

The rules are those of pipelines/history.py. Events with equal (job_id, version, event) are one transition. A job's
events are put in the documented order. An event with a time before its predecessor's gets the predecessor's time.
`progress` is not a transition, nor is an event of an unknown kind. A job that was moved or dead-lettered spent the time
before in the queue that it left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from disque_py.event_format import FAILURE_SQL as FAILURE
from disque_py.event_format import FINAL_RANK_SQL as RANK
from disque_py.event_format import LIVE_SQL as LIVE
from disque_py.event_format import TRANSITION_SQL as TRANSITION
from disque_py.spark.meta_keys import column_of, distinct, with_keys
from disque_py.spark.option_error import OptionError

POINTS: Final = 120  # Points of a curve.

# The queue in which a job was before an event.
LEFT_QUEUE: Final = "coalesce(map_extract_value(extra, 'from_queue'), queue)"

# Select one row of `rows` for each transition. Nearly all transitions have one row. A hash finds the few that may have
# several, so only those are sorted.
ONCE: Final = """
            WITH keyed AS (SELECT *, hash(job_id, version, event) AS key FROM rows),
            doubled AS (SELECT key FROM keyed GROUP BY key HAVING count(*) > 1)
            SELECT * FROM keyed ANTI JOIN doubled USING (key)
            UNION ALL
            SELECT * FROM keyed SEMI JOIN doubled USING (key)
            QUALIFY row_number() OVER (PARTITION BY job_id, version, event ORDER BY ts, node, log, seq) = 1
        """


@dataclass(slots=True)
class Answer:
    """The answer to a question: column names and rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def ask(db: Any, sql: str, values: Sequence[Any] = ()) -> Answer:
    """Return the rows of any SQL statement."""
    result = db.execute(sql, list(values))
    return Answer([column[0] for column in result.description or ()], result.fetchall())


def trace(db: Any, job_id: str) -> Answer:
    """Return the events of a job, in the documented order."""
    return ask(
        db,
        f"""
        SELECT ts, event, from_state, to_state,
               CASE WHEN since IS NULL THEN NULL ELSE epoch_ms(ts) - epoch_ms(since) END AS ms_in_state,
               queue, version, attempt, nacks, deliveries, error, worker, node, seq, meta
        FROM history WHERE job_id = ? ORDER BY greatest({RANK}, 0), version, node, seq
        """,
        [job_id],
    )


def depth(db: Any, by: Sequence[str] = (), *, by_node: bool = False, queue: str = "") -> Answer:
    """Return the number of jobs per queue and state now, of one queue or all.

    With `by_node` also per node of their newest event.
    """
    select, names = _columns(by)
    if by_node:
        select, names = f", node{select}", f", node{names}"
    return _named(
        by,
        db,
        f"""
        SELECT queue, to_state AS state{select}, count(*) AS jobs, min(ts) AS oldest
        FROM current WHERE ? = '' OR queue = ? GROUP BY queue, to_state{names} ORDER BY queue, state{names}
        """,
        [queue, queue],
    )


def pending_note(answer: Answer) -> str:
    """Return a note for a trace that ends with a pending job: its limits. Empty for other traces."""
    if not answer.rows:
        return ""
    newest = dict(zip(answer.columns, answer.rows[-1], strict=True))
    if newest["to_state"] != "pending":
        return ""
    return (
        f"pending means that node {newest['node']} put the job into its queue, or took it from another node; while the "
        "node that has it is down, no consumer gets the job, until another holder queues it after its RETRY"
    )


def depth_over_time(db: Any, queue: str = "", points: int = POINTS) -> Answer:
    """Return the jobs per state at the end of `points` equal spans: moment, state, jobs; of one queue or all."""
    return ask(
        db,
        f"""
        WITH rows AS (
            SELECT job_id, ts, event, queue, {LEFT_QUEUE} AS left_queue, from_state, to_state, version, node, log, seq,
                   {RANK} AS final
            FROM history WHERE job_id IS NOT NULL AND {TRANSITION}
                AND (? = '' OR job_id IN (SELECT job_id FROM history WHERE queue = ?))
        ),
        events AS ({ONCE}),
        steps AS (
            SELECT job_id, queue, left_queue, from_state, to_state,
                   max(ts) OVER (PARTITION BY job_id ORDER BY final, version, node, seq) AS moment,
                   lead(ts) OVER steps AS next_ts, row_number() OVER steps AS step
            FROM events WINDOW steps AS (PARTITION BY job_id ORDER BY final, version, node, seq)
        ),
        every AS (
            SELECT moment, queue, to_state AS state, 1 AS change FROM steps WHERE to_state IN {LIVE}
            UNION ALL
            SELECT greatest(moment, next_ts), queue, to_state, -1 FROM steps
            WHERE to_state IN {LIVE} AND next_ts IS NOT NULL
            UNION ALL
            SELECT moment, left_queue, from_state, -1 FROM steps WHERE step = 1 AND from_state IN {LIVE}
            UNION ALL
            SELECT (SELECT min(moment) FROM steps), left_queue, from_state, 1 FROM steps
            WHERE step = 1 AND from_state IN {LIVE}
        ),
        changes AS (SELECT moment, state, change FROM every WHERE ? = '' OR queue = ?),
        bounds AS (
            SELECT epoch_ms(min(moment)) AS first_ms,
                   greatest(1, (epoch_ms(max(moment)) - epoch_ms(min(moment))) / ?) AS span_ms
            FROM changes
        ),
        spans AS (
            SELECT least(CAST(? - 1 AS BIGINT), CAST(floor((epoch_ms(moment) - first_ms) / span_ms) AS BIGINT)) AS span,
                   state, sum(change) AS change
            FROM changes, bounds GROUP BY ALL
        ),
        grid AS (
            SELECT span, state FROM range(?) AS r(span), (SELECT DISTINCT state FROM changes)
        )
        SELECT make_timestamp(CAST((first_ms + (span + 1) * span_ms) * 1000 AS BIGINT))::TIMESTAMPTZ AS moment, state,
               CAST(sum(coalesce(change, 0)) OVER (PARTITION BY state ORDER BY span) AS BIGINT) AS jobs
        FROM grid LEFT JOIN spans USING (span, state), bounds ORDER BY state, moment
        """,
        [queue, queue, queue, queue, points, points, points],
    )


def latency(db: Any, by: Sequence[str] = (), *, hourly: bool = False) -> Answer:
    """Return percentiles of the time in each state in milliseconds, by queue (and hour, and keys of metadata)."""
    select, names = _columns(by)
    hour, hour_name = ("date_trunc('hour', ts) AS hour, ", "hour, ") if hourly else ("", "")
    return _named(
        by,
        db,
        f"""
        WITH rows AS (
            SELECT job_id, ts, event, {LEFT_QUEUE} AS queue, from_state, since, version, node, log, seq,
                   {RANK} AS final{select}
            FROM history WHERE job_id IS NOT NULL AND {TRANSITION}
        ),
        events AS ({ONCE}),
        -- After a hand-over, the new node does not know since when the job was in its state. The job's previous event
        -- does.
        unknown AS (SELECT DISTINCT job_id FROM events WHERE since IS NULL AND from_state <> ''),
        steps AS (
            SELECT *, since AS began FROM events WHERE since IS NOT NULL
            UNION ALL
            SELECT * FROM (
                SELECT *, lag(ts) OVER (PARTITION BY job_id ORDER BY final, version, node, seq) AS began
                FROM events SEMI JOIN unknown USING (job_id)
            ) WHERE since IS NULL
        ),
        spans AS (
            SELECT {hour}queue, from_state AS state{names}, greatest(0, epoch_ms(ts) - epoch_ms(began)) AS ms
            FROM steps WHERE began IS NOT NULL AND from_state <> ''
        )
        SELECT {hour_name}queue, state{names}, count(*) AS jobs, CAST(avg(ms) AS BIGINT) AS mean_ms,
               CAST(quantile_cont(ms, 0.5) AS BIGINT) AS p50_ms, CAST(quantile_cont(ms, 0.95) AS BIGINT) AS p95_ms,
               CAST(quantile_cont(ms, 0.99) AS BIGINT) AS p99_ms, max(ms) AS max_ms
        FROM spans GROUP BY {hour_name}queue, state{names} ORDER BY {hour_name}queue, state{names}
        """,
    )


def errors(db: Any, by: Sequence[str] = ()) -> Answer:
    """Return failures by queue, reason and worker, the most frequent first."""
    select, names = _columns(by)
    return _named(
        by,
        db,
        f"""
        WITH failures AS (
            SELECT {LEFT_QUEUE} AS queue, coalesce(error, '') AS error, coalesce(worker, '') AS worker{select},
                   job_id, ts
            FROM history WHERE {FAILURE}
            QUALIFY row_number() OVER (PARTITION BY job_id, version, event ORDER BY ts, node, log, seq) = 1
        )
        SELECT queue, error, worker{names}, count(*) AS failures, count(DISTINCT job_id) AS jobs, max(ts) AS last_at,
               min(job_id) AS example
        FROM failures GROUP BY queue, error, worker{names} ORDER BY failures DESC, queue, error, worker
        """,
    )


def summary(db: Any) -> dict[str, Any]:
    """Return the numbers of events, jobs and nodes, and the times of the first and last event."""
    answer = ask(
        db,
        """
        SELECT (SELECT count(*) FROM history) AS events, (SELECT count(*) FROM current) AS jobs,
               (SELECT count(DISTINCT node) FROM history) AS nodes, (SELECT min(ts) FROM history) AS first_at,
               (SELECT max(ts) FROM history) AS last_at
        """,
    )
    return dict(zip(answer.columns, answer.rows[0], strict=True))


def _named(by: Sequence[str], db: Any, sql: str, values: Sequence[Any] = ()) -> Answer:
    """Return the rows of a statement with columns for these keys of metadata, under names that people read."""
    answer = ask(db, sql, values)
    return Answer(with_keys(answer.columns, distinct(by)), answer.rows)


def _columns(by: Sequence[str]) -> tuple[str, str]:
    """Return keys of metadata as columns to select and to group by. Raises OptionError for a bad key."""
    for key in by:
        if "'" in key or '"' in key or not key.isprintable() or not key:
            raise OptionError(f"--by {key!r} can't be a key of metadata; leave out quotes and control characters")
    keys = [(column_of(number), key) for number, key in enumerate(distinct(by))]
    # In some versions of DuckDB, map['key'] gives a list. This function gives a value in all of them.
    select = "".join(f", coalesce(map_extract_value(meta, '{key}'), '') AS {column}" for column, key in keys)
    return select, "".join(f", {column}" for column, _ in keys)
