"""Decoding of packed events into Arrow batches, without NDJSON lines in between.

`EVENTS READ … FORMAT PACKED` gives blocks. A block is a head (bytes, number of events, number of the first, Unix ms)
and the events, packed with msgpack (docs/events.md). Writing an event as a line and reading it again costs several
times as much as unpacking it. A few events have very rare fields, or are events of the node. They are decoded like
lines (event_lines.py). Rows come grouped by the shape of their event, not in order. Spark is not imported.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import msgpack  # type: ignore[import-untyped]  # It ships no types.
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from disque_py.event_format import (
    BLOCK_HEAD,
    CODES,
    FIELDS_OF_ADDED,
    FIELDS_OF_CHANGE,
    FIELDS_OF_DELIVERED,
    FIELDS_WITH_RARE,
    MS_OF_CTIME,
    PACKED_MARK,
    PENDING,
    SCHEMA_VERSION,
    STATUS_NAMES,
    UNKNOWN,
    UNKNOWN_EVENT,
    line_fields,
)
from disque_py.spark.event_lines import batch_of, empty_maps
from disque_py.spark.event_schema import ARROW_SCHEMA, ARROW_TYPES

_CODES: Final = max(CODES) + 2
_NAMES: Final = tuple(CODES.get(code, UNKNOWN_EVENT)[0] for code in range(_CODES))
_ENTERED: Final = np.array([CODES.get(code, UNKNOWN_EVENT)[1] for code in range(_CODES)])

# Each layout begins with code and id. The first three end with creation time, queue and bytes.
_SHAPES: Final = (FIELDS_OF_ADDED, FIELDS_OF_DELIVERED, FIELDS_OF_CHANGE, FIELDS_WITH_RARE)
# Rare fields that may nevertheless occur in most jobs of one application.
_OFTEN: Final = frozenset(("meta", "priority", "error"))

_Ints: TypeAlias = npt.NDArray[np.int64]


class _Group:
    """Events of one shape. A run is consecutive events: (number of the first, Unix ms, count)."""

    __slots__ = ("events", "runs")

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.runs: list[tuple[int, int, int]] = []

    def numbers_and_moments(self) -> tuple[_Ints, _Ints]:
        """Return the sequence number and the time (Unix ms) of each event."""
        first, moments, counts = np.array(self.runs, np.int64).T
        before = np.cumsum(counts) - counts
        return np.arange(len(self.events)) + np.repeat(first - before, counts), np.repeat(moments, counts)


def heads_of(data: bytes | memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield (first event, count, Unix ms, packed events) of each block after the mark. Raises ValueError if cut off."""
    view = memoryview(data)
    at = len(PACKED_MARK)
    while at < len(view):
        if at + BLOCK_HEAD.size > len(view):
            raise ValueError("a block of events is cut off in its head")
        size, count, seq, wall_ms = BLOCK_HEAD.unpack_from(view, at)
        at += BLOCK_HEAD.size
        if at + size > len(view):
            raise ValueError(f"the block of event {seq} is cut off")
        yield seq, count, wall_ms, view[at : at + size]
        at += size


def end_of(data: bytes) -> int:
    """Return the number after the last event of a packed reply; 0 for an empty reply. Raises ValueError."""
    end = 0
    for seq, count, _, _ in heads_of(data):
        end = seq + count
    return end


def batches_of(node: str, log: str, data: bytes, first: int, count: int) -> list[pa.RecordBatch]:
    """Return `count` events from number `first` on, in any order. `data` has the blocks with these events.

    Raises ValueError.
    """
    groups, rare = _grouped(data, first, first + count)
    batches = []
    for shape, group in groups.items():
        batch = _batch(node, log, shape, group) if group.events else None
        if batch is not None:
            batches.append(batch)
        else:
            rare.events += group.events
            rare.runs += group.runs
    if rare.events:
        each = zip(*(column.tolist() for column in rare.numbers_and_moments()), rare.events, strict=True)
        batches.append(batch_of(node, log, [line_fields(*item) for item in each]))
    return batches


def _grouped(data: bytes, first: int, after: int) -> tuple[dict[int, _Group], _Group]:
    """Return the events by shape, and the events of unusual shapes."""
    groups = {shape: _Group() for shape in _SHAPES}
    rare = _Group()
    is_collecting = gc.isenabled()
    # The loop makes tens of thousands of tuples, none in a cycle. The garbage collector would visit all of them
    # again and again.
    gc.disable()
    try:
        for seq, _, wall_ms, packed in heads_of(data):
            events = _unpacked(packed, seq)
            start = max(seq, first)
            if seq < first or seq + len(events) > after:
                events = events[start - seq : max(0, after - seq)]
            shapes = set(map(len, events))
            shape = shapes.pop() if len(shapes) == 1 else FIELDS_WITH_RARE
            if shape in groups and shape != FIELDS_WITH_RARE:
                groups[shape].events += events
                groups[shape].runs.append((start, wall_ms, len(events)))
                continue
            for number, event in enumerate(events, start):
                shape = len(event)
                group = (
                    rare if shape == FIELDS_WITH_RARE and not event[-1].keys() <= _OFTEN else groups.get(shape, rare)
                )
                group.events.append(event)
                group.runs.append((number, wall_ms, 1))
    finally:
        if is_collecting:
            gc.enable()
    return groups, rare


