"""Decoding of an event log's NDJSON lines into Arrow batches.

Arrow's JSON reader parses the lines, four times as fast as Python would. This module does three things that the
reader can't do:

* Maps: the reader reads an object as a struct of the keys that it has met.
* Strings that look like dates: the reader would turn them into timestamps. So known keys of `meta` are requested
  as text.
* Unknown fields, which are kept in `extra`: Python reads the lines that have such fields again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from disque_py.spark.event_schema import ARROW_SCHEMA, COLUMNS, FIELD_KINDS, TEXT_MAP

# With more keys of metadata than this in one slice, a struct of all keys is no longer faster.
META_KEYS_MAX: Final = 64

_PLAIN: Final = {"int": pa.int64(), "ms": pa.int64(), "text": pa.string()}


class LineReader:
    """A decoder of one node's log, slice by slice. It remembers the keys of `meta` that it has met."""

    def __init__(self) -> None:
        self._meta_keys: dict[str, None] = {}

    def batch(self, node: str, log: str, lines: bytes) -> pa.RecordBatch:
        """Return whole lines as a batch of ARROW_SCHEMA. Raises ValueError for a line that is not JSON."""
        table = self._parse(lines)
        meta = None if table is None else _meta_map(table)
        if table is None or meta is None:
            return _read_slowly(node, log, lines)
        columns = []
        for name, _, kind in COLUMNS:
            if kind == "map":
                columns.append(meta)
            elif kind == "rest":
                columns.append(_extra(table, lines))
            elif not kind:
                columns.append(_constant(node if name == "node" else log, len(table)))
            else:
                columns.append(_column(table, name, kind))
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    def _parse(self, lines: bytes) -> pa.Table | None:
        for _ in range(2):
            try:
                table = pj.read_json(
                    pa.BufferReader(lines),
                    # One block: a line may be as long as the slice.
                    pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                    pj.ParseOptions(explicit_schema=self._wanted(), unexpected_field_behavior="infer"),
                )
            except pa.ArrowInvalid:
                return None  # Python either reads the lines or gives a more exact error.
            if "meta" not in table.column_names or not pa.types.is_struct(table["meta"].type):
                return table
            met = [field.name for field in table["meta"].type]
            if len(met) > META_KEYS_MAX:
                self._meta_keys.clear()
                return None
            if all(pa.types.is_string(field.type) for field in table["meta"].type):
                self._meta_keys = dict.fromkeys(met)
                return table
            self._meta_keys = dict.fromkeys(met)
        return None

    def _wanted(self) -> pa.Schema:
        fields = [pa.field(name, _PLAIN[kind]) for name, kind in FIELD_KINDS.items() if kind in _PLAIN]
        if self._meta_keys:
            fields.append(pa.field("meta", pa.struct([pa.field(key, pa.string()) for key in self._meta_keys])))
        return pa.schema(fields)


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _column(table: pa.Table, name: str, kind: str) -> pa.Array:
    array = _whole(table[name])
    if kind == "ms":
        return pc.multiply(array, 1000).cast(pa.timestamp("us", tz="UTC"))
    return array


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _extra(table: pa.Table, lines: bytes) -> pa.Array:
    """Return the unknown fields of each line. Few lines have any, so Python reads those again."""
    unknown = [name for name in table.column_names if name not in FIELD_KINDS]
    if not unknown:
        return empty_maps(len(table))
    has = np.any([np.asarray(_whole(table[name]).is_valid()) for name in unknown], axis=0)
    texts = lines.split(b"\n")
    extra: list[list[tuple[str, str | None]]] = [[]] * len(table)
    for row in np.flatnonzero(has):
        extra[row] = _texts(_unknown(json.loads(texts[row])))
    return pa.array(extra, TEXT_MAP)


def empty_maps(count: int) -> pa.Array:
    """Return `count` empty maps. They are not nulls: Spark takes a hundred times as long for a null map."""
    none = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), none, none)


def _meta_map(table: pa.Table) -> pa.Array | None:
    """Return Arrow's struct of `meta` as a map that has only the keys of each event; None if `meta` is no struct."""
    count = len(table)
    if "meta" not in table.column_names or pa.types.is_null(table["meta"].type):
        return pa.nulls(count, TEXT_MAP)
    if not pa.types.is_struct(table["meta"].type):
        return None
    struct = _whole(table["meta"])
    keys = [field.name for field in struct.type]
    width = len(keys)
    is_null = np.asarray(struct.is_null())
    if not width:
        offsets = pa.array(np.zeros(count + 1, np.int32), mask=np.append(is_null, False))
        return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
    # present[row, key]: whether there is a value.
    values = struct.flatten()
    present = np.stack([np.asarray(value.is_valid()) for value in values], axis=1)
    # The columns are concatenated, so cell (row, key) is at key * count + row.
    cells = np.arange(width)[None, :] * count + np.arange(count)[:, None]
    items = pa.concat_arrays(values).take(pa.array(cells[present]))
    names = pa.array(keys, pa.string()).take(pa.array(np.broadcast_to(np.arange(width), present.shape)[present]))
    ends = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(ends, mask=np.append(is_null, False)), names, items)


def _read_slowly(node: str, log: str, lines: bytes) -> pa.RecordBatch:
    events = []
    for line in lines.splitlines():
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ValueError(f"node {node}, log {log}: an event is not JSON ({error}): {line[:200]!r}") from None
        events.append(event)
    return batch_of(node, log, events)


def batch_of(node: str, log: str, events: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return events as a batch of ARROW_SCHEMA. `events` has the fields of their lines. Slow for many events."""
    columns = [_slow_column(name, kind, events, node, log) for name, _, kind in COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _slow_column(name: str, kind: str, events: list[dict[str, Any]], node: str, log: str) -> pa.Array:
    if not kind:
        return _constant(node if name == "node" else log, len(events))
    if kind == "rest":
        return pa.array([_texts(_unknown(event)) for event in events], TEXT_MAP)
    values: Iterable[Any] = (event.get(name) for event in events)
    if kind == "map":
        return pa.array([None if value is None else _texts(value.items()) for value in values], TEXT_MAP)
    if kind == "ms":
        micros = [None if value is None else value * 1000 for value in values]
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    if kind == "text":
        return pa.array([value if value is None else _text(value) for value in values], pa.string())
    return pa.array(list(values), pa.int64())


def _unknown(event: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in event.items() if name not in FIELD_KINDS]


def _texts(items: Iterable[tuple[str, Any]]) -> list[tuple[str, str | None]]:
    return [(name, _text(value)) for name, value in items]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
