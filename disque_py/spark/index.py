"""The classes behind `format("disque-index")`, which write both indexes and read them.

The classes only adapt: index_writing.py and index_commit.py write, index_reading.py reads. Spark makes a new writer
for every batch, and another one on the driver for its commit. Only messages travel between the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from disque_py.spark.delta_store import Store
from disque_py.spark.event_schema import ARROW_SCHEMA
from disque_py.spark.event_slices import events_of, is_slices
from disque_py.spark.index_commit import IndexCommit
from disque_py.spark.index_current import CurrentPart, current_parts, read_part
from disque_py.spark.index_lock import write_lock
from disque_py.spark.index_reading import TABLES, IndexFile, files_of, read_rows, schema_of
from disque_py.spark.index_schema import CURRENT, check_columns, open_tables
from disque_py.spark.index_writing import IndexTask, Written
from disque_py.spark.options import OptionError, Options, check_days
from disque_py.spark.progress_file import note_batch
from disque_py.spark.upkeep import Retention, maintain, retention_of

FORMAT: Final = "disque-index"
OPTIONS: Final = ("gaps", "table", "since", "until", "compactEvery", "mergeEvery", "currentRetention",
    "historyRetention",
)  # fmt: skip


def store_of(options: Options) -> Store:
    """Return the path and its storage settings. Raises OptionError."""
    path = options.required("path", "/data/disque-index")
    return Store(path, options.with_prefix("storage."))


def _day(options: Options, name: str) -> str:
    """Return an option that is a day, or an empty string. Raises OptionError."""
    text = options.text(name).strip()
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise OptionError(f"{FORMAT}: option {name} must be a day such as 2026-01-31, not {text!r}") from None


def _days(options: Options, table: str) -> tuple[str, str]:
    """Return the first and the last day to read; empty: no bound. Raises OptionError."""
    since, until = _day(options, "since"), _day(options, "until")
    check_days(FORMAT, since, until)
    if table == CURRENT and (since or until):
        raise OptionError(
            f"{FORMAT}: options since and until choose days of history, and {CURRENT} has none; leave them out, and "
            "filter by ts or ctime"
        )
    return since, until


def _options(given: dict[str, str]) -> Options:
    storage = [name for name in given if name.lower().startswith("storage.")]
    return Options(FORMAT, given, (*OPTIONS, "path", *storage))


def writer_options(given: dict[str, str]) -> tuple[Store, Retention, bool]:
    """Return path, retention, and whether event numbers may be missing. Raises OptionError."""
    options = _options(given)
    may_gap = options.choice("gaps", "fail", ("fail", "allow")) == "allow"
    return store_of(options), retention_of(options), may_gap


class IndexMessage(WriterCommitMessage):
    """The report of a task to the driver."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.written = written


class IndexWriter(DataSourceStreamArrowWriter):
    """The writer of both indexes: exactly once."""

    def __init__(
        self, store: Store, columns: pa.Schema, retention: Retention, *, may_gap: bool, as_slices: bool
    ) -> None:
        self._store = store
        self._columns = columns
        self._retention = retention
        self._may_gap = may_gap
        self._as_slices = as_slices

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's files; runs on an executor."""
        return IndexMessage(IndexTask(self._store).write_all(events_of(iterator) if self._as_slices else iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Commit the batch in one transaction; runs on the driver."""
        parts = [message.written for message in messages if isinstance(message, IndexMessage)]
        merge = IndexCommit(
            self._store, self._columns, may_gap=self._may_gap, merge_every_s=self._retention.merge_every_s
        )
        with write_lock(self._store):
            done = merge.commit(parts)
            upkeep_ms = maintain(self._store, self._retention, batchId)
        note_batch(self._store, batchId, asdict(done) | {"upkeep_ms": upkeep_ms})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Remove the files of a batch that failed before its commit; runs on the driver."""
        parts = [message.written for message in messages if isinstance(message, IndexMessage)]
        IndexCommit(self._store, self._columns, may_gap=True).abort(parts)
        print(f"{FORMAT}: batch {batchId} failed; if it was not committed, its files were removed", file=sys.stderr)


class IndexPartition(InputPartition):
    """One file of a table."""

    def __init__(self, file: IndexFile) -> None:
        super().__init__(file)
        self.file = file


class CurrentPartition(InputPartition):
    """Files of `current` with the changes of their jobs."""

    def __init__(self, part: CurrentPart) -> None:
        super().__init__(part)
        self.part = part


class IndexReader(DataSourceReader):
    """The reader of a table, as the table is when the query is planned."""

    def __init__(self, store: Store, table: str, schema: pa.Schema, since: str, until: str) -> None:
        self._store = store
        self._table = table
        self._schema = schema
        self._since = since
        self._until = until

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per file. Files of `current` that have waiting changes may share one."""
        if self._table == CURRENT:
            return [CurrentPartition(part) for part in current_parts(self._store)] or [InputPartition(None)]
        found = files_of(self._store, self._table, self._since, self._until)
        return [IndexPartition(file) for file in found] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition; runs on an executor."""
        if isinstance(partition, CurrentPartition):
            yield from read_part(self._store, partition.part, self._schema)
        if isinstance(partition, IndexPartition):
            yield from read_rows(self._store, self._table, partition.file, self._schema)


class IndexSource(DataSource):
    """The format `disque-index`: the tables `history` and `current` under a path. docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format(…)."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table that option `table` names; by default `history`."""
        options = _options(self.options)
        return from_arrow_schema(schema_of(store_of(options), options.choice("table", TABLES[0], TABLES)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for spark.read. .schema(…) may leave out columns. Raises OptionError, TableError."""
        options = _options(self.options)
        table = options.choice("table", TABLES[0], TABLES)
        kinds = {field.name: field.dataType for field in self.schema().fields}
        for field in schema.fields:
            if kinds.get(field.name) != field.dataType:
                own = f"is {kinds[field.name].simpleString()}" if field.name in kinds else "does not exist"
                raise OptionError(
                    f"{FORMAT}: .schema() asks for {field.name} {field.dataType.simpleString()}, and in the table "
                    f"{table} it {own}; leave .schema() out and select the columns that you need"
                )
        arrow = to_arrow_schema(schema, timezone="UTC")
        return IndexReader(store_of(options), table, arrow, *_days(options, table))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raise OptionError: exactly once needs a stream, whose batches have positions in the logs."""
        raise OptionError(
            f"{FORMAT}: only streams write an index; use writeStream, with trigger(availableNow=True) to end it"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 — Spark's name
        """Return the writer for df.writeStream. It makes or widens the tables before a row is written.

        Raises OptionError, IndexSchemaError, TableError.
        """
        store, retention, may_gap = writer_options(self.options)
        if overwrite:
            raise OptionError(f"{FORMAT}: rows can only be added to an index; use outputMode append")
        # A literal column is not nullable in the DataFrame, but it is null in rows that are older than the column.
        columns = pa.schema([field.with_nullable(True) for field in to_arrow_schema(schema, timezone="UTC")])
        as_slices = is_slices(columns)
        if as_slices:
            columns = ARROW_SCHEMA
        check_columns(columns)
        open_tables(store, columns)
        return IndexWriter(store, columns, retention, may_gap=may_gap, as_slices=as_slices)
