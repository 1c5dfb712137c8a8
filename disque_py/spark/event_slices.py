"""Slices: rows that carry many events each. This module packs events into slices, and unpacks them again.

A row names node and log, the number of its first event, and the number of events. `packed` holds the node's reply,
blocks or lines, as one LZ4 block; `size` is its size in bytes when unpacked. The events of a slice are consecutive.
Needs pyarrow; Spark is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.event_format import PACKED_MARK
from disque_py.spark.event_blocks import batches_of
from disque_py.spark.event_lines import LineReader

CODEC: Final = "lz4_raw"
SLICE_SPARK_SCHEMA: Final = "node string, log string, seq bigint, count bigint, size bigint, packed binary"
SLICE_SCHEMA: Final = pa.schema(
    [
        ("node", pa.string()),
        ("log", pa.string()),
        ("seq", pa.int64()),
        ("count", pa.int64()),
        ("size", pa.int64()),
        ("packed", pa.binary()),
    ]
)


def is_slices(columns: pa.Schema) -> bool:
    """Return whether rows with these columns are slices."""
    return "packed" in columns.names and all(name in columns.names for name in SLICE_SCHEMA.names)


def slice_of(node: str, log: str, seq: int, count: int, parts: list[bytes]) -> pa.RecordBatch:
    """Pack `count` events from number `seq` on into one row. Its parts are all lines, or all blocks."""
    data = (
        PACKED_MARK + b"".join(part[len(PACKED_MARK) :] for part in parts)
        if parts[0].startswith(PACKED_MARK)
        else b"".join(parts)
    )
    packed = pa.compress(data, codec=CODEC, asbytes=True)
    row = [[node], [log], [seq], [count], [len(data)], [packed]]
    return pa.RecordBatch.from_arrays(
        [pa.array(value, field.type) for value, field in zip(row, SLICE_SCHEMA, strict=True)], schema=SLICE_SCHEMA
    )


def events_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events of rows that are slices; the events of one slice come in any order.

    Raises ValueError when a slice doesn't have exactly the events that its row names.
    """
    reader = LineReader()
    for batch in batches:
        columns = [batch.column(name) for name in SLICE_SCHEMA.names]
        for row in range(len(batch)):
            node, log, seq, count, size = (column[row].as_py() for column in columns[:5])
            data = pa.decompress(columns[5][row].as_buffer(), decompressed_size=size, codec=CODEC, asbytes=True)
            if data.startswith(PACKED_MARK):
                events = batches_of(node, log, data, seq, count)
            else:
                events = [reader.batch(node, log, data)]
            bounds = [pc.min_max(each.column("seq")).as_py() for each in events]
            if (
                sum(map(len, events)) != count
                or min(bound["min"] for bound in bounds) != seq
                or max(bound["max"] for bound in bounds) != seq + count - 1
            ):
                raise ValueError(
                    f"disque-events: a slice of node {node}, log {log} lacks the events {seq} to {seq + count - 1}"
                )
            yield from events
