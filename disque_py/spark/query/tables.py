"""An index as a DuckDB connection: the views `history` and `current`, of the tables' current files.

delta-rs lists the files. DuckDB reads them itself, which is fastest, and skips the parts that their statistics and
filters rule out. A view without files still has its columns.

Most questions take less time than loading pyarrow. So pyarrow is not loaded here, unless a table is empty.
"""

from __future__ import annotations

from typing import Any

import duckdb
from deltalake import DeltaTable

from disque_py.spark.index_tables import CURRENT, HISTORY, WIDENED, open_existing
from disque_py.spark.store import Store, paths_of


def open_index(path: str, storage: dict[str, str] | None = None) -> Any:
    """Return a connection with both views and times in UTC. Raises TableError when there is no index."""
    store = Store(path, storage or {})
    db = duckdb.connect()
    # With the cache, footers are read once, for the view and for the question.
    db.execute("SET TimeZone = 'UTC'; SET parquet_metadata_cache = true")
    for name in (HISTORY, CURRENT):
        table = open_existing(store, name)
        _view(db, name, paths_of(store.under(name), table), table)
    return db


def _view(db: Any, name: str, files: list[str], table: DeltaTable) -> None:
    if not files:
        from disque_py.spark.index_schema import arrow_schema

        db.register(f"no_{name}", arrow_schema(table).empty_table())
        db.execute(f"CREATE VIEW {name} AS SELECT * FROM no_{name}")
        return
    words = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    # Columns that were added later are null in older files. To find such files, DuckDB reads every footer.
    options = "hive_partitioning = true" + (", union_by_name = true" if _may_lack_columns(table) else "")
    db.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet([{words}], {options})")


def _may_lack_columns(table: DeltaTable) -> bool:
    """Return whether a file may be older than a column."""
    widened = table.metadata().configuration.get(WIDENED)
    if widened is None:
        return True  # An older version made the table, and did not note the time.
    written = table.get_add_actions(flatten=True).column("modification_time").to_pylist()
    return any(_ms(moment) <= int(widened) for moment in written)


def _ms(moment: Any) -> float:
    return moment.timestamp() * 1000 if hasattr(moment, "timestamp") else float(moment)
