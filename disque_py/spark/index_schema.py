"""The schemas of the two indexes: `history` has every event once, `current` the newest event of each job.

Both are Delta tables under one path. `history` has the events as they came (event_schema.py), partitioned by day.
`current` has a row per job: its newest event by the documented order (final, version, node, seq). An event may lack
queue, priority or meta. Then the row keeps the value of an older event, and `<column>_key` names that event. So the
result does not depend on the order in which events arrive. The key columns are nearly always null, because the newest
event usually has the value itself.

Columns are only ever added: by a newer version, or by a DataFrame with more columns. The tables' description contains
the format number. A higher number means that a newer version wrote the table; such a table is left alone.
"""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from disque_py.spark.event_schema import ARROW_SCHEMA
from disque_py.spark.index_tables import CHANGES as CHANGES
from disque_py.spark.index_tables import CURRENT as CURRENT
from disque_py.spark.index_tables import (
    DESCRIPTION,
    FORMAT,
    REBUILDING,
    WIDENED,
    check_complete,
    check_format,
    check_not_lost,
    no_storage,
)
from disque_py.spark.index_tables import HISTORY as HISTORY
from disque_py.spark.index_tables import STAGING as STAGING
from disque_py.spark.index_tables import open_existing as open_existing
from disque_py.spark.store import Store

STICKY: Final = ("queue", "priority", "meta")
# Besides its newest event, a row of `current` has these columns.
FINAL: Final = "final"
KEYS: Final = tuple(f"{name}_key" for name in STICKY)
# Rows of `current_changes` also have the time since when they wait, in Unix ms.
SINCE: Final = "waits_since"
DAY: Final = "day"

# Without these columns of the DataFrame, its rows can't be ordered.
NEEDED: Final = ("node", "log", "seq", "ts", "job_id", "version", "to_state")

CONFIGURATION: Final = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 7 days",
    WIDENED: "0",
}


class IndexSchemaError(ValueError):
    """Columns don't fit the index. The text names the column and says what to do."""


def history_schema(columns: pa.Schema = ARROW_SCHEMA) -> pa.Schema:
    """Return the columns of `history` for rows with these columns."""
    return columns.append(pa.field(DAY, pa.date32()))


def current_schema(columns: pa.Schema = ARROW_SCHEMA) -> pa.Schema:
    """Return the columns of `current` for rows with these columns."""
    fields = [*columns, pa.field(FINAL, pa.int32()), *(pa.field(name, pa.string()) for name in KEYS)]
    return pa.schema(fields)


def check_columns(columns: pa.Schema) -> None:
    """Check that rows with these columns can be indexed. Raises IndexSchemaError."""
    for name in NEEDED:
        if name not in columns.names:
            raise IndexSchemaError(
                f"disque-index: the column {name} is missing; write the columns that disque-events gives; further "
                "columns are allowed"
            )
    own = {name.lower() for name in (DAY, FINAL, SINCE, *KEYS)}
    given: set[str] = set()
    for field in columns:
        # Delta's names are the same in any case.
        name = field.name.lower()
        if name in own:
            raise IndexSchemaError(f"disque-index: the index itself adds the column {name}; rename yours")
        if name in given:
            raise IndexSchemaError(f"disque-index: there are two columns {name}; rename one, or leave it out")
        given.add(name)
        if field.name in ARROW_SCHEMA.names and field.type != ARROW_SCHEMA.field(field.name).type:
            raise IndexSchemaError(
                f"disque-index: column {field.name} is {field.type}, but must be "
                f"{ARROW_SCHEMA.field(field.name).type}; cast it"
            )
        if not _is_kept(field):
            raise IndexSchemaError(
                f"disque-index: column {field.name} is {field.type}, which no table can have; cast it"
            )


def _is_kept(field: pa.Field) -> bool:
    """Return whether a Delta table can have the column."""
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception:  # delta-rs has no type for this error.
        return False
    return True


def open_tables(store: Store, columns: pa.Schema) -> tuple[DeltaTable, DeltaTable]:
    """Return (history, current). The tables are made or widened so that rows with these columns fit.

    Raises TableError if a newer version wrote a table, or if `current` is lost or its rebuild has not ended. Raises
    IndexSchemaError if a column has another type in the table.
    """
    check_columns(columns)
    history = _open(store.under(HISTORY), history_schema(columns), [DAY])
    check_not_lost(store)
    current = make_current(store, columns)
    check_complete(store, current)
    return history, current


def make_current(store: Store, columns: pa.Schema, *, is_rebuilding: bool = False) -> DeltaTable:
    """Return the table of newest events, made or widened for rows with these columns. Raises as `open_tables`.

    With `is_rebuilding` a table that is made here says from the beginning that it lacks jobs.
    """
    return _open(store.under(CURRENT), current_schema(columns), None, {REBUILDING: "1"} if is_rebuilding else None)


def make_changes(store: Store, columns: pa.Schema) -> DeltaTable:
    """Return the table of waiting changes, made or widened for rows with these columns. Raises as `open_tables`."""
    wanted = current_schema(columns).append(pa.field(SINCE, pa.int64()))
    return _open(store.under(CHANGES), wanted, None)


def _open(
    store: Store, wanted: pa.Schema, partition: list[str] | None, properties: dict[str, str] | None = None
) -> DeltaTable:
    wanted = pa.schema([field.with_type(plain(field.type)) for field in wanted])
    try:
        if not store.exists():
            DeltaTable.create(
                store.path,
                wanted,
                mode="ignore",
                partition_by=partition,
                description=DESCRIPTION.format(FORMAT),
                configuration=CONFIGURATION | (properties or {}),
                storage_options=store.options or None,
                raise_if_key_not_exists=False,
            )
    except (DeltaError, OSError) as error:
        raise no_storage(store, error) from None
    table = store.table()
    check_format(store, table)
    have = arrow_schema(table)
    new = []
    for field in wanted:
        if field.name not in have.names:
            new.append(field)
        elif have.field(field.name).type != field.type:
            raise IndexSchemaError(
                f"disque-index: column {field.name} is {field.type}, but in {store.path} it is "
                f"{have.field(field.name).type}; cast it or give it another name"
            )
    if new:
        # The property is set first, so a crash between the two steps only makes readers check files in vain. In the
        # other order, readers would not expect files that lack the column.
        now_ms = time.time_ns() // 1_000_000
        table.alter.set_table_properties({WIDENED: str(now_ms)}, raise_if_not_exists=False)
        table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
        table.update_incremental()
    return table


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return a table's columns with the types that files and events have."""
    return pa.schema([pa.field(field.name, plain(field.type)) for field in pa.schema(table.schema().to_arrow())])


def plain(kind: pa.DataType) -> pa.DataType:
    """Replace the variants of a type: views, large strings, other names of elements, and parts that can't be null.

    Spark makes such parts, for example by named_struct(). Rows that are older than the column lack them.
    """
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, plain(part.type)) for part in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if kind in (pa.string_view(), pa.large_string()):
        return pa.string()
    if kind in (pa.binary_view(), pa.large_binary()):
        return pa.binary()
    return kind
