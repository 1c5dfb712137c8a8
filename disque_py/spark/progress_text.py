"""The progress of a streaming query, as one line for people and as figures by their names. Pure.

`progress` is Spark's report of a batch (StreamingQueryProgress as a dict). `note` is the note that the index sink left
beside its tables (progress_file.py). Lag is the number of events that the logs have beyond the end of the batch.
progress_metrics.py gives the figures to Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lag_events(progress: Mapping[str, Any]) -> int | None:
    """Return the number of events between the end of the batch and the ends of the logs; None if no source says."""
    lag = None
    for source in progress.get("sources", ()):
        end, latest = _nodes(source.get("endOffset")), _nodes(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        lag = lag or 0
        for node, place in latest.items():
            reached = end.get(node, {})
            behind = reached.get("next", 0) if reached.get("log") == place.get("log") else 0
            lag += max(0, place.get("next", 0) - behind)
    return lag


def _nodes(offset: Any) -> dict[str, Any] | None:
    nodes = _offset(offset).get("nodes")
    return nodes if isinstance(nodes, dict) else None


def _offset(offset: Any) -> Mapping[str, Any]:
    """Return an offset as a mapping; empty if it belongs to another kind of source."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, Mapping) else {}


def lost(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the losses that the query has skipped (failOnDataLoss=false): `events` and `logs`; empty if none."""
    total: dict[str, int] = {}
    for source in progress.get("sources", ()):
        end = _offset(source.get("endOffset"))
        for name, count in (end.get("lost") or {}).items():
            total[name] = total.get(name, 0) + int(count)
    return total


def lag_seconds(progress: Mapping[str, Any], note: Mapping[str, Any], now_ms: int) -> float | None:
    """Return the age of the newest indexed event while others wait; 0 when none waits, None when it is unknown."""
    waiting = lag_events(progress)
    if waiting is None or "newest_ms" not in note:
        return None
    return max(0, now_ms - int(note["newest_ms"])) / 1000 if waiting else 0.0


def rows_of(progress: Mapping[str, Any], note: Mapping[str, Any]) -> int:
    """Return the number of rows of the batch.

    The sink's number comes first, because one row of Spark's may carry many events. There is no note in an object
    store. Then the offsets of the event logs count, and for other sources Spark's number.
    """
    if note.get("batch") == progress.get("batchId") and "rows" in note:
        return int(note["rows"]) + int(note.get("dropped", 0))
    rows = int(progress.get("numInputRows", 0))
    offsets = [_offset(source.get("endOffset")) for source in progress.get("sources", ())]
    if not rows or not offsets or not all("nodes" in offset and "from" in offset for offset in offsets):
        return rows
    return sum(map(_event_count, offsets))


def _event_count(offset: Mapping[str, Any]) -> int:
    """Return the number of events of the batch that ends at this offset."""
    ends, starts = offset["nodes"], offset["from"]
    return sum(
        int(end.get("next", 0)) - int(starts[node].get("next", 0))
        for node, end in ends.items()
        if node in starts and starts[node].get("log") == end.get("log")
    )


def line_of(name: str, progress: Mapping[str, Any], note: Mapping[str, Any], now_ms: int) -> str:
    """Return a batch as one line."""
    took_ms = int(progress.get("durationMs", {}).get("triggerExecution", 0))
    rows = rows_of(progress, note)
    words = [f"{name}: batch {progress.get('batchId')}", f"{rows} rows in {took_ms} ms"]
    if took_ms:
        words.append(f"{rows * 1000 // took_ms}/s")
    lag = lag_events(progress)
    if lag is not None:
        words.append(f"lag {lag} events")
    seconds = lag_seconds(progress, note, now_ms)
    if seconds:
        words.append(f"{seconds:.1f} s")
    gone = lost(progress)
    if gone:
        words.append(f"lost {gone.get('events', 0)} events and the ends of {gone.get('logs', 0)} logs")
    if note.get("batch") == progress.get("batchId") and "merge_ms" in note:
        words.append(f"{note.get('jobs', 0)} jobs merged in {note['merge_ms']} ms")
        if note.get("dropped"):
            words.append(f"{note['dropped']} rows already indexed")
    return ", ".join(words)


def figures_of(
    progress: Mapping[str, Any], note: Mapping[str, Any], rows_total: int, batches_total: int, now_ms: int
) -> dict[str, float]:
    """Return a query's figures by their Prometheus names, without unknown ones."""
    figures: dict[str, float | None] = {
        "disque_pipeline_rows_total": rows_total,
        "disque_pipeline_batches_total": batches_total,
        "disque_pipeline_batch": progress.get("batchId", 0),
        "disque_pipeline_batch_ms": progress.get("durationMs", {}).get("triggerExecution", 0),
        "disque_pipeline_lag_events": lag_events(progress),
        "disque_pipeline_lag_seconds": lag_seconds(progress, note, now_ms),
        "disque_pipeline_lost_events": lost(progress).get("events"),
        "disque_pipeline_lost_logs": lost(progress).get("logs"),
        "disque_pipeline_merge_ms": note.get("merge_ms"),
        "disque_pipeline_jobs": note.get("jobs"),
    }
    return {name: value for name, value in figures.items() if value is not None}
