"""Delta tables under one path, written in two steps: files by many, a commit by one.

Executors write Parquet files that no table knows yet; the driver makes them part of the table in
one transaction of delta-rs. No jar, and any reader of Delta opens the result. A path is a local
folder or what delta-rs takes as a URI (`s3://…`, `abfss://…`); `storage.*` options are its settings,
used for plain files too.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

# Columns whose smallest and largest values are worth keeping: readers skip files by them.
STATS_COLUMNS: Final = ("ts", "ctime", "seq", "job_id", "node", "version")
# Columns whose values hardly repeat: a dictionary would only cost time.
UNLIKE_VALUES: Final = ("seq", "job_id", "ctime", "body")
# Rows are sorted by job: small groups let a reader of one job skip nearly all of a file.
ROW_GROUP_ROWS: Final = 16_384
# What is written here is soon written again, merged or compacted: quick to write and to read counts.
CODEC: Final = "snappy"
# What stays is packed tighter.
PACKED_CODEC: Final = "zstd"


class TableError(RuntimeError):
    """A table can't be used; the text names its path and says what to do."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and is no part of a table yet."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    stats: str

    def add_action(self, *, changes_data: bool = True) -> AddAction:
        """What makes it part of a table; rows that were there before in other files change no data."""
        return AddAction(self.path, self.size, self.partition, time.time_ns() // 1_000_000, changes_data, self.stats)


@dataclass(frozen=True, slots=True)
class Store:
    """A path and how to get there; plain values, so that it travels to executors."""

    path: str
    options: dict[str, str] = field(default_factory=dict)

    def under(self, name: str) -> Store:
        """A folder below."""
        return Store(f"{self.path.rstrip('/')}/{name}", self.options)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine (or one mounted there)."""
        return "://" not in self.path or self.path.startswith("file://")

    @property
    def local_path(self) -> Path:
        """Of a local one."""
        return Path(self.path.removeprefix("file://"))

    def filesystem(self) -> pafs.FileSystem:
        """For plain files; paths are relative to this store."""
        if self.is_local:
            self.local_path.mkdir(parents=True, exist_ok=True)
            return pafs.SubTreeFileSystem(str(self.local_path.absolute()), pafs.LocalFileSystem())
        # delta-rs's own way, so that one set of credentials opens tables and files.
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.path, self.options or None))

    def check_writable(self) -> None:
        """Whether a folder can be written, or made. Raises TableError; of an object store only its own answers tell."""
        if not self.is_local:
            return
        folder = self.local_path.absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            raise TableError(f"{folder} is no folder, so {self.path} can't be written; name another path")
        try:
            # Rights are not all: what is mounted read-only lets root pass, too.
            os.rmdir(tempfile.mkdtemp(prefix=".disque-", dir=folder))
        except OSError as error:
            raise TableError(
                f"{folder} can't be written ({error.strerror}); name another path, or give this user the right to it"
            ) from None

    def exists(self) -> bool:
        """Whether there is a Delta table here."""
        return bool(DeltaTable.is_deltatable(self.path, self.options or None))

    def table(self) -> DeltaTable:
        """The table as it is now. Raises TableError when there is none or it can't be read."""
        try:
            return DeltaTable(self.path, storage_options=self.options or None)
        except Exception as error:  # delta-rs has no common type for what its stores raise
            raise TableError(f"{self.path} can't be opened as a Delta table: {error}") from error


def write_file(
    store: Store, table: pa.Table, partition: Mapping[str, str] | None = None, *, codec: str = CODEC
) -> NewFile:
    """Write rows as one Parquet file in the folder of their partition, which is no column of them."""
    values = dict(partition or {})
    folder = "".join(f"{name}={value}/" for name, value in values.items())
    path = f"{folder}part-{uuid.uuid4()}.parquet"
    files = store.filesystem()
    if folder and store.is_local:
        files.create_dir(folder.rstrip("/"), recursive=True)
    # Written by hand rather than by name, so that the size is known without asking the store again.
    with files.open_output_stream(path) as sink:
        pq.write_table(
            table,
            sink,
            compression=codec,
            row_group_size=ROW_GROUP_ROWS,
            use_dictionary=_dictionaries(table.schema),
            write_statistics=[name for name in STATS_COLUMNS if name in table.column_names],
            # A file says its types in Parquet's own words; that is what all readers understand.
            store_schema=False,
        )
        size = sink.tell()
    return NewFile(path, size, len(table), values, stats_of(table))


def _dictionaries(schema: pa.Schema) -> list[str]:
    """The columns that get a dictionary, in Parquet's names of their leaves."""
    names: list[str] = []
    for column in schema:
        if pa.types.is_map(column.type):
            names += (f"{column.name}.key_value.key", f"{column.name}.key_value.value")
        elif column.name not in UNLIKE_VALUES:
            names.append(column.name)
    return names


def stats_of(table: pa.Table) -> str:
    """Row count, smallest and largest values, as Delta keeps them for a file."""
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
        # Delta keeps milliseconds: both bounds are whole ones, because events are. And UTC, which Spark calls by the
        # name of its session's time zone.
        return value.cast(pa.timestamp("us", tz="UTC")).as_py().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    return value.as_py()


def read_file(store: Store, path: str) -> pa.Table:
    """A file that `write_file` wrote."""
    with store.filesystem().open_input_file(path) as source:
        return pq.read_table(source)


def read_column(store: Store, path: str, name: str) -> pa.Array:
    """One column of such a file."""
    with store.filesystem().open_input_file(path) as source:
        return pq.ParquetFile(source).read([name], use_threads=False)[name].combine_chunks()


def paths_of(store: Store, table: DeltaTable) -> list[str]:
    """The table's files as DuckDB opens them: of a folder no URIs, in which a blank would be `%20`."""
    if not store.is_local:
        return list(table.file_uris())
    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    return [f"{store.local_path.absolute()}/{path}" for path in paths]


def write_staged(store: Store, table: pa.Table) -> NewFile:
    """Rows for whoever commits: as Arrow keeps them, because they are read once, in a moment."""
    path = f"part-{uuid.uuid4()}.arrow"
    with store.filesystem().open_output_stream(path) as sink:
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        size = sink.tell()
    return NewFile(path, size, len(table), {}, "")


def read_staged(store: Store, path: str) -> pa.Table:
    """A file that `write_staged` wrote. Raises FileNotFoundError."""
    with store.filesystem().open_input_file(path) as source:
        return pa.ipc.open_file(source).read_all()


def delete_files(store: Store, paths: list[str]) -> None:
    """Remove files; those that are gone already do no harm."""
    files = store.filesystem()
    for path in paths:
        with suppress(FileNotFoundError, OSError):
            files.delete_file(path)
