"""Delta tables under one path, written in two steps: executors write files, the driver commits them.

Executors write Parquet files that no table knows yet. The driver adds them to the table in one transaction of
delta-rs. This needs no jar, and any reader of Delta opens the result. A path is a local folder or a URI of delta-rs
(`s3://…`, `abfss://…`). `storage.*` options are its settings, also for plain files.
"""

from __future__ import annotations

import inspect
import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from disque_py.spark.store import Store as Store
from disque_py.spark.store import TableError as TableError
from disque_py.spark.store import paths_of as paths_of

# The smallest and largest values of these columns are kept: readers skip files by them.
STATS_COLUMNS: Final = ("ts", "ctime", "seq", "job_id", "node", "version")
# The values of these columns hardly repeat, so a dictionary would only cost time.
UNLIKE_VALUES: Final = ("seq", "job_id", "ctime", "body")
# Rows are sorted by job: small groups let a reader of one job skip nearly all of a file.
ROW_GROUP_ROWS: Final = 16_384
# A reader looks for one job. Ids are random, so the smallest and largest id of a file rarely rule it out.
FILTERED: Final = "job_id"
FALSE_SHARE: Final = 0.01
HAS_FILTERS: Final = "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters
# Most files are soon merged or compacted, so fast writing and reading matter more than size.
CODEC: Final = "snappy"
# Files that stay are compressed better.
PACKED_CODEC: Final = "zstd"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and is not part of a table yet."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    stats: str

    def add_action(self, *, changes_data: bool = True) -> AddAction:
        """Return the action that adds the file to a table. `changes_data` is false for rows from other files."""
        return AddAction(self.path, self.size, self.partition, time.time_ns() // 1_000_000, changes_data, self.stats)


def write_file(
    store: Store, table: pa.Table, partition: Mapping[str, str] | None = None, *, codec: str = CODEC
) -> NewFile:
    """Write rows as one Parquet file in the folder of their partition. The partition is not among their columns."""
    values = dict(partition or {})
    folder = "".join(f"{name}={value}/" for name, value in values.items())
    path = f"{folder}part-{uuid.uuid4()}.parquet"
    files = store.filesystem()
    if folder and store.is_local:
        files.create_dir(folder.rstrip("/"), recursive=True)
    # Writing to a stream gives the size without asking the store for it.
    with files.open_output_stream(path) as sink:
        pq.write_table(
            table,
            sink,
            compression=codec,
            row_group_size=ROW_GROUP_ROWS,
            use_dictionary=_dictionaries(table.schema),
            write_statistics=[name for name in STATS_COLUMNS if name in table.column_names],
            **_filters(table),
            # Without Arrow's own schema, the file has Parquet's types alone, which all readers understand.
            store_schema=False,
        )
        size = sink.tell()
    return NewFile(path, size, len(table), values, stats_of(table))


def _filters(table: pa.Table) -> dict[str, Any]:
    """Return the options for a Bloom filter of job ids, by which readers skip row groups. Older pyarrow has none."""
    if not HAS_FILTERS or FILTERED not in table.column_names:
        return {}
    return {"bloom_filter_options": {FILTERED: {"ndv": min(len(table), ROW_GROUP_ROWS), "fpp": FALSE_SHARE}}}


def _dictionaries(schema: pa.Schema) -> list[str]:
    """Return the columns that get a dictionary, under Parquet's names of their leaves."""
    names: list[str] = []
    for column in schema:
        if pa.types.is_map(column.type):
            names += (f"{column.name}.key_value.key", f"{column.name}.key_value.value")
        elif column.name not in UNLIKE_VALUES:
            names.append(column.name)
    return names


def stats_of(table: pa.Table) -> str:
    """Return row count, smallest and largest values in Delta's format for a file."""
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in STATS_COLUMNS:
        if name not in table.column_names or not len(table):
            continue
        bounds = pc.min_max(table[name])
        nulls[name] = table[name].null_count
        if bounds["min"].is_valid:
            smallest[name], largest[name] = _stat(bounds["min"]), _stat(bounds["max"])
    return json.dumps({"numRecords": len(table), "minValues": smallest, "maxValues": largest, "nullCount": nulls})


def _stat(value: pa.Scalar) -> Any:
    if pa.types.is_timestamp(value.type):
        # Delta keeps milliseconds. Both bounds are whole milliseconds, because the times of events are. The times are
        # UTC, but Spark labels them with its session's time zone.
        return value.cast(pa.timestamp("us", tz="UTC")).as_py().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    return value.as_py()


def read_file(store: Store, path: str) -> pa.Table:
    """Read a file that `write_file` wrote."""
    with store.filesystem().open_input_file(path) as source:
        return pq.read_table(source)


def read_column(store: Store, path: str, name: str) -> pa.Array:
    """Read one column of such a file."""
    with store.filesystem().open_input_file(path) as source:
        return pq.ParquetFile(source).read([name], use_threads=False)[name].combine_chunks()


def write_staged(store: Store, table: pa.Table) -> NewFile:
    """Write rows for the driver in Arrow's format, which is fast: the driver reads them once, a moment later."""
    path = f"part-{uuid.uuid4()}.arrow"
    with store.filesystem().open_output_stream(path) as sink:
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        size = sink.tell()
    return NewFile(path, size, len(table), {}, "")


def read_staged(store: Store, path: str) -> pa.Table:
    """Read a file that `write_staged` wrote. Raises FileNotFoundError."""
    with store.filesystem().open_input_file(path) as source:
        return pa.ipc.open_file(source).read_all()


def delete_files(store: Store, paths: list[str]) -> None:
    """Remove files. Missing files are ignored."""
    files = store.filesystem()
    for path in paths:
        with suppress(FileNotFoundError, OSError):
            files.delete_file(path)
