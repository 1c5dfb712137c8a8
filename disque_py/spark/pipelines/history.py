"""The common part of depth, latency and errors: an index's history as a view, and the tables of results.

On the sides of a network partition, several nodes may make the same transition. Events with equal (job_id, version,
event) are one transition, and the earliest counts. The nodes' clocks differ, so a job's events are put in the
documented order. An event with a time before its predecessor's gets the predecessor's time. `progress` is not a
transition, and is left out. So is an event of a kind that this version doesn't know. A job that was moved or
dead-lettered spent the time before in the queue that it left.

The metadata of a result's commit records the options, and how many events each day of `history` had. The next run
computes all days from the first changed one on, and keeps the rows before. From earlier days it reads only the events
of jobs that also have later events, because those depend on them.

A run replaces the whole table, so it holds the lock of the table from its plan to its commit (index_lock.py). A second
run on this machine waits, and then computes only the events that came meanwhile. A run on another machine doesn't see
the lock. Then the commit of one of the two fails, and the other's table stays.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from disque_py.event_format import FINAL_RANK_SQL, TRANSITION_SQL
from disque_py.spark.delta_store import Store, TableError, delete_files, read_column
from disque_py.spark.index_lock import write_lock
from disque_py.spark.index_reading import files_of, read_rows
from disque_py.spark.index_schema import DAY, HISTORY, arrow_schema, open_existing
from disque_py.spark.meta_keys import column_of, distinct, with_keys
from disque_py.spark.options import OptionError, check_days
from disque_py.spark.upkeep import VACUUM_HOURS

# The beginning of a view's name. Several pipelines may run in one session at the same time, each with its own view.
VIEW: Final = "disque_events"
# The key in a commit's metadata under which it records the options and days of its table.
NOTE: Final = "disque.made_of"
# A job's ctime is Unix milliseconds times this, plus a number (docs/info.md).
CTIMES_PER_MS: Final = 1_000_000
UTC_NAMES: Final = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")

# The order within a job. `left_queue` is the queue in which it was before the event.
ORDERED_SQL: Final = """
    SELECT *, max(ts) OVER job AS at, lead(ts) OVER steps AS next_ts, lag(ts) OVER steps AS last_ts,
           row_number() OVER steps AS step,
           coalesce(queue, max(queue) OVER whole, '') AS queue_name,
           coalesce(extra['from_queue'], queue, max(queue) OVER whole, '') AS left_queue
    FROM (
        SELECT *,
               {final} AS final,
               row_number() OVER (PARTITION BY job_id, version, event ORDER BY ts, node, log, seq) AS twin
        FROM {view} WHERE {transition}
    )
    WHERE twin = 1
    WINDOW steps AS (PARTITION BY job_id ORDER BY final, version, node, seq),
           job AS (PARTITION BY job_id ORDER BY final, version, node, seq ROWS UNBOUNDED PRECEDING),
           whole AS (PARTITION BY job_id)
"""

_KEY: Final = re.compile(r"[^`'\"\\\x00-\x1f]{1,200}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of a run.

    options        options of this run; a table that was made with other options is computed anew
    days           number of events of each day of `history`
    since, until   days to read, both included; empty: no bound
    first          rows from this moment on are computed; None: all rows
    kept           rows of the table before that moment
    is_done        nothing has changed since the last run
    noted          number of events of each day at the last run, even of days that retention has removed since
    """

    options: dict[str, Any]
    days: dict[str, int]
    since: str = ""
    until: str = ""
    first: datetime | None = None
    kept: pa.Table | None = None
    is_done: bool = False
    noted: dict[str, int] = field(default_factory=dict)

    @property
    def is_trimmed(self) -> bool:
        """Return whether `history` has lost days that the table has. Such days can't be computed again."""
        return bool(self.noted.keys() - self.days.keys())

    def whole(self) -> Plan:
        """Return a plan that keeps no rows and computes everything."""
        return Plan(self.options, self.days) if self.first is not None else self

    def bound(self, column: str) -> str:
        """Return an SQL condition for the rows to be computed."""
        return "true" if self.first is None else f"{column} >= TIMESTAMP '{self.first:%Y-%m-%d %H:%M:%S}+00:00'"


