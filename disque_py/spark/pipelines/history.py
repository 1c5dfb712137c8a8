"""What depth, latency and errors have in common: an index's history as a view, and where results go.

Several nodes may make one transition, each on its side of a cut; equal (job_id, version, event) are
one. Clocks differ: a job's events are put in the documented order, and a moment before its
predecessor's counts as that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from deltalake import write_deltalake

from disque_py.spark.delta_store import Store
from disque_py.spark.options import OptionError

VIEW: Final = "disque_events"

# The order within a job; `final` as in event_schema.FINAL_RANKS.
ORDERED_SQL: Final = """
    SELECT *, max(ts) OVER job AS at, lead(ts) OVER steps AS next_ts, lag(ts) OVER steps AS last_ts,
           row_number() OVER steps AS step,
           coalesce(queue, max(queue) OVER whole, '') AS queue_name
    FROM (
        SELECT *,
               CASE to_state WHEN 'completed' THEN 3 WHEN 'canceled' THEN 2 WHEN 'expired' THEN 1 ELSE 0 END AS final,
               row_number() OVER (PARTITION BY job_id, version, event ORDER BY node, log, seq) AS twin
        FROM {view}
    )
    WHERE twin = 1
    WINDOW steps AS (PARTITION BY job_id ORDER BY final, version, node, seq),
           job AS (PARTITION BY job_id ORDER BY final, version, node, seq ROWS UNBOUNDED PRECEDING),
           whole AS (PARTITION BY job_id)
"""

_KEY: Final = re.compile(r"[^`'\"\\\x00-\x1f]{1,200}")


def open_history(spark: Any, path: str, since: str = "", until: str = "") -> str:
    """The events of an index as SQL: a query to select from, in the order above. Days as YYYY-MM-DD."""
    reader = spark.read.format("disque-index").option("table", "history")
    for name, value in (("since", since), ("until", until)):
        if value:
            reader = reader.option(name, value)
    reader.load(path).createOrReplaceTempView(VIEW)
    return f"({ORDERED_SQL.format(view=VIEW)})"


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


def save(frame: Any, path: str, name: str) -> Any:
    """Replace the table `name` of the index by a small result → the frame, as Arrow."""
    rows = frame.toArrow()
    store = Store(path).under(name)
    write_deltalake(store.path, rows, mode="overwrite", schema_mode="overwrite", storage_options=store.options or None)
    return rows
