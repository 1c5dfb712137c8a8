"""The writers behind `format("disque")`, for `df.write` and `df.writeStream`: rows become jobs.

The classes only adapt: job_columns.py encodes, adding.py sends. The driver checks options and columns, and contacts
the cluster, before a row is written.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from disque_py.spark.adding import FAIL, ROUTE, SKIP, Adder
from disque_py.spark.delta_store import NewFile, Store, write_file
from disque_py.spark.index_changes import COMMIT_TRIES
from disque_py.spark.index_schema import arrow_schema, plain
from disque_py.spark.job_columns import ADD_OPTIONS, AddWords, SchemaError, add_words, canonical, check_columns
from disque_py.spark.nodes import Nodes
from disque_py.spark.options import CONNECTION_OPTIONS, ClusterOptions, OptionError, Options, cluster_options

FORMAT: Final = "disque"
OPTIONS: Final = (*CONNECTION_OPTIONS, *ADD_OPTIONS, "onError", "errorsPath")

# A task holds this many bytes of refused rows in memory before it writes them to a file.
ROUTED_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write. `run` is random, so that the automatic keys of two batch writes differ."""

    cluster: ClusterOptions
    words: AddWords
    on_error: str
    errors: Store | None
    run: str


class SinkMessage(WriterCommitMessage):
    """The report of a task to the driver."""

    def __init__(self, rows: int, added: int, refused: Counter[str], routed: list[NewFile], schema: pa.Schema) -> None:
        super().__init__()
        self.rows = rows
        self.added = added
        self.refused = refused
        self.routed = routed
        self.schema = schema


def sink_options(given: dict[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    """Check the options and columns of a write, contact the cluster, and return the options.

    Raises OptionError, SchemaError, ClusterError.
    """
    storage = [name for name in given if name.lower().startswith("storage.")]
    options = Options(FORMAT, given, (*OPTIONS, *storage))
    if overwrite:
        raise OptionError(f"{FORMAT}: jobs can only be added; use mode('append')")
    cluster = cluster_options(options)
    words = add_words(options)
    kinds = [(field.name, field.dataType) for field in schema.fields]
    check_columns(
        [(name, kind.simpleString() if kind.typeName() == "map" else kind.typeName()) for name, kind in kinds],
        has_queue_option=bool(words.queue),
    )
    on_error = options.choice("onError", FAIL, (FAIL, SKIP, ROUTE))
    errors = None
    if on_error != ROUTE and options.has("errorsPath"):
        raise OptionError(f"{FORMAT}: option errorsPath needs onError={ROUTE}, and onError is {on_error}")
    if on_error == ROUTE:
        errors = Store(options.required("errorsPath", "/data/refused-rows"), options.with_prefix("storage."))
        if errors.exists():
            check_refused(errors.table(), to_arrow_schema(schema, timezone="UTC"))
    nodes = Nodes(cluster)
    try:
        nodes.discover()
    finally:
        nodes.close()
    return SinkOptions(cluster, words, on_error, errors, uuid.uuid4().hex)


def check_refused(table: DeltaTable, rows: pa.Schema) -> list[pa.Field]:
    """Return the columns of refused rows that their table lacks. Raises SchemaError if it has one with another type.

    One file with another type makes the whole table unreadable. Readers ignore columns that the table does not know.
    """
    have = arrow_schema(table)
    new = []
    for field in rows:
        name, kind = canonical(field.name), plain(field.type)
        if name not in have.names:
            new.append(pa.field(name, kind))
        elif have.field(name).type != kind:
            raise SchemaError(
                f"{FORMAT}: column {name} is {kind}, but in the table of option errorsPath ({table.table_uri}) it is "
                f"{have.field(name).type}; cast it, or name another errorsPath"
            )
    return new


def _key_prefix(run: str, *, is_stream: bool) -> str:
    """Return a prefix that only this task's rows have. It is the same when Spark repeats the task.

    In a stream, it is also the same when Spark repeats the batch. A function of foreachBatch may write several times in
    one batch, and the rows of these writes are different ones. So each of them is a batch write of its own.
    """
    context: Any = TaskContext.get()
    if not is_stream:
        return f"{run}/{context.partitionId()}"
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{context.getLocalProperty('sql.streaming.queryId')}/{batch}/{context.partitionId()}"


class RefusedRows:
    """The refused rows of a task, in files of about ROUTED_BYTES: a broker may refuse all rows of a large task.

    files    the files so far
    schema   the columns of the rows
    """

    def __init__(self, store: Store) -> None:
        self.files: list[NewFile] = []
        self.schema = pa.schema([])
        self._store = store
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows, and write a file when there are enough."""
        self.schema = rows.schema
        self._waiting.append(rows)
        self._size += rows.nbytes
        if self._size >= ROUTED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are in no file yet."""
        if self._waiting:
            self.files.append(write_file(self._store, pa.Table.from_batches(self._waiting)))
            self._waiting, self._size = [], 0


def add_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch], *, is_stream: bool) -> SinkMessage:
    """Send a task's rows. Raises RefusedError, ClusterError."""
    prefix = _key_prefix(options.run, is_stream=is_stream) if options.words.auto_key else ""
    if options.errors is None:
        tally = Adder(options.cluster, options.words, options.on_error, prefix).add_all(batches)
        return SinkMessage(tally.rows, tally.added, tally.refused, [], pa.schema([]))
    refused = RefusedRows(options.errors)
    tally = Adder(options.cluster, options.words, options.on_error, prefix, refused.add).add_all(batches)
    refused.flush()
    return SinkMessage(tally.rows, tally.added, tally.refused, refused.files, refused.schema)