def _unpacked(packed: memoryview, seq: int) -> tuple[tuple[Any, ...], ...]:
    try:
        events: tuple[tuple[Any, ...], ...] = msgpack.unpackb(packed, use_list=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the block of event {seq} can't be unpacked: {error}") from None
    return events


def _batch(node: str, log: str, shape: int, group: _Group) -> pa.RecordBatch | None:
    """Return the events of one of the usual shapes as a batch, or None if some of their metadata is not text."""
    count = len(group.events)
    fields = list(zip(*group.events, strict=True))
    more: tuple[dict[str, Any], ...] = fields.pop() if shape == FIELDS_WITH_RARE else ()
    meta = _metas([each.get("meta", ()) for each in more]) if more else empty_maps(count)
    if meta is None:
        return None
    numbers, moments = group.numbers_and_moments()
    codes = np.minimum(_ints(fields[0]), _CODES - 1)
    ctimes = _ints(fields[-3])
    zeros = np.zeros(count, np.int64)
    versions = np.ones(count, np.int64) if shape == FIELDS_OF_ADDED else _ints(fields[2])
    left = (
        zeros
        if shape == FIELDS_OF_ADDED
        else np.full(count, PENDING)
        if shape == FIELDS_OF_DELIVERED
        else _ints(fields[3])
    )
    left = np.where(left < len(STATUS_NAMES), left, UNKNOWN)  # A later version may have more states.
    since = zeros if shape == FIELDS_OF_ADDED else _ints(fields[-7])
    attempts, nacks, deliveries = (zeros,) * 3 if shape == FIELDS_OF_ADDED else map(_ints, fields[-6:-3])
    priorities = ctimes // MS_OF_CTIME
    if more:
        own = pa.array([each.get("priority") for each in more], pa.int64())
        priorities = np.asarray(pc.coalesce(own, pa.array(priorities)))
    columns: dict[str, Any] = {
        "node": pa.repeat(pa.scalar(node, pa.string()), count),
        "log": pa.repeat(pa.scalar(log, pa.string()), count),
        "seq": pa.array(numbers),
        "ts": _moments(moments),
        "job_id": _texts(fields[1], "ascii"),
        "ctime": pa.array(ctimes),
        "queue": _texts(fields[-2], "utf-8"),
        "version": pa.array(versions),
        "event": _named(_NAMES, codes),
        "from_state": _named(STATUS_NAMES, left),
        "to_state": _named(STATUS_NAMES, _ENTERED[codes]),
        "since": _moments(since, since == 0),
        "attempt": pa.array(attempts),
        "nacks": pa.array(nacks),
        "deliveries": pa.array(deliveries),
        "priority": pa.array(priorities),
        "meta": meta,
        "body_size": pa.array(_ints(fields[-1])),
        "v": pa.array(np.full(count, SCHEMA_VERSION)),
        "extra": empty_maps(count),
    }
    if more:
        columns["error"] = pa.array([each.get("error") for each in more], pa.string())
    return pa.RecordBatch.from_arrays(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in ARROW_SCHEMA],
        schema=ARROW_SCHEMA,
    )


def _metas(metas: list[tuple[bytes, ...]]) -> pa.Array | None:
    """Return flat lists (name, value, name, value …) as maps, or None if a word is not text."""
    words = list(chain.from_iterable(metas))
    try:
        names, values = (pa.array(words[part::2], pa.binary()).cast(pa.string()) for part in (0, 1))
    except pa.ArrowInvalid:
        return None
    ends = np.cumsum([0, *map(len, metas)]) // 2
    return pa.MapArray.from_arrays(pa.array(ends.astype(np.int32)), names, values)


def _ints(values: tuple[int, ...]) -> _Ints:
    return np.fromiter(values, np.int64, len(values))


def _named(names: Sequence[str | None], at: _Ints) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(at))


def _moments(values: _Ints, are_null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(values * 1000, pa.int64(), mask=are_null).cast(ARROW_TYPES["timestamp"])


def _texts(values: tuple[bytes, ...], encoding: str) -> pa.Array:
    """Return bytes as text, as lines do: undecodable bytes become U+FFFD. One value in all rows is decoded once."""
    if values[0] == values[-1] and len(known := set(values)) == 1:
        return pa.repeat(pa.scalar(known.pop().decode(encoding, "replace"), pa.string()), len(values))
    try:
        texts = pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        texts = None
    if texts is None or (encoding == "ascii" and not _is_ascii(texts)):
        return pa.array([value.decode(encoding, "replace") for value in values], pa.string())
    return texts


def _is_ascii(texts: pa.Array) -> bool:
    data = texts.buffers()[2]
    return data is None or bytes(data).isascii()
