"""What depth, latency and errors have in common: an index's history as a view, and where results go.

Several nodes may make one transition, each on its side of a cut; equal (job_id, version, event) are
one, and the earliest counts. Clocks differ: a job's events are put in the documented order, and a moment before its
predecessor's counts as that.

A result keeps what it was made of: how many events each day of `history` had, and with which options, in the metadata
of its table's commit. The next run computes the days from the first one that has changed, and keeps the rows before.
Of earlier days it reads the events of jobs that went on since, for what those events say of the later ones.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake

from disque_py.spark.delta_store import Store, read_column
from disque_py.spark.index_reading import files_of, read_rows
from disque_py.spark.index_schema import DAY, HISTORY, arrow_schema, open_existing
from disque_py.spark.options import OptionError

VIEW: Final = "disque_events"
# Where a commit says what its table was made of.
NOTE: Final = "disque.made_of"
# A job's ctime is Unix milliseconds times this, plus a number (docs/info.md).
CTIMES_PER_MS: Final = 1_000_000
UTC_NAMES: Final = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")

# The order within a job; `final` as in event_schema.FINAL_RANKS.
ORDERED_SQL: Final = """
    SELECT *, max(ts) OVER job AS at, lead(ts) OVER steps AS next_ts, lag(ts) OVER steps AS last_ts,
           row_number() OVER steps AS step,
           coalesce(queue, max(queue) OVER whole, '') AS queue_name
    FROM (
        SELECT *,
               CASE to_state WHEN 'completed' THEN 3 WHEN 'canceled' THEN 2 WHEN 'expired' THEN 1 ELSE 0 END AS final,
               row_number() OVER (PARTITION BY job_id, version, event ORDER BY ts, node, log, seq) AS twin
        FROM {view}
    )
    WHERE twin = 1
    WINDOW steps AS (PARTITION BY job_id ORDER BY final, version, node, seq),
           job AS (PARTITION BY job_id ORDER BY final, version, node, seq ROWS UNBOUNDED PRECEDING),
           whole AS (PARTITION BY job_id)
"""

_KEY: Final = re.compile(r"[^`'\"\\\x00-\x1f]{1,200}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run computes.

    options        of this run; a table made with others is made anew
    days           events of each day of `history`
    since, until   days to read, both included; empty: no bound
    first          the moment from which rows are computed; None: all of them
    kept           rows of the table before that moment
    is_done        nothing has changed since the last run
    noted          events of each day that the table was made of; those of days that retention took stay in it
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
        """Whether days that the table knows are gone from `history`, so that they can't be computed again."""
        return bool(self.noted.keys() - self.days.keys())

    def whole(self) -> Plan:
        """The same without what is kept."""
        return Plan(self.options, self.days) if self.first is not None else self

    def bound(self, column: str) -> str:
        """SQL that is true for rows to be computed."""
        return "true" if self.first is None else f"{column} >= TIMESTAMP '{self.first:%Y-%m-%d %H:%M:%S}+00:00'"


def plan_of(
    spark: Any, path: str, name: str, moment: str, options: dict[str, Any], since: str = "", until: str = ""
) -> Plan:
    """What the result `name` lacks; `moment` is the column of its rows. Days that were asked for are all computed."""
    store = Store(path)
    days = _days_of(store)
    if spark.conf.get("spark.sql.session.timeZone") not in UTC_NAMES:
        # Hours of other time zones need not begin with a day of `history`.
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
    """Events of each day; `history` is only added to, so equal counts are equal events."""
    actions = pa.table(open_existing(store, HISTORY).get_add_actions(flatten=True))
    days: Counter[str] = Counter()
    if len(actions):
        for day, rows in zip(actions[f"partition.{DAY}"].to_pylist(), actions["num_records"].to_pylist(), strict=True):
            days[str(day)] += rows or 0
    return dict(sorted(days.items()))


def open_history(spark: Any, path: str, plan: Plan) -> str:
    """The events of a plan as SQL: a query to select from, in the order above."""
    reader = spark.read.format("disque-index").option("table", "history")
    for name, value in (("since", plan.since), ("until", plan.until)):
        if value:
            reader = reader.option(name, value)
    frame = reader.load(path)
    if plan.first is not None:
        before = events_before(Store(path), plan.first)
        if before is not None:
            frame = frame.unionByName(spark.createDataFrame(before).select(*frame.columns))
    frame.createOrReplaceTempView(VIEW)
    return f"({ORDERED_SQL.format(view=VIEW)})"


def events_before(store: Store, first: datetime) -> pa.Table | None:
    """Events before that day's beginning of jobs that have later ones; None if there are no such jobs."""
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
            # A job whose creation is not known may be of any day.
            times = created.filter(is_old)
            least = 0 if times.null_count else pc.min(times).as_py()
            oldest = least if oldest is None else min(oldest, least)
    if oldest is None:
        return None
    wanted = pc.unique(pa.chunked_array(jobs))
    # Clocks of nodes differ: an event may say a moment before its job's creation.
    since = str(datetime.fromtimestamp(oldest / CTIMES_PER_MS / 1000, UTC).date() - timedelta(days=1)) if oldest else ""
    found = [
        batch.filter(pc.is_in(batch.column("job_id"), value_set=wanted))
        for file in files_of(store, HISTORY, since, str(day - timedelta(days=1)))
        for batch in read_rows(store, HISTORY, file, schema)
    ]
    return pa.Table.from_batches(found, schema=schema) if any(map(len, found)) else None


def check_keys(keys: Sequence[str]) -> None:
    """Keys of `meta` that SQL is made with. Raises OptionError for one that could not be quoted."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise OptionError(f"{key!r} can't be a key of metadata; leave out quotes and control characters")


def columns_of(by: Sequence[str]) -> tuple[str, str]:
    """Keys of `meta` to tell rows apart by → the columns to select (with a comma in front), and their names alone.

    Raises OptionError for a key that could not be quoted.
    """
    check_keys(by)
    select = "".join(f", coalesce(meta['{key}'], '') AS `{key}`" for key in by)
    return select, "".join(f", `{key}`" for key in by)


def save(rows: pa.Table, path: str, name: str, plan: Plan) -> pa.Table:
    """Replace the table `name` of the index by what was kept and these rows → all of them."""
    if plan.kept is not None:
        rows = pa.concat_tables([plan.kept.cast(rows.schema), rows])
    store = Store(path).under(name)
    note = json.dumps({"options": plan.options, "days": plan.noted | plan.days})
    write_deltalake(
        store.path,
        rows,
        mode="overwrite",
        schema_mode="overwrite",
        storage_options=store.options or None,
        commit_properties=CommitProperties(custom_metadata={NOTE: note}),
    )
    return rows