def finish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Add refused rows to their table, and print one line if there were any; runs on the driver."""
    done = [message for message in messages if isinstance(message, SinkMessage)]
    refused: Counter[str] = sum((message.refused for message in done), Counter())
    files = [file for message in done for file in message.routed]
    if files and options.errors is not None:
        schema = next(message.schema for message in done if message.routed)
        for left in reversed(range(COMMIT_TRIES)):
            try:
                _append(options.errors, files, schema)
                break
            except CommitFailedError:
                # Another query has added columns to the table meanwhile.
                if not left:
                    raise
    if refused:
        counts = ", ".join(f"{code} {count}" for code, count in sorted(refused.items()))
        where = f"; they are in {options.errors.path}" if options.errors is not None else "; they were skipped"
        rows = sum(message.rows for message in done)
        print(
            f"{FORMAT}: {what}: {sum(refused.values())} of {rows} rows were refused ({counts}){where}", file=sys.stderr
        )


def _append(store: Store, files: list[NewFile], schema: pa.Schema) -> None:
    """Add files to a table of refused rows, which is made or gets new columns.

    Raises CommitFailedError when another query changes its columns meanwhile, and SchemaError.
    """
    table = DeltaTable.create(store.path, schema, mode="ignore", storage_options=store.options or None)
    new = check_refused(table, schema)
    if new:
        table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
        table.update_incremental()
    table.create_write_transaction(
        [file.add_action() for file in files],
        mode="append",
        schema=table.schema(),
        commit_properties=CommitProperties(max_commit_retries=COMMIT_TRIES),
    )


class JobWriter(DataSourceArrowWriter):
    """A batch write: at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows; runs on an executor."""
        return add_rows(self._options, iterator, is_stream=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Handle the refused rows of all tasks; runs on the driver."""
        finish(self._options, messages, "write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Print that the added jobs stay, because a broker has no transactions."""
        added = sum(message.added for message in messages if isinstance(message, SinkMessage))
        print(f"{FORMAT}: the write failed; at least {added} jobs were added and stay", file=sys.stderr)


class JobStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows; runs on an executor."""
        return add_rows(self._options, iterator, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Handle the refused rows of all tasks; runs on the driver."""
        finish(self._options, messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Print that the added jobs stay, as for a batch write."""
        added = sum(message.added for message in messages if isinstance(message, SinkMessage))
        print(f"{FORMAT}: batch {batchId} failed; at least {added} jobs were added and stay", file=sys.stderr)