def plan_of(
    spark: Any, path: str, name: str, moment: str, options: dict[str, Any], since: str = "", until: str = ""
) -> Plan:
    """Return the plan for the result `name`. `moment` is its column of times.

    With `since` or `until`, all days between these bounds are computed. Raises OptionError when there are none: the
    result would be replaced by an empty table.
    """
    check_days(name, since, until)
    store = Store(path)
    days = _days_of(store)
    if spark.conf.get("spark.sql.session.timeZone") not in UTC_NAMES:
        # In other time zones, an hour may span two days of `history`.
        return Plan(options | {"is_utc": False}, days, since, until)
    if since or until:
        return Plan(options | {"since": since, "until": until}, days, since, until)
    below = store.under(name)
    if not below.exists():
        return Plan(options, days)
    table = below.table()
    note = json.loads(table.history(1)[0].get(NOTE, "{}"))
    if note.get("options") != options:
        return Plan(options, days)
    rows = table.to_pyarrow_table().sort_by(moment)
    changed = sorted(day for day, count in days.items() if note["days"].get(day) != count)
    if not changed:
        return Plan(options, days, kept=rows, is_done=True)
    first = datetime.combine(date.fromisoformat(changed[0]), datetime.min.time(), UTC)
    kept = rows.filter(pc.less(rows[moment], pa.scalar(first, rows[moment].type)))
    if not len(kept):
        return Plan(options, days)
    return Plan(options, days, since=changed[0], first=first, kept=kept, noted=note["days"])


def _days_of(store: Store) -> dict[str, int]:
    """Return the number of events of each day. `history` only grows, so equal numbers mean equal events."""
    actions = pa.table(open_existing(store, HISTORY).get_add_actions(flatten=True))
    days: Counter[str] = Counter()
    if len(actions):
        for day, rows in zip(actions[f"partition.{DAY}"].to_pylist(), actions["num_records"].to_pylist(), strict=True):
            days[str(day)] += rows or 0
    return dict(sorted(days.items()))


@contextmanager
def history_view(spark: Any, path: str, plan: Plan) -> Iterator[str]:
    """Yield the events of a plan as SQL: a query to select from, with the columns of ORDERED_SQL.

    It can be used until the end of the block, which drops the view.
    """
    name = f"{VIEW}_{uuid4().hex}"
    _history_frame(spark, path, plan).createOrReplaceTempView(name)
    try:
        yield f"({ORDERED_SQL.format(view=name, final=FINAL_RANK_SQL, transition=TRANSITION_SQL)})"
    finally:
        spark.catalog.dropTempView(name)


def _history_frame(spark: Any, path: str, plan: Plan) -> Any:
    reader = spark.read.format("disque-index").option("table", "history")
    for name, value in (("since", plan.since), ("until", plan.until)):
        if value:
            reader = reader.option(name, value)
    frame = reader.load(path)
    if plan.first is not None:
        before = events_before(Store(path), plan.first)
        if before is not None:
            frame = frame.unionByName(spark.createDataFrame(before).select(*frame.columns))
    if "extra" not in frame.columns:  # A query may leave it out.
        frame = frame.selectExpr("*", "CAST(NULL AS map<string,string>) AS extra")
    return frame


