"""The columns of an event, for Spark and for Arrow. This module alone defines them.

`node`, `log` and `seq` are the position of an event: its node, its log, and its number there. The other columns are
the fields that the broker writes (docs/protocol.md), with times as timestamps. `extra` keeps fields that this version
doesn't know, as text. So an older pipeline loses nothing of a newer broker's events. Columns are added, never renamed
or removed.

Needs pyarrow; Spark is not imported.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

# Name, Spark's type, kind of the JSON field ("" for a column that the source adds).
COLUMNS: Final = (
    ("node", "string", ""),
    ("log", "string", ""),
    ("seq", "bigint", "int"),
    ("ts", "timestamp", "ms"),
    ("job_id", "string", "text"),
    ("ctime", "bigint", "int"),
    ("queue", "string", "text"),
    ("version", "bigint", "int"),
    ("event", "string", "text"),
    ("from_state", "string", "text"),
    ("to_state", "string", "text"),
    ("since", "timestamp", "ms"),
    ("attempt", "bigint", "int"),
    ("nacks", "bigint", "int"),
    ("deliveries", "bigint", "int"),
    ("priority", "bigint", "int"),
    ("error", "string", "text"),
    ("worker", "string", "text"),
    ("meta", "map<string,string>", "map"),
    ("body_size", "bigint", "int"),
    ("body", "string", "text"),
    ("v", "bigint", "int"),
    ("extra", "map<string,string>", "rest"),
)

TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": TEXT_MAP,
}

SPARK_SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
ARROW_SCHEMA: Final = pa.schema([pa.field(name, ARROW_TYPES[kind]) for name, kind, _ in COLUMNS])
FIELD_KINDS: Final[dict[str, str]] = {name: kind for name, _, kind in COLUMNS if kind not in ("", "rest")}
