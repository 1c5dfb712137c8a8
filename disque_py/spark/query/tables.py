"""An index as a DuckDB connection: the views `history` and `current`, over the tables' current files.

delta-rs lists the files. DuckDB reads them itself, which is fastest, and skips the parts that their statistics and
Bloom filters rule out. A view without files still has its columns.

Changes of old jobs may wait for their merge into `current` (index_changes.py). Then the view takes the newest row of
each of these jobs, by the rules of index_newest.py.

Most questions take less time than loading pyarrow. So pyarrow is not loaded here, unless a table is empty.
"""

from __future__ import annotations

from typing import Any, Final

import duckdb
from deltalake import DeltaTable

from disque_py.spark.index_tables import CHANGES, CURRENT, HISTORY, WIDENED, open_existing
from disque_py.spark.store import Store, paths_of

MERGED: Final = "current_merged"
# The documented order as a text that compares the same way. `<column>_key` has this text for the event that gave the
# column its value.
ORDER: Final = "concat_ws('/', final, lpad(coalesce(version, 0)::VARCHAR, 19, '0'), node, lpad(seq::VARCHAR, 19, '0'))"
STICKY: Final = ("queue", "priority", "meta")
# A query may leave the column `extra` out. Questions look there for the queue that a job left.
NO_EXTRA: Final = "CAST(NULL AS MAP(VARCHAR, VARCHAR)) AS extra"
# The day of an event, as index_writing.py computes it.
DAY_SQL: Final = "coalesce(CAST(ts AS DATE), DATE '1970-01-01')"


def with_changes(merged: str, changes: str) -> str:
    """Return SQL for the rows of `merged`, updated with waiting changes. `merged` has the columns of `current`."""
    sticky = ", ".join(
        f"arg_max({name}, coalesce({name}_key, {ORDER})) FILTER ({name} IS NOT NULL) OVER job AS {name}"
        for name in STICKY
    )
    return f"""
        WITH rows AS (
            SELECT * FROM {merged} SEMI JOIN {changes} USING (job_id)
            UNION ALL BY NAME SELECT * EXCLUDE (waits_since) FROM {changes}
        )
        SELECT * FROM {merged} ANTI JOIN {changes} USING (job_id)
        UNION ALL BY NAME
        SELECT * REPLACE ({sticky}) FROM rows WINDOW job AS (PARTITION BY job_id)
        QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY final DESC, version DESC, node DESC, seq DESC) = 1
    """


def open_index(path: str, storage: dict[str, str] | None = None) -> Any:
    """Return a connection with both views and times in UTC. Raises TableError when there is no index."""
    store = Store(path, storage or {})
    db = duckdb.connect()
    # With the cache, footers are read only once, for both the view and the question.
    db.execute("SET TimeZone = 'UTC'; SET parquet_metadata_cache = true")
    # A change is merged into `current` before it leaves the table of changes. So that table is listed first.
    changes = store.under(CHANGES).table() if store.under(CHANGES).exists() else None
    changed = [] if changes is None else paths_of(store.under(CHANGES), changes)
    for name, view in ((HISTORY, HISTORY), (CURRENT, MERGED if changed else CURRENT)):
        table = open_existing(store, name)
        _view(db, view, paths_of(store.under(name), table), table)
    if changes is not None and changed:
        _view(db, CHANGES, changed, changes)
        db.execute(f"CREATE VIEW {CURRENT} AS {with_changes(MERGED, CHANGES)}")
    return db


def _view(db: Any, name: str, files: list[str], table: DeltaTable) -> None:
    lacks_extra = name == HISTORY and all(field.name != "extra" for field in table.schema().fields)
    extra = f", {NO_EXTRA}" if lacks_extra else ""
    if not files:
        from disque_py.spark.index_schema import arrow_schema

        db.register(f"no_{name}", arrow_schema(table).empty_table())
        db.execute(f"CREATE VIEW {name} AS SELECT *{extra} FROM no_{name}")
        return
    words = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    # Only `history` is partitioned. DuckDB would also take a folder `name=value` above the index for a column, instead
    # of the column of that name. Below such a folder, the day comes from the time of the event.
    is_partitioned = name == HISTORY and "=" not in files[0].rpartition("/day=")[0]
    day = f", {DAY_SQL} AS day" if name == HISTORY and not is_partitioned else ""
    # Columns that were added later are null in older files. To find such files, DuckDB reads every footer.
    may_lack = ", union_by_name = true" if _may_lack_columns(table) else ""
    source = f"read_parquet([{words}], hive_partitioning = {str(is_partitioned).lower()}{may_lack})"
    db.execute(f"CREATE VIEW {name} AS SELECT *{day}{extra} FROM {source}")


def _may_lack_columns(table: DeltaTable) -> bool:
    """Return whether a file may be older than a column."""
    widened = table.metadata().configuration.get(WIDENED)
    if widened is None:
        return True  # An older version made the table. It did not record the time.
    written = table.get_add_actions(flatten=True).column("modification_time").to_pylist()
    return any(_ms(moment) <= int(widened) for moment in written)


def _ms(moment: Any) -> float:
    return moment.timestamp() * 1000 if hasattr(moment, "timestamp") else float(moment)
