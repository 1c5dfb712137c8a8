"""event_blocks.py: blocks of packed events become the columns that their lines would have become."""

from __future__ import annotations

import struct

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py import event_format
from disque_py.core.event_lines import Lines
from disque_py.event_format import PACKED_MARK
from disque_py.spark.event_blocks import batches_of, end_of
from disque_py.spark.event_lines import LineReader

ID = b"D-d15b070d-nXjPpnObB03yf/0KKtZUpGLW-05a1"
CTIME = 1_795_307_000_123_000_007
MS = 1_795_307_000_500


def full(code: int, *more: dict[str, object], queue: bytes = b"mail", left: int = 3, since: int = MS - 20) -> tuple:
    return (code, ID, 3, left, since, 2, 1, 4, CTIME, queue, 75, *more)


def packed(*blocks: list[tuple], first: int = 1) -> bytes:
    parts = [PACKED_MARK]
    for block in blocks:
        body = msgpack.packb(block)
        parts.append(struct.pack("<IIQQ", len(body), len(block), first, MS) + body)
        first += len(block)
    return b"".join(parts)


def rows(batches: list[pa.RecordBatch]) -> list[dict]:
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: row["seq"])


def of_lines(block: list[tuple], first: int = 1) -> list[dict]:
    lines = Lines()
    # One at a time: an id that is not text is read the slow way, and nothing else is.
    data = "".join(line for at, event in enumerate(block, first) for line in lines.of(at, MS, [event])).encode()
    return rows([LineReader().batch("n1", "l1", data)])


EVENTS = {
    "usual": [
        (event_format.ADDED, ID, CTIME, b"mail", 75),
        (event_format.DELIVERED, ID, 2, MS - 30, 1, 0, 0, CTIME, b"mail", 75),
        (event_format.DELIVERED, ID, 2, 0, 1, 0, 0, CTIME, b"news", 0),
        full(event_format.ACKED),
    ],
    "every code": [
        full(code, left=code % 8) for code in event_format.CODES if event_format.DELIVERED < code < event_format.STARTED
    ],
    "with metadata": [
        full(event_format.ACKED, {"meta": (b"carrier", b"UA", b"dest", b"\xc3\xa9"), "priority": -5}),
        full(event_format.LOST, {"error": "the body can't be read"}),
        full(event_format.NACKED, {"meta": (b"carrier", b"2026-01-01")}),
    ],
    "of the node": [(event_format.STARTED, {"reason": "memory lost"}), (event_format.FLUSHED, {})],
    "with bodies": [
        full(event_format.ADDED_ANYHOW, {"body": b"text"}, left=0, since=0),
        full(event_format.ADDED_ANYHOW, {"body": b"\xff"}, left=0, since=0),
    ],
    "no text": [full(event_format.ACKED, queue=b"\xff\xfe"), full(event_format.ACKED, {"meta": (b"a", b"\xff")})],
    "of a later version": [full(31), full(40)],
}


@pytest.mark.parametrize("what", EVENTS)
def test_blocks_give_the_same_columns_as_lines(what):
    found = rows(batches_of("n1", "l1", packed(EVENTS[what]), 1, len(EVENTS[what])))
    for row, expected in zip(found, of_lines(EVENTS[what]), strict=True):
        # The reader of lines can't distinguish an empty map from a missing one.
        assert row | {"meta": row["meta"] or None} == expected | {"meta": expected["meta"] or None}


def test_a_state_of_a_later_version_is_unknown():
    found = rows(batches_of("n1", "l1", packed([full(event_format.ACKED, left=9)]), 1, 1))
    assert [(row["from_state"], row["to_state"]) for row in found] == [(None, "completed")]


def test_events_outside_the_requested_range_are_left_out():
    block = [(event_format.ADDED, ID, CTIME + at, b"mail", at) for at in range(10)]
    data = packed(block, block, block, first=11)
    assert end_of(data) == 41
    assert [row["seq"] for row in rows(batches_of("n1", "l1", data, 15, 20))] == [*range(15, 35)]
    assert [row["seq"] for row in rows(batches_of("n1", "l1", data, 22, 2))] == [22, 23]


def test_truncated_or_invalid_blocks_are_refused():
    data = packed(EVENTS["usual"])
    for broken in (data[:-1], data[:20], data[:25] + b"\xc1" * (len(data) - 25)):
        with pytest.raises(ValueError, match=r"block of event"):
            batches_of("n1", "l1", broken, 1, 4)
