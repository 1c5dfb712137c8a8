"""event_slices.py: many events are packed into a row, and unpacked again."""

from __future__ import annotations

import json
import struct

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.event_format import PACKED_MARK
from disque_py.spark.event_lines import LineReader
from disque_py.spark.event_slices import SLICE_SCHEMA, events_of, is_slices, slice_of


def lines(first: int, after: int) -> bytes:
    return b"".join(
        json.dumps({"seq": seq, "ts": 5, "job_id": f"D-{seq}"}).encode() + b"\n" for seq in range(first, after)
    )


def blocks(first: int, after: int, size: int) -> bytes:
    parts = [PACKED_MARK]
    for seq in range(first, after, size):
        events = [(1, b"D-%d" % at, 10**18, b"q", 5) for at in range(seq, min(seq + size, after))]
        body = msgpack.packb(events)
        parts.append(struct.pack("<IIQQ", len(body), len(events), seq, 5) + body)
    return b"".join(parts)


def test_a_slice_is_one_row_and_gives_its_events_back():
    packed = slice_of("n1", "l1", 7, 20, [lines(7, 27)])
    assert (len(packed), packed.schema) == (1, SLICE_SCHEMA)
    assert packed.to_pylist()[0] | {"packed": b""} == {
        "node": "n1", "log": "l1", "seq": 7, "count": 20, "size": len(lines(7, 27)), "packed": b""
    }  # fmt: skip
    assert list(events_of([packed])) == [LineReader().batch("n1", "l1", lines(7, 27))]


def test_a_slice_may_be_blocks_with_further_events():
    packed = slice_of("n1", "l1", 7, 20, [blocks(5, 17, 4), blocks(17, 33, 8)])
    found = pa.Table.from_batches(events_of([packed]))
    assert found["seq"].to_pylist() == list(range(7, 27))
    assert found["job_id"].to_pylist() == [f"D-{seq}" for seq in range(7, 27)]


def test_rows_are_slices_by_their_columns():
    assert is_slices(SLICE_SCHEMA)
    assert not is_slices(pa.schema([("node", pa.string()), ("packed", pa.binary())]))


def test_a_slice_that_holds_other_events_than_it_states_is_refused():
    with pytest.raises(ValueError, match="a slice of node n1, log l1 lacks the events 8 to 12"):
        list(events_of([slice_of("n1", "l1", 8, 5, [lines(7, 12)])]))
    with pytest.raises(ValueError, match="a slice of node n1, log l1 lacks the events 5 to 12"):
        list(events_of([slice_of("n1", "l1", 5, 8, [blocks(6, 13, 4)])]))
