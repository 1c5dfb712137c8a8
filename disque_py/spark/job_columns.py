"""Encoding of DataFrame rows as ADDJOB commands, a whole Arrow batch at a time.

This module alone defines the columns of the sink. A batch becomes one run of bytes. Arrow builds each word of the
commands for all rows together, so encoding a row costs little more than copying it. Words that are the same for all
rows (the options) are encoded once. Needs pyarrow; Spark is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.client.protocol import word
from disque_py.spark.options import OptionError, Options

# Column → the word before its value. All values are whole numbers; delay, retry and ttl are in seconds.
NUMBERS: Final = {
    "replicate": b"REPLICATE",
    "delay": b"DELAY",
    "retry": b"RETRY",
    "ttl": b"TTL",
    "priority": b"PRIORITY",
    "attempts": b"ATTEMPTS",
}
COLUMNS: Final = ("body", "queue", *NUMBERS, "meta", "dedupKey")
# How long ADDJOB waits until the job has all its copies.
TIMEOUT_MS: Final = 5_000

ADD_OPTIONS: Final = ("queue", *NUMBERS, "maxlen", "async", "timeoutMs", "autoKey")

_TEXT: Final = ("string", "binary")
_WHOLE: Final = ("byte", "short", "integer", "long")
PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
# Rows are encoded in slices of about this size: the bytes of a slice must fit into one Arrow array.
SLICE_BYTES: Final = 64 << 20
# The connection gets this many commands at a time.
CHUNK_ROWS: Final = 64


class SchemaError(ValueError):
    """The DataFrame's columns don't fit the sink. The text names the column and says what to do."""


def check_columns(names_and_types: Sequence[tuple[str, str]], *, has_queue_option: bool) -> None:
    """Check that a DataFrame can be written. Types have Spark's short names. Raises SchemaError."""
    names = {name.lower(): name for name in COLUMNS}
    given: set[str] = set()
    for name, kind in names_and_types:
        if name.lower() not in names:
            raise SchemaError(
                f"disque: the sink has no column {name!r}; it takes {', '.join(COLUMNS)}; leave the column out with "
                "select(), or put it into body or meta"
            )
        if name.lower() in given:  # Spark allows such DataFrames.
            raise SchemaError(f"disque: there are two columns {name.lower()}; leave one out with select()")
        given.add(name.lower())
        known = names[name.lower()]
        wanted = _TEXT if known in ("body", "queue", "dedupKey") else _WHOLE if known in NUMBERS else None
        if wanted is not None and kind not in wanted:
            raise SchemaError(f"disque: column {name} is {kind}, but must be {' or '.join(wanted)}; cast it")
        if known == "meta" and kind != "map<string,string>":
            raise SchemaError(f"disque: column {name} is {kind}, but must be map<string,string>; cast it")
    if "body" not in given:
        raise SchemaError("disque: the column body is missing; name the column with the jobs' data .alias('body')")
    if "queue" not in given and not has_queue_option:
        raise SchemaError('disque: there is no column queue and no option queue; add .option("queue", "<name>")')


@dataclass(frozen=True, slots=True)
class AddWords:
    """The words that all rows share.

    queue      the option, which overrides the column; empty: the column counts
    timeout    the word after the body
    options    by column: the value for rows that have none in that column
    more       further words of every command
    auto_key   make a key for rows without one
    """

    queue: bytes
    timeout: bytes
    options: dict[str, int]
    more: tuple[bytes, ...]
    auto_key: bool


def add_words(options: Options) -> AddWords:
    """Return the words that the sink's options give. Raises OptionError."""
    numbers = {name: options.integer_or_none(name, -(2**63) if name == "priority" else 0) for name in NUMBERS}
    more: list[bytes] = []
    maxlen = options.integer_or_none("maxlen")
    if maxlen is not None:
        more += (b"MAXLEN", b"%d" % maxlen)
    if options.flag("async", default=False):
        more.append(b"ASYNC")
    if numbers["replicate"] == 0:
        raise OptionError("disque: option replicate must be at least 1, not 0")
    return AddWords(
        queue=word(options.text("queue")),
        timeout=b"%d" % options.integer("timeoutMs", TIMEOUT_MS),
        options={name: value for name, value in numbers.items() if value is not None},
        more=tuple(more),
        auto_key=options.flag("autoKey", default=False),
    )


@dataclass(slots=True)
class Commands:
    """Encoded rows: the bytes from offset i to offset i + 1 are command i. `rows` are the rows that were encoded."""

    data: memoryview
    offsets: list[int]
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def chunks(self, first: int) -> Iterator[tuple[bytes, int]]:
        """Yield the commands from row `first` on, in chunks: (bytes, number of commands)."""
        for at in range(first, len(self), CHUNK_ROWS):
            end = min(at + CHUNK_ROWS, len(self))
            yield bytes(self.data[self.offsets[at] : self.offsets[end]]), end - at


