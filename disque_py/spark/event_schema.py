"""What an event is, column by column, for Spark and for Arrow: said once.

`node` and `log` say whose log an event stands in, `seq` where; the other columns are the fields
that the broker writes (docs/protocol.md), times as timestamps. A field that this version doesn't
know is kept in `extra`, as text, so that a newer broker loses nothing on its way through an older
pipeline. Rule for change: columns are added, never renamed or removed.

Needs pyarrow; Spark is not imported.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

# name, type in Spark's words, type of the JSON field ("" for a column that is made here).
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

# The documented order of a job's events is (final, version, node, seq): what is final wins.
FINAL_RANKS: Final[dict[str, int]] = {"completed": 3, "canceled": 2, "expired": 1}
