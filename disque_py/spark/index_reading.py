"""Reading an index back: the list of files, and their rows. Spark reads it without a jar, one task per file.

Files of a Delta table are plain Parquet. A file that is older than a column lacks the column. The partition (`day`)
is in the file's path. Needs pyarrow and deltalake; Spark is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from disque_py.spark.delta_store import Store
from disque_py.spark.index_schema import CURRENT, DAY, HISTORY, arrow_schema, open_existing

TABLES: Final = (HISTORY, CURRENT)
BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a table: its path below the store, and its day if the table is partitioned by day."""

    path: str
    day: str | None


def files_of(store: Store, name: str, since: str = "", until: str = "") -> list[IndexFile]:
    """Return the table's current files, of days from `since` to `until` (YYYY-MM-DD, both included)."""
    actions = pa.table(open_existing(store, name).get_add_actions(flatten=True))
    paths = actions["path"].to_pylist()
    column = f"partition.{DAY}"
    days = [str(day) for day in actions[column].to_pylist()] if column in actions.column_names else [""] * len(paths)
    wanted = [
        IndexFile(path, day or None)
        for path, day in zip(paths, days, strict=True)
        if not day or ((not since or day >= since) and (not until or day <= until))
    ]
    return sorted(wanted, key=lambda file: file.path)


def schema_of(store: Store, name: str) -> pa.Schema:
    """Return the table's columns, as Arrow types that Spark accepts. Raises TableError."""
    return arrow_schema(open_existing(store, name))


def read_rows(store: Store, name: str, file: IndexFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows with the table's columns, in the table's order."""
    with store.under(name).filesystem().open_input_file(file.path) as source:
        parquet = pq.ParquetFile(source)
        have = set(parquet.schema_arrow.names)
        columns = [field.name for field in schema if field.name in have]
        for batch in parquet.iter_batches(BATCH_ROWS, columns=columns):
            yield pa.RecordBatch.from_arrays([_column(batch, field, file, have) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, file: IndexFile, have: set[str]) -> pa.Array:
    if field.name in have:
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
    if field.name == DAY and file.day is not None:
        return pa.repeat(pa.scalar(date.fromisoformat(file.day), field.type), len(batch))
    return pa.nulls(len(batch), field.type)
