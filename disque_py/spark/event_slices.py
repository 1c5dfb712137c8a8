"""Slices: rows that carry many events each, as lines and packed; and events out of them again.

A row says whose log it is, the number of its first event and how many there are; `lines` is their
NDJSON as one LZ4 block, `size` its bytes when unpacked. Events in a slice are in a row, without gaps.
Needs pyarrow; Spark is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from disque_py.spark.event_lines import LineReader

CODEC: Final = "lz4_raw"
SLICE_SPARK_SCHEMA: Final = "node string, log string, seq bigint, count bigint, size bigint, lines binary"
SLICE_SCHEMA: Final = pa.schema(
    [
        ("node", pa.string()),
        ("log", pa.string()),
        ("seq", pa.int64()),
        ("count", pa.int64()),
        ("size", pa.int64()),
        ("lines", pa.binary()),
    ]
)


def is_slices(columns: pa.Schema) -> bool:
    """Whether rows with these columns are slices."""
    return "lines" in columns.names and all(name in columns.names for name in SLICE_SCHEMA.names)


def slice_of(node: str, log: str, seq: int, lines: bytes) -> pa.RecordBatch:
    """Whole lines, of events from number `seq` on, as one row."""
    packed = pa.compress(lines, codec=CODEC, asbytes=True)
    row = [[node], [log], [seq], [lines.count(b"\n")], [len(lines)], [packed]]
    return pa.RecordBatch.from_arrays(
        [pa.array(value, field.type) for value, field in zip(row, SLICE_SCHEMA, strict=True)], schema=SLICE_SCHEMA
    )


def events_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The events in rows that are slices. Raises ValueError when a slice holds others than it says."""
    reader = LineReader()
    for batch in batches:
        columns = [batch.column(name) for name in SLICE_SCHEMA.names]
        for row in range(len(batch)):
            node, log, seq, count, size = (column[row].as_py() for column in columns[:5])
            lines = pa.decompress(columns[5][row].as_buffer(), decompressed_size=size, codec=CODEC, asbytes=True)
            events = reader.batch(node, log, lines)
            numbers = events.column("seq")
            if len(events) != count or numbers[0].as_py() != seq or numbers[count - 1].as_py() != seq + count - 1:
                raise ValueError(
                    f"disque-events: a slice of node {node}, log {log} has not the events {seq} to {seq + count - 1}"
                )
            yield events