def events_before(store: Store, first: datetime) -> pa.Table | None:
    """Return the events before `first` of jobs that also have later events; None if there are no such jobs."""
    history = open_existing(store, HISTORY)
    schema = arrow_schema(history)
    actions = pa.table(history.get_add_actions(flatten=True))
    day = first.date()
    is_later = [str(one) >= str(day) for one in actions[f"partition.{DAY}"].to_pylist()]
    first_ctime = int(first.timestamp() * 1000) * CTIMES_PER_MS
    jobs: list[pa.Array] = []
    oldest: int | None = None
    below = store.under(HISTORY)
    for path in actions.filter(pa.array(is_later))["path"].to_pylist():
        ids, created = read_column(below, path, "job_id"), read_column(below, path, "ctime")
        is_old = pc.and_(ids.is_valid(), pc.fill_null(pc.less(created, first_ctime), True))
        if pc.any(is_old).as_py():
            jobs.append(pc.unique(ids.filter(is_old)))
            # A job with an unknown creation time may be of any day.
            times = created.filter(is_old)
            least = 0 if times.null_count else pc.min(times).as_py()
            oldest = least if oldest is None else min(oldest, least)
    if oldest is None:
        return None
    wanted = pc.unique(pa.chunked_array(jobs))
    # The nodes' clocks differ, so an event may have a time before its job's creation.
    since = str(datetime.fromtimestamp(oldest / CTIMES_PER_MS / 1000, UTC).date() - timedelta(days=1)) if oldest else ""
    found = [
        batch.filter(pc.is_in(batch.column("job_id"), value_set=wanted))
        for file in files_of(store, HISTORY, since, str(day - timedelta(days=1)))
        for batch in read_rows(store, HISTORY, file, schema)
    ]
    return pa.Table.from_batches(found, schema=schema) if any(map(len, found)) else None


def check_keys(keys: Sequence[str]) -> None:
    """Check keys of `meta` that become part of SQL. Raises OptionError for a key that can't be quoted."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise OptionError(f"{key!r} can't be a key of metadata; leave out quotes and control characters")


def columns_of(by: Sequence[str]) -> tuple[str, str]:
    """Return keys of `meta` as SQL, each with a comma before it: the columns to select, and their names in the query.

    Raises OptionError for a key that can't be quoted.
    """
    check_keys(by)
    keys = [(column_of(number), key) for number, key in enumerate(distinct(by))]
    select = "".join(f", coalesce(meta['{key}'], '') AS `{column}`" for column, key in keys)
    return select, "".join(f", `{column}`" for column, _ in keys)


def rows_of(spark: Any, sql: str, by: Sequence[str]) -> pa.Table:
    """Return the rows of a statement as Arrow, with columns for these keys of `meta` under names that people read."""
    rows = spark.sql(sql).toArrow()
    return rows.rename_columns(with_keys(rows.column_names, distinct(by)))


def hourly(spark: Any, path: str, name: str, sql: str, by: Sequence[str], since: str, until: str) -> Any:
    """Compute and save a table whose rows belong to one hour each, and return its rows as Arrow.

    name   of the table
    sql    the query, with placeholders: {events}; {select} and {names} for the columns of `by`; {bound} for new rows

    Raises OptionError for a key that can't be quoted, TableError when there is no index, or as `save`.
    """
    select, names = columns_of(by)
    with write_lock(Store(path).under(name)):
        plan = plan_of(spark, path, name, "hour", {"by": list(by)}, since, until)
        if plan.is_done:
            return plan.kept
        with history_view(spark, path, plan) as events:
            query = sql.format(events=events, select=select, names=names, bound=plan.bound("ts"))
            rows = rows_of(spark, query, by)
        return save(rows, path, name, plan)


def save(rows: pa.Table, path: str, name: str, plan: Plan) -> pa.Table:
    """Replace the table `name` of the index by the kept rows and these rows, and return all of them.

    Also remove the files of earlier runs that left the table an hour ago. Call it with the lock of the table. Raises
    TableError when another machine has changed the table since the plan was made.
    """
    if plan.kept is not None:
        rows = pa.concat_tables([plan.kept.cast(rows.schema), rows])
    store = Store(path).under(name)
    note = json.dumps({"options": plan.options, "days": plan.noted | plan.days})
    try:
        write_deltalake(
            store.path,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=store.options or None,
            commit_properties=CommitProperties(custom_metadata={NOTE: note}),
        )
    except CommitFailedError as error:
        raise TableError(
            f"another program changed {store.path} while this run computed it ({str(error).splitlines()[0]}); the "
            "table is as that program has left it: start this one again when the other has ended"
        ) from error
    # The next run looks for the note in the newest commit, and a vacuum that removes files itself makes two commits.
    old = store.table().vacuum(VACUUM_HOURS, dry_run=True, enforce_retention_duration=False, full=True)
    delete_files(store, old)
    return rows