def encode(batch: pa.RecordBatch, words: AddWords, key_prefix: str = "", first_row: int = 0) -> Iterator[Commands]:
    """Encode a batch as commands, in parts that fit into memory. All its rows must have passed `rows_refused`.

    With `words.auto_key`, a row without a key gets one: `key_prefix` and the row's number, counted from `first_row`.
    """
    batch = batch.rename_columns([canonical(name) for name in batch.schema.names])
    parts = max(1, min(len(batch), batch.nbytes // SLICE_BYTES + 1))
    for part in range(parts):
        start, end = len(batch) * part // parts, len(batch) * (part + 1) // parts
        if start < end:
            yield _encode(batch.slice(start, end - start), words, key_prefix, first_row + start)


def rows_refused(batch: pa.RecordBatch, words: AddWords) -> dict[int, str]:
    """Return the rows that can't be jobs: their positions in the batch, each with the reason."""
    columns = {canonical(name): batch.column(at) for at, name in enumerate(batch.schema.names)}
    found: dict[int, str] = {}

    def note(rows: pa.Array, why: str) -> None:
        for row in rows.to_pylist():
            found.setdefault(row, why)

    for name in ("body",) if words.queue else ("body", "queue"):
        if columns[name].null_count:
            note(pc.indices_nonzero(columns[name].is_null()), f"the column {name} is null")
    if "meta" in columns:
        lists = columns["meta"].cast(PAIRS)
        values = lists.flatten().field("value")
        if values.null_count:
            rows = pc.list_parent_indices(lists).filter(values.is_null()).unique()
            note(rows, "a value in the column meta is null")
    return dict(sorted(found.items()))


def canonical(name: str) -> str:
    """Return the sink's spelling of a column name; Spark compares names without case."""
    return next((known for known in COLUMNS if known.lower() == name.lower()), name)


def _encode(batch: pa.RecordBatch, words: AddWords, key_prefix: str, first_row: int) -> Commands:
    columns = {name: batch.column(name) for name in batch.schema.names}
    count = len(batch)
    queue = _bulk_of(words.queue) if words.queue else _bulks(columns["queue"])
    pieces: list[Any] = [_bulk_of(b"ADDJOB"), queue, _bulks(columns["body"]), _bulk_of(words.timeout)]
    # Words per command: a fixed number, and a number that depends on the row.
    fixed, counts = 4 + len(words.more), None
    pieces += [_bulk_of(value) for value in words.more]
    for name, label in NUMBERS.items():
        column = columns.get(name)
        if column is not None:
            column = column.cast(pa.int64())
        if name in words.options:
            value = words.options[name]
            column = pa.scalar(value, pa.int64()) if column is None else pc.fill_null(column, value)
        if column is None:
            continue
        if isinstance(column, pa.Scalar):
            pieces += [_bulk_of(label), _bulk_of(b"%d" % column.as_py())]
            fixed += 2
        else:
            piece, has = _optional(label, column.cast(pa.string()))
            pieces.append(piece)
            counts = _sum(counts, has, 2)
    if "meta" in columns and columns["meta"].null_count < count:
        piece, pairs = _meta(columns["meta"])
        pieces.append(piece)
        counts = _sum(counts, pairs, 3)
    key = _keys(columns.get("dedupKey"), words, key_prefix, first_row, count)
    if key is not None:
        piece, has = _optional(b"KEY", key)
        pieces.append(piece)
        counts = _sum(counts, has, 2)
    head: Any = b"*%d\r\n" % fixed
    if counts is not None:
        head = _join([b"*", pc.add(counts, fixed).cast(pa.string()), b"\r\n"], count)
    commands = _join([head, *pieces], count)
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, commands.buffers()[1]], offset=commands.offset)
    data = commands.buffers()[2]
    return Commands(memoryview(b"" if data is None else data), offsets.to_pylist(), batch)


def _bulk_of(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def _bulks(column: pa.Array) -> pa.Array:
    binary = column.cast(pa.binary())
    return _join([b"$", pc.binary_length(binary).cast(pa.string()), b"\r\n", binary, b"\r\n"], len(column))


def _optional(label: bytes, column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return a word and its value for rows that have a value, and 1 or 0 for each row."""
    has = column.is_valid()
    piece = _join(
        [_bulk_of(label), _bulks(pc.fill_null(column, b"" if pa.types.is_binary(column.type) else ""))], len(column)
    )
    return pc.if_else(has, piece, pa.scalar(b"", pa.binary())), has.cast(pa.int64())


def _meta(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return `META key value` for every pair of every row, and the number of pairs of each row."""
    # A slice shares the child arrays of the whole column. `flatten` takes only the part of the slice.
    lists = column.cast(PAIRS)
    pairs = lists.flatten()
    piece = _join([_bulk_of(b"META"), _bulks(pairs.field("key")), _bulks(pairs.field("value"))], len(pairs))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, piece), pa.scalar(b"", pa.binary())), lengths


def _keys(column: pa.Array | None, words: AddWords, prefix: str, first_row: int, count: int) -> pa.Array | None:
    if column is not None:
        column = column.cast(pa.binary())
    if not words.auto_key:
        return column
    numbers = pa.array(range(first_row, first_row + count), pa.int64()).cast(pa.string())
    made = _join([prefix.encode() + b"/", numbers], count)
    return made if column is None else pc.coalesce(column, made)


def _join(pieces: list[Any], count: int) -> pa.Array:
    """Join the pieces of each row. A piece that is bytes is the same for every row; adjacent ones are merged first."""
    merged: list[Any] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    arrays = [
        pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece.cast(pa.binary()) for piece in merged
    ]
    joined = pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.binary()))
    return pa.repeat(joined, count) if isinstance(joined, pa.Scalar) else joined


def _sum(counts: pa.Array | None, more: pa.Array, times: int) -> pa.Array:
    product = pc.multiply(more, times)
    return product if counts is None else pc.add(counts, product)
