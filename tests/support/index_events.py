"""Events for tests of the index: made as a reader would give them, written and committed without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store
from disque_py.spark.event_lines import LineReader
from disque_py.spark.index_commit import Committed, IndexCommit
from disque_py.spark.index_writing import IndexTask

TS = 1_700_000_000_000


def event(seq: int, job_id: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    """Return one event. By default a job enters queue q."""
    plain = {
        "seq": seq, "ts": TS + seq, "job_id": job_id, "ctime": TS, "queue": "q", "version": version, "event": "added",
        "from_state": None, "to_state": "pending", "since": None, "attempt": 0, "nacks": 0, "deliveries": 0,
        "priority": 5, "error": None, "worker": None, "meta": {}, "body_size": 1, "v": 1,
    }  # fmt: skip
    return plain | fields


def batch(*events: dict[str, Any], node: str = "n1", log: str = "l1") -> pa.RecordBatch:
    """Return events of one log as a reader gives them."""
    return LineReader().batch(node, log, b"".join(json.dumps(one).encode() + b"\n" for one in events))


def index(path: Path, *tasks: pa.RecordBatch, may_gap: bool = False, merge_every_s: int = 0) -> Committed:
    """Index a micro-batch: one task for each argument, then the commit. Without `merge_every_s` no change waits."""
    store = Store(str(path))
    parts = [IndexTask(store).write_all([task]) for task in tasks]
    schema = tasks[0].schema
    for task in tasks[1:]:
        schema = pa.unify_schemas([schema, task.schema])
    return IndexCommit(store, schema, may_gap=may_gap, merge_every_s=merge_every_s).commit(parts)


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    """Return a table's rows, sorted by job and position."""
    found: list[dict[str, Any]] = DeltaTable(str(path / table)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["job_id"] or "", row["node"], row["seq"]))
