"""An index as a DuckDB connection: the views `history` and `current`, of the files that the tables have right now.

delta-rs says which files those are; DuckDB reads them itself, which is faster than any detour, and
skips what their statistics rule out. A view that has no file yet has its columns all the same.
"""

from __future__ import annotations

from typing import Any, Final

import duckdb
import pyarrow as pa

from disque_py.spark.delta_store import Store, paths_of
from disque_py.spark.index_schema import CURRENT, HISTORY, arrow_schema, open_existing

TYPES: Final = {"int64": "BIGINT", "int32": "INTEGER", "string": "VARCHAR", "date32[day]": "DATE"}


def open_index(path: str, storage: dict[str, str] | None = None) -> Any:
    """A connection with both views, times in UTC. Raises TableError when there is no index."""
    store = Store(path, storage or {})
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    for name in (HISTORY, CURRENT):
        table = open_existing(store, name)
        _view(db, name, paths_of(store.under(name), table), arrow_schema(table))
    return db


def _view(db: Any, name: str, files: list[str], schema: pa.Schema) -> None:
    if not files:
        db.register(f"no_{name}", schema.empty_table())
        db.execute(f"CREATE VIEW {name} AS SELECT * FROM no_{name}")
        return
    words = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    # Columns that were added later are null in older files.
    db.execute(
        f"CREATE VIEW {name} AS SELECT * FROM read_parquet([{words}], union_by_name = true, hive_partitioning = true)"
    )
